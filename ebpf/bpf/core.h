/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The few kernel structures that our programs read, and nothing else.
 *
 * A generated vmlinux.h has 150,000 lines, belongs to one kernel and hides what a program depends on. CO-RE matches
 * structures and fields *by name* against the BTF of the running kernel, so it is enough to declare the fields that are
 * read, in any order: the loader patches their real offsets into the program. That is what `preserve_access_index` asks
 * clang for. The fields below have had these names since 5.15, where nothing else is said.
 */
#ifndef INGERO_CORE_H
#define INGERO_CORE_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define TASK_COMM_LEN 16

#ifndef NULL
#define NULL ((void *)0)
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* A process as one PID namespace numbers it. */
struct upid {
	int nr;
};

/* `numbers` has level + 1 elements, the initial namespace's first. */
struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct mm_struct;

/* Present since 2.6; the counter of `atomic_t`. */
typedef struct {
	int counter;
} atomic_t;

/* What the threads of a process share. `live` counts those that have not begun to exit. */
struct signal_struct {
	atomic_t live;
	/* SIGNAL_GROUP_EXIT (0x4): all of them exit, with group_exit_code. */
	unsigned int flags;
	int group_exit_code;
	/* Threads that are not gone altogether. */
	int nr_threads;
	short oom_score_adj;
};

/* The system-call filter of a thread: 0 = none. Absent without CONFIG_SECCOMP. */
struct seccomp {
	int mode;
};

struct task_struct {
	/* 5.14 renamed `state` to `__state`. */
	unsigned int __state;
	unsigned int flags;
	int prio;
	int pid;
	int tgid;
	int exit_code;
	/* EXIT_ZOMBIE, EXIT_DEAD; 0 while it lives. */
	int exit_state;
	/* 1 while it is on a CPU. A byte in 7.3, and only of an unsigned field may the loader change the size of a load. */
	unsigned int on_cpu;
	/* How often it left a CPU: by itself, and not. */
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct signal_struct *signal;
	char comm[TASK_COMM_LEN];
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct mm_struct *mm;
	struct seccomp seccomp;
};

#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
/*
 * The context of a uprobe program. Not CO-RE: the first fields of x86-64's pt_regs are user space ABI (asm/ptrace.h),
 * and a context is checked by the verifier as plain offsets.
 */
struct pt_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__TARGET_ARCH_arm64)
/* `struct user_pt_regs` of asm/ptrace.h, with which the kernel's pt_regs begins. */
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
#else
#error "unknown architecture"
#endif

#endif
