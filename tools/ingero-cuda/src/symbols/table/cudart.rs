//! The runtime API (`cuda_runtime_api.h`).

use ingero_common::discover::LibraryKind;

use crate::symbols::memory::Memory;
use crate::symbols::signature::Param::*;
use crate::symbols::signature::{Param, Signature};

const fn of(name: &str, params: &'static [Param]) -> Signature {
    Signature::new(LibraryKind::Cudart, name, params)
}

const LAUNCH: &[Param] = &[Func, Grid, Block, Skip, Shmem, Stream];

#[rustfmt::skip]
pub(super) const SIGNATURES: &[Signature] = &[
    // Launches.
    of("cudaLaunchKernel", LAUNCH),
    of("cudaLaunchKernelExC", &[Inside(Memory::RuntimeLaunch), Func]),
    of("cudaLaunchCooperativeKernel", LAUNCH),
    of("cudaLaunchCooperativeKernelMultiDevice", &[]),
    of("cudaLaunchHostFunc", &[Stream, Func]),
    of("cudaStreamAddCallback", &[Stream, Func]),
    of("cudaGraphLaunch", &[Skip, Stream]),
    of("cudaGraphUpload", &[Skip, Stream]),

    // Copies.
    of("cudaMemcpy", &[Skip, Skip, Size, Kind]),
    of("cudaMemcpyAsync", &[Skip, Skip, Size, Kind, Stream]),
    of("cudaMemcpyWithAttributesAsync", &[Skip, Skip, Size, Skip, Stream]),
    of("cudaMemcpyPeer", &[Skip, Skip, Skip, Skip, Size]),
    of("cudaMemcpyPeerAsync", &[Skip, Skip, Skip, Skip, Size, Stream]),
    of("cudaMemcpyToSymbol", &[Skip, Skip, Size, Skip, Kind]),
    of("cudaMemcpyToSymbolAsync", &[Skip, Skip, Size, Skip, Kind, Stream]),
    of("cudaMemcpyFromSymbol", &[Skip, Skip, Size, Skip, Kind]),
    of("cudaMemcpyFromSymbolAsync", &[Skip, Skip, Size, Skip, Kind, Stream]),
    of("cudaMemcpyToArray", &[Skip, Skip, Skip, Skip, Size, Kind]),
    of("cudaMemcpyToArrayAsync", &[Skip, Skip, Skip, Skip, Size, Kind, Stream]),
    of("cudaMemcpyFromArray", &[Skip, Skip, Skip, Skip, Size, Kind]),
    of("cudaMemcpyFromArrayAsync", &[Skip, Skip, Skip, Skip, Size, Kind, Stream]),
    of("cudaMemcpyArrayToArray", &[Skip, Skip, Skip, Skip, Skip, Skip, Size, Kind]),
    of("cudaMemcpy2D", &[Skip, Skip, Skip, Skip, Size, Size, Kind]),
    of("cudaMemcpy2DAsync", &[Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    of("cudaMemcpy2DToArray", &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    of("cudaMemcpy2DToArrayAsync", &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    of("cudaMemcpy2DFromArray", &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    of("cudaMemcpy2DFromArrayAsync", &[Skip, Skip, Skip, Skip, Skip, Size, Size, Kind, Stream]),
    of("cudaMemcpy2DArrayToArray", &[Skip, Skip, Skip, Skip, Skip, Skip, Size, Size, Kind]),
    of("cudaMemcpy3D", &[Inside(Memory::RuntimeCopy3d)]),
    of("cudaMemcpy3DAsync", &[Inside(Memory::RuntimeCopy3d), Stream]),
    of("cudaMemcpy3DWithAttributesAsync", &[Skip, Skip, Stream]),
    of("cudaMemcpy3DPeer", &[]),
    of("cudaMemcpy3DPeerAsync", &[Skip, Stream]),
    // CUDA 12 has a `failIdx` before the stream, CUDA 13 has not, under the same name.
    of("cudaMemcpyBatchAsync", &[Skip, Skip, Skip, Count]),
    of("cudaMemcpy3DBatchAsync", &[Count]),

    // Fills.
    of("cudaMemset", &[Ptr, Skip, Size]),
    of("cudaMemsetAsync", &[Ptr, Skip, Size, Stream]),
    of("cudaMemset2D", &[Ptr, Skip, Skip, Size, Size]),
    of("cudaMemset2DAsync", &[Ptr, Skip, Skip, Size, Size, Stream]),
    of("cudaMemset3D", &[SkipBytes(32), Skip, Extent]),
    of("cudaMemset3DAsync", &[SkipBytes(32), Skip, Extent, Stream]),
    // CUDA 12 takes a device number third, CUDA 13 a location and flags.
    of("cudaMemPrefetchAsync", &[Ptr, Size]).versions(&[("_v2", &[Ptr, Size, SkipBytes(8), Skip, Stream])]),
    of("cudaMemPrefetchBatchAsync", &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),
    of("cudaMemDiscardAndPrefetchBatchAsync", &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),

    // Memory.
    of("cudaMalloc", &[Out, Size]),
    of("cudaMallocAsync", &[Out, Size, Stream]),
    of("cudaMallocFromPoolAsync", &[Out, Size, Skip, Stream]),
    of("cudaMallocManaged", &[Out, Size]),
    of("cudaMallocHost", &[Out, Size]),
    of("cudaHostAlloc", &[Out, Size]),
    of("cudaHostRegister", &[Ptr, Size]),
    of("cudaMallocPitch", &[Out, Skip, Size, Size]),
    of("cudaMalloc3D", &[Out, Extent]),
    of("cudaMallocArray", &[]),
    of("cudaMalloc3DArray", &[]),
    of("cudaMallocMipmappedArray", &[]),
    of("cudaMemPoolCreate", &[]),
    of("cudaFree", &[Ptr]),
    of("cudaFreeAsync", &[Ptr, Stream]),
    of("cudaFreeHost", &[Ptr]),
    of("cudaHostUnregister", &[Ptr]),
    of("cudaFreeArray", &[]),
    of("cudaFreeMipmappedArray", &[]),
    of("cudaMemPoolDestroy", &[]),
    of("cudaMemPoolTrimTo", &[]),

    // Waiting, asking, marking.
    of("cudaDeviceSynchronize", &[]),
    of("cudaThreadSynchronize", &[]),
    of("cudaExecutionCtxSynchronize", &[]),
    of("cudaStreamSynchronize", &[Stream]),
    of("cudaEventSynchronize", &[Event]),
    of("cudaStreamQuery", &[Stream]),
    of("cudaEventQuery", &[Event]),
    of("cudaStreamWaitEvent", &[Stream, Event]),
    of("cudaWaitExternalSemaphoresAsync", &[Skip, Skip, Skip, Stream]),
    of("cudaEventRecord", &[Event, Stream]),
    of("cudaEventRecordWithFlags", &[Event, Stream]),

    // Graphs.
    of("cudaStreamBeginCapture", &[Stream]),
    of("cudaStreamBeginCaptureToGraph", &[Stream]),
    of("cudaStreamBeginRecaptureToGraph", &[Stream]),
    of("cudaStreamEndCapture", &[Stream]),
    of("cudaGraphInstantiate", &[]),
    of("cudaGraphInstantiateWithFlags", &[]),
    of("cudaGraphInstantiateWithParams", &[]),
    of("cudaGraphExecUpdate", &[]),

    // Code, devices.
    of("cudaLibraryLoadData", &[]),
    of("cudaLibraryLoadFromFile", &[]),
    of("cudaLibraryUnload", &[]),
    of("cudaSetDevice", &[Device]),
    of("cudaInitDevice", &[Device]),
    of("cudaDeviceReset", &[]),
];
