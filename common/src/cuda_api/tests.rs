use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Class::*;
use super::*;
use crate::record::{Parsed, parse, src};

/// A function by its name alone.
fn get(name: &str) -> &'static Function {
    functions().find(|function| function.name == name).unwrap_or_else(|| panic!("{name} is missing"))
}

fn names(which: impl Fn(&Function) -> bool) -> BTreeSet<&'static str> {
    functions().filter(|function| which(function)).map(|function| function.name).collect()
}

fn set<const N: usize>(names: [&'static str; N]) -> BTreeSet<&'static str> {
    BTreeSet::from(names)
}

#[test]
fn a_name_is_there_once_and_belongs_to_its_library() {
    let mut seen = BTreeSet::new();
    for function in functions() {
        let name = function.name;
        assert!(seen.insert(name), "{name} is there twice");
        let rest = match function.layer {
            LibraryKind::Cudart => name.strip_prefix("cuda"),
            LibraryKind::Cuda => name.strip_prefix("cu"),
            LibraryKind::Nccl => name.strip_prefix("nccl"),
        };
        assert!(rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase())), "{name}");
        assert!(!name.contains('_'), "{name} has a suffix");
        assert!(groups(function.layer).iter().any(|group| group.contains(function)), "{name} is in another's table");
    }
}

#[test]
fn a_function_is_found_by_source_and_name() {
    for function in functions() {
        for source in [src::CUDART, src::CUDA, src::NCCL, src::SCHED, ""] {
            let expected = (source == function.layer.src()).then_some(function);
            assert_eq!(find(source, function.name), expected, "{source} {}", function.name);
        }
        let traced_name = traced(function.layer, function.name);
        assert_eq!(traced_name, function.traced.then_some(function), "{}", function.name);
    }
    for (source, op) in
        [("cudart", "cudaNoSuchFunction"), ("cudart", "cudaMemcpy_ptds"), ("cuda", "cuInit_v2"), ("cuda", "")]
    {
        assert_eq!(find(source, op), None, "{op}");
    }
    assert_eq!(traced(LibraryKind::Cuda, "cudaMalloc"), None);
    assert_eq!(traced(LibraryKind::Cudart, "cudaMallo"), None);
}

/// What a recording has is known, or its idle times could not be proven.
#[test]
fn every_call_of_the_recordings_is_known() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    let mut texts = Vec::new();
    for entry in fs::read_dir(tests.join("samples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "zst") {
            texts.push(zstd::decode_all(fs::File::open(&path).unwrap()).unwrap());
        }
    }
    for entry in fs::read_dir(tests.join("cases")).unwrap() {
        texts.extend(fs::read(entry.unwrap().path().join("cuda.ndjson")));
    }
    let mut calls = BTreeSet::new();
    for line in texts.iter().flat_map(|text| text.split(|byte| *byte == b'\n')) {
        let Parsed::Record(record) = parse(line) else { continue };
        if src::is_call(&record.src) && calls.insert((record.src.to_string(), record.op.to_string())) {
            assert!(find(&record.src, &record.op).is_some(), "{:?} {:?}", record.src, record.op);
        }
    }
    assert!(calls.len() > 20, "{calls:?}");
    // What profilers of the runtime API add.
    assert!(get("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags").only_asks());
}

#[test]
fn the_form_with_async_differs_in_nothing_but_waiting() {
    let mut pairs = 0;
    for function in functions().filter(|function| function.name.ends_with("Async")) {
        assert!(function.is_async() && !function.waits(), "{}", function.name);
        assert_eq!((function.drain, function.drains(Some("d2h"))), (Drain::No, Drain::No), "{}", function.name);
        let Some(other) = function.name.strip_suffix("Async").and_then(|name| find(function.layer.src(), name)) else {
            continue;
        };
        assert_eq!(
            (function.class, function.dir, function.device),
            (other.class, other.dir, other.device),
            "{}",
            function.name
        );
        pairs += 1;
    }
    assert!(pairs > 30, "{pairs}");
}

