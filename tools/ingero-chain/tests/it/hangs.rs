//! Calls that hang, and processes that make none any more.

use serde_json::{Value, json};

use crate::support::{MS, Stream, chain, text};

#[test]
fn a_call_told_of_while_it_hangs_is_one_call() {
    let quiet = Stream::working();
    let before = quiet.clone().end(3001 * MS).report();
    assert_eq!(before.last().unwrap()["calls"], 2000);
    // Another thread asks every 100 ms meanwhile; the calls of the process don't stop being in flight.
    let polls = |mut s: Stream, from: u64, to: u64| {
        for t in (from..to).step_by(100) {
            s = s.call("cudaEventQuery", 101, t * MS, 1000);
        }
        s
    };
    let hung = polls(quiet.open("ncclAllReduce", 100, 3001 * MS, 10_000 * MS), 13_100, 30_000);
    let ended = hung.clone().call("ncclAllReduce", 100, 3001 * MS, 27_000 * MS).end(30_010 * MS);
    assert_eq!(ended.found("gap"), [] as [Value; 0], "a call was in flight all the time");
    assert_eq!(ended.found("stall"), [] as [Value; 0]);
    assert_eq!(ended.report().last().unwrap()["calls"], 2000 + 169 + 1);

    // It never returns: told of once at 10 s, and again when the tracer stops.
    let never = hung.clone().open("ncclAllReduce", 100, 3001 * MS, 27_000 * MS).end(30_001 * MS);
    let stalls = never.found("stall");
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    assert_eq!((&stalls[0]["call"], &stalls[0]["severity"]), (&json!("ncclAllReduce"), &json!("high")));
    assert_eq!(stalls[0]["lost_ns"], json!(27_000 * MS), "who only asks gets on with nothing");
    assert_eq!(never.found("gap"), [] as [Value; 0]);

    // The tracer is killed before: what it went through is known as far as it was told.
    let killed = hung.found("stall");
    assert_eq!(killed.len(), 1, "{killed:?}");
    assert!(killed[0]["lost_ns"].as_u64().unwrap() >= 10_000 * MS, "{killed:?}");
}

#[test]
fn a_thread_that_hangs_while_others_go_on_is_a_remark() {
    let mut s = Stream::working();
    for i in 0..1000 {
        s = s.call("cudaLaunchKernel", 101, (3001 + 5 * i) * MS, 10_000);
    }
    let s = s.open("ncclAllReduce", 100, 3001 * MS, 4999 * MS).end(8000 * MS);
    let stall = &s.found("stall")[0];
    assert_eq!((&stall["severity"], &stall["lost_ns"]), (&json!("low"), &json!(4999 * MS)));
}

#[test]
fn what_a_silent_thread_does_just_now_is_not_known_yet() {
    // It makes no call for 5 s, and the scheduler's stream goes on without a word about it: it may be in D.
    let mut s = Stream::working();
    for i in 0..6 {
        s = s
            .put(json!({"src":"sys","op":"sample","mono_ns":(2000 + 1000 * i) * MS,"dur_ns":1000 * MS,"cpu_pct":20.0}));
    }
    let lines: String = s.0.iter().map(|record| format!("{record}\n")).collect();
    let so_far = text(&chain(&["--every", "1s"], &lines).stdout).to_owned();
    let stalls: Vec<Value> =
        so_far.lines().map(|l| serde_json::from_str(l).unwrap()).filter(|r: &Value| r["op"] == "stall").collect();
    assert!(!stalls.is_empty(), "{so_far}");
    assert!(
        stalls.iter().all(|stall| stall["causes"] == json!([]) && stall["unexplained_ns"] == stall["lost_ns"]),
        "{stalls:?}"
    );
    // Once the tracers stop, they would have told.
    let stall = &s.end(8000 * MS).found("stall")[0];
    assert_eq!(stall["causes"][0]["cause"], "host_cpu");
}

#[test]
fn a_call_ends_with_its_thread() {
    let s = Stream::working()
        .open("ncclAllReduce", 101, 3000 * MS, 10 * MS)
        .put(json!({"src":"sched","op":"thread_exit","mono_ns":3010 * MS,"pid":100,"tid":101}))
        .call("cudaLaunchKernel", 100, 3011 * MS, 10_000)
        .end(3012 * MS);
    assert_eq!(s.found("stall"), [] as [Value; 0]);
}

