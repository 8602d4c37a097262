//! What a call does to the GPU, and what it tells about it.

use ingero_common::cuda_api::{Class, Function};
use ingero_common::record::Record;

use crate::gpu::outstanding::Known;
use crate::limits::{BLOCKING_COPY_NS, COPY_BYTES_PER_US, GPU_WAIT_NS, GPU_WAIT_UNWATCHED_NS};
use crate::process::class::Doing;
use crate::stats::calls::Parts;

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
        Class::Query if record.ret == Some(NOT_READY) => Doing::Wait,
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
