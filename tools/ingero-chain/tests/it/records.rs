//! Records with a meaning of their own: calls without an end, kills for memory, wall clocks.

use serde_json::{Value, json};

use crate::support::{MS, Stream, chain, class_ns, found, lines, text};

#[test]
fn gaps_before_many_kinds_of_calls_are_told_of_together() {
    let mut s = Stream::working();
    let ops = ["cudaMemcpyAsync", "cudaMemsetAsync", "cudaLaunchKernel", "cudaGraphLaunch"];
    for (i, op) in ops.iter().enumerate() {
        s = s.call(op, 100, (3020 + 20 * i as u64) * MS, 10_000);
    }
    // Recording an event gives the GPU nothing to do: the time before it is no lost time, and after the last work.
    let s = s.call("cudaEventRecord", 100, 3100 * MS, 10_000).end(3101 * MS);
    let report = s.report();
    assert_eq!(found(&report, "gap"), [] as [Value; 0], "each is less than 1 % of the loop");
    let total = &found(&report, "total")[0];
    assert_eq!((&total["kinds"], &total["n"], &total["id"]), (&json!(4), &json!(4), &json!("total-100")), "{total}");
    assert_eq!(total["lost_ns"], found(&report, "account")[0]["lost_ns"], "{total}");
    assert_eq!((&total["severity"], &report.last().unwrap()["chains"]["low"]), (&json!("low"), &json!(1)), "{total}");
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
    let lines = lines(&s.end(4500 * MS).0);
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
    assert_eq!(gap.len(), 0, "{gap:?}");
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
    // From the end of its last call on.
    assert_eq!(class_ns(&report, "not_judged"), 7000 * MS, "{report:?}");
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
    let told = text(&chain(&["-f", "text", "-v"], &s.0.iter().map(|r| format!("{r}\n")).collect::<String>()).stdout)
        .to_owned();
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("when train (100) asked for memory") && !told.contains('\u{1b}'), "{told}");
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
