/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What cuda.bpf.c and its reader (src/cuda/) agree on. Every offset here is checked by a test on the Rust side.
 */
#ifndef INGERO_CUDA_H
#define INGERO_CUDA_H

#include "core.h"

/* Open traced calls of one thread that are told apart; CUDA libraries nest two or three deep. */
#define MAX_DEPTH 8
/* Integer arguments in registers, by the calling conventions (System V x86-64, AAPCS64). */
#if defined(__TARGET_ARCH_x86)
#define REGISTER_WORDS 6
#else
#define REGISTER_WORDS 8
#endif
/* Argument words kept of a call: the registers, then the stack. */
#define MAX_WORDS 12
/* Words read at entry from the memory that an argument points to. */
#define MAX_IN_WORDS 16
/* Distinct symbols over all libraries. */
#define MAX_SYMBOLS 8192

enum record_kind {
	RECORD_CALL = 1,
	RECORD_FORK = 2,
	RECORD_EXEC = 3,
	RECORD_EXIT = 4,
	/* A watched process has mapped or unmapped libraries; `other` is the thread that waits for a word of ours. */
	RECORD_LINKED = 5,
	/* A process enters its first call; `other` is the symbol, and `ns_pid` and `comm` are known. */
	RECORD_FIRST_CALL = 6,
};

enum call_flags {
	/* `out` was read. */
	CALL_OUT = 1,
	/* The call has not returned by `end_ns`; `ret` and `out` say nothing. */
	CALL_OPEN = 2,
	/* With CALL_OPEN: it goes on, and its own record is still to come. */
	CALL_STUCK = 4,
	/* Its return is not probed: `start_ns` is all that is known of its time. */
	CALL_INSTANT = 8,
};

/* How one symbol is read, filled in from its signature by user space. */
struct symbol_spec {
	/* Argument words to keep, 0..MAX_WORDS. */
	__u8 words;
	/* Keep `in_words` words at `in_offset` bytes behind the pointer in argument word `in_word`. */
	__u8 in_word;
	__u8 in_words;
	/* Non-zero: after a return of 0, read `out_bytes` (4 or 8) behind the pointer in argument word `out_word`. */
	__u8 out_bytes;
	__u8 out_word;
	__u8 reserved;
	__u16 in_offset;
};

/* One finished call. `words` argument words and then `in_words` words read from memory follow. */
struct call_record {
	__u8 kind;
	__u8 flags;
	__u8 depth;
	__u8 words;
	__u8 in_words;
	__u8 reserved[3];
	__u64 start_ns;
	__u64 end_ns;
	__u32 pid;
	__u32 tid;
	/* The process as its own PID namespace numbers it; 0 in the initial one. */
	__u32 ns_pid;
	__u32 symbol;
	__s32 ret;
	__u32 reserved2;
	__u64 out;
	char comm[TASK_COMM_LEN];
};

/* A process was forked, has executed a program, calls for the first time, or has ended. */
struct process_record {
	__u8 kind;
	__u8 reserved[3];
	__u32 pid;
	/* Of a fork the parent; else by kind. */
	__u32 other;
	/* As in a call. */
	__u32 ns_pid;
	__u64 at_ns;
	/* The name of its first thread. */
	char comm[TASK_COMM_LEN];
};

/* Counted in the kernel, where it happened. seen = records in the ring + everything else, always. */
struct counters {
	/* Calls that ended and ought to be a record. */
	__u64 seen;
	/* The ring had no room. */
	__u64 ring_full;
	/* There was no memory for the thread's open calls, or it was in use. */
	__u64 map_full;
	/* A return without its entry, or an entry whose return never came (longjmp). */
	__u64 unmatched;
	/* More open calls in one thread than MAX_DEPTH. */
	__u64 too_deep;
	/* No part of the account: bytes written since this CPU woke the reader last (ring.h). */
	__u64 unwoken_bytes;
};

#endif
