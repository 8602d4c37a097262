// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA driver without a device: libcuda.so.1 as a tracer sees it. Same exported names and signatures, unversioned
 * as the real one, each function at an address of its own and beginning with `push %rbp`; the work of a call is what
 * behaviour.h says.
 *
 * Example: after ingero_stub_behave(&(struct stub_behaviour){ .sleep_ns = 5000000 }) the calling thread's
 * cuCtxSynchronize() sleeps for 5 ms and returns 0, as it would while a GPU works.
 */
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "behaviour.h"
#include "cuda_types.h"

#define API __attribute__((visibility("default"), noinline))

static __thread struct stub_behaviour behaviour;

API void ingero_stub_behave(const struct stub_behaviour *wanted)
{
	behaviour = *wanted;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int work(void)
{
	if (behaviour.spin_ns) {
		uint64_t until = thread_cpu_ns() + behaviour.spin_ns;

		while (thread_cpu_ns() < until)
			;
	}
	if (behaviour.sleep_ns) {
		struct timespec left = {
			.tv_sec = (time_t)(behaviour.sleep_ns / 1000000000u),
			.tv_nsec = (long)(behaviour.sleep_ns % 1000000000u),
		};

		/* A signal must not shorten the call: what is left is slept too. */
		while (nanosleep(&left, &left) == -1 && errno == EINTR)
			;
	}
	return behaviour.ret;
}

/* For the runtime, which is another library: what a call without its driver call does, and whether it is one. */
API int ingero_stub_work(void)
{
	return work();
}

API int ingero_stub_flat(void)
{
	return behaviour.flat;
}

/* Addresses and handles handed out: never the same twice, never 0, and never to be dereferenced. */
static uintptr_t next_handle(void)
{
	static uintptr_t last = 0x10000000;

	return __atomic_add_fetch(&last, 0x1000, __ATOMIC_RELAXED);
}

#define CALL(name, parameters)       \
	API CUresult name parameters \
	{                            \
		return work();       \
	}
#define MAKE(name, parameters, type, result)           \
	API CUresult name parameters                   \
	{                                              \
		if (result)                            \
			*result = (type)next_handle(); \
		return work();                         \
	}
#include "driver_api.def"
#undef CALL
#undef MAKE

/*
 * The runtime finds the driver's functions by this one, not by the dynamic linker. Names come without _v2; the flag
 * asks for the per-thread default stream. Here the caller names the exported symbol itself, which is enough for it to
 * hold an address that no relocation shows.
 */
API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status)
{
	void *self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	void *found = self ? dlsym(self, symbol) : NULL;

	(void)version;
	(void)flags;
	if (self)
		dlclose(self); /* RTLD_NOLOAD counted a reference */
	if (status)
		*status = found ? 0 : 1;
	if (!found)
		return CUDA_ERROR_NOT_FOUND;
	*function = found;
	return CUDA_SUCCESS;
}

/* A leaf function gets no frame, so the two below call something: they shall begin as the others do. */
__attribute__((noinline)) static CUresult success(void)
{
	__asm__ volatile("");
	return CUDA_SUCCESS;
}

/* Never delayed and never failing: a thread's behaviour is for the calls that it makes itself. */
API CUresult cuInit(unsigned int flags)
{
	(void)flags;
	return success();
}

API CUresult cuDriverGetVersion(int *version)
{
	*version = 13000;
	return success();
}
