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

/* Keeps the arguments that `spec` asks for. What cannot be read is left out, by a smaller count. */
static __always_inline void keep_arguments(struct frame *frame, const struct symbol_spec *spec, const struct pt_regs *ctx)
{
	__u32 words = spec->words;

	frame->call.words = 0;
	frame->call.in_words = 0;
	if (words == 0)
		return;
	copy_registers(frame->tail, ctx);
	if (words > REGISTER_WORDS) {
		__u32 bytes = (words - REGISTER_WORDS) * 8;

		if (bytes > (MAX_WORDS - REGISTER_WORDS) * 8 ||
		    bpf_probe_read_user(&frame->tail[REGISTER_WORDS], bytes, stack_arguments(ctx)))
			words = REGISTER_WORDS;
	}
	/* Known to the compiler from `bytes`, and not to the verifier of Linux 6.1: see `frame_at`. */
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
