// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Times CUDA API calls: one pair of programs for all symbols of all libraries.
 *
 * Each thread has a small stack of open calls in task storage, which the kernel frees with the thread. An entry pushes a
 * frame that is already laid out as the record to be; the return completes it and hands it to the ring buffer from where
 * it lies. Which function it was comes from the attach cookie.
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
 *
 * Without `nested`, only the outermost call of a thread becomes a record. A nested entry then costs an entry alone where
 * the kernel lets the entry decline the return probe (session); elsewhere its return is recognised and ignored.
 */
#include "abi.h"
#include "cuda.h"
#include "ring.h"

#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Whether calls inside other traced calls are written too. */
volatile const bool nested = false;
/* Whether only processes in `tgids` are traced, else all. */
volatile const bool filter_tgids = false;
/* Whether children of processes in `tgids` are added to it. */
volatile const bool follow_children = false;

/* How long a thread waits at most for its new libraries to be probed. */
volatile const __u64 link_wait_ns = 1000000000;
/* Waits in vain, one after the other. User space is stuck then, and after a few of them nobody waits any more. */
__u32 vain_waits = 0;
#define MAX_VAIN_WAITS 3
/* Whether processes under seccomp get no return probe: on some kernels it could kill them. */
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

/* The tracefs tier: bucket << 12 | offset of the probe in its page -> symbol index. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, __u8);
} tgids SEC(".maps");

/* Threads that wait at `cuda_linked`, and since when, CLOCK_MONOTONIC ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} linking SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* Start of the earliest lost call since user space last set it to the maximum. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost_since SEC(".maps");

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
	struct frame frames[MAX_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_calls);
} open_calls SEC(".maps");

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

static __always_inline struct counters *count(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

/*
 * Counters are per CPU, so that calls on many CPUs do not fight for a cache line, and still added to atomically: a program
 * can be preempted by another thread's on the same CPU.
 */
#define ADD(counter, field) ({ if (counter) __sync_fetch_and_add(&(counter)->field, 1); })

/* Remembers from when on records are missing. Racing CPUs may lose an update; the next loss repairs it. */
static __always_inline void lost_from(__u64 start_ns)
{
	__u32 zero = 0;
	__u64 *since = bpf_map_lookup_elem(&lost_since, &zero);

	if (since && start_ns < *since)
		*since = start_ns;
}

static __always_inline __u64 stopped_at(void)
{
	__u32 zero = 0;
	__u64 *at = bpf_map_lookup_elem(&stop_at, &zero);

	return at ? *at : 0;
}

static __always_inline bool wanted(__u32 tgid)
{
	return !filter_tgids || bpf_map_lookup_elem(&tgids, &tgid);
}

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
 * Drops frames that a longjmp or an exception has left: those at or below the stack pointer of a new call. What is left
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
		struct frame *top = &calls->frames[(depth - 1) & (MAX_DEPTH - 1)];
		if (top->sp > sp || (top->sp == sp && jumped_from(ctx, task)))
			return;
		struct counters *c = count();
		ADD(c, seen);
		ADD(c, unmatched);
		lost_from(top->call.start_ns);
		calls->depth = depth - 1;
	}
	calls->too_deep = 0;
}

/* The process in its own PID namespace, 0 if that is the initial one. Constant over a process's life. */
static __always_inline __u32 pid_in_namespace(struct task_struct *task)
{
	struct pid *pid = task->group_leader->thread_pid;
	unsigned int level = pid ? BPF_CORE_READ(pid, level) : 0;
	struct upid upid = {};

	if (level == 0)
		return 0;
	bpf_core_read(&upid, sizeof(upid), &pid->numbers[level]);
	return upid.nr;
}

/* Keeps the arguments that `spec` asks for. What cannot be read is left out, by a smaller count. */
static __always_inline void keep_arguments(struct frame *frame, const struct symbol_spec *spec, const struct pt_regs *ctx)
{
	__u32 words = spec->words;

	frame->call.words = 0;
	frame->call.in_words = 0;
	if (words == 0)
		return;
	copy_registers(frame->tail, ctx);
	if (words > REGISTER_WORDS) {
		__u32 bytes = (words - REGISTER_WORDS) * 8;

		if (bytes > (MAX_WORDS - REGISTER_WORDS) * 8 ||
		    bpf_probe_read_user(&frame->tail[REGISTER_WORDS], bytes, stack_arguments(ctx)))
			words = REGISTER_WORDS;
	}
	if (words > MAX_WORDS)
		words = MAX_WORDS;
	frame->call.words = words;

	__u32 in_bytes = spec->in_words * 8;
	if (in_bytes == 0 || in_bytes > MAX_IN_WORDS * 8 || spec->in_word >= words)
		return;
	const void *from = (const void *)(frame->tail[spec->in_word & 15] + spec->in_offset);
	if (bpf_probe_read_user(&frame->tail[words], in_bytes, from) == 0)
		frame->call.in_words = spec->in_words;
}

