/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * TCP segments that a watched process's connections had to send again (part of sched.bpf.c).
 *
 * A timer or an incoming packet makes the kernel send again, in the context of whatever thread is running then. So each socket
 * carries a note of the watched process that connected it or used it last:
 *
 *     t=100  T of process P sends on socket K     note on K: P, watched since 100;  senders[P] = 100
 *     t=300  K's data is sent again               K's note says P, senders[P] is still 100: one record of P
 *     t=400  P exits                              senders[P] is gone
 *     t=500  K, lingering, sends again            no record: P is over, and a new process P is not this one
 */
#ifndef INGERO_SCHED_NET_H
#define INGERO_SCHED_NET_H

#include "sched_state.h"

#define TCP_SYN_SENT 2
#define SOCK_STREAM 1
#define AF_INET 2
#define AF_INET6 10

struct sock_common {
	unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	unsigned short sk_type;
} __attribute__((preserve_access_index));

struct sk_buff;
struct msghdr;

struct owner {
	struct who who;
	__u32 ns_pid;
	__u32 unused;
	/* What `senders` had for the process then. */
	__u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct owner);
} owners SEC(".maps");

/* Watched processes that have used a connection, by TGID, and since when. Gone with the process. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} senders SEC(".maps");

static __always_inline void note_owner(struct sock *sk)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = watched_process(task);
	__u32 tgid = task->tgid;
	struct owner *owner;
	__u64 *known, since;

	if (!t || !sk)
		return;
	known = bpf_map_lookup_elem(&senders, &tgid);
	since = known ? *known : bpf_ktime_get_ns();
	if (!known && bpf_map_update_elem(&senders, &tgid, &since, BPF_NOEXIST))
		return;
	owner = bpf_sk_storage_get(&owners, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!owner || (owner->since_ns == since && owner->who.tid == (__u32)task->pid))
		return;
	fill_who(&owner->who, task);
	owner->ns_pid = t->ns_pid;
	owner->since_ns = since;
}

static __always_inline bool may_be_tcp(struct sock *sk)
{
	unsigned short family = sk->__sk_common.skc_family;

	return sk->sk_type == SOCK_STREAM && (family == AF_INET || family == AF_INET6);
}

/* After each send and each receive, whatever system call it was. Since 6.4. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk)
{
	if (may_be_tcp(sk))
		note_owner(sk);
	return 0;
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk)
{
	if (may_be_tcp(sk))
		note_owner(sk);
	return 0;
}

/* Before 6.4. */
SEC("fentry/tcp_sendmsg_locked")
int BPF_PROG(tcp_sendmsg_locked, struct sock *sk, struct msghdr *message, unsigned long bytes)
{
	note_owner(sk);
	return 0;
}

/* connect(2) sends too, before there is anything to write. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(inet_sock_set_state, struct sock *sk, int before, int after)
{
	if (after == TCP_SYN_SENT)
		note_owner(sk);
	return 0;
}

/* The process ends. */
static __always_inline void forget_sender(struct task_struct *task)
{
	__u32 tgid = task->tgid;

	bpf_map_delete_elem(&senders, &tgid);
}

static __always_inline int sent_again(struct sock *sk)
{
	struct owner *owner;
	__u64 *since, now;
	struct amount_event *e;
	__u32 tgid;

	owner = sk ? bpf_sk_storage_get(&owners, sk, NULL, 0) : NULL;
	if (!owner)
		return 0;
	tgid = owner->who.pid;
	since = bpf_map_lookup_elem(&senders, &tgid);
	if (!since || *since != owner->since_ns)
		return 0;
	now = bpf_ktime_get_ns();
	if (!tracing(now))
		return 0;
	if (reserve(e, now)) {
		e->head.mono_ns = now;
		e->head.dur_ns = 0;
		e->head.kind = EVENT_RETRANSMIT;
		e->head.ns_pid = owner->ns_pid;
		e->head.who = owner->who;
		e->count = 1;
		e->bytes = 0;
		submit(e);
	}
	return 0;
}

/* Newer kernels tell of attempts that failed, too. */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb_err, struct sock *sk, struct sk_buff *skb, int err)
{
	return err ? 0 : sent_again(sk);
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(tcp_retransmit_skb, struct sock *sk, struct sk_buff *skb)
{
	return sent_again(sk);
}

#endif
