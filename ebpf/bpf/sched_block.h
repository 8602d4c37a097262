/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Requests of watched processes to block devices, from their making to their completion (part of sched.bpf.c).
 *
 * A request is made in the context of whoever wants it done, and may be handed to the device by a kernel worker and completed
 * by an interrupt. So its owner is noted when it is made, under the address of the request:
 *
 *     t=100  block_io_start      T makes request 0xa0      in_flight[0xa0] = T, from 100
 *     t=120  block_rq_issue      a worker hands it over
 *     t=900  block_rq_complete   0xa0, 4096 bytes          record [100, 900): T, read, 4096
 *
 * That is what T asked for itself: reads, read-ahead included, direct I/O, and what fsync writes. Dirty pages that the kernel
 * writes back later are a kernel worker's, whoever dirtied them. The interval is the one that iostat calls `await`.
 *
 * A completion may go unseen (the kernel does not run a program inside itself). Then the address comes to be another request's
 * while it is still noted here, and that the first one's record is lost is counted. What is noted when tracing stops is an
 * open interval if the request is with its device, and else is such a loss, too (sched_tasks.h).
 *
 * block_io_start is there since 6.5. Before, the first of block_rq_insert and block_rq_issue has to do; both come in the
 * owner's context except where the device's queue was full.
 */
#ifndef INGERO_SCHED_BLOCK_H
#define INGERO_SCHED_BLOCK_H

#include "sched_state.h"

/* linux/blk_types.h: the low byte of cmd_flags. */
#define REQ_OP_MASK 0xff
#define REQ_OP_READ 0
#define REQ_OP_WRITE 1
#define REQ_OP_DISCARD 3
#define REQ_OP_SECURE_ERASE 5
#define REQ_OP_ZONE_APPEND 7
#define REQ_OP_WRITE_ZEROES 9

struct gendisk {
	char disk_name[DISK_BYTES];
} __attribute__((preserve_access_index));

enum mq_rq_state {
	MQ_RQ_IDLE,
	/* The device has been given it. */
	MQ_RQ_IN_FLIGHT,
	MQ_RQ_COMPLETE,
};

/* `disk` since 5.15. */
struct request_queue {
	struct gendisk *disk;
} __attribute__((preserve_access_index));

struct request {
	struct request_queue *q;
	unsigned int cmd_flags;
	/* What is left to do, bytes. */
	unsigned int __data_len;
	enum mq_rq_state state;
} __attribute__((preserve_access_index));

/* By the address of the request. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct io_event);
} in_flight SEC(".maps");

/* Addresses of requests of which user space wants to know, when tracing has stopped, whether they are with a device. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} asked SEC(".maps");

/* enum io_op, or -1 for what moves no data: flushes, zone management, a driver's own commands. */
static __always_inline int io_op(struct request *rq)
{
	switch (rq->cmd_flags & REQ_OP_MASK) {
	case REQ_OP_READ:
		return IO_READ;
	case REQ_OP_WRITE:
	case REQ_OP_ZONE_APPEND:
	case REQ_OP_WRITE_ZEROES:
		return IO_WRITE;
	case REQ_OP_DISCARD:
	case REQ_OP_SECURE_ERASE:
		return IO_DISCARD;
	default:
		return -1;
	}
}

/* A request begins at this address. Whatever was noted there has ended unseen. */
static __always_inline void end_unseen(__u64 key, __u64 now)
{
	struct io_event *old = bpf_map_lookup_elem(&in_flight, &key);
	struct event_head *e;

	if (!old)
		return;
	if (reserve(e, old->head.mono_ns)) {
		*e = old->head;
		e->kind = EVENT_UNMATCHED;
		e->dur_ns = now - old->head.mono_ns;
		submit(e);
	}
	bpf_map_delete_elem(&in_flight, &key);
}

static __always_inline void io_made(struct request *rq, __u64 flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = watched_process(task);
	__u64 now = bpf_ktime_get_ns();
	__u64 key = (__u64)rq;
	struct io_event e = {};
	int op = io_op(rq);

	if (!tracing(now))
		return;
	if (flags == BPF_ANY)
		end_unseen(key, now);
	if (!t || op < 0)
		return;
	fill_head(&e.head, EVENT_IO, now, now, task, t->ns_pid);
	e.op = op;
	bpf_probe_read_kernel(e.disk, sizeof(e.disk), rq->q->disk->disk_name);
	if (bpf_map_update_elem(&in_flight, &key, &e, flags) && flags == BPF_ANY)
		count_lost(map_full, now);
}

SEC("tp_btf/block_io_start")
int BPF_PROG(block_io_start, struct request *rq)
{
	io_made(rq, BPF_ANY);
	return 0;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(block_rq_insert, struct request *rq)
{
	io_made(rq, BPF_NOEXIST);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(block_rq_issue, struct request *rq)
{
	io_made(rq, BPF_NOEXIST);
	return 0;
}

/* It has become a part of another request, whose owner gets its bytes too. */
SEC("tp_btf/block_rq_merge")
int BPF_PROG(block_rq_merge, struct request *rq)
{
	__u64 key = (__u64)rq;

	bpf_map_delete_elem(&in_flight, &key);
	return 0;
}

/* A device may complete a request in parts. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(block_rq_complete, struct request *rq, int error, unsigned int bytes)
{
	__u64 key = (__u64)rq;
	struct io_event *made = bpf_map_lookup_elem(&in_flight, &key);
	__u64 now = bpf_ktime_get_ns();
	struct io_event *e;

	if (!made || !tracing(now))
		return 0;
	made->bytes += bytes;
	if (bytes < rq->__data_len)
		return 0;
	/* Without bytes it was a mere flush. */
	if (made->bytes && reserve(e, made->head.mono_ns)) {
		__builtin_memcpy(e, made, sizeof(*e));
		e->head.dur_ns = now - made->head.mono_ns;
		submit(e);
	}
	bpf_map_delete_elem(&in_flight, &key);
	return 0;
}

#endif
