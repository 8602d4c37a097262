/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Calls that have not returned, found by looking at all threads (part of cuda.bpf.c).
 */
#ifndef INGERO_CUDA_OPEN_H
#define INGERO_CUDA_OPEN_H

#include "cuda_stack.h"

struct bpf_iter__task {
	struct task_struct *task;
} __attribute__((preserve_access_index));

/* Run once after detaching: what is still open becomes a record up to the stop. */
SEC("iter/task")
int cuda_open_calls(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);
	if (!calls)
		return 0;
	__u64 stopped = stopped_at();
	__u64 now = stopped ? stopped : bpf_ktime_get_ns();
	for (__u32 i = 0; i < MAX_DEPTH; i++) {
		if (i >= calls->depth)
			break;
		struct frame *frame = &calls->frames[i];
		frame->call.end_ns = now > frame->call.start_ns ? now : frame->call.start_ns;
		frame->call.ret = 0;
		frame->call.out = 0;
		frame->call.flags = CALL_OPEN;
		submit(calls, frame, task, i);
	}
	calls->depth = 0;
	return 0;
}

#endif
