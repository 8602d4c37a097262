use super::*;
use crate::input::ingest::Engine;
use crate::report::Wanted;
use crate::testing::{Stream, engine, feed, found};

fn process(engine: &Engine) -> &CudaProcess {
    engine.cuda.values().next().unwrap()
}

#[test]
fn names_beyond_the_bounds_are_not_told_apart() {
    let mut stream = Stream::watched();
    for n in 0..5_000_u32 {
        stream.call_of(n, &format!("cudaOperation{n}"), u64::from(n), 1, "");
    }
    for n in 0..600 {
        stream.put(6_000, 0, &format!(r#""src":"cudart","op":"cudaEntry{n}","pid":100,"tid":1,"comm":"t""#));
    }
    for tid in 0..1_100 {
        stream.call_of(tid, "ncclAllReduce", 7_000, 10, r#","open":true"#);
    }
    let engine = engine(&stream.lines, false);
    let process = process(&engine);
    assert_eq!((process.seen.threads.len(), process.seen.ops.len()), (4_096, 4_096));
    assert_eq!((process.entries.len(), process.open.len()), (512, 1_024));
}

/// With more threads that work than can be told apart, nobody is taken for one that only asks.
#[test]
fn looks_count_as_calls_where_too_many_threads_work() {
    let gaps = |workers: u32| {
        let mut stream = Stream::watched();
        for tid in 1_000..1_000 + workers {
            stream.call_of(tid, "cudaLaunchKernel", u64::from(tid) * 2, 2, "");
        }
        stream.call_of(1, "cudaGetLastError", 15_000, 2, "");
        stream.call_of(1_000, "cudaLaunchKernel", 25_000, 10, "");
        stream.end(25_010);
        let report = stream.report();
        found(&report, crate::report::model::Kind::Gap)[0].lost.n
    };
    assert_eq!((gaps(4_095), gaps(4_096)), (1, 2));
}

/// Far more pieces than are kept one by one come before anything is counted: where the loop begins stays exact.
#[test]
fn a_loop_of_very_many_calls_begins_at_its_first_warm_launch() {
    let mut engine = Engine::default();
    let mut call = |start_ns: u64, dur_ns: u64| {
        let line = format!(
            r#"{{"src":"cudart","op":"cudaLaunchKernel","mono_ns":{start_ns},"dur_ns":{dur_ns},"pid":7,"tid":7,"func":"0x1","ret":0}}"#
        );
        feed(&mut engine, &line);
    };
    call(1_000_000, 3_000_000);
    let calls = crate::limits::MAX_FINE as u64;
    (0..calls).for_each(|n| call(5_000_000 + n * 20_000, 7_000 + n % 3));
    engine.end();
    let account = &engine.report(Wanted::default()).accounts[0];
    let enqueue_ns: u64 = (0..calls).map(|n| 7_000 + n % 3).sum();
    assert_eq!((account.loop_mono_ns, account.classes.get(Class::Enqueue)), (5_000_000, enqueue_ns));
    assert_eq!(account.classes.get(Class::StartUp), 4_000_000);
}
