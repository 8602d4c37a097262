//! The driver API (`cuda.h`).
//!
//! Functions that have a `_v2` since CUDA 3.2 (64-bit device pointers) are still exported under their first name with
//! 32-bit sizes and pointers; nobody has called those for long, but they must not be read as if they were the new ones.

use ingero_common::discover::LibraryKind;

use crate::symbols::args::Dir;
use crate::symbols::memory::Memory;
use crate::symbols::op::OpClass::*;
use crate::symbols::op::Param::*;
use crate::symbols::op::{Drain, Op, OpClass, Param};

const fn op(name: &'static str, class: OpClass, params: &'static [Param]) -> Op {
    Op::new(LibraryKind::Cuda, name, class, params)
}

const LAUNCH: &[Param] =
    &[Func, GridDim(0), GridDim(1), GridDim(2), BlockDim(0), BlockDim(1), BlockDim(2), Shmem32, Stream];

#[rustfmt::skip]
pub(super) const OPS: &[Op] = &[
    // Launches.
    op("cuLaunchKernel", Launch, LAUNCH),
    op("cuLaunchKernelEx", Launch, &[Inside(Memory::DriverLaunch), Func]),
    op("cuLaunchCooperativeKernel", Launch, LAUNCH),
    op("cuLaunchCooperativeKernelMultiDevice", Launch, &[]),
    op("cuLaunch", Launch, &[Func]),
    op("cuLaunchGrid", Launch, &[Func]),
    op("cuLaunchGridAsync", Launch, &[Func, Skip, Skip, Stream]),
    op("cuLaunchHostFunc", HostFunc, &[Stream, Func]),
    op("cuStreamAddCallback", HostFunc, &[Stream, Func]),
    op("cuGraphLaunch", GraphLaunch, &[Skip, Stream]),
    op("cuGraphUpload", Prefetch, &[Skip, Stream]),

    // Copies whose direction is left to the driver.
    op("cuMemcpy", Copy, &[Skip, Skip, Size]),
    op("cuMemcpyAsync", Copy, &[Skip, Skip, Size, Stream]),
    op("cuMemcpyWithAttributesAsync", Copy, &[Skip, Skip, Size, Skip, Stream]),
    op("cuMemcpyPeer", Copy, &[Skip, Skip, Skip, Skip, Size]).dir(Dir::P2p),
    op("cuMemcpyPeerAsync", Copy, &[Skip, Skip, Skip, Skip, Size, Stream]).dir(Dir::P2p),
    // Copies whose name says it.
    op("cuMemcpyHtoD", Copy, &[Skip, Skip, Size]).dir(Dir::H2d).versions(&[("", &[Skip, Skip, Size32])]),
    op("cuMemcpyHtoDAsync", Copy, &[Skip, Skip, Size, Stream]).dir(Dir::H2d)
        .versions(&[("", &[Skip, Skip, Size32, Stream])]),
    op("cuMemcpyDtoH", Copy, &[Skip, Skip, Size]).dir(Dir::D2h).versions(&[("", &[Skip, Skip, Size32])]),
    op("cuMemcpyDtoHAsync", Copy, &[Skip, Skip, Size, Stream]).dir(Dir::D2h)
        .versions(&[("", &[Skip, Skip, Size32, Stream])]),
    op("cuMemcpyDtoD", Copy, &[Skip, Skip, Size]).dir(Dir::D2d).versions(&[("", &[Skip, Skip, Size32])]),
    op("cuMemcpyDtoDAsync", Copy, &[Skip, Skip, Size, Stream]).dir(Dir::D2d)
        .versions(&[("", &[Skip, Skip, Size32, Stream])]),
    op("cuMemcpyDtoA", Copy, &[Skip, Skip, Skip, Size]).dir(Dir::D2d).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    op("cuMemcpyAtoD", Copy, &[Skip, Skip, Skip, Size]).dir(Dir::D2d).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    op("cuMemcpyAtoA", Copy, &[Skip, Skip, Skip, Skip, Size]).dir(Dir::D2d)
        .versions(&[("", &[Skip, Skip, Skip, Skip, Size32])]),
    op("cuMemcpyHtoA", Copy, &[Skip, Skip, Skip, Size]).dir(Dir::H2d).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    op("cuMemcpyHtoAAsync", Copy, &[Skip, Skip, Skip, Size, Stream]).dir(Dir::H2d)
        .versions(&[("", &[Skip, Skip, Skip, Size32, Stream])]),
    op("cuMemcpyAtoH", Copy, &[Skip, Skip, Skip, Size]).dir(Dir::D2h).versions(&[("", &[Skip, Skip, Skip, Size32])]),
    op("cuMemcpyAtoHAsync", Copy, &[Skip, Skip, Skip, Size, Stream]).dir(Dir::D2h)
        .versions(&[("", &[Skip, Skip, Skip, Size32, Stream])]),
    // Copies described by a structure; the first versions have another layout.
    op("cuMemcpy2D", Copy, &[Inside(Memory::DriverCopy2d)]).versions(&[("", &[])]),
    op("cuMemcpy2DUnaligned", Copy, &[Inside(Memory::DriverCopy2d)]).versions(&[("", &[])]),
    op("cuMemcpy2DAsync", Copy, &[Inside(Memory::DriverCopy2d), Stream]).versions(&[("", &[Skip, Stream])]),
    op("cuMemcpy3D", Copy, &[Inside(Memory::DriverCopy3d)]).versions(&[("", &[])]),
    op("cuMemcpy3DAsync", Copy, &[Inside(Memory::DriverCopy3d), Stream]).versions(&[("", &[Skip, Stream])]),
    op("cuMemcpy3DPeer", Copy, &[Inside(Memory::DriverCopy3d)]).dir(Dir::P2p),
    op("cuMemcpy3DPeerAsync", Copy, &[Inside(Memory::DriverCopy3d), Stream]).dir(Dir::P2p),
    op("cuMemcpy3DWithAttributesAsync", Copy, &[Skip, Skip, Stream]),
    op("cuMemcpyBatchAsync", Copy, &[Skip, Skip, Skip, Count, Skip, Skip, Skip, Stream])
        .versions(&[("", &[Skip, Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream])]),
    op("cuMemcpy3DBatchAsync", Copy, &[Count, Skip, Skip, Stream]).versions(&[("", &[Count, Skip, Skip, Skip, Stream])]),
    op("cuFabricCpyBatchAsync", Copy, &[]),
    op("cuMemBatchDecompressAsync", Copy, &[]),

    // Fills.
    op("cuMemsetD8", Set, &[Ptr, Skip, Size]).versions(&[("", &[Skip, Skip, Size32])]),
    op("cuMemsetD16", Set, &[Ptr, Skip, Elements(2)]).versions(&[("", &[Skip, Skip, Elements32(2)])]),
    op("cuMemsetD32", Set, &[Ptr, Skip, Elements(4)]).versions(&[("", &[Skip, Skip, Elements32(4)])]),
    op("cuMemsetD2D8", Set, &[Ptr, Skip, Skip, Size, Size]).versions(&[("", &[Skip, Skip, Skip, Size32, Size32])]),
    op("cuMemsetD2D16", Set, &[Ptr, Skip, Skip, Elements(2), Size])
        .versions(&[("", &[Skip, Skip, Skip, Elements32(2), Size32])]),
    op("cuMemsetD2D32", Set, &[Ptr, Skip, Skip, Elements(4), Size])
        .versions(&[("", &[Skip, Skip, Skip, Elements32(4), Size32])]),
    op("cuMemsetD8Async", Set, &[Ptr, Skip, Size, Stream]),
    op("cuMemsetD16Async", Set, &[Ptr, Skip, Elements(2), Stream]),
    op("cuMemsetD32Async", Set, &[Ptr, Skip, Elements(4), Stream]),
    op("cuMemsetD2D8Async", Set, &[Ptr, Skip, Skip, Size, Size, Stream]),
    op("cuMemsetD2D16Async", Set, &[Ptr, Skip, Skip, Elements(2), Size, Stream]),
    op("cuMemsetD2D32Async", Set, &[Ptr, Skip, Skip, Elements(4), Size, Stream]),
    op("cuMemPrefetchAsync", Prefetch, &[Ptr, Size, SkipBytes(8), Skip, Stream])
        .versions(&[("", &[Ptr, Size, Skip, Stream])]),
    op("cuMemPrefetchBatchAsync", Prefetch, &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),
    op("cuMemDiscardAndPrefetchBatchAsync", Prefetch, &[Skip, Skip, Count, Skip, Skip, Skip, Skip, Stream]),

    // Memory.
    op("cuMemAlloc", Alloc, &[Out, Size]).versions(&[("", &[Out32, Size32])]),
    op("cuMemAllocPitch", Alloc, &[Out, Skip, Size, Size]).versions(&[("", &[Out32, Skip, Size32, Size32])]),
    op("cuMemAllocManaged", Alloc, &[Out, Size]),
    op("cuMemAllocAsync", Alloc, &[Out, Size, Stream]),
    op("cuMemAllocFromPoolAsync", Alloc, &[Out, Size, Skip, Stream]),
    op("cuMemAllocHost", Alloc, &[Out, Size]).versions(&[("", &[Out, Size32])]),
    op("cuMemHostAlloc", Alloc, &[Out, Size]),
    op("cuMemHostRegister", Alloc, &[Ptr, Size]),
    op("cuMemCreate", Alloc, &[Skip, Size]),
    op("cuMemMap", Alloc, &[Ptr, Size]),
    op("cuMemSetAccess", Alloc, &[Ptr, Size]),
    op("cuMemMapArrayAsync", Alloc, &[Skip, Skip, Stream]),
    op("cuMemAddressReserve", Alloc, &[Out, Size]),
    op("cuArrayCreate", Alloc, &[]),
    op("cuArray3DCreate", Alloc, &[]),
    op("cuMipmappedArrayCreate", Alloc, &[]),
    op("cuMemPoolCreate", Alloc, &[]),
    op("cuMemFree", Free, &[Ptr]).versions(&[("", &[])]),
    op("cuMemFreeAsync", Free, &[Ptr, Stream]),
    op("cuMemFreeHost", Free, &[Ptr]),
    op("cuMemHostUnregister", Free, &[Ptr]),
    op("cuMemRelease", Free, &[]),
    op("cuMemUnmap", Free, &[Ptr, Size]),
    op("cuMemAddressFree", Free, &[Ptr, Size]),
    op("cuArrayDestroy", Free, &[]),
    op("cuMipmappedArrayDestroy", Free, &[]),
    op("cuMemPoolDestroy", Free, &[]),
    op("cuMemPoolTrimTo", Free, &[]),

    // Waiting, asking, marking.
    op("cuCtxSynchronize", Sync, &[]).drains(Drain::Context),
    op("cuStreamSynchronize", Sync, &[Stream]).drains(Drain::Stream),
    op("cuEventSynchronize", Sync, &[]),
    op("cuStreamQuery", Query, &[Stream]),
    op("cuEventQuery", Query, &[]),
    op("cuStreamWaitEvent", StreamWait, &[Stream]),
    op("cuStreamWaitValue32", StreamWait, &[Stream]),
    op("cuStreamWaitValue64", StreamWait, &[Stream]),
    op("cuStreamWriteValue32", Record, &[Stream]),
    op("cuStreamWriteValue64", Record, &[Stream]),
    op("cuStreamBatchMemOp", Record, &[Stream]),
    op("cuWaitExternalSemaphoresAsync", StreamWait, &[Skip, Skip, Skip, Stream]),
    op("cuEventRecord", Record, &[Skip, Stream]),
    op("cuEventRecordWithFlags", Record, &[Skip, Stream]),

    // Graphs.
    op("cuStreamBeginCapture", Capture, &[Stream]),
    op("cuStreamBeginCaptureToGraph", Capture, &[Stream]),
    op("cuStreamBeginRecaptureToGraph", Capture, &[Stream]),
    op("cuStreamEndCapture", Capture, &[Stream]),
    op("cuGraphInstantiate", Instantiate, &[]),
    op("cuGraphInstantiateWithFlags", Instantiate, &[]),
    op("cuGraphInstantiateWithParams", Instantiate, &[]),
    op("cuGraphExecUpdate", Instantiate, &[]),

    // Code, contexts.
    op("cuModuleLoad", Load, &[]),
    op("cuModuleLoadData", Load, &[]),
    op("cuModuleLoadDataEx", Load, &[]),
    op("cuModuleLoadFatBinary", Load, &[]),
    op("cuModuleUnload", Load, &[]),
    // Where code that was loaded lazily is loaded in truth.
    op("cuFuncLoad", Load, &[]),
    op("cuModuleGetFunction", Load, &[]),
    op("cuKernelGetFunction", Load, &[]),
    op("cuLibraryLoadData", Load, &[]),
    op("cuLibraryLoadFromFile", Load, &[]),
    op("cuLibraryUnload", Load, &[]),
    op("cuLinkCreate", Load, &[]),
    op("cuLinkAddData", Load, &[]),
    op("cuLinkAddFile", Load, &[]),
    op("cuLinkComplete", Load, &[]),
    op("cuInit", Init, &[]),
    op("cuCtxCreate", Init, &[]),
    op("cuCtxDestroy", Init, &[]),
    op("cuDevicePrimaryCtxRetain", Init, &[]),
    op("cuDevicePrimaryCtxRelease", Init, &[]),
    op("cuDevicePrimaryCtxReset", Init, &[]),
    op("cuGreenCtxCreate", Init, &[]),
];
