/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the two scheduler tracers, sched.bpf.c and sched_raw.bpf.c, have in common: what the loader sets, the ring, the instant
 * at which tracing ends, and how deep this CPU is in interrupts.
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

/* A sum of page allocations is written at the latest after this time. */
#define PAGES_MAX_NS 10000000ull

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

/* [0]: the instant at which tracing ends, all ones while it goes on; 0 before it begins. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} stop_at SEC(".maps");

static __always_inline __u64 stop_ns(void)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&stop_at, &zero);

	return at ? *at : ~0ull;
}

/* Whether tracing has ended at `now`, though not all programs are detached yet, or has not begun. */
static __always_inline bool stopped(__u64 now)
{
	return now >= stop_ns();
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

#endif
