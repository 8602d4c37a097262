//! Tracing begins and ends in the midst of a process's calls: what is half-probed meanwhile makes no record and no loss.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ingero_tests::{Machine, Output, Workload, cuda, has_tier, plan, tiers, tool};
use ingero_workload::plan::Plan;

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
