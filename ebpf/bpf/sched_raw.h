/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the programs of sched_raw.bpf.c share: where fields are, the maps, what is kept of each thread.
 */
#ifndef INGERO_SCHED_RAW_H
#define INGERO_SCHED_RAW_H

#include "sched_common.h"

#define CLONE_THREAD 0x00010000

/* Set by the loader: offsets in the records of trace events, bytes, from the kernel's format files. */
volatile const __u16 at_switch_prev = 0;
volatile const __u16 at_switch_state = 0;
volatile const __u16 at_switch_next = 0;
volatile const __u16 at_switch_next_comm = 0;
volatile const __u16 at_waking_tid = 0;
volatile const __u16 at_wakeup_tid = 0;
volatile const __u16 at_wakeup_new_tid = 0;
volatile const __u16 at_newtask_tid = 0;
volatile const __u16 at_newtask_comm = 0;
volatile const __u16 at_newtask_flags = 0;
volatile const __u16 at_exec_filename = 0;
volatile const __u16 at_exec_old_tid = 0;
/* 0: the record of this kernel has no such field. */
volatile const __u16 at_exit_last = 0;
volatile const __u16 at_alloc_frame = 0;
volatile const __u16 at_alloc_order = 0;

/* The process of every thread of the machine, as far as there is room; a thread that is not in it is named nowhere. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__type(key, __u32);
	__type(value, __u32);
} tgids SEC(".maps");

/* ebpf/src/sched/raw/thread.rs writes and reads these, field by field. */
struct raw_thread {
	/* When it came back last, or was added. */
	__u64 on_ns;
	__u64 runnable_ns;
	__u64 waking_ns;
	struct page_sums pages;
	__u8 is_off;
	__u8 tentative;
	/* Born, and has not been woken for the first time. */
	__u8 is_new;
	__u8 waker_irq;
	__u8 unused[4];
	/* The event of its time off the CPU, as far as it is known. Its head's thread is this one at all times. */
	struct switch_event off;
};

/* Watched threads, by tid. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 32768);
	__type(key, __u32);
	__type(value, struct raw_thread);
} threads SEC(".maps");

static __always_inline void read_field(void *to, __u32 bytes, void *ctx, __u16 at)
{
	bpf_probe_read_kernel(to, bytes, ctx + at);
}

static __always_inline __u32 tid_at(void *ctx, __u16 at)
{
	__u32 tid = 0;

	read_field(&tid, sizeof(tid), ctx, at);
	return tid;
}

static __always_inline struct raw_thread *watched(__u32 tid)
{
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void fill_current(struct who *who)
{
	__u64 ids = bpf_get_current_pid_tgid();

	who->pid = ids >> 32;
	who->tid = ids;
	bpf_get_current_comm(who->comm, sizeof(who->comm));
}

/* The current thread is `t`. */
static __always_inline void fill_self(struct who *who, struct raw_thread *t)
{
	bpf_get_current_comm(who->comm, sizeof(who->comm));
}

/* A thread that the record names; false if its process is not known. The idle task is process 0. */
static __always_inline bool fill_other(struct who *who, void *ctx, __u16 at_tid, __u16 at_comm)
{
	__u32 tid = tid_at(ctx, at_tid);
	__u32 *tgid = bpf_map_lookup_elem(&tgids, &tid);

	if (tid && !tgid)
		return false;
	who->pid = tid ? *tgid : 0;
	who->tid = tid;
	read_field(who->comm, TASK_COMM_LEN, ctx, at_comm);
	return true;
}

/* An event of the current thread, at an instant. */
static __always_inline void fill_head(struct event_head *head, __u32 kind, __u64 now)
{
	head->mono_ns = now;
	head->dur_ns = 0;
	head->kind = kind;
	head->ns_pid = 0;
	fill_current(&head->who);
}

/* An interval of which only one end was seen: see sched_state.h. */
static __always_inline void lost_end(struct raw_thread *t, __u64 from_ns, __u64 to_ns)
{
	struct event_head *e;

	if (from_ns < to_ns && reserve(e, from_ns)) {
		*e = t->off.head;
		e->mono_ns = from_ns;
		e->dur_ns = to_ns - from_ns;
		e->kind = EVENT_UNMATCHED;
		submit(e);
	}
}

static __always_inline bool add_new(__u32 tid, __u32 tgid, void *ctx)
{
	struct raw_thread t = {};

	t.is_new = 1;
	t.on_ns = bpf_ktime_get_ns();
	t.off.head.kind = EVENT_SWITCH;
	t.off.head.who.pid = tgid;
	t.off.head.who.tid = tid;
	read_field(t.off.head.who.comm, TASK_COMM_LEN, ctx, at_newtask_comm);
	return bpf_map_update_elem(&threads, &tid, &t, BPF_ANY) == 0;
}

/* A thread that was not its process's first has executed a program, is the first now, and has its number. */
static __always_inline void took_over(__u32 old, __u32 tid, __u64 now)
{
	struct raw_thread *t = watched(old), init = {};

	bpf_map_delete_elem(&tgids, &old);
	bpf_map_update_elem(&tgids, &tid, &tid, BPF_ANY);
	if (!t)
		return;
	/* While it waited for the others' end its number changed: it left under one and came back under the other. */
	if (t->is_off && !t->tentative)
		lost_end(t, t->off.head.mono_ns, now);
	init.on_ns = now;
	init.off.head = t->off.head;
	init.off.head.who.tid = tid;
	if (bpf_map_update_elem(&threads, &tid, &init, BPF_ANY))
		count_lost(map_full, now);
	bpf_map_delete_elem(&threads, &old);
}

static __always_inline void flush_pages(struct raw_thread *t)
{
	struct amount_event *e = take_pages(&t->pages);

	if (!e)
		return;
	e->head.ns_pid = 0;
	e->head.who = t->off.head.who;
	submit(e);
}

#endif
