/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A command that we have started waits for its libraries to be probed (part of cuda.bpf.c).
 *
 * The place is `_dl_debug_state`, which the dynamic linker calls for debuggers when it has mapped libraries and none of
 * their code has run yet. The thread waits there until user space has probed what is new, so that not even the first call
 * is missed:
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
#ifndef INGERO_CUDA_LINKER_H
#define INGERO_CUDA_LINKER_H

#include "abi.h"
#include "cuda_state.h"

/* How long a thread waits at most for its new libraries to be probed. */
volatile const __u64 link_wait_ns = 1000000000;
/* Waits in vain, one after the other. User space is stuck then, and after a few of them nobody waits any more. */
__u32 vain_waits = 0;
#define MAX_VAIN_WAITS 3

/* Threads that wait at `cuda_linked`, and since when, CLOCK_MONOTONIC ns. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} linking SEC(".maps");

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

#endif
