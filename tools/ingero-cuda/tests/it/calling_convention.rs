//! The places that `symbols` computes, against what a compiler really does.
//!
//! `calls.c` calls functions with the prototypes of the CUDA and NCCL headers and with known values; all of them are one
//! piece of assembly that keeps the argument registers and the first stack words, as a probe at the entry would. The
//! decoder gets those words and has to give the values back.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use ingero_common::cuda_api::Dir;
use ingero_common::discover::LibraryKind;
use ingero_common::discover::insn::Arch;
use ingero_cuda::symbols::{Args, Decoded, lookup};

/// One call that `calls.c` made.
#[derive(Debug)]
struct Call {
    words: Vec<u64>,
    /// The structure that one argument points to, from its first byte.
    memory: Vec<u64>,
}

fn hex_words(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|word| u64::from_str_radix(word, 16).unwrap()).collect()
}

/// Compiles and runs `calls.c` at one optimisation level.
fn calls(dir: &Path, optimisation: &str) -> HashMap<String, Call> {
    let program = dir.join("calls");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/calls.c");
    let status = Command::new("gcc").args(["-Wall", "-Werror", optimisation, source, "-o"]).arg(&program).status();
    assert!(status.expect("gcc is needed for this test").success());
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .map(|line| {
            let mut parts = line.split('|');
            let name = parts.next().unwrap().trim().to_owned();
            let words = hex_words(parts.next().unwrap());
            (name, Call { words, memory: hex_words(parts.next().unwrap()) })
        })
        .collect()
}

/// Decodes a call from what the kernel side would have kept of it.
fn decode(name: &str, call: &Call) -> Decoded {
    let kind = match name {
        _ if name.starts_with("nccl") => LibraryKind::Nccl,
        _ if name.starts_with("cuda") => LibraryKind::Cudart,
        _ => LibraryKind::Cuda,
    };
    let (_, decoder) = lookup(kind, name, Arch::native().unwrap()).unwrap();
    let spec = decoder.spec();
    let in_from = usize::from(spec.in_offset) / 8;
    let memory = call.memory.get(in_from..in_from + usize::from(spec.in_words)).unwrap_or_default();
    let words = &call.words[..usize::from(spec.words)];
    let out = (spec.out_bytes > 0).then(|| {
        assert_eq!(call.words[usize::from(spec.out_word)], 0x0117, "{name}: the out-pointer");
        0x7f00_0000
    });
    decoder.decode(&Args { words, memory, out })
}

const EVENT: Option<u64> = Some(0xe7e7);
const STREAM: Option<u64> = Some(0x57ea);
const FUNC: Option<u64> = Some(0xf00d_f00d_f00d);
const PTR: Option<u64> = Some(0xdead_beef_0000);
const OUT: Option<u64> = Some(0x7f00_0000);

