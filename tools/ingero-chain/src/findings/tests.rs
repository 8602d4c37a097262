//! What is found from when on.

use super::severity::{Certainty, Severity};
use crate::report::model::{Kind, Report};
use crate::testing::{MS, Stream, US, found};

/// Launches of 100 us that follow one another without a pause, from `from_us` to `to_us`.
fn busy(stream: &mut Stream, from_us: u64, to_us: u64) {
    (from_us..to_us).step_by(100).for_each(|at_us| stream.call("cudaLaunchKernel", at_us, 100));
}

/// Calls of the scheduler tracer's: what was said of a call by ingero-join, on a CPU all the time.
const ON_CPU: &str = r#","host":{"off_ns":0,"sleep_ns":0,"watched":true}"#;

#[test]
fn severity_goes_by_the_share_of_the_loop() {
    let of = |share| Severity::of(share).map_or("nothing", Severity::name);
    for (share, want) in
        [(0.0099, "nothing"), (0.01, "low"), (0.0499, "low"), (0.05, "medium"), (0.1999, "medium"), (0.20, "high")]
    {
        assert_eq!(of(share), want, "{share}");
    }
    assert_eq!(Severity::judge(0.9, Certainty::Doubtful), Some(Severity::Low));
    assert_eq!(Severity::judge(0.009, Certainty::Doubtful), None);
    // What came before the loop does not count: 10 s of imports, and 1 ms of 10 lost.
    let mut stream = Stream::watched();
    stream.call("cudaMalloc", 0, 10);
    stream.launches(10_000_000);
    stream.call("cudaDeviceSynchronize", 10_000_040, 8_960);
    stream.call("cudaLaunchKernel", 10_010_000, 10);
    stream.end(10_010_010);
    let gap = found(&stream.report(), Kind::Gap)[0].clone();
    assert_eq!((gap.severity, (gap.lost.lost_share * 100.0).round() as u64), (Severity::Medium, 10));
}

#[test]
fn a_total_is_told_of_where_no_kind_of_call_has_it_all() {
    // Idle before a launch for some time, before a memset for the rest.
    let total = |launch_us: u64, set_us: u64| {
        let mut stream = Stream::watched();
        stream.launches(0);
        let mut at_us = 1_000;
        for (op, idle_us) in [("cudaLaunchKernel", launch_us), ("cudaMemsetAsync", set_us)] {
            stream.call("cudaDeviceSynchronize", at_us, 10);
            at_us += 10 + idle_us;
            stream.call(op, at_us, 10);
            at_us += 10;
        }
        stream.end(at_us);
        let report = stream.report();
        found(&report, Kind::Total).first().map(|total| (total.lost.n, total.lost.lost_ns / US, total.extra.kinds))
    };
    assert_eq!(total(9_490, 510), Some((2, 10_000, Some(2))));
    assert_eq!(total(9_510, 490), None, "95 % are before one of them");
}

/// `n` frees of 10 us while the GPU has work, and slow ones of so many microseconds.
fn frees(n: u64, slow_us: &[u64]) -> Report {
    let mut stream = Stream::watched();
    stream.launches(0);
    // The first of its kind is cold.
    stream.call_of(100, "cudaFreeAsync", 50, 10, ON_CPU);
    let mut at_us = 100;
    for dur_us in std::iter::repeat_n(100, n as usize).chain(slow_us.iter().copied()) {
        stream.call_of(100, "cudaFreeAsync", at_us, dur_us, ON_CPU);
        at_us += dur_us;
    }
    stream.call("cudaLaunchKernel", at_us, 10);
    stream.end(at_us + 10);
    stream.report()
}

