//! Which attach tier is taken on the running kernel, and that each one that it has sees the same.

use ingero_tests::{Background, Machine, Output, TIERS, Workload, cuda, plan, tiers, watching, with_tracefs};
use ingero_workload::plan::Plan;

/// Threads and a child, runtime calls and driver calls.
fn various() -> Plan {
    Plan { threads: 3, forks: 1, ..plan(&["cudaMalloc*7", "cudaMemcpyAsync*11,dir=h2d", "cuLaunchKernel*13"]) }
}

/// What one tier records of that: its name as the start record has it, and each call by process, name and depth.
fn recorded(arguments: &[&str]) -> (String, Vec<(String, u64)>) {
    let workload = Workload::at_its_gate(&various());
    let pid = workload.pid();
    let mut tracer = Background::start_piped(&mut with_tracefs(cuda(pid).args(arguments)));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let stats = workload.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.lost_in_all(), 0, "{out}");
    // The driver's start, before or after the watch began, is no step of the plan.
    let calls = records.calls().filter(|r| r["op"] != "cuInit");
    let mut calls: Vec<_> =
        calls.map(|r| (r["op"].as_str().unwrap().to_owned(), r["depth"].as_u64().unwrap())).collect();
    calls.sort();
    assert_eq!(calls.iter().filter(|(_, depth)| *depth == 0).count() as u64, stats.all_calls(), "{out}");
    let probes = &records.only("ingero", "start")["probes"];
    let attached = probes["attached"].as_array().unwrap();
    assert!(attached.iter().any(|name| name == "cudaMalloc"), "{probes}");
    (probes["mode"].as_str().unwrap().to_owned(), calls)
}

#[test]
fn the_best_one_that_the_kernel_has_is_taken() {
    let _machine = Machine::take();
    let (mode, _) = recorded(&[]);
    println!("tier: {mode}");
    assert_eq!(mode, tiers()[0]);
}

#[test]
fn each_one_can_be_forced_and_records_the_same() {
    let _machine = Machine::take();
    let (_, expected) = recorded(&["--nested"]);
    for tier in tiers() {
        let (mode, calls) = recorded(&["--nested", "--probe-mode", tier]);
        assert_eq!(mode, tier);
        assert_eq!(calls, expected, "{tier}");
    }
}

#[test]
fn one_that_the_kernel_is_too_old_for_is_refused_with_the_kernel_that_has_it() {
    let _machine = Machine::take();
    let has = tiers();
    for (tier, (major, minor)) in TIERS.iter().filter(|(tier, _)| !has.contains(tier)) {
        let mut command = with_tracefs(cuda(std::process::id()).args(["--probe-mode", tier, "--duration", "1s"]));
        Output::of(&mut command).exits(2).says_in_one_line(&["ingero-cuda", tier, &format!("{major}.{minor}")]);
    }
}
