//! From a record of the kernel side to a line of the stream, without an allocation for each.

use std::io::{self, Write};

use ingero_common::cuda_api::Dir;
use ingero_common::record::write::{Call, Hex, Text};
use ingero_common::stream::Stream;
use ingero_ebpf::cuda::record::{self, End, MAX_IN_WORDS, MAX_WORDS};

use crate::probes::SymbolInfo;
use crate::symbols::Args;

/// Writes one call.
///
/// # Errors
/// Those of the output.
pub fn write_call<W: Write>(stream: &mut Stream<W>, call: &record::Call<'_>, info: &SymbolInfo) -> io::Result<()> {
    let (mut words, mut memory) = ([0; MAX_WORDS], [0; MAX_IN_WORDS]);
    let args = Args { words: call.copy_words(&mut words), memory: call.copy_input(&mut memory), out: call.out };
    let decoded = info.decoder.decode(&args);
    let ts = stream.ts(call.start_ns);
    stream.event(&Call {
        src: info.function.layer.src(),
        op: info.function.name,
        mono_ns: call.start_ns,
        ts,
        dur_ns: (call.end != End::Unknown).then(|| call.end_ns.saturating_sub(call.start_ns)),
        pid: call.pid,
        tid: call.tid,
        ns_pid: call.ns_pid,
        comm: Text::until_nul(call.comm),
        ret: call.ret,
        depth: (call.end != End::Unknown).then_some(call.depth.into()),
        sym: info.sym.as_deref(),
        bytes: decoded.bytes,
        dir: decoded.dir.map(Dir::name),
        stream: decoded.stream.map(Hex),
        func: decoded.func.map(Hex),
        grid: decoded.grid,
        block: decoded.block,
        shmem: decoded.shmem,
        ptr: decoded.ptr.map(Hex),
        count: decoded.count,
        dtype: decoded.dtype,
        rank: decoded.rank,
        nranks: decoded.nranks,
        event: decoded.event.map(Hex),
        device: decoded.device,
        open: matches!(call.end, End::Open | End::Stuck),
        stuck: call.end == End::Stuck,
    })
}

#[cfg(test)]
mod tests {
    use ingero_common::discover::LibraryKind;
    use ingero_common::discover::insn::Arch;

    use super::*;
    use crate::symbols::lookup;

    /// The line that a call of `name` with these argument words and this memory gives.
    fn line(kind: LibraryKind, name: &str, words: &[u64], input: &[u64], out: Option<u64>) -> serde_json::Value {
        line_of(kind, name, words, input, |call| call.out = out)
    }

    fn line_of(
        kind: LibraryKind,
        name: &str,
        words: &[u64],
        input: &[u64],
        change: impl FnOnce(&mut record::Call<'_>),
    ) -> serde_json::Value {
        let (function, decoder) = lookup(kind, name, Arch::X86_64).unwrap();
        let info = SymbolInfo { function, sym: (name != function.name).then(|| name.into()), decoder };
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (words, input) = (bytes(words), bytes(input));
        let mut call = record::Call::from_parts(0, b"pt_main_thread\0\0", &words, &input);
        (call.start_ns, call.end_ns, call.pid, call.tid) = (1000, 1234, 7, 8);
        change(&mut call);
        let mut stream = Stream::new(Vec::new(), "cuda", "ingero-cuda", "0");
        write_call(&mut stream, &call, &info).unwrap();
        serde_json::from_slice(stream.out()).unwrap()
    }

    #[test]
    fn a_copy() {
        let line =
            line(LibraryKind::Cudart, "cudaMemcpyAsync_ptsz", &[1, 2, 4096, 0xdead_0000_0000_0001, 0x77], &[], None);
        for (key, value) in
            [("src", "cudart"), ("op", "cudaMemcpyAsync"), ("sym", "cudaMemcpyAsync_ptsz"), ("dir", "h2d")]
        {
            assert_eq!(line[key], value, "{line}");
        }
        assert_eq!((line["bytes"].as_u64(), line["dur_ns"].as_u64()), (Some(4096), Some(234)));
        assert_eq!((line["comm"].as_str(), line["stream"].as_str()), (Some("pt_main_thread"), Some("0x77")));
        assert_eq!((line["ret"].as_i64(), line["depth"].as_u64(), line.get("open")), (Some(0), Some(0), None));
    }

    #[test]
    fn ends_that_are_not_known() {
        let line = |end| {
            line_of(LibraryKind::Cudart, "cudaDeviceSynchronize", &[], &[], |call| (call.end, call.ret) = (end, None))
        };
        let keys =
            |line: &serde_json::Value| ["dur_ns", "depth", "ret", "open", "stuck"].map(|key| line.get(key).cloned());
        let (number, yes) = (|n: u64| Some(n.into()), || Some(true.into()));
        assert_eq!(keys(&line(End::Open)), [number(234), number(0), None, yes(), None]);
        assert_eq!(keys(&line(End::Stuck)), [number(234), number(0), None, yes(), yes()]);
        assert_eq!(keys(&line(End::Unknown)), [None, None, None, None, None]);
    }

    #[test]
    fn a_launch_whose_stack_could_not_be_read() {
        let words = [0x5000, 3 << 32 | 2, 1, 1 << 32 | 256, 1, 0];
        let line = line(LibraryKind::Cudart, "cudaLaunchKernel", &words, &[], None);
        assert_eq!(line["grid"], serde_json::json!([2, 3, 1]));
        assert_eq!(line["block"], serde_json::json!([256, 1, 1]));
        assert_eq!(line["func"], "0x5000");
        assert!(line.get("shmem").is_none() && line.get("stream").is_none(), "{line}");
    }

    #[test]
    fn an_allocation_shows_the_pointer_it_returned() {
        let line = line(LibraryKind::Cudart, "cudaMalloc", &[0x7ffe_0000, 1 << 20], &[], Some(0x7f00_0000_0000));
        assert_eq!((line["bytes"].as_u64(), line["ptr"].as_str()), (Some(1 << 20), Some("0x7f0000000000")));
        assert!(line.get("sym").is_none());
    }

    #[test]
    fn arguments_behind_a_pointer() {
        let config = [4 << 32 | 3, 32 << 32 | 5, 2 << 32 | 16, 1024, 0xabc];
        let line = line(LibraryKind::Cudart, "cudaLaunchKernelExC", &[0x7ffe_0000, 0x9000, 0], &config, None);
        assert_eq!(line["grid"], serde_json::json!([3, 4, 5]));
        assert_eq!(line["block"], serde_json::json!([32, 16, 2]));
        assert_eq!((line["shmem"].as_u64(), line["stream"].as_str()), (Some(1024), Some("0xabc")));
    }
}