#[test]
fn only_calls_far_beyond_the_median_are_slow() {
    let slow = |n, slow_us: &[u64]| {
        let report = frees(n, slow_us);
        found(&report, Kind::SlowCall).first().map(|slow| (slow.lost.n, slow.lost.lost_ns / US))
    };
    // The median is 100 us: three times that.
    assert_eq!((slow(20, &[301]), slow(20, &[300])), (Some((1, 201)), None));
    assert_eq!(
        (slow(4, &[900]), slow(3, &[900])),
        (Some((1, 800)), None),
        "of fewer than five the median says nothing"
    );
    // Where calls take 10 us, 100 us more.
    let of_short = |slow_us| {
        let mut stream = Stream::watched();
        stream.launches(0);
        for n in 0..21 {
            stream.call_of(100, "cudaFreeAsync", 50 + 10 * n, 10, ON_CPU);
        }
        stream.call_of(100, "cudaFreeAsync", 300, slow_us, ON_CPU);
        stream.call("cudaLaunchKernel", 300 + slow_us, 10);
        stream.end(310 + slow_us);
        found(&stream.report(), Kind::SlowCall).len()
    };
    assert_eq!((of_short(111), of_short(110)), (1, 0));
}

#[test]
fn the_99th_percentile_needs_a_hundred() {
    let p99_ns = |n| found(&frees(n, &[900]), Kind::SlowCall)[0].times.as_ref().and_then(|times| times.p99_ns);
    assert_eq!((p99_ns(98), p99_ns(99)), (None, Some(100 * US)));
}

/// Launches of 10 us each 20 us, and every ms a synchronise of so many microseconds for which the GPU was ready.
fn synchronised(waits_us: &[u64], between_us: u64) -> Report {
    let mut stream = Stream::watched();
    stream.launches(0);
    stream.call("cudaDeviceSynchronize", 40, 10);
    let mut at_us = 100;
    for &wait_us in waits_us {
        for _ in 0..10 {
            stream.call("cudaLaunchKernel", at_us, 10);
            at_us += 20;
        }
        stream.call("cudaDeviceSynchronize", at_us, wait_us);
        at_us += wait_us + between_us;
    }
    stream.launches(at_us);
    stream.end(at_us + 30);
    stream.report()
}

#[test]
fn synchronises_that_hardly_wait_make_a_loop_launch_bound() {
    let bound = |waits_us: &[u64], between_us| {
        let report = synchronised(waits_us, between_us);
        found(&report, Kind::LaunchBound).first().map(|bound| (bound.severity.name(), bound.lost.lost_ns))
    };
    let remark = Some(("low", 0));
    // One more is at the beginning.
    assert_eq!((bound(&[49; 7], 0), bound(&[49; 6], 0)), (remark, None));
    assert_eq!((bound(&[50; 8], 0), bound(&[10; 30], 0)), (None, remark));
    // One of ten may wait.
    let mut waits = vec![10; 8];
    waits.push(200);
    assert_eq!(bound(&waits, 0), remark);
    waits.push(200);
    assert_eq!(bound(&waits, 0), None);
    // Launching takes 200 us of each step; where the rest is more, that is another story.
    assert_eq!((bound(&[10; 30], 150), bound(&[10; 30], 250)), (remark, None));
}

#[test]
fn host_calls_are_told_of_from_a_twentieth_of_the_loop_on() {
    let with = |each_us: u64| {
        let mut stream = Stream::watched();
        stream.call("cudaMalloc", 0, 1);
        stream.launches(100);
        for step in 0..100 {
            stream.call("cudaMalloc", 200 + step * 1_000, each_us);
            busy(&mut stream, 200 + step * 1_000 + each_us, 1_200 + step * 1_000);
        }
        stream.end(100_200);
        let report = stream.report();
        let told = found(&report, Kind::HostCalls);
        told.first().map(|calls| (calls.lost.n, calls.lost.lost_ns / US, calls.extra.ops[0].op.raw().to_owned()))
    };
    assert_eq!(with(100), Some((100, 10_000, "cudaMalloc".into())));
    assert_eq!(with(40), None);
}

