//! Where the loop of a process begins: pauses of its start, and what only looks like one.

use serde_json::{Value, json};

use crate::support::{self, MS, class_ns};

/// A watched process that initialises CUDA, tries two kernels, pauses for `pause_ms`, and then does `steps` steps of 4 ms, each after waiting
/// `wait_ms` for its data; nobody is seen waking it.
fn report(pause_ms: u64, steps: u64, wait_ms: u64) -> Vec<Value> {
    report_from(&[], Some(("cuInit", 100)), pause_ms, steps, wait_ms)
}

/// The same after the records `before`, beginning with the call `first` of so many milliseconds.
fn report_from(before: &[Value], first: Option<(&str, u64)>, pause_ms: u64, steps: u64, wait_ms: u64) -> Vec<Value> {
    let mut lines = before.to_vec();
    lines.append(&mut support::watched(1000));
    let mut call = |op: &str, mono_ns: u64, dur_ns: u64| {
        let mut call = support::call(op, 100, mono_ns, dur_ns);
        call["src"] = json!(if op.starts_with("cuda") { "cudart" } else { "cuda" });
        lines.push(call);
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
    lines.push(support::end(t * MS));
    support::report(&[], &lines)
}

/// Milliseconds of lost time, and those before the loop.
fn lost_and_start_up_ms(records: &[Value]) -> (u64, u64) {
    (support::gaps_ns(records) / MS, class_ns(records, "start_up") / MS)
}

/// torch.compile took 25 s before 2,000 steps without a gap.
#[test]
fn a_pause_before_a_lasting_rhythm_is_start_up() {
    // From the beginning of cuInit to the end of the pause.
    assert_eq!(lost_and_start_up_ms(&report(700, 100, 0)), (0, 100 + 3 + 700));
}

/// A loader with twelve workers: all seven batches came at once, after 20 s.
#[test]
fn a_pause_before_a_handful_of_steps_is_lost_time() {
    // The second of the two launches was a warm one.
    assert_eq!(lost_and_start_up_ms(&report(700, 7, 0)), (700, 100 + 1));
}

#[test]
fn a_pause_whose_like_comes_again_is_lost_time() {
    // The first of them has a wait of its own behind it: 700 + 80 ms.
    assert_eq!(lost_and_start_up_ms(&report(700, 100, 80)), (700 + 100 * 80, 100 + 1));
}

/// A tenth of it does not come again; what does come counts.
#[test]
fn start_up_does_not_hide_smaller_gaps_after_it() {
    assert_eq!(lost_and_start_up_ms(&report(7000, 100, 40)), (99 * 40, 100 + 3 + 7040));
}

/// A process that was running before has its rhythm already, whatever the recording begins with.
#[test]
fn without_its_start_a_process_has_no_pause_of_it() {
    for first in [None, Some(("cudaMalloc", 5)), Some(("cuInit", 0)), Some(("cudaSetDevice", 0))] {
        let before_ms = first.map_or(0, |(_, ms)| ms);
        assert_eq!(lost_and_start_up_ms(&report_from(&[], first, 700, 100, 0)), (700, before_ms + 1), "{first:?}");
    }
    for first in [("cudaSetDevice", 100), ("cuCtxCreate", 100), ("cuDevicePrimaryCtxRetain", 100), ("cudaMalloc", 150)]
    {
        let records = report_from(&[], Some(first), 700, 100, 0);
        assert_eq!(lost_and_start_up_ms(&records), (0, first.1 + 3 + 700), "{first:?}");
    }
}

/// A birth is a start if the tracer of CUDA calls was there, and if what follows was not cut away.
#[test]
fn a_fork_on_record_is_a_start() {
    let tracer = |at_ms| json!({"src":"ingero","op":"start","tool":"ingero-cuda","mono_ns":at_ms * MS,"filter":{}});
    let join = |filter| json!({"src":"ingero","op":"start","tool":"ingero-join","mono_ns":800 * MS,"filter":filter});
    let fork =
        json!({"src":"sched","op":"sched_process_fork","mono_ns":900 * MS,"pid":1,"tid":1,"comm":"sh","child_pid":100});
    for (before, is_start) in [
        (vec![tracer(800), fork.clone()], true),
        (vec![join(json!({"window_ns":1})), tracer(800), fork.clone()], true),
        (vec![tracer(950), fork.clone()], false),
        (vec![join(json!({"since":"2s"})), tracer(800), fork.clone()], false),
        (vec![fork], false),
    ] {
        let expected = if is_start { (0, 703) } else { (700, 1) };
        assert_eq!(lost_and_start_up_ms(&report_from(&before, None, 700, 100, 0)), expected, "{before:?}");
    }
}

/// The wait that comes before the loop is known is in the sums: of 12 s of imports only the pause is not.
#[test]
fn imports_do_not_dilute_what_the_loop_loses() {
    let account = |pause_ms| support::found(&report(pause_ms, 200, 40), "account").remove(0);
    let (short, long) = (account(10_000), account(60_000));
    assert_eq!((&short["loop_ns"], &short["lost_share"]), (&long["loop_ns"], &long["lost_share"]), "{long}");
    assert_eq!(long["lost_ns"], json!(199 * 40 * MS), "{long}");
    assert!(long["lost_share"].as_f64().unwrap() > 0.9, "{long}");
}
