// SPDX-License-Identifier: Apache-2.0
/* Makes the calls: each API function with its true signature, found by name in the library that the plan names. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "cuda_types.h"

struct op {
	const char *name;
	int (*call)(void *function, const struct step *step);
	void *linked; /* its address where the runtime is part of this executable */
};

/* Invented addresses: recognisable in a record, never dereferenced. */
#define HOST ((void *)0x7000000000)
#define DEVICE ((void *)0x7fff00000000)
#define KERNEL ((void *)0x4000)
#define STREAM ((CUstream)step->stream)

#define CALLER(op, parameters, arguments)                         \
	static int call_##op(void *function, const struct step *step) \
	{                                                         \
		(void)step;                                       \
		return ((int(*) parameters)function) arguments;   \
	}

static void *made; /* what an allocating call hands out; nobody frees it by value */
static size_t pitch;

CALLER(cudaLaunchKernel, (const void *, dim3, dim3, void **, size_t, CUstream),
       (KERNEL, (dim3){ 64, 2, 1 }, (dim3){ 256, 1, 1 }, NULL, 1024, STREAM))
CALLER(cudaMemcpy, (void *, const void *, size_t, int), (DEVICE, HOST, step->bytes, step->kind))
CALLER(cudaMemcpyAsync, (void *, const void *, size_t, int, CUstream), (DEVICE, HOST, step->bytes, step->kind, STREAM))
CALLER(cudaMemcpy2D, (void *, size_t, const void *, size_t, size_t, size_t, int),
       (DEVICE, 4096, HOST, 4096, 1024, step->bytes / 1024, step->kind))
CALLER(cudaMemset, (void *, int, size_t), (DEVICE, 0, step->bytes))
CALLER(cudaMemsetAsync, (void *, int, size_t, CUstream), (DEVICE, 0, step->bytes, STREAM))
CALLER(cudaMalloc, (void **, size_t), (&made, step->bytes))
CALLER(cudaMallocPitch, (void **, size_t *, size_t, size_t), (&made, &pitch, 1024, step->bytes / 1024))
CALLER(cudaMallocHost, (void **, size_t), (&made, step->bytes))
CALLER(cudaHostAlloc, (void **, size_t, unsigned int), (&made, step->bytes, 0))
CALLER(cudaMallocManaged, (void **, size_t, unsigned int), (&made, step->bytes, 1))
CALLER(cudaMallocAsync, (void **, size_t, CUstream), (&made, step->bytes, STREAM))
CALLER(cudaFree, (void *), (DEVICE))
CALLER(cudaFreeHost, (void *), (HOST))
CALLER(cudaFreeAsync, (void *, CUstream), (DEVICE, STREAM))
CALLER(cudaDeviceSynchronize, (void), ())
CALLER(cudaStreamSynchronize, (CUstream), (STREAM))
CALLER(cudaStreamQuery, (CUstream), (STREAM))
CALLER(cudaStreamWaitEvent, (CUstream, CUevent, unsigned int), (STREAM, (CUevent)0x20, 0))
CALLER(cudaEventRecord, (CUevent, CUstream), ((CUevent)0x20, STREAM))
CALLER(cudaEventSynchronize, (CUevent), ((CUevent)0x20))
CALLER(cudaEventQuery, (CUevent), ((CUevent)0x20))
CALLER(cudaGraphLaunch, (CUgraphExec, CUstream), ((CUgraphExec)0x30, STREAM))
CALLER(cuInit, (unsigned int), (0))
CALLER(cuLaunchKernel, (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **),
       (KERNEL, 64, 2, 1, 256, 1, 1, 1024, STREAM, NULL, NULL))
CALLER(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t), ((CUdeviceptr)(uintptr_t)DEVICE, HOST, step->bytes))
CALLER(cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream), ((CUdeviceptr)(uintptr_t)DEVICE, HOST, step->bytes, STREAM))
CALLER(cuMemAlloc_v2, (CUdeviceptr *, size_t), ((CUdeviceptr *)&made, step->bytes))
CALLER(cuMemFree_v2, (CUdeviceptr), ((CUdeviceptr)(uintptr_t)DEVICE))
CALLER(cuCtxSynchronize, (void), ())
CALLER(cuStreamSynchronize, (CUstream), (STREAM))