#[test]
fn host_calls_list_so_many_operations() {
    let ops = [
        "cudaMalloc",
        "cudaMallocHost",
        "cudaMallocManaged",
        "cudaMallocPitch",
        "cudaMalloc3D",
        "cudaMallocArray",
        "cudaMalloc3DArray",
        "cudaMallocMipmappedArray",
        "cudaMallocAsync",
        "cudaHostAlloc",
        "cudaFree",
        "cudaFreeHost",
        "cudaFreeArray",
        "cudaFreeMipmappedArray",
        "cudaFreeAsync",
        "cudaHostRegister",
        "cudaHostUnregister",
        "cudaMemPoolTrimTo",
    ];
    let mut stream = Stream::watched();
    stream.launches(0);
    let mut at_us = 100;
    for op in ops.iter().chain(&ops) {
        stream.call(op, at_us, 400);
        at_us += 400;
    }
    stream.call("cudaLaunchKernel", at_us, 10);
    stream.end(at_us + 10);
    let report = stream.report();
    let calls = found(&report, Kind::HostCalls)[0];
    assert_eq!((calls.extra.ops.len(), calls.lost.n, calls.lost.lost_ns / US), (16, 36, 36 * 400));
}

#[test]
fn a_finding_lists_so_many_occurrences() {
    let mut stream = Stream::watched();
    stream.launches(0);
    for step in 0..1_100 {
        stream.call("cudaDeviceSynchronize", 100 + step * 1_000, 10);
        stream.call("cudaLaunchKernel", 600 + step * 1_000, 10);
    }
    // Each of two kinds of slow calls is kept up to 1,024 times.
    for n in 0..2_000 {
        stream.call_of(100, "cudaFreeAsync", 1_200_000 + n * 10, 5, ON_CPU);
    }
    (0..1_020).for_each(|n| stream.call_of(100, "cudaFreeAsync", 1_300_000 + n * 1_000, 900, ON_CPU));
    stream.call("cudaLaunchKernel", 2_400_000, 10);
    stream.end(2_400_010);
    let report = stream.report();
    assert_eq!(found(&report, Kind::SlowCall)[0].occurrences.len(), 1_000);
    // Of gaps the first are kept, the latest, and the longest: all of these are alike.
    assert_eq!(found(&report, Kind::Gap)[0].occurrences.len(), 528);
}

/// Steps of `step_ms`, then silence or a call that hangs, for so many milliseconds.
fn stopped(step_ms: u64, then_ms: u64, hangs: Option<&str>) -> Option<(&'static str, u64)> {
    let mut stream = Stream::watched();
    for step in 0..20 {
        stream.launches(step * step_ms * 1_000);
        stream.call("cudaDeviceSynchronize", step * step_ms * 1_000 + 40, 100);
        if let Some(op) = hangs {
            stream.call(op, step * step_ms * 1_000 + 200, 1_000);
        }
    }
    let at_us = 19 * step_ms * 1_000 + 1_300;
    if let Some(op) = hangs {
        stream.call_of(100, op, at_us, then_ms * 1_000, r#","open":true"#);
    }
    stream.end(at_us + then_ms * 1_000);
    let report = stream.report();
    found(&report, Kind::Stall).first().map(|stall| (stall.severity.name(), stall.lost.lost_ns / MS))
}

#[test]
fn a_stall_lasts() {
    assert_eq!(stopped(2, 1_998, None), None);
    assert_eq!(stopped(2, 2_000, None), Some(("high", 2_001)));
    // A call that hangs is worth a remark before.
    let hangs = |then_ms| stopped(2, then_ms, Some("ncclAllReduce"));
    assert_eq!((hangs(99), hangs(100)), (None, Some(("low", 100))));
    assert_eq!((hangs(1_999), hangs(2_000)), (Some(("low", 1_999)), Some(("high", 2_000))));
}

#[test]
fn a_stall_lasts_longer_than_anything_before() {
    // The GPU was idle for a second in each step.
    assert_eq!((stopped(1_000, 2_990, None), stopped(1_000, 3_010, None)), (None, Some(("medium", 3_011))));
}
