//! Nothing is lost in silence: what was called is either in the stream or counted as missing.

use std::io::Write;

use ingero_tests::{Background, Machine, Output, Workload, cuda, plan, tool, watching};
use ingero_workload::plan::Plan;

/// Four threads, a million calls between them.
fn million() -> Plan {
    Plan { threads: 4, ..plan(&["cudaLaunchKernel*250000"]) }
}

#[test]
fn a_million_calls_from_four_threads_are_all_there() {
    let _machine = Machine::take();
    // They leave a CPU to the consumer: one that gets none must lose records, however large the ring.
    let cpus = (1..u32::try_from(Machine::cpus()).unwrap().min(64)).collect();
    let workload = Workload::at_its_gate(&Plan { cpus, ..million() });
    let pid = workload.pid();
    let mut tracer = Background::start_piped(&mut cuda(pid));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let stats = workload.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();

    assert_eq!(stats.all_calls(), 1_000_000);
    assert_eq!(records.lost_in_all(), 0, "with the default ring and a consumer that reads");
    assert_eq!(records.outermost(pid).count(), 1_000_000);
    records.balance();
    // Each thread's calls are its own.
    for thread in stats.in_role("thread") {
        let own = records.outermost(pid).filter(|r| r["tid"] == thread.tid).count();
        assert_eq!(own, 250_000, "thread {}", thread.tid);
    }
}

#[test]
fn what_a_full_ring_cannot_take_is_counted() {
    let _machine = Machine::take();
    let workload = Workload::at_its_gate(&million());
    let pid = workload.pid();
    // Nobody reads the pipe, so the tracer comes to a halt and the ring fills up behind it.
    let mut tracer = Background::start_stalled(cuda(pid).args(["--ring-size", "64k"]));
    // Its records cannot be seen, but what it says to people can.
    tracer.wait_until("a word about the process", |_, stderr| stderr.contains(&pid.to_string()));
    let calls = workload.run().all_calls();
    tracer.read_on();
    let records = tracer.interrupt().exits(0).records();

    let (written, lost) = (records.outermost(pid).count() as u64, records.lost_in_all());
    assert!(lost > 0, "a ring of 64 KiB cannot hold a million calls");
    assert_eq!(written + lost, calls);
    records.balance();
    // Where they are missing is said too: every loss covers a stretch of time.
    for record in records.of("ingero", "lost") {
        assert_eq!((&record["stream"], &record["why"]), (&"cuda".into(), &"ring_full".into()), "{record}");
        assert!(record["mono_ns"].is_u64() && record["dur_ns"].is_u64(), "{record}");
    }
}

/// Two tracers see each call, its children's too, and the pipeline counts it once.
#[test]
fn what_two_tracers_see_counts_once() {
    let _machine = Machine::take();
    let workload = Workload::at_its_gate(&Plan { threads: 2, forks: 1, ..plan(&["cudaMalloc*31"]) });
    let pid = workload.pid();
    let mut tracers = [Background::start(&mut cuda(pid)), Background::start(&mut cuda(pid))];
    for tracer in &mut tracers {
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    }
    let calls = workload.run().all_calls();
    let files = tracers.map(|tracer| {
        let out = tracer.wait().exits(0);
        let records = out.records();
        assert_eq!(records.calls().filter(|r| r["depth"] == 0).count() as u64, calls, "{out}");
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&out.stdout).unwrap();
        file
    });
    let mut join = tool("ingero-join");
    let joined = Output::of(join.args(files.each_ref().map(tempfile::NamedTempFile::path))).exits(0);
    assert!(joined.stderr.contains(&format!("process {pid}")), "people are told\n{joined}");
    let records = joined.records();
    let once = records.calls().filter(|r| r.get("double").is_none());
    assert_eq!((once.count() as u64, records.calls().count() as u64), (calls, 2 * calls), "{joined}");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&joined.stdout).unwrap();
    let said = Output::of(tool("ingero-chain").args(["--format", "ndjson"]).arg(file.path())).exits(0);
    let summary = said.records().only("chain", "summary").clone();
    assert_eq!((&summary["calls"], &summary["double"]), (&calls.into(), &calls.into()), "{summary}");
}
