//! What a call does to the GPU, and what it tells about it.

use ingero_common::cuda_api::{Class, Function};
use ingero_common::record::Record;

use crate::gpu::outstanding::Known;
use crate::limits::{BLOCKING_COPY_NS, COPY_BYTES_PER_US, GPU_WAIT_NS, GPU_WAIT_UNWATCHED_NS};
use crate::process::class::Doing;
use crate::stats::parts::Parts;

/// `cudaErrorNotReady` and `CUDA_ERROR_NOT_READY` (driver_types.h, cuda.h).
const NOT_READY: i64 = 600;

/// What the thread that makes a call does in it; `cold`: it loads code on the way; `drained`: the GPU had nothing to do.
pub(crate) fn doing(record: &Record<'_>, function: Known, dur_ns: u64, cold: bool, drained: bool) -> Doing {
    let Some(function) = function else { return Doing::Other };
    match function.class {
        Class::Launch | Class::GraphLaunch if cold => Doing::ColdLaunch,
        Class::Copy if is_blocking_copy(record, function, dur_ns) && drained && is_upload(record, function) => {
            Doing::Upload
        }
        Class::Copy if is_blocking_copy(record, function, dur_ns) => Doing::Copy,
        Class::Sync => Doing::Wait,
        Class::Query if record.ret == Some(NOT_READY) => Doing::Poll,
        Class::Alloc | Class::Free | Class::Register => Doing::Memory,
        Class::Load | Class::Instantiate | Class::Init => Doing::Load,
        _ if function.enqueues() => Doing::Enqueue,
        _ => Doing::Other,
    }
}

/// Whether a copy blocks its caller: by its nature, or, from or to the host, since it took as long as copying does.
fn is_blocking_copy(record: &Record<'_>, function: &Function, dur_ns: u64) -> bool {
    let dir = record.dir.as_deref();
    function.blocks(dir) || dur_ns >= BLOCKING_COPY_NS && dir != Some("d2d") && dir != Some("p2p")
}

/// Whether a copy gives the GPU data without being meant to wait.
fn is_upload(record: &Record<'_>, function: &Function) -> bool {
    !function.blocks(record.dir.as_deref()) && record.dir.as_deref() == Some("h2d")
}

/// How much of a blocking copy that began with work outstanding was waiting for that work: what the copying itself does not
/// take. Nothing tells where its size is not known.
pub(crate) fn waited_before_copy_ns(record: &Record<'_>, dur_ns: u64) -> u64 {
    let copying_ns = record.bytes.map_or(0, |bytes| bytes.saturating_mul(1_000) / COPY_BYTES_PER_US);
    dur_ns.saturating_sub(copying_ns)
}

