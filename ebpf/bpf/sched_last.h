/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Which thread of a process is the last to end (part of sched.bpf.c).
 *
 * `signal->live` tells how many threads have not begun to end. More than one may find it zero at its sched_process_exit, which
 * comes a while after that. On 6.1 and 6.12 it is a long while: a thread that waits for another in pthread_join goes on before
 * the other one is there.
 *
 *     B ends       live 2 -> 1, lets A go                                            sched_process_exit, live is 0
 *     A ends                                 live 1 -> 0    sched_process_exit, live is 0
 *
 * So the watched threads that have not come there are counted too, at their process's leader, whose task stays as long as any
 * of its threads. The last one finds both numbers zero; here that is B.
 */
#ifndef INGERO_SCHED_LAST_H
#define INGERO_SCHED_LAST_H

#include "sched_state.h"

struct process {
	/* Watched threads that have not ended; each has `counted` set. */
	__s64 threads;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct process);
} processes SEC(".maps");

/* Counts a thread once, whoever finds it first: its birth or the iterator. */
static __always_inline void count_thread(struct task_struct *leader, struct thread *t)
{
	struct process init = {};
	struct process *process;

	process = leader ? bpf_task_storage_get(&processes, leader, &init, BPF_LOCAL_STORAGE_GET_F_CREATE) : NULL;
	if (process && __sync_val_compare_and_swap(&t->counted, 0, 1) == 0)
		__sync_fetch_and_add(&process->threads, 1);
}

/* The thread will not come to its sched_process_exit any more. Returns how many of its process's will. */
static __always_inline __s64 uncount_thread(struct task_struct *leader, struct thread *t)
{
	struct process *process = leader ? bpf_task_storage_get(&processes, leader, NULL, 0) : NULL;

	/* Where there was no memory for it, the kernel's number has to do. */
	if (!process)
		return 0;
	if (__sync_val_compare_and_swap(&t->counted, 1, 0) == 1)
		return __sync_fetch_and_add(&process->threads, -1) - 1;
	return process->threads;
}

/* The process has executed a program: this thread is its leader now, whoever was before, and all that is left. */
static __always_inline void count_alone(struct task_struct *leader, struct thread *t)
{
	struct process *process;

	t->counted = 0;
	process = bpf_task_storage_get(&processes, leader, NULL, 0);
	if (process)
		process->threads = 0;
	count_thread(leader, t);
}

/* At a watched thread's sched_process_exit. */
static __always_inline bool is_last(struct task_struct *p, struct thread *t)
{
	return uncount_thread(p->group_leader, t) <= 0 && BPF_CORE_READ(p, signal, live.counter) == 0;
}

#endif
