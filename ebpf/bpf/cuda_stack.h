/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * The calls of one thread that have not returned, innermost last.
 *
 * A return finds its frame by the stack pointer, never by order alone:
 *
 *     main                               SP (grows down)      open frames after it
 *       cudaMalloc        entry          0x7f10               [0x7f10]
 *         cuMemAlloc_v2   entry          0x7e80               [0x7f10 0x7e80]     depth 1
 *         cuMemAlloc_v2   return         0x7e80 + 8           [0x7f10]            popped: 0x7e80 matches
 *       cudaMalloc        return         0x7f10 + 8           []
 *
 *       cudaFoo           entry          0x7f10               [0x7f10]
 *         longjmp past its return
 *       cudaBar           entry          0x7f30               [0x7f30]            0x7f10 <= 0x7f30: cudaFoo is gone,
 *                                                                                 counted as unmatched
 *
 * (On x86-64 a return has popped the return address, so the stack pointer is 8 higher than at the entry.)
 */
#ifndef INGERO_CUDA_STACK_H
#define INGERO_CUDA_STACK_H

#include "abi.h"
#include "cuda_state.h"
#include "ns_pid.h"

/* Only what tells a tail jump: see `jumped_from`. Both types are the kernel's own (kernel/events/uprobes.c). */
struct xol_area {
	unsigned long vaddr;
} __attribute__((preserve_access_index));

struct uprobes_state {
	struct xol_area *xol_area;
} __attribute__((preserve_access_index));

struct mm_struct {
	struct uprobes_state uprobes_state;
} __attribute__((preserve_access_index));

/*
 * Whether the function at whose entry we are was reached by a jump at the end of a traced one. Then the return address has
 * been replaced by the kernel's return trampoline, which is the first slot of the mm's xol area.
 */
static __always_inline bool jumped_from(const struct pt_regs *ctx, struct task_struct *task)
{
	struct xol_area *area = BPF_CORE_READ(task, mm, uprobes_state.xol_area);

	return area && return_address(ctx) == BPF_CORE_READ(area, vaddr);
}

/*
 * A thread's frame `index`, which is below MAX_DEPTH. That has been seen to already, so the compiler would leave the mask
 * out; but the verifier of Linux 6.1 loses sight of such a bound where it was tested on a copy in another register.
 */
static __always_inline struct frame *frame_at(struct thread_calls *calls, __u32 index)
{
	barrier_var(index);
	return &calls->frames[index & (MAX_DEPTH - 1)];
}

/*
 * Drops frames that a longjmp has left: those at or below the stack pointer of a new call. What is left
 * open encloses the new call.
 */
static __always_inline void drop_left_frames(struct thread_calls *calls, const struct pt_regs *ctx,
					     struct task_struct *task)
{
	__u64 sp = entry_sp(ctx);

	for (int i = 0; i < MAX_DEPTH; i++) {
		__u32 depth = calls->depth;

		if (depth == 0 || depth > MAX_DEPTH)
			break;
		struct frame *top = frame_at(calls, depth - 1);
		if (top->sp > sp || (top->sp == sp && jumped_from(ctx, task)))
			return;
		count_lost(unmatched, top->call.start_ns);
		calls->depth = depth - 1;
	}
	calls->too_deep = 0;
}

/*
 * A step of `changes`, which other CPUs see after all stores before it and before all stores behind it: on x86-64 stores are
 * seen in their order, elsewhere an atomic addition whose result is used is a barrier.
 */
static __always_inline void step(struct thread_calls *calls)
{
	barrier();
#if defined(__TARGET_ARCH_x86)
	*(volatile __u32 *)&calls->changes = calls->changes + 1;
#else
	volatile __u32 before = __sync_fetch_and_add(&calls->changes, 1);
	(void)before;
#endif
	barrier();
}

/* Finds the frame of the call that returns with stack pointer `sp`, and pops it. */
static __always_inline struct frame *pop(struct thread_calls *calls, __u64 sp)
{
	for (int i = 0; i < MAX_DEPTH; i++) {
		__u32 depth = calls->depth;

		if (depth == 0 || depth > MAX_DEPTH)
			break;
		struct frame *top = frame_at(calls, depth - 1);
		if (top->sp > sp) {
			/* Inside an open call, and without a frame: it was declined at its entry. */
			if (!nested)
				return NULL;
			if (calls->too_deep > 0) {
				calls->too_deep--;
				return NULL;
			}
			break;
		}
		calls->depth = depth - 1;
		if (top->sp == sp)
			return top;
		/* Deeper than the call that returns, so it was left without a return. */
		count_lost(unmatched, top->call.start_ns);
	}
	/* A call that began after the stop has no frame either, and is none of ours. */
	if (stopped_at())
		return NULL;
	count_lost(unmatched, bpf_ktime_get_ns());
	return NULL;
}

/*
 * The thread's name, as two words: of a pointer whose type the verifier knows, fields are read without a helper. A reader in
 * between the two words of a change of name sees half of each, as it would with one.
 */
static __always_inline void copy_comm(char *to, struct task_struct *task)
{
	const __u64 *from = (const __u64 *)task->comm;

	((__u64 *)to)[0] = from[0];
	((__u64 *)to)[1] = from[1];
}

/* Hands a frame to user space as a record, of a finished call or of one still open. */
static __always_inline void submit(struct thread_calls *calls, struct frame *frame, struct task_struct *task, __u32 depth)
{
	struct call_record *call = &frame->call;
	__u32 words = call->words + call->in_words;

	call->kind = RECORD_CALL;
	call->depth = depth;
	call->ns_pid = calls->ns_pid;
	copy_comm(call->comm, task);
	if (words > MAX_WORDS + MAX_IN_WORDS)
		words = MAX_WORDS + MAX_IN_WORDS;
	__u64 bytes = sizeof(*call) + words * 8;
	struct counters *here = counters_here();
	__u64 flags = here ? ring_flags_of_cpu(&here->unwoken_bytes, bytes) : BPF_RB_FORCE_WAKEUP;

	if (bpf_ringbuf_output(&events, call, bytes, flags))
		count_lost(ring_full, call->start_ns);
	else
		add_one(here, seen);
}

#endif
