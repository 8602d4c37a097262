/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Births and ends of processes, for the set of those that are traced and for the search for libraries (part of cuda.bpf.c).
 */
#ifndef INGERO_CUDA_PROCESSES_H
#define INGERO_CUDA_PROCESSES_H

#include "cuda_open.h"
#include "cuda_state.h"

#include <bpf/bpf_tracing.h>

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
