//! Whether the GPU can have had work left: the proof that it idled in a gap.
//!
//! The GPU is drained when everything that was enqueued has been waited for. A device or context
//! synchronise waits for all that was enqueued before it began; a stream synchronise for its stream.
//!
//! ```text
//!   launch(s7)  copy(s7)  streamSynchronize(s7)   -> drained: a gap from here on is proven
//!   launch(s7)  launch(s9)  streamSynchronize(s7) -> s9 may still run: not proven
//!   launch(?)   streamSynchronize(s7)             -> not proven; streamSynchronize(default) -> drained
//! ```
//!
//! *Default* is not one stream. Each thread has its own where the program is built so (the symbol ends in `_ptsz` or
//! `_ptds`) or asks for it (handle 0x2), and each device has its own. Which device a thread works on is in no record: the
//! argument of `cudaSetDevice` isn't traced. So once a process may work on more than one, waiting for a default stream
//! or for "the device" proves nothing any more; handles of other streams are unique in the process and still do:
//!
//! ```text
//!   thread A: launch_ptsz(0)   thread B: streamSynchronize_ptsz(0)                -> A's may still run: not proven
//!   setDevice  launch(0)  setDevice  launch(0)  deviceSynchronize                 -> the other device: not proven
//!   setDevice  setDevice  launch(0)  deviceSynchronize  launch(0) …               -> one device: drained
//! ```

use ingero_common::record::Record;

use crate::map::HashMap;
use crate::ops::Class;

/// Streams told apart; beyond, only waiting for the whole device proves anything.
const MAX_STREAMS: usize = 256;

/// `cudaStreamLegacy` and `cudaStreamPerThread`, which are the driver's `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`
/// (driver_types.h, cuda.h).
const LEGACY: &str = "0x1";
const PER_THREAD: &str = "0x2";

/// A stream as far as it can be told from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// The default stream of a device, or not known.
    Default,
    /// The default stream of a thread.
    OfThread(u32),
    /// A handle.
    Handle(Box<str>),
}

impl Stream {
    fn of(record: &Record<'_>) -> Self {
        let of_thread = || Self::OfThread(record.tid.unwrap_or_default());
        let per_thread = record.sym.as_deref().is_some_and(|sym| sym.ends_with("_ptsz") || sym.ends_with("_ptds"));
        match record.stream.as_deref() {
            Some(PER_THREAD) => of_thread(),
            None | Some("0x0") if per_thread => of_thread(),
            None | Some("0x0" | LEGACY) => Self::Default,
            Some(handle) => Self::Handle(handle.into()),
        }
    }
}

/// Whether a process works on one device, as far as its calls tell.
#[derive(Debug, Default)]
struct Devices {
    /// The thread that chose one.
    chosen_by: Option<u32>,
    has_enqueued: bool,
    has_context: bool,
    /// A second thread chose, or one chose after something had been enqueued: for another device, maybe. Or it made a
    /// second context, which is waited for by itself, or a call that is about several devices.
    many: bool,
}

impl Devices {
    fn add(&mut self, record: &Record<'_>, class: Class) {
        const CHOOSE: [&str; 3] = ["cudaSetDevice", "cuCtxSetCurrent", "cuCtxPushCurrent"];
        self.has_enqueued |= class.enqueues();
        if CHOOSE.contains(&&*record.op) {
            let tid = record.tid.unwrap_or_default();
            self.many |= self.has_enqueued || self.chosen_by.is_some_and(|by| by != tid);
            self.chosen_by = Some(tid);
        }
        if record.op.starts_with("cuCtxCreate") {
            self.many |= self.has_context;
            self.has_context = true;
        }
        self.many |= record.op.contains("Peer") || &*record.op == "ncclCommInitAll";
    }
}

/// What one process has enqueued and not waited for.
#[derive(Debug, Default)]
pub struct Drain {
    /// By stream, the end of the last enqueuing call.
    pending: HashMap<Stream, u64>,
    /// The same for everything that found no place above.
    overflow_ns: Option<u64>,
    waited: bool,
    devices: Devices,
}

impl Drain {
    /// Whether a synchronising call has returned and nothing is pending.
    pub fn is_drained(&self) -> bool {
        self.waited && self.pending.is_empty() && self.overflow_ns.is_none()
    }

