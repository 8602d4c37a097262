//! Launches behind a full queue, and frees: when is it the GPU that a slow call waits for?

use crate::support::{chain, text};
use serde_json::{Value, json};

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
    assert!(unknown["advice"][0]["because"].as_str().unwrap().contains("queue may be full"), "{unknown}");
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

/// A loop that waits 100 ms for its data, and a watchdog that asks each 10 ms whether an event has happened, with what it
/// hears.
fn watched_over(answer: Option<i64>) -> Vec<Value> {
    let mut lines = Vec::new();
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    let mut call = |op: &str, tid: u64, mono_ns: u64, ret: Option<i64>| {
        lines.push(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":10_000,"pid":100,"tid":tid,"comm":if tid == 100 { "train" } else { "watchdog" },"ret":ret,"depth":0}));
    };
    for step in 0..50 {
        let at_ns = (1001 + step * 110) * MS;
        (0..8).for_each(|i| call("cudaLaunchKernel", 100, at_ns + i * MS, Some(0)));
        call("cudaDeviceSynchronize", 100, at_ns + 9 * MS, Some(0));
        (1..11).for_each(|i| call("cudaEventQuery", 101, at_ns + i * 10 * MS + 5000, answer));
    }
    for step in 0..550 {
        lines.push(json!({"src":"sched","op":"sched_switch","mono_ns":(1001 + step * 10) * MS + 20_000,"dur_ns":10 * MS - 20_000,"pid":100,"tid":101,"comm":"watchdog","state":"S","runq_ns":0}));
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":6501 * MS}));
    lines.sort_by_key(|r| r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap_or(0));
    let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
    let out = chain(&[], &stream);
    text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_watchdog_that_only_asks_hides_no_gap_and_is_no_cause() {
    let report = watched_over(Some(0));
    let gap = report.iter().find(|r| r["op"] == "gap").unwrap();
    assert_eq!((&gap["call"], &gap["severity"]), (&json!("cudaLaunchKernel"), &json!("high")), "{gap}");
    assert_eq!((&gap["causes"][0]["cause"], &gap["causes"][0]["share"]), (&json!("host_cpu"), &json!(1.0)), "{gap}");
    assert_eq!(gap["proven"], true, "{gap}");
    // Nothing on record was outstanding: there is work that is not on record.
    let report = watched_over(Some(600));
    let gap = report.iter().find(|r| r["op"] == "gap").unwrap();
    assert_eq!((&gap["call"], &gap["proven"]), (&json!("cudaLaunchKernel"), &json!(false)), "{gap}");
    // What it heard is not on record: it may have been that the GPU was at work.
    let longest =
        |report: &[Value]| report.iter().filter(|r| r["op"] == "gap").filter_map(|r| r["max_ns"].as_u64()).max();
    assert!(longest(&watched_over(None)) < Some(11 * MS), "the queries cut the time between calls");
}
