//! A call that goes on for longer than anything is waited for, and what happens in other threads meanwhile.

use serde_json::{Value, json};

use crate::support::{self, MS, call, class_ns, gaps_ns};

/// From the end of a step to the first launch of the next.
const GAP_US: u64 = 99_020;

/// Thread 102 makes a call at 1 s, thread 100 a step each 100 ms from there to 17 s; with `more`, in the order of their ends.
fn stream(more: &[Value]) -> Vec<Value> {
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
    let mut stream = support::watched(1000);
    stream.append(&mut lines);
    stream.push(support::end(17_000 * MS));
    stream
}

/// The last report; what was found up to then is looked at each second where `live`.
fn report(stream: &[Value], live: bool) -> Vec<Value> {
    let mut records = support::report(if live { &["--every", "1s"] } else { &[] }, stream);
    let before = records[..records.len() - 1].iter().rposition(|record| record["op"] == "summary");
    records.split_off(before.map_or(0, |last| last + 1))
}

/// A collective that waits for its peers, from 7 to 16.0005 s: the GPU may have been given work at any time.
fn collective() -> Value {
    call("ncclAllReduce", 102, 7000 * MS, 9000 * MS + MS / 2)
}

#[test]
fn the_time_in_a_call_that_gives_the_gpu_work_is_not_idle() {
    let records = report(&stream(&[collective()]), false);
    // 59 gaps before it, 9 after it, and what is left of the one in which it ends is none: it did not wait for that call.
    assert_eq!(gaps_ns(&records), 68 * GAP_US * 1000, "{records:?}");
    assert_eq!(class_ns(&records, "enqueue") / MS, 9000 + 68 * 190 / 1000 + 1, "{records:?}");
}

/// A thread that has been silent for 10 s is not waited for: what was counted before its call came stays as it is.
#[test]
fn what_is_counted_while_a_thread_is_silent_stays_and_adds_up() {
    let (once, live) = (report(&stream(&[collective()]), false), report(&stream(&[collective()]), true));
    let observed = |records: &[Value]| support::found(records, "account")[0]["observed_ns"].clone();
    assert_eq!(observed(&once), observed(&live));
    assert!(gaps_ns(&live) >= gaps_ns(&once), "{live:?}");
    // It may have been in a call from 1 s on and was waited for until 11 s.
    assert!(gaps_ns(&live) <= gaps_ns(&once) + 90 * GAP_US * 1000, "{live:?}");
    assert_eq!(class_ns(&live, "enqueue") / (1000 * MS), (9000 * MS - (gaps_ns(&live) - gaps_ns(&once))) / (1000 * MS));
}

/// The notice says that it has been hanging for 2 s; its end is in no record.
#[test]
fn a_call_whose_end_may_be_lost_leaves_gaps_that_are_not_judged() {
    let mut notice = call("ncclAllReduce", 102, 2000 * MS, 2000 * MS);
    notice["open"] = json!(true);
    notice["stuck"] = json!(true);
    let lost = |at_ms: u64, pid: u32| {
        json!({"src":"ingero","op":"lost","mono_ns":at_ms * MS,"dur_ns":1000,"pid":pid,"stream":"cuda","count":1,
            "why":"ring_full"})
    };
    let gaps_and_not_judged = |more: &[Value]| {
        let records = report(&stream(more), false);
        (gaps_ns(&records) / 1000, class_ns(&records, "not_judged") / 1000)
    };
    assert_eq!(gaps_and_not_judged(std::slice::from_ref(&notice)), (9 * GAP_US, 0), "it hangs");
    assert_eq!(gaps_and_not_judged(&[notice.clone(), lost(5000, 7)]), (9 * GAP_US, 0), "another process's");
    // From the gap on in which it may have ended, at 4.9 s, all the time in no other call: of 120 steps, and to the end.
    let not_judged_us = 120 * (GAP_US + 19 * 10) + 99_000;
    assert_eq!(gaps_and_not_judged(&[notice, lost(5000, 100)]), (9 * GAP_US, not_judged_us));
}
