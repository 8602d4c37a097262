//! ingero-join's `host` and the paths here are two answers about the same thread: their sums must be the same.

use clap::Parser;
use ingero_common::host::Thread;
use ingero_common::input::Input;
use ingero_common::record::{Host, Parsed, parse};
use ingero_common::text::Log;
use proptest::prelude::*;

use crate::Engine;
use crate::blame::breakdown::{Breakdown, Cause};
use crate::blame::path;

const SPAN_NS: u64 = 1000;
const BEGIN_NS: u64 = 1_000_000_000;

/// A thread off the CPU: from, to, the letter of its state, how long it waited at the end. They may overlap, as those of two
/// recordings do, and some are told of twice.
fn off_cpu() -> impl Strategy<Value = Vec<(u64, u64, &'static str, u64)>> {
    let letter = prop::sample::select(vec!["R", "S", "D", "I", "T", "t", "P", "X", "Z", "?"]);
    let one = (0..SPAN_NS, 1..120_u64, letter, 0..80_u64);
    prop::collection::vec(one, 0..25).prop_map(|all| {
        let mut all: Vec<_> =
            all.into_iter().map(|(from, len, letter, waited)| (from, from + len, letter, waited.min(len))).collect();
        all.sort_by_key(|off| off.1);
        all
    })
}

fn stream(tool: &str, lines: impl IntoIterator<Item = String>) -> String {
    let start = format!(r#"{{"src":"ingero","op":"start","mono_ns":{BEGIN_NS},"schema":1,"tool":"{tool}"}}"#);
    let end = format!(r#"{{"src":"ingero","op":"end","mono_ns":{}}}"#, BEGIN_NS + 3 * SPAN_NS);
    [start].into_iter().chain(lines).chain([end]).map(|line| line + "\n").collect()
}

fn sched(off_cpu: &[(u64, u64, &str, u64)]) -> String {
    let watch = format!(r#"{{"src":"ingero","op":"watch","mono_ns":{BEGIN_NS},"pid":100,"tid":100,"stream":"sched"}}"#);
    let line = |&(from, to, letter, waited): &(u64, u64, &str, u64)| {
        format!(
            r#"{{"src":"sched","op":"sched_switch","mono_ns":{},"dur_ns":{},"pid":100,"tid":101,"state":"{letter}","runq_ns":{waited}}}"#,
            BEGIN_NS + from,
            to - from
        )
    };
    stream("ingero-sched", [watch].into_iter().chain(off_cpu.iter().map(line)))
}

/// What ingero-join says of a call of the thread.
fn joined(sched: &str, from_ns: u64, to_ns: u64) -> serde_json::Value {
    let call = format!(
        r#"{{"src":"cudart","op":"cudaMalloc","mono_ns":{from_ns},"dur_ns":{},"pid":100,"tid":101,"depth":0}}"#,
        to_ns - from_ns
    );
    let dir = tempfile::tempdir().unwrap();
    let sources = [("cuda", stream("ingero-cuda", [call])), ("sched", sched.to_owned())].map(|(name, text)| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        ingero_join::Source::named(Input::new(&path)).unwrap()
    });
    let options = ingero_join::Options::parse_from(["ingero-join", "--quiet"]);
    let mut out = Vec::new();
    ingero_join::join(&options, sources.into(), &mut out, &Log::new("ingero-join", true, false)).unwrap();
    let text = String::from_utf8(out).unwrap();
    let call = text.lines().find(|line| line.contains("cudaMalloc")).unwrap();
    serde_json::from_str::<serde_json::Value>(call).unwrap()["host"].take()
}

/// What the path says of the same stretch.
fn followed(sched: &str, from_ns: u64, to_ns: u64) -> Breakdown {
    let mut engine = Engine::default();
    for line in sched.lines() {
        match parse(line.as_bytes()) {
            Parsed::Record(record) => engine.record(&record, line.as_bytes()),
            other => panic!("{line}: {other:?}"),
        }
    }
    let thread = Thread { pid: 100, tid: 101, ..Thread::default() };
    path::breakdown(engine.sources(), thread, from_ns, to_ns, &[])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_call_and_a_gap_of_the_same_thread_have_the_same_sums(
        off_cpu in off_cpu(), from in 0..SPAN_NS, len in 1..400_u64, asleep_only in any::<bool>(),
    ) {
        let waited = |(from, to, letter, waited)| (from, to, letter, if asleep_only { 0 } else { waited });
        let off_cpu: Vec<_> = off_cpu.into_iter().map(waited).collect();
        let (sched, from_ns, to_ns) = (sched(&off_cpu), BEGIN_NS + from, BEGIN_NS + from + len);
        let text = joined(&sched, from_ns, to_ns).to_string();
        let host: Host<'_> = serde_json::from_str(&text).unwrap();
        let breakdown = followed(&sched, from_ns, to_ns);
        prop_assert!(host.watched);
        prop_assert_eq!((breakdown.total_ns(), breakdown.unexplained_ns()), (len, 0));
        prop_assert_eq!((breakdown.of(Cause::HostCpu), breakdown.of(Cause::CpuWait)), (len - host.off_ns, host.runq_ns));
        if asleep_only {
            prop_assert_eq!(breakdown.of(Cause::CpuWait), host.preempted_ns);
            let parts = [breakdown.of(Cause::Sleep), breakdown.of(Cause::IoWait), breakdown.of(Cause::OffCpu)];
            prop_assert_eq!(parts, [host.sleep_ns, host.io_ns, host.unknown_ns]);
        }
    }
}
