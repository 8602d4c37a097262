/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Births, first calls and ends of processes, for the set of those that are traced and for the search for libraries (part of
 * cuda.bpf.c).
 *
 * A process may be over before user space gets to look at it, and yet have called. So its first call is told of as it is
 * entered, with what the kernel knows of the process, and user space can write that it is watched before the call's own
 * record comes:
 *
 *     t=0 ms   a shell, which is watched, forks                     told
 *     t=1 ms   the child runs a program, which calls cuInit         told: process, its name, the symbol
 *     t=3 ms   the call returns                                     a record
 *     t=4 ms   the child ends                                       told
 *     t=20 ms  user space looks for it in /proc                     in vain
 */
#ifndef INGERO_CUDA_PROCESSES_H
#define INGERO_CUDA_PROCESSES_H

#include "cuda_open.h"
#include "cuda_state.h"

#include <bpf/bpf_tracing.h>

/*
 * The calling thread has entered a call for the first time. Returns a place for its open calls; NULL if its process is none
 * of ours, or where there is no memory, which is counted.
 *
 * Not inlined: it runs once for each thread.
 */
static __noinline struct thread_calls *first_call(struct task_struct *task, __u32 symbol)
{
	__u32 tgid = task->tgid;
	__u8 *watched = bpf_map_lookup_elem(&tgids, &tgid), has_called = HAS_CALLED;

	if (filter_tgids && !watched)
		return NULL;
	struct thread_calls *calls = bpf_task_storage_get(&open_calls, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 now = bpf_ktime_get_ns();
	if (!calls) {
		count_lost(map_full, now);
		return NULL;
	}
	calls->ns_pid = ns_pid_of(task);
	if (watched && *watched == HAS_CALLED)
		return calls;
	/* Two threads may come here at once: then it is told twice. */
	bpf_map_update_elem(&tgids, &tgid, &has_called, BPF_ANY);
	struct process_record record = {
		.kind = RECORD_FIRST_CALL,
		.pid = tgid,
		.other = symbol,
		.ns_pid = calls->ns_pid,
		.at_ns = now,
	};
	BPF_CORE_READ_INTO(&record.comm, task, group_leader, comm);
	/* Where it cannot be told, the record of the call tells it later. */
	bpf_ringbuf_output(&events, &record, sizeof(record), BPF_RB_FORCE_WAKEUP);
	return calls;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(cuda_fork, struct task_struct *parent, struct task_struct *child)
{
	__u32 parent_tgid = parent->tgid, tgid = child->tgid;
	__u8 watched = WATCHED;

	/* Threads are born here too. */
	if (tgid == parent_tgid || !bpf_map_lookup_elem(&tgids, &parent_tgid))
		return 0;
	__u64 now = bpf_ktime_get_ns();
	/* Where there is no place for it, its calls are not seen: how many is not known. */
	if (follow_children && bpf_map_update_elem(&tgids, &tgid, &watched, BPF_ANY))
		count_lost(map_full, now);
	tell(RECORD_FORK, tgid, parent_tgid, now);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(cuda_exec, struct task_struct *task)
{
	end_calls(task);
	tell(RECORD_EXEC, task->tgid, 0, bpf_ktime_get_ns());
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(cuda_exit, struct task_struct *task)
{
	__u32 tgid = task->tgid;

	end_calls(task);
	/* The kernel has counted this thread out of the process already. */
	if (task->signal->live.counter != 0 || !bpf_map_lookup_elem(&tgids, &tgid))
		return 0;
	bpf_map_delete_elem(&tgids, &tgid);
	tell(RECORD_EXIT, tgid, 0, bpf_ktime_get_ns());
	return 0;
}

#endif
