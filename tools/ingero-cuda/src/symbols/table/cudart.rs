//! The runtime API (`cuda_runtime_api.h`).

use ingero_common::discover::LibraryKind;

use crate::symbols::args::Dir;
use crate::symbols::memory::Memory;
use crate::symbols::op::OpClass::*;
use crate::symbols::op::Param::*;
use crate::symbols::op::{Drain, Op, OpClass, Param};

const fn op(name: &'static str, class: OpClass, params: &'static [Param]) -> Op {
    Op::new(LibraryKind::Cudart, name, class, params)
}

const LAUNCH: &[Param] = &[Func, Grid, Block, Skip, Shmem, Stream];

#[rustfmt::skip]
pub(super) const OPS: &[Op] = &[
    // Launches.
    op("cudaLaunchKernel", Launch, LAUNCH),
    op("cudaLaunchKernelExC", Launch, &[Inside(Memory::RuntimeLaunch), Func]),
    op("cudaLaunchCooperativeKernel", Launch, LAUNCH),
    op("cudaLaunchCooperativeKernelMultiDevice", Launch, &[]),
    op("cudaLaunchHostFunc", HostFunc, &[Stream, Func]),
    op("cudaStreamAddCallback", HostFunc, &[Stream, Func]),
    op("cudaGraphLaunch", GraphLaunch, &[Skip, Stream]),
    op("cudaGraphUpload", Prefetch, &[Skip, Stream]),

    // Copies.
    op("cudaMemcpy", Copy, &[Skip, Skip, Size, Kind]),
    op("cudaMemcpyAsync", Copy, &[Skip, Skip, Size, Kind, Stream]),
    op("cudaMemcpyWithAttributesAsync", Copy, &[Skip, Skip, Size, Skip, Stream]),
    op("cudaMemcpyPeer", Copy, &[Skip, Skip, Skip, Skip, Size]).dir(Dir::P2p),
    op("cudaMemcpyPeerAsync", Copy, &[Skip, Skip, Skip, Skip, Size, Stream]).dir(Dir::P2p),
    op("cudaMemcpyToSymbol", Copy, &[Skip, Skip, Size, Skip, Kind]),
    op("cudaMemcpyToSymbolAsync", Copy, &[Skip, Skip, Size, Skip, Kind, Stream]),
    op("cudaMemcpyFromSymbol", Copy, &[Skip, Skip, Size, Skip, Kind]),
    op("cudaMemcpyFromSymbolAsync", Copy, &[Skip, Skip, Size, Skip, Kind, Stream]),
    op("cudaMemcpyToArray", Copy, &[Skip, Skip, Skip, Skip, Size, Kind]),
    op("cudaMemcpyToArrayAsync", Copy, &[Skip, Skip, Skip, Skip, Size, Kind, Stream]),
    op("cudaMemcpyFromArray", Copy, &[Skip, Skip, Skip, Skip, Size, Kind]),
    op("cudaMemcpyFromArrayAsync", Copy, &[Skip, Skip, Skip, Skip, Size, Kind, Stream]),
    op("cudaMemcpyArrayToArray", Copy, &[Skip, Skip, Skip, Skip, Skip, Skip, Size, Kind]),
    op("cudaMemcpy2D", Copy, &[Skip, Skip, Skip, Skip, Size, Size, Kind]),
    op("cudaMemcpy2DAsync", Copy, &[Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    op("cudaMemcpy2DToArray", Copy, &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    op("cudaMemcpy2DToArrayAsync", Copy, &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    op("cudaMemcpy2DFromArray", Copy, &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    op("cudaMemcpy2DFromArrayAsync", Copy, &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    op("cudaMemcpy2DArrayToArray", Copy, &[Skip, Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    op("cudaMemcpy3D", Copy, &[Inside(Memory::RuntimeCopy3d)]),
    op("cudaMemcpy3DAsync", Copy, &[Inside(Memory::RuntimeCopy3d), Stream]),
    op("cudaMemcpy3DWithAttributesAsync", Copy, &[Skip, Skip, Stream]),
    op("cudaMemcpy3DPeer", Copy, &[]).dir(Dir::P2p),
    op("cudaMemcpy3DPeerAsync", Copy, &[Skip, Stream]).dir(Dir::P2p),
    // CUDA 12 has a `failIdx` before the stream, CUDA 13 has not, under the same name.
    op("cudaMemcpyBatchAsync", Copy, &[Skip, Skip, Skip, Count]),
    op("cudaMemcpy3DBatchAsync", Copy, &[Count]),

    // Fills.
    op("cudaMemset", Set, &[Ptr, Skip, Size]),
    op("cudaMemsetAsync", Set, &[Ptr, Skip, Size, Stream]),
    op("cudaMemset2D", Set, &[Ptr, Skip, Skip, Size, Size]),
    op("cudaMemset2DAsync", Set, &[Ptr, Skip, Skip, Size, Size, Stream]),
    op("cudaMemset3D", Set, &[SkipBytes(32), Skip, Extent]),
    op("cudaMemset3DAsync", Set, &[SkipBytes(32), Skip, Extent, Stream]),
    // CUDA 12 takes a device number third, CUDA 13 a location and flags.
    op("cudaMemPrefetchAsync", Prefetch, &[Ptr, Size]).versions(&[("_v2", &[Ptr, Size, SkipBytes(8), Skip, Stream])]),
    op("cudaMemPrefetchBatchAsync", Prefetch, &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),
    op("cudaMemDiscardAndPrefetchBatchAsync", Prefetch, &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),

    // Memory.
    op("cudaMalloc", Alloc, &[Out, Size]),
    op("cudaMallocAsync", Alloc, &[Out, Size, Stream]),
    op("cudaMallocFromPoolAsync", Alloc, &[Out, Size, Skip, Stream]),
    op("cudaMallocManaged", Alloc, &[Out, Size]),
    op("cudaMallocHost", Alloc, &[Out, Size]),
    op("cudaHostAlloc", Alloc, &[Out, Size]),
    op("cudaHostRegister", Alloc, &[Ptr, Size]),
    op("cudaMallocPitch", Alloc, &[Out, Skip, Size, Size]),
    op("cudaMalloc3D", Alloc, &[Out, Extent]),
    op("cudaMallocArray", Alloc, &[]),
    op("cudaMalloc3DArray", Alloc, &[]),
    op("cudaMallocMipmappedArray", Alloc, &[]),
    op("cudaMemPoolCreate", Alloc, &[]),
    op("cudaFree", Free, &[Ptr]),
    op("cudaFreeAsync", Free, &[Ptr, Stream]),
    op("cudaFreeHost", Free, &[Ptr]),
    op("cudaHostUnregister", Free, &[Ptr]),
    op("cudaFreeArray", Free, &[]),
    op("cudaFreeMipmappedArray", Free, &[]),
    op("cudaMemPoolDestroy", Free, &[]),
    op("cudaMemPoolTrimTo", Free, &[]),

    // Waiting, asking, marking.
    op("cudaDeviceSynchronize", Sync, &[]).drains(Drain::Context),
    op("cudaThreadSynchronize", Sync, &[]).drains(Drain::Context),
    op("cudaExecutionCtxSynchronize", Sync, &[]),
    op("cudaStreamSynchronize", Sync, &[Stream]).drains(Drain::Stream),
    op("cudaEventSynchronize", Sync, &[]),
    op("cudaStreamQuery", Query, &[Stream]),
    op("cudaEventQuery", Query, &[]),
    op("cudaStreamWaitEvent", StreamWait, &[Stream]),
    op("cudaWaitExternalSemaphoresAsync", StreamWait, &[Skip, Skip, Skip, Stream]),
    op("cudaEventRecord", Record, &[Skip, Stream]),
    op("cudaEventRecordWithFlags", Record, &[Skip, Stream]),

    // Graphs.
    op("cudaStreamBeginCapture", Capture, &[Stream]),
    op("cudaStreamBeginCaptureToGraph", Capture, &[Stream]),
    op("cudaStreamBeginRecaptureToGraph", Capture, &[Stream]),
    op("cudaStreamEndCapture", Capture, &[Stream]),
    op("cudaGraphInstantiate", Instantiate, &[]),
    op("cudaGraphInstantiateWithFlags", Instantiate, &[]),
    op("cudaGraphInstantiateWithParams", Instantiate, &[]),
    op("cudaGraphExecUpdate", Instantiate, &[]),

    // Code, devices.
    op("cudaLibraryLoadData", Load, &[]),
    op("cudaLibraryLoadFromFile", Load, &[]),
    op("cudaLibraryUnload", Load, &[]),
    op("cudaSetDevice", Init, &[]),
    op("cudaInitDevice", Init, &[]),
    op("cudaDeviceReset", Init, &[]),
];
