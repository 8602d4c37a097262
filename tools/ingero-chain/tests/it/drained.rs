//! What is told of the GPU in a gap: that it waited beyond doubt, that it may have, or that it was at work.

use serde_json::{Value, json};

use crate::support::{self, MS, class_ns, found};

const US: u64 = 1_000;

/// One call of a step: thread, operation, microseconds, and what else is in its record.
type Call = (u32, &'static str, u64, Value);

/// The report on a watched process of which each of 40 steps makes the calls of `step` and then prepares its data for 50 ms.
fn report(step: &[Call]) -> Vec<Value> {
    let mut lines = support::watched(1000);
    let mut now_ns = 1000 * MS;
    for _ in 0..40 {
        // Most of its calls follow one another at once.
        for n in 0..20 {
            lines.push(support::call("cudaFuncGetAttributes", 100, now_ns + n * 4 * US, 2 * US));
        }
        now_ns += 80 * US;
        for (tid, op, dur_us, more) in step {
            let mut call = support::call(op, *tid, now_ns, dur_us * US);
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            if call["wait"] == json!(true) {
                now_ns += 50 * MS;
                call["mono_ns"] = json!(now_ns);
            }
            lines.push(call);
            now_ns += dur_us * US + 2 * US;
        }
    }
    lines.push(support::end(now_ns));
    support::report(&[], &lines)
}

/// How many gaps, and whether they are proven.
fn gaps(step: &[Call]) -> (u64, bool) {
    let records = report(step);
    assert_eq!(records.last().unwrap()["gpu_busy_ns"], 0, "{records:?}");
    let gaps = found(&records, "gap");
    (gaps.iter().map(|gap| gap["n"].as_u64().unwrap()).sum(), gaps.iter().any(|gap| gap["proven"] == true))
}

fn call(tid: u32, op: &'static str, dur_us: u64) -> Call {
    (tid, op, dur_us, json!({}))
}

fn after_data(call: Call) -> Call {
    let (tid, op, dur_us, mut more) = call;
    more["wait"] = json!(true);
    (tid, op, dur_us, more)
}

fn step(last: Call) -> Vec<Call> {
    vec![call(100, "cudaLaunchKernel", 5), call(100, "cudaStreamSynchronize", 900), after_data(last)]
}

#[test]
fn a_second_wait_with_nothing_enqueued_since_the_first_is_overhead() {
    let on_cpu =
        json!({"host":{"off_ns":0,"preempted_ns":0,"runq_ns":0,"sleep_ns":0,"io_ns":0,"unknown_ns":0,"watched":true}});
    let (n, proven) = gaps(&step((100, "cudaStreamSynchronize", 250, on_cpu)));
    assert!(n >= 38 && proven, "{n} {proven}");
}

/// Somebody must have enqueued something that is not on record: the time is an upper bound.
#[test]
fn a_query_that_is_not_ready_after_the_drain_leaves_it_open() {
    let (n, proven) = gaps(&step((100, "cudaEventQuery", 2, json!({"ret":600}))));
    assert!(n >= 38 && !proven, "{n} {proven}");
}

/// A function of which nothing is known may be what gives the GPU work.
#[test]
fn what_is_in_no_table_ends_what_is_known() {
    let records = report(&step((100, "cudaLaunchSomethingNew", 1000, json!({}))));
    let per_step = |class| class_ns(&records, class) / 38 / US;
    assert!((1000..1100).contains(&per_step("other_call")), "{records:?}");
    // From each wait to the call are 50 ms, and some microseconds from the one after it to the next launch.
    assert!(class_ns(&records, "idle").abs_diff(39 * 50 * MS) < 2 * MS, "{records:?}");
}

#[test]
fn what_is_outstanding_keeps_the_gpu_busy() {
    let step = [
        call(100, "cudaStreamSynchronize", 10),
        call(100, "cudaLaunchKernel", 5),
        after_data(call(100, "cudaStreamSynchronize", 1500)),
    ];
    let records = report(&step);
    let gaps = found(&records, "gap");
    assert!(gaps.is_empty(), "{gaps:?}");
    assert!(records.last().unwrap()["gpu_busy_ns"].as_u64().unwrap() >= 39 * 50 * MS, "{records:?}");
    assert!(class_ns(&records, "between") >= 39 * 50 * MS, "{records:?}");
}

#[test]
fn another_threads_default_stream_was_not_waited_for() {
    let step = |syncs| {
        [
            (100, "cudaLaunchKernel", 5, json!({"stream":"0x0","sym":"cudaLaunchKernel_ptsz"})),
            (syncs, "cudaStreamSynchronize", 900, json!({"stream":"0x0","sym":"cudaStreamSynchronize_ptsz"})),
            after_data(call(100, "cudaMalloc", 5)),
        ]
    };
    let (own, others) = (gaps(&step(100)), gaps(&step(102)));
    assert!(own.0 >= 38 && own.1, "{own:?}");
    assert!(others.0 >= 38 && !others.1, "{others:?}");
}

#[test]
fn another_device_was_not_waited_for() {
    let launch = || call(100, "cudaLaunchKernel", 5);
    let set = || call(100, "cudaSetDevice", 1);
    for wait in ["cudaStreamSynchronize", "cudaDeviceSynchronize"] {
        let step = [set(), launch(), set(), launch(), call(100, wait, 900), after_data(call(100, "cudaMalloc", 5))];
        let (n, proven) = gaps(&step);
        assert!(n >= 38 && !proven, "{wait} {n} {proven}");
    }
    let step = [(100, "cuCtxCreate", 5, json!({"src":"cuda"})), launch(), call(100, "cudaDeviceSynchronize", 900)];
    let step = [&step[..], &[after_data(call(100, "cudaMalloc", 5))]].concat();
    // Only the first step has a single context.
    let records = report(&step);
    assert!(found(&records, "gap").iter().all(|gap| gap["proven"] == false), "{records:?}");
}

/// While the GPU is drained every call that gives it nothing to do lets it wait, whatever it does.
#[test]
fn a_call_that_keeps_a_drained_gpu_waiting_is_the_cause_of_its_idle_time() {
    let step = [
        call(100, "cudaLaunchKernel", 5),
        call(100, "cudaStreamSynchronize", 900),
        call(100, "cudaFree", 3000),
        call(100, "cudaMalloc", 1000),
    ];
    let records = report(&step);
    let gap = &found(&records, "gap")[0];
    assert_eq!((&gap["call"], &gap["proven"]), (&json!("cudaLaunchKernel"), &json!(true)), "{gap}");
    let line = &gap["causes"][0];
    assert_eq!(line["cause"], "cuda_call", "{gap}");
    let ops: Vec<_> = line["ops"].as_array().unwrap().iter().map(|op| op["op"].as_str().unwrap()).collect();
    assert_eq!(ops, ["cudaFree", "cudaMalloc", "cudaFuncGetAttributes"], "{gap}");
    assert_eq!((class_ns(&records, "memory"), found(&records, "slow_call").len()), (0, 0), "{records:?}");
}
