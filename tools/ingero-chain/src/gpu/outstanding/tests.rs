use super::*;
use ingero_common::cuda_api::find;
use ingero_common::record::{Parsed, parse};

fn run(calls: &[&str]) -> bool {
    let mut drain = Outstanding::default();
    for (i, call) in calls.iter().enumerate() {
        let src = if call.contains(r#""op":"cu"#) && !call.contains(r#""op":"cuda"#) { "cuda" } else { "cudart" };
        let line = format!("{{\"src\":\"{src}\",{call}}}");
        let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
        let start_ns = i as u64 * 10;
        drain.add(&record, find(&record.src, &record.op), start_ns, start_ns + 5);
    }
    drain.is_drained()
}

const L7: &str = r#""op":"cudaLaunchKernel","stream":"0x7""#;
const L9: &str = r#""op":"cudaLaunchKernel","stream":"0x9""#;
const L: &str = r#""op":"cudaLaunchKernel""#;
const S7: &str = r#""op":"cudaStreamSynchronize","stream":"0x7""#;
const S0: &str = r#""op":"cudaStreamSynchronize","stream":"0x0""#;
const D: &str = r#""op":"cudaDeviceSynchronize""#;
const SET: &str = r#""op":"cudaSetDevice","tid":1"#;

#[test]
fn only_what_was_waited_for_is_done() {
    assert!(!run(&[]));
    assert!(!run(&[L7]));
    assert!(run(&[L7, S7]));
    assert!(!run(&[L7, S7, L7]));
    assert!(!run(&[L7, L9, S7]));
    assert!(run(&[L7, L9, D]));
    assert!(run(&[L7, L9, r#""op":"cudaThreadSynchronize""#]));
    assert!(!run(&[L, S7]));
    assert!(run(&[L, S0]));
    assert!(!run(&[L7, r#""op":"cudaStreamSynchronize","stream":"0x7","ret":700"#]));
    assert!(!run(&[L7, r#""op":"cudaEventSynchronize""#]));
    assert!(run(&[L, r#""op":"cudaMemcpy","dir":"d2h""#]));
    assert!(!run(&[L, r#""op":"cudaMemcpy","dir":"h2d""#]));
}

#[test]
fn events_cover_what_lies_before_them() {
    let record = |e: u32, s: u32| format!(r#""op":"cudaEventRecord","event":"0x{e}","stream":"0x{s}""#);
    let waits = |e: u32, s: u32| format!(r#""op":"cudaStreamWaitEvent","event":"0x{e}","stream":"0x{s}""#);
    let sync = |e: u32| format!(r#""op":"cudaEventSynchronize","event":"0x{e}""#);
    assert!(run(&[L7, &record(1, 7), &sync(1)]));
    assert!(!run(&[&record(1, 7), L7, &sync(1)]), "the launch came after it");
    assert!(!run(&[L7, &record(1, 7), &sync(2)]), "another event");
    assert!(!run(&[L7, &record(1, 7), L7, &sync(1)]));
    assert!(!run(&[L7, &record(1, 7), L9, &sync(1)]), "another stream");
    assert!(run(&[L7, &record(1, 7), &waits(1, 9), L9, &record(2, 9), &sync(2)]), "one follows the other");
    assert!(run(&[L7, &record(1, 7), &waits(1, 9), L9, r#""op":"cudaStreamSynchronize","stream":"0x9""#]));
    assert!(!run(&[L7, &record(1, 7), L9, &record(2, 9), &waits(1, 9), &sync(2)]), "it was made to wait later");
    let query = |ret: i32| format!(r#""op":"cudaEventQuery","event":"0x1","ret":{ret}"#);
    assert!(run(&[L7, &record(1, 7), &query(0)]) && !run(&[L7, &record(1, 7), &query(600)]));
    assert!(run(&[L7, r#""op":"cudaStreamQuery","stream":"0x7","ret":0"#]));
    assert!(!run(&[L7, r#""op":"cudaStreamQuery","stream":"0x7""#]), "what it heard is not on record");
}

fn may_wait(calls: &[(&str, usize)], then: &str) -> bool {
    let mut drain = Outstanding::default();
    let mut at_ns = 0;
    let mut record = |call: &str, add: bool| {
        let line = format!("{{\"src\":\"cudart\",{call}}}");
        let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
        let class = find(&record.src, &record.op);
        let may = drain.may_wait(&record, class, at_ns);
        if add {
            drain.add(&record, class, at_ns, at_ns + 5);
        }
        at_ns += 10;
        may
    };
    for &(call, n) in calls {
        (0..n).for_each(|_| _ = record(call, true));
    }
    record(then, false)
}

#[test]
fn a_launch_waits_for_room_only_where_the_queue_may_be_full() {
    let event = r#""op":"cudaEventSynchronize""#;
    assert!(may_wait(&[(L7, 512)], L7));
    assert!(!may_wait(&[(L7, 511)], L7));
    assert!(!may_wait(&[(L7, 5000)], L9), "another queue");
    assert!(!may_wait(&[(L7, 5000), (S7, 1), (L7, 300)], L7));
    assert!(!may_wait(&[(L7, 5000), (D, 1), (L7, 300)], L7));
    assert!(may_wait(&[(L7, 600), (S0, 1)], L7));
    assert!(!may_wait(&[(L7, 200), (event, 1), (L7, 200), (event, 1), (L7, 200)], L7));
    assert!(may_wait(&[(L7, 600), (event, 1)], L7), "the event may be an early one");
    assert!(!may_wait(&[(L7, 5000)], r#""op":"cudaMalloc""#));
}

#[test]
fn a_copy_waits_for_its_stream_where_it_was_not_waited_for() {
    let copy = |dir: &str| format!(r#""op":"cudaMemcpyAsync","dir":"{dir}","stream":"0x7""#);
    assert!(may_wait(&[(L7, 1)], &copy("d2h")) && may_wait(&[(L7, 1)], &copy("h2d")));
    assert!(may_wait(&[(L, 1)], &copy("d2h")), "behind the default stream");
    assert!(!may_wait(&[(L7, 1), (S7, 1)], &copy("d2h")));
    assert!(!may_wait(&[(L9, 1)], &copy("d2h")), "another stream");
    assert!(!may_wait(&[(L7, 1)], &copy("d2d")), "nothing of the host's");
}

#[test]
fn a_free_waits_for_what_was_enqueued_and_not_waited_for() {
    let free = r#""op":"cudaFree""#;
    assert!(may_wait(&[(L7, 1)], free));
    assert!(!may_wait(&[(L7, 1), (D, 1)], free));
    assert!(!may_wait(&[(L7, 1)], r#""op":"cudaFreeAsync","stream":"0x7""#), "ordered in its stream");
    assert!(may_wait(&[(L7, 1), (D, 1)], D), "a synchronise always may");
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    let launch = |tid| format!(r#""op":"cudaLaunchKernel","sym":"cudaLaunchKernel_ptsz","stream":"0x0","tid":{tid}"#);
    let sync = |tid| format!(r#""op":"cudaStreamSynchronize","stream":"0x2","tid":{tid}"#);
    let plain = r#""op":"cudaStreamSynchronize","stream":"0x0","tid":1"#;
    assert!(run(&[&launch(1), &sync(1)]));
    assert!(!run(&[&launch(1), &sync(2)]));
    assert!(!run(&[&launch(1), plain]));
    assert!(!run(&[&launch(1), &launch(2), &sync(2)]));
    assert!(run(&[&launch(1), &launch(2), D]));
    assert!(run(&[&launch(1), r#""op":"cudaMemcpy","sym":"cudaMemcpy_ptds","dir":"d2h","tid":1"#]));
}

#[test]
fn too_many_streams_prove_nothing_until_the_device_is_waited_for() {
    let launch = |n: usize| format!(r#""op":"cudaLaunchKernel","stream":"0x1{n}""#);
    let sync = |n: usize| format!(r#""op":"cudaStreamSynchronize","stream":"0x1{n}""#);
    let all = |streams: usize, last: &str| {
        let calls: Vec<String> = (0..streams).map(launch).chain((0..streams).map(sync)).collect();
        let calls: Vec<&str> = calls.iter().map(String::as_str).chain([last]).collect();
        run(&calls)
    };
    let get = r#""op":"cudaGetLastError""#;
    assert!(all(256, get) && !all(257, get) && all(257, D));
    // Those that have been waited for make room.
    let calls: Vec<String> = (0..300).flat_map(|n| [launch(n), sync(n)]).collect();
    assert!(run(&calls.iter().map(String::as_str).collect::<Vec<_>>()));
}

#[test]
fn what_a_query_heard_of_is_outstanding_until_something_was_waited_for() {
    let drained_after = |then: &str| {
        let mut drain = Outstanding::default();
        let mut at_ns = 0;
        for (call, heard) in [(L7, false), (S7, true), (then, false)] {
            let line = format!("{{\"src\":\"cudart\",{call}}}");
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            drain.add(&record, find(&record.src, &record.op), at_ns, at_ns + 5);
            at_ns += 10;
            if heard {
                assert!(drain.is_drained() && drain.is_drained_on_record());
                drain.has_unrecorded();
                assert!(!drain.is_drained() && drain.is_drained_on_record());
            }
        }
        drain.is_drained()
    };
    assert!(drained_after(S7) && drained_after(D) && drained_after(r#""op":"cudaEventQuery","ret":0"#));
    assert!(!drained_after(r#""op":"cudaMalloc""#) && !drained_after(r#""op":"cudaEventQuery","ret":600"#));
}

#[test]
fn waiting_for_one_of_several_devices_proves_nothing() {
    assert!(run(&[SET, SET, L, D]), "chosen at the start");
    assert!(!run(&[SET, L, SET, L, D]));
    assert!(!run(&[SET, L, SET, L, S0]));
    assert!(!run(&[L, r#""op":"cuCtxPushCurrent","tid":1"#, D]));
    assert!(!run(&[SET, r#""op":"cudaSetDevice","tid":2"#, L, D]), "two threads choose");
    let set = |device: u32, tid: u32| format!(r#""op":"cudaSetDevice","tid":{tid},"device":{device}"#);
    assert!(run(&[&set(0, 1), L, &set(0, 2), L, D]), "the same device, whoever chooses it and when");
    assert!(!run(&[&set(0, 1), L, &set(1, 1), L, D]));
    assert!(run(&[SET, L7, SET, S7]), "a handle is of one device");
    assert!(!run(&[SET, L7, SET, L, S7]));
}

#[test]
fn a_wait_that_began_before_the_launch_does_not_cover_it() {
    let mut drain = Outstanding::default();
    let line = format!("{{\"src\":\"cudart\",{L7}}}");
    let Parsed::Record(launch) = parse(line.as_bytes()) else { panic!() };
    drain.add(&launch, find("cudart", "cudaLaunchKernel"), 50, 55);
    let line = format!("{{\"src\":\"cudart\",{S7}}}");
    let Parsed::Record(sync) = parse(line.as_bytes()) else { panic!() };
    drain.add(&sync, find("cudart", "cudaStreamSynchronize"), 0, 100);
    assert!(!drain.is_drained());
    drain.add(&sync, find("cudart", "cudaStreamSynchronize"), 110, 120);
    assert!(drain.is_drained());
}
