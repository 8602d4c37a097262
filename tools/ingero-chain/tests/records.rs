//! Records with a meaning of their own: calls told of while they hang, calls without an end, kills for memory.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

mod support;

use serde_json::{Value, json};
use support::{chain, text};

const MS: u64 = 1_000_000;

/// A stream under way.
#[derive(Clone, Default)]
struct Stream(Vec<Value>);

impl Stream {
    /// A process that is watched by both tracers and works: 2 s of launches and synchronises, 1 ms apart.
    fn working() -> Self {
        let mut s = Self::default();
        for stream in ["cuda", "sched"] {
            s.0.push(json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}));
        }
        for i in 0..1000 {
            let t = (1000 + 2 * i) * MS;
            s = s.call("cudaLaunchKernel", 100, t, 10_000).call("cudaDeviceSynchronize", 100, t + MS / 2, MS);
        }
        s
    }

    fn put(mut self, record: Value) -> Self {
        self.0.push(record);
        self
    }

    fn call(self, op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Self {
        self.put(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":tid,"comm":"train","ret":0,"depth":0}))
    }

    fn open(self, op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Self {
        self.put(json!({"src":"nccl","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":tid,"comm":"train","depth":0,"open":true}))
    }

    fn end(self, mono_ns: u64) -> Self {
        self.put(json!({"src":"ingero","op":"end","mono_ns":mono_ns}))
    }

    /// What the tool says: chains, processes, summary.
    fn report(&self) -> Vec<Value> {
        let lines: String = self.0.iter().map(|record| format!("{record}\n")).collect();
        let out = chain(&["--per-process"], &lines);
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn found(&self, op: &str) -> Vec<Value> {
        self.report().into_iter().filter(|record| record["op"] == op).collect()
    }
}

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
fn gaps_before_many_kinds_of_calls_are_told_of_together() {
    let mut s = Stream::working();
    for (i, op) in ["cudaMemcpyAsync", "cudaMemsetAsync", "cudaLaunchKernel", "cudaEventRecord"].iter().enumerate() {
        s = s.call(op, 100, (3020 + 20 * i as u64) * MS, 10_000);
    }
    let s = s.end(3081 * MS);
    let report = s.report();
    let total = &report.last().unwrap()["gaps"][0];
    let chains: u64 = s.found("gap").iter().map(|gap| gap["lost_ns"].as_u64().unwrap()).sum();
    assert_eq!((&total["kinds"], &total["n"]), (&json!(4), &json!(4)));
    assert!(s.found("gap").len() < 4 && total["lost_ns"].as_u64() > Some(chains), "some are too small for a chain");
    let sum: u64 = total["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum + total["unexplained_ns"].as_u64().unwrap()), total["lost_ns"].as_u64());
}

#[test]
fn records_with_a_wall_clock_only_are_placed_by_the_start() {
    let mut s = Stream::working().end(3001 * MS);
    let with = s.report();
    for record in s.0.iter_mut().filter(|r| r["src"] == "cudart") {
        let ns = record.as_object_mut().unwrap().remove("mono_ns").unwrap().as_u64().unwrap();
        record["ts"] = json!(format!("1970-01-01T00:00:{:02}.{:09}Z", 10 + ns / 1_000_000_000, ns % 1_000_000_000));
    }
    s.0.insert(0, json!({"src":"ingero","op":"start","mono_ns":1000 * MS,"wall_offset_ns":"10000000000"}));
    let without = s.report();
    assert_eq!(without.last().unwrap()["calls"], 2000);
    assert_eq!(without.last().unwrap()["dur_ns"], with.last().unwrap()["dur_ns"]);
}

#[test]
fn one_process_of_many_can_be_asked_for() {
    let mut s = Stream::working();
    for i in 1..30 {
        s = s.call("cudaLaunchKernel", 100, (3000 + 50 * i) * MS, 10_000);
    }
    let lines: String = s.end(4500 * MS).0.iter().map(|record| format!("{record}\n")).collect();
    let run = |args: &[&str]| text(&chain(args, &lines).stdout).to_owned();
    assert!(run(&["--list"]).contains(" gap-100-cudaLaunchKernel\n"), "{}", run(&["--list"]));
    assert_eq!(run(&["--list", "--pid", "7,100"]), run(&["--list"]));
    assert_eq!(run(&["--list", "--pid", "7"]), "");
    assert_eq!(chain(&["--pid", "7", "--fail-on", "low"], &lines).status.code(), Some(2), "there is no such process");
    assert_eq!(chain(&["--pid", "100", "--fail-on", "low"], &lines).status.code(), Some(1));
}

#[test]
fn a_gpu_that_is_found_busy_waited_for_nobody() {
    // 50 ms of host work, then a synchronise that waits for 30 ms; three times.
    let steps = |wait_ms: u64, lost: bool| {
        let mut s = Stream::working();
        for i in 0..3 {
            let t = (3000 + 100 * i) * MS;
            s = s.call("cudaLaunchKernel", 100, t, 10_000);
            if lost {
                s = s.put(json!({"src":"ingero","op":"lost","mono_ns":t + 50 * MS - 5,"dur_ns":10,"stream":"cuda","count":1,"why":"sampled"}));
            }
            s = s.call("cudaDeviceSynchronize", 100, t + 50 * MS, wait_ms * MS + 10_000);
        }
        s.end(3300 * MS)
    };
    let gaps = |s: &Stream| s.found("gap").iter().filter(|gap| gap["call"] == "cudaDeviceSynchronize").count();
    let busy = steps(30, false);
    assert_eq!((gaps(&busy), &busy.report().last().unwrap()["gpu_busy_ns"]), (0, &json!(3 * (50 * MS - 10_000))));
    assert_eq!(gaps(&steps(0, false)), 1, "it was done before");
    assert_eq!(gaps(&steps(30, true)), 1, "what it waits for may have been enqueued by a call that is in no record");
    // The same wait made by hand: "not ready" (600) seven times, 20 ms apart.
    let mut s = Stream::working().call("cudaLaunchKernel", 100, 3000 * MS + MS / 2, 10_000);
    for i in 0..8 {
        let ret = if i < 7 { 600 } else { 0 };
        s = s.put(json!({"src":"cudart","op":"cudaStreamQuery","mono_ns":(3001 + 20 * i) * MS,"dur_ns":1000,"pid":100,"tid":100,"comm":"train","depth":0,"ret":ret}));
    }
    let gap = &s.end(3200 * MS).found("gap");
    assert!(gap.iter().map(|gap| gap["lost_ns"].as_u64().unwrap()).sum::<u64>() < 21 * MS, "{gap:?}");
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
fn a_line_that_can_not_be_read_is_a_record_that_is_missing() {
    // In each gap of 50 ms the thread is in D for 45; of the last, that record is broken.
    let mut s = Stream::working();
    for i in 0..10 {
        let t = (3001 + 50 * i) * MS;
        s = s.put(json!({"src":"sched","op":"sched_switch","mono_ns":t,"dur_ns":45 * MS,"pid":100,"tid":100,"comm":"train","state":"D","runq_ns":0}))
            .call("cudaLaunchKernel", 100, t + 49 * MS, 10_000);
    }
    let s = s.end(3510 * MS);
    let lines: Vec<String> = s.0.iter().map(|record| format!("{record}\n")).collect();
    let at = lines.iter().rposition(|line| line.contains("sched_switch")).unwrap();
    let gap = |lines: &[String]| -> Value {
        serde_json::from_str(text(&chain(&[], &lines.concat()).stdout).lines().next().unwrap()).unwrap()
    };
    let mut broken = lines.clone();
    broken[at].truncate(40);
    broken[at].push('\n');
    let cause = |gap: &Value, cause: &str| {
        let causes = gap["causes"].as_array().unwrap();
        causes.iter().find(|c| c["cause"] == cause).map_or(0, |c| c["ns"].as_u64().unwrap())
    };
    let (whole, broken) = (gap(&lines), gap(&broken));
    assert_eq!((&whole["n"], cause(&whole, "io_wait")), (&json!(10), 450 * MS));
    assert_eq!((&broken["n"], cause(&broken, "io_wait")), (&json!(9), 405 * MS), "{broken}");
    assert_eq!(
        cause(&broken, "host_cpu"),
        cause(&whole, "host_cpu") - (5 * MS - 10_000),
        "nothing is put in its place"
    );
    // ingero-join says which stream it was of.
    let told = json!({"src":"ingero","op":"lost","mono_ns":3451 * MS,"dur_ns":49 * MS,"stream":"sched","count":1,"why":"bad_line"});
    let mut joined = lines.clone();
    joined[at] = format!("{told}\n");
    let joined = gap(&joined);
    assert_eq!((&joined["n"], cause(&joined, "io_wait")), (&json!(10), 405 * MS), "{joined}");
    assert_eq!(cause(&joined, "host_cpu"), cause(&whole, "host_cpu") - (5 * MS - 10_000));
}

#[test]
fn requests_to_a_device_are_told_beside_the_wait_for_one() {
    let mut s = Stream::working();
    for i in 0..20 {
        let t = (3000 + 50 * i) * MS;
        s = s.put(json!({"src":"block","op":"read","mono_ns":t,"dur_ns":30 * MS,"pid":100,"tid":100,"comm":"train","bytes":1 << 20,"dev":"nvme0n1"}))
            .put(json!({"src":"sched","op":"sched_switch","mono_ns":t,"dur_ns":45 * MS,"pid":100,"tid":100,"comm":"train","state":"D","runq_ns":0}))
            .call("cudaLaunchKernel", 100, t + 49 * MS, 10_000);
    }
    let s = s.put(json!({"src":"sys","op":"sample","mono_ns":3000 * MS,"dur_ns":1000 * MS,"cpu_pct":12.0,"gpu":[{"index":0,"util_pct":7.0}]}));
    let gap = &s.end(4001 * MS).found("gap")[0];
    assert_eq!(gap["causes"][0]["cause"], "io_wait");
    let told: Vec<&str> =
        gap["timeline"].as_array().unwrap().iter().map(|line| line["text"].as_str().unwrap()).collect();
    assert!(told.iter().any(|t| t.contains("20 reads of 20.0 MiB, 30.0 ms each")), "{told:?}");
    assert!(told.iter().any(|t| t.contains("GPU 7 % in use")), "{told:?}");
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
fn between_calls_without_an_end_nothing_is_known() {
    let entry = |s: Stream, t: u64| {
        s.put(json!({"src":"cudart","op":"cudaLaunchKernel","mono_ns":t * MS,"pid":100,"tid":100,"comm":"train"}))
    };
    // From 3 s on only entries, 200 ms apart; then ends again, 5 s after the last.
    let mut s = Stream::working();
    for t in (3100..5000).step_by(200) {
        s = entry(s, t);
    }
    let silent = s.clone().end(20_000 * MS);
    assert_eq!(silent.found("stall"), [] as [Value; 0]);
    let again = s.call("cudaLaunchKernel", 100, 10_000 * MS, 10_000).end(10_001 * MS);
    assert_eq!(again.found("gap"), [] as [Value; 0]);
    let report = again.report();
    assert_eq!((&report.last().unwrap()["entries"], &report.last().unwrap()["calls"]), (&json!(10), &json!(2011)));
    let process = &again.found("process")[0];
    let entries: Vec<_> = process["calls"].as_array().unwrap().iter().filter(|c| c.get("avg_ns").is_none()).collect();
    assert_eq!((entries.len(), &entries[0]["n"]), (1, &json!(10)));
}

#[test]
fn who_was_killed_for_memory_and_what_it_was() {
    let kill = |pid: u32, t: u64, rest: Value| {
        let mut record =
            json!({"src":"mem","op":"oom_kill","mono_ns":t * MS,"pid":pid,"tid":pid,"comm":"w\u{1b}orker"});
        record.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        record
    };
    let s = Stream::working()
        .put(json!({"src":"sched","op":"sched_process_fork","mono_ns":2900 * MS,"pid":100,"tid":100,"child_pid":200}))
        .put(json!({"src":"sys","op":"sample","mono_ns":2000 * MS,"dur_ns":1000 * MS,"mem_avail_bytes":64_u64 << 30}))
        .put(kill(200, 3000, json!({"by":{"pid":100,"tid":100,"comm":"train"},"anon_rss_bytes":3_u64 << 30})))
        .put(kill(200, 3000, json!({})))
        .put(kill(999, 3001, json!({})))
        .put(kill(100, 3002, json!({})))
        .end(3010 * MS);
    let ooms = s.found("oom");
    let brief: Vec<_> = ooms.iter().map(|o| (o["pid"].as_u64().unwrap(), o["severity"].as_str().unwrap())).collect();
    assert_eq!(brief, [(100, "high"), (200, "medium"), (999, "low")]);
    let worker = &ooms[1];
    assert_eq!((&worker["role"], &worker["resident_bytes"]), (&json!("worker"), &json!(3_u64 << 30)));
    assert_eq!((&worker["lost_ns"], &worker["causes"]), (&json!(0), &json!([])));
    let advice = worker["advice"][0]["text"].as_str().unwrap();
    assert!(advice.contains("memory.max"), "64 GiB were to be had: {advice}");
    assert!(ooms[2]["advice"].as_array().unwrap().is_empty(), "nothing is known of its memory");
    let told =
        text(&chain(&["-f", "text"], &s.0.iter().map(|r| format!("{r}\n")).collect::<String>()).stdout).to_owned();
    assert!(told.contains("when train (100) asked for memory") && !told.contains('\u{1b}'), "{told}");
}

/// PyTorch's DataLoader waits for its queue 5 s at a time.
#[test]
fn a_wait_with_a_time_out_is_asleep_and_says_who_ended_it() {
    let off = |tid: u32, from_ms: u64, to_ms: u64, waker: Value| {
        let mut record = json!({"src":"sched","op":"sched_switch","mono_ns":from_ms * MS,"dur_ns":(to_ms - from_ms) * MS,"pid":100,"tid":tid,"comm":"train","state":"S","runq_ns":0,"cpu":0});
        if waker.is_null() {
            record["waker_irq"] = json!(true)
        } else {
            record["waker"] = waker
        }
        record
    };
    let feeder = json!({"pid":100,"tid":105,"comm":"feeder"});
    let mut s = Stream::working();
    // Twice 500 ms until a timer, then 300 ms until the feeder, which was computing all the time.
    for (from, to, waker) in [(3000, 3500, Value::Null), (3500, 4000, Value::Null), (4000, 4300, feeder)] {
        s = s.put(off(100, from, to, waker));
    }
    for i in 0..100 {
        s = s.call("cudaLaunchKernel", 100, (4301 + i) * MS, 10_000);
    }
    let gap = s.end(4500 * MS).found("gap").remove(0);
    let ns =
        |cause: &str| gap["causes"].as_array().unwrap().iter().find(|c| c["cause"] == cause).unwrap()["ns"].clone();
    assert_eq!((ns("sleep"), ns("host_cpu").as_u64().unwrap() / MS), (json!(1000 * MS), 301), "{gap}");
    let because = gap["advice"].to_string();
    assert!(because.contains("500 ms at once") && because.contains("feeder (100) woke it"), "{because}");
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
fn who_is_whose_child_is_known_from_before_the_stream() {
    let fork = json!({"src":"sched","op":"sched_process_fork","mono_ns":10 * MS,"pid":100,"tid":100,"child_pid":200});
    let mut s = Stream(vec![fork.clone()]);
    s.0.extend(Stream::working().0);
    let report = s.end(3010 * MS).report();
    let summary = report.last().unwrap();
    assert_eq!((&summary["mono_ns"], &summary["dur_ns"]), (&json!(1000 * MS), &json!(2010 * MS)));
    let nothing_else = Stream(vec![fork]).end(20 * MS).report();
    assert_eq!(nothing_else.last().unwrap()["mono_ns"], 10 * MS);
}

#[test]
fn one_victim_is_told_of_once() {
    let kill =
        |pid: u32, ms: u64| json!({"src":"mem","op":"oom_kill","mono_ns":ms * MS,"pid":pid,"tid":pid,"comm":"w"});
    let s = Stream::working()
        .put(json!({"src":"sched","op":"sched_process_fork","mono_ns":2900 * MS,"pid":100,"tid":100,"child_pid":200}))
        .put(kill(200, 3000))
        .put(json!({"src":"sched","op":"sched_process_exit","mono_ns":3001 * MS,"pid":200,"tid":200}))
        .put(kill(200, 3021))
        .put(kill(300, 3030))
        .put(json!({"src":"ingero","op":"watch","mono_ns":3031 * MS,"pid":300,"tid":300,"comm":"w","stream":"sched","why":"child"}))
        .put(kill(300, 3032))
        .end(3040 * MS);
    let told: Vec<_> = s.found("oom").iter().map(|oom| (oom["pid"].clone(), oom["role"].clone())).collect();
    assert_eq!(told, [(json!(200), json!("worker")), (json!(300), json!("worker"))]);
    // Another process with the same number is another victim.
    let two = Stream::working()
        .put(kill(100, 3000))
        .put(json!({"src":"sched","op":"sched_process_exit","mono_ns":3001 * MS,"pid":100,"tid":100}))
        .put(json!({"src":"sched","op":"sched_process_fork","mono_ns":3100 * MS,"pid":1,"tid":1,"child_pid":100}))
        .put(kill(100, 3200))
        .end(3300 * MS);
    assert_eq!(two.found("oom").len(), 2);
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

/// That records were lost may be told of after the calls have gone by: their silence is no evidence then, either.
#[test]
fn what_is_lost_and_told_of_later_is_unexplained() {
    let slow = |from: u64| {
        let mut s = Stream::working();
        for i in 0..100 {
            let host = json!({"off_ns":0,"sleep_ns":0,"watched":true});
            s = s.put(json!({"src":"cudart","op":"cudaLaunchKernel","mono_ns":(from + 5 * i) * MS,"dur_ns":4 * MS,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0,"host":host}));
        }
        s
    };
    let lost_ns = |s: &Stream, cause: &str| {
        let chain = &s.found("slow_call")[0];
        let line = chain["causes"].as_array().unwrap().iter().find(|line| line["cause"] == cause).cloned();
        (line.map_or(0, |line| line["ns"].as_u64().unwrap()) / MS, chain["unexplained_ns"].as_u64().unwrap() / MS)
    };
    let s = slow(3001);
    assert_eq!(lost_ns(&s.clone().end(3501 * MS), "driver_cpu"), (399, 0));
    let lost = json!({"src":"ingero","op":"lost","mono_ns":3001 * MS,"dur_ns":250 * MS,"stream":"sched","count":5,"why":"ring_full"});
    // It ends where the 51st of the calls begins: 50 are in doubt.
    assert_eq!(lost_ns(&s.put(lost).end(3501 * MS), "driver_cpu"), (199, 199));
}

/// The process waits for a worker, and the worker for a thread of that process.
#[test]
fn a_path_that_comes_home_is_followed_there() {
    let mut s = Stream::working();
    s = s.put(json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":200,"tid":200,"comm":"loader","stream":"sched","why":"child"}));
    let off = |pid: u32, tid: u32, start_ms: u64, ms: u64, waker: (u32, u32, &str)| {
        json!({"src":"sched","op":"sched_switch","mono_ns":start_ms * MS,"dur_ns":ms * MS,"pid":pid,"tid":tid,"comm":"x","state":"S","runq_ns":0,
               "waker":{"pid":waker.0,"tid":waker.1,"comm":waker.2}})
    };
    for i in 0..20 {
        let at = 3001 + 60 * i;
        s = s
            .put(off(200, 200, at, 40, (100, 101, "sampler")))
            .put(off(100, 100, at, 55, (200, 200, "loader")))
            .put(off(100, 101, at + 40, 20, (100, 100, "train")))
            .call("cudaMemcpyAsync", 100, (at + 55) * MS, 4 * MS);
    }
    let gap = &s.end(4202 * MS).found("gap")[0];
    let causes: Vec<_> = gap["causes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["cause"].as_str().unwrap(), c["who"][0]["comm"].as_str().unwrap()))
        .collect();
    assert_eq!(causes[..2], [("host_cpu", "sampler"), ("worker_cpu", "loader")], "{gap}");
    assert!(gap["causes"][0]["share"].as_f64().unwrap() > 0.7 && gap["unexplained_ns"] == 0, "{gap}");
}

/// Three processes share one CPU; who had it is worked out from the switches of all of them, not from the two ends of a wait.
#[test]
fn who_had_the_cpu_is_read_from_all_switches_on_it() {
    let mut s = Stream::working();
    for pid in [200, 300] {
        s = s.put(json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":pid,"tid":pid,"comm":"rival","stream":"sched","why":"asked"}));
    }
    let who = |pid: u32| json!({"pid":pid,"tid":pid,"comm":if pid == 100 { "train" } else { "rival" }});
    // Turns on CPU 0: 100 for 1 ms, 200 for 2, 300 for 20, 200 for 2, and again.
    let turns: Vec<(u32, u64)> = (0..40).flat_map(|_| [(100, 1), (200, 2), (300, 20), (200, 2)]).collect();
    let mut starts = vec![3001];
    turns.iter().for_each(|&(_, ms)| starts.push(starts[starts.len() - 1] + ms));
    for (at, &(pid, ms)) in turns.iter().enumerate() {
        let before = turns[..at].iter().rposition(|turn| turn.0 == pid);
        let from = before.map_or(3000, |before| starts[before + 1]);
        let by = before.map_or(300, |before| turns[before + 1].0);
        let prev = at.checked_sub(1).map_or(300, |at| turns[at].0);
        s = s.put(json!({"src":"sched","op":"sched_switch","mono_ns":from * MS,"dur_ns":(starts[at] - from) * MS,"pid":pid,"tid":pid,
            "comm":who(pid)["comm"],"state":"R","runq_ns":(starts[at] - from) * MS,"cpu":0,"by":who(by),"prev":who(prev)}));
        if pid == 100 {
            s = s.call("cudaMemcpyAsync", 100, starts[at] * MS, ms * MS - 1);
        }
    }
    s = s.put(json!({"src":"sys","op":"sample","mono_ns":3000 * MS,"dur_ns":1001 * MS,"cpu_pct":25.0,"cpu_max_pct":100.0,"cpus":4}));
    let gap = &s.end(4002 * MS).found("gap")[0];
    // A quarter of the machine is busy, and that quarter is all that it has.
    assert_eq!(gap["timeline"][1]["text"], "the process ran on CPU 0 of the 4 only", "{gap}");
    let because = gap["advice"][0]["because"].as_str().unwrap();
    assert!(because.ends_with("; CPUs 25 % busy, but it ran on CPU 0 only"), "{because}");
    let line = &gap["causes"][0];
    let had = |pid: u32| {
        line["who"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|w| w["pid"] == pid)
            .map(|w| w["ns"].as_u64().unwrap())
            .sum::<u64>()
            / MS
    };
    assert_eq!(line["cause"], "cpu_wait", "{gap}");
    // 39 waits of 24 ms; the two ends alone would have said 200 for all of it.
    assert_eq!((line["ns"].as_u64().unwrap() / MS, had(200), had(300)), (39 * 24, 39 * 4, 39 * 20), "{gap}");
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

/// Others took the CPU from a process that its CPU limit throttled as well: both are said.
#[test]
fn a_limit_behind_a_wait_for_a_cpu_is_named_in_the_advice() {
    let report = |throttled_ns: u64| {
        let mut lines = vec![];
        for stream in ["cuda", "sched"] {
            lines.push(json!({"src":"ingero","op":"watch","mono_ns":1_000_000,"pid":100,"tid":100,"comm":"train","stream":stream}));
        }
        let mut at_ms = 1000_u64;
        for step in 0..100 {
            for op in ["cudaLaunchKernel", "cudaDeviceSynchronize"] {
                lines.push(json!({"src":"cudart","op":op,"mono_ns":at_ms * 1_000_000,"dur_ns":1000,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0}));
                at_ms += 1;
            }
            if step > 20 {
                let rival = json!({"pid":200,"tid":200,"comm":"stress"});
                lines.push(json!({"src":"sched","op":"sched_switch","mono_ns":at_ms * 1_000_000,"dur_ns":50_000_000,"pid":100,"tid":100,
                    "comm":"train","state":"R","runq_ns":50_000_000,"cpu":0,"by":rival,"prev":rival}));
                at_ms += 51;
            }
        }
        lines.push(json!({"src":"sys","op":"sample","mono_ns":1_000_000_000_u64,"dur_ns":(at_ms - 1000) * 1_000_000,"cpu_pct":100.0,
            "quota":[{"cgroup":"/c","pids":[100],"periods":40,"throttled":9,"throttled_ns":throttled_ns}]}));
        lines.push(json!({"src":"ingero","op":"end","mono_ns":at_ms * 1_000_000}));
        let stream: String = lines.iter().map(|record| format!("{record}\n")).collect();
        let out = chain(&[], &stream);
        let mut chains = text(&out.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let gap = chains.find(|chain| chain["op"] == "gap").unwrap();
        assert_eq!(gap["causes"][0]["cause"], "cpu_wait", "{gap}");
        gap["advice"].as_array().unwrap().iter().any(|a| a["because"].as_str().unwrap().contains("throttled train"))
    };
    assert!(report(900_000_000));
    assert!(!report(0));
}
