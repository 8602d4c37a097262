//! A training loop that waits for its data, and one that does not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::Duration;

use ingero_tests::{Machine, Output, Records, Tracers, Workload, plan, report};
use ingero_workload::plan::{Loader, Plan};
use serde_json::Value;

/// One step of training: a copy, some kernels, and the GPU at work for as long as `gpu` says.
fn training(items: u64, gpu: &str, loader: Loader) -> Plan {
    let synchronise = format!("cudaStreamSynchronize,sleep={gpu}");
    Plan { loops: items, loader: Some(loader), ..plan(&["cudaMemcpyAsync*2", "cudaLaunchKernel*20", &synchronise]) }
}

/// One worker that has its items ready before they are asked for.
fn quick() -> Loader {
    Loader {
        workers: 1,
        cpus: Vec::new(),
        item_cpu: Duration::from_micros(100),
        item_sleep: Duration::ZERO,
        prefetch: 4,
        feeder: false,
        pin: false,
    }
}

/// Runs it under both tracers: the process, what the report says, and its records.
fn traced(plan: &Plan, arguments: &[&str]) -> (u32, Output, Records) {
    let workload = Workload::at_its_gate(plan);
    let pid = workload.pid();
    let tracers = Tracers::on(pid);
    workload.run();
    let (said, records) = report(&tracers.stop(), arguments);
    (pid, said, records)
}

/// The gap chain of a process, whose shares must add up.
#[track_caller]
fn gap<'a>(records: &'a Records, pid: u32, said: &Output) -> &'a Value {
    let chain = records.chains().find(|c| c["op"] == "gap" && c["pid"] == pid);
    let chain = chain.unwrap_or_else(|| panic!("no gap chain of {pid}\n{said}"));
    let named: u64 = chain["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum();
    assert_eq!(named + chain["unexplained_ns"].as_u64().unwrap(), chain["lost_ns"].as_u64().unwrap(), "{chain}");
    chain
}

#[track_caller]
fn first_cause(chain: &Value, cause: &str, who: &str) {
    let first = &chain["causes"][0];
    assert_eq!(first["cause"], cause, "{chain}");
    let named = first["who"].as_array().unwrap();
    assert!(!named.is_empty() && named.iter().all(|w| w["comm"].as_str().unwrap().starts_with(who)), "{chain}");
}

/// Four workers on one CPU: each waits for it three quarters of its time.
fn contending(feeder: bool, pin: bool) -> Loader {
    Loader { workers: 4, cpus: vec![0], item_cpu: Duration::from_millis(15), feeder, pin, prefetch: 2, ..quick() }
}

#[test]
fn by_workers_that_contend_for_a_cpu() {
    let _machine = Machine::take();
    let (pid, said, records) = traced(&training(100, "1ms", contending(false, false)), &["--fail-on", "high"]);
    let chain = gap(&records, pid, &said.exits(1));
    assert_eq!(chain["severity"], "high", "{chain}");
    assert_eq!(chain["proven"], true, "{chain}");
    first_cause(chain, "worker_cpu_wait", "data_worker_");
}

/// As Python does it: the worker hands over through a thread born in the middle of the first gap, and a thread of the main
/// process takes the item in. The cause is still the worker's.
#[test]
fn by_the_same_workers_through_helper_threads() {
    let _machine = Machine::take();
    let (pid, said, records) = traced(&training(100, "1ms", contending(true, true)), &[]);
    let chain = gap(&records, pid, &said);
    assert_eq!(chain["severity"], "high", "{chain}");
    first_cause(chain, "worker_cpu_wait", "data_worker_");
}

#[test]
fn by_one_worker_that_is_slow_by_itself() {
    let _machine = Machine::take();
    let (pid, said, records) =
        traced(&training(50, "1ms", Loader { item_cpu: Duration::from_millis(30), ..quick() }), &[]);
    let chain = gap(&records, pid, &said);
    assert_eq!(chain["severity"], "high", "{chain}");
    first_cause(chain, "worker_cpu", "data_worker_");
}

#[test]
fn by_one_worker_that_waits_for_something_else() {
    let _machine = Machine::take();
    let (pid, said, records) =
        traced(&training(50, "1ms", Loader { item_sleep: Duration::from_millis(30), ..quick() }), &[]);
    let chain = gap(&records, pid, &said);
    assert_eq!(chain["severity"], "high", "{chain}");
    let first = &chain["causes"][0]["cause"];
    assert!(first == "sleep" || first == "wait", "{chain}");
    // Nobody's CPU was at fault.
    for cause in chain["causes"].as_array().unwrap() {
        let (name, share) = (cause["cause"].as_str().unwrap(), cause["share"].as_f64().unwrap());
        assert!(name == "sleep" || name == "wait" || share < 0.2, "{chain}");
    }
}

#[test]
fn by_its_own_work_between_the_calls() {
    let _machine = Machine::take();
    let mut training = training(50, "1ms", quick());
    training.steps.push("host,spin=30ms".parse().unwrap());
    let (pid, said, records) = traced(&training, &[]);
    let chain = gap(&records, pid, &said);
    assert_eq!(chain["severity"], "high", "{chain}");
    assert_eq!(chain["causes"][0]["cause"], "host_cpu", "{chain}");
}

/// The same loop with a fast feeder: the GPU is at work nearly all of the time, and there is nothing to report.
#[test]
fn not_at_all() {
    let _machine = Machine::take();
    let (_, said, records) = traced(&training(200, "10ms", quick()), &["--fail-on", "low"]);
    let said = said.exits(0);
    assert_eq!(records.chains().count(), 0, "{said}");
    // An empty report says what was looked for.
    let summary = records.only("chain", "summary");
    assert!(!summary["checked"].is_null(), "{summary}");
}
