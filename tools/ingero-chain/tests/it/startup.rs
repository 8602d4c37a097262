//! A pause before the working rhythm, and what only looks like one.

use crate::support::{chain, text};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// A watched process that initialises CUDA, tries two kernels, pauses for `pause_ms`, and then does `steps` steps of 4 ms, each after waiting
/// `wait_ms` for its data; nobody is seen waking it.
fn report(pause_ms: u64, steps: u64, wait_ms: u64) -> Vec<Value> {
    report_from(&[], Some(("cuInit", 100)), pause_ms, steps, wait_ms)
}

/// The same after the records `before`, beginning with the call `first` of so many milliseconds.
fn report_from(before: &[Value], first: Option<(&str, u64)>, pause_ms: u64, steps: u64, wait_ms: u64) -> Vec<Value> {
    let mut lines = before.to_vec();
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    let mut call = |op: &str, mono_ns: u64, dur_ns: u64| {
        lines.push(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0,"func":"0x1"}));
    };
    if let Some((op, dur_ms)) = first {
        call(op, 1000 * MS - dur_ms * MS, dur_ms * MS);
    }
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

/// A process that was running before has its rhythm already, whatever the recording begins with.
#[test]
fn without_its_start_a_process_has_no_start_up() {
    for first in [None, Some(("cudaMalloc", 5)), Some(("cuInit", 0)), Some(("cudaSetDevice", 0))] {
        let records = report_from(&[], first, 700, 100, 0);
        assert_eq!(lost_ms(&records), 700, "{first:?} {records:?}");
        assert_eq!(records.last().unwrap()["start_up_ns"], 0);
    }
    for first in [("cudaSetDevice", 100), ("cuCtxCreate", 100), ("cuDevicePrimaryCtxRetain", 100), ("cudaMalloc", 150)]
    {
        let records = report_from(&[], Some(first), 700, 100, 0);
        assert_eq!((lost_ms(&records), &records.last().unwrap()["start_up_ns"]), (0, &json!(700 * MS)), "{first:?}");
    }
}

/// A birth is a start if the tracer of CUDA calls was there, and if what follows was not cut away.
#[test]
fn a_fork_on_record_is_a_start() {
    let tracer = |at_ms| json!({"src":"ingero","op":"start","tool":"ingero-cuda","mono_ns":at_ms * MS,"filter":{}});
    let join = |filter| json!({"src":"ingero","op":"start","tool":"ingero-join","mono_ns":800 * MS,"filter":filter});
    let fork =
        json!({"src":"sched","op":"sched_process_fork","mono_ns":900 * MS,"pid":1,"tid":1,"comm":"sh","child_pid":100});
    for (before, start_up_ms) in [
        (vec![tracer(800), fork.clone()], 700),
        (vec![join(json!({"window_ns":1})), tracer(800), fork.clone()], 700),
        (vec![tracer(950), fork.clone()], 0),
        (vec![join(json!({"since":"2s"})), tracer(800), fork.clone()], 0),
        (vec![fork], 0),
    ] {
        let records = report_from(&before, None, 700, 100, 0);
        assert_eq!(records.last().unwrap()["start_up_ns"], start_up_ms * MS, "{before:?}");
        assert_eq!(lost_ms(&records), 700 - start_up_ms);
    }
}
