//! Launches behind a full queue, and frees: when is it the GPU that a slow call waits for?

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

mod support;

use serde_json::{Value, json};
use support::{chain, text};

const MS: u64 = 1_000_000;

/// A process whose calls of `slow` take 2 ms, asleep, each after `launches` launches of 10 us and, where asked for, a
/// synchronise.
fn report(slow: &str, launches: u64, sync: bool, gpu_pct: Option<u64>) -> Value {
    let mut lines = Vec::new();
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    let mut at_ns = 1001 * MS;
    let mut call = |op: &str, dur_ns: u64, sleep_ns: u64| {
        let host = json!({"off_ns":sleep_ns,"sleep_ns":sleep_ns,"watched":true});
        lines.push(json!({"src":"cudart","op":op,"mono_ns":at_ns,"dur_ns":dur_ns,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0,"host":host}));
        at_ns += dur_ns + 1000;
        at_ns
    };
    for round in 0..300 {
        (0..launches).for_each(|_| _ = call("cudaLaunchKernel", 10_000, 0));
        if sync {
            call("cudaDeviceSynchronize", 50_000, 0);
        }
        // Mostly it returns at once, which is the usual.
        (0..3).for_each(|_| _ = call(slow, 10_000, 0));
        if round > 100 {
            call(slow, 2 * MS, 2 * MS - 10_000);
        }
    }
    let end_ns = call("cudaLaunchKernel", 10_000, 0);
    if let Some(pct) = gpu_pct {
        lines.push(json!({"src":"sys","op":"sample","mono_ns":1000 * MS,"dur_ns":end_ns - 1000 * MS,"cpu_pct":10.0,"gpu":[{"index":0,"util_pct":pct}]}));
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":end_ns}));
    let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
    let out = chain(&[], &stream);
    let chains = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    chains.into_iter().find(|c| c["op"] == "slow_call" && c["call"] == slow).unwrap()
}

fn verdict(chain: &Value) -> (&str, bool) {
    assert_eq!(chain["causes"][0]["cause"], "blocked", "{chain}");
    (chain["severity"].as_str().unwrap(), chain["summary"].as_str().unwrap().contains("the GPU, which was at work"))
}

#[test]
fn a_launch_behind_a_full_queue_waits_for_the_gpu() {
    let unknown = report("cudaLaunchKernel", 20, false, None);
    assert_eq!(verdict(&unknown), ("high", false), "nothing says that the GPU was at work");
    assert!(unknown["advice"][0]["text"].as_str().unwrap().contains("queue"), "{unknown}");
    assert_eq!(verdict(&report("cudaLaunchKernel", 20, false, Some(99))), ("low", true));
    assert_eq!(verdict(&report("cudaLaunchKernel", 20, false, Some(8))), ("high", false), "the GPU had little to do");
    assert_eq!(verdict(&report("cudaLaunchKernel", 20, true, None)), ("high", false), "the queue was never full");
}

#[test]
fn a_free_waits_for_the_gpu_unless_all_was_waited_for() {
    assert_eq!(verdict(&report("cudaFree", 20, false, None)), ("low", true));
    assert_eq!(verdict(&report("cudaFree", 20, true, None)), ("high", false));
    assert_eq!(verdict(&report("cudaFreeAsync", 20, false, None)), ("high", false), "it is ordered in its stream");
}
