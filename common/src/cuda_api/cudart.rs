//! The runtime API (`cuda_runtime_api.h`).

use super::Class::{self, *};
use super::{Device, Dir, Drain, Function};
use crate::discover::LibraryKind;

const fn of(class: Class) -> Function {
    Function::group(LibraryKind::Cudart, class)
}

#[rustfmt::skip]
pub(super) static FUNCTIONS: &[&[Function]] = &[
    // Work.
    &of(Launch).named(["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaLaunchCooperativeKernel"]),
    &of(Launch).device(Device::Several).named(["cudaLaunchCooperativeKernelMultiDevice"]),
    &of(GraphLaunch).named(["cudaGraphLaunch"]),
    &of(HostFunc).named(["cudaLaunchHostFunc", "cudaStreamAddCallback"]),
    &of(Copy).drain(Drain::Copy).named([
        "cudaMemcpy", "cudaMemcpyToSymbol", "cudaMemcpyFromSymbol", "cudaMemcpyToArray", "cudaMemcpyFromArray",
        "cudaMemcpy2D", "cudaMemcpy2DToArray", "cudaMemcpy2DFromArray", "cudaMemcpy3D",
    ]),
    // Arrays are device memory.
    &of(Copy).named(["cudaMemcpyArrayToArray", "cudaMemcpy2DArrayToArray"]),
    &of(Copy).named([
        "cudaMemcpyAsync", "cudaMemcpyWithAttributesAsync", "cudaMemcpyToSymbolAsync", "cudaMemcpyFromSymbolAsync",
        "cudaMemcpyToArrayAsync", "cudaMemcpyFromArrayAsync", "cudaMemcpy2DAsync", "cudaMemcpy2DToArrayAsync",
        "cudaMemcpy2DFromArrayAsync", "cudaMemcpy3DAsync", "cudaMemcpy3DWithAttributesAsync", "cudaMemcpyBatchAsync",
        "cudaMemcpy3DBatchAsync",
    ]),
    // The forms without `Async` are "asynchronous with respect to the host", too.
    &of(Copy).dir(Dir::P2p).device(Device::Several).named([
        "cudaMemcpyPeer", "cudaMemcpy3DPeer", "cudaMemcpyPeerAsync", "cudaMemcpy3DPeerAsync",
    ]),
    &of(Set).named([
        "cudaMemset", "cudaMemset2D", "cudaMemset3D", "cudaMemsetAsync", "cudaMemset2DAsync", "cudaMemset3DAsync",
    ]),
    &of(Prefetch).named([
        "cudaGraphUpload", "cudaMemPrefetchAsync", "cudaMemPrefetchBatchAsync", "cudaMemDiscardAndPrefetchBatchAsync",
    ]),
    &of(Prefetch).untraced().named(["cudaMemDiscardBatchAsync", "cudaStreamAttachMemAsync"]),

    // Memory.
    &of(Alloc).named([
        "cudaMalloc", "cudaMallocManaged", "cudaMallocHost", "cudaHostAlloc", "cudaMallocPitch", "cudaMalloc3D",
        "cudaMallocArray", "cudaMalloc3DArray", "cudaMallocMipmappedArray", "cudaMemPoolCreate",
    ]),
    &of(Alloc).stream_ordered().named(["cudaMallocAsync", "cudaMallocFromPoolAsync"]),
    &of(Alloc).untraced().named([
        "cudaIpcOpenMemHandle", "cudaImportExternalMemory", "cudaExternalMemoryGetMappedBuffer",
        "cudaExternalMemoryGetMappedMipmappedArray", "cudaMemPoolImportFromShareableHandle", "cudaMemPoolImportPointer",
    ]),
    // The manual says so of `cudaFree`; what the others give up may be in use just as well.
    &of(Free).may_synchronize().named(["cudaFree", "cudaFreeHost", "cudaFreeArray", "cudaFreeMipmappedArray"]),
    &of(Free).may_synchronize().untraced().named(["cudaIpcCloseMemHandle", "cudaDestroyExternalMemory"]),
    &of(Free).stream_ordered().named(["cudaFreeAsync"]),
    // A pool that is in use is given up later; trimming it leaves out what is in use.
    &of(Free).named(["cudaMemPoolDestroy", "cudaMemPoolTrimTo"]),
    &of(Free).untraced().named(["cudaDeviceGraphMemTrim"]),
    &of(Register).named(["cudaHostRegister"]),
    &of(Register).may_synchronize().named(["cudaHostUnregister"]),

    // Waiting, asking, marking.
    &of(Sync).drain(Drain::Context).named(["cudaDeviceSynchronize", "cudaThreadSynchronize"]),
    &of(Sync).drain(Drain::Stream).named(["cudaStreamSynchronize"]),
    // Events are in no record; an execution context may be a part of the device.
    &of(Sync).named(["cudaEventSynchronize", "cudaExecutionCtxSynchronize"]),
    &of(Query).named(["cudaStreamQuery", "cudaEventQuery"]),
    &of(StreamWait).named(["cudaStreamWaitEvent", "cudaWaitExternalSemaphoresAsync"]),
    &of(StreamWait).untraced().named(["cudaExecutionCtxWaitEvent"]),
    &of(Record).named(["cudaEventRecord", "cudaEventRecordWithFlags"]),
    &of(Record).untraced().named(["cudaSignalExternalSemaphoresAsync", "cudaExecutionCtxRecordEvent"]),

    // Graphs, code, devices.
    &of(Capture).named([
        "cudaStreamBeginCapture", "cudaStreamBeginCaptureToGraph", "cudaStreamBeginRecaptureToGraph",
        "cudaStreamEndCapture",
    ]),
    &of(Instantiate).named([
        "cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cudaGraphInstantiateWithParams",
        "cudaGraphExecUpdate",
    ]),
    &of(Load).named(["cudaLibraryLoadData", "cudaLibraryLoadFromFile"]),
    // What is looked up may be loaded then.
    &of(Load).untraced().named([
        "cudaGetFuncBySymbol", "cudaGetSymbolAddress", "cudaGetSymbolSize", "cudaLibraryGetGlobal",
        "cudaLibraryGetManaged", "cudaLibraryGetUnifiedFunction",
    ]),
    &of(Init).named(["cudaInitDevice"]),
    // Since CUDA 12 it makes the context, too.
    &of(Init).device(Device::Chosen).named(["cudaSetDevice"]),
    &of(Init).untraced().named(["cudaGreenCtxCreate"]),
    &of(Unload).named(["cudaLibraryUnload", "cudaDeviceReset"]),
    &of(Unload).untraced().named(["cudaThreadExit", "cudaExecutionCtxDestroy"]),
    // They return at once where the GPU still uses what they give up.
    &of(Destroy).untraced().named([
        "cudaDestroyExternalSemaphore", "cudaDestroySurfaceObject", "cudaDestroyTextureObject", "cudaEventDestroy",
        "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaStreamDestroy",
    ]),

    // Host work.
    &of(Get).untraced().named([
        "cudaArrayGetInfo", "cudaArrayGetMemoryRequirements", "cudaArrayGetPlane", "cudaArrayGetSparseProperties",
        "cudaChooseDevice", "cudaCreateChannelDesc", "cudaDeviceCanAccessPeer", "cudaDeviceGetAttribute",
        "cudaDeviceGetByPCIBusId", "cudaDeviceGetCacheConfig", "cudaDeviceGetDefaultMemPool",
        "cudaDeviceGetDevResource", "cudaDeviceGetGraphMemAttribute", "cudaDeviceGetHostAtomicCapabilities",
        "cudaDeviceGetLimit", "cudaDeviceGetMemPool", "cudaDeviceGetP2PAtomicCapabilities", "cudaDeviceGetP2PAttribute",
        "cudaDeviceGetPCIBusId", "cudaDeviceGetSharedMemConfig", "cudaDeviceGetStreamPriorityRange",
        "cudaDeviceGetTexture1DLinearMaxWidth", "cudaDriverGetVersion", "cudaEventElapsedTime",
        "cudaExecutionCtxGetDevResource", "cudaExecutionCtxGetDevice", "cudaExecutionCtxGetId", "cudaFuncGetAttributes",
        "cudaFuncGetName", "cudaFuncGetParamCount", "cudaFuncGetParamInfo", "cudaGetChannelDesc", "cudaGetDevice",
        "cudaGetDeviceCount", "cudaGetDeviceFlags", "cudaGetDeviceProperties", "cudaGetDriverEntryPoint",
        "cudaGetDriverEntryPointByVersion", "cudaGetErrorName", "cudaGetErrorString", "cudaGetKernel",
        "cudaGetLastError", "cudaGetMipmappedArrayLevel", "cudaGetSurfaceObjectResourceDesc",
        "cudaGetTextureObjectResourceDesc", "cudaGetTextureObjectResourceViewDesc", "cudaGetTextureObjectTextureDesc",
        "cudaGraphChildGraphNodeGetGraph", "cudaGraphEventRecordNodeGetEvent", "cudaGraphEventWaitNodeGetEvent",
        "cudaGraphExecGetFlags", "cudaGraphExecGetId", "cudaGraphExternalSemaphoresSignalNodeGetParams",
        "cudaGraphExternalSemaphoresWaitNodeGetParams", "cudaGraphGetEdges", "cudaGraphGetId", "cudaGraphGetNodes",
        "cudaGraphGetRootNodes", "cudaGraphHostNodeGetParams", "cudaGraphKernelNodeGetAttribute",
        "cudaGraphKernelNodeGetParams", "cudaGraphMemAllocNodeGetParams", "cudaGraphMemFreeNodeGetParams",
        "cudaGraphMemcpyNodeGetParams", "cudaGraphMemsetNodeGetParams", "cudaGraphNodeFindInClone",
        "cudaGraphNodeGetContainingGraph", "cudaGraphNodeGetDependencies", "cudaGraphNodeGetDependentNodes",
        "cudaGraphNodeGetEnabled", "cudaGraphNodeGetLocalId", "cudaGraphNodeGetParams", "cudaGraphNodeGetToolsId",
        "cudaGraphNodeGetType", "cudaHostGetDevicePointer", "cudaHostGetFlags", "cudaIpcGetEventHandle",
        "cudaIpcGetMemHandle", "cudaLibraryEnumerateKernels", "cudaLibraryGetKernel", "cudaLibraryGetKernelCount",
        "cudaMemGetDefaultMemPool", "cudaMemGetInfo", "cudaMemGetLocationInfo", "cudaMemGetMemPool",
        "cudaMemPoolGetAccess", "cudaMemPoolGetAttribute", "cudaMemRangeGetAttribute", "cudaMemRangeGetAttributes",
        "cudaMipmappedArrayGetMemoryRequirements", "cudaMipmappedArrayGetSparseProperties",
        "cudaOccupancyAvailableDynamicSMemPerBlock", "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "cudaOccupancyMaxActiveClusters",
        "cudaOccupancyMaxPotentialClusterSize", "cudaPeekAtLastError", "cudaPointerGetAttributes",
        "cudaRuntimeGetVersion", "cudaStreamGetAttribute", "cudaStreamGetCaptureInfo", "cudaStreamGetDevResource",
        "cudaStreamGetDevice", "cudaStreamGetFlags", "cudaStreamGetId", "cudaStreamGetPriority",
        "cudaStreamIsCapturing",
    ]),
    &of(Other).device(Device::Several).untraced().named(["cudaDeviceEnablePeerAccess", "cudaDeviceDisablePeerAccess"]),
    &of(Other).untraced().named([
        "cudaCreateSurfaceObject", "cudaCreateTextureObject", "cudaCtxResetPersistingL2Cache",
        "cudaDevResourceGenerateDesc", "cudaDevSmResourceSplit", "cudaDevSmResourceSplitByCount",
        "cudaDeviceFlushGPUDirectRDMAWrites", "cudaDeviceGetExecutionCtx", "cudaDeviceSetCacheConfig",
        "cudaDeviceSetGraphMemAttribute", "cudaDeviceSetLimit", "cudaDeviceSetMemPool", "cudaDeviceSetSharedMemConfig",
        "cudaEventCreate", "cudaEventCreateWithFlags", "cudaExecutionCtxStreamCreate", "cudaFuncSetAttribute",
        "cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig", "cudaImportExternalSemaphore", "cudaIpcOpenEventHandle",
        "cudaKernelSetAttributeForDevice", "cudaMemAdvise", "cudaMemPoolExportPointer",
        "cudaMemPoolExportToShareableHandle", "cudaMemPoolSetAccess", "cudaMemPoolSetAttribute", "cudaMemSetMemPool",
        "cudaProfilerStart", "cudaProfilerStop", "cudaSetDeviceFlags", "cudaSetValidDevices",
        "cudaStreamCopyAttributes", "cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority",
        "cudaStreamSetAttribute", "cudaStreamUpdateCaptureDependencies", "cudaThreadExchangeStreamCaptureMode",
    ]),
    // Graphs are described; nothing of it is done before they are launched.
    &of(Other).untraced().named([
        "cudaGraphAddChildGraphNode", "cudaGraphAddDependencies", "cudaGraphAddEmptyNode",
        "cudaGraphAddEventRecordNode", "cudaGraphAddEventWaitNode", "cudaGraphAddExternalSemaphoresSignalNode",
        "cudaGraphAddExternalSemaphoresWaitNode", "cudaGraphAddHostNode", "cudaGraphAddKernelNode",
        "cudaGraphAddMemAllocNode", "cudaGraphAddMemFreeNode", "cudaGraphAddMemcpyNode", "cudaGraphAddMemcpyNode1D",
        "cudaGraphAddMemcpyNodeFromSymbol", "cudaGraphAddMemcpyNodeToSymbol", "cudaGraphAddMemsetNode",
        "cudaGraphAddNode", "cudaGraphClone", "cudaGraphConditionalHandleCreate", "cudaGraphCreate",
        "cudaGraphDebugDotPrint", "cudaGraphDestroyNode", "cudaGraphEventRecordNodeSetEvent",
        "cudaGraphEventWaitNodeSetEvent", "cudaGraphExecChildGraphNodeSetParams",
        "cudaGraphExecEventRecordNodeSetEvent", "cudaGraphExecEventWaitNodeSetEvent",
        "cudaGraphExecExternalSemaphoresSignalNodeSetParams", "cudaGraphExecExternalSemaphoresWaitNodeSetParams",
        "cudaGraphExecHostNodeSetParams", "cudaGraphExecKernelNodeSetParams", "cudaGraphExecMemcpyNodeSetParams",
        "cudaGraphExecMemcpyNodeSetParams1D", "cudaGraphExecMemcpyNodeSetParamsFromSymbol",
        "cudaGraphExecMemcpyNodeSetParamsToSymbol", "cudaGraphExecMemsetNodeSetParams", "cudaGraphExecNodeSetParams",
        "cudaGraphExternalSemaphoresSignalNodeSetParams", "cudaGraphExternalSemaphoresWaitNodeSetParams",
        "cudaGraphHostNodeSetParams", "cudaGraphKernelNodeCopyAttributes", "cudaGraphKernelNodeSetAttribute",
        "cudaGraphKernelNodeSetParams", "cudaGraphMemcpyNodeSetParams", "cudaGraphMemcpyNodeSetParams1D",
        "cudaGraphMemcpyNodeSetParamsFromSymbol", "cudaGraphMemcpyNodeSetParamsToSymbol",
        "cudaGraphMemsetNodeSetParams", "cudaGraphNodeSetEnabled", "cudaGraphNodeSetParams",
        "cudaGraphRemoveDependencies",
    ]),
];
