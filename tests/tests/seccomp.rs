//! Where a return probe enters the kernel by a system call of its own, a strict sandbox may kill the traced process for it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use ingero_tests::{Background, Machine, Workload, plan, tool, watching};
use ingero_workload::plan::{Plan, Seccomp};

/// The target is alive at the end and has made all of its calls; the tracer says what it did about it.
fn survives(seccomp: Seccomp) {
    let _machine = Machine::take();
    let workload =
        Workload::at_its_gate(&Plan { seccomp, ..plan(&["cudaMalloc*100", "cudaDeviceSynchronize,sleep=300ms"]) });
    let pid = workload.pid();
    // Nothing is asked for: it is found, as any CUDA process on the machine would be.
    let mut tracer = Background::start(tool("ingero-cuda").args(["--scan-interval", "100ms"]));
    // It may watch it or refuse to, but must have seen it.
    tracer.wait_until("a word about the process", |stdout, stderr| {
        let text = String::from_utf8_lossy(stdout);
        let mut records = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        records.any(|r| watching(&r, "cuda", pid)) || (stderr.contains("seccomp") && stderr.contains(&pid.to_string()))
    });
    let stats = workload.run();
    assert_eq!(stats.all_calls(), 101);
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    let traced = records.outermost(pid).count();
    let refused = out.stderr.contains("seccomp") && out.stderr.contains(&pid.to_string());
    assert!(traced == 101 || refused, "{traced} calls of a sandboxed process, and no word about it\n{out}");
}

#[test]
fn a_target_that_was_sandboxed_before_survives() {
    survives(Seccomp::Early);
}

#[test]
fn a_target_that_is_sandboxed_later_survives() {
    survives(Seccomp::Late);
}
