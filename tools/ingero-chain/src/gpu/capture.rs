//! Which calls are captured into a graph: they give the GPU nothing to do, whatever they are called.
//!
//! What a program enqueues to a stream while that is being captured becomes part of a graph; the work begins when the graph is launched.
//! Another stream joins by waiting for an event that was recorded in a captured one, and leaves when the capture ends:
//!
//! ```text
//!   stream 7   beginCapture  launch  record E                                endCapture     graphLaunch
//!   stream 9                                   waitEvent E  launch
//!              [------------------------ nothing is enqueued -------------------------]     work
//! ```
//!
//! Whoever waits for a stream that is being captured, or for its device, gets an error; a wait that succeeds says that a capture is
//! over of whose end there is no record.

use ingero_common::cuda_api::{self, Class, Drain};
use ingero_common::host::HashMap;
use ingero_common::record::Record;

use super::outstanding::{Known, Stream};
use crate::limits::{MAX_EVENTS, MAX_STREAMS};

/// What one process is capturing.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Streams that are being captured, and in which one each capture began.
    streams: HashMap<Stream, Stream>,
    /// Events that were recorded in one of them.
    events: HashMap<Box<str>, Stream>,
}

impl Captures {
    /// What a call really does: one that is captured does no more than the one that ends a capture.
    pub(crate) fn function(&self, record: &Record<'_>, function: Known) -> Known {
        let work = function.is_none_or(|function| function.enqueues());
        if !work || self.streams.is_empty() || !self.streams.contains_key(&Stream::of(record)) {
            return function;
        }
        cuda_api::find("cudart", "cudaStreamEndCapture")
    }

    /// Takes note of a call that has returned.
    pub(crate) fn add(&mut self, record: &Record<'_>, function: Known) {
        let Some(function) = function.filter(|_| !record.open && record.ret.is_none_or(|ret| ret == 0)) else { return };
        if self.streams.is_empty() && function.class != Class::Capture {
            return;
        }
        let stream = Stream::of(record);
        let event = record.event.as_deref();
        match function.class {
            Class::Capture if record.op.contains("Begin") => self.join(stream.clone(), stream),
            Class::Capture => self.end(&stream),
            Class::Record => self.recorded(event, &stream),
            Class::StreamWait => {
                if let Some(origin) = event.and_then(|event| self.events.get(event)).cloned() {
                    self.join(stream, origin);
                }
            }
            Class::Sync if function.drains(None) == Drain::Stream => self.end(&stream),
            Class::Sync if function.drains(None) == Drain::Context => *self = Self::default(),
            Class::Query if event.is_none() => self.end(&stream),
            _ => {}
        }
    }

    fn join(&mut self, stream: Stream, origin: Stream) {
        if self.streams.len() < MAX_STREAMS {
            self.streams.insert(stream, origin);
        }
    }

    fn recorded(&mut self, event: Option<&str>, stream: &Stream) {
        let Some(event) = event else { return };
        match self.streams.get(stream) {
            Some(origin) if self.events.len() < MAX_EVENTS => {
                self.events.insert(event.into(), origin.clone());
            }
            _ => {
                self.events.remove(event);
            }
        }
    }

    /// The capture that `stream` is a part of is over.
    fn end(&mut self, stream: &Stream) {
        let Some(origin) = self.streams.get(stream).cloned() else { return };
        self.streams.retain(|_, of| *of != origin);
        self.events.retain(|_, of| *of != origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::class::Class as Time;
    use crate::report::model::Kind;
    use crate::testing::{Stream as Records, US, found};
    use ingero_common::record::{Parsed, parse};

    /// Feeds calls (operation, stream, event), and says after each which of streams 7 and 9 are captured.
    fn captured(calls: &[(&str, u32, u32)]) -> Vec<[bool; 2]> {
        let mut captures = Captures::default();
        let line = |op: &str, stream: u32, event: u32| {
            let event = if event > 0 { format!(r#","event":"0x{event}""#) } else { String::new() };
            format!(r#"{{"src":"cudart","op":"{op}","pid":1,"tid":1,"ret":0,"stream":"0x{stream}"{event}}}"#)
        };
        let ask = |captures: &Captures, stream| {
            let line = line("cudaLaunchKernel", stream, 0);
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            let launch = cuda_api::find("cudart", "cudaLaunchKernel");
            !captures.function(&record, launch).unwrap().enqueues()
        };
        let each = |&(op, stream, event): &(&str, u32, u32)| {
            let line = line(op, stream, event);
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            captures.add(&record, cuda_api::find("cudart", op));
            [7, 9].map(|stream| ask(&captures, stream))
        };
        calls.iter().map(each).collect()
    }

    #[test]
    fn streams_join_a_capture_by_its_events_and_leave_with_it() {
        let (begin, end) = ("cudaStreamBeginCapture", "cudaStreamEndCapture");
        let (record, wait) = ("cudaEventRecord", "cudaStreamWaitEvent");
        let steps = [(begin, 7, 0), (record, 7, 1), (wait, 9, 1), (end, 7, 0)];
        assert_eq!(captured(&steps), [[true, false], [true, false], [true, true], [false, false]]);
        // An event from elsewhere brings nobody in, nor does one that was recorded elsewhere again.
        let steps = [(begin, 7, 0), (record, 9, 1), (wait, 9, 1), (record, 7, 2), (record, 8, 2), (wait, 9, 2)];
        assert_eq!(captured(&steps)[5], [true, false]);
    }

    #[test]
    fn a_wait_that_succeeds_ends_a_capture_of_whose_end_there_is_no_record() {
        let begin = ("cudaStreamBeginCapture", 7, 0);
        for (over, is_over) in [
            (("cudaStreamSynchronize", 7, 0), true),
            (("cudaStreamQuery", 7, 0), true),
            (("cudaDeviceSynchronize", 0, 0), true),
            (("cudaStreamSynchronize", 9, 0), false),
            (("cudaEventSynchronize", 0, 5), false),
        ] {
            assert_eq!(captured(&[begin, over])[1][0], !is_over, "{over:?}");
        }
    }

    #[test]
    fn the_gpu_is_idle_while_a_graph_is_captured() {
        let mut records = Records::watched();
        records.launches(0);
        records.call("cudaDeviceSynchronize", 100, 900);
        let on = r#","stream":"0x7""#;
        records.call_of(100, "cudaStreamBeginCapture", 2_000, 10, on);
        (0..50).for_each(|i| records.call_of(100, "cudaLaunchKernel", 2_100 + i * 100, 10, on));
        records.call_of(100, "cudaStreamEndCapture", 8_000, 10, on);
        records.call_of(100, "cudaGraphLaunch", 9_000, 10, on);
        records.end(9_010);
        let report = records.report();
        assert_eq!(report.accounts[0].classes.get(Time::Idle) / US, 8_000);
        assert_eq!(found(&report, Kind::Gap)[0].call.call.raw(), "cudaGraphLaunch");
    }
}
