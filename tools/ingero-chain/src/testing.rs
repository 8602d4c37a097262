//! What tests of the modules share: small streams, and what the engine makes of them.

use ingero_common::record::{Parsed, parse};

use crate::input::ingest::Engine;
use crate::process::class::Class;
use crate::report::Wanted;
use crate::report::model::{Finding, Kind, Report};

/// A microsecond and a millisecond in nanoseconds.
pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// Where streams begin.
pub(crate) const BASE_NS: u64 = 1_000_000_000;

/// Feeds the lines; `eager` settles after each record, as a long stream would now and then.
pub(crate) fn engine(lines: &[String], eager: bool) -> Engine {
    let mut engine = Engine::default();
    for line in lines {
        feed(&mut engine, line);
        if eager {
            engine.settle(false);
        }
    }
    engine.end();
    engine
}

pub(crate) fn feed(engine: &mut Engine, line: &str) {
    let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
    engine.record(&record, line.as_bytes());
}

/// Records of process 100, in the order in which they are put. Times are in microseconds after the beginning.
#[derive(Clone, Default)]
pub(crate) struct Stream {
    pub(crate) lines: Vec<String>,
}

impl Stream {
    /// Both tracers watch it from the beginning on.
    pub(crate) fn watched() -> Self {
        let mut stream = Self::default();
        for side in ["cuda", "sched"] {
            stream.put(
                0,
                0,
                &format!(r#""src":"ingero","op":"watch","pid":100,"tid":100,"comm":"train","stream":"{side}""#),
            );
        }
        stream
    }

    /// A record with its time in front.
    pub(crate) fn put(&mut self, at_us: u64, dur_us: u64, rest: &str) {
        let dur = if dur_us > 0 { format!(r#""dur_ns":{},"#, dur_us * US) } else { String::new() };
        self.lines.push(format!(r#"{{"mono_ns":{},{dur}{rest}}}"#, BASE_NS + at_us * US));
    }

    /// A call of thread 100 that succeeded.
    pub(crate) fn call(&mut self, op: &str, at_us: u64, dur_us: u64) {
        self.call_of(100, op, at_us, dur_us, "");
    }

    /// A call of some thread; `more` is what else is in its record.
    pub(crate) fn call_of(&mut self, tid: u32, op: &str, at_us: u64, dur_us: u64, more: &str) {
        let src = match op {
            _ if op.starts_with("nccl") => "nccl",
            _ if op.starts_with("cuda") => "cudart",
            _ => "cuda",
        };
        let rest = format!(r#""src":"{src}","op":"{op}","pid":100,"tid":{tid},"comm":"train","ret":0,"depth":0{more}"#);
        self.put(at_us, dur_us, &rest);
    }

    /// Two launches, so that the loop begins with the second one: 10 us each, 20 us apart.
    pub(crate) fn launches(&mut self, at_us: u64) {
        self.call("cudaLaunchKernel", at_us, 10);
        self.call("cudaLaunchKernel", at_us + 20, 10);
    }

    /// Both tracers stop.
    pub(crate) fn end(&mut self, at_us: u64) {
        self.put(at_us, 0, r#""src":"ingero","op":"end""#);
    }

    pub(crate) fn report(&self) -> Report {
        engine(&self.lines, false).report(Wanted { details: true, so_far: false })
    }

    /// Microseconds of some class in the account.
    pub(crate) fn class_us(&self, class: Class) -> u64 {
        self.report().accounts[0].classes.get(class) / US
    }
}

/// The findings of one kind.
pub(crate) fn found(report: &Report, kind: Kind) -> Vec<&Finding> {
    report.findings.iter().filter(|finding| finding.op == kind).collect()
}
