/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * When each watched thread was off the CPU, why, who had the CPU meanwhile, and who woke it.
 *
 * A thread's way off the CPU and back, as the scheduler's tracepoints tell it:
 *
 *     t=100  sched_switch  prev=T (state S)  next=U     T left: off_ns=100, state=S, by=U
 *     t=700  sched_waking  p=T, current=V               V woke it: waker=V
 *     t=705  sched_wakeup  p=T                          it is on a run queue: runnable_ns=705
 *     t=900  sched_switch  prev=W            next=T     back:
 *                  record [100, 900): state S, runq 900-705=195, by U, prev W, waker V
 *
 * A preempted thread leaves with state R and was runnable all the time: runq is the whole interval.
 * sched_waking runs where the waker runs, and so names it; sched_wakeup may run on another CPU, by an interrupt sent there,
 * when the thread is really put on the run queue, which is where the kernel's own run delay (/proc/PID/schedstat) starts.
 *
 * Whom we watch. A thread is watched if it has an element in the `threads` task storage, and only then. Elements are made
 * in two places: for a new thread or child of a watched one in the fork tracepoint, before it can run; and for threads that
 * exist already by the task iterator below. So the hot path has no filter but the storage lookup, nothing is allocated
 * under the scheduler's locks, an element goes away with its thread, and a reused PID cannot inherit anything: there is no
 * table by PID. What is off the CPU when tracing stops cannot be found by waiting for it to come back; the same iterator
 * finds it.
 *
 * Tasks that are woken before they have left. A wake-up may come while the thread is still on its way to sleep:
 *
 *   a) it had only announced its sleep: it goes on running (sched_waking and sched_wakeup, no switch). Here sched_wakeup
 *      comes while the thread is on the CPU (off_ns == 0), and the waker is forgotten;
 *   b) it is about to switch, on another CPU than the waker's: sched_waking comes before sched_switch, but sched_wakeup
 *      after it, since that takes the run queue's lock. The waker stands.
 */
#include "sched.h"

#include <bpf/bpf_tracing.h>

#include "ring.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PF_EXITING 0x00000004
#define SIGNAL_GROUP_EXIT 0x00000004

/* `__state` bits, linux/sched.h. */
#define TASK_INTERRUPTIBLE 0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_STOPPED 0x0004
#define TASK_TRACED 0x0008
#define TASK_PARKED 0x0040
#define TASK_DEAD 0x0080
#define TASK_WAKING 0x0200
#define TASK_NOLOAD 0x0400
#define TASK_RTLOCK_WAIT 0x1000
#define TASK_FROZEN 0x8000

/* Set by the loader. */

/* Watch every thread there is. */
volatile const __u8 watch_all = 0;
/* One record for each page allocation instead of sums. */
volatile const __u8 raw_pages = 0;
/* sched_switch has its fourth argument, the state that `prev` leaves with (5.18 and newer). */
volatile const __u8 has_prev_state = 1;
volatile const __u64 page_bytes = 4096;

/* A sum of page allocations is written at the latest after this time. */
#define PAGES_MAX_NS 10000000ull

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* [0]: when the earliest interval began that was lost since user space looked last; all ones if none was. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} lost_since SEC(".maps");

/* How many interrupt handlers are running on this CPU, one inside the other. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} irq_depth SEC(".maps");

/* Processes that user space asks to watch, for the iterator: TGID -> enum why. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} requests SEC(".maps");

/* [0]: the instant up to which intervals count when tracing stops. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} stop_at SEC(".maps");

/* What the iterator has done since it was loaded. */
enum { TASKS_ADDED, TASKS_FAILED, TASKS_COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TASKS_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} tasks SEC(".maps");

