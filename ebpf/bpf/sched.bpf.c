/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * When each watched thread was off the CPU, why, who had the CPU meanwhile, and who woke it.
 *
 * A thread's way off the CPU and back, as the scheduler's tracepoints tell it:
 *
 *     t=100  sched_switch  prev=T (state S)  next=U     T left: off_ns=100, state=S, by=U
 *     t=700  sched_waking  p=T, current=V               V woke it: waker=V
 *     t=705  sched_wakeup  p=T                          it is on a run queue: runnable_ns=705
 *     t=900  sched_switch  prev=W            next=T     back:
 *                  record [100, 900): state S, runq 900-705=195, by U, prev W, waker V
 *
 * A preempted thread leaves with state R and was runnable all the time: runq is the whole interval.
 * sched_waking runs where the waker runs, and so names it; sched_wakeup may run on another CPU, by an interrupt sent there,
 * when the thread is really put on the run queue, which is where the kernel's own run delay (/proc/PID/schedstat) starts.
 *
 * Whom we watch. A thread is watched if it has an element in the `threads` task storage, and only then. Elements are made
 * in two places: for a new thread or child of a watched one in the fork tracepoint, before it can run; and for threads that
 * exist already by a task iterator (sched_tasks.h). So the hot path has no filter but the storage lookup, nothing is
 * allocated under the scheduler's locks, an element goes away with its thread, and a reused PID cannot inherit anything:
 * there is no table by PID. Task storage cannot be listed from user space as a hash could; but what is off the CPU when
 * tracing stops is found by a second iterator, and a table of threads, with its size to choose and to overflow, is not needed.
 *
 * Tasks that are woken before they have left. A wake-up may come while the thread is still on its way to sleep:
 *
 *   a) it had only announced its sleep: it goes on running (sched_waking and sched_wakeup, no switch). Here sched_wakeup
 *      comes while the thread is on the CPU (off_ns == 0), and the waker is forgotten;
 *   b) it is about to switch, on another CPU than the waker's: sched_waking comes before sched_switch, but sched_wakeup
 *      after it, since that takes the run queue's lock. The waker stands.
 */
#include "sched_state.h"

#include <bpf/bpf_tracing.h>

#include "sched_block.h"
#include "sched_cuda.h"
#include "sched_irq.h"
#include "sched_last.h"
#include "sched_net.h"
#include "sched_oom.h"
#include "sched_stack.h"
#include "sched_tasks.h"
#include "sched_wait.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SIGNAL_GROUP_EXIT 0x00000004

/* ---- On and off the CPU ------------------------------------------------------------------------------------------- */

/* `told`: the tracepoint says which state the thread left with, `prev_state`. */
static __always_inline void leave(struct thread *t, struct task_struct *prev, struct task_struct *next, __u64 now,
				  bool preempt, bool told, unsigned int prev_state)
{
	unsigned int state = prev->__state;

	if (t->off_ns)
		lost_end(prev, t->off_ns, now);
	/*
	 * Preempted on its way to sleep, it is still runnable whatever its state says. With a signal pending it does not go
	 * to sleep either; then the kernel has set the field back to "running" while the argument may be older.
	 */
	if (preempt || state == 0)
		state = 0;
	else if (told)
		/* The field may say "waking" already, the argument says what it left as. */
		state = prev_state;

	t->state = left_as(state);
	t->cpu = bpf_get_smp_processor_id();
	fill_who(&t->by, next);
	t->has_by = 1;
	t->runnable_ns = 0;
	if (state) {
		begin_wait(t, prev, now);
		sleeping(t, prev, now);
	}
	t->off_ns = now;
}

/* What is told of a time off the CPU that ends now, with `prev` before it there. */
static __always_inline void fill_switch(struct switch_event *e, struct thread *t, struct task_struct *prev, __u64 now,
					__u32 flags)
{
	e->state = t->state;
	e->cpu = bpf_get_smp_processor_id();
	fill_who(&e->prev, prev);
	if (t->has_by) {
		flags |= SWITCH_HAS_BY;
		e->by = t->by;
	}
	if (t->state == LEFT_RUNNABLE)
		e->runq_ns = now - t->off_ns;
	else if (t->runnable_ns && t->runnable_ns < now)
		e->runq_ns = now - t->runnable_ns;
	else
		e->runq_ns = 0;
	/* A wake-up from before it came here last belongs to another interval. */
	if (t->waking_ns > t->on_ns && t->waking_ns < now) {
		if (t->waker_irq) {
			flags |= SWITCH_WAKER_IRQ;
		} else {
			flags |= SWITCH_HAS_WAKER;
			e->waker = t->waker;
		}
	}
	e->flags = flags;
	e->unused = 0;
}

static __always_inline void come_back(struct thread *t, struct task_struct *next, struct task_struct *prev, __u64 now)
{
	__u64 until = until_ns();
	__u64 back = now;
	__u32 flags = SWITCH_HAS_PREV;
	struct switch_event *e;
	struct wait_event *w;

	if (now >= until) {
		/* Tracing ended while it was off the CPU. */
		now = until;
		flags = SWITCH_OPEN;
	}
	if (!t->off_ns) {
		lost_end(next, t->on_ns, now);
	} else if (t->off_ns < now && now - t->off_ns < WAIT_MIN_NS) {
		if (reserve(e, t->off_ns)) {
			fill_head(&e->head, EVENT_SWITCH, t->off_ns, now, next, t->ns_pid);
			fill_switch(e, t, prev, now, flags);
			submit(e);
		}
	} else if (t->off_ns < now && reserve(w, t->off_ns)) {
		fill_head(&w->off.head, EVENT_WAIT, t->off_ns, now, next, t->ns_pid);
		fill_switch(&w->off, t, prev, now, flags);
		fill_wait(&w->wait, t, next);
		submit(w);
	}
	slept(t, now - t->off_ns);
	t->off_ns = 0;
	t->on_ns = back;
}

