//! Tracing begins and ends in the midst of a process's calls: what is half-probed meanwhile makes no record and no loss.

use std::collections::BTreeSet;
use std::time::Duration;

use ingero_tests::{Background, Machine, Output, Records, Workload, cuda, has_tier, plan, tiers, tool};
use ingero_workload::plan::Plan;
use rustix::fs::{CWD, FileType, Mode, mknodat};

#[test]
fn what_is_half_probed_is_not_recorded() {
    if !has_tier("multi") {
        return;
    }
    let _machine = Machine::take();
    // Built, where need be, before the time runs.
    let _built = tool("ingero-cuda");
    // Each runtime call makes a driver call; some seconds of them, longer than all the runs of the tracer.
    let mut workload = Workload::at_its_gate(&Plan { loops: 60_000, ..plan(&["cudaStreamSynchronize,spin=100us"]) });
    let pid = workload.pid();
    workload.go();
    for mode in tiers().into_iter().filter(|mode| ["session", "multi"].contains(mode)) {
        let out = Output::of(cuda(pid).args(["--probe-mode", mode, "--duration", "1s"])).exits(0);
        let records = out.records();
        records.balance();
        assert!(records.of("cudart", "cudaStreamSynchronize").count() > 100, "{mode}\n{out}");
        let alone = records.calls().filter(|r| r["src"] == "cuda").count();
        assert_eq!(alone, 0, "{mode}: driver calls of runtime calls taken for outermost ones\n{out}");
        assert_eq!(records.lost_in_all(), 0, "{mode}\n{out}");
    }
    workload.finish();
}

/// The tracer has listed the process asked for and its children, and waits for a reader, when a child is born.
#[test]
fn a_child_that_is_born_before_the_tracer_is_ready_is_traced() {
    let _machine = Machine::take();
    let _built = tool("ingero-cuda");
    let mut workload =
        Workload::at_its_gate(&Plan { loops: 40_000, forks: 1, ..plan(&["cudaStreamSynchronize,spin=100us"]) });
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("out");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let mut tracer = Background::start(cuda(workload.pid()).args(["--duration", "1s", "--output"]).arg(&fifo));
    tracer.wait_until("its waiting for a reader", |_, said| said.contains("FIFO"));
    workload.go();
    // The child has made calls by then.
    std::thread::sleep(Duration::from_millis(300));
    let records = Records::parse(&std::fs::read(&fifo).unwrap()[..]).unwrap();
    let out = tracer.wait().exits(0);
    let callers: BTreeSet<_> = records.calls().map(|r| r["pid"].as_u64().unwrap()).collect();
    assert_eq!(callers.len(), 2, "{callers:?}\n{out}");
    workload.finish();
}