#[test]
fn launches_markers_and_collectives_return_before_they_are_done() {
    for name in
        ["cudaLaunchKernel", "cudaGraphLaunch", "cudaEventRecord", "cudaStreamWaitEvent", "ncclAllReduce", "ncclSend"]
    {
        assert!(get(name).is_async() && !get(name).waits(), "{name}");
    }
    for name in ["cudaMemcpy", "cudaMalloc", "cudaFree", "cudaStreamSynchronize", "cuModuleLoad", "cudaStreamDestroy"] {
        assert!(!get(name).is_async(), "{name}");
    }
}

#[test]
fn runtime_and_driver_agree_where_the_name_is_the_same() {
    let mut pairs = 0;
    for runtime in functions().filter(|function| function.layer == LibraryKind::Cudart) {
        let name = runtime.name.replacen("cuda", "cu", 1);
        let Some(driver) = find(src::CUDA, &name) else { continue };
        assert_eq!(
            (runtime.class, runtime.drain, runtime.dir, runtime.device, runtime.waits(), runtime.is_async()),
            (driver.class, driver.drain, driver.dir, driver.device, driver.waits(), driver.is_async()),
            "{}",
            runtime.name
        );
        pairs += 1;
    }
    assert!(pairs > 150, "{pairs}");
}

#[test]
fn work_is_what_the_gpu_is_busy_with() {
    for name in [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernelEx",
        "cuLaunchGrid",
        "cudaLaunchCooperativeKernelMultiDevice",
        "cudaGraphLaunch",
        "cudaGraphUpload",
        "cudaLaunchHostFunc",
        "cudaStreamAddCallback",
        "cudaMemcpy",
        "cudaMemcpyToSymbolAsync",
        "cuMemcpyDtoH",
        "cuMemcpyBatchAsync",
        "cuFabricCpyBatchAsync",
        "cuMemBatchDecompressAsync",
        "cudaMemset",
        "cuMemsetD2D32Async",
        "cudaMemPrefetchAsync",
        "cuMemDiscardAndPrefetchBatchAsync",
        "ncclAllReduce",
        "ncclSend",
        "ncclPutSignal",
        "ncclGroupEnd",
    ] {
        assert!(get(name).enqueues(), "{name}");
    }
    for name in [
        "cudaEventRecord",
        "cudaStreamWaitEvent",
        "cuStreamWaitValue32",
        "cuStreamWriteValue64",
        "cuStreamBatchMemOp",
        "cudaMallocAsync",
        "cudaFreeAsync",
        "cuMemMapArrayAsync",
        "cudaStreamBeginCapture",
        "cudaGraphInstantiate",
        // Describes a copy; "Memcpy" and "Kernel" in a name do not make it work.
        "cudaGraphAddMemcpyNode",
        "cuGraphExecKernelNodeSetParams",
        "cudaFuncSetAttribute",
        "cudaStreamSynchronize",
        "cudaEventQuery",
        "cuModuleLoadData",
        "cudaOccupancyMaxActiveClusters",
        "ncclCommInitRank",
        "ncclGroupStart",
        "ncclRedOpCreatePreMulSum",
    ] {
        assert!(!get(name).enqueues(), "{name}");
    }
}

#[test]
fn what_a_return_proves() {
    assert_eq!(
        names(|function| function.drain == Drain::Context),
        set(["cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize"])
    );
    assert_eq!(
        names(|function| function.drain == Drain::Stream),
        set(["cudaStreamSynchronize", "cuStreamSynchronize"])
    );
    for function in functions().filter(|function| matches!(function.drain, Drain::Stream | Drain::Context)) {
        assert_eq!((function.class, function.drains(None)), (Sync, function.drain));
    }
    // Waiting for an event, for a part of the device, or in a stream proves nothing about a stream.
    for name in ["cudaEventSynchronize", "cuEventSynchronize", "cudaExecutionCtxSynchronize"] {
        assert_eq!((get(name).class, get(name).drains(None)), (Sync, Drain::No), "{name}");
    }
}

