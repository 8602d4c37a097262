/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the two scheduler tracers, sched.bpf.c and sched_raw.bpf.c, have in common: what the loader sets, the ring, the instant
 * at which tracing ends, how deep this CPU is in interrupts, and the sums of a thread's page allocations.
 */
#ifndef INGERO_SCHED_COMMON_H
#define INGERO_SCHED_COMMON_H

#include "sched.h"

#include "loss.h"
#include "ring.h"

/* Set by the loader. */

/* Watch every thread there is. */
volatile const __u8 watch_all = 0;
/* One record for each page allocation instead of sums. */
volatile const __u8 raw_pages = 0;
volatile const __u64 page_bytes = 4096;
/* Tell where threads are in their code when they go to sleep. */
volatile const __u8 sleep_stacks = 0;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

/* How many interrupt handlers are running on this CPU, one inside the other: see sched_irq.h. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} irq_depth SEC(".maps");

/* [0]: tracing goes on until this instant: 0 before it has begun, all ones while no end is in sight. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} trace_until SEC(".maps");

static __always_inline __u64 until_ns(void)
{
	__u32 zero = 0;
	__u64 *until = bpf_map_lookup_elem(&trace_until, &zero);

	return until ? *until : ~0ull;
}

/* Not so before tracing has begun, nor when it has ended though not all programs are detached yet. */
static __always_inline bool tracing(__u64 now)
{
	return now < until_ns();
}

/* Room for an event whose interval begins at `from_ns`, or NULL; either way it has been seen. */
#define reserve(event, from_ns) \
	({ \
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0); \
		if (event) \
			add_one(counters_here(), seen); \
		else \
			count_lost(ring_full, from_ns); \
		event; \
	})

#define submit(event) bpf_ringbuf_submit(event, ring_submit_flags(&events, sizeof(*event)))

static __always_inline __u32 *irq_depth_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&irq_depth, &zero);
}

static __always_inline int irq_enter(void)
{
	__u32 *depth = irq_depth_here();

	if (depth)
		*depth += 1;
	return 0;
}

static __always_inline int irq_exit(void)
{
	__u32 *depth = irq_depth_here();

	if (depth && *depth)
		*depth -= 1;
	return 0;
}

static __always_inline bool in_irq(void)
{
	__u32 *depth = irq_depth_here();

	return depth && *depth;
}

/* At a context switch, which does not happen in an interrupt. */
static __always_inline void irq_reset(void)
{
	__u32 *depth = irq_depth_here();

	if (depth)
		*depth = 0;
}

/*
 * The page allocations of a thread since they were written last. Written are sums over less than PAGES_MAX_NS each:
 *
 *     t=100  a page      from 100, to 100, count 1, bytes 4096
 *     t=130  two pages   from 100, to 130, count 2, bytes 12288
 *     t=180  the thread leaves the CPU: one record [100, 130), count 2, bytes 12288; the sums are empty again
 *
 * A thread that stays on its CPU has them written by its next allocation or the timer's next tick after that time.
 */
#define PAGES_MAX_NS 10000000ull

struct page_sums {
	__u64 from_ns;
	__u64 to_ns;
	__u64 count;
	__u64 bytes;
	/* They are being changed: who interrupts this thread now must leave them alone. */
	__u8 busy;
	__u8 unused[7];
};

static __always_inline bool pages_due(struct page_sums *sums, __u64 now)
{
	return sums->count && now - sums->from_ns >= PAGES_MAX_NS;
}

/* The current thread was given 2^order pages. Sums that are due have been written before. */
static __always_inline void add_pages(struct page_sums *sums, __u32 order, __u64 now)
{
	sums->busy = 1;
	barrier();
	if (!sums->count)
		sums->from_ns = now;
	sums->to_ns = now;
	sums->count += 1;
	sums->bytes += page_bytes << (order & 31);
	barrier();
	sums->busy = 0;
}

static __always_inline void fill_pages(struct amount_event *e, struct page_sums *sums)
{
	e->head.mono_ns = sums->from_ns;
	e->head.dur_ns = sums->to_ns - sums->from_ns;
	e->head.kind = EVENT_PAGES;
	e->count = sums->count;
	e->bytes = sums->bytes;
}

/* Empties the sums into an event, which the caller tells whose they are and submits; NULL where there is nothing to submit. */
static __always_inline struct amount_event *take_pages(struct page_sums *sums)
{
	struct amount_event *e;

	if (!sums->count || sums->busy)
		return NULL;
	if (reserve(e, sums->from_ns))
		fill_pages(e, sums);
	sums->count = 0;
	sums->bytes = 0;
	return e;
}

#endif
