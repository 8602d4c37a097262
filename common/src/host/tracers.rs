//! Until when did the tracers look?
//!
//! Silence means something only while somebody listens. A tracer that stops in order closes what is going on
//! (`open`) and writes `end`; one that is killed just stops, and what it had not written yet is in no record:
//!
//! ```text
//!   ended    off |----------| end          the thread slept until the end, and the record says so
//!   killed   off |-------….                 no record: silence, but not running
//!                ^ last record of the stream ends before here
//! ```
//!
//! So a stream without `end` says nothing about what lies behind its last record, nor about a silence that
//! reaches there. Which stream an `end` belongs to is said by its `stream` key; where that is missing, there must
//! be as many ends as starts. Of several tracers of one kind, each process has its own end of the evidence (`watch.rs`).

use crate::record::Record;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The `filter` of ingero-join's `start` record.
#[derive(Deserialize)]
struct Filter {
    since: Option<IgnoredAny>,
}

/// Which tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// ingero-cuda.
    Cuda,
    /// ingero-sched.
    Sched,
}

/// One kind of tracer.
#[derive(Clone, Copy, Debug, Default)]
struct Tracer {
    started: usize,
    stopped: usize,
    last_stop_ns: u64,
    high_ns: u64,
}

/// Until when one kind of tracer is known to have looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// CLOCK_MONOTONIC nanoseconds; `u64::MAX` where it ended in order and didn't say when.
    pub ns: u64,
    /// It said that it stops, so what was going on then is on record.
    pub in_order: bool,
}

impl Until {
    /// How far it can be relied on that no more comes: everything, of a stream that has ended.
    pub fn known_ns(self) -> u64 {
        if self.in_order { u64::MAX } else { self.ns }
    }
}

/// What the stream says of its tracers.
#[derive(Clone, Debug, Default)]
pub struct Tracers {
    cuda: Tracer,
    sched: Tracer,
    starts: usize,
    /// When the last of the CUDA tracers started.
    cuda_from_ns: Option<u64>,
    /// The stream was cut: what lies before is left out.
    cut: bool,
    stops_ns: Vec<u64>,
    /// No more records will come.
    pub finished: bool,
}

impl Tracers {
    /// A `start` record.
    pub fn start(&mut self, record: &Record<'_>) {
        self.starts += 1;
        if record.tool.as_deref() == Some("ingero-cuda") {
            self.cuda_from_ns = self.cuda_from_ns.max(record.mono_ns);
        }
        let filter = record.filter.and_then(|raw| serde_json::from_str::<Filter>(raw.get()).ok());
        self.cut |= filter.is_some_and(|filter| filter.since.is_some());
        match record.tool.as_deref() {
            Some("ingero-sched") => self.sched.started += 1,
            Some("ingero-cuda") => self.cuda.started += 1,
            _ => {}
        }
    }

    /// How many tracers of one kind said that they started.
    pub fn started(&self, side: Side) -> usize {
        match side {
            Side::Cuda => self.cuda.started,
            Side::Sched => self.sched.started,
        }
    }

    /// Whether what began at `at_ns` is on record from its beginning on, as far as CUDA calls go.
    pub fn saw_beginning(&self, at_ns: u64) -> bool {
        !self.cut && self.cuda_from_ns.is_some_and(|from_ns| from_ns <= at_ns)
    }

    /// An `end` record at `at_ns`.
    pub fn stop(&mut self, record: &Record<'_>, at_ns: u64) {
        self.stops_ns.push(at_ns);
        let Some(tracer) = Self::side(record).map(|side| self.tracer_mut(side)) else { return };
        tracer.stopped += 1;
        tracer.last_stop_ns = tracer.last_stop_ns.max(at_ns);
    }

    /// A record of one of them that ends at `end_ns`.
    pub fn heard(&mut self, side: Side, end_ns: u64) {
        let tracer = self.tracer_mut(side);
        tracer.high_ns = tracer.high_ns.max(end_ns);
    }

    /// Until when the scheduler tracer looked.
    pub fn sched(&self) -> Until {
        match self.sched.end_ns() {
            Some(ns) => Until { ns, in_order: true },
            None if self.all_stopped() => Until { ns: u64::MAX, in_order: true },
            None => Until { ns: self.sched.high_ns, in_order: false },
        }
    }