#[test]
fn a_blocking_copy_proves_something_only_towards_the_host() {
    let either_way = set([
        "cudaMemcpy",
        "cudaMemcpyToSymbol",
        "cudaMemcpyFromSymbol",
        "cudaMemcpyToArray",
        "cudaMemcpyFromArray",
        "cudaMemcpy2D",
        "cudaMemcpy2DToArray",
        "cudaMemcpy2DFromArray",
        "cudaMemcpy3D",
        "cuMemcpy",
        "cuMemcpy2D",
        "cuMemcpy2DUnaligned",
        "cuMemcpy3D",
    ]);
    let by_name = |dir: Dir| names(|function| function.drain == Drain::Copy && function.dir == Some(dir));
    assert_eq!(names(|function| function.drain == Drain::Copy && function.dir.is_none()), either_way);
    assert_eq!(by_name(Dir::H2d), set(["cuMemcpyHtoD", "cuMemcpyHtoA"]));
    assert_eq!(by_name(Dir::D2h), set(["cuMemcpyDtoH", "cuMemcpyAtoH"]));
    assert!(by_name(Dir::D2d).is_empty() && by_name(Dir::P2p).is_empty());
    for name in either_way {
        let function = get(name);
        assert!(function.class == Copy && function.waits() && !function.is_async(), "{name}");
        for (dir, drains, blocks) in [
            (Some("d2h"), Drain::Stream, true),
            (Some("h2d"), Drain::No, true),
            (Some("h2h"), Drain::No, true),
            (Some("d2d"), Drain::No, false),
            (Some("p2p"), Drain::No, false),
            (Some("sideways"), Drain::No, true),
            (None, Drain::No, true),
        ] {
            assert_eq!((function.drains(dir), function.blocks(dir)), (drains, blocks), "{name} {dir:?}");
        }
    }
    // The name wins: it is the same for all calls.
    assert_eq!((get("cuMemcpyDtoH").drains(None), get("cuMemcpyDtoH").blocks(None)), (Drain::Stream, true));
    assert_eq!(get("cuMemcpyHtoD").drains(Some("d2h")), Drain::No);
    // Between device memory, and for fills, the host does not wait.
    for name in
        ["cuMemcpyDtoD", "cuMemcpyAtoA", "cudaMemcpyArrayToArray", "cudaMemcpyPeer", "cuMemcpy3DPeer", "cudaMemset"]
    {
        let function = get(name);
        assert!(function.is_async() && !function.waits() && !function.blocks(Some("d2h")), "{name}");
        assert_eq!(function.drains(Some("d2h")), Drain::No, "{name}");
    }
}

#[test]
fn directions_in_names() {
    let by_name = |dir: Dir| names(|function| function.dir == Some(dir));
    assert_eq!(by_name(Dir::H2d), set(["cuMemcpyHtoD", "cuMemcpyHtoA", "cuMemcpyHtoDAsync", "cuMemcpyHtoAAsync"]));
    assert_eq!(by_name(Dir::D2h), set(["cuMemcpyDtoH", "cuMemcpyAtoH", "cuMemcpyDtoHAsync", "cuMemcpyAtoHAsync"]));
    assert_eq!(
        by_name(Dir::D2d),
        set(["cuMemcpyDtoD", "cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyAtoA", "cuMemcpyDtoDAsync"])
    );
    assert_eq!(
        by_name(Dir::P2p),
        set([
            "cudaMemcpyPeer",
            "cudaMemcpy3DPeer",
            "cudaMemcpyPeerAsync",
            "cudaMemcpy3DPeerAsync",
            "cuMemcpyPeer",
            "cuMemcpy3DPeer",
            "cuMemcpyPeerAsync",
            "cuMemcpy3DPeerAsync",
        ])
    );
    assert!(by_name(Dir::H2h).is_empty());
    assert_eq!([Dir::H2d, Dir::D2h, Dir::D2d, Dir::H2h, Dir::P2p].map(Dir::name), ["h2d", "d2h", "d2d", "h2h", "p2p"]);
}