/// What `calls.c` passed, by name.
fn expected() -> Vec<(&'static str, Decoded)> {
    let none = Decoded::default();
    let stream = Decoded { stream: STREAM, ..none };
    let launch =
        Decoded { func: FUNC, grid: Some([11, 12, 13]), block: Some([21, 22, 23]), shmem: Some(4096), ..stream };
    let copy = |bytes, dir| Decoded { bytes: Some(bytes), dir: Some(dir), ..none };
    let copy_async = |bytes, dir| Decoded { bytes: Some(bytes), dir: Some(dir), ..stream };
    let nccl = |name, unit: u64| Decoded { bytes: Some(1000 * unit), count: Some(1000), dtype: Some(name), ..stream };
    let on_x86 = cfg!(target_arch = "x86_64");
    vec![
        ("cudaLaunchKernel", launch),
        ("cudaLaunchKernel_ptsz", launch),
        ("cudaLaunchKernelExC", launch),
        ("cuLaunchKernel", launch),
        ("cuLaunchKernelEx", launch),
        ("cudaLaunchHostFunc", Decoded { func: FUNC, ..stream }),
        ("cudaGraphLaunch", stream),
        ("cudaMemcpy", copy(1 << 40, Dir::H2d)),
        ("cudaMemcpyAsync", copy_async(1 << 40, Dir::D2h)),
        ("cudaMemcpyPeerAsync", copy_async(1 << 40, Dir::P2p)),
        ("cudaMemcpyToSymbolAsync", copy_async(1 << 40, Dir::H2d)),
        ("cudaMemcpyToArrayAsync", copy_async(1 << 40, Dir::H2d)),
        ("cudaMemcpyArrayToArray", copy(1 << 40, Dir::D2d)),
        ("cudaMemcpy2D", copy(300 * 7, Dir::D2h)),
        ("cudaMemcpy2DAsync", copy_async(300 * 7, Dir::D2h)),
        ("cudaMemcpy2DFromArrayAsync", copy_async(300 * 7, Dir::D2h)),
        ("cudaMemcpy2DArrayToArray", copy(300 * 7, Dir::D2d)),
        ("cudaMemcpy3DAsync", copy_async(300 * 7 * 5, Dir::H2d)),
        ("cuMemcpyHtoD_v2", copy(1 << 40, Dir::H2d)),
        ("cuMemcpyDtoHAsync_v2_ptsz", copy_async(1 << 40, Dir::D2h)),
        ("cuMemcpyAtoHAsync_v2", copy_async(1 << 40, Dir::D2h)),
        ("cuMemcpy2DAsync_v2", copy_async(300 * 7, Dir::H2d)),
        ("cuMemcpy3D_v2", Decoded { bytes: Some(300 * 7 * 5), ..none }),
        ("cuMemcpyBatchAsync", Decoded { count: Some(9), ..stream }),
        ("cuMemcpyBatchAsync_v2", Decoded { count: Some(9), ..stream }),
        ("cudaMemset2DAsync", Decoded { bytes: Some(300 * 7), ptr: PTR, ..stream }),
        // The extent ends behind the last word that is kept on x86-64, and is passed by reference on Arm.
        ("cudaMemset3DAsync", stream),
        ("cuMemsetD2D32Async", Decoded { bytes: Some(300 * 4 * 7), ptr: PTR, ..stream }),
        ("cuMemPrefetchAsync_v2", Decoded { bytes: Some(1 << 40), ptr: PTR, ..stream }),
        ("cudaMallocPitch", Decoded { bytes: Some(300 * 7), ptr: OUT, ..none }),
        ("cudaMalloc3D", Decoded { bytes: on_x86.then_some(300 * 7 * 5), ptr: OUT, ..none }),
        ("cudaMallocFromPoolAsync", Decoded { bytes: Some(1 << 40), ptr: OUT, ..stream }),
        ("cudaFreeAsync", Decoded { ptr: PTR, ..stream }),
        ("cudaEventRecord", Decoded { event: EVENT, ..stream }),
        ("cudaStreamWaitEvent", Decoded { event: EVENT, ..stream }),
        ("cuEventQuery", Decoded { event: EVENT, ..none }),
        ("cudaSetDevice", Decoded { device: Some(3), ..none }),
        ("ncclAllReduce", nccl("float16", 2)),
        ("ncclReduce", nccl("float64", 8)),
        ("ncclAllGather", nccl("bfloat16", 2)),
        ("ncclBroadcast", nccl("int32", 4)),
        ("ncclSend", nccl("uint8", 1)),
        ("ncclCommInitRank", Decoded { rank: Some(5), nranks: Some(8), ..none }),
        ("ncclCommInitRankConfig", Decoded { rank: Some(5), nranks: Some(8), ..none }),
        ("ncclPutSignal", nccl("int64", 8)),
    ]
}

#[test]
fn what_the_compiler_passes_is_what_the_decoder_reads() {
    let dir = tempfile::tempdir().unwrap();
    for optimisation in ["-O0", "-O2"] {
        let calls = calls(dir.path(), optimisation);
        let expected = expected();
        assert_eq!(calls.len(), expected.len(), "{:?}", calls.keys());
        for (name, expected) in expected {
            let call = calls.get(name).unwrap_or_else(|| panic!("calls.c does not call {name}"));
            assert_eq!(decode(name, call), expected, "{name} at {optimisation}: {call:x?}");
        }
    }
}