    /// Whether something was enqueued and not waited for.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty() || self.overflow_ns.is_some()
    }

    /// Takes note of a call that has returned.
    pub fn add(&mut self, record: &Record<'_>, class: Class, start_ns: u64, end_ns: u64) {
        let stream = Stream::of(record);
        self.devices.add(record, class);
        match class {
            Class::Sync => self.wait(&record.op, &stream, start_ns, record.ret),
            // Returns when the data has arrived, and follows whatever its stream did before.
            Class::SyncCopy if record.dir.as_deref() == Some("d2h") => {
                self.wait("Stream", &stream, start_ns, record.ret);
            }
            class if class.enqueues() => self.enqueue(stream, end_ns),
            _ => {}
        }
    }

    /// Takes note of a call of which it isn't known when it returned, nor how.
    pub fn may_have_enqueued(&mut self, class: Class, at_ns: u64) {
        if class.enqueues() {
            self.overflow_ns = self.overflow_ns.max(Some(at_ns));
        }
    }

    fn enqueue(&mut self, stream: Stream, end_ns: u64) {
        if let Some(last_ns) = self.pending.get_mut(&stream) {
            *last_ns = (*last_ns).max(end_ns);
        } else if self.pending.len() < MAX_STREAMS {
            self.pending.insert(stream, end_ns);
        } else {
            self.overflow_ns = self.overflow_ns.max(Some(end_ns));
        }
    }

    fn wait(&mut self, op: &str, stream: &Stream, start_ns: u64, ret: Option<i64>) {
        if ret.is_some_and(|ret| ret != 0) {
            return;
        }
        let handle = matches!(stream, Stream::Handle(_)) && op.contains("Stream");
        if self.devices.many && !handle {
            return;
        }
        if op.contains("Device") || op.contains("Ctx") {
            self.pending.retain(|_, last_ns| *last_ns > start_ns);
            self.overflow_ns = self.overflow_ns.filter(|last_ns| *last_ns > start_ns);
            self.waited = true;
        } else if op.contains("Stream") {
            if self.pending.get(stream).is_some_and(|last_ns| *last_ns <= start_ns) {
                self.pending.remove(stream);
            }
            self.waited = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::record::{Parsed, parse};

    fn run(calls: &[&str]) -> bool {
        let mut drain = Drain::default();
        for (i, call) in calls.iter().enumerate() {
            let line = format!("{{\"src\":\"cudart\",{call}}}");
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            let start_ns = i as u64 * 10;
            drain.add(&record, Class::of(&record.src, &record.op), start_ns, start_ns + 5);
        }
        drain.is_drained()
    }

    const L7: &str = r#""op":"cudaLaunchKernel","stream":"0x7""#;
    const L9: &str = r#""op":"cudaLaunchKernel","stream":"0x9""#;
    const L: &str = r#""op":"cudaLaunchKernel""#;
    const S7: &str = r#""op":"cudaStreamSynchronize","stream":"0x7""#;
    const S0: &str = r#""op":"cudaStreamSynchronize","stream":"0x0""#;
    const D: &str = r#""op":"cudaDeviceSynchronize""#;
    const SET: &str = r#""op":"cudaSetDevice","tid":1"#;

    #[test]
    fn only_what_was_waited_for_is_done() {
        assert!(!run(&[]));
        assert!(!run(&[L7]));
        assert!(run(&[L7, S7]));
        assert!(!run(&[L7, S7, L7]));
        assert!(!run(&[L7, L9, S7]));
        assert!(run(&[L7, L9, D]));
        assert!(!run(&[L, S7]));
        assert!(run(&[L, S0]));
        assert!(!run(&[L7, r#""op":"cudaStreamSynchronize","stream":"0x7","ret":700"#]));
        assert!(!run(&[L7, r#""op":"cudaEventSynchronize""#]));
        assert!(run(&[L, r#""op":"cudaMemcpy","dir":"d2h""#]));
        assert!(!run(&[L, r#""op":"cudaMemcpy","dir":"h2d""#]));
    }

    #[test]
    fn each_thread_has_a_default_stream_of_its_own() {
        let launch =
            |tid| format!(r#""op":"cudaLaunchKernel","sym":"cudaLaunchKernel_ptsz","stream":"0x0","tid":{tid}"#);
        let sync = |tid| format!(r#""op":"cudaStreamSynchronize","stream":"0x2","tid":{tid}"#);
        let plain = r#""op":"cudaStreamSynchronize","stream":"0x0","tid":1"#;
        assert!(run(&[&launch(1), &sync(1)]));
        assert!(!run(&[&launch(1), &sync(2)]));
        assert!(!run(&[&launch(1), plain]));
        assert!(!run(&[&launch(1), &launch(2), &sync(2)]));
        assert!(run(&[&launch(1), &launch(2), D]));
        assert!(run(&[&launch(1), r#""op":"cudaMemcpy","sym":"cudaMemcpy_ptds","dir":"d2h","tid":1"#]));
    }

    #[test]
    fn waiting_for_one_of_several_devices_proves_nothing() {
        assert!(run(&[SET, SET, L, D]), "chosen at the start");
        assert!(!run(&[SET, L, SET, L, D]));
        assert!(!run(&[SET, L, SET, L, S0]));
        assert!(!run(&[L, r#""op":"cuCtxPushCurrent","tid":1"#, D]));
        assert!(!run(&[SET, r#""op":"cudaSetDevice","tid":2"#, L, D]), "two threads choose");
        assert!(run(&[SET, L7, SET, S7]), "a handle is of one device");
        assert!(!run(&[SET, L7, SET, L, S7]));
    }

    #[test]
    fn a_wait_that_began_before_the_launch_does_not_cover_it() {
        let mut drain = Drain::default();
        let line = format!("{{\"src\":\"cudart\",{L7}}}");
        let Parsed::Record(launch) = parse(line.as_bytes()) else { panic!() };
        drain.add(&launch, Class::Launch, 50, 55);
        let line = format!("{{\"src\":\"cudart\",{S7}}}");
        let Parsed::Record(sync) = parse(line.as_bytes()) else { panic!() };
        drain.add(&sync, Class::Sync, 0, 100);
        assert!(!drain.is_drained());
        drain.add(&sync, Class::Sync, 110, 120);
        assert!(drain.is_drained());
    }
}
