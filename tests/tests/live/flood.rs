//! More calls than anybody can write, in each attach tier: each one is in the stream or counted as lost, and a call that hangs
//! beside them is told of.
//!
//! `INGERO_FLOOD=60s cargo test -p ingero-tests --test live flood -- --nocapture` floods for a minute in each tier and
//! prints the figures.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ingero_common::cli;
use ingero_tests::{Machine, Records, Workload, cuda, has_tier, in_tier, plan, watching};
use ingero_workload::plan::Plan;
use serde_json::Value;

/// What a tracer wrote, of which a minute's worth would fit nowhere.
struct Read {
    /// Outermost calls, notices apart.
    calls: u64,
    notices: Vec<Value>,
    /// The stream about itself.
    about: Records,
}

/// Reads a stream; `each` sees the records about the stream as they come.
fn read(stdout: impl std::io::Read, mut each: impl FnMut(&Value)) -> Read {
    let mut read = Read { calls: 0, notices: Vec::new(), about: Records::default() };
    for line in BufReader::with_capacity(1 << 20, stdout).split(b'\n') {
        let line = line.unwrap();
        if line.starts_with(b"{\"src\":\"ingero\"") {
            let record: Value = serde_json::from_slice(&line).unwrap();
            each(&record);
            read.about.0.push(record);
        } else if line.ends_with(b"\"stuck\":true}") {
            read.notices.push(serde_json::from_slice(&line).unwrap());
        } else {
            assert!(line.starts_with(b"{\"src\":\"cuda") && line.ends_with(b"}"), "{}", String::from_utf8_lossy(&line));
            read.calls += 1;
        }
    }
    read
}

fn every_call_is_accounted_for(mode: &str) {
    if !has_tier(mode) {
        return;
    }
    let _machine = Machine::take();
    let lasting = std::env::var("INGERO_FLOOD").map_or(Duration::from_secs(3), |text| cli::duration(&text).unwrap());
    let flood = Plan { threads: 4, loops: u64::MAX, lasting, ..plan(&["cudaLaunchKernel*1000"]) };
    let flood = Workload::at_its_gate(&flood);
    let mut hanging = plan(&["cudaDeviceSynchronize"]);
    // Longer than the flood: however little of the CPU it leaves to the tracer, there is time to tell.
    hanging.steps[0].sleep = lasting + Duration::from_millis(1500);
    let hanging = Workload::at_its_gate(&hanging);
    let pids = [flood.pid(), hanging.pid()];

    let mut command = cuda(pids[0]);
    command.arg("--pid").arg(pids[1].to_string()).args(["--ring-size", "1m", "--stuck", "500ms"]);
    let mut command: Command = in_tier(mode, &mut command);
    let mut tracer = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let stdout = tracer.stdout.take().unwrap();
    let (ready, watched) = std::sync::mpsc::channel();
    let stalls = Arc::new(AtomicBool::new(true));
    let reader = std::thread::spawn({
        let stalls = Arc::clone(&stalls);
        move || {
            let mut left: Vec<u32> = pids.to_vec();
            read(stdout, |record| {
                let before = left.len();
                left.retain(|pid| !watching(record, "cuda", *pid));
                if left.is_empty() && before > 0 {
                    ready.send(()).unwrap();
                    // From here on nobody reads for a while, so that the ring must run over.
                    while stalls.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            })
        }
    });
    watched.recv_timeout(Duration::from_secs(60)).unwrap();
    let workloads = [hanging, flood].map(|mut workload| {
        workload.go();
        workload
    });
    std::thread::sleep(Duration::from_millis(300));
    stalls.store(false, Ordering::Relaxed);
    let calls: u64 = workloads.map(|workload| workload.finish().all_calls()).iter().sum();
    // Both have ended, and so it ends.
    assert!(tracer.wait().unwrap().success());
    let read = reader.join().unwrap();

    let end = read.about.only("ingero", "end");
    let (seen, lost) = (end["seen"].as_u64().unwrap(), read.about.lost_in_all());
    println!("{mode}: {calls} calls in {lasting:?}, {} written, {lost} lost", read.calls);
    read.about.balance();
    assert!(lost > 0, "{mode}: a stalled reader and a ring of 1 MiB, and nothing lost: {end}");
    assert_eq!(end["written"], read.calls + read.notices.len() as u64, "{mode}: {end}");
    assert_eq!(read.calls + lost, calls, "{mode}: {end}");
    assert_eq!(seen, calls + read.notices.len() as u64, "{mode}: {end}");
    assert_eq!(end["lost"].as_object().unwrap().keys().collect::<Vec<_>>(), ["ring_full"], "{mode}: {end}");
    // A thread of the flood that gets no CPU for half a second in a call hangs as well.
    let told = read.notices.iter().filter(|notice| notice["pid"] == pids[1]);
    assert_eq!(told.map(|notice| &notice["op"]).collect::<Vec<_>>(), ["cudaDeviceSynchronize"], "{mode}");
}

#[test]
fn in_a_session() {
    every_call_is_accounted_for("session");
}

#[test]
fn by_multi_links() {
    every_call_is_accounted_for("multi");
}

#[test]
fn by_trace_events() {
    every_call_is_accounted_for("tracefs");
}

#[test]
fn by_perf_events() {
    every_call_is_accounted_for("perf");
}
