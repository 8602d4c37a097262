/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * A process as its own PID namespace numbers it: what `top` shows inside the container.
 *
 *     struct pid  level 2    numbers[0] 4711    numbers[1] 812    numbers[2] 7
 *                            initial namespace                    its own: this one
 */
#ifndef INGERO_NS_PID_H
#define INGERO_NS_PID_H

#include "core.h"

/* The kernel's own limit (MAX_PID_NS_LEVEL, linux/pid_namespace.h). */
#define MAX_PID_LEVEL 32

/* The TGID in the innermost PID namespace; 0 where that is the initial one. Constant over a process's life. */
static __always_inline __u32 ns_pid_of(struct task_struct *task)
{
	struct pid *pid = BPF_CORE_READ(task, group_leader, thread_pid);
	unsigned int level = BPF_CORE_READ(pid, level);
	__u32 nr = 0;

	if (level == 0 || level > MAX_PID_LEVEL)
		return 0;
	/* Clang's relocations know no variable index: an element has the kernel's size, not that of our cut-down type. */
	bpf_probe_read_kernel(&nr, sizeof(nr),
			      (void *)pid + bpf_core_field_offset(struct pid, numbers) +
				      level * bpf_core_type_size(struct upid) + bpf_core_field_offset(struct upid, nr));
	return nr;
}

#endif
