// Calls functions with the prototypes of the CUDA 12.9 / 13.5 and NCCL 2.32 headers and prints the argument words that
// arrive: "name | registers and stack words | words of the structure pointed to".
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define STACK_WORDS 8
#if defined(__x86_64__)
#define WORDS (6 + STACK_WORDS)
#else
#define WORDS (8 + STACK_WORDS)
#endif

uint64_t words[WORDS];

// Stands for every function called: keeps what a probe on its first instruction could see.
int capture(void);
#if defined(__x86_64__)
__asm__(".text\n.globl capture\n.type capture,@function\ncapture:\n"
	"lea words(%rip), %rax\n"
	"mov %rdi, 0(%rax)\nmov %rsi, 8(%rax)\nmov %rdx, 16(%rax)\n"
	"mov %rcx, 24(%rax)\nmov %r8, 32(%rax)\nmov %r9, 40(%rax)\n"
	"mov 8(%rsp), %r10\nmov %r10, 48(%rax)\nmov 16(%rsp), %r10\nmov %r10, 56(%rax)\n"
	"mov 24(%rsp), %r10\nmov %r10, 64(%rax)\nmov 32(%rsp), %r10\nmov %r10, 72(%rax)\n"
	"mov 40(%rsp), %r10\nmov %r10, 80(%rax)\nmov 48(%rsp), %r10\nmov %r10, 88(%rax)\n"
	"mov 56(%rsp), %r10\nmov %r10, 96(%rax)\nmov 64(%rsp), %r10\nmov %r10, 104(%rax)\n"
	"xor %eax, %eax\nret\n.size capture, .-capture\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl capture\n.type capture,%function\ncapture:\n"
	"adrp x9, words\nadd x9, x9, :lo12:words\n"
	"stp x0, x1, [x9]\nstp x2, x3, [x9, 16]\nstp x4, x5, [x9, 32]\nstp x6, x7, [x9, 48]\n"
	"ldp x10, x11, [sp]\nstp x10, x11, [x9, 64]\nldp x10, x11, [sp, 16]\nstp x10, x11, [x9, 80]\n"
	"ldp x10, x11, [sp, 32]\nstp x10, x11, [x9, 96]\nldp x10, x11, [sp, 48]\nstp x10, x11, [x9, 112]\n"
	"mov w0, 0\nret\n.size capture, .-capture\n");
#endif

static void print(const char *name, const void *memory, size_t bytes)
{
	printf("%s |", name);
	for (int i = 0; i < WORDS; i++)
		printf(" %llx", (unsigned long long)words[i]);
	printf(" |");
	for (size_t i = 0; i < bytes / 8; i++)
		printf(" %llx", (unsigned long long)((const uint64_t *)memory)[i]);
	printf("\n");
}

// The types, as the headers have them. Handles are pointers.
typedef struct { unsigned int x, y, z; } dim3;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } cudaPitchedPtr;
typedef struct { size_t width, height, depth; } cudaExtent;
typedef struct { size_t x, y, z; } cudaPos;
typedef struct { int type, id; } CUmemLocation;
typedef struct { char internal[128]; } ncclUniqueId;
typedef unsigned long long CUdeviceptr;
typedef void *P;
typedef const void *CP;
typedef unsigned int U;

typedef struct {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	P stream, attrs;
	U numAttrs;
} cudaLaunchConfig_t;

typedef struct {
	U gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
	P hStream, attrs;
	U numAttrs;
} CUlaunchConfig;

typedef struct {
	P srcArray;
	cudaPos srcPos;
	cudaPitchedPtr srcPtr;
	P dstArray;
	cudaPos dstPos;
	cudaPitchedPtr dstPtr;
	cudaExtent extent;
	int kind;
} cudaMemcpy3DParms;

