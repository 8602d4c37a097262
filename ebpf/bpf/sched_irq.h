/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Whether this CPU is in an interrupt (part of sched.bpf.c).
 *
 * A wake-up from an interrupt would name whatever thread it interrupted as the waker. The preempt count, which tells, cannot
 * be read by name on x86-64; the entry and exit tracepoints of the interrupt handlers tell too:
 *
 *     thread A runs     hrtimer_expire_entry   sched_waking p=B        hrtimer_expire_exit    A runs on
 *     depth 0           depth 1                B's waker is an         depth 0
 *                                              interrupt, not A
 *
 * Handlers may interrupt each other, hence a depth. An end may be missed (the kernel does not run a program inside itself),
 * so each context switch, which cannot happen in an interrupt, starts anew from zero.
 */
#ifndef INGERO_SCHED_IRQ_H
#define INGERO_SCHED_IRQ_H

#include "sched_state.h"

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/irq_handler_exit")
int irq_handler_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/softirq_entry")
int softirq_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/softirq_exit")
int softirq_exit(void *ctx)
{
	return irq_exit();
}

/* The timer tick is one of these: while a thread is on a CPU, it comes by every few milliseconds. */
SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = watched(task);

	if (t && t->pages.count && pages_due(&t->pages, bpf_ktime_get_ns()))
		flush_pages(task, t);
	return irq_enter();
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_expire_exit(void *ctx)
{
	return irq_exit();
}

/* Calls from other CPUs and deferred work: x86 only, so these are optional. */
SEC("tp_btf/call_function_entry")
int call_function_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/call_function_exit")
int call_function_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/call_function_single_entry")
int call_function_single_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/call_function_single_exit")
int call_function_single_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/irq_work_entry")
int irq_work_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/irq_work_exit")
int irq_work_exit(void *ctx)
{
	return irq_exit();
}

#endif
