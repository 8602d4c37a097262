use super::*;
use crate::blame::breakdown::Cause;
use crate::report::model::{Kind, Report};
use crate::testing::{MS, Stream, US, engine, found};

/// Two launches and a synchronise that ends at 1 ms: the GPU is idle from there on.
fn idle_from_1_ms() -> Stream {
    let mut stream = Stream::watched();
    stream.launches(0);
    stream.call("cudaDeviceSynchronize", 40, 960);
    stream
}

/// The same, and the GPU may have work from 1 ms on.
fn silent_from_1_ms() -> Stream {
    let mut stream = Stream::watched();
    stream.launches(0);
    stream.call("cudaLaunchKernel", 40, 960);
    stream
}

fn loses(stream: &mut Stream, at_us: u64, dur_us: u64, rest: &str) {
    stream.put(at_us, dur_us, &format!(r#""src":"ingero","op":"lost","stream":"cuda"{rest}"#));
}

/// Microseconds idle, silent, not judged.
fn judged(stream: &Stream) -> (u64, u64, u64) {
    let classes = stream.report().accounts[0].classes;
    let us = |class| classes.get(class) / US;
    (us(Class::Idle), us(Class::Silence), us(Class::NotJudged))
}

fn gap(report: &Report) -> (u64, u64, String) {
    let gaps = found(report, Kind::Gap);
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    (gaps[0].lost.n, gaps[0].lost.lost_ns / US, gaps[0].call.call.raw().to_owned())
}

/// The example at the head of this file.
#[test]
fn idle_time_is_one_interval_across_calls_and_is_named_by_the_next_work() {
    let mut stream = idle_from_1_ms();
    stream.call("cudaMalloc", 3_000, 2_000);
    stream.call("cudaEventRecord", 7_000, 10);
    stream.call("cudaLaunchKernel", 9_000, 10);
    // Two silences, and what ends the first is no work.
    stream.call("cudaEventCreate", 12_000, 10);
    stream.call("cudaMemsetAsync", 15_000, 10);
    stream.end(15_010);
    let report = stream.report();
    assert_eq!(judged(&stream), (8_000, 2_990 + 2_990, 0));
    let gaps = found(&report, Kind::Gap);
    let told: Vec<_> = gaps.iter().map(|gap| (gap.call.call.raw(), gap.lost.n, gap.lost.lost_ns / US)).collect();
    assert_eq!(told, [("cudaLaunchKernel", 1, 8_000), ("cudaMemsetAsync", 2, 5_980)]);
    let [cuda_call, host_cpu] = &gaps[0].lost.causes[..] else { panic!("{:?}", gaps[0].lost.causes) };
    assert_eq!((host_cpu.cause, host_cpu.ns / US), (Cause::CudaCall, 2_010), "{cuda_call:?}");
    assert_eq!(
        host_cpu.ops.iter().map(|op| (op.op.raw(), op.ns / US)).collect::<Vec<_>>(),
        [("cudaMalloc", 2_000), ("cudaEventRecord", 10)]
    );
    assert_eq!(report.accounts[0].steps.map(|steps| steps.n), Some(1));
}

/// A stretch in which `m` calls are missing is a silence if its parts would still be silences.
#[test]
fn silence_with_missing_calls_in_it_is_judged_if_it_would_still_be_one() {
    let with = |count: &str, sampled: bool| {
        let mut stream = silent_from_1_ms();
        let why = if sampled { "sampled" } else { "ring_full" };
        loses(&mut stream, 2_000, 1_000, &format!(r#","why":"{why}"{count}"#));
        stream.call("cudaLaunchKernel", 11_000, 10);
        stream.end(11_010);
        judged(&stream)
    };
    assert_eq!(with(r#","count":0"#, true), (0, 10_000, 0));
    // Ten milliseconds in ten parts are silences of 1 ms, in eleven they are none.
    assert_eq!((with(r#","count":9"#, true), with(r#","count":10"#, true)), ((0, 10_000, 0), (0, 0, 10_000)));
    // What is lost in one go lies before the end of the loss, in 2 ms here: one call is 1 ms each, two are not.
    assert_eq!((with(r#","count":1"#, false), with(r#","count":2"#, false)), ((0, 10_000, 0), (0, 8_000, 2_000)));
    assert_eq!(with("", false), (0, 8_000, 2_000), "nobody knows how many");
}

/// A call that is missing may have given the GPU work, on any stream: nothing is known until work that is on record has been
/// waited for.
#[test]
fn a_loss_casts_doubt_on_idle_time_until_work_was_waited_for_again() {
    let mut stream = idle_from_1_ms();
    stream.call("cudaMalloc", 5_000, 1_000);
    loses(&mut stream, 5_500, 100, r#","why":"ring_full","count":1"#);
    stream.call("cudaMalloc", 9_000, 1_000);
    stream.call("cudaDeviceSynchronize", 12_000, 100);
    stream.call("cudaLaunchKernel", 15_100, 10);
    stream.call("cudaDeviceSynchronize", 15_110, 90);
    stream.call("cudaLaunchKernel", 17_200, 10);
    stream.end(17_210);
    // Idle from 1 to 5 ms; the calls are memory then, the time between them silence; idle after the second synchronise.
    assert_eq!(judged(&stream), (4_000 + 2_000, 3_000 + 2_000 + 3_000, 0));
    assert_eq!(stream.class_us(Class::Memory), 2_000);
    let report = stream.report();
    assert_eq!(gap(&report), (5, 14_000, "cudaLaunchKernel".into()));
    assert_eq!(found(&report, Kind::Gap)[0].extra.proven_ns, Some(6 * MS));
    // Whose it was matters.
    let at = stream.lines.iter().position(|line| line.contains("ring_full")).unwrap();
    stream.lines[at] = stream.lines[at].replace(r#""count":1"#, r#""count":1,"pid":7"#);
    assert_eq!(judged(&stream), (14_100 + 2_000, 0, 0));
}

/// A query of a thread that does nothing else divides no silence.
#[test]
fn looks_divide_nothing() {
    let mut stream = silent_from_1_ms();
    for at_us in (1_500..20_000).step_by(500) {
        stream.call_of(101, "cudaGetLastError", at_us, 2, "");
    }
    stream.call("cudaLaunchKernel", 21_000, 10);
    stream.end(21_010);
    assert_eq!(gap(&stream.report()), (1, 20_000, "cudaLaunchKernel".into()));
}

#[test]
fn a_look_that_lasts_is_a_call() {
    let with = |len_us: u64| {
        let mut stream = silent_from_1_ms();
        stream.call_of(101, "cudaGetLastError", 5_000, len_us, "");
        stream.call("cudaLaunchKernel", 21_000, 10);
        stream.end(21_010);
        (gap(&stream.report()).0, stream.class_us(Class::OtherCall))
    };
    assert_eq!((with(999), with(1_000)), ((1, 0), (2, 1_000)));
}

/// The GPU is known to have been busy if the driver's counter says so all the time, and nobody else used it.
#[test]
fn a_counter_that_says_busy_all_the_time_takes_silence_back() {
    let with = |samples: &[(u64, u64, u32)], others: bool| {
        let mut stream = Stream::watched();
        stream.launches(0);
        if others {
            stream.put(30, 1, r#""src":"cudart","op":"cudaMalloc","pid":7,"tid":7,"comm":"x","depth":0"#);
        }
        stream.call("cudaLaunchKernel", 8_000_000, 10);
        for &(at_us, len_us, pct) in samples {
            stream.put(at_us, len_us, &format!(r#""src":"sys","op":"sample","gpu":[{{"util_pct":{pct}}}]"#));
        }
        stream.end(8_000_010);
        let engine = engine(&stream.lines, false);
        let process = engine.cuda.values().find(|process| process.pid == 100).unwrap();
        let tail = crate::process::Tail::ShutDown;
        let account = process.account(crate::testing::BASE_NS, tail, (engine.sources(), &engine.cuda_losses));
        (account.classes.get(Class::Silence) / US, account.busy_ns / US)
    };
    let all = 7_999_970;
    let each_second = |pct| (0..11).map(|s| (s * 1_000_000, 1_000_000, pct)).collect::<Vec<_>>();
    assert_eq!((with(&[], false), with(&each_second(95), false)), ((all, 0), (0, all)));
    assert_eq!((with(&each_second(94), false), with(&each_second(95), true)), ((all, 0), (all, 0)));
    let mut once = each_second(100);
    once[4].2 = 90;
    assert_eq!(with(&once, false), (all, 0));
    assert_eq!(with(&each_second(100)[..4], false), (all, 0), "half of it was sampled");
}

#[test]
fn calls_of_an_idle_interval_beyond_the_bound_are_the_threads_own_time() {
    let mut stream = idle_from_1_ms();
    (0..300).for_each(|n| stream.call("cudaMalloc", 1_000 + 10 * n, 10));
    stream.call("cudaLaunchKernel", 4_000, 10);
    stream.end(4_010);
    let report = stream.report();
    let causes = &found(&report, Kind::Gap)[0].lost.causes;
    let told: Vec<_> = causes.iter().map(|line| (line.cause, line.ns / US)).collect();
    assert_eq!(told, [(Cause::CudaCall, 2_560), (Cause::HostCpu, 440)]);
}

#[test]
fn intervals_that_wait_too_long_for_work_are_named_by_their_own_calls() {
    let told = |silences: u64| {
        let mut stream = silent_from_1_ms();
        // A silence and a call in turn: two entries for each, which wait for the next work.
        let mut at_us = 1_000;
        for _ in 0..silences {
            at_us += 2_000;
            stream.call("cudaMalloc", at_us, 10);
            at_us += 10;
        }
        stream.call("cudaLaunchKernel", at_us, 10);
        stream.end(at_us + 10);
        let report = stream.report();
        let gaps = found(&report, Kind::Gap).into_iter();
        gaps.map(|gap| (gap.call.call.raw().to_owned(), gap.lost.n)).collect::<Vec<_>>()
    };
    assert_eq!(told(2_000), [("cudaLaunchKernel".to_owned(), 2_000)]);
    assert_eq!(told(2_100), [("cudaMalloc".to_owned(), 2_048), ("cudaLaunchKernel".to_owned(), 52)]);
}