/// Whether a call tells that the GPU still had work when it began: a query that says so, a synchronise that waits.
pub(crate) fn shows_gpu_at_work(record: &Record<'_>, function: Known, dur_ns: u64) -> bool {
    match function.map(|function| function.class) {
        Some(Class::Query) => record.ret == Some(NOT_READY),
        Some(Class::Sync) if dur_ns >= GPU_WAIT_NS => {
            let parts = Parts::of_record(record, dur_ns);
            parts.asleep + parts.on_cpu >= GPU_WAIT_NS
                || parts.asleep + parts.on_cpu + parts.off_unknown + parts.unknown >= GPU_WAIT_UNWATCHED_NS
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MS, US};
    use ingero_common::cuda_api::find;
    use ingero_common::record::{Parsed, parse};

    /// Asks `about` a call; `more` is what else is in its record.
    fn ask<T>(op: &str, more: &str, about: impl FnOnce(&Record<'_>, Known) -> T) -> T {
        let src = if op.starts_with("nccl") { "nccl" } else { "cudart" };
        let line = format!(r#"{{"src":"{src}","op":"{op}"{more}}}"#);
        let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
        about(&record, find(src, op))
    }

    fn does(op: &str, more: &str, dur_ns: u64, cold: bool, drained: bool) -> Doing {
        ask(op, more, |record, function| doing(record, function, dur_ns, cold, drained))
    }

    #[test]
    fn what_a_call_does_goes_by_its_function_and_its_answer() {
        for (op, more, want) in [
            ("cudaLaunchKernel", "", Doing::Enqueue),
            ("cudaGraphLaunch", "", Doing::Enqueue),
            ("ncclAllReduce", "", Doing::Enqueue),
            ("cudaMemsetAsync", "", Doing::Enqueue),
            ("cudaDeviceSynchronize", "", Doing::Wait),
            ("cudaEventSynchronize", "", Doing::Wait),
            ("cudaStreamQuery", r#","ret":600"#, Doing::Poll),
            ("cudaStreamQuery", r#","ret":0"#, Doing::Other),
            ("cudaMalloc", "", Doing::Memory),
            ("cudaFree", "", Doing::Memory),
            ("cudaHostRegister", "", Doing::Memory),
            ("cudaLibraryLoadData", "", Doing::Load),
            ("cudaGraphInstantiate", "", Doing::Load),
            ("cudaEventRecord", "", Doing::Other),
            ("cudaStreamWaitEvent", "", Doing::Other),
            ("cudaWhatIsThis", "", Doing::Other),
        ] {
            assert_eq!(does(op, more, 5 * US, false, false), want, "{op}");
        }
        assert_eq!(does("cudaLaunchKernel", "", 5 * US, true, false), Doing::ColdLaunch);
        assert_eq!(does("cudaMemsetAsync", "", 5 * US, true, false), Doing::Enqueue, "it loads nothing");
    }

    #[test]
    fn a_copy_that_takes_as_long_as_copying_blocks() {
        let copies = |op: &str, dir: &str, dur_ns| does(op, &format!(r#","dir":"{dir}""#), dur_ns, false, false);
        for dir in ["h2d", "d2h"] {
            assert_eq!(copies("cudaMemcpyAsync", dir, 100 * US - 1), Doing::Enqueue, "{dir}");
            assert_eq!(copies("cudaMemcpyAsync", dir, 100 * US), Doing::Copy, "{dir}");
            assert_eq!(copies("cudaMemcpy", dir, 5 * US), Doing::Copy, "{dir}");
        }
        assert_eq!(copies("cudaMemcpyAsync", "d2d", 900 * US), Doing::Enqueue, "it waits for room in the queue");
        assert_eq!(copies("cudaMemcpy", "d2d", 5 * US), Doing::Enqueue, "it returns at once");
        // Data for an idle GPU, by a function that need not wait, is what the GPU waits for.
        let up = |op, drained| does(op, r#","dir":"h2d""#, 500 * US, false, drained);
        assert_eq!((up("cudaMemcpyAsync", true), up("cudaMemcpyAsync", false)), (Doing::Upload, Doing::Copy));
        assert_eq!((up("cudaMemcpy", true), up("cudaMemcpy", false)), (Doing::Copy, Doing::Copy));
    }

    #[test]
    fn what_a_blocking_copy_takes_beyond_the_copying_was_waiting() {
        let waited = |more, dur_ns| ask("cudaMemcpy", more, |record, _| waited_before_copy_ns(record, dur_ns));
        // 8 MB take 2 ms.
        assert_eq!((waited(r#","bytes":8000000"#, 5 * MS), waited(r#","bytes":8000000"#, 2 * MS)), (3 * MS, 0));
        assert_eq!(waited(r#","bytes":8000000"#, MS), 0);
        assert_eq!(waited("", 5 * MS), 5 * MS);
    }

    #[test]
    fn a_synchronise_that_waits_tells_of_work() {
        let tells =
            |op, more: &str, dur_ns| ask(op, more, |record, function| shows_gpu_at_work(record, function, dur_ns));
        let host = |sleep_ns: u64, preempted_ns: u64| {
            format!(
                r#","host":{{"off_ns":{0},"sleep_ns":{sleep_ns},"preempted_ns":{preempted_ns},"runq_ns":{preempted_ns},"watched":true}}"#,
                sleep_ns + preempted_ns
            )
        };
        let sync = "cudaStreamSynchronize";
        // Asleep or spinning for 200 us.
        assert!(tells(sync, &host(150 * US, 0), 200 * US) && !tells(sync, &host(150 * US, 0), 200 * US - 1));
        // Waiting for a CPU is not waiting for the GPU.
        assert!(tells(sync, &host(0, 800 * US), 1000 * US) && !tells(sync, &host(0, 801 * US), 1000 * US));
        // Where nobody looked, a millisecond.
        assert!(tells(sync, "", MS) && !tells(sync, "", MS - 1));
        assert!(tells("cudaEventQuery", r#","ret":600"#, 1) && !tells("cudaEventQuery", r#","ret":0"#, 900 * MS));
        assert!(!tells("cudaMalloc", "", 900 * MS) && !tells("cudaWhatIsThis", "", 900 * MS));
    }
}
