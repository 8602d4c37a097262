// SPDX-License-Identifier: Apache-2.0
/*
 * How the stub's calls behave. The real driver does the work of a call; here the work is what the calling thread asked
 * for through ingero_stub_behave(): so many nanoseconds of CPU, so many asleep, this result. It holds for all further
 * calls of that thread until set again; a new thread starts with all zeros, which is a call that does nothing.
 */
#ifndef STUB_BEHAVIOUR_H
#define STUB_BEHAVIOUR_H

#include <stdint.h>

struct stub_behaviour {
	uint64_t spin_ns;  /* CPU time of the calling thread burnt in each call: a preempted call takes longer than this */
	uint64_t sleep_ns; /* then asleep, as a synchronising call is while the GPU works */
	int ret;           /* what the call returns; 0 is success in both layers */
	int flat;          /* not 0: a runtime call does the work itself, without its driver call */
};

/* Exported by the stub's libcuda.so.1 only: a program tells by it whether it has the stub before it. */
void ingero_stub_behave(const struct stub_behaviour *behaviour);

#endif
