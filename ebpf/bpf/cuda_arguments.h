/* SPDX-License-Identifier: GPL-2.0 OR BSD-3-Clause */
/*
 * What is kept of a call's arguments: the argument registers, then the words of the stack that its signature needs, then
 * memory behind one of them. Decoding them is user space's work (tools/ingero-cuda/src/symbols/).
 *
 *     cudaLaunchKernelExC(config, func, args)      words = 2, in_word = 0, in_words = 5, in_offset = 0
 *
 *     tail:  rdi  rsi │ config->gridDim.. 40 bytes
 */
#ifndef INGERO_CUDA_ARGUMENTS_H
#define INGERO_CUDA_ARGUMENTS_H

#include "abi.h"
#include "cuda_state.h"

/* Words of arguments that lie on the stack. */
#define STACK_WORDS (MAX_WORDS - REGISTER_WORDS)

/*
 * Reads the first `bytes` of the arguments on the stack at `from`; the rest of `to` becomes zero. 0 if it could be read.
 *
 * The way leads over memory of our own, because a kernel with hardened copies from user space (CONFIG_HARDENED_USERCOPY)
 * looks up what any memory but the thread's kernel stack belongs to, which takes longer than the copy. And it is a function
 * of its own for the same reason: since Linux 6.13 one that needs 64 bytes of stack or more has them elsewhere.
 */
static __noinline long read_stack_words(__u64 *to, const void *from, __u32 bytes)
{
	__u64 words[STACK_WORDS] = {};

	if (bytes > sizeof(words) || bpf_probe_read_user(words, bytes, from))
		return -1;
	__builtin_memcpy(to, words, sizeof(words));
	return 0;
}

/* Keeps the arguments that `spec` asks for. What cannot be read is left out, by a smaller count. */
static __always_inline void keep_arguments(struct frame *frame, const struct symbol_spec *spec, const struct pt_regs *ctx)
{
	__u32 words = spec->words;

	frame->call.words = 0;
	frame->call.in_words = 0;
	if (words == 0)
		return;
	copy_registers(frame->tail, ctx);
	if (words > REGISTER_WORDS &&
	    read_stack_words(&frame->tail[REGISTER_WORDS], stack_arguments(ctx), (words - REGISTER_WORDS) * 8))
		words = REGISTER_WORDS;
	/* A bound that the compiler knows by now, and the verifier of Linux 6.1 does not: see `frame_at`. */
	barrier_var(words);
	if (words > MAX_WORDS)
		words = MAX_WORDS;
	frame->call.words = words;

	__u32 in_bytes = spec->in_words * 8;
	if (in_bytes == 0 || in_bytes > MAX_IN_WORDS * 8 || spec->in_word >= words)
		return;
	const void *from = (const void *)(frame->tail[spec->in_word & 15] + spec->in_offset);
	if (bpf_probe_read_user(&frame->tail[words], in_bytes, from) == 0)
		frame->call.in_words = spec->in_words;
}

#endif
