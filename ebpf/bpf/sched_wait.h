/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What a thread was in when it left the CPU: the system call, what that waited on, for how long at most.
 *
 * A thread that is off the CPU keeps the registers with which it entered the kernel at the top of its kernel stack, and its
 * files stay open meanwhile. So nearly all of it is read when the thread comes back, and only of waits that are long enough to be
 * worth it:
 *
 *     t=100  leaves, asleep      the time-out, which lies in its memory: only now is that at hand
 *     t=130  comes back          30 us: nothing more is read
 *     t=200  leaves, asleep
 *     t=900  comes back          system call 0 (read), descriptor 5, which is a pipe with the number 4711
 *
 * On x86-64 an exception keeps its error code where a system call keeps its number. SYSCALL, and nothing else, puts the address
 * to return to into rcx as well.
 */
#ifndef INGERO_SCHED_WAIT_H
#define INGERO_SCHED_WAIT_H

#include "sched_state.h"

#include <bpf/bpf_endian.h>

/* Shorter waits are not worth the look: many a lock is held for some microseconds. */
#define WAIT_MIN_NS 50000ull

#define PF_KTHREAD 0x00200000

#define CLOCK_REALTIME 0
#define CLOCK_MONOTONIC 1
#define TIMER_ABSTIME 1

/* linux/futex.h */
#define FUTEX_WAIT 0
#define FUTEX_WAIT_BITSET 9
#define FUTEX_CLOCK_REALTIME 256
#define FUTEX_CMD_MASK (~(128 | FUTEX_CLOCK_REALTIME))

#if defined(__TARGET_ARCH_x86)
enum nr {
	NR_POLL = 7,
	NR_NANOSLEEP = 35,
	NR_FUTEX = 202,
	NR_CLOCK_NANOSLEEP = 230,
	NR_EPOLL_WAIT = 232,
	NR_PPOLL = 271,
	NR_EPOLL_PWAIT = 281,
	NR_EPOLL_PWAIT2 = 441,
};
#else
enum nr {
	/* There is none of this number. */
	NR_POLL = -7,
	NR_EPOLL_WAIT = -8,
	NR_EPOLL_PWAIT = 22,
	NR_PPOLL = 73,
	NR_FUTEX = 98,
	NR_NANOSLEEP = 101,
	NR_CLOCK_NANOSLEEP = 115,
	NR_EPOLL_PWAIT2 = 441,
};
#endif

#define TCP_LISTEN 10

#define S_IFMT 0170000
#define S_IFSOCK 0140000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
	/* Of a socket's: its struct socket. */
	void *private_data;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

/* What of a task only this file reads. */
struct task_struct___wait {
	struct files_struct *files;
	unsigned in_iowait : 1;
};

struct in6_addr {
	__u8 s6_addr[16];
};

/* Where it is a number beside the name: in host order; `skc_dport` in network order. */
struct sock_common___wait {
	__u32 skc_daddr;
	__u16 skc_dport;
	__u16 skc_num;
	unsigned short skc_family;
	volatile unsigned char skc_state;
	struct in6_addr skc_v6_daddr;
};

struct sock___wait {
	struct sock_common___wait __sk_common;
	__u16 sk_type;
};

struct socket {
	struct sock___wait *sk;
};

#if defined(__TARGET_ARCH_arm64)
struct pt_regs___arm64 {
	__s32 syscallno;
	__u64 orig_x0;
};
#endif

#pragma clang attribute pop

/* The system call that a thread is in, and its arguments; a negative number: none. */
struct call {
	__s64 nr;
	__u64 args[4];
};

static __always_inline void call_of(struct call *call, struct task_struct *task)
{
	struct pt_regs *regs;

	call->nr = KERNEL_THREAD;
	if (task->flags & PF_KTHREAD)
		return;
	call->nr = NO_CALL;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!regs)
		return;
#if defined(__TARGET_ARCH_x86)
	if ((__s64)regs->orig_ax < 0 || regs->cx != regs->ip)
		return;
	call->nr = regs->orig_ax;
	call->args[0] = regs->di;
	call->args[1] = regs->si;
	call->args[2] = regs->dx;
	call->args[3] = regs->r10;
#else
	{
		struct pt_regs___arm64 *more = (void *)regs;

		call->nr = BPF_CORE_READ(more, syscallno);
		if (call->nr < 0)
			return;
		call->args[0] = BPF_CORE_READ(more, orig_x0);
		call->args[1] = regs->regs[1];
		call->args[2] = regs->regs[2];
		call->args[3] = regs->regs[3];
	}
#endif
}

struct timespec {
	__s64 s;
	__s64 ns;
};

/* A time in the current thread's memory, in ns; 0 where there is none. */
static __always_inline __u64 time_at(__u64 address)
{
	struct timespec time;

	if (!address || bpf_probe_read_user(&time, sizeof(time), (void *)address) || time.s < 0 || time.s > 4000000000ll)
		return 0;
	return time.s * 1000000000ull + time.ns;
}

/* What is left until an instant of the monotonic clock. */
static __always_inline __u64 left_until(__u64 then, __u64 now)
{
	return then > now ? then - now : then ? 1 : 0;
}

