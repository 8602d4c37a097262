// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA runtime over the stub driver: libcudart.so.12 and .13 as a tracer sees them. Every call makes exactly one
 * driver call on the same thread, the first of a process also cuInit; the driver is opened at that first call and its
 * functions are found through cuGetProcAddress, both as the real library does it. Without a driver each call returns
 * cudaErrorInsufficientDriver (35), as the real one does.
 *
 * Example: cudaMemcpyAsync(d, h, 4096, cudaMemcpyHostToDevice, s) calls cuMemcpyHtoDAsync_v2(d, h, 4096, s) and returns
 * what that returns: a tracer sees an outermost call and one nested call.
 *
 * Built with CUDART_MAJOR=12 or 13, which differ in one signature; with CUDART_STATIC it goes into an executable.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "behaviour.h"
#include "cuda_types.h"

#define API __attribute__((visibility("default"), noinline))

struct driver {
	int (*work)(void);
	int (*flat)(void);
	CUresult (*cuInit)(unsigned int flags);
#define CALL(name, parameters) CUresult(*name) parameters;
#define MAKE(name, parameters, type, result) CUresult(*name) parameters;
#include "driver_api.def"
#undef CALL
#undef MAKE
};

static struct driver driver;
static int driver_ready;
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

/* The stub driver lies beside the stub runtime; elsewhere it is the dynamic linker's to find. */
static void *open_driver(void)
{
	char path[PATH_MAX];
	Dl_info self;
	const char *slash;

	if (dladdr((void *)open_driver, &self) && (slash = strrchr(self.dli_fname, '/'))) {
		int n = snprintf(path, sizeof(path), "%.*s/libcuda.so.1", (int)(slash - self.dli_fname), self.dli_fname);
		void *handle = n < (int)sizeof(path) ? dlopen(path, RTLD_NOW) : NULL;

		if (handle)
			return handle;
	}
	return dlopen("libcuda.so.1", RTLD_NOW);
}

