/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What the programs of cuda.bpf.c share: what the loader sets, the maps, and what is kept of each thread.
 */
#ifndef INGERO_CUDA_STATE_H
#define INGERO_CUDA_STATE_H

#include "cuda.h"

#include "loss.h"
#include "ring.h"

/* Whether calls inside other traced calls are written too. */
volatile const bool nested = false;
/* Whether only processes in `tgids` are traced, else all. */
volatile const bool filter_tgids = false;
/* Whether children of processes in `tgids` are added to it. */
volatile const bool follow_children = false;
/* Sessions: whether no call gets a return probe, and whether none does in processes under seccomp, which it could kill. */
volatile const bool entry_only = false;
volatile const bool spare_seccomp = false;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SYMBOLS);
	__type(key, __u32);
	__type(value, struct symbol_spec);
} symbols SEC(".maps");

/* Watched processes, until they end: their forks and their end are told. With `filter_tgids`, only their calls are traced. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	/* An `enum watched`. */
	__type(value, __u8);
} tgids SEC(".maps");

enum watched {
	WATCHED = 1,
	/* And its first call has been told of. */
	HAS_CALLED = 2,
};

/*
 * [0]: when tracing stopped; 0 before that. Probes go one library after the other and entries before returns; from this
 * instant on no call begins, so that what is left half-probed meanwhile can make no false record and no false loss.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} stop_at SEC(".maps");

struct frame {
	/* Stack pointer at the entry, where the return address lies (x86-64). */
	__u64 sp;
	struct call_record call;
	__u64 tail[MAX_WORDS + MAX_IN_WORDS];
};

struct thread_calls {
	/* Open frames. */
	__u32 depth;
	/* Calls that were too deep for a frame and have not returned. */
	__u32 too_deep;
	/* The process as its own PID namespace numbers it. */
	__u32 ns_pid;
	/* Odd while a frame is being filled in; see cuda_open.h. */
	__u32 changes;
	/* Start of the call that was told of as stuck last. */
	__u64 told_ns;
	struct frame frames[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_calls);
} open_calls SEC(".maps");

static __always_inline __u64 stopped_at(void)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&stop_at, &zero);

	return at ? *at : 0;
}

/*
 * Only hints for the search for libraries: a lost one costs a scan interval, so it is not counted. Returns whether it was
 * told.
 */
static __always_inline bool tell(enum record_kind kind, __u32 pid, __u32 other, __u64 at_ns)
{
	struct process_record record = {
		.kind = kind,
		.pid = pid,
		.other = other,
		.at_ns = at_ns,
	};

	return bpf_ringbuf_output(&events, &record, sizeof(record), BPF_RB_FORCE_WAKEUP) == 0;
}

#endif
