/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A process that calls cuInit is watched from that instant (part of sched.bpf.c): an entry probe on the function in every
 * copy of libcuda, in all processes that map it.
 *
 *     t=100  cuInit is called      the calling thread is watched, and its process's leader; user space is told
 *     t=101  it blocks in the ioctl that opens the device: an interval of a watched thread
 *     t=300  user space has the task iterator watch the other threads and the children, if there are any
 *
 * A process with one thread, the usual case so early in its life, is watched as a whole at t=100, and its `watch` record says
 * so. With more threads the record carries the later instant, at which the last of them is.
 *
 * An entry probe alone: no system call is made in the target, so a system-call filter (seccomp) is none of our concern. The
 * probes that 6.18 turns into calls (functions that begin with a 5-byte nop) make one that filters do not see.
 */
#ifndef INGERO_SCHED_CUDA_H
#define INGERO_SCHED_CUDA_H

#include "sched_tasks.h"

SEC("uprobe")
int cuda_init(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_struct *leader = task->group_leader;
	struct task_event *e;
	bool alone;
	__u64 now;

	if (watched(task))
		return 0;
	alone = task->signal->nr_threads == 1;
	now = bpf_ktime_get_ns();
	if (!begin_to_watch(task, WHY_CUDA))
		lost_thread();
	if (!alone && leader && !watched(leader) && !begin_to_watch(leader, WHY_CUDA))
		lost_thread();

	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		/* The first records of the others may be missing: user space has the iterator look when it sees this loss. */
		lost_thread();
		return 0;
	}
	fill_head(&e->head, EVENT_CUDA, now, now, task, ns_pid_of(task));
	e->child_pid = 0;
	e->child_tid = 0;
	e->child_ns_pid = 0;
	e->code = 0;
	e->why = WHY_CUDA;
	e->alone = alone;
	if (alone) {
		struct thread *t = watched(task);

		if (t)
			t->announced = 1;
		else
			e->alone = 0;
	}
	/* User space has something to do at once. */
	bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
	return 0;
}

#endif