struct thread {
	/* When it left the CPU; 0 while it is on one. */
	__u64 off_ns;
	/* When it came back last. */
	__u64 on_ns;
	/* When it was put on a run queue after its sleep; 0 before that. */
	__u64 runnable_ns;
	/* When somebody began to wake it; 0 where that counts no more. */
	__u64 waking_ns;
	__u32 state;
	__u32 cpu;
	struct who by;
	struct who waker;
	__u8 has_by;
	__u8 waker_irq;
	/* User space has been told of its process (leaders only). */
	__u8 announced;
	/* The page sums below are being changed: an interrupt must leave them alone. */
	__u8 pages_busy;
	__u32 why;
	__u32 ns_pid;
	__u32 unused;
	__u64 pages_from_ns;
	__u64 pages_to_ns;
	__u64 pages;
	__u64 pages_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

static __always_inline struct thread *watched(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, NULL, 0);
}

/*
 * Counts one record that there ought to be. Atomic, since an interrupt may count on this CPU in the midst of another
 * program's addition.
 */
static __always_inline struct counters *seen(void)
{
	__u32 zero = 0;
	struct counters *here = bpf_map_lookup_elem(&counters, &zero);

	if (here)
		__sync_fetch_and_add(&here->seen, 1);
	return here;
}

static __always_inline void lost_from(__u64 from_ns)
{
	__u32 zero = 0;
	__u64 *since = bpf_map_lookup_elem(&lost_since, &zero);

	/* Two CPUs may overwrite each other: both began to lose at that time. */
	if (since && from_ns < *since)
		*since = from_ns;
}

/* A thread that cannot be watched: at least one record that will never be. */
static __always_inline void lost_thread(void)
{
	struct counters *here = seen();

	if (here)
		__sync_fetch_and_add(&here->map_full, 1);
	lost_from(bpf_ktime_get_ns());
}

static __always_inline void fill_who(struct who *who, struct task_struct *task)
{
	who->pid = task->tgid;
	who->tid = task->pid;
	bpf_probe_read_kernel(who->comm, sizeof(who->comm), task->comm);
}

static __always_inline void fill_head(struct event_head *head, __u32 kind, __u64 from_ns, __u64 to_ns,
				      struct task_struct *task, __u32 ns_pid)
{
	head->mono_ns = from_ns;
	head->dur_ns = to_ns - from_ns;
	head->kind = kind;
	head->ns_pid = ns_pid;
	fill_who(&head->who, task);
}

/* Room for an event whose interval begins at `from_ns`, or NULL; either way it has been seen. */
#define reserve(event, from_ns) \
	({ \
		struct counters *here = seen(); \
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0); \
		if (!event) { \
			if (here) \
				__sync_fetch_and_add(&here->ring_full, 1); \
			lost_from(from_ns); \
		} \
		event; \
	})

#define submit(event) bpf_ringbuf_submit(event, ring_submit_flags(&events, sizeof(*event)))

/*
 * An interval of which only one end was seen, between `from_ns` and now: a program did not run at the other. The kernel skips
 * one that would run inside itself, and some sandboxes let none run in processes that they hide: a switch from such a process
 * to a watched thread goes unseen. This is a lost record, and whose it is is known.
 */
static __always_inline void lost_end(struct task_struct *task, __u64 from_ns, __u64 now)
{
	struct event_head *e;

	if (reserve(e, from_ns)) {
		fill_head(e, EVENT_UNMATCHED, from_ns, now, task, 0);
		submit(e);
	}
}

/* The TGID in the innermost PID namespace; 0 where that is the initial one. */
static __always_inline __u32 ns_pid_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	__u32 nr = 0;

	/* 32 is the kernel's MAX_PID_NS_LEVEL. */
	if (level == 0 || level > 32)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
				      level * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	return nr;
}

static __always_inline __u32 left_as(unsigned int state)
{
	if (state == 0)
		return LEFT_RUNNABLE;
	if (state & TASK_DEAD)
		return LEFT_DEAD;
	/* Kernel threads that wait without being "blocked": uninterruptible, but no load. */
	if ((state & TASK_UNINTERRUPTIBLE) && (state & TASK_NOLOAD))
		return LEFT_IDLE;
	/* Frozen by somebody: `ps` shows D, but it waits for no device. */
	if (state & TASK_FROZEN)
		return LEFT_STOPPED;
	if (state & (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT))
		return LEFT_UNINTERRUPTIBLE;
	if (state & TASK_INTERRUPTIBLE)
		return LEFT_SLEEPING;
	if (state & TASK_STOPPED)
		return LEFT_STOPPED;
	if (state & TASK_TRACED)
		return LEFT_TRACED;
	if (state & TASK_PARKED)
		return LEFT_PARKED;
	return LEFT_WAKING;
}

