/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the programs of sched.bpf.c share: whom they watch, and what is kept of each thread.
 */
#ifndef INGERO_SCHED_STATE_H
#define INGERO_SCHED_STATE_H

#include "ns_pid.h"
#include "sched_common.h"

/* `__state` bits, linux/sched.h. */
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED 0x0004
#define TASK_TRACED 0x0008
#define TASK_PARKED 0x0040
#define TASK_DEAD 0x0080
#define TASK_WAKING 0x0200
#define TASK_NOLOAD 0x0400
#define TASK_RTLOCK_WAIT 0x1000
#define TASK_FROZEN 0x8000

/* Processes that user space asks to watch, for the iterator: TGID -> enum why. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} requests SEC(".maps");

/* What the iterator has done since it was loaded. */
enum { TASKS_ADDED, TASKS_FAILED, TASKS_COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TASKS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} tasks SEC(".maps");

struct thread {
	/* When it left the CPU; 0 while it is on one. */
	__u64 off_ns;
	/* When it came back last. */
	__u64 on_ns;
	/* When it was put on a run queue after its sleep; 0 before that. */
	__u64 runnable_ns;
	/* When somebody began to wake it; 0 where that counts no more. */
	__u64 waking_ns;
	__u32 state;
	__u32 cpu;
	struct who by;
	struct who waker;
	__u8 has_by;
	__u8 waker_irq;
	/* User space has been told of its process (leaders only). */
	__u8 announced;
	__u8 unused;
	__u32 why;
	__u32 ns_pid;
	/* Of its wait, what was to be had only when it began: sched_wait.h. */
	__u64 timeout_ns;
	__s32 poll_fd;
	__u8 timeout_wall;
	__u8 unused_too[3];
	/* It is one of those that its process waits for: sched_last.h. */
	__u32 counted;
	/* Places where it goes to sleep, a bit each: those that were looked at, where it slept long, where it sleeps now: sched_stack.h. */
	__u32 places_seen;
	__u32 places_long;
	__u32 place;
	/* The interpreter's state of it, seen last. */
	__u64 python_thread;
	struct page_sums pages;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *watched(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, NULL, 0);
}

/*
 * The element of a thread, or that of its process's leader: the kernel makes threads for a process (io_uring's) of whose birth
 * no tracepoint tells. For events that are rare beside context switches.
 */
static __always_inline struct thread *watched_process(struct task_struct *task)
{
	struct thread *t = watched(task);

	return t ? t : watched(task->group_leader);
}

/* A thread that cannot be watched: at least one record that will never be. */
static __always_inline void lost_thread(void)
{
	count_lost(map_full, bpf_ktime_get_ns());
}

static __always_inline void fill_who(struct who *who, struct task_struct *task)
{
	who->pid = task->tgid;
	who->tid = task->pid;
	bpf_probe_read_kernel(who->comm, sizeof(who->comm), task->comm);
}

static __always_inline void fill_head(struct event_head *head, __u32 kind, __u64 from_ns, __u64 to_ns,
				      struct task_struct *task, __u32 ns_pid)
{
	head->mono_ns = from_ns;
	head->dur_ns = to_ns - from_ns;
	head->kind = kind;
	head->ns_pid = ns_pid;
	fill_who(&head->who, task);
}

/*
 * An interval of which only one end was seen, between `from_ns` and now: a program did not run at the other. The kernel skips
 * one that would run inside itself, and some sandboxes let none run in processes that they hide: a switch from such a process
 * to a watched thread goes unseen. This is a lost record, and whose it is is known.
 */
static __always_inline void lost_end(struct task_struct *task, __u64 from_ns, __u64 now)
{
	__u64 until = until_ns();
	struct event_head *e;

	if (now > until)
		now = until;
	if (from_ns < now && reserve(e, from_ns)) {
		fill_head(e, EVENT_UNMATCHED, from_ns, now, task, 0);
		submit(e);
	}
}

static __always_inline __u32 left_as(unsigned int state)
{
	if (state == 0)
		return LEFT_RUNNABLE;
	if (state & TASK_DEAD)
		return LEFT_DEAD;
	/* Kernel threads that wait without being "blocked": uninterruptible, but no load. */
	if ((state & TASK_UNINTERRUPTIBLE) && (state & TASK_NOLOAD))
		return LEFT_IDLE;
	/* Frozen by somebody: `ps` shows D, but it waits for no device. */
	if (state & TASK_FROZEN)
		return LEFT_STOPPED;
	if (state & TASK_UNINTERRUPTIBLE)
		return LEFT_UNINTERRUPTIBLE;
	/* Waits for a lock that somebody holds (PREEMPT_RT's spinlocks); `ps` shows D here, too. */
	if (state & (TASK_INTERRUPTIBLE | TASK_RTLOCK_WAIT))
		return LEFT_SLEEPING;
	if (state & TASK_STOPPED)
		return LEFT_STOPPED;
	if (state & TASK_TRACED)
		return LEFT_TRACED;
	if (state & TASK_PARKED)
		return LEFT_PARKED;
	return LEFT_WAKING;
}

static __always_inline void flush_pages(struct task_struct *task, struct thread *t)
{
	struct amount_event *e = take_pages(&t->pages);

	if (!e)
		return;
	e->head.ns_pid = t->ns_pid;
	fill_who(&e->head.who, task);
	submit(e);
}

#endif
