/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Where in its code a watched thread is: now and then while it runs, and when it goes to sleep (part of sched.bpf.c).
 *
 * Both are read by the thread's own CPU at that very instant, so that nothing moves meanwhile: the address at which it left user
 * space, and the frames of CPython, which are a list in its memory. User space gives the offsets of that list, which depend on
 * the version, and turns code objects into names and lines (tools/ingero-sched/src/stacks).
 *
 *     task -> thread pointer (pthread_self)
 *     interpreter -> threads.head -> next -> ... the one whose thread_id is that pointer
 *                                                \-> frame -> previous -> previous -> NULL
 *                                                    |        code, instruction
 *                                                    code, instruction
 *
 * A sleep that is shorter than SLEEP_MIN_NS is not worth a stack, but how long it is going to be nobody knows when it begins. What
 * a thread waits for in one place takes about as long each time: so of each place (system call and first argument, by a hash) it is
 * remembered whether the last wait there was long, and a place that is new is looked at once.
 */
#ifndef INGERO_SCHED_STACK_H
#define INGERO_SCHED_STACK_H

#include "sched_state.h"
#include "sched_wait.h"

/* Shorter sleeps have no stack. */
#define SLEEP_MIN_NS 1000000ull
/* Threads of an interpreter that are looked through. */
#define MAX_PYTHON_THREADS 128
/* An offset that this version does not have. */
#define NO_OFFSET 0xffff
/* `owner` of a frame that only marks where C code was called from (FRAME_OWNED_BY_CSTACK). */
#define OWNED_BY_C 3

/* The interpreter of a process: set by user space, by TGID; goes with the process and with its program. */
struct python {
	/* Addresses of its main interpreter, and of that one's global lock (0: not known). */
	__u64 interpreter;
	__u64 gil;
	/* In the interpreter. */
	__u16 threads_head;
	__u16 collecting;
	/* In the thread. */
	__u16 next;
	__u16 thread_id;
	__u16 frame;
	/* Where `frame` leads to another structure first: in that one. */
	__u16 current_frame;
	/* In the frame. */
	__u16 code;
	__u16 previous;
	__u16 instruction;
	__u16 owner;
	/* In the lock. */
	__u16 holder;
	__u16 locked;
	/* Bytes of `instruction`: 4 = an index, 8 = an address. */
	__u16 instruction_bytes;
	__u16 unused[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	/* Preallocated: before 6.1 nothing else may be used at a clock's tick. */
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct python);
} pythons SEC(".maps");

/* A stack in the making. Programs on one CPU do not interrupt each other here: all of them run with interrupts off. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_event);
} stack_here SEC(".maps");

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#else
struct thread_struct_uw {
	unsigned long tp_value;
};

struct thread_struct {
	struct thread_struct_uw uw;
};
#endif

struct task_struct___stack {
	struct thread_struct thread;
};

#pragma clang attribute pop

static __always_inline __u64 thread_pointer(struct task_struct *task)
{
	struct task_struct___stack *more = (void *)task;

#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(more, thread.fsbase);
#else
	return BPF_CORE_READ(more, thread.uw.tp_value);
#endif
}

/* A word of the current process's memory; 0 where there is none. */
static __always_inline __u64 user_word(__u64 address)
{
	__u64 word = 0;

	if (!address || bpf_probe_read_user(&word, sizeof(word), (void *)address))
		return 0;
	return word;
}

/* The interpreter's state of the current thread; 0 where it has none. */
static __noinline __u64 python_thread(struct python *python, struct thread *t, __u64 pointer)
{
	__u64 state = t->python_thread;

	if (state && user_word(state + python->thread_id) == pointer)
		return state;
	state = user_word(python->interpreter + python->threads_head);
	for (int i = 0; i < MAX_PYTHON_THREADS && state; i++) {
		if (user_word(state + python->thread_id) == pointer) {
			t->python_thread = state;
			return state;
		}
		state = user_word(state + python->next);
	}
	return 0;
}

/* A frame of the current thread; false where it cannot be read. */
static __always_inline bool python_frame(struct python_frame *out, struct python *python, __u64 frame)
{
	__u32 index = 0;

	out->code = user_word(frame + python->code);
	if (python->instruction_bytes == 8) {
		out->instruction = user_word(frame + python->instruction);
		return out->code;
	}
	if (bpf_probe_read_user(&index, sizeof(index), (void *)(frame + python->instruction)))
		return false;
	out->instruction = index;
	return out->code;
}

/*
 * Fills in the frames of the current thread, innermost first. Their number is kept in the event: in a register the verifier would follow
 * it through all its values.
 */
