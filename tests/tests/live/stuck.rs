//! A call that hangs is told of while it hangs, once, and its own record still follows.

use std::io::Write;

use ingero_tests::{Background, Machine, Output, Records, Workload, cuda, plan, tool, watching};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Whether a record tells of a call while it hangs.
fn is_notice(record: &Value) -> bool {
    record["stuck"] == true
}

/// A tracer of a workload that is in its first call, told to tell of calls of 300 ms; returns when it has told of that one.
fn hanging(step: &str, arguments: &[&str]) -> (Workload, Background) {
    let mut workload = Workload::at_its_gate(&plan(&[step]));
    let pid = workload.pid();
    let mut tracer = Background::start_piped(cuda(pid).args(["--stuck", "300ms"]).args(arguments));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    workload.go();
    tracer.wait_for("a word about the call", is_notice);
    (workload, tracer)
}

/// The notice and the last record of the one call that there is.
#[track_caller]
fn notice_and_end<'a>(records: &'a Records, out: &Output) -> (&'a Value, &'a Value) {
    records.balance();
    let all: Vec<&Value> = records.calls().filter(|r| r["depth"] == 0).collect();
    let [notice, end] = all[..] else { panic!("{} records of one call\n{out}", all.len()) };
    assert!(is_notice(notice) && !is_notice(end), "{out}");
    assert_eq!((&notice["open"], notice.get("ret")), (&true.into(), None), "{notice}");
    for key in ["src", "op", "pid", "tid", "mono_ns", "stream"] {
        assert_eq!(notice[key], end[key], "{key}\n{notice}\n{end}");
    }
    let length = |record: &Value| record["dur_ns"].as_u64().unwrap();
    assert!(length(notice) >= 300_000_000 && length(end) > length(notice), "{notice}\n{end}");
    assert_eq!(records.only("ingero", "end")["seen"], records.calls().count(), "{out}");
    (notice, end)
}

#[test]
fn a_call_that_returns_at_last() {
    let _machine = Machine::take();
    for arguments in [&[][..], &["--nested"]] {
        let (workload, tracer) = hanging("cudaStreamSynchronize,sleep=1500ms,stream=9", arguments);
        workload.finish();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        let (notice, end) = notice_and_end(&records, &out);
        // The driver call inside it hangs as well; the outermost one is the one to know.
        assert_eq!((&notice["src"], &notice["op"]), (&"cudart".into(), &"cudaStreamSynchronize".into()), "{out}");
        assert_eq!((&end["ret"], end.get("open")), (&0.into(), None), "{out}");
        assert_eq!(records.calls().filter(|r| is_notice(r)).count(), 1, "{out}");
        assert!(out.stderr.contains("cudaStreamSynchronize"), "people are told too\n{out}");
    }
}

#[test]
fn a_call_whose_process_is_killed_in_it() {
    let _machine = Machine::take();
    let (workload, mut tracer) = hanging("cudaDeviceSynchronize,sleep=1000s", &[]);
    kill_process(Pid::from_raw(workload.pid().cast_signed()).unwrap(), Signal::KILL).unwrap();
    tracer.wait_for("its last record", |r| r["op"] == "cudaDeviceSynchronize" && !is_notice(r));
    let out = tracer.wait().exits(0);
    let records = out.records();
    let (_, end) = notice_and_end(&records, &out);
    assert_eq!((&end["open"], end.get("ret")), (&true.into(), None), "{end}");
}

#[test]
fn a_call_that_hangs_when_tracing_stops() {
    let _machine = Machine::take();
    let (_workload, tracer) = hanging("cudaDeviceSynchronize,sleep=1000s", &[]);
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    let (_, end) = notice_and_end(&records, &out);
    assert_eq!((&end["open"], end.get("ret")), (&true.into(), None), "{end}");

    // Both go through the join, and only the last one gets a host object: the sleep of a call that hangs is in no record yet.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&out.stdout).unwrap();
    let joined = Output::of(tool("ingero-join").arg(file.path())).exits(0);
    let records = joined.records();
    let all: Vec<&Value> = records.calls().collect();
    assert_eq!(all.iter().map(|r| is_notice(r)).collect::<Vec<_>>(), [true, false], "{joined}");
    assert_eq!(all.iter().map(|r| r.get("host").is_some()).collect::<Vec<_>>(), [false, true], "{joined}");
}

/// What has returned in time is never told of, however many such calls there are and however long they take together.
#[test]
fn calls_that_are_only_many() {
    let _machine = Machine::take();
    let workload = Workload::at_its_gate(&plan(&["cudaStreamSynchronize*40,sleep=40ms"]));
    let pid = workload.pid();
    let mut tracer = Background::start_piped(cuda(pid).args(["--stuck", "400ms"]));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    workload.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    assert_eq!((records.outermost(pid).count(), records.calls().filter(|r| is_notice(r)).count()), (40, 0), "{out}");
}