/* ---- Interrupts --------------------------------------------------------------------------------------------------- */

/*
 * A wake-up from an interrupt would name whatever thread it interrupted. The preempt count, which tells, cannot be read by
 * name on x86-64; the entry and exit tracepoints of the interrupt handlers tell too. They may miss an end (a program is not
 * run inside itself), so each context switch, which cannot happen in an interrupt, starts anew from zero.
 */
static __always_inline __u32 *irq_depth_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&irq_depth, &zero);
}

static __always_inline int irq_enter(void)
{
	__u32 *depth = irq_depth_here();

	if (depth)
		*depth += 1;
	return 0;
}

static __always_inline int irq_exit(void)
{
	__u32 *depth = irq_depth_here();

	if (depth && *depth)
		*depth -= 1;
	return 0;
}

static __always_inline bool in_irq(void)
{
	__u32 *depth = irq_depth_here();

	return depth && *depth;
}

static __always_inline void flush_pages(struct task_struct *task, struct thread *t)
{
	struct amount_event *e;

	if (!t->pages || t->pages_busy)
		return;
	if (reserve(e, t->pages_from_ns)) {
		fill_head(&e->head, EVENT_PAGES, t->pages_from_ns, t->pages_to_ns, task, t->ns_pid);
		e->count = t->pages;
		e->bytes = t->pages_bytes;
		submit(e);
	}
	t->pages = 0;
	t->pages_bytes = 0;
}

SEC("tp_btf/irq_handler_entry")
int irq_handler_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/irq_handler_exit")
int irq_handler_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/softirq_entry")
int softirq_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/softirq_exit")
int softirq_exit(void *ctx)
{
	return irq_exit();
}

