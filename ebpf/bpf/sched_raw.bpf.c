/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What sched.bpf.c does, on kernels without type information (BTF): by the records of the kernel's trace events, whose layout
 * the kernel tells in tracefs, and by nothing else of the kernel's.
 *
 *     events/sched/sched_switch/format       user space reads        this program reads at run time
 *     field:pid_t prev_pid; offset:24;  -->  at_switch_prev = 24 -->  4 bytes from the record + 24
 *
 * What a task_struct would tell has to be learnt in other ways:
 *
 *     which process a thread belongs to    `tgids`: filled from /proc at the start, and by each birth and death since
 *     whom to watch                        `threads`: by user space from /proc, and by births of watched threads
 *     which thread ends its process        the event itself on newer kernels, else user space, by counting
 *     the exit code, the PID in a container, who issued I/O      not at all
 *
 * A thread's way off the CPU and back is that of sched.bpf.c. While it is off, the event to be is kept in `threads`:
 *
 *     t=100  sched_switch prev=T       T's event: from 100, state S, by U
 *     t=700  sched_waking T            waker V
 *     t=705  sched_wakeup T            runnable_ns = 705
 *     t=900  sched_switch next=T       the event is completed and written
 *
 * A thread that user space has added is `tentative` until it is first seen to leave or to come back: it was off the CPU since it
 * was added (mono_ns), if it comes back first, and on it, if it leaves first.
 */
#include "sched_raw.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* ---- On and off the CPU ------------------------------------------------------------------------------------------- */

/* The state as the trace event shows it: one bit, that of the letter in `ps`; 0x100 if it was preempted. */
static __always_inline __u32 left_as(long state)
{
	if (state == 0 || (state & 0x100))
		return LEFT_RUNNABLE;
	if (state & 0x01)
		return LEFT_SLEEPING;
	if (state & 0x02)
		return LEFT_UNINTERRUPTIBLE;
	if (state & 0x04)
		return LEFT_STOPPED;
	if (state & 0x08)
		return LEFT_TRACED;
	if (state & 0x30)
		return LEFT_DEAD;
	if (state & 0x40)
		return LEFT_PARKED;
	return LEFT_IDLE;
}

static __always_inline void leave(struct raw_thread *t, void *ctx, __u64 now)
{
	struct switch_event *e = &t->off;
	long state = 0;

	if (t->is_off && !t->tentative)
		lost_end(t, e->head.mono_ns, now);
	read_field(&state, sizeof(state), ctx, at_switch_state);
	t->tentative = 0;
	t->is_off = 1;
	t->runnable_ns = 0;
	fill_self(&e->head.who, t);
	e->head.mono_ns = now;
	e->state = left_as(state);
	e->cpu = bpf_get_smp_processor_id();
	e->flags = 0;
	if (fill_other(&e->by, ctx, at_switch_next, at_switch_next_comm))
		e->flags = SWITCH_HAS_BY;
}

static __always_inline void come_back(struct raw_thread *t, void *ctx, __u64 now)
{
	struct switch_event *off = &t->off;
	__u64 until = until_ns();
	struct switch_event *e;
	__u64 end = now < until ? now : until;

	if (!t->is_off) {
		if (!t->tentative)
			lost_end(t, t->on_ns, end);
	} else if (off->head.mono_ns < end && reserve(e, off->head.mono_ns)) {
		__builtin_memcpy(e, off, sizeof(*e));
		read_field(e->head.who.comm, TASK_COMM_LEN, ctx, at_switch_next_comm);
		e->head.dur_ns = end - off->head.mono_ns;
		e->cpu = bpf_get_smp_processor_id();
		e->flags &= SWITCH_HAS_BY;
		if (end == until)
			e->flags |= SWITCH_OPEN;
		fill_current(&e->prev);
		e->flags |= SWITCH_HAS_PREV;
		if (e->state == LEFT_RUNNABLE)
			e->runq_ns = e->head.dur_ns;
		else
			e->runq_ns = t->runnable_ns && t->runnable_ns < end ? end - t->runnable_ns : 0;
		if (t->waking_ns > t->on_ns && t->waking_ns < end)
			e->flags |= t->waker_irq ? SWITCH_WAKER_IRQ : SWITCH_HAS_WAKER;
		submit(e);
	}
	t->tentative = 0;
	t->is_off = 0;
	t->on_ns = now;
}

/* The current thread is still the one that leaves. */
SEC("tracepoint")
int sched_switch(void *ctx)
{
	__u32 prev = tid_at(ctx, at_switch_prev), next = tid_at(ctx, at_switch_next);
	__u64 now = bpf_ktime_get_ns();
	struct raw_thread *t;

	irq_reset();
	t = watched(prev);
	if (t) {
		leave(t, ctx, now);
		flush_pages(t);
	}
	t = watched(next);
	if (t)
		come_back(t, ctx, now);
	return 0;
}

