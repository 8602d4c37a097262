//! A pause before the working rhythm, and what only looks like one.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

mod support;

use serde_json::{Value, json};
use support::{chain, text};

const MS: u64 = 1_000_000;

/// A watched process that tries two kernels, pauses for `pause_ms`, and then does `steps` steps of 4 ms, each after waiting
/// `wait_ms` for its data; nobody is seen waking it.
fn report(pause_ms: u64, steps: u64, wait_ms: u64) -> Vec<Value> {
    let mut lines = Vec::new();
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    let mut call = |op: &str, mono_ns: u64, dur_ns: u64| {
        lines.push(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0,"func":"0x1"}));
    };
    for t in [1000, 1001] {
        call("cudaLaunchKernel", t * MS, 10_000);
    }
    call("cudaDeviceSynchronize", 1002 * MS, MS);
    let mut t = 1003 + pause_ms;
    for _ in 0..steps {
        t += wait_ms;
        call("cudaLaunchKernel", t * MS, 10_000);
        call("cudaDeviceSynchronize", t * MS + 20_000, 4 * MS - 20_000);
        t += 4;
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":t * MS}));
    let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
    let out = chain(&[], &stream);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lost_ms(records: &[Value]) -> u64 {
    records.iter().filter(|r| r["op"] == "gap").map(|r| r["lost_ns"].as_u64().unwrap()).sum::<u64>() / MS
}

/// torch.compile took 25 s before 2,000 steps without a gap.
#[test]
fn a_pause_before_a_lasting_rhythm_is_start_up() {
    let records = report(700, 100, 0);
    assert_eq!(lost_ms(&records), 0, "{records:?}");
    let summary = records.last().unwrap();
    assert_eq!(summary["start_up_ns"], 700 * MS, "{summary}");
}

/// A loader with twelve workers: all seven batches came at once, after 20 s.
#[test]
fn a_pause_before_a_handful_of_steps_is_lost_time() {
    assert_eq!(lost_ms(&report(700, 7, 0)), 700);
}

#[test]
fn a_pause_whose_like_comes_again_is_lost_time() {
    // The first of them has a wait of its own behind it: 700 + 80 ms.
    assert_eq!(lost_ms(&report(700, 100, 80)), 700 + 100 * 80);
}

/// A tenth of it does not come again; what does come counts.
#[test]
fn start_up_does_not_hide_smaller_gaps_after_it() {
    let records = report(7000, 100, 40);
    assert_eq!(lost_ms(&records), 99 * 40, "{records:?}");
}