/* The timer tick is one of these: while a thread is on a CPU, it comes by every few milliseconds. */
SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_expire_entry(void *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = watched(task);

	if (t && t->pages && bpf_ktime_get_ns() - t->pages_from_ns >= PAGES_MAX_NS)
		flush_pages(task, t);
	return irq_enter();
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_expire_exit(void *ctx)
{
	return irq_exit();
}

/* Calls from other CPUs and deferred work: x86 only, so these are optional. */
SEC("tp_btf/call_function_entry")
int call_function_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/call_function_exit")
int call_function_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/call_function_single_entry")
int call_function_single_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/call_function_single_exit")
int call_function_single_exit(void *ctx)
{
	return irq_exit();
}

SEC("tp_btf/irq_work_entry")
int irq_work_entry(void *ctx)
{
	return irq_enter();
}

SEC("tp_btf/irq_work_exit")
int irq_work_exit(void *ctx)
{
	return irq_exit();
}

/* ---- On and off the CPU ------------------------------------------------------------------------------------------- */

static __always_inline void leave(struct thread *t, struct task_struct *prev, struct task_struct *next, __u64 now,
				  bool preempt, unsigned int prev_state)
{
	unsigned int state = prev->__state;

	if (t->off_ns)
		lost_end(prev, t->off_ns, now);
	/*
	 * Preempted on its way to sleep, it is still runnable whatever its state says. With a signal pending it does not go
	 * to sleep either; then the kernel has set the field back to "running" while the argument may be older.
	 */
	if (preempt || state == 0)
		state = 0;
	else if (has_prev_state)
		/* The field may say "waking" already, the argument says what it left as. */
		state = prev_state;

	t->state = left_as(state);
	t->cpu = bpf_get_smp_processor_id();
	fill_who(&t->by, next);
	t->has_by = 1;
	t->runnable_ns = 0;
	t->off_ns = now;
}

static __always_inline void come_back(struct thread *t, struct task_struct *next, struct task_struct *prev, __u64 now)
{
	struct switch_event *e;

	if (!t->off_ns) {
		lost_end(next, t->on_ns, now);
	} else if (reserve(e, t->off_ns)) {
		__u32 flags = SWITCH_HAS_PREV;

		fill_head(&e->head, EVENT_SWITCH, t->off_ns, now, next, t->ns_pid);
		e->state = t->state;
		e->cpu = bpf_get_smp_processor_id();
		fill_who(&e->prev, prev);
		if (t->has_by) {
			flags |= SWITCH_HAS_BY;
			e->by = t->by;
		}
		if (t->state == LEFT_RUNNABLE)
			e->runq_ns = now - t->off_ns;
		else if (t->runnable_ns)
			e->runq_ns = now - t->runnable_ns;
		else
			e->runq_ns = 0;
		/* A wake-up from before it came here last belongs to another interval. */
		if (t->waking_ns > t->on_ns) {
			if (t->waker_irq) {
				flags |= SWITCH_WAKER_IRQ;
			} else {
				flags |= SWITCH_HAS_WAKER;
				e->waker = t->waker;
			}
		}
		e->flags = flags;
		e->unused = 0;
		submit(e);
	}
	t->off_ns = 0;
	t->on_ns = now;
}

/* (bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state) */
SEC("tp_btf/sched_switch")
int sched_switch(__u64 *ctx)
{
	bool preempt = ctx[0];
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	unsigned int prev_state = 0;
	__u32 *depth = irq_depth_here();
	struct thread *t;
	__u64 now;

	/* Volatile: where the argument does not exist, it must not be read ahead of this branch. */
	if (has_prev_state)
		prev_state = *(volatile __u64 *)&ctx[3];
	if (depth)
		*depth = 0;
	now = bpf_ktime_get_ns();

	t = watched(prev);
	if (t) {
		leave(t, prev, next, now, preempt, prev_state);
		flush_pages(prev, t);
	}
	t = watched(next);
	if (t)
		come_back(t, next, prev, now);
	return 0;
}

/* In the waker's context, before anything else of the wake-up. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *p)
{
	struct thread *t = watched(p);
	struct task_struct *waker;

	if (!t)
		return 0;
	waker = bpf_get_current_task_btf();
	/* The idle task wakes nobody by itself. */
	t->waker_irq = in_irq() || waker->pid == 0;
	if (!t->waker_irq)
		fill_who(&t->waker, waker);
	t->waking_ns = bpf_ktime_get_ns();
	return 0;
}

/* It is on a run queue. */
SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *p)
{
	struct thread *t = watched(p);

	if (!t)
		return 0;
	if (t->off_ns)
		t->runnable_ns = bpf_ktime_get_ns();
	else
		/* It had not left yet and will not for this: case a) at the top. */
		t->waking_ns = 0;
	return 0;
}