SEC("tracepoint")
int sched_waking(void *ctx)
{
	struct raw_thread *t = watched(tid_at(ctx, at_waking_tid));

	if (!t)
		return 0;
	/* The idle task wakes nobody by itself. */
	t->waker_irq = in_irq() || (__u32)bpf_get_current_pid_tgid() == 0;
	if (!t->waker_irq)
		fill_current(&t->off.waker);
	t->waking_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tracepoint")
int sched_wakeup(void *ctx)
{
	struct raw_thread *t = watched(tid_at(ctx, at_wakeup_tid));

	if (!t)
		return 0;
	if (t->is_off)
		t->runnable_ns = bpf_ktime_get_ns();
	else if (!t->tentative)
		/* It had not left yet and will not for this: case a) in sched.bpf.c. */
		t->waking_ns = 0;
	return 0;
}

SEC("tracepoint")
int sched_wakeup_new(void *ctx)
{
	struct raw_thread *t = watched(tid_at(ctx, at_wakeup_new_tid));
	__u64 now = bpf_ktime_get_ns();

	/* The iterator of user space may have been quicker than the birth. */
	if (!t || !t->is_new)
		return 0;
	t->is_new = 0;
	fill_current(&t->off.waker);
	t->waker_irq = 0;
	t->waking_ns = now;
	t->is_off = 1;
	t->off.head.mono_ns = now;
	t->off.state = LEFT_RUNNABLE;
	t->off.flags = 0;
	t->off.cpu = bpf_get_smp_processor_id();
	return 0;
}

/* ---- Births and deaths -------------------------------------------------------------------------------------------- */

/* Where a thread is made, before it can run; the current one is its maker. */
SEC("tracepoint")
int task_newtask(void *ctx)
{
	__u32 maker = bpf_get_current_pid_tgid(), tid = tid_at(ctx, at_newtask_tid), tgid = tid;
	struct raw_thread *of_maker = watched(maker);
	__u64 now = bpf_ktime_get_ns();
	struct task_event *e;
	__u64 clone_flags = 0;
	bool added;

	read_field(&clone_flags, sizeof(clone_flags), ctx, at_newtask_flags);
	if (clone_flags & CLONE_THREAD)
		tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_map_update_elem(&tgids, &tid, &tgid, BPF_ANY);
	if ((!of_maker && !watch_all) || !tracing(now))
		return 0;

	added = add_new(tid, tgid, ctx);
	if (!added)
		count_lost(map_full, now);
	if (reserve(e, now)) {
		fill_head(&e->head, tgid == tid ? EVENT_FORK : EVENT_THREAD, now);
		e->child_pid = tgid;
		e->child_tid = tid;
		e->child_ns_pid = 0;
		e->code = 0;
		e->why = added ? WHY_CHILD : 0;
		e->alone = 0;
		submit(e);
	}
	return 0;
}

SEC("tracepoint")
int sched_process_exec(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid(), old = tid_at(ctx, at_exec_old_tid), where = 0;
	__u64 now = bpf_ktime_get_ns();
	struct raw_thread *t;
	struct exec_event *e;

	if (old != tid)
		took_over(old, tid, now);
	t = watched(tid);
	if (!t || !tracing(now))
		return 0;
	if (reserve(e, now)) {
		fill_head(&e->head, EVENT_EXEC, now);
		/* The low half is where the text is in the record. */
		read_field(&where, sizeof(where), ctx, at_exec_filename);
		if (bpf_probe_read_kernel_str(e->exe, sizeof(e->exe), ctx + (where & 0xffff)) < 0)
			e->exe[0] = 0;
		submit(e);
	}
	return 0;
}

SEC("tracepoint")
int sched_process_exit(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct raw_thread *t = watched(tid);
	__u64 now = bpf_ktime_get_ns();
	struct task_event *e;
	__u8 last = 0;

	bpf_map_delete_elem(&tgids, &tid);
	if (!t)
		return 0;
	flush_pages(t);
	/* Where the record does not tell, user space does (raw/lives.rs). */
	if (at_exit_last)
		read_field(&last, sizeof(last), ctx, at_exit_last);
	if (tracing(now) && reserve(e, now)) {
		fill_head(&e->head, last ? EVENT_PROCESS_EXIT : EVENT_THREAD_EXIT, now);
		if (last)
			e->head.who.tid = e->head.who.pid;
		e->child_pid = 0;
		e->child_tid = 0;
		e->child_ns_pid = 0;
		e->code = CODE_UNKNOWN;
		e->why = 0;
		e->alone = 0;
		submit(e);
	}
	bpf_map_delete_elem(&threads, &tid);
	return 0;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

SEC("tracepoint")
int mm_page_alloc(void *ctx)
{
	struct raw_thread *t = watched(bpf_get_current_pid_tgid());
	__u64 now = bpf_ktime_get_ns();
	unsigned long frame = 0;
	__u32 order = 0;

	if (!t || in_irq() || !tracing(now))
		return 0;
	read_field(&frame, sizeof(frame), ctx, at_alloc_frame);
	read_field(&order, sizeof(order), ctx, at_alloc_order);
	/* There was none to give. */
	if (frame == ~0ul)
		return 0;
	if (pages_due(&t->pages, now))
		flush_pages(t);
	add_pages(&t->pages, order, now);
	if (raw_pages)
		flush_pages(t);
	return 0;
}

/* ---- Interrupts: see sched_irq.h ---------------------------------------------------------------------------------- */

SEC("tracepoint")
int interrupt_entry(void *ctx)
{
	return irq_enter();
}

SEC("tracepoint")
int interrupt_exit(void *ctx)
{
	return irq_exit();
}