typedef struct {
	size_t srcXInBytes, srcY;
	int srcMemoryType;
	CP srcHost;
	CUdeviceptr srcDevice;
	P srcArray;
	size_t srcPitch, dstXInBytes, dstY;
	int dstMemoryType;
	P dstHost;
	CUdeviceptr dstDevice;
	P dstArray;
	size_t dstPitch, WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	int srcMemoryType;
	CP srcHost;
	CUdeviceptr srcDevice;
	P srcArray, reserved0;
	size_t srcPitch, srcHeight, dstXInBytes, dstY, dstZ, dstLOD;
	int dstMemoryType;
	P dstHost;
	CUdeviceptr dstDevice;
	P dstArray, reserved1;
	size_t dstPitch, dstHeight, WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

// The values. ANY is what no decoder may give back.
#define ANY ((P)0xa11)
#define ANY_SIZE ((size_t)0xa11)
#define OUT ((P)0x117)
#define STREAM ((P)0x57ea)
#define EVENT ((P)0xe7e7)
#define FUNC ((P)0xf00df00df00d)
#define PTR ((P)0xdeadbeef0000)
#define DPTR ((CUdeviceptr)0xdeadbeef0000)
#define BYTES ((size_t)1 << 40)
#define WIDTH ((size_t)300)
#define HEIGHT ((size_t)7)
#define DEPTH ((size_t)5)
enum { H2D = 1, D2H = 2, D2D = 3 };

// CALL(name, (parameter types), (arguments)); the type of the pointer is what makes the compiler pass them so.
#define CALL_WITH(name, types, arguments, memory, bytes)               \
	do {                                                           \
		for (int i = 0; i < WORDS; i++)                        \
			words[i] = 0xbad;                              \
		int(*volatile function) types = (int(*) types)capture; \
		function arguments;                                    \
		print(name, memory, bytes);                            \
	} while (0)
#define CALL(name, types, arguments) CALL_WITH(name, types, arguments, NULL, 0)

static void launches(void)
{
	const dim3 grid = {11, 12, 13}, block = {21, 22, 23};
	cudaLaunchConfig_t runtime = {grid, block, 4096, STREAM, ANY, 1};
	CUlaunchConfig driver = {11, 12, 13, 21, 22, 23, 4096, STREAM, ANY, 1};

	CALL("cudaLaunchKernel", (CP, dim3, dim3, P *, size_t, P), (FUNC, grid, block, ANY, 4096, STREAM));
	CALL("cudaLaunchKernel_ptsz", (CP, dim3, dim3, P *, size_t, P), (FUNC, grid, block, ANY, 4096, STREAM));
	CALL_WITH("cudaLaunchKernelExC", (const cudaLaunchConfig_t *, CP, P *), (&runtime, FUNC, ANY), &runtime,
		  sizeof(runtime));
	CALL("cuLaunchKernel", (P, U, U, U, U, U, U, U, P, P *, P *),
	     (FUNC, 11, 12, 13, 21, 22, 23, 4096, STREAM, ANY, ANY));
	CALL_WITH("cuLaunchKernelEx", (const CUlaunchConfig *, P, P *, P *), (&driver, FUNC, ANY, ANY), &driver,
		  sizeof(driver));
	CALL("cudaLaunchHostFunc", (P, P, P), (STREAM, FUNC, ANY));
	CALL("cudaGraphLaunch", (P, P), (ANY, STREAM));
}

static void copies(void)
{
	cudaMemcpy3DParms p3 = {
		.srcPtr = {ANY, 1, 2, 3}, .dstPtr = {ANY, 1, 2, 3}, .extent = {WIDTH, HEIGHT, DEPTH}, .kind = H2D};
	CUDA_MEMCPY2D d2 = {.srcMemoryType = 1, .dstMemoryType = 2, .WidthInBytes = WIDTH, .Height = HEIGHT};
	CUDA_MEMCPY3D d3 = {.srcMemoryType = 1, .WidthInBytes = WIDTH, .Height = HEIGHT, .Depth = DEPTH};

	CALL("cudaMemcpy", (P, CP, size_t, int), (ANY, ANY, BYTES, H2D));
	CALL("cudaMemcpyAsync", (P, CP, size_t, int, P), (ANY, ANY, BYTES, D2H, STREAM));
	CALL("cudaMemcpyPeerAsync", (P, int, CP, int, size_t, P), (ANY, 0, ANY, 1, BYTES, STREAM));
	CALL("cudaMemcpyToSymbolAsync", (CP, CP, size_t, size_t, int, P), (ANY, ANY, BYTES, ANY_SIZE, H2D, STREAM));
	CALL("cudaMemcpyToArrayAsync", (P, size_t, size_t, CP, size_t, int, P),
	     (ANY, ANY_SIZE, ANY_SIZE, ANY, BYTES, H2D, STREAM));
	CALL("cudaMemcpyArrayToArray", (P, size_t, size_t, P, size_t, size_t, size_t, int),
	     (ANY, ANY_SIZE, ANY_SIZE, ANY, ANY_SIZE, ANY_SIZE, BYTES, D2D));
	CALL("cudaMemcpy2D", (P, size_t, CP, size_t, size_t, size_t, int),
	     (ANY, ANY_SIZE, ANY, ANY_SIZE, WIDTH, HEIGHT, D2H));
	CALL("cudaMemcpy2DAsync", (P, size_t, CP, size_t, size_t, size_t, int, P),
	     (ANY, ANY_SIZE, ANY, ANY_SIZE, WIDTH, HEIGHT, D2H, STREAM));
	CALL("cudaMemcpy2DFromArrayAsync", (P, size_t, P, size_t, size_t, size_t, size_t, int, P),
	     (ANY, ANY_SIZE, ANY, ANY_SIZE, ANY_SIZE, WIDTH, HEIGHT, D2H, STREAM));
	CALL("cudaMemcpy2DArrayToArray", (P, size_t, size_t, P, size_t, size_t, size_t, size_t, int),
	     (ANY, ANY_SIZE, ANY_SIZE, ANY, ANY_SIZE, ANY_SIZE, WIDTH, HEIGHT, D2D));
	CALL_WITH("cudaMemcpy3DAsync", (const cudaMemcpy3DParms *, P), (&p3, STREAM), &p3, sizeof(p3));
	CALL("cuMemcpyHtoD_v2", (CUdeviceptr, CP, size_t), (DPTR, ANY, BYTES));
	CALL("cuMemcpyDtoHAsync_v2_ptsz", (P, CUdeviceptr, size_t, P), (ANY, DPTR, BYTES, STREAM));
	CALL("cuMemcpyAtoHAsync_v2", (P, P, size_t, size_t, P), (ANY, ANY, ANY_SIZE, BYTES, STREAM));
	CALL_WITH("cuMemcpy2DAsync_v2", (const CUDA_MEMCPY2D *, P), (&d2, STREAM), &d2, sizeof(d2));
	CALL_WITH("cuMemcpy3D_v2", (const CUDA_MEMCPY3D *), (&d3), &d3, sizeof(d3));
	CALL("cuMemcpyBatchAsync", (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, P, size_t *, size_t, size_t *, P),
	     (ANY, ANY, ANY, 9, ANY, ANY, ANY_SIZE, ANY, STREAM));
	CALL("cuMemcpyBatchAsync_v2", (CUdeviceptr *, CUdeviceptr *, size_t *, size_t, P, size_t *, size_t, P),
	     (ANY, ANY, ANY, 9, ANY, ANY, ANY_SIZE, STREAM));
}

static void memory(void)
{
	const cudaPitchedPtr pitched = {PTR, 1, 2, 3};
	const cudaExtent extent = {WIDTH, HEIGHT, DEPTH};
	const CUmemLocation location = {1, 2};

	CALL("cudaMemset2DAsync", (P, size_t, int, size_t, size_t, P), (PTR, ANY_SIZE, 0, WIDTH, HEIGHT, STREAM));
	CALL("cudaMemset3DAsync", (cudaPitchedPtr, int, cudaExtent, P), (pitched, 0, extent, STREAM));
	CALL("cuMemsetD2D32Async", (CUdeviceptr, size_t, U, size_t, size_t, P),
	     (DPTR, ANY_SIZE, 0, WIDTH, HEIGHT, STREAM));
	CALL("cuMemPrefetchAsync_v2", (CUdeviceptr, size_t, CUmemLocation, U, P), (DPTR, BYTES, location, 0, STREAM));
	CALL("cudaMallocPitch", (P *, size_t *, size_t, size_t), (OUT, ANY, WIDTH, HEIGHT));
	CALL("cudaMalloc3D", (cudaPitchedPtr *, cudaExtent), (OUT, extent));
	CALL("cudaMallocFromPoolAsync", (P *, size_t, P, P), (OUT, BYTES, ANY, STREAM));
	CALL("cudaFreeAsync", (P, P), (PTR, STREAM));
	CALL("cudaEventRecord", (P, P), (EVENT, STREAM));
	CALL("cudaStreamWaitEvent", (P, P, unsigned int), (STREAM, EVENT, 0));
	CALL("cuEventQuery", (P), (EVENT));
	CALL("cudaSetDevice", (int), (3));
}

static void collectives(void)
{
	const ncclUniqueId id = {"all the same id"};

	CALL("ncclAllReduce", (CP, P, size_t, int, int, P, P), (ANY, ANY, 1000, 6, 0, ANY, STREAM));
	CALL("ncclReduce", (CP, P, size_t, int, int, int, P, P), (ANY, ANY, 1000, 8, 0, 3, ANY, STREAM));
	CALL("ncclAllGather", (CP, P, size_t, int, P, P), (ANY, ANY, 1000, 9, ANY, STREAM));
	CALL("ncclBroadcast", (CP, P, size_t, int, int, P, P), (ANY, ANY, 1000, 2, 3, ANY, STREAM));
	CALL("ncclSend", (CP, size_t, int, int, P, P), (ANY, 1000, 1, 3, ANY, STREAM));
	CALL("ncclCommInitRank", (P *, int, ncclUniqueId, int), (OUT, 8, id, 5));
	CALL("ncclCommInitRankConfig", (P *, int, ncclUniqueId, int, P), (OUT, 8, id, 5, ANY));
	CALL("ncclPutSignal", (CP, size_t, int, int, P, size_t, int, int, U, P, P),
	     (ANY, 1000, 4, 3, ANY, ANY_SIZE, 1, 2, 3, ANY, STREAM));
}

int main(void)
{
	launches();
	copies();
	memory();
	collectives();
	return 0;
}