static void find_driver(void)
{
	CUresult (*get)(const char *, void **, int, unsigned long long, int *);
	void *handle = open_driver();

	if (!handle || !(get = dlsym(handle, "cuGetProcAddress_v2")))
		return;
	if (!(driver.work = dlsym(handle, "ingero_stub_work")) || !(driver.flat = dlsym(handle, "ingero_stub_flat")))
		return;
	if (get("cuInit", (void **)&driver.cuInit, CUDART_MAJOR * 1000, 0, NULL))
		return;
#define CALL(name, parameters)                                               \
	if (get(#name, (void **)&driver.name, CUDART_MAJOR * 1000, 0, NULL)) \
		return;
#define MAKE(name, parameters, type, result) CALL(name, parameters)
#include "driver_api.def"
#undef CALL
#undef MAKE
	driver_ready = driver.cuInit(0) == CUDA_SUCCESS;
}

/* `call` is the one driver call. It must not become a tail jump (the build forbids them): the calls are nested. */
#define THROUGH(call)                                       \
	do {                                                \
		pthread_once(&driver_once, find_driver);    \
		if (!driver_ready)                          \
			return cudaErrorInsufficientDriver; \
		if (driver.flat())                          \
			return driver.work();               \
		return driver.call;                         \
	} while (0)

#define RUNTIME(name, parameters, function, arguments) \
	API cudaError_t name parameters                \
	{                                              \
		THROUGH(function arguments);           \
	}
/* The same call for the per-thread default stream: _ptds without a stream argument, _ptsz with one. */
#define RUNTIME_DS(name, parameters, function, arguments) \
	RUNTIME(name, parameters, function, arguments)    \
	RUNTIME(name##_ptds, parameters, function##_ptds, arguments)
#define RUNTIME_SZ(name, parameters, function, arguments) \
	RUNTIME(name, parameters, function, arguments)    \
	RUNTIME(name##_ptsz, parameters, function##_ptsz, arguments)

#define D(p) ((CUdeviceptr)(uintptr_t)(p))

RUNTIME_SZ(cudaLaunchKernel, (const void *f, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream),
	   cuLaunchKernel, ((CUfunction)f, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned int)shared_bytes, stream, args, NULL))
RUNTIME_SZ(cudaLaunchCooperativeKernel, (const void *f, dim3 grid, dim3 block, void **args, size_t shared_bytes, cudaStream_t stream),
	   cuLaunchCooperativeKernel, ((CUfunction)f, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned int)shared_bytes, stream, args))

static CUlaunchConfig driver_config(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){
		.gridDimX = c->gridDim.x, .gridDimY = c->gridDim.y, .gridDimZ = c->gridDim.z,
		.blockDimX = c->blockDim.x, .blockDimY = c->blockDim.y, .blockDimZ = c->blockDim.z,
		.sharedMemBytes = (unsigned int)c->dynamicSmemBytes, .hStream = c->stream,
		.attrs = c->attrs, .numAttrs = c->numAttrs,
	};
}

#define LAUNCH_EX(suffix)                                                                                      \
	API cudaError_t cudaLaunchKernelExC##suffix(const cudaLaunchConfig_t *config, const void *f, void **args) \
	{                                                                                                      \
		CUlaunchConfig c = driver_config(config);                                                      \
                                                                                                               \
		THROUGH(cuLaunchKernelEx##suffix(&c, (CUfunction)f, args, NULL));                              \
	}
LAUNCH_EX()
LAUNCH_EX(_ptsz)

/* The real aliases set up a frame, drop it and jump: a return probe on both would see one return twice. */
#define ALIAS(alias, target)                                                                    \
	__asm__(".text\n.globl " alias "\n.type " alias ", @function\n" alias ":\n"             \
		"\tpush %rbp\n\tmov %rsp, %rbp\n\tpop %rbp\n\tjmp " target "@PLT\n.size " alias \
		", .-" alias "\n")
#ifdef __x86_64__
ALIAS("__cudaLaunchKernel", "cudaLaunchKernel");
ALIAS("__cudaLaunchKernel_ptsz", "cudaLaunchKernel_ptsz");
#endif

/* A copy goes to the driver's function for its direction. */
#define COPY(suffix)                                                                                     \
	API cudaError_t cudaMemcpy##suffix(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind) \
	{                                                                                                \
		switch (kind) {                                                                          \
		case cudaMemcpyHostToDevice:                                                             \
			THROUGH(cuMemcpyHtoD_v2##suffix(D(dst), src, bytes));                            \
		case cudaMemcpyDeviceToHost:                                                             \
			THROUGH(cuMemcpyDtoH_v2##suffix(dst, D(src), bytes));                            \
		case cudaMemcpyDeviceToDevice:                                                           \
			THROUGH(cuMemcpyDtoD_v2##suffix(D(dst), D(src), bytes));                         \
		default:                                                                                 \
			THROUGH(cuMemcpy##suffix(D(dst), D(src), bytes));                                \
		}                                                                                        \
	}
COPY()
COPY(_ptds)

#define COPY_ASYNC(suffix)                                                                          \
	API cudaError_t cudaMemcpyAsync##suffix(void *dst, const void *src, size_t bytes,           \
						enum cudaMemcpyKind kind, cudaStream_t stream)      \
	{                                                                                           \
		switch (kind) {                                                                     \
		case cudaMemcpyHostToDevice:                                                        \
			THROUGH(cuMemcpyHtoDAsync_v2##suffix(D(dst), src, bytes, stream));          \
		case cudaMemcpyDeviceToHost:                                                        \
			THROUGH(cuMemcpyDtoHAsync_v2##suffix(dst, D(src), bytes, stream));          \
		case cudaMemcpyDeviceToDevice:                                                      \
			THROUGH(cuMemcpyDtoDAsync_v2##suffix(D(dst), D(src), bytes, stream));       \
		default:                                                                            \
			THROUGH(cuMemcpyAsync##suffix(D(dst), D(src), bytes, stream));              \
		}                                                                                   \
	}
COPY_ASYNC()
COPY_ASYNC(_ptsz)

static CUDA_MEMCPY2D plane(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height)
{
	return (CUDA_MEMCPY2D){
		.srcHost = src, .srcPitch = spitch, .dstHost = dst, .dstPitch = dpitch, .WidthInBytes = width, .Height = height,
	};
}

static CUDA_MEMCPY3D volume(const struct cudaMemcpy3DParms *p)
{
	return (CUDA_MEMCPY3D){
		.srcHost = p->srcPtr.ptr, .srcPitch = p->srcPtr.pitch, .dstHost = p->dstPtr.ptr, .dstPitch = p->dstPtr.pitch,
		.WidthInBytes = p->extent.width, .Height = p->extent.height, .Depth = p->extent.depth,
	};
}

#define COPY_2D_3D(sync_suffix, async_suffix)                                                                        \
	API cudaError_t cudaMemcpy2D##sync_suffix(void *dst, size_t dpitch, const void *src, size_t spitch,          \
						  size_t width, size_t height, enum cudaMemcpyKind kind)             \
	{                                                                                                            \
		CUDA_MEMCPY2D copy = plane(dst, dpitch, src, spitch, width, height);                                 \
                                                                                                                     \
		(void)kind;                                                                                          \
		THROUGH(cuMemcpy2DUnaligned_v2##sync_suffix(&copy));                                                 \
	}                                                                                                            \
	API cudaError_t cudaMemcpy2DAsync##async_suffix(void *dst, size_t dpitch, const void *src, size_t spitch,    \
							size_t width, size_t height, enum cudaMemcpyKind kind,       \
							cudaStream_t stream)                                         \
	{                                                                                                            \
		CUDA_MEMCPY2D copy = plane(dst, dpitch, src, spitch, width, height);                                 \
                                                                                                                     \
		(void)kind;                                                                                          \
		THROUGH(cuMemcpy2DAsync_v2##async_suffix(&copy, stream));                                            \
	}                                                                                                            \
	API cudaError_t cudaMemcpy3D##sync_suffix(const struct cudaMemcpy3DParms *p)                                 \
	{                                                                                                            \
		CUDA_MEMCPY3D copy = volume(p);                                                                      \
                                                                                                                     \
		THROUGH(cuMemcpy3D_v2##sync_suffix(&copy));                                                          \
	}                                                                                                            \
	API cudaError_t cudaMemcpy3DAsync##async_suffix(const struct cudaMemcpy3DParms *p, cudaStream_t stream)      \
	{                                                                                                            \
		CUDA_MEMCPY3D copy = volume(p);                                                                      \
                                                                                                                     \
		THROUGH(cuMemcpy3DAsync_v2##async_suffix(&copy, stream));                                            \
	}
COPY_2D_3D(, )
COPY_2D_3D(_ptds, _ptsz)

RUNTIME(cudaMemcpyPeer, (void *dst, int dst_device, const void *src, int src_device, size_t bytes),
	cuMemcpyPeer, (D(dst), NULL, D(src), NULL, bytes))
RUNTIME(cudaMemcpyPeerAsync, (void *dst, int dst_device, const void *src, int src_device, size_t bytes, cudaStream_t stream),
	cuMemcpyPeerAsync, (D(dst), NULL, D(src), NULL, bytes, stream))

#if CUDART_MAJOR >= 13
RUNTIME_SZ(cudaMemcpyBatchAsync, (void *const *dsts, const void *const *srcs, const size_t *sizes, size_t count, void *attrs, size_t *attrs_idxs, size_t attrs_n, cudaStream_t stream),
	   cuMemcpyBatchAsync_v2, ((CUdeviceptr *)dsts, (CUdeviceptr *)srcs, (size_t *)sizes, count, attrs, attrs_idxs, attrs_n, stream))
#else
RUNTIME_SZ(cudaMemcpyBatchAsync, (void **dsts, void **srcs, size_t *sizes, size_t count, void *attrs, size_t *attrs_idxs, size_t attrs_n, size_t *fail_idx, cudaStream_t stream),
	   cuMemcpyBatchAsync, ((CUdeviceptr *)dsts, (CUdeviceptr *)srcs, sizes, count, attrs, attrs_idxs, attrs_n, fail_idx, stream))
#endif

RUNTIME_DS(cudaMemset, (void *dst, int value, size_t bytes), cuMemsetD8_v2, (D(dst), (unsigned char)value, bytes))
RUNTIME_SZ(cudaMemsetAsync, (void *dst, int value, size_t bytes, cudaStream_t stream), cuMemsetD8Async, (D(dst), (unsigned char)value, bytes, stream))
RUNTIME_DS(cudaMemset2D, (void *dst, size_t pitch, int value, size_t width, size_t height), cuMemsetD2D8_v2, (D(dst), pitch, (unsigned char)value, width, height))
RUNTIME_SZ(cudaMemset2DAsync, (void *dst, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream), cuMemsetD2D8Async, (D(dst), pitch, (unsigned char)value, width, height, stream))

RUNTIME(cudaMalloc, (void **out, size_t bytes), cuMemAlloc_v2, ((CUdeviceptr *)out, bytes))
RUNTIME(cudaMallocPitch, (void **out, size_t *pitch, size_t width, size_t height), cuMemAllocPitch_v2, ((CUdeviceptr *)out, pitch, width, height, 4))
RUNTIME(cudaMallocHost, (void **out, size_t bytes), cuMemAllocHost_v2, (out, bytes))
RUNTIME(cudaHostAlloc, (void **out, size_t bytes, unsigned int flags), cuMemHostAlloc, (out, bytes, flags))
RUNTIME(cudaMallocManaged, (void **out, size_t bytes, unsigned int flags), cuMemAllocManaged, ((CUdeviceptr *)out, bytes, flags))
RUNTIME_SZ(cudaMallocAsync, (void **out, size_t bytes, cudaStream_t stream), cuMemAllocAsync, ((CUdeviceptr *)out, bytes, stream))
RUNTIME_SZ(cudaMallocFromPoolAsync, (void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream), cuMemAllocFromPoolAsync, ((CUdeviceptr *)out, bytes, pool, stream))
RUNTIME(cudaFree, (void *ptr), cuMemFree_v2, (D(ptr)))
RUNTIME(cudaFreeHost, (void *ptr), cuMemFreeHost, (ptr))
RUNTIME_SZ(cudaFreeAsync, (void *ptr, cudaStream_t stream), cuMemFreeAsync, (D(ptr), stream))

RUNTIME(cudaDeviceSynchronize, (void), cuCtxSynchronize, ())
RUNTIME_SZ(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize, (stream))
RUNTIME_SZ(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery, (stream))
RUNTIME_SZ(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags), cuStreamWaitEvent, (stream, event, flags))
RUNTIME_SZ(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord, (event, stream))
RUNTIME_SZ(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags), cuEventRecordWithFlags, (event, stream, flags))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize, (event))
RUNTIME(cudaEventQuery, (cudaEvent_t event), cuEventQuery, (event))

RUNTIME_SZ(cudaStreamBeginCapture, (cudaStream_t stream, int mode), cuStreamBeginCapture_v2, (stream, mode))
RUNTIME_SZ(cudaStreamEndCapture, (cudaStream_t stream, cudaGraph_t *out), cuStreamEndCapture, (stream, out))
RUNTIME(cudaGraphInstantiate, (cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags), cuGraphInstantiateWithFlags, (out, graph, flags))
RUNTIME(cudaGraphInstantiateWithFlags, (cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags), cuGraphInstantiateWithFlags, (out, graph, flags))
RUNTIME_SZ(cudaGraphLaunch, (cudaGraphExec_t graph, cudaStream_t stream), cuGraphLaunch, (graph, stream))
