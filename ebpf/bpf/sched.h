/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What sched.bpf.c hands to user space: ebpf/src/sched/event.rs decodes these, field by field, in the same order.
 *
 * Every event begins with the same head; `kind` tells what follows. Names (`comm`) are NUL-padded.
 */
#ifndef INGERO_SCHED_H
#define INGERO_SCHED_H

#include "core.h"

/* An executable that is being started. */
struct linux_binprm {
	const char *filename;
} __attribute__((preserve_access_index));

struct page;

enum event_kind {
	EVENT_SWITCH = 1,
	EVENT_FORK = 2,
	EVENT_THREAD = 3,
	EVENT_EXEC = 4,
	EVENT_THREAD_EXIT = 5,
	EVENT_PROCESS_EXIT = 6,
	EVENT_PAGES = 7,
	/* Written by the iterator: a process is watched now. */
	EVENT_WATCHED = 8,
	/* An interval of this thread has no record. */
	EVENT_UNMATCHED = 9,
	/* A process calls cuInit and is watched from now on. */
	EVENT_CUDA = 10,
	EVENT_IO = 11,
	EVENT_RETRANSMIT = 12,
	EVENT_OOM = 13,
	/* A switch with what the thread was in. */
	EVENT_WAIT = 14,
	/* Where in its code a thread is. */
	EVENT_STACK = 15,
};

/* Why a process is watched. User space stores the first two in `requests`. */
enum why {
	WHY_ASKED = 1,
	WHY_CUDA = 2,
	WHY_CHILD = 3,
};

/* What the thread left the CPU as (`switch_event.state`). */
enum left_as {
	LEFT_RUNNABLE = 'R',
	LEFT_SLEEPING = 'S',
	LEFT_UNINTERRUPTIBLE = 'D',
	LEFT_IDLE = 'I',
	LEFT_STOPPED = 'T',
	LEFT_TRACED = 't',
	LEFT_PARKED = 'P',
	LEFT_DEAD = 'X',
	LEFT_WAKING = 'W',
};

struct who {
	__u32 pid;
	__u32 tid;
	char comm[TASK_COMM_LEN];
};

struct event_head {
	__u64 mono_ns;
	__u64 dur_ns;
	__u32 kind;
	/* The process as its own PID namespace numbers it; 0 in the initial one. */
	__u32 ns_pid;
	struct who who;
};

/* `wait.nr` of a thread that was in no system call. */
#define NO_CALL (-1)
/* Of a thread of the kernel's own. */
#define KERNEL_THREAD (-2)

/* It waits for a device. */
#define WAIT_IO 1u
/* `timeout_ns` is an instant of the wall clock. */
#define WAIT_WALL 2u

/* What a thread was in while it was off the CPU: sched_wait.h. */
struct wait {
	/* The first argument: a descriptor, the address of a futex. Of poll, its only descriptor; else -1. */
	__u64 arg;
	/* How long it was to wait at most; 0 = not known. */
	__u64 timeout_ns;
	/* Where `arg` is a descriptor in use: what it is. */
	__u64 ino;
	__u32 mode;
	__s32 nr;
	__u32 flags;
	/* Of a socket: its family, type and state (linux/tcp_states.h), and of the internet's the other end; where it listens, its port. */
	__u16 family;
	__u16 port;
	__u8 peer[16];
	__u8 sk_state;
	__u8 sk_type;
	__u8 unused[6];
};

#define SWITCH_HAS_BY 1u
#define SWITCH_HAS_PREV 2u
#define SWITCH_HAS_WAKER 4u
#define SWITCH_WAKER_IRQ 8u
/* Still off the CPU at the end of the interval. */
#define SWITCH_OPEN 16u

struct switch_event {
	struct event_head head;
	__u64 runq_ns;
	__u32 state;
	__u32 cpu;
	struct who by;
	struct who prev;
	struct who waker;
	__u32 flags;
	__u32 unused;
};

/* Most times off the CPU are short: only those that are worth it carry this through the ring. */
struct wait_event {
	struct switch_event off;
	struct wait wait;
};

/* `task_event.code` where it is not known: no status of wait(2) is negative. */
#define CODE_UNKNOWN (-1)

/* FORK, THREAD, exits, WATCHED, CUDA. */
struct task_event {
	struct event_head head;
	__u32 child_pid;
	__u32 child_tid;
	/* Of the child in FORK. */
	__u32 child_ns_pid;
	/* The exit code as wait(2) reports it. */
	__s32 code;
	/* WATCHED: enum why. */
	__u32 why;
	/* CUDA: the calling thread is the only one of its process, so all of it is watched. */
	__u32 alone;
};

#define EXE_BYTES 256

struct exec_event {
	struct event_head head;
	char exe[EXE_BYTES];
};

/* PAGES, RETRANSMIT. */
struct amount_event {
	struct event_head head;
	__u64 count;
	__u64 bytes;
};

/* `io_event.op`. */
enum io_op {
	IO_READ = 0,
	IO_WRITE = 1,
	IO_DISCARD = 2,
};

#define DISK_BYTES 32

/* A request to a block device, from its making to its completion. */
struct io_event {
	struct event_head head;
	__u64 bytes;
	__u32 op;
	__u32 unused;
	char disk[DISK_BYTES];
};

#define OOM_HAS_MEMORY 1u

/* The OOM killer's victim: the head's thread. Before 6.9 only its `tid` is known. */
struct oom_event {
	struct event_head head;
	/* Whose allocation found no memory. */
	struct who by;
	__u64 total_vm_bytes;
	__u64 anon_rss_bytes;
	__u64 file_rss_bytes;
	__u64 shmem_rss_bytes;
	__s32 oom_score_adj;
	__u32 flags;
};

/* A power of two. */
#define MAX_STACK_FRAMES 64

/* It runs; otherwise it goes to sleep. */
#define STACK_ON_CPU 1u
/* It collects garbage. */
#define STACK_GC 2u
/* It is in a Python interpreter whose frames can be read. */
#define STACK_PYTHON 4u
/* Frames could not be read to the end. */
#define STACK_TORN 8u
/* There are more frames. */
#define STACK_CUT 16u

/* A frame of Python: its code object, and how far in that it is. */
struct python_frame {
	__u64 code;
	__u64 instruction;
};

/* Written with `count` frames, innermost first. */
struct stack_event {
	struct event_head head;
	/* Where it left user space. */
	__u64 ip;
	/* As in struct wait. */
	__s32 nr;
	__u32 flags;
	__u32 count;
	__u32 unused;
	struct python_frame frames[MAX_STACK_FRAMES];
};

/* What one CPU has counted. `seen` = records in the ring + all that is lost. */
struct counters {
	__u64 seen;
	__u64 ring_full;
	/* Threads that could not be watched for want of memory. */
	__u64 map_full;
};

#endif
