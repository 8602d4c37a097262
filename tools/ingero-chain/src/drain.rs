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

use std::collections::HashMap;

use ingero_common::record::Record;

use crate::ops::Class;

/// Streams told apart; beyond, only waiting for the whole device proves anything.
const MAX_STREAMS: usize = 256;

/// What one process has enqueued and not waited for.
#[derive(Debug, Default)]
pub struct Drain {
    /// By stream handle (empty: the default stream, or not known), the end of the last enqueuing call.
    pending: HashMap<Box<str>, u64>,
    /// The same for everything that found no place above.
    overflow_ns: Option<u64>,
    waited: bool,
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
        let stream = match record.stream.as_deref() {
            None | Some("0x0") => "",
            Some(stream) => stream,
        };
        match class {
            Class::Sync => self.wait(&record.op, stream, start_ns, record.ret),
            // Returns when the data has arrived, and follows whatever its stream did before.
            Class::SyncCopy if record.dir.as_deref() == Some("d2h") => {
                self.wait("Stream", stream, start_ns, record.ret);
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

    fn enqueue(&mut self, stream: &str, end_ns: u64) {
        if let Some(last_ns) = self.pending.get_mut(stream) {
            *last_ns = (*last_ns).max(end_ns);
        } else if self.pending.len() < MAX_STREAMS {
            self.pending.insert(stream.into(), end_ns);
        } else {
            self.overflow_ns = self.overflow_ns.max(Some(end_ns));
        }
    }

    fn wait(&mut self, op: &str, stream: &str, start_ns: u64, ret: Option<i64>) {
        if ret.is_some_and(|ret| ret != 0) {
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
