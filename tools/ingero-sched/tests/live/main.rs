//! ingero-sched on live probes: what it says beside what the kernel and the workload count themselves. As root, one test at
//! a time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cuda;
mod groups;
mod lives;
mod raw;
mod resources;
mod stacks;
mod stream;
mod switches;
mod system;
mod waits;
mod workload;

use std::process::Command;

use ingero_tests::{Background, Machine, Output, Records};
use serde_json::Value;

use workload::Workload;

/// The tool under test.
fn tool() -> Command {
    let tool = Command::new(env!("CARGO_BIN_EXE_ingero-sched"));
    if raw::is_on() { raw::without_type_information(tool) } else { tool }
}

/// The tool at work on one process.
fn sched_on(pid: u32, arguments: &[&str]) -> Background {
    let mut sched = Background::start(tool().args(["--pid", &pid.to_string()]).args(arguments));
    sched.wait_for("the watch record", |r| is_watch(r, pid));
    sched
}

fn is_watch(record: &Value, pid: u32) -> bool {
    record["op"] == "watch" && record["stream"] == "sched" && record["pid"] == pid
}

/// Stops the tool as Ctrl-C does. Its books must balance, no interval may begin before the watch or end after the stream,
/// and none may be longer than what it consists of.
#[track_caller]
fn stop(sched: Background) -> Records {
    check(sched.interrupt().exits(0))
}

#[track_caller]
fn check(output: Output) -> Records {
    let records = output.records();
    records.balance();
    let written = records.0.iter().filter(|r| r["src"] != "ingero").count();
    let end = records.only("ingero", "end");
    assert_eq!(end["written"], written, "{end}");
    let from = records.only("ingero", "start")["mono_ns"].as_u64().unwrap();
    let to = end["mono_ns"].as_u64().unwrap();
    for r in records.of("sched", "sched_switch") {
        assert!(r["mono_ns"].as_u64().unwrap() >= from && end_ns(r) <= to, "{r}");
        assert!(r["runq_ns"].as_u64().unwrap() <= r["dur_ns"].as_u64().unwrap(), "{r}");
        assert!(r["waker"].is_null() || r["waker_irq"].is_null(), "{r}");
        if r["state"] == "R" {
            assert_eq!(r["runq_ns"], r["dur_ns"], "{r}");
        }
    }
    records
}

fn end_ns(record: &Value) -> u64 {
    record["mono_ns"].as_u64().unwrap() + record["dur_ns"].as_u64().unwrap_or(0)
}

/// The off-CPU intervals of a thread that lie within what the workload calls `from_ns` and `to_ns`.
fn switches<'a>(records: &'a Records, workload: &Workload, tid: u32) -> Vec<&'a Value> {
    let (from, to) = (workload.said("from_ns"), workload.said("to_ns"));
    let inside = |r: &Value| r["mono_ns"].as_u64().unwrap() >= from && end_ns(r) <= to;
    records.of("sched", "sched_switch").filter(|r| r["tid"] == tid && inside(r)).collect()
}

/// A workload that runs to its end while it is watched.
#[track_caller]
fn watched(arguments: &[&str], tool_arguments: &[&str]) -> (Workload, Records) {
    let mut workload = Workload::start(arguments);
    let sched = sched_on(workload.pid(), tool_arguments);
    workload.go();
    workload.wait_for("done");
    let records = stop(sched);
    workload.end();
    (workload, records)
}
