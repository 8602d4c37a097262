//! What is told of the GPU in a gap: that it waited beyond doubt, that it may have, or that it was at work.

use crate::support::{chain, text};
use serde_json::{Value, json};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// One call of a step: thread, operation, microseconds, and what else is in its record.
type Call = (u32, &'static str, u64, Value);

/// The report on a watched process of which each of 40 steps makes the calls of `step` and then prepares its data for 50 ms.
fn report(step: &[Call]) -> (Vec<Value>, Value) {
    let mut lines = Vec::new();
    for stream in ["cuda", "sched"] {
        lines.push(json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"comm":"train","stream":stream}));
    }
    let mut now_ns = 1000 * MS;
    for _ in 0..40 {
        // Most of its calls follow one another at once.
        for n in 0..20 {
            let func = json!({"src":"cudart","op":"cudaFuncGetAttributes","mono_ns":now_ns + n * 4 * US,"dur_ns":2 * US,
                "pid":100,"tid":100,"comm":"train","ret":0,"depth":0});
            lines.push(func);
        }
        now_ns += 80 * US;
        for (tid, op, dur_us, more) in step {
            let mut call = json!({"src":"cudart","op":op,"mono_ns":now_ns,"dur_ns":dur_us * US,"pid":100,"tid":tid,
                "comm":"train","ret":0,"depth":0,"func":"0x1"});
            call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            if call["wait"] == json!(true) {
                now_ns += 50 * MS;
                call["mono_ns"] = json!(now_ns);
            }
            lines.push(call);
            now_ns += dur_us * US + 2 * US;
        }
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":now_ns}));
    let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
    let out = chain(&[], &stream);
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
    let mut records: Vec<Value> = text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = records.pop().unwrap();
    (records.into_iter().filter(|r| r["op"] == "gap").collect(), summary)
}

/// How many gaps, and whether they are proven.
fn gaps(step: &[Call]) -> (u64, bool) {
    let (gaps, summary) = report(step);
    let n = gaps.iter().map(|gap| gap["n"].as_u64().unwrap()).sum();
    assert_eq!(summary["gpu_busy_ns"], 0, "{summary}");
    (n, gaps.iter().any(|gap| gap["proven"] == true))
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
    assert!(n >= 39 && proven, "{n} {proven}");
}

/// Somebody must have enqueued something that is not on record: the time is an upper bound.
#[test]
fn a_query_that_is_not_ready_after_the_drain_leaves_it_open() {
    let (n, proven) = gaps(&step((100, "cudaEventQuery", 2, json!({"ret":600}))));
    assert!(n >= 38 && !proven, "{n} {proven}");
}

#[test]
fn what_is_outstanding_keeps_the_gpu_busy() {
    let step = [
        call(100, "cudaStreamSynchronize", 10),
        call(100, "cudaLaunchKernel", 5),
        after_data(call(100, "cudaStreamSynchronize", 1500)),
    ];
    let (gaps, summary) = report(&step);
    assert!(gaps.is_empty(), "{gaps:?}");
    assert!(summary["gpu_busy_ns"].as_u64().unwrap() >= 39 * 50 * MS, "{summary}");
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
    assert!(own.0 >= 39 && own.1, "{own:?}");
    assert!(others.0 >= 39 && !others.1, "{others:?}");
}

#[test]
fn another_device_was_not_waited_for() {
    let launch = || call(100, "cudaLaunchKernel", 5);
    let set = || call(100, "cudaSetDevice", 1);
    for wait in ["cudaStreamSynchronize", "cudaDeviceSynchronize"] {
        let step = [set(), launch(), set(), launch(), call(100, wait, 900), after_data(call(100, "cudaMalloc", 5))];
        let (n, proven) = gaps(&step);
        assert!(n >= 39 && !proven, "{wait} {n} {proven}");
    }
    let step = [(100, "cuCtxCreate", 5, json!({"src":"cuda"})), launch(), call(100, "cudaDeviceSynchronize", 900)];
    let step = [&step[..], &[after_data(call(100, "cudaMalloc", 5))]].concat();
    let (gaps, _) = report(&step);
    // Only the first step has a single context.
    assert!(gaps.iter().all(|gap| gap["proven"] == false), "{gaps:?}");
}