#ifdef CUDART_STATIC
#define RUNTIME_OP(f) extern int f(); /* the signature is CALLER's */
#else
#define RUNTIME_OP(f)
#endif
#define RUNTIME_OPS(X)                                                                                              \
	X(cudaLaunchKernel) X(cudaMemcpy) X(cudaMemcpyAsync) X(cudaMemcpy2D) X(cudaMemset) X(cudaMemsetAsync)       \
	X(cudaMalloc) X(cudaMallocPitch) X(cudaMallocHost) X(cudaHostAlloc) X(cudaMallocManaged) X(cudaMallocAsync) \
	X(cudaFree) X(cudaFreeHost) X(cudaFreeAsync) X(cudaDeviceSynchronize) X(cudaStreamSynchronize)              \
	X(cudaStreamQuery) X(cudaStreamWaitEvent) X(cudaEventRecord) X(cudaEventSynchronize) X(cudaEventQuery)      \
	X(cudaGraphLaunch)
#define DRIVER_OPS(X)                                                                               \
	X(cuInit) X(cuLaunchKernel) X(cuMemcpyHtoD_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemAlloc_v2)     \
	X(cuMemFree_v2) X(cuCtxSynchronize) X(cuStreamSynchronize)
RUNTIME_OPS(RUNTIME_OP)

#ifdef CUDART_STATIC
#define RUNTIME_ROW(f) { #f, call_##f, (void *)f },
#else
#define RUNTIME_ROW(f) { #f, call_##f, NULL },
#endif
#define DRIVER_ROW(f) { #f, call_##f, NULL },
static const struct op ops[] = { RUNTIME_OPS(RUNTIME_ROW) DRIVER_OPS(DRIVER_ROW) };

/* A variant for the per-thread default stream is called as its base function is. */
const struct op *op_find(const char *name)
{
	size_t n = strlen(name);

	if (n > 5 && (!strcmp(name + n - 5, "_ptsz") || !strcmp(name + n - 5, "_ptds")))
		n -= 5;
	for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		if (strlen(ops[i].name) == n && !strncmp(ops[i].name, name, n))
			return &ops[i];
	return NULL;
}

static void (*behave)(const struct stub_behaviour *);

static bool plain(const struct stub_behaviour *b)
{
	return !b->spin_ns && !b->sleep_ns && !b->ret && !b->flat;
}

/*
 * Opens the library and finds the steps' functions: driver functions in the driver, which lies beside the
 * runtime of the stub. A library that is not the stub can be called too, but not told how to behave.
 */
void calls_open(struct plan *plan)
{
	char beside[4096] = "";
	void *library = NULL, *driver = NULL;
	char *slash;

	if (plan->library && !(library = dlopen(plan->library, RTLD_NOW)))
		fail("opening the library", dlerror());
	if (plan->library)
		snprintf(beside, sizeof(beside), "%s", plan->library);
	else if (readlink("/proc/self/exe", beside, sizeof(beside) - 1) < 0) /* the runtime is in here */
		beside[0] = '\0';
	if ((slash = strrchr(beside, '/')) && (size_t)(slash - beside) + sizeof("/libcuda.so.1") <= sizeof(beside)) {
		strcpy(slash, "/libcuda.so.1");
		driver = dlopen(beside, RTLD_NOW);
	}
	if (!driver)
		driver = dlopen("libcuda.so.1", RTLD_NOW); /* absent beside a real runtime without a GPU */
	behave = driver ? (void (*)(const struct stub_behaviour *))dlsym(driver, "ingero_stub_behave") : NULL;
	for (size_t i = 0; i < plan->steps_n; i++) {
		struct step *step = &plan->steps[i];

		if (!step->op)
			continue;
		step->function = step->op->linked;
		if (!step->function && library)
			step->function = dlsym(library, step->name);
		if (!step->function && driver)
			step->function = dlsym(driver, step->name);
		if (!step->function)
			fail("finding the function", step->name);
		if (!behave && !plain(&step->behaviour))
			fail("setting how calls behave: the library is not the stub", plan->library);
	}
	stats_opened_library();
}

/* Once through the steps on the calling thread. */
void calls_steps(const struct plan *plan)
{
	for (size_t i = 0; i < plan->steps_n; i++) {
		const struct step *step = &plan->steps[i];

		if (step->op && behave)
			behave(&step->behaviour);
		for (uint64_t n = 0; n < step->count; n++) {
			uint64_t began = mono_ns();

			if (step->op) {
				int ret = step->op->call(step->function, step);

				stats_call(step->name, began, mono_ns(), ret);
			} else {
				burn_cpu_ns(step->behaviour.spin_ns);
				sleep_ns(step->behaviour.sleep_ns);
				stats_call(step->name, began, mono_ns(), 0);
			}
		}
	}
}
