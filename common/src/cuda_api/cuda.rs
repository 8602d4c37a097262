//! The driver API (`cuda.h`).

use super::Class::{self, *};
use super::{Device, Dir, Drain, Function};
use crate::discover::LibraryKind;

const fn of(class: Class) -> Function {
    Function::group(LibraryKind::Cuda, class)
}

#[rustfmt::skip]
pub(super) static FUNCTIONS: &[&[Function]] = &[
    // Work.
    &of(Launch).named([
        "cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuLaunch", "cuLaunchGrid",
        "cuLaunchGridAsync",
    ]),
    &of(Launch).device(Device::Several).named(["cuLaunchCooperativeKernelMultiDevice"]),
    &of(GraphLaunch).named(["cuGraphLaunch"]),
    &of(HostFunc).named(["cuLaunchHostFunc", "cuStreamAddCallback"]),
    &of(Copy).drain(Drain::Copy).named(["cuMemcpy", "cuMemcpy2D", "cuMemcpy2DUnaligned", "cuMemcpy3D"]),
    &of(Copy).drain(Drain::Copy).dir(Dir::H2d).named(["cuMemcpyHtoD", "cuMemcpyHtoA"]),
    &of(Copy).drain(Drain::Copy).dir(Dir::D2h).named(["cuMemcpyDtoH", "cuMemcpyAtoH"]),
    &of(Copy).named([
        "cuMemcpyAsync", "cuMemcpyWithAttributesAsync", "cuMemcpy2DAsync", "cuMemcpy3DAsync",
        "cuMemcpy3DWithAttributesAsync", "cuMemcpyBatchAsync", "cuMemcpy3DBatchAsync", "cuFabricCpyBatchAsync",
        "cuMemBatchDecompressAsync",
    ]),
    &of(Copy).dir(Dir::H2d).named(["cuMemcpyHtoDAsync", "cuMemcpyHtoAAsync"]),
    &of(Copy).dir(Dir::D2h).named(["cuMemcpyDtoHAsync", "cuMemcpyAtoHAsync"]),
    // Between device memory, which arrays are, the host does not wait: with or without `Async`.
    &of(Copy).dir(Dir::D2d).named([
        "cuMemcpyDtoD", "cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyAtoA", "cuMemcpyDtoDAsync",
    ]),
    &of(Copy).dir(Dir::P2p).device(Device::Several).named([
        "cuMemcpyPeer", "cuMemcpy3DPeer", "cuMemcpyPeerAsync", "cuMemcpy3DPeerAsync",
    ]),
    &of(Set).named([
        "cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemsetD2D8", "cuMemsetD2D16", "cuMemsetD2D32", "cuMemsetD8Async",
        "cuMemsetD16Async", "cuMemsetD32Async", "cuMemsetD2D8Async", "cuMemsetD2D16Async", "cuMemsetD2D32Async",
    ]),
    &of(Prefetch).named([
        "cuGraphUpload", "cuMemPrefetchAsync", "cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync",
    ]),
    &of(Prefetch).untraced().named(["cuMemDiscardBatchAsync", "cuStreamAttachMemAsync"]),

    // Memory.
    &of(Alloc).named([
        "cuMemAlloc", "cuMemAllocPitch", "cuMemAllocManaged", "cuMemAllocHost", "cuMemHostAlloc", "cuMemCreate",
        "cuMemMap", "cuMemSetAccess", "cuMemAddressReserve", "cuArrayCreate", "cuArray3DCreate",
        "cuMipmappedArrayCreate", "cuMemPoolCreate",
    ]),
    &of(Alloc).stream_ordered().named(["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemMapArrayAsync"]),
    &of(Alloc).untraced().named([
        "cuIpcOpenMemHandle", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer",
        "cuExternalMemoryGetMappedMipmappedArray", "cuMemImportFromShareableHandle",
        "cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMulticastCreate", "cuMulticastBindMem",
        "cuMulticastBindAddr",
    ]),
    // The manual says so of `cuMemFree`; what the others give up may be in use just as well.
    &of(Free).may_synchronize().named([
        "cuMemFree", "cuMemFreeHost", "cuMemUnmap", "cuArrayDestroy", "cuMipmappedArrayDestroy",
    ]),
    &of(Free).may_synchronize().untraced().named([
        "cuIpcCloseMemHandle", "cuDestroyExternalMemory", "cuMulticastUnbind",
    ]),
    &of(Free).stream_ordered().named(["cuMemFreeAsync"]),
    // Handles and addresses without memory behind them. A pool that is in use is given up later; trimming it leaves out what is
    // in use.
    &of(Free).named(["cuMemRelease", "cuMemAddressFree", "cuMemPoolDestroy", "cuMemPoolTrimTo"]),
    &of(Free).untraced().named(["cuDeviceGraphMemTrim"]),
    &of(Register).named(["cuMemHostRegister"]),
    &of(Register).may_synchronize().named(["cuMemHostUnregister"]),

    // Waiting, asking, marking.
    &of(Sync).drain(Drain::Context).named(["cuCtxSynchronize"]),
    &of(Sync).drain(Drain::Stream).named(["cuStreamSynchronize"]),
    // Events are in no record.
    &of(Sync).named(["cuEventSynchronize"]),
    &of(Query).named(["cuStreamQuery", "cuEventQuery"]),
    &of(StreamWait).named([
        "cuStreamWaitEvent", "cuStreamWaitValue32", "cuStreamWaitValue64", "cuWaitExternalSemaphoresAsync",
    ]),
    &of(StreamWait).untraced().named(["cuCtxWaitEvent", "cuGreenCtxWaitEvent"]),
    &of(Record).named([
        "cuEventRecord", "cuEventRecordWithFlags", "cuStreamWriteValue32", "cuStreamWriteValue64", "cuStreamBatchMemOp",
    ]),
    &of(Record).untraced().named(["cuSignalExternalSemaphoresAsync", "cuCtxRecordEvent", "cuGreenCtxRecordEvent"]),

    // Graphs, code, contexts.
    &of(Capture).named([
        "cuStreamBeginCapture", "cuStreamBeginCaptureToGraph", "cuStreamBeginRecaptureToGraph", "cuStreamEndCapture",
    ]),
    &of(Instantiate).named([
        "cuGraphInstantiate", "cuGraphInstantiateWithFlags", "cuGraphInstantiateWithParams", "cuGraphExecUpdate",
    ]),
    &of(Load).named([
        "cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData",
        "cuLibraryLoadFromFile", "cuLinkCreate", "cuLinkAddData", "cuLinkAddFile", "cuLinkComplete",
    ]),
    // Where code that was loaded lazily is loaded in truth.
    &of(Load).named(["cuFuncLoad", "cuModuleGetFunction", "cuKernelGetFunction"]),
    &of(Load).untraced().named([
        "cuModuleGetGlobal", "cuLibraryGetModule", "cuLibraryGetGlobal", "cuLibraryGetManaged",
        "cuLibraryGetUnifiedFunction",
    ]),
    &of(Init).named(["cuInit", "cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"]),
    &of(Init).device(Device::NewContext).named(["cuCtxCreate"]),
    &of(Unload).named([
        "cuModuleUnload", "cuLibraryUnload", "cuCtxDestroy", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset",
    ]),
    &of(Unload).untraced().named(["cuCtxDetach", "cuGreenCtxDestroy"]),
    // They return at once where the GPU still uses what they give up.
    &of(Destroy).untraced().named([
        "cuDestroyExternalSemaphore", "cuEventDestroy", "cuGraphDestroy", "cuGraphExecDestroy", "cuLinkDestroy",
        "cuStreamDestroy", "cuSurfObjectDestroy", "cuTexObjectDestroy",
    ]),

    // Host work.
    &of(Get).untraced().named([
        "cuArray3DGetDescriptor", "cuArrayGetDescriptor", "cuArrayGetMemoryRequirements", "cuArrayGetPlane",
        "cuArrayGetSparseProperties", "cuCtxGetApiVersion", "cuCtxGetCacheConfig", "cuCtxGetCurrent",
        "cuCtxGetDevResource", "cuCtxGetDevice", "cuCtxGetExecAffinity", "cuCtxGetFlags", "cuCtxGetId", "cuCtxGetLimit",
        "cuCtxGetSharedMemConfig", "cuCtxGetStreamPriorityRange", "cuDeviceCanAccessPeer", "cuDeviceGet",
        "cuDeviceGetAttribute", "cuDeviceGetByPCIBusId", "cuDeviceGetCliqueCount", "cuDeviceGetCliqueInfo",
        "cuDeviceGetCount", "cuDeviceGetDefaultMemPool", "cuDeviceGetDevResource", "cuDeviceGetExecAffinitySupport",
        "cuDeviceGetFabricClusterUuid", "cuDeviceGetGraphMemAttribute", "cuDeviceGetHostAtomicCapabilities",
        "cuDeviceGetLuid", "cuDeviceGetMemPool", "cuDeviceGetName", "cuDeviceGetP2PAtomicCapabilities",
        "cuDeviceGetP2PAttribute", "cuDeviceGetPCIBusId", "cuDeviceGetProperties", "cuDeviceGetTexture1DLinearMaxWidth",
        "cuDeviceGetUuid", "cuDevicePrimaryCtxGetState", "cuDeviceTotalMem", "cuDriverGetVersion", "cuEventElapsedTime",
        "cuFuncGetAttribute", "cuFuncGetModule", "cuFuncGetName", "cuFuncGetParamCount", "cuFuncGetParamInfo",
        "cuFuncIsLoaded", "cuGetErrorName", "cuGetErrorString", "cuGetProcAddress", "cuGraphBatchMemOpNodeGetParams",
        "cuGraphChildGraphNodeGetGraph", "cuGraphEventRecordNodeGetEvent", "cuGraphEventWaitNodeGetEvent",
        "cuGraphExecGetFlags", "cuGraphExecGetId", "cuGraphExternalSemaphoresSignalNodeGetParams",
        "cuGraphExternalSemaphoresWaitNodeGetParams", "cuGraphGetEdges", "cuGraphGetId", "cuGraphGetNodes",
        "cuGraphGetRootNodes", "cuGraphHostNodeGetParams", "cuGraphKernelNodeGetAttribute",
        "cuGraphKernelNodeGetParams", "cuGraphMemAllocNodeGetParams", "cuGraphMemFreeNodeGetParams",
        "cuGraphMemcpyNodeGetParams", "cuGraphMemsetNodeGetParams", "cuGraphNodeFindInClone",
        "cuGraphNodeGetContainingGraph", "cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes",
        "cuGraphNodeGetEnabled", "cuGraphNodeGetLocalId", "cuGraphNodeGetParams", "cuGraphNodeGetToolsId",
        "cuGraphNodeGetType", "cuGreenCtxGetDevResource", "cuGreenCtxGetId", "cuIpcGetEventHandle", "cuIpcGetMemHandle",
        "cuKernelGetAttribute", "cuKernelGetLibrary", "cuKernelGetName", "cuKernelGetParamCount",
        "cuKernelGetParamInfo", "cuLibraryEnumerateKernels", "cuLibraryGetKernel", "cuLibraryGetKernelCount",
        "cuMemGetAccess", "cuMemGetAddressRange", "cuMemGetAllocationGranularity",
        "cuMemGetAllocationPropertiesFromHandle", "cuMemGetDefaultMemPool", "cuMemGetHandleForAddressRange",
        "cuMemGetInfo", "cuMemGetLocationInfo", "cuMemGetMemPool", "cuMemHostGetDevicePointer", "cuMemHostGetFlags",
        "cuMemPoolGetAccess", "cuMemPoolGetAttribute", "cuMemRangeGetAttribute", "cuMemRangeGetAttributes",
        "cuMipmappedArrayGetLevel", "cuMipmappedArrayGetMemoryRequirements", "cuMipmappedArrayGetSparseProperties",
        "cuModuleEnumerateFunctions", "cuModuleGetFunctionCount", "cuModuleGetLoadingMode", "cuMulticastGetGranularity",
        "cuOccupancyAvailableDynamicSMemPerBlock", "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cuOccupancyMaxActiveClusters",
        "cuOccupancyMaxPotentialBlockSize", "cuOccupancyMaxPotentialBlockSizeWithFlags",
        "cuOccupancyMaxPotentialClusterSize", "cuPointerGetAttribute", "cuPointerGetAttributes", "cuStreamGetAttribute",
        "cuStreamGetCaptureInfo", "cuStreamGetCtx", "cuStreamGetDevResource", "cuStreamGetDevice", "cuStreamGetFlags",
        "cuStreamGetGreenCtx", "cuStreamGetId", "cuStreamGetPriority", "cuStreamIsCapturing",
        "cuSurfObjectGetResourceDesc", "cuTexObjectGetResourceDesc", "cuTexObjectGetResourceViewDesc",
        "cuTexObjectGetTextureDesc",
    ]),
    &of(Other).device(Device::Chosen).untraced().named(["cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"]),
    &of(Other).device(Device::Several).untraced().named(["cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"]),
    &of(Other).untraced().named([
        "cuCtxAttach", "cuCtxFromGreenCtx", "cuCtxResetPersistingL2Cache", "cuCtxSetCacheConfig", "cuCtxSetFlags",
        "cuCtxSetLimit", "cuCtxSetSharedMemConfig", "cuDevResourceGenerateDesc", "cuDevSmResourceSplit",
        "cuDevSmResourceSplitByCount", "cuDevicePrimaryCtxSetFlags", "cuDeviceSetGraphMemAttribute",
        "cuDeviceSetMemPool", "cuEventCreate", "cuFlushGPUDirectRDMAWrites", "cuFuncSetAttribute",
        "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig", "cuGreenCtxStreamCreate", "cuImportExternalSemaphore",
        "cuIpcOpenEventHandle", "cuKernelSetAttribute", "cuKernelSetCacheConfig", "cuMemAdvise",
        "cuMemExportToShareableHandle", "cuMemPoolExportPointer", "cuMemPoolExportToShareableHandle",
        "cuMemPoolSetAccess", "cuMemPoolSetAttribute", "cuMemRetainAllocationHandle", "cuMemSetMemPool",
        "cuMulticastAddDevice", "cuPointerSetAttribute", "cuStreamCopyAttributes", "cuStreamCreate",
        "cuStreamCreateWithPriority", "cuStreamSetAttribute", "cuStreamUpdateCaptureDependencies", "cuSurfObjectCreate",
        "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide", "cuTensorMapEncodeTiled", "cuTensorMapReplaceAddress",
        "cuTensorMapSetAllocationClass", "cuTexObjectCreate", "cuThreadExchangeStreamCaptureMode",
    ]),
    // Graphs are described; nothing of it is done before they are launched.
    &of(Other).untraced().named([
        "cuGraphAddBatchMemOpNode", "cuGraphAddChildGraphNode", "cuGraphAddDependencies", "cuGraphAddEmptyNode",
        "cuGraphAddEventRecordNode", "cuGraphAddEventWaitNode", "cuGraphAddExternalSemaphoresSignalNode",
        "cuGraphAddExternalSemaphoresWaitNode", "cuGraphAddHostNode", "cuGraphAddKernelNode", "cuGraphAddMemAllocNode",
        "cuGraphAddMemFreeNode", "cuGraphAddMemcpyNode", "cuGraphAddMemsetNode", "cuGraphAddNode",
        "cuGraphBatchMemOpNodeSetParams", "cuGraphClone", "cuGraphConditionalHandleCreate", "cuGraphCreate",
        "cuGraphDebugDotPrint", "cuGraphDestroyNode", "cuGraphEventRecordNodeSetEvent", "cuGraphEventWaitNodeSetEvent",
        "cuGraphExecBatchMemOpNodeSetParams", "cuGraphExecChildGraphNodeSetParams",
        "cuGraphExecEventRecordNodeSetEvent", "cuGraphExecEventWaitNodeSetEvent",
        "cuGraphExecExternalSemaphoresSignalNodeSetParams", "cuGraphExecExternalSemaphoresWaitNodeSetParams",
        "cuGraphExecHostNodeSetParams", "cuGraphExecKernelNodeSetParams", "cuGraphExecMemcpyNodeSetParams",
        "cuGraphExecMemsetNodeSetParams", "cuGraphExecNodeSetParams", "cuGraphExternalSemaphoresSignalNodeSetParams",
        "cuGraphExternalSemaphoresWaitNodeSetParams", "cuGraphHostNodeSetParams", "cuGraphKernelNodeCopyAttributes",
        "cuGraphKernelNodeSetAttribute", "cuGraphKernelNodeSetParams", "cuGraphMemcpyNodeSetParams",
        "cuGraphMemsetNodeSetParams", "cuGraphNodeSetEnabled", "cuGraphNodeSetParams", "cuGraphRemoveDependencies",
    ]),
];
