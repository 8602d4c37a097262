/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * When to wake the reader of a ring buffer.
 *
 * Waking it for each record costs an interrupt for each record. So the reader sleeps with a timeout (50 ms, ring.rs) and
 * is woken early only when a stretch of the ring has filled up:
 *
 *     ring_wakeup_bytes = 4096:   0 ....... 4096 ....... 8192 ....... 12288
 *     unread bytes go             4032 -> 4096: wake     8128 -> 8192: wake again
 *
 * A record wakes when the count of unread bytes crosses a multiple of ring_wakeup_bytes with it. Crossing each multiple,
 * and not just the first, makes up for a crossing that two CPUs hid from each other. Where each nanosecond counts, each CPU
 * counts for itself (`ring_flags_of_cpu`).
 */
#ifndef INGERO_RING_H
#define INGERO_RING_H

#include "core.h"

/* A power of two, set by the loader from the size of the ring (ring.rs, `wakeup_bytes`). */
volatile const __u64 ring_wakeup_bytes = 4096;

/* The bytes before each record in the ring (kernel/bpf/ringbuf.c, BPF_RINGBUF_HDR_SZ). */
#define RING_HEADER_BYTES 8

/* Flags for bpf_ringbuf_submit of a record of `bytes`, which is reserved already. */
static __always_inline __u64 ring_submit_flags(void *ring, __u64 bytes)
{
	__u64 after = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	__u64 before = after - (bytes + RING_HEADER_BYTES);

	return ((before ^ after) & ~(ring_wakeup_bytes - 1)) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Flags for bpf_ringbuf_output of a record of `bytes`, which is not in the ring yet. */
static __always_inline __u64 ring_output_flags(void *ring, __u64 bytes)
{
	__u64 before = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA);
	__u64 after = before + bytes + RING_HEADER_BYTES;

	return ((before ^ after) & ~(ring_wakeup_bytes - 1)) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/*
 * Flags for bpf_ringbuf_output of a record of `bytes`, told without a look at the ring, whose positions are in cache lines that
 * the reader writes: each CPU counts what it has written since it woke the reader. `unwoken_bytes` is that count; one that gets
 * lost between two programs on one CPU only makes the next waking a little later. What goes unread before anybody wakes the
 * reader is up to ring_wakeup_bytes for each CPU, which the loader sees to (ring.rs, `wakeup_bytes_of_cpu`).
 */
static __always_inline __u64 ring_flags_of_cpu(__u64 *unwoken_bytes, __u64 bytes)
{
	__u64 unwoken = *unwoken_bytes + bytes + RING_HEADER_BYTES;
	bool due = unwoken >= ring_wakeup_bytes;

	*unwoken_bytes = due ? 0 : unwoken;
	return due ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

#endif