/*
 * Opens a call. Returns whether the return of it is of interest: only a session can act on that.
 * `session`: an entry that returns false is not followed by its return.
 */
static __always_inline bool enter(struct pt_regs *ctx, __u32 symbol, bool session)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	struct counters *c;

	if (!wanted(tgid) || stopped_at())
		return false;
	struct task_struct *task = bpf_get_current_task_btf();
	if (spare_seccomp && bpf_core_field_exists(task->seccomp.mode) && BPF_CORE_READ(task, seccomp.mode) != 0)
		return false;
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!calls) {
		c = count();
		ADD(c, seen);
		ADD(c, map_full);
		lost_from(bpf_ktime_get_ns());
		return false;
	}
	if (calls->depth > 0) {
		drop_left_frames(calls, ctx, task);
		if (calls->depth > 0 && !nested)
			return false;
	}
	__u32 depth = calls->depth;
	if (depth >= MAX_DEPTH) {
		c = count();
		ADD(c, seen);
		ADD(c, too_deep);
		lost_from(bpf_ktime_get_ns());
		if (!session)
			calls->too_deep++;
		return false;
	}
	struct symbol_spec *spec = bpf_map_lookup_elem(&symbols, &symbol);
	if (!spec)
		return false;
	struct frame *frame = &calls->frames[depth & (MAX_DEPTH - 1)];
	frame->sp = entry_sp(ctx);
	frame->call.symbol = symbol;
	frame->call.pid = tgid;
	frame->call.tid = (__u32)id;
	keep_arguments(frame, spec, ctx);
	calls->depth = depth + 1;
	frame->call.start_ns = bpf_ktime_get_ns();
	return true;
}

/* Finds the frame of the call that returns with stack pointer `sp`, and pops it. */
static __always_inline struct frame *pop(struct thread_calls *calls, __u64 sp)
{
	struct counters *c = count();

	for (int i = 0; i < MAX_DEPTH; i++) {
		__u32 depth = calls->depth;

		if (depth == 0 || depth > MAX_DEPTH)
			break;
		struct frame *top = &calls->frames[(depth - 1) & (MAX_DEPTH - 1)];
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
		ADD(c, seen);
		ADD(c, unmatched);
		lost_from(top->call.start_ns);
	}
	/* A call that began after the stop has no frame either, and is none of ours. */
	if (stopped_at())
		return NULL;
	ADD(c, seen);
	ADD(c, unmatched);
	lost_from(bpf_ktime_get_ns());
	return NULL;
}

/* What both ends of a record's life have in common: the finished call, and the one still open at the end. */
static __always_inline void submit(struct frame *frame, struct task_struct *task, __u32 depth)
{
	struct call_record *call = &frame->call;
	__u32 words = call->words + call->in_words;

	call->kind = RECORD_CALL;
	call->depth = depth;
	call->ns_pid = pid_in_namespace(task);
	BPF_CORE_READ_INTO(&call->comm, task, comm);
	if (words > MAX_WORDS + MAX_IN_WORDS)
		words = MAX_WORDS + MAX_IN_WORDS;
	__u64 bytes = sizeof(*call) + words * 8;
	struct counters *c = count();

	ADD(c, seen);
	if (bpf_ringbuf_output(&events, call, bytes, ring_output_flags(&events, bytes))) {
		ADD(c, ring_full);
		lost_from(call->start_ns);
	}
}

static __always_inline int leave(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;

	if (!wanted(tgid))
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, 0);
	/* No call of this thread has ever been entered under our eyes: this one began before that, or was lost there. */
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
	submit(frame, task, calls->depth);
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
	return enter(ctx, bpf_get_attach_cookie(ctx), true) ? 0 : 1;
}

/* Multi-uprobe and perf events: the cookie is the symbol. */
SEC("uprobe")
int cuda_entry(struct pt_regs *ctx)
{
	enter(ctx, bpf_get_attach_cookie(ctx), false);
	return 0;
}