    /// Until when CUDA calls would have been seen, the stream having been read to `now_ns`: where the CUDA tracers
    /// stopped; where streams don't say which tracer stops, the first stop after the last record; where one was
    /// killed, its last record.
    pub fn cuda_end_ns(&self, now_ns: u64) -> u64 {
        if let Some(ns) = self.cuda.end_ns() {
            return ns;
        }
        if self.finished && !self.all_stopped() && self.cuda.high_ns > 0 {
            return self.cuda.high_ns;
        }
        self.stops_ns.iter().copied().filter(|&stop| stop >= now_ns).min().unwrap_or(now_ns)
    }

    /// Which kind of tracer a record of the frame is of, where it says so.
    pub fn side(record: &Record<'_>) -> Option<Side> {
        match record.stream.as_deref() {
            Some("sched") => Some(Side::Sched),
            Some("cuda") => Some(Side::Cuda),
            _ => None,
        }
    }

    /// Whether the CUDA tracers have stopped in order, all of them.
    pub fn cuda_in_order(&self) -> bool {
        self.cuda.end_ns().is_some()
    }

    /// Whether of several tracers of one kind one was killed: until when that one looked isn't known.
    pub fn one_of_several_killed(&self, side: Side) -> bool {
        let tracer = match side {
            Side::Cuda => self.cuda,
            Side::Sched => self.sched,
        };
        self.finished && tracer.started > 1 && tracer.end_ns().is_none() && !self.all_stopped()
    }

    /// Whether one of them said that it stopped about then.
    pub fn stopped_within(&self, at_ns: u64, distance_ns: u64) -> bool {
        self.stops_ns.iter().any(|stop_ns| stop_ns.abs_diff(at_ns) <= distance_ns)
    }

    fn tracer_mut(&mut self, side: Side) -> &mut Tracer {
        match side {
            Side::Cuda => &mut self.cuda,
            Side::Sched => &mut self.sched,
        }
    }

    fn all_stopped(&self) -> bool {
        self.stops_ns.len() >= self.starts.max(1)
    }
}

impl Tracer {
    /// When the last of them stopped, once all have.
    fn end_ns(self) -> Option<u64> {
        (self.stopped > 0 && self.stopped >= self.started).then_some(self.last_stop_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parsed, parse};

    fn tracers(frames: &[(&str, u64)]) -> Tracers {
        let mut tracers = Tracers::default();
        for &(line, at_ns) in frames {
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            if &*record.op == "start" { tracers.start(&record) } else { tracers.stop(&record, at_ns) }
        }
        tracers.heard(Side::Cuda, 70);
        tracers.heard(Side::Sched, 60);
        tracers.finished = true;
        tracers
    }

    const JOIN: (&str, u64) = (r#"{"op":"start","tool":"ingero-join"}"#, 0);
    const CUDA: (&str, u64) = (r#"{"op":"start","tool":"ingero-cuda"}"#, 0);
    const SCHED: (&str, u64) = (r#"{"op":"start","tool":"ingero-sched"}"#, 0);
    const END: (&str, u64) = (r#"{"op":"end"}"#, 90);

    #[test]
    fn who_stopped_in_order_looked_until_then() {
        let ends = [(r#"{"op":"end","stream":"cuda"}"#, 80), (r#"{"op":"end","stream":"sched"}"#, 75), END];
        let all = tracers(&[&[JOIN, CUDA, SCHED][..], &ends].concat());
        assert_eq!((all.sched(), all.cuda_end_ns(70)), (Until { ns: 75, in_order: true }, 80));
        let nameless = tracers(&[JOIN, CUDA, SCHED, END, END, END]);
        assert_eq!((nameless.sched(), nameless.cuda_end_ns(70)), (Until { ns: u64::MAX, in_order: true }, 90));
    }

    #[test]
    fn who_was_killed_is_known_to_have_looked_until_its_last_record() {
        let sched = tracers(&[JOIN, CUDA, SCHED, (r#"{"op":"end","stream":"cuda"}"#, 80), END]);
        assert_eq!((sched.sched(), sched.cuda_end_ns(70)), (Until { ns: 60, in_order: false }, 80));
        let cuda = tracers(&[JOIN, CUDA, SCHED, (r#"{"op":"end","stream":"sched"}"#, 75), END]);
        assert_eq!((cuda.sched(), cuda.cuda_end_ns(75)), (Until { ns: 75, in_order: true }, 70));
        let headless = tracers(&[]);
        assert_eq!((headless.sched(), headless.cuda_end_ns(70)), (Until { ns: 60, in_order: false }, 70));
    }
}