/* A new thread waits for its first turn: runnable, and nobody took a CPU from it. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *p)
{
	struct thread *t = watched(p);
	__u64 now;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	fill_who(&t->waker, bpf_get_current_task_btf());
	t->waker_irq = 0;
	t->has_by = 0;
	t->state = LEFT_RUNNABLE;
	t->cpu = bpf_get_smp_processor_id();
	t->waking_ns = now;
	t->off_ns = now;
	return 0;
}

/* ---- Births and deaths -------------------------------------------------------------------------------------------- */

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct thread *of_parent = watched(parent);
	struct thread init = {};
	struct task_event *e;
	struct thread *t;
	bool is_thread;
	__u64 now;

	if (!of_parent && !watch_all)
		return 0;
	is_thread = child->tgid == parent->tgid;
	init.ns_pid = ns_pid_of(child);
	init.why = WHY_CHILD;
	/* The allocator's stock on this CPU may have run out; it is refilled by an interrupt, which may come now. */
	for (int i = 0; i < 3; i++) {
		t = bpf_task_storage_get(&threads, child, &init, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (t)
			break;
	}
	if (!t)
		lost_thread();
	now = bpf_ktime_get_ns();
	if (reserve(e, now)) {
		fill_head(&e->head, is_thread ? EVENT_THREAD : EVENT_FORK, now, now, parent,
			  of_parent ? of_parent->ns_pid : 0);
		e->child_pid = child->tgid;
		e->child_tid = child->pid;
		e->child_ns_pid = init.ns_pid;
		e->code = 0;
		e->why = t ? WHY_CHILD : 0;
		e->unused = 0;
		submit(e);
		/* Not so when the record is lost: then the iterator tells user space later. */
		if (t)
			t->announced = 1;
	}
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *p, int old_pid, struct linux_binprm *bprm)
{
	struct thread *t = watched(p);
	struct exec_event *e;
	__u64 now;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	if (reserve(e, now)) {
		fill_head(&e->head, EVENT_EXEC, now, now, p, t->ns_pid);
		if (bpf_probe_read_kernel_str(e->exe, sizeof(e->exe), bprm->filename) < 0)
			e->exe[0] = 0;
		submit(e);
	}
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *p)
{
	struct thread *t = watched(p);
	/* This thread is not counted in it any more. */
	bool last = BPF_CORE_READ(p, signal, live.counter) == 0;
	struct task_event *e;
	__u64 now;

	if (!t)
		return 0;
	flush_pages(p, t);
	now = bpf_ktime_get_ns();
	if (reserve(e, now)) {
		fill_head(&e->head, last ? EVENT_PROCESS_EXIT : EVENT_THREAD_EXIT, now, now, p, t->ns_pid);
		e->code = p->exit_code;
		if (last) {
			/* The process ends, whichever of its threads is the last to go. */
			e->head.who.tid = p->tgid;
			if (BPF_CORE_READ(p, signal, flags) & SIGNAL_GROUP_EXIT)
				e->code = BPF_CORE_READ(p, signal, group_exit_code);
		}
		e->child_pid = 0;
		e->child_tid = 0;
		e->child_ns_pid = 0;
		e->why = 0;
		e->unused = 0;
		submit(e);
	}
	/* What it does from here on is the kernel's cleaning up. */
	bpf_task_storage_delete(&threads, p);
	return 0;
}

/* ---- Memory ------------------------------------------------------------------------------------------------------- */

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(mm_page_alloc, struct page *page, unsigned int order)
{
	struct task_struct *task;
	struct thread *t;
	__u64 now;

	if (!page)
		return 0;
	task = bpf_get_current_task_btf();
	t = watched(task);
	/* What an interrupt allocates is not this thread's. */
	if (!t || in_irq())
		return 0;
	now = bpf_ktime_get_ns();

	t->pages_busy = 1;
	barrier();
	if (!t->pages)
		t->pages_from_ns = now;
	t->pages_to_ns = now;
	t->pages += 1;
	t->pages_bytes += page_bytes << (order & 31);
	barrier();
	t->pages_busy = 0;

	if (raw_pages || now - t->pages_from_ns >= PAGES_MAX_NS)
		flush_pages(task, t);
	return 0;
}

/* ---- Tasks that exist already, and what is open at the end -------------------------------------------------------- */

struct bpf_iter_meta {
	struct seq_file *seq;
} __attribute__((preserve_access_index));

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

static __always_inline void count_task(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&tasks, &which);

	if (counter)
		*counter += 1;
}

/* Why a task that is not watched yet should be; 0 if it should not. */
static __always_inline __u32 reason_to_watch(struct task_struct *task)
{
	struct task_struct *leader = task->group_leader;
	struct task_struct *parent = task->real_parent;
	__u32 tgid = task->tgid;
	struct thread *t;
	__u32 *request;

	if (watch_all)
		return WHY_ASKED;
	request = bpf_map_lookup_elem(&requests, &tgid);
	if (request)
		return *request;
	if (leader) {
		t = watched(leader);
		if (t)
			return t->why;
	}
	if (parent) {
		t = watched(parent);
		if (t)
			return WHY_CHILD;
	}
	return 0;
}

