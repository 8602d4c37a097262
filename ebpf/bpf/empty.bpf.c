// SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause
/*
 * Programs that do nothing, for benchmarks: what a probe costs before anything is done with it. The cost of the real
 * programs is told as a ratio to these, measured in the same run, since the absolute numbers are the machine's.
 */
#include "core.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} buckets SEC(".maps");

SEC("uprobe")
int empty_session(struct pt_regs *ctx)
{
	return 0;
}

SEC("uprobe")
int empty_entry(struct pt_regs *ctx)
{
	return 0;
}

SEC("uretprobe")
int empty_return(struct pt_regs *ctx)
{
	return 0;
}