#[test]
fn giving_memory_back_may_wait_unless_nothing_can_be_using_it() {
    let memory = |function: &Function| matches!(function.class, Free | Register);
    assert_eq!(
        names(|function| memory(function) && !function.waits()),
        set([
            // In the order of a stream.
            "cudaFreeAsync",
            "cuMemFreeAsync",
            // Later, by themselves; or only what is not in use.
            "cudaMemPoolDestroy",
            "cuMemPoolDestroy",
            "cudaMemPoolTrimTo",
            "cuMemPoolTrimTo",
            "cudaDeviceGraphMemTrim",
            "cuDeviceGraphMemTrim",
            // No memory is behind them.
            "cuMemRelease",
            "cuMemAddressFree",
            // Pinning takes nothing away.
            "cudaHostRegister",
            "cuMemHostRegister",
            "ncclCommRegister",
            "ncclCommDeregister",
            "ncclCommWindowRegister",
            "ncclCommWindowDeregister",
        ])
    );
    for name in
        ["cudaFree", "cuMemFree", "cudaFreeHost", "cudaFreeArray", "cuMemUnmap", "cudaHostUnregister", "ncclMemFree"]
    {
        assert!(get(name).waits() && !get(name).enqueues() && get(name).drains(None) == Drain::No, "{name}");
    }
    assert!(!names(Function::waits).contains("cudaMalloc"));
    assert_eq!(
        names(|function| function.waits() && !memory(function) && !matches!(function.class, Sync | Copy)),
        set(["ncclCommFinalize", "ncclCommDestroy"])
    );
}

#[test]
fn who_only_asks_gives_no_work_and_waits_for_nothing() {
    for function in functions() {
        let (enqueues, waits) = (function.enqueues(), function.waits());
        assert!(!function.only_asks() || !enqueues && !waits && !function.is_async(), "{}", function.name);
        assert!(!waits || !function.is_async(), "{}", function.name);
        assert!(function.drains(Some("d2h")) == Drain::No || waits, "{}", function.name);
        assert!(!function.blocks(None) || waits, "{}", function.name);
    }
    let queries = set(["cudaStreamQuery", "cudaEventQuery", "cuStreamQuery", "cuEventQuery"]);
    assert_eq!(names(|function| function.class == Query), queries);
    for name in [
        "cudaEventQuery",
        "cudaGetDevice",
        "cudaGetDeviceCount",
        "cudaGetLastError",
        "cudaPeekAtLastError",
        "cudaFuncGetAttributes",
        "cudaStreamIsCapturing",
        "cudaEventElapsedTime",
        "cudaPointerGetAttributes",
        "cudaDeviceCanAccessPeer",
        "cuCtxGetCurrent",
        "cuGetProcAddress",
        "ncclGetVersion",
        "ncclCommGetAsyncError",
    ] {
        assert!(get(name).only_asks(), "{name}");
    }
    for name in [
        "cudaEventCreate",
        "cudaSetDevice",
        "cuCtxSetCurrent",
        "cudaStreamUpdateCaptureDependencies",
        // What is looked up may be loaded then, or mapped.
        "cuModuleGetFunction",
        "cudaGetSymbolAddress",
        "cudaExternalMemoryGetMappedBuffer",
        "ncclGetUniqueId",
    ] {
        assert!(!get(name).only_asks(), "{name}");
    }
}

