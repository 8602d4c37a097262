/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Calls that have not returned (part of cuda.bpf.c): while they hang, when their thread ends, and when tracing stops.
 *
 * A deadlocked collective makes no record by returning. So user space has all threads looked at now and then, and a thread
 * whose outermost call has been open for `stuck_ns` gives a record of it as far as it has come. Once: `told_ns` remembers
 * which call that was. What becomes of the call later makes a record as it would have without that.
 *
 *     stuck_ns = 10 s     t=2   cudaStreamSynchronize is entered
 *                         t=13  a look: open for 11 s         record [2, 13) open, told_ns = 2
 *                         t=14  a look: told of already
 *                         t=40  it returns                    record [2, 40) ret 0
 *                               or its thread ends            record [2, 40) open
 *                               or tracing stops              record [2, 40) open
 *
 * The look reads what the thread itself may be changing on another CPU. `changes` is odd while a frame is filled in and
 * different afterwards, and a return takes the frame off the stack before it touches it; so what was copied counts only if
 * the frame is still there and `changes` is as it was before:
 *
 *     look            reads changes = 6   copies the frame                     reads changes = 8: forget it
 *     the thread                          returns, is in a new call: 7, 8
 */
#ifndef INGERO_CUDA_OPEN_H
#define INGERO_CUDA_OPEN_H

#include "cuda_stack.h"

/* How long a call has to be open to be told of. */
volatile const __u64 stuck_ns = 10000000000;

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} __attribute__((preserve_access_index));

/*
 * Whether a thread's stack has shrunk beyond a call's frame: it has left the call by a longjmp. The stack pointer is the one
 * of its last way into the kernel, which is where a thread is that hangs or ends.
 */
static __always_inline bool has_left(struct task_struct *task, __u64 frame_sp)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 sp = 0;

	return bpf_probe_read_kernel(&sp, sizeof(sp), &regs->sp) == 0 && sp > frame_sp;
}

/* Makes a record of each open call of a thread, up to now or to the stop, and forgets the calls. */
static __always_inline void submit_open(struct thread_calls *calls, struct task_struct *task)
{
	__u64 stopped = stopped_at();
	__u64 now = stopped ? stopped : bpf_ktime_get_ns();

	for (__u32 i = 0; i < MAX_DEPTH; i++) {
		if (i >= calls->depth)
			break;
		struct frame *frame = frame_at(calls, i);
		if (has_left(task, frame->sp)) {
			count_lost(unmatched, frame->call.start_ns);
			continue;
		}
		frame->call.end_ns = now > frame->call.start_ns ? now : frame->call.start_ns;
		frame->call.ret = 0;
		frame->call.out = 0;
		frame->call.flags = CALL_OPEN;
		submit(calls, frame, task, i);
	}
	calls->depth = 0;
}

/* The calling thread ends, or gives up its program for another one: its calls will not return. */
static __always_inline void end_calls(struct task_struct *task)
{
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);

	if (calls && calls->depth > 0)
		submit_open(calls, task);
}

/* Run once after detaching: what is still open becomes a record up to the stop. */
SEC("iter/task")
int cuda_open_calls(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task)
		return 0;
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);
	if (calls)
		submit_open(calls, task);
	return 0;
}

/* Reads what another CPU may be changing; an atomic addition whose result is used keeps all reads on their side of it. */
static __always_inline __u32 read_in_order(__u32 *word)
{
	return __sync_fetch_and_add(word, 0);
}

/*
 * Run now and then: tells of threads whose outermost call has been open for long. The records go to the file that is read,
 * for the ring may be full just then.
 */
SEC("iter/task")
int cuda_stuck_calls(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct frame copy;

	if (!task)
		return 0;
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);
	if (!calls || calls->depth == 0)
		return 0;
	/* Before anything else is read: the call is open at this instant if it still is when all has been read. */
	__u64 now = bpf_ktime_get_ns();
	__u32 changes = read_in_order(&calls->changes);

	__builtin_memcpy(&copy, &calls->frames[0], sizeof(copy));
	__u64 start_ns = copy.call.start_ns;
	if (changes & 1 || start_ns == calls->told_ns || start_ns > now || now - start_ns < stuck_ns)
		return 0;
	if (has_left(task, copy.sp))
		return 0;
	copy.call.kind = RECORD_CALL;
	copy.call.flags = CALL_OPEN | CALL_STUCK;
	copy.call.depth = 0;
	copy.call.end_ns = now;
	copy.call.ret = 0;
	copy.call.out = 0;
	copy.call.ns_pid = ns_pid_of(task);
	BPF_CORE_READ_INTO(&copy.call.comm, task, comm);
	if (read_in_order(&calls->changes) != changes || *(volatile __u32 *)&calls->depth == 0)
		return 0;
	/* Where the buffer is full, the kernel calls us again for the same task. */
	if (bpf_seq_write(ctx->meta->seq, &copy.call, sizeof(copy.call) + sizeof(copy.tail)))
		return 0;
	add_one(counters_here(), seen);
	calls->told_ns = start_ns;
	return 0;
}

#endif
