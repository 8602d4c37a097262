//! A call that goes on for longer than anything is waited for, and what happens in other threads meanwhile.

use crate::support::{chain, text};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// From the end of a step to the first launch of the next.
const GAP_US: u64 = 99_020;

fn call(op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Value {
    json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":tid,"comm":"train","ret":0,"depth":0,
        "func":"0x1"})
}

/// Thread 102 makes a call at 1 s, thread 100 a step each 100 ms from there to 17 s; with `more`, in the order of their ends.
fn stream(more: &[Value]) -> String {
    let mut lines = vec![call("cudaMalloc", 102, 1000 * MS, 10_000)];
    for step in 0..160 {
        let at_ns = (1000 + step * 100) * MS;
        for n in 1..20 {
            lines.push(call("cudaLaunchKernel", 100, at_ns + n * 20_000, 10_000));
        }
        lines.push(call("cudaDeviceSynchronize", 100, at_ns + 400_000, 600_000));
        // The scheduler tracer is as far as the other one.
        lines.push(
            json!({"src":"sched","op":"sched_switch","mono_ns":at_ns,"dur_ns":90 * MS,"pid":7,"tid":7,"comm":"sh",
            "state":"S","runq_ns":0}),
        );
    }
    lines.extend_from_slice(more);
    let end_ns = |r: &Value| r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap_or(0);
    lines.sort_by_key(end_ns);
    for stream in ["cuda", "sched"] {
        let watch = json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"comm":"train","stream":stream});
        lines.insert(0, watch);
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":17_000 * MS}));
    lines.iter().map(|record| format!("{record}\n")).collect()
}

/// The last report; what was found up to then is looked at each second where `live`.
fn report(stream: &str, live: bool) -> (Vec<Value>, Value) {
    let out = chain(if live { &["--every", "1s"] } else { &[] }, stream);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    let mut records: Vec<Value> = text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = records.pop().unwrap();
    let from = records.iter().rposition(|record| record["op"] == "summary").map_or(0, |last| last + 1);
    (records.split_off(from), summary)
}

fn gap_ms(records: &[Value]) -> u64 {
    records.iter().filter(|r| r["op"] == "gap").map(|r| r["lost_ns"].as_u64().unwrap()).sum::<u64>() / MS
}

/// It hasn't been heard of for 10 s when the gaps are settled: for 6 s it was in no call, then for 9 s in one.
#[test]
fn what_was_settled_inside_a_call_is_taken_back_when_it_ends() {
    let long = call("cudaStreamSynchronize", 102, 7000 * MS, 9000 * MS + MS / 2);
    let stream = stream(&[long]);
    for live in [false, true] {
        let (records, _) = report(&stream, live);
        // 59 gaps before it and 9 after it; one that ends in it is too small for a chain.
        assert_eq!(gap_ms(&records), 68 * GAP_US / 1000, "{live} {records:?}");
    }
}

#[test]
fn the_rest_of_a_gap_out_of_which_a_call_was_cut_has_no_causes() {
    let stream = stream(&[call("cudaStreamSynchronize", 102, 7050 * MS, 9000 * MS)]);
    let (once, (live, summary)) = (report(&stream, false), report(&stream, true));
    let all = |summary: &Value| (summary["gaps"][0]["lost_ns"].clone(), summary["gaps"][0]["unexplained_ns"].clone());
    let ((lost_ns, unexplained_ns), live_all) = (all(&once.1), all(&summary));
    assert_eq!(unexplained_ns, 0);
    // From 7.001 s, the end of a step, to 7.050 s.
    assert_eq!(live_all, (lost_ns, json!(49 * MS)));
    let sum = |r: &Value| r["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum::<u64>();
    for gap in live.iter().filter(|r| r["op"] == "gap") {
        assert_eq!(sum(gap) + gap["unexplained_ns"].as_u64().unwrap(), gap["lost_ns"].as_u64().unwrap());
    }
}

/// The notice says that it has been hanging for 2 s; its end is in no record.
#[test]
fn a_call_whose_end_may_be_lost_leaves_gaps_that_are_not_judged() {
    let mut notice = call("cudaStreamSynchronize", 102, 2000 * MS, 2000 * MS);
    notice["open"] = json!(true);
    notice["stuck"] = json!(true);
    let lost = |at_ms: u64, pid: u32| {
        json!({"src":"ingero","op":"lost","mono_ns":at_ms * MS,"dur_ns":1000,"pid":pid,"stream":"cuda","count":1,
            "why":"ring_full"})
    };
    let (records, summary) = report(&stream(std::slice::from_ref(&notice)), false);
    assert_eq!((gap_ms(&records), &summary["not_judged_ns"]), (9 * GAP_US / 1000, &json!(0)), "it hangs: {records:?}");
    let (_, summary) = report(&stream(&[notice.clone(), lost(5000, 7)]), false);
    assert_eq!(summary["not_judged_ns"], 0, "another process's: {summary}");
    let (records, summary) = report(&stream(&[notice, lost(5000, 100)]), false);
    assert_eq!(gap_ms(&records), 9 * GAP_US / 1000);
    // From the gap on in which it may have ended: 4.9 s to 16.9 s.
    assert_eq!(summary["not_judged_ns"], 120 * GAP_US * 1000, "{summary}");
}