#[test]
fn memory_code_start_and_end_are_told_apart() {
    for (class, names) in [
        (
            Alloc,
            &["cudaMalloc", "cudaMallocAsync", "cudaHostAlloc", "cuMemAllocManaged", "cuMemMap", "ncclMemAlloc"][..],
        ),
        (Alloc, &["cudaMemPoolCreate", "cuArrayCreate", "cuMemAddressReserve", "cudaIpcOpenMemHandle"]),
        (Free, &["cudaFree", "cudaFreeAsync", "cudaFreeHost", "cuMemUnmap", "cuMemRelease", "cudaMemPoolTrimTo"]),
        (Register, &["cudaHostRegister", "cudaHostUnregister", "cuMemHostRegister", "ncclCommRegister"]),
        (
            Load,
            &["cuModuleLoadData", "cuLibraryLoadData", "cudaLibraryLoadData", "cuLinkComplete", "cuKernelGetFunction"],
        ),
        (Instantiate, &["cudaGraphInstantiate", "cuGraphInstantiateWithFlags", "cudaGraphExecUpdate"]),
        (Init, &["cuInit", "cuCtxCreate", "cuGreenCtxCreate", "cuDevicePrimaryCtxRetain", "cudaSetDevice"]),
        (Init, &["cudaInitDevice", "ncclCommInitRank", "ncclCommInitRankScalable", "ncclCommInitAll", "ncclCommSplit"]),
        (
            Unload,
            &["cuModuleUnload", "cuLibraryUnload", "cudaLibraryUnload", "cuCtxDestroy", "cuDevicePrimaryCtxRelease"],
        ),
        (Unload, &["cuDevicePrimaryCtxReset", "cudaDeviceReset", "ncclCommDestroy", "ncclCommAbort"]),
        (Destroy, &["cudaStreamDestroy", "cuEventDestroy", "cudaGraphDestroy", "cuGraphExecDestroy"]),
        (Init, &["cudaGreenCtxCreate", "ncclGetUniqueId"]),
        (Unload, &["cudaThreadExit", "cuCtxDetach", "ncclCommRevoke"]),
        (Destroy, &["cudaDestroyTextureObject", "ncclRedOpDestroy"]),
        (StreamWait, &["cudaExecutionCtxWaitEvent", "cuCtxWaitEvent"]),
        (Other, &["cudaDeviceEnablePeerAccess", "cuCtxEnablePeerAccess"]),
        (StreamWait, &["cudaStreamWaitEvent", "cuStreamWaitValue64", "cudaWaitExternalSemaphoresAsync"]),
        (Record, &["cudaEventRecord", "cuEventRecordWithFlags", "cuStreamWriteValue32"]),
        (Capture, &["cudaStreamBeginCapture", "cuStreamEndCapture"]),
        (
            Other,
            &["cudaEventCreate", "cudaStreamCreate", "cudaGraphAddKernelNode", "cuCtxSetCurrent", "ncclGroupStart"],
        ),
    ] {
        for name in names {
            assert_eq!(get(name).class, class, "{name}");
        }
    }
}

#[test]
fn devices() {
    assert_eq!(
        names(|function| function.device == Device::Chosen),
        set(["cudaSetDevice", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"])
    );
    assert_eq!(names(|function| function.device == Device::NewContext), set(["cuCtxCreate"]));
    let several = names(|function| function.device == Device::Several && function.class != Copy);
    assert_eq!(
        several,
        set([
            "cudaLaunchCooperativeKernelMultiDevice",
            "cuLaunchCooperativeKernelMultiDevice",
            "cudaDeviceEnablePeerAccess",
            "cudaDeviceDisablePeerAccess",
            "cuCtxEnablePeerAccess",
            "cuCtxDisablePeerAccess",
            "ncclCommInitAll",
        ])
    );
    for function in functions().filter(|function| function.class == Copy) {
        assert_eq!(function.device == Device::Several, function.dir == Some(Dir::P2p), "{}", function.name);
    }
}
