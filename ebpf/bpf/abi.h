/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * Where a function's arguments, result, stack pointer and return address are, seen at its first instruction and just after
 * its return: System V x86-64 and AAPCS64.
 *
 *                          x86-64                          arm64
 *     arguments            rdi rsi rdx rcx r8 r9           x0 .. x7
 *     further ones         sp + 8, sp + 16, ..             sp, sp + 8, ..
 *     return address       at sp                           x30
 *     sp after the return  8 higher than at the entry      the same
 */
#ifndef INGERO_ABI_H
#define INGERO_ABI_H

#include "core.h"

#if defined(__TARGET_ARCH_x86)

static __always_inline __u64 entry_sp(const struct pt_regs *ctx)
{
	return ctx->sp;
}

static __always_inline __u64 return_sp(const struct pt_regs *ctx)
{
	return ctx->sp - 8;
}

static __always_inline __u64 instruction_pointer(const struct pt_regs *ctx)
{
	return ctx->ip;
}

static __always_inline __s32 return_value(const struct pt_regs *ctx)
{
	return (__s32)ctx->ax;
}

static __always_inline void copy_registers(__u64 *words, const struct pt_regs *ctx)
{
	words[0] = ctx->di;
	words[1] = ctx->si;
	words[2] = ctx->dx;
	words[3] = ctx->cx;
	words[4] = ctx->r8;
	words[5] = ctx->r9;
}

/* Where the arguments that did not fit into registers begin: behind the return address. */
static __always_inline const void *stack_arguments(const struct pt_regs *ctx)
{
	return (const void *)(ctx->sp + 8);
}

static __always_inline __u64 return_address(const struct pt_regs *ctx)
{
	__u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (const void *)ctx->sp);
	return address;
}

#else /* arm64 */

static __always_inline __u64 entry_sp(const struct pt_regs *ctx)
{
	return ctx->sp;
}

static __always_inline __u64 return_sp(const struct pt_regs *ctx)
{
	return ctx->sp;
}

static __always_inline __u64 instruction_pointer(const struct pt_regs *ctx)
{
	return ctx->pc;
}

static __always_inline __s32 return_value(const struct pt_regs *ctx)
{
	return (__s32)ctx->regs[0];
}

static __always_inline void copy_registers(__u64 *words, const struct pt_regs *ctx)
{
	words[0] = ctx->regs[0];
	words[1] = ctx->regs[1];
	words[2] = ctx->regs[2];
	words[3] = ctx->regs[3];
	words[4] = ctx->regs[4];
	words[5] = ctx->regs[5];
	words[6] = ctx->regs[6];
	words[7] = ctx->regs[7];
}

static __always_inline const void *stack_arguments(const struct pt_regs *ctx)
{
	return (const void *)ctx->sp;
}

static __always_inline __u64 return_address(const struct pt_regs *ctx)
{
	return ctx->regs[30];
}

#endif

#endif
