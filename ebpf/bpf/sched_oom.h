/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Victims of the OOM killer, watched or not: an event of the whole machine (part of sched.bpf.c).
 *
 *     T of process P needs a page     none is left in its cgroup      Q is chosen: mark_victim(Q)
 *                                                                     record: Q, its sizes, by P/T
 *
 * The kernel does this in the context of the thread that needs the page, and before it signals the victim, so the victim still
 * has its memory. Before 6.9, and before the stable releases that took this over (6.1.130), the tracepoint has no more than a
 * thread id.
 */
#ifndef INGERO_SCHED_OOM_H
#define INGERO_SCHED_OOM_H

#include "sched_state.h"

/* A sum that CPUs add to in batches: `count` lacks what they have not added yet. */
struct percpu_counter {
	long long count;
} __attribute__((preserve_access_index));

/* An address space; sizes in pages. 6.2 made the counters of resident pages per-CPU ones. */
struct mm_struct {
	unsigned long total_vm;
	struct percpu_counter rss_stat[4];
} __attribute__((preserve_access_index));

/* Before that they are numbers in a structure of this name; threads keep up to 64 pages of theirs to themselves. */
struct mm_rss_stat {
	long count[4];
};

struct mm_struct___before_6_2 {
	struct mm_rss_stat rss_stat;
} __attribute__((preserve_access_index));

/* linux/mm_types_task.h: indices of rss_stat. */
enum { MM_FILEPAGES, MM_ANONPAGES, MM_SWAPENTS, MM_SHMEMPAGES };

/*
 * The counter may be below zero for a moment: CPUs add in batches. Clang's relocations know no variable index: an element has
 * the kernel's size, not that of our cut-down type.
 */
static __always_inline __u64 resident_bytes(struct mm_struct *mm, int kind)
{
	long long pages = 0;
	const void *at;

	if (bpf_core_type_exists(struct mm_rss_stat))
		at = (void *)mm + bpf_core_field_offset(struct mm_struct___before_6_2, rss_stat) + kind * sizeof(long);
	else
		at = (void *)mm + bpf_core_field_offset(struct mm_struct, rss_stat) +
		     kind * bpf_core_type_size(struct percpu_counter) + bpf_core_field_offset(struct percpu_counter, count);
	bpf_probe_read_kernel(&pages, sizeof(pages), at);
	return pages > 0 ? pages * page_bytes : 0;
}

static __always_inline struct oom_event *new_victim(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();
	struct oom_event *e;

	if (!tracing(now) || !reserve(e, now))
		return NULL;
	__builtin_memset(e, 0, sizeof(*e));
	e->head.mono_ns = now;
	e->head.kind = EVENT_OOM;
	fill_who(&e->by, task);
	return e;
}

/* (struct task_struct *task, uid_t uid), since 6.9 and 6.1.130. */
SEC("tp_btf/mark_victim")
int BPF_PROG(mark_victim, struct task_struct *victim)
{
	/* Read first: a field of a number, as older kernels have it, is what makes them refuse this program. */
	struct mm_struct *mm = victim->mm;
	struct oom_event *e = new_victim();

	if (!e)
		return 0;
	fill_who(&e->head.who, victim);
	e->head.ns_pid = ns_pid_of(victim);
	e->oom_score_adj = BPF_CORE_READ(victim, signal, oom_score_adj);
	if (mm) {
		e->flags = OOM_HAS_MEMORY;
		e->total_vm_bytes = mm->total_vm * page_bytes;
		e->anon_rss_bytes = resident_bytes(mm, MM_ANONPAGES);
		e->file_rss_bytes = resident_bytes(mm, MM_FILEPAGES);
		e->shmem_rss_bytes = resident_bytes(mm, MM_SHMEMPAGES);
	}
	submit(e);
	return 0;
}

/* (int pid) before. */
SEC("tp_btf/mark_victim")
int BPF_PROG(mark_victim_tid, __u64 tid)
{
	/* The verifier lets numbers alone be multiplied: kernels that have a pointer here refuse this program. */
	asm volatile("%0 *= 1" : "+r"(tid));
	struct oom_event *e = new_victim();

	if (!e)
		return 0;
	e->head.who.tid = (__u32)tid;
	submit(e);
	return 0;
}

#endif
