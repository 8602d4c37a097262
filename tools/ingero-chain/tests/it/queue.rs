//! Launches behind a full queue, and frees: when is it the GPU that a slow call waits for?

use serde_json::{Value, json};

use crate::support::{self, MS, cause_ns, found, gaps_ns};

/// A process whose calls of `slow` take 2 ms, asleep, each after `launches` launches of 10 us and, where asked for, a
/// synchronise.
fn report(slow: &str, launches: u64, sync: bool, gpu_pct: Option<u64>) -> Vec<Value> {
    let mut lines = support::watched(1000);
    let mut at_ns = 1001 * MS;
    let mut call = |op: &str, dur_ns: u64, sleep_ns: u64| {
        let mut call = support::call(op, 100, at_ns, dur_ns);
        call["host"] = json!({"off_ns":sleep_ns,"sleep_ns":sleep_ns,"watched":true});
        lines.push(call);
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
    lines.push(support::end(end_ns));
    support::report(&[], &lines)
}

/// The severity of the slow calls, whether the GPU at work is what they waited for, and whether the queue may be full.
fn verdict(records: &[Value], slow: &str) -> (String, bool, bool) {
    let finding = found(records, "slow_call").into_iter().find(|finding| finding["call"] == slow).unwrap();
    assert_eq!(finding["causes"][0]["cause"], "blocked", "{finding}");
    let gpu_wait = finding["gpu_wait_ns"].as_u64().unwrap_or(0) * 10 > finding["lost_ns"].as_u64().unwrap() * 9;
    let full = finding["advice"].to_string().contains("queue may be full");
    (finding["severity"].as_str().unwrap().to_owned(), gpu_wait, full)
}

#[test]
fn a_launch_behind_a_full_queue_waits_for_the_gpu() {
    let verdict = |sync, gpu_pct| verdict(&report("cudaLaunchKernel", 20, sync, gpu_pct), "cudaLaunchKernel");
    let [high, low] = ["high", "low"].map(str::to_owned);
    assert_eq!(verdict(false, None), (high.clone(), false, true), "nothing says that the GPU was at work");
    assert_eq!(verdict(false, Some(99)), (low.clone(), true, false));
    assert_eq!(verdict(false, Some(50)), (low, true, false));
    assert_eq!(verdict(false, Some(49)), (high.clone(), false, false));
    assert_eq!(verdict(false, Some(8)), (high.clone(), false, false), "the GPU had little to do");
    assert_eq!(verdict(true, None), (high, false, false), "the queue was never full");
}

#[test]
fn a_free_waits_for_the_gpu_unless_it_is_ordered_in_a_stream() {
    let verdict = |op| verdict(&report(op, 20, false, None), op);
    assert_eq!(verdict("cudaFree"), ("low".to_owned(), true, false));
    assert_eq!(verdict("cudaFreeAsync"), ("high".to_owned(), false, false));
}

/// Behind a synchronise nothing is left that it could wait for: the GPU is idle, which is told once.
#[test]
fn a_slow_free_on_a_drained_gpu_is_idle_time_and_no_slow_call() {
    let records = report("cudaFree", 20, true, None);
    assert_eq!(found(&records, "slow_call"), [] as [Value; 0]);
    let gap = &found(&records, "gap")[0];
    assert_eq!((&gap["severity"], &gap["proven"]), (&json!("high"), &json!(true)), "{gap}");
    let line = &gap["causes"][0];
    assert_eq!((&line["cause"], &line["ops"][0]["op"]), (&json!("cuda_call"), &json!("cudaFree")), "{gap}");
    assert!(cause_ns(gap, "cuda_call") >= 199 * 2 * MS, "{gap}");
}

/// A loop that waits 100 ms for its data, and a watchdog that asks each 10 ms whether an event has happened, with what it
/// hears.
fn watched_over(answer: Option<i64>) -> Vec<Value> {
    let mut lines = Vec::new();
    let mut call = |op: &str, tid: u64, mono_ns: u64, dur_ns: u64, ret: Option<i64>| {
        lines.push(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":tid,"comm":if tid == 100 { "train" } else { "watchdog" },"ret":ret,"depth":0}));
    };
    for step in 0..50 {
        let at_ns = (1001 + step * 110) * MS;
        (0..8).for_each(|i| call("cudaLaunchKernel", 100, at_ns + i * MS, MS, Some(0)));
        call("cudaDeviceSynchronize", 100, at_ns + 8 * MS, MS, Some(0));
        (1..11).for_each(|i| call("cudaEventQuery", 101, at_ns + i * 10 * MS + 5000, 10_000, answer));
    }
    for step in 0..550 {
        lines.push(json!({"src":"sched","op":"sched_switch","mono_ns":(1001 + step * 10) * MS + 20_000,"dur_ns":10 * MS - 20_000,"pid":100,"tid":101,"comm":"watchdog","state":"S","runq_ns":0}));
    }
    lines.push(support::end(6501 * MS));
    lines.sort_by_key(|r| r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap_or(0));
    support::report(&[], &[support::watched(1000), lines].concat())
}

#[test]
fn a_watchdog_that_only_asks_hides_no_gap_and_is_no_cause() {
    let records = watched_over(Some(0));
    let gap = &found(&records, "gap")[0];
    assert_eq!((&gap["call"], &gap["severity"]), (&json!("cudaLaunchKernel"), &json!("high")), "{gap}");
    assert_eq!((&gap["causes"][0]["cause"], &gap["causes"][0]["share"]), (&json!("host_cpu"), &json!(1.0)), "{gap}");
    assert_eq!(
        (&gap["proven"], &gap["n"], &gap["lost_ns"]),
        (&json!(true), &json!(49), &json!(49 * 101 * MS)),
        "{gap}"
    );
}

/// Nothing on record was outstanding: there is work that is not on record.
#[test]
fn a_watchdog_that_hears_of_work_makes_a_gap_an_upper_bound() {
    let records = watched_over(Some(600));
    let gap = &found(&records, "gap")[0];
    assert_eq!((&gap["call"], &gap["proven"]), (&json!("cudaLaunchKernel"), &json!(false)), "{} {gap}", records[0]);
    assert_eq!(gaps_ns(&records), 49 * 101 * MS, "{gap}");
}

/// A query of which it is not on record what it heard is a call like others, and gives the GPU nothing to do.
#[test]
fn a_query_without_an_answer_on_record_changes_no_sum() {
    let records = watched_over(None);
    assert_eq!(gaps_ns(&records), 49 * 101 * MS, "{records:?}");
}
