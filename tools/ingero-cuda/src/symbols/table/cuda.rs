//! The driver API (`cuda.h`).
//!
//! Functions that have a `_v2` since CUDA 3.2 (64-bit device pointers) are still exported under their first name with
//! 32-bit sizes and pointers; nobody has called those for long, but they must not be read as if they were the new ones.

use ingero_common::discover::LibraryKind;

use crate::symbols::memory::Memory;
use crate::symbols::signature::Param::*;
use crate::symbols::signature::{Param, Signature};

const fn of(name: &str, params: &'static [Param]) -> Signature {
    Signature::new(LibraryKind::Cuda, name, params)
}

const LAUNCH: &[Param] =
    &[Func, GridDim(0), GridDim(1), GridDim(2), BlockDim(0), BlockDim(1), BlockDim(2), Shmem32, Stream];

#[rustfmt::skip]
pub(super) const SIGNATURES: &[Signature] = &[
    // Launches.
    of("cuLaunchKernel", LAUNCH),
    of("cuLaunchKernelEx", &[Inside(Memory::DriverLaunch), Func]),
    of("cuLaunchCooperativeKernel", LAUNCH),
    of("cuLaunchCooperativeKernelMultiDevice", &[]),
    of("cuLaunch", &[Func]),
    of("cuLaunchGrid", &[Func]),
    of("cuLaunchGridAsync", &[Func, Skip, Skip, Stream]),
    of("cuLaunchHostFunc", &[Stream, Func]),
    of("cuStreamAddCallback", &[Stream, Func]),
    of("cuGraphLaunch", &[Skip, Stream]),
    of("cuGraphUpload", &[Skip, Stream]),

    // Copies whose direction is left to the driver.
    of("cuMemcpy", &[Skip, Skip, Size]),
    of("cuMemcpyAsync", &[Skip, Skip, Size, Stream]),
    of("cuMemcpyWithAttributesAsync", &[Skip, Skip, Size, Skip, Stream]),
    of("cuMemcpyPeer", &[Skip, Skip, Skip, Skip, Size]),
    of("cuMemcpyPeerAsync", &[Skip, Skip, Skip, Skip, Size, Stream]),
    // Copies whose name says it.
    of("cuMemcpyHtoD", &[Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Size32])]),
    of("cuMemcpyHtoDAsync", &[Skip, Skip, Size, Stream]).versions(&[("", &[Skip, Skip, Size32, Stream])]),
    of("cuMemcpyDtoH", &[Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Size32])]),
    of("cuMemcpyDtoHAsync", &[Skip, Skip, Size, Stream]).versions(&[("", &[Skip, Skip, Size32, Stream])]),
    of("cuMemcpyDtoD", &[Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Size32])]),
    of("cuMemcpyDtoDAsync", &[Skip, Skip, Size, Stream]).versions(&[("", &[Skip, Skip, Size32, Stream])]),
    of("cuMemcpyDtoA", &[Skip, Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    of("cuMemcpyAtoD", &[Skip, Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    of("cuMemcpyAtoA", &[Skip, Skip, Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Skip, Skip, Size32])]),
    of("cuMemcpyHtoA", &[Skip, Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    of("cuMemcpyHtoAAsync", &[Skip, Skip, Skip, Size, Stream]).versions(&[("", &[Skip, Skip, Skip, Size32, Stream])]),
    of("cuMemcpyAtoH", &[Skip, Skip, Skip, Size]).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    of("cuMemcpyAtoHAsync", &[Skip, Skip, Skip, Size, Stream]).versions(&[("", &[Skip, Skip, Skip, Size32, Stream])]),
    // Copies described by a structure; the first versions have another layout.
    of("cuMemcpy2D", &[Inside(Memory::DriverCopy2d)]).versions(&[("", &[])]),
    of("cuMemcpy2DUnaligned", &[Inside(Memory::DriverCopy2d)]).versions(&[("", &[])]),
    of("cuMemcpy2DAsync", &[Inside(Memory::DriverCopy2d), Stream]).versions(&[("", &[Skip, Stream])]),
    of("cuMemcpy3D", &[Inside(Memory::DriverCopy3d)]).versions(&[("", &[])]),
    of("cuMemcpy3DAsync", &[Inside(Memory::DriverCopy3d), Stream]).versions(&[("", &[Skip, Stream])]),
    of("cuMemcpy3DPeer", &[Inside(Memory::DriverCopy3d)]),
    of("cuMemcpy3DPeerAsync", &[Inside(Memory::DriverCopy3d), Stream]),
    of("cuMemcpy3DWithAttributesAsync", &[Skip, Skip, Stream]),
    of("cuMemcpyBatchAsync", &[Skip, Skip, Skip, Count, Skip, Skip, Skip, Stream])
        .versions(&[("", &[Skip, Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream])]),
    of("cuMemcpy3DBatchAsync", &[Count, Skip, Skip, Stream]).versions(&[("", &[Count, Skip, Skip, Skip, Stream])]),
    of("cuFabricCpyBatchAsync", &[]),
    of("cuMemBatchDecompressAsync", &[]),

    // Fills.
    of("cuMemsetD8", &[Ptr, Skip, Size]).versions(&[("", &[Skip, Skip, Size32])]),
    of("cuMemsetD16", &[Ptr, Skip, Elements(2)]).versions(&[("", &[Skip, Skip, Elements32(2)])]),
    of("cuMemsetD32", &[Ptr, Skip, Elements(4)]).versions(&[("", &[Skip, Skip, Elements32(4)])]),
    of("cuMemsetD2D8", &[Ptr, Skip, Skip, Size, Size]).versions(&[("", &[Skip, Skip, Skip, Size32, Size32])]),
    of("cuMemsetD2D16", &[Ptr, Skip, Skip, Elements(2), Size])
        .versions(&[("", &[Skip, Skip, Skip, Elements32(2), Size32])]),
    of("cuMemsetD2D32", &[Ptr, Skip, Skip, Elements(4), Size])
        .versions(&[("", &[Skip, Skip, Skip, Elements32(4), Size32])]),
    of("cuMemsetD8Async", &[Ptr, Skip, Size, Stream]),
    of("cuMemsetD16Async", &[Ptr, Skip, Elements(2), Stream]),
    of("cuMemsetD32Async", &[Ptr, Skip, Elements(4), Stream]),
    of("cuMemsetD2D8Async", &[Ptr, Skip, Skip, Size, Size, Stream]),
    of("cuMemsetD2D16Async", &[Ptr, Skip, Skip, Elements(2), Size, Stream]),
    of("cuMemsetD2D32Async", &[Ptr, Skip, Skip, Elements(4), Size, Stream]),
    of("cuMemPrefetchAsync", &[Ptr, Size, SkipBytes(8), Skip, Stream]).versions(&[("", &[Ptr, Size, Skip, Stream])]),
    of("cuMemPrefetchBatchAsync", &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),
    of("cuMemDiscardAndPrefetchBatchAsync", &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),

    // Memory.
    of("cuMemAlloc", &[Out, Size]).versions(&[("", &[Out32, Size32])]),
    of("cuMemAllocPitch", &[Out, Skip, Size, Size]).versions(&[("", &[Out32, Skip, Size32, Size32])]),
    of("cuMemAllocManaged", &[Out, Size]),
    of("cuMemAllocAsync", &[Out, Size, Stream]),
    of("cuMemAllocFromPoolAsync", &[Out, Size, Skip, Stream]),
    of("cuMemAllocHost", &[Out, Size]).versions(&[("", &[Out, Size32])]),
    of("cuMemHostAlloc", &[Out, Size]),
    of("cuMemHostRegister", &[Ptr, Size]),
    of("cuMemCreate", &[Skip, Size]),
    of("cuMemMap", &[Ptr, Size]),
    of("cuMemSetAccess", &[Ptr, Size]),
    of("cuMemMapArrayAsync", &[Skip, Skip, Stream]),
    of("cuMemAddressReserve", &[Out, Size]),
    of("cuArrayCreate", &[]),
    of("cuArray3DCreate", &[]),
    of("cuMipmappedArrayCreate", &[]),
    of("cuMemPoolCreate", &[]),
    of("cuMemFree", &[Ptr]).versions(&[("", &[])]),
    of("cuMemFreeAsync", &[Ptr, Stream]),
    of("cuMemFreeHost", &[Ptr]),
    of("cuMemHostUnregister", &[Ptr]),
    of("cuMemRelease", &[]),
    of("cuMemUnmap", &[Ptr, Size]),
    of("cuMemAddressFree", &[Ptr, Size]),
    of("cuArrayDestroy", &[]),
    of("cuMipmappedArrayDestroy", &[]),
    of("cuMemPoolDestroy", &[]),
    of("cuMemPoolTrimTo", &[]),

    // Waiting, asking, marking.
    of("cuCtxSynchronize", &[]),
    of("cuStreamSynchronize", &[Stream]),
    of("cuEventSynchronize", &[Event]),
    of("cuStreamQuery", &[Stream]),
    of("cuEventQuery", &[Event]),
    of("cuStreamWaitEvent", &[Stream, Event]),
    of("cuStreamWaitValue32", &[Stream]),
    of("cuStreamWaitValue64", &[Stream]),
    of("cuStreamWriteValue32", &[Stream]),
    of("cuStreamWriteValue64", &[Stream]),
    of("cuStreamBatchMemOp", &[Stream]),
    of("cuWaitExternalSemaphoresAsync", &[Skip, Skip, Skip, Stream]),
    of("cuEventRecord", &[Event, Stream]),
    of("cuEventRecordWithFlags", &[Event, Stream]),

    // Graphs.
    of("cuStreamBeginCapture", &[Stream]),
    of("cuStreamBeginCaptureToGraph", &[Stream]),
    of("cuStreamBeginRecaptureToGraph", &[Stream]),
    of("cuStreamEndCapture", &[Stream]),
    of("cuGraphInstantiate", &[]),
    of("cuGraphInstantiateWithFlags", &[]),
    of("cuGraphInstantiateWithParams", &[]),
    of("cuGraphExecUpdate", &[]),

    // Code, contexts.
    of("cuModuleLoad", &[]),
    of("cuModuleLoadData", &[]),
    of("cuModuleLoadDataEx", &[]),
    of("cuModuleLoadFatBinary", &[]),
    of("cuModuleUnload", &[]),
    // Where code that was loaded lazily is loaded in truth.
    of("cuFuncLoad", &[]),
    of("cuModuleGetFunction", &[]),
    of("cuKernelGetFunction", &[]),
    of("cuLibraryLoadData", &[]),
    of("cuLibraryLoadFromFile", &[]),
    of("cuLibraryUnload", &[]),
    of("cuLinkCreate", &[]),
    of("cuLinkAddData", &[]),
    of("cuLinkAddFile", &[]),
    of("cuLinkComplete", &[]),
    of("cuInit", &[]),
    of("cuCtxCreate", &[]),
    of("cuCtxDestroy", &[]),
    of("cuDevicePrimaryCtxRetain", &[]),
    of("cuDevicePrimaryCtxRelease", &[]),
    of("cuDevicePrimaryCtxReset", &[]),
    of("cuGreenCtxCreate", &[]),
];
