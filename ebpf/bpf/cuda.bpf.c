// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Times CUDA API calls: one pair of programs for all symbols of all libraries.
 *
 * Each thread has a small stack of open calls in task storage, which the kernel frees with the thread. An entry pushes a
 * frame that is already laid out as the record to be; the return completes it and hands it to the ring buffer from where
 * it lies. Which function it was comes from the attach cookie.
 *
 * Without `nested`, only the outermost call of a thread becomes a record. A nested entry then costs an entry alone where
 * the kernel lets the entry decline the return probe (session); elsewhere its return is recognised and ignored.
 *
 * Where a return probe could kill the process, only entries are probed, and each makes a record of an instant: nothing tells
 * then how long a call took, or whether another one is inside it.
 */
#include "cuda_stack.h"

#include "cuda_arguments.h"
#include "cuda_linker.h"
#include "cuda_open.h"
#include "cuda_processes.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The tracefs tier: bucket << 12 | offset of the probe in its page -> symbol index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} buckets SEC(".maps");

/* What follows an entry. */
enum ending {
	/* Its return, unless the entry declines it. */
	RETURN_IF_WANTED,
	/* Its return. */
	RETURN,
	/* Nothing. */
	NO_RETURN,
};

/* Whether a thread's calls must not get return probes. */
static __always_inline bool is_spared(struct task_struct *task)
{
	if (entry_only)
		return true;
	return spare_seccomp && bpf_core_field_exists(task->seccomp.mode) && BPF_CORE_READ(task, seccomp.mode) != 0;
}

/* Makes a record of an entry whose return will not be seen. */
static __always_inline void submit_instant(struct thread_calls *calls, struct frame *frame, struct task_struct *task,
					   __u32 depth)
{
	frame->call.end_ns = frame->call.start_ns;
	frame->call.ret = 0;
	frame->call.out = 0;
	frame->call.flags = CALL_INSTANT;
	submit(calls, frame, task, depth);
}

/* Opens a call, or makes a record of its entry alone. Returns whether its return is of interest. */
static __always_inline bool enter(struct pt_regs *ctx, __u32 symbol, enum ending ending)
{
	if (stopped_at())
		return false;
	struct task_struct *task = bpf_get_current_task_btf();
	/* Whoever has a place for open calls is one of ours until it ends: no need to ask again. */
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);
	if (!calls) {
		calls = first_call(task, symbol);
		if (!calls)
			return false;
	}
	if (ending == RETURN_IF_WANTED && is_spared(task))
		ending = NO_RETURN;
	if (calls->depth > 0) {
		drop_left_frames(calls, ctx, task);
		if (calls->depth > 0 && !nested)
			return false;
	}
	__u32 depth = calls->depth;
	if (depth >= MAX_DEPTH) {
		count_lost(too_deep, bpf_ktime_get_ns());
		if (ending == RETURN)
			calls->too_deep++;
		return false;
	}
	struct symbol_spec *spec = bpf_map_lookup_elem(&symbols, &symbol);
	if (!spec)
		return false;
	struct frame *frame = frame_at(calls, depth);
	step(calls);
	frame->sp = entry_sp(ctx);
	frame->call.symbol = symbol;
	frame->call.pid = task->tgid;
	frame->call.tid = task->pid;
	keep_arguments(frame, spec, ctx);
	if (ending == NO_RETURN) {
		frame->call.start_ns = bpf_ktime_get_ns();
		step(calls);
		submit_instant(calls, frame, task, depth);
		return false;
	}
	calls->depth = depth + 1;
	frame->call.start_ns = bpf_ktime_get_ns();
	step(calls);
	return true;
}

/* The call returns. */
static __always_inline int leave(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);

	/*
	 * No call of this thread has ever been entered under our eyes: it is none of ours, or this one began before that, or was
	 * lost there.
	 */
	if (!calls)
		return 0;
	struct frame *frame = pop(calls, return_sp(ctx));
	if (!frame)
		return 0;
	struct call_record *call = &frame->call;
	call->end_ns = now;
	call->ret = return_value(ctx);
	call->flags = 0;
	call->out = 0;
	if (call->ret == 0) {
		__u32 symbol = call->symbol;
		struct symbol_spec *spec = bpf_map_lookup_elem(&symbols, &symbol);
		__u32 bytes = spec ? spec->out_bytes : 0;

		if ((bytes == 4 || bytes == 8) && spec->out_word < call->words &&
		    bpf_probe_read_user(&call->out, bytes, (const void *)frame->tail[spec->out_word & 15]) == 0)
			call->flags = CALL_OUT;
	}
	submit(calls, frame, task, calls->depth);
	return 0;
}

/*
 * Session: one program at both ends. They are told apart by the instruction pointer, because the kernel's own test is a
 * kfunc, which the loader cannot link: at the entry it is the probed address, at the return it is the caller's.
 * A result of 1 at the entry declines the return probe.
 */
SEC("uprobe")
int cuda_session(struct pt_regs *ctx)
{
	if (instruction_pointer(ctx) != bpf_get_func_ip(ctx))
		return leave(ctx);
	return enter(ctx, bpf_get_attach_cookie(ctx), RETURN_IF_WANTED) ? 0 : 1;
}

/* Multi-uprobe and perf events: the cookie is the symbol. */
SEC("uprobe")
int cuda_entry(struct pt_regs *ctx)
{
	enter(ctx, bpf_get_attach_cookie(ctx), RETURN);
	return 0;
}

/* The same where no return probes are set. */
SEC("uprobe")
int cuda_instant(struct pt_regs *ctx)
{
	enter(ctx, bpf_get_attach_cookie(ctx), NO_RETURN);
	return 0;
}

/* Trace events with many probes each: the cookie is the event's bucket, in which offsets within a page are unique. */
static __always_inline int enter_in_bucket(struct pt_regs *ctx, enum ending ending)
{
	__u64 key = bpf_get_attach_cookie(ctx) << 12 | (instruction_pointer(ctx) & 0xfff);
	__u32 *symbol = bpf_map_lookup_elem(&buckets, &key);

	if (symbol)
		enter(ctx, *symbol, ending);
	return 0;
}

SEC("uprobe")
int cuda_entry_bucket(struct pt_regs *ctx)
{
	return enter_in_bucket(ctx, RETURN);
}

SEC("uprobe")
int cuda_instant_bucket(struct pt_regs *ctx)
{
	return enter_in_bucket(ctx, NO_RETURN);
}

SEC("uretprobe")
int cuda_return(struct pt_regs *ctx)
{
	return leave(ctx);
}