#[test]
fn a_hang_at_the_end_of_a_short_run_is_a_remark() {
    let s = Stream::working().open("ncclAllReduce", 100, 3001 * MS, 1500 * MS).end(4501 * MS);
    let stall = &s.found("stall")[0];
    assert_eq!((&stall["severity"], &stall["lost_ns"]), (&json!("low"), &json!(1500 * MS)));
}

#[test]
fn a_call_ends_with_its_process_although_its_tracer_notices_later() {
    let exit =
        |ms: u64| json!({"src":"sched","op":"sched_process_exit","mono_ns":ms * MS,"pid":100,"tid":100,"code":137});
    // The CUDA tracer tells of the call some microseconds after the exit; of another thread's, which began after it.
    let s = Stream::working()
        .put(exit(5000))
        .open("ncclAllReduce", 100, 3001 * MS, 1999 * MS + 3_300)
        .open("ncclBroadcast", 101, 5000 * MS + 1000, 5000)
        .end(15_000 * MS);
    assert_eq!(s.found("stall"), [] as [Value; 0]);
    let processes = s.found("process");
    assert_eq!(processes.len(), 1, "{processes:?}");
    // A pid that is used again is another process, and its hang is a stall.
    let again = Stream::working()
        .put(exit(3500))
        .put(json!({"src":"sched","op":"sched_process_fork","mono_ns":4000 * MS,"pid":1,"tid":1,"child_pid":100}))
        .open("ncclAllReduce", 100, 5000 * MS, 10_000 * MS)
        .end(15_000 * MS);
    assert_eq!(again.found("stall").len(), 1);
}

#[test]
fn a_process_of_which_nobody_knows_whether_it_lives_does_not_stall() {
    let stalls = |s: &Stream| s.found("stall").len();
    let silent = |s: Stream| s.put(json!({"src":"sys","op":"sample","mono_ns":12000 * MS})).end(13000 * MS);
    assert_eq!(stalls(&silent(Stream::working())), 1, "watched: its exit would be on record");
    let mut unwatched = Stream::working();
    unwatched.0.retain(|record| record["stream"] != "sched");
    assert_eq!(stalls(&silent(unwatched)), 0);
    // Its exit may be among those that were lost.
    let lost = json!({"src":"ingero","op":"lost","mono_ns":5000 * MS,"dur_ns":5 * MS,"stream":"sched","count":10,"why":"ring_full"});
    assert_eq!(stalls(&silent(Stream::working().put(lost.clone()))), 0);
    // It was heard of after that.
    let off = json!({"src":"sched","op":"sched_switch","mono_ns":5500 * MS,"dur_ns":500 * MS,"pid":100,"tid":101,"comm":"train","state":"S","runq_ns":0,"cpu":0});
    assert_eq!(stalls(&silent(Stream::working().put(lost).put(off))), 1);
}

/// A launcher looks at the devices and waits for its children: its silence keeps no GPU waiting.
#[test]
fn a_process_that_never_did_the_same_again_does_not_stall() {
    let launcher = |steps: u64| {
        let mut s = Stream::default();
        for stream in ["cuda", "sched"] {
            s = s.put(json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"run","stream":stream}));
        }
        for i in 0..10 {
            s = s.call("cudaGetDeviceCount", 100, (1001 + i) * MS, 10_000);
        }
        s = s.call("cudaMalloc", 100, 1020 * MS, 10_000);
        for i in 0..steps {
            let t = (1100 + i) * MS;
            s = s.call("cudaLaunchKernel", 100, t, 10_000).call("cudaDeviceSynchronize", 100, t + 20_000, 10_000);
        }
        let severity = s.end(30_000 * MS).found("stall").first().map(|stall| stall["severity"].clone());
        severity.map(|severity| severity.as_str().unwrap().to_owned())
    };
    assert_eq!(launcher(0), None);
    assert_eq!(launcher(2).as_deref(), Some("low"), "it tried something");
    assert_eq!(launcher(20).as_deref(), Some("high"));
}
