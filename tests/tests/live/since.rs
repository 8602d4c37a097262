//! The instant of a `watch` record is one from which every traced call is seen, also where the process was calling all the
//! while its library was probed, function after function.

use std::collections::HashMap;

use ingero_tests::{Background, Machine, Workload, cuda, in_tier, plan, tiers, watching};
use ingero_workload::plan::Plan;
use serde_json::Value;

/// Called in turns, for ever.
const TURN: [&str; 6] = [
    "cudaMalloc",
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaMemsetAsync",
    "cudaDeviceSynchronize",
];

/// In any record of the last one.
const CALL: &str = "\"op\":\"cudaDeviceSynchronize\"";

#[test]
fn no_call_is_missing_after_a_watch_record() {
    let _machine = Machine::take();
    let mut checked = 0;
    for tier in tiers() {
        // Whether a thread calls while it is probed is up to the scheduler, so there are several, and several chances. In the
        // perf tier attaching and detaching take long.
        for _ in 0..if tier == "perf" { 1 } else { 5 } {
            // Not so often that the tracer does not keep up.
            let steps = plan(&[&TURN[..], &["host,sleep=1ms"]].concat());
            let workload = Workload::start(&Plan { loops: 1_000_000, threads: 6, ..steps });
            let pid = workload.pid();
            let mut tracer = Background::start(&mut in_tier(tier, &mut cuda(pid)));
            tracer.wait_until("a call", |stdout, _| String::from_utf8_lossy(stdout).contains(CALL));
            let out = tracer.interrupt().exits(0);
            drop(workload);
            let records = out.records();
            records.balance();
            let first = records.0.iter().find(|r| watching(r, "cuda", pid)).unwrap();
            let since_ns = first["mono_ns"].as_u64().unwrap();
            // Calls that are open when their probes go may be lost. That is said, and another matter.
            let lost = records.of("ingero", "lost").filter_map(|r| r["mono_ns"].as_u64()).min();
            let to_ns = lost.unwrap_or(u64::MAX);
            let mut last = HashMap::new();
            let in_sight = |r: &&Value| {
                let start_ns = r["mono_ns"].as_u64().unwrap();
                r["src"] == "cudart" && (since_ns..to_ns).contains(&start_ns)
            };
            for call in records.outermost(pid).filter(in_sight) {
                let turn = |call: &Value| TURN.iter().position(|turn| call["op"] == *turn).unwrap();
                if let Some(before) = last.insert(call["tid"].as_u64(), call) {
                    let follows = turn(call) == (turn(before) + 1) % TURN.len();
                    assert!(follows, "{tier}: calls are missing between {before} and {call}, after {first}");
                }
            }
            checked += last.len();
        }
    }
    assert!(checked > 0);
}