static __always_inline int switched(bool preempt, struct task_struct *prev, struct task_struct *next, bool told,
				    unsigned int prev_state)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *t;

	irq_reset();
	t = watched(prev);
	if (t) {
		leave(t, prev, next, now, preempt, told, prev_state);
		flush_pages(prev, t);
	}
	t = watched(next);
	if (t)
		come_back(t, next, prev, now);
	return 0;
}

/* The fourth argument since 5.18, and wherever that was taken over. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	return switched(preempt, prev, next, true, prev_state);
}

/* Before. */
SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch_untold, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	return switched(preempt, prev, next, false, 0);
}

/* In the waker's context, before anything else of the wake-up. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct thread *t = watched(p);
	struct task_struct *waker;

	if (!t)
		return 0;
	waker = bpf_get_current_task_btf();
	/* The idle task wakes nobody by itself. */
	t->waker_irq = in_irq() || waker->pid == 0;
	if (!t->waker_irq)
		fill_who(&t->waker, waker);
	t->waking_ns = bpf_ktime_get_ns();
	return 0;
}

/* It is on a run queue. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	struct thread *t = watched(p);

	if (!t)
		return 0;
	if (t->off_ns)
		t->runnable_ns = bpf_ktime_get_ns();
	else
		/* It had not left yet and will not for this: case a) at the top. */
		t->waking_ns = 0;
	return 0;
}

/* A new thread waits for its first turn: runnable, and nobody took a CPU from it. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct thread *t = watched(p);
	__u64 now;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	fill_who(&t->waker, bpf_get_current_task_btf());
	t->waker_irq = 0;
	t->has_by = 0;
	t->state = LEFT_RUNNABLE;
	t->cpu = bpf_get_smp_processor_id();
	t->waking_ns = now;
	t->off_ns = now;
	return 0;
}

/* ---- Births and deaths -------------------------------------------------------------------------------------------- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *of_parent = watched(parent);
	struct thread init = {};
	struct task_event *e;
	struct thread *t;
	bool is_thread;
	__u64 now;

	now = bpf_ktime_get_ns();
	if ((!of_parent && !watch_all) || !tracing(now))
		return 0;
	is_thread = child->tgid == parent->tgid;
	init.ns_pid = ns_pid_of(child);
	init.why = WHY_CHILD;
	/* The allocator's stock on this CPU may have run out; it is refilled by an interrupt, which may come now. */
	for (int i = 0; i < 3; i++) {
		t = bpf_task_storage_get(&threads, child, &init, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (t)
			break;
	}
	if (t)
		count_thread(child->group_leader, t);
	else
		lost_thread();
	if (!is_thread)
		inherit_python(parent->tgid, child->tgid);
	if (reserve(e, now)) {
		fill_head(&e->head, is_thread ? EVENT_THREAD : EVENT_FORK, now, now, parent,
			  of_parent ? of_parent->ns_pid : 0);
		e->child_pid = child->tgid;
		e->child_tid = child->pid;
		e->child_ns_pid = init.ns_pid;
		e->code = 0;
		e->why = t ? WHY_CHILD : 0;
		e->alone = 0;
		submit(e);
		/* Not so when the record is lost: then the iterator tells user space later. */
		if (t)
			t->announced = 1;
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, int old_pid, struct linux_binprm *bprm)
{
	struct thread *t = watched(p);
	struct exec_event *e;
	__u64 now;

	if (!t)
		return 0;
	count_alone(p, t);
	forget_python(p->tgid);
	now = bpf_ktime_get_ns();
	if (tracing(now) && reserve(e, now)) {
		fill_head(&e->head, EVENT_EXEC, now, now, p, t->ns_pid);
		if (bpf_probe_read_kernel_str(e->exe, sizeof(e->exe), bprm->filename) < 0)
			e->exe[0] = 0;
		submit(e);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	struct thread *t = watched(p);
	struct task_event *e;
	__u64 now;
	bool last;

	if (!t)
		return 0;
	last = is_last(p, t);
	flush_pages(p, t);
	now = bpf_ktime_get_ns();
	if (tracing(now) && reserve(e, now)) {
		fill_head(&e->head, last ? EVENT_PROCESS_EXIT : EVENT_THREAD_EXIT, now, now, p, t->ns_pid);
		e->code = p->exit_code;
		if (last) {
			/* The process ends, whichever of its threads is the last to go. */
			e->head.who.tid = p->tgid;
			if (BPF_CORE_READ(p, signal, flags) & SIGNAL_GROUP_EXIT)
				e->code = BPF_CORE_READ(p, signal, group_exit_code);
		}
		e->child_pid = 0;
		e->child_tid = 0;
		e->child_ns_pid = 0;
		e->why = 0;
		e->alone = 0;
		submit(e);
	}
	if (last) {
		forget_sender(p);
		forget_python(p->tgid);
	}
	/* What it does from here on is the kernel's cleaning up. */
	bpf_task_storage_delete(&threads, p);
	return 0;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(mm_page_alloc, struct page *page, unsigned int order)
{
	struct task_struct *task;
	struct thread *t;
	__u64 now;

	if (!page)
		return 0;
	task = bpf_get_current_task_btf();
	t = watched(task);
	/* What an interrupt allocates is not this thread's. */
	if (!t || in_irq())
		return 0;
	now = bpf_ktime_get_ns();
	if (!tracing(now))
		return 0;
	if (pages_due(&t->pages, now))
		flush_pages(task, t);
	add_pages(&t->pages, order, now);
	if (raw_pages)
		flush_pages(task, t);
	return 0;
}