/*
 * How long the current thread, which goes to sleep now, is to wait at most: 0 = for ever, or not known. `wall`: it is an instant of
 * the wall clock instead.
 */
static __always_inline __u64 timeout_of(struct call *call, __u64 now, __u8 *wall)
{
	__u64 time;
	__u32 op;

	switch (call->nr) {
	case NR_FUTEX:
		op = call->args[1] & FUTEX_CMD_MASK;
		if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET)
			return 0;
		time = time_at(call->args[3]);
		if (op == FUTEX_WAIT)
			return time;
		*wall = time && (call->args[1] & FUTEX_CLOCK_REALTIME);
		return *wall ? time : left_until(time, now);
	case NR_CLOCK_NANOSLEEP:
		time = time_at(call->args[2]);
		if (!(call->args[1] & TIMER_ABSTIME))
			return time;
		*wall = time && call->args[0] == CLOCK_REALTIME;
		return *wall ? time : call->args[0] == CLOCK_MONOTONIC ? left_until(time, now) : 0;
	case NR_NANOSLEEP:
		return time_at(call->args[0]);
	case NR_PPOLL:
		return time_at(call->args[2]);
	case NR_EPOLL_PWAIT2:
		return time_at(call->args[3]);
	case NR_POLL:
		return (__s32)call->args[2] > 0 ? (__u32)call->args[2] * 1000000ull : 0;
	case NR_EPOLL_WAIT:
	case NR_EPOLL_PWAIT:
		return (__s32)call->args[3] > 0 ? (__u32)call->args[3] * 1000000ull : 0;
	}
	return 0;
}

/* The current thread leaves the CPU asleep: what of its wait lies in its own memory. */
static __always_inline void begin_wait(struct thread *t, struct task_struct *task, __u64 now)
{
	struct call call;
	__s32 fd;

	t->timeout_ns = 0;
	t->timeout_wall = 0;
	t->poll_fd = -1;
	call_of(&call, task);
	if (call.nr < 0)
		return;
	t->timeout_ns = timeout_of(&call, now, &t->timeout_wall);
	/* Of one descriptor, it is known which. */
	if ((call.nr == NR_POLL || call.nr == NR_PPOLL) && call.args[1] == 1 &&
	    bpf_probe_read_user(&fd, sizeof(fd), (void *)call.args[0]) == 0)
		t->poll_fd = fd;
}

static __always_inline void fill_peer(struct wait *wait, struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);
	struct sock___wait *sk = socket ? BPF_CORE_READ(socket, sk) : NULL;

	if (!sk)
		return;
	wait->family = BPF_CORE_READ(sk, __sk_common.skc_family);
	wait->sk_state = BPF_CORE_READ(sk, __sk_common.skc_state);
	wait->sk_type = BPF_CORE_READ(sk, sk_type);
	wait->port = wait->sk_state == TCP_LISTEN ? BPF_CORE_READ(sk, __sk_common.skc_num) :
						    bpf_ntohs(BPF_CORE_READ(sk, __sk_common.skc_dport));
	if (wait->family == 2)
		BPF_CORE_READ_INTO((__u32 *)wait->peer, sk, __sk_common.skc_daddr);
	else if (wait->family == 10 && bpf_core_field_exists(sk->__sk_common.skc_v6_daddr))
		BPF_CORE_READ_INTO((struct in6_addr *)wait->peer, sk, __sk_common.skc_v6_daddr);
}

/* What descriptor `fd` of a task is. */
static __always_inline void fill_file(struct wait *wait, struct task_struct *task, __u32 fd)
{
	struct task_struct___wait *more = (void *)task;
	struct fdtable *fdt = BPF_CORE_READ(more, files, fdt);
	struct file *file = NULL;
	struct file **slot;

	if (!fdt || fd >= BPF_CORE_READ(fdt, max_fds))
		return;
	slot = BPF_CORE_READ(fdt, fd) + fd;
	if (bpf_probe_read_kernel(&file, sizeof(file), slot) || !file)
		return;
	wait->mode = BPF_CORE_READ(file, f_inode, i_mode);
	wait->ino = BPF_CORE_READ(file, f_inode, i_ino);
	if ((wait->mode & S_IFMT) == S_IFSOCK)
		fill_peer(wait, file);
}

/* A task that is off the CPU: what it is in. */
static __always_inline void fill_wait(struct wait *wait, struct thread *t, struct task_struct *task)
{
	struct task_struct___wait *more = (void *)task;
	struct call call;

	__builtin_memset(wait, 0, sizeof(*wait));
	if (BPF_CORE_READ_BITFIELD_PROBED(more, in_iowait))
		wait->flags |= WAIT_IO;
	call_of(&call, task);
	wait->nr = call.nr;
	if (call.nr < 0)
		return;
	wait->arg = call.args[0];
	if (t->state == LEFT_RUNNABLE)
		return;
	wait->timeout_ns = t->timeout_ns;
	if (t->timeout_wall)
		wait->flags |= WAIT_WALL;
	if (call.nr == NR_POLL || call.nr == NR_PPOLL) {
		wait->arg = (__s64)t->poll_fd;
		if (t->poll_fd < 0)
			return;
	}
	if (wait->arg < 1048576)
		fill_file(wait, task, wait->arg);
}

#endif
