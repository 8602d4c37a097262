/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The account of a tracer: how many records there ought to be, how many of them are lost and why, and since when.
 *
 *     seen = records in the ring + the sum of all other counters, always
 *
 * What cannot become a record is counted where it happens, by its reason. Beside that one time is kept: when the earliest
 * interval began that was lost since user space looked last.
 *
 *     a call from t=100 finds no room at t=180      seen 41, ring_full 1, lost_since 100
 *     one from t=90 finds none at t=185             seen 42, ring_full 2, lost_since 90
 *     user space looks at t=250                     "2 records are missing in [90, 250)"; lost_since: all ones
 *
 * Whoever includes this has declared `struct counters`: a `seen`, and a counter for each reason, all __u64.
 */
#ifndef INGERO_LOSS_H
#define INGERO_LOSS_H

#include "core.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* [0]: start of the earliest lost interval, CLOCK_MONOTONIC ns; user space sets it back to all ones. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost_since SEC(".maps");

static __always_inline struct counters *counters_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

/*
 * Counters are per CPU, so that programs on many CPUs do not fight for a cache line, and still added to atomically: a
 * program can be interrupted by another one on the same CPU. `here` may be NULL.
 */
#define add_one(here, field) \
	({ \
		struct counters *once_ = (here); \
		if (once_) \
			__sync_fetch_and_add(&once_->field, 1); \
	})

/* Remembers from when on records are missing. Racing CPUs may lose an update; both began to lose at about that time. */
static __always_inline void lost_from(__u64 start_ns)
{
	__u32 zero = 0;
	__u64 *since = bpf_map_lookup_elem(&lost_since, &zero);

	if (since && start_ns < *since)
		*since = start_ns;
}

/* Counts a record that there ought to be, of an interval that began at `start_ns`, as lost for `reason`, a counter's name. */
#define count_lost(reason, start_ns) \
	({ \
		struct counters *here_ = counters_here(); \
		add_one(here_, seen); \
		add_one(here_, reason); \
		lost_from(start_ns); \
	})

#endif
