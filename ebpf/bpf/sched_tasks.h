/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Tasks that exist already, and what is open at the end (part of sched.bpf.c): two task iterators, which user space runs by
 * reading them. They write events to the file that is read, not to the ring.
 */
#ifndef INGERO_SCHED_TASKS_H
#define INGERO_SCHED_TASKS_H

#include "sched_block.h"
#include "sched_last.h"
#include "sched_wait.h"

#define PF_EXITING 0x00000004

struct bpf_iter_meta {
	struct seq_file *seq;
	/* How many tasks came before. */
	__u64 seq_num;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

static __always_inline void count_task(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&tasks, &which);

	if (counter)
		*counter += 1;
}

static __always_inline bool is_gone(struct task_struct *task)
{
	return task->exit_state || (task->flags & PF_EXITING);
}

/*
 * Watches a task that exists already; NULL where there is no memory for it.
 *
 * If it is off the CPU now, it has left at an instant that we do not know. Its interval begins here and now, which is the
 * earliest there is evidence of, with the state that it is in.
 */
static __always_inline struct thread *begin_to_watch(struct task_struct *task, __u32 why)
{
	unsigned long switches = task->nvcsw + task->nivcsw;
	__u64 now = bpf_ktime_get_ns();
	struct thread init = {};
	struct thread *t;

	init.why = why;
	init.ns_pid = ns_pid_of(task);
	if (!is_gone(task) && !task->on_cpu) {
		unsigned int state = task->__state;

		init.state = left_as(state == TASK_WAKING ? 0 : state);
		init.off_ns = now;
	}
	t = bpf_task_storage_get(&threads, task, &init, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (t && !is_gone(task)) {
		count_thread(task->group_leader, t);
		/* Gone meanwhile: it may have been at its end before it was counted. */
		if (is_gone(task))
			uncount_thread(task->group_leader, t);
	}
	/* It came or went meanwhile: what we saw is no more true, unless a switch has put it right already. */
	if (t && init.off_ns && (task->on_cpu || task->nvcsw + task->nivcsw != switches))
		__sync_val_compare_and_swap(&t->off_ns, init.off_ns, 0);
	return t;
}

/* Why a task that is not watched yet should be; 0 if it should not. */
static __always_inline __u32 reason_to_watch(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct task_struct *parent = task->real_parent;
	__u32 tgid = task->tgid;
	struct thread *t;
	__u32 *request;

	if (watch_all)
		return WHY_ASKED;
	request = bpf_map_lookup_elem(&requests, &tgid);
	if (request)
		return *request;
	if (leader) {
		t = watched(leader);
		if (t)
			return t->why;
	}
	if (parent) {
		t = watched(parent);
		if (t)
			return WHY_CHILD;
	}
	return 0;
}

/*
 * Watches the tasks that should be and are not, and writes one WATCHED event for each process that is new by that.
 *
 * User space repeats this until a pass adds nothing, and nothing failed for want of memory. For instance, P is asked for, has
 * the child C, and C forks D while the iterator is on its way:
 *
 *     pass 1   C: its parent P is not watched yet     P: asked for, watched     (D is born of C, which is not watched)
 *     pass 2   C: child of P, watched                 D: child of C, watched    (or pass 3, if D comes before C)
 *     pass 3   nothing new: all descendants are watched, and so will be what they fork
 */
SEC("iter/task")
int watch_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct task_event e = {};
	struct thread *t;

	if (!task || BPF_CORE_READ(task, signal, live.counter) == 0)
		return 0;
	t = watched(task);
	if (!t) {
		__u32 why = reason_to_watch(task);

		/* A leader stays for its process's other threads, which are found through it, when it has gone itself. */
		if (!why || (is_gone(task) && task->pid != task->tgid))
			return 0;
		t = begin_to_watch(task, why);
		count_task(t ? TASKS_ADDED : TASKS_FAILED);
		if (!t)
			return 0;
	}
	if (t->announced || task->pid != task->tgid)
		return 0;
	fill_head(&e.head, EVENT_WATCHED, 0, 0, task, t->ns_pid);
	e.why = t->why;
	/* Where the buffer is full, the kernel calls us again for the same task. */
	if (bpf_seq_write(seq, &e, sizeof(e)) == 0)
		t->announced = 1;
	return 0;
}

/* Writes the request of this index that user space asks about, if it is with its device. */
static __always_inline void write_if_in_flight(struct seq_file *seq, __u64 index)
{
	__u32 slot = index;
	__u64 *address = bpf_map_lookup_elem(&asked, &slot);
	struct io_event *made;
	struct request *rq;
	struct io_event e;

	/* A kernel without block devices has no such structure. */
	if (!address || !*address || !bpf_core_field_exists(((struct request *)0)->state))
		return;
	made = bpf_map_lookup_elem(&in_flight, address);
	rq = (struct request *)*address;
	if (!made || BPF_CORE_READ(rq, state) != MQ_RQ_IN_FLIGHT)
		return;
	e = *made;
	/* And what is left to do. */
	e.bytes += BPF_CORE_READ(rq, __data_len);
	bpf_seq_write(seq, &e, sizeof(e));
}

/*
 * Writes what is still open at the instant in `trace_until`; the other programs are detached by then, so nothing changes any more. Requests are
 * none of the tasks', but there is always a task for each, nearly.
 */
SEC("iter/task")
int open_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct wait_event w = {};
	struct amount_event pages = {};
	__u32 zero = 0;
	struct thread *t;
	__u64 *end;

	if (!task)
		return 0;
	write_if_in_flight(seq, ctx->meta->seq_num);
	t = watched(task);
	end = bpf_map_lookup_elem(&trace_until, &zero);
	if (!t || !end)
		return 0;
	if (t->pages.count) {
		fill_pages(&pages, &t->pages);
		pages.head.ns_pid = t->ns_pid;
		fill_who(&pages.head.who, task);
		bpf_seq_write(seq, &pages, sizeof(pages));
	}
	/* What left after that instant is none of ours. */
	if (!t->off_ns || t->off_ns >= *end || t->state == LEFT_DEAD)
		return 0;
	fill_head(&w.off.head, EVENT_WAIT, t->off_ns, *end, task, t->ns_pid);
	w.off.state = t->state;
	w.off.cpu = t->cpu;
	w.off.flags = SWITCH_OPEN;
	if (t->has_by) {
		w.off.flags |= SWITCH_HAS_BY;
		w.off.by = t->by;
	}
	if (t->state == LEFT_RUNNABLE)
		w.off.runq_ns = w.off.head.dur_ns;
	else if (t->runnable_ns && t->runnable_ns < *end)
		w.off.runq_ns = *end - t->runnable_ns;
	if (t->waking_ns > t->on_ns && t->waking_ns < *end) {
		if (t->waker_irq) {
			w.off.flags |= SWITCH_WAKER_IRQ;
		} else {
			w.off.flags |= SWITCH_HAS_WAKER;
			w.off.waker = t->waker;
		}
	}
	fill_wait(&w.wait, t, task);
	bpf_seq_write(seq, &w, sizeof(w));
	return 0;
}

#endif