/*
 * Watches the tasks that should be and are not, and writes one WATCHED event for each process that is new by that.
 *
 * User space repeats this until a pass adds nothing (and nothing failed for want of memory): a child that was born of an unwatched thread during
 * one pass is found by the next one, as a child of what is watched by then.
 *
 * A thread that is off the CPU now has left at an instant that we do not know. Its interval begins here and now, which is
 * the earliest there is evidence of, with the state that it is in.
 */
SEC("iter/task")
int watch_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct task_event e = {};
	struct thread init = {};
	unsigned long switches;
	struct thread *t;
	__u64 now;

	if (!task || BPF_CORE_READ(task, signal, live.counter) == 0)
		return 0;
	t = watched(task);
	if (!t) {
		bool leader = task->pid == task->tgid;
		bool gone = task->exit_state || (task->flags & PF_EXITING);

		init.why = reason_to_watch(task);
		/* A leader stays for its process's other threads, which are found through it, when it has gone itself. */
		if (!init.why || (gone && !leader))
			return 0;
		switches = task->nvcsw + task->nivcsw;
		now = bpf_ktime_get_ns();
		init.ns_pid = ns_pid_of(task);
		if (!gone && !task->on_cpu) {
			unsigned int state = task->__state;

			init.state = left_as(state == TASK_WAKING ? 0 : state);
			init.off_ns = now;
		}
		t = bpf_task_storage_get(&threads, task, &init, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!t) {
			count_task(TASKS_FAILED);
			return 0;
		}
		count_task(TASKS_ADDED);
		/* It came or went meanwhile: what we saw is no more true, unless a switch has put it right already. */
		if (init.off_ns && (task->on_cpu || task->nvcsw + task->nivcsw != switches))
			__sync_val_compare_and_swap(&t->off_ns, init.off_ns, 0);
	}
	if (t->announced || task->pid != task->tgid)
		return 0;
	fill_head(&e.head, EVENT_WATCHED, 0, 0, task, t->ns_pid);
	e.why = t->why;
	/* Where the buffer is full, the kernel calls us again for the same task. */
	if (bpf_seq_write(seq, &e, sizeof(e)) == 0)
		t->announced = 1;
	return 0;
}

/* Writes what is still open at `stop_at`; the other programs are detached by then, so nothing changes any more. */
SEC("iter/task")
int open_tasks(struct bpf_iter__task *ctx)
{
	struct seq_file *seq = ctx->meta->seq;
	struct task_struct *task = ctx->task;
	struct switch_event e = {};
	struct amount_event pages = {};
	__u32 zero = 0;
	struct thread *t;
	__u64 *end;

	if (!task)
		return 0;
	t = watched(task);
	end = bpf_map_lookup_elem(&stop_at, &zero);
	if (!t || !end)
		return 0;
	if (t->pages) {
		fill_head(&pages.head, EVENT_PAGES, t->pages_from_ns, t->pages_to_ns, task, t->ns_pid);
		pages.count = t->pages;
		pages.bytes = t->pages_bytes;
		bpf_seq_write(seq, &pages, sizeof(pages));
	}
	/* What left after that instant is none of ours. */
	if (!t->off_ns || t->off_ns >= *end || t->state == LEFT_DEAD)
		return 0;
	fill_head(&e.head, EVENT_SWITCH, t->off_ns, *end, task, t->ns_pid);
	e.state = t->state;
	e.cpu = t->cpu;
	e.flags = SWITCH_OPEN;
	if (t->has_by) {
		e.flags |= SWITCH_HAS_BY;
		e.by = t->by;
	}
	if (t->state == LEFT_RUNNABLE)
		e.runq_ns = e.head.dur_ns;
	else if (t->runnable_ns && t->runnable_ns < *end)
		e.runq_ns = *end - t->runnable_ns;
	if (t->waking_ns > t->on_ns && t->waking_ns < *end) {
		if (t->waker_irq) {
			e.flags |= SWITCH_WAKER_IRQ;
		} else {
			e.flags |= SWITCH_HAS_WAKER;
			e.waker = t->waker;
		}
	}
	bpf_seq_write(seq, &e, sizeof(e));
	return 0;
}