static __noinline void python_frames(struct stack_event *e, struct python *python, __u64 state)
{
	__u64 frame = user_word(state + python->frame);

	if (python->current_frame != NO_OFFSET)
		frame = user_word(frame + python->current_frame);
	for (int i = 0; i < 2 * MAX_STACK_FRAMES && frame; i++) {
		__u32 n = e->count;
		__u8 owner = 0;

		if (n >= MAX_STACK_FRAMES) {
			e->flags |= STACK_CUT;
			break;
		}
		/* The verifier has to see a bound, which the compiler knows already. */
		barrier_var(n);
		n &= MAX_STACK_FRAMES - 1;
		if (python->owner != NO_OFFSET)
			bpf_probe_read_user(&owner, sizeof(owner), (void *)(frame + python->owner));
		if (owner != OWNED_BY_C) {
			if (!python_frame(&e->frames[n], python, frame)) {
				e->flags |= STACK_TORN;
				break;
			}
			e->count = n + 1;
		}
		frame = user_word(frame + python->previous);
	}
}

/* Writes where the current thread, which is watched, is. */
static __noinline int write_stack(struct thread *t, __u64 now, __u32 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 zero = 0, tgid = task->tgid;
	struct stack_event *e = bpf_map_lookup_elem(&stack_here, &zero);
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct python *python;
	struct call call;
	__u64 bytes;

	if (!e || !t || (task->flags & PF_KTHREAD))
		return 0;
	fill_head(&e->head, EVENT_STACK, now, now, task, t->ns_pid);
	e->flags = flags;
	e->count = 0;
	e->ip = 0;
	call_of(&call, task);
	e->nr = call.nr;
	if (regs) {
#if defined(__TARGET_ARCH_x86)
		e->ip = regs->ip;
#else
		e->ip = regs->pc;
#endif
	}
	python = bpf_map_lookup_elem(&pythons, &tgid);
	if (python) {
		__u64 state = python_thread(python, t, thread_pointer(task));

		e->flags |= STACK_PYTHON;
		if (state) {
			__u32 collecting = 0;

			python_frames(e, python, state);
			/* Whoever collects garbage has the lock. */
			if ((flags & STACK_ON_CPU) && python->gil && user_word(python->gil + python->holder) == state)
				bpf_probe_read_user(&collecting, sizeof(collecting),
						    (void *)(python->interpreter + python->collecting));
			if (collecting)
				e->flags |= STACK_GC;
		}
	}
	bytes = e->count * sizeof(e->frames[0]);
	barrier_var(bytes);
	if (bytes > sizeof(e->frames))
		bytes = sizeof(e->frames);
	bytes += offsetof(struct stack_event, frames);
	/* User space counts those that are told of: a sleep may turn out to be short. */
	if (bpf_ringbuf_output(&events, e, bytes, ring_output_flags(&events, bytes)))
		count_lost(ring_full, now);
	return 0;
}

/* Which of its places the current thread goes to sleep in: a bit. */
static __always_inline __u32 place_of(struct call *call)
{
	__u64 hash = (call->nr * 0x9e3779b97f4a7c15ull) ^ (call->args[0] * 0xff51afd7ed558ccdull);

	return 1u << (hash >> 59);
}

/* The current thread goes to sleep. */
static __always_inline void sleeping(struct thread *t, struct task_struct *task, __u64 now)
{
	struct call call = {};

	t->place = 0;
	if (!sleep_stacks || !tracing(now))
		return;
	call_of(&call, task);
	t->place = place_of(&call);
	if (!(t->places_seen & t->place) || (t->places_long & t->place))
		write_stack(t, now, 0);
}

/* It is back. */
static __always_inline void slept(struct thread *t, __u64 dur_ns)
{
	if (!t->place)
		return;
	t->places_seen |= t->place;
	if (dur_ns >= SLEEP_MIN_NS)
		t->places_long |= t->place;
	else
		t->places_long &= ~t->place;
	t->place = 0;
}

/* The interpreter of a process is also that of its children, until they run another program. */
static __always_inline void inherit_python(__u32 tgid, __u32 child)
{
	struct python *python = bpf_map_lookup_elem(&pythons, &tgid);
	struct python copy;

	if (!python)
		return;
	__builtin_memcpy(&copy, python, sizeof(copy));
	bpf_map_update_elem(&pythons, &child, &copy, BPF_ANY);
}

static __always_inline void forget_python(__u32 tgid)
{
	bpf_map_delete_elem(&pythons, &tgid);
}

/* The clock's tick, on each CPU. */
SEC("perf_event")
int sample_stack(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u64 now = bpf_ktime_get_ns();
	struct thread *t;

	if (!tracing(now))
		return 0;
	t = watched(task);
	if (t)
		write_stack(t, now, STACK_ON_CPU);
	return 0;
}

#endif