/* Trace events with many probes each: the cookie is the event's bucket, in which offsets within a page are unique. */
SEC("uprobe")
int cuda_entry_bucket(struct pt_regs *ctx)
{
	__u64 key = bpf_get_attach_cookie(ctx) << 12 | (instruction_pointer(ctx) & 0xfff);
	__u32 *symbol = bpf_map_lookup_elem(&buckets, &key);

	if (symbol)
		enter(ctx, *symbol, false);
	return 0;
}

SEC("uretprobe")
int cuda_return(struct pt_regs *ctx)
{
	return leave(ctx);
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
		.parent_pid = other,
		.at_ns = at_ns,
	};

	return bpf_ringbuf_output(&events, &record, sizeof(record), BPF_RB_FORCE_WAKEUP) == 0;
}

struct wait_for_word {
	__u32 tid;
	__u64 until_ns;
	__u64 yield_ns;
	/* Any memory of the thread that is mapped. */
	const void *memory;
};

/* How often the waiting thread lets others have its CPU. */
#define YIELD_INTERVAL_NS 100000

/*
 * One look whether user space has taken the thread off `linking`; 1 ends the wait.
 *
 * Now and then the thread reads its own memory the long way round, for what it does on the way: the kernel looks whether
 * somebody else should have the CPU (`cond_resched` in get_user_pages). Without that, a kernel that does not preempt
 * itself would keep user space from the very CPU on which it is waited for. Not oftener, because the way takes the lock
 * that user space needs to place its probes.
 */
static long wait_is_over(__u32 unused, struct wait_for_word *wait)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 tid = wait->tid;
	__u8 byte;

	if (!bpf_map_lookup_elem(&linking, &tid) || now > wait->until_ns)
		return 1;
	if (now > wait->yield_ns) {
		bpf_copy_from_user_task(&byte, sizeof(byte), wait->memory, bpf_get_current_task_btf(), 0);
		wait->yield_ns = bpf_ktime_get_ns() + YIELD_INTERVAL_NS;
	}
	return 0;
}

/*
 * At `_dl_debug_state`, which the dynamic linker calls for debuggers when it has mapped libraries and none of their code
 * has run yet. A thread of a command that we have started waits here until user space has probed what is new, so that not
 * even the first call is missed:
 *
 *     dlopen("libcudart.so.12")        maps it
 *       _dl_debug_state                tells user space, and waits        user space: finds libcudart in the process's
 *                                                                         maps, attaches, takes the thread off `linking`
 *                                      goes on
 *     cudaMalloc()                     is seen
 *
 * The wait is a busy one, since a program cannot sleep, and bounded: whatever becomes of user space, the thread goes on.
 * The program is a sleepable one because those keep no RCU readers waiting, and attaching needs RCU to move on.
 */
SEC("uprobe.s")
int cuda_linked(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32, tid = id;
	__u64 now = bpf_ktime_get_ns();
	struct wait_for_word wait = {
		.tid = tid,
		.until_ns = now + link_wait_ns,
		.memory = (const void *)entry_sp(ctx),
	};

	if (!bpf_map_lookup_elem(&tgids, &tgid) || bpf_map_update_elem(&linking, &tid, &now, BPF_ANY))
		return 0;
	/* The kernel allows so many rounds a loop, which are over in a third of a second. */
	if (tell(RECORD_LINKED, tgid, tid, now) && vain_waits < MAX_VAIN_WAITS)
		for (int i = 0; i < 4 && bpf_loop(1 << 23, wait_is_over, &wait, 0) == 1 << 23; i++)
			;
	if (bpf_map_delete_elem(&linking, &tid) == 0)
		__sync_fetch_and_add(&vain_waits, 1);
	else
		vain_waits = 0;
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(cuda_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	__u8 one = 1;

	/* Threads are born here too. */
	if (tgid == parent_tgid || !bpf_map_lookup_elem(&tgids, &parent_tgid))
		return 0;
	if (follow_children)
		bpf_map_update_elem(&tgids, &tgid, &one, BPF_ANY);
	tell(RECORD_FORK, tgid, parent_tgid, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(cuda_exec, struct task_struct *task)
{
	tell(RECORD_EXEC, task->tgid, 0, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(cuda_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	/* The kernel has counted this thread out of the process already. */
	if (task->signal->live.counter != 0 || !bpf_map_lookup_elem(&tgids, &tgid))
		return 0;
	bpf_map_delete_elem(&tgids, &tgid);
	tell(RECORD_EXIT, tgid, 0, bpf_ktime_get_ns());
	return 0;
}

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
		submit(frame, task, i);
	}
	calls->depth = 0;
	return 0;
}
