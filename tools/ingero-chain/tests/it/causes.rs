//! What the late thread went through: causes that need several records, or say more than one thing.

use serde_json::{Value, json};

use crate::support::{self, MS, Stream, cause_ns, chain, parsed, text};

/// PyTorch's DataLoader waits for its queue 5 s at a time.
#[test]
fn a_wait_that_is_taken_up_again_is_for_whoever_ends_it_at_last() {
    let off = |from_ms: u64, to_ms: u64, waker: Value| {
        let mut record = json!({"src":"sched","op":"sched_switch","mono_ns":from_ms * MS,"dur_ns":(to_ms - from_ms) * MS,"pid":100,"tid":100,"comm":"train","state":"S","runq_ns":0,"cpu":0});
        if waker.is_null() {
            record["waker_irq"] = json!(true)
        } else {
            record["waker"] = waker
        }
        record
    };
    let gap = |again_after_ms: u64| {
        let feeder = json!({"pid":100,"tid":105,"comm":"feeder"});
        let mut s = Stream::working();
        // Twice 500 ms until a timer, then 300 ms until the feeder, which was computing all the time.
        let (second, third) = (3500 + again_after_ms, 4000 + 2 * again_after_ms);
        for (from, to, waker) in
            [(3000, 3500, Value::Null), (second, second + 500, Value::Null), (third, third + 300, feeder)]
        {
            s = s.put(off(from, to, waker));
        }
        for i in 0..100 {
            s = s.call("cudaLaunchKernel", 100, (third + 301 + i) * MS, MS);
        }
        s.end(5000 * MS).found("gap").remove(0)
    };
    let straight = gap(0);
    assert_eq!(straight["causes"].as_array().unwrap().len(), 1, "{straight}");
    let who = |gap: &Value| (gap["causes"][0]["cause"].clone(), gap["causes"][0]["who"][0]["comm"].clone());
    assert_eq!(who(&straight), (json!("host_cpu"), json!("feeder")));
    assert_eq!(straight["causes"][0]["who"][0]["ns"], json!(1300 * MS), "{straight}");
    // It did something in between: the sleep was its own.
    let between = gap(20);
    assert_eq!((cause_ns(&between, "sleep"), cause_ns(&between, "host_cpu")), (1000 * MS, 341 * MS), "{between}");
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
    let (ran, unexplained) = lost_ns(&s.put(lost).end(3501 * MS), "driver_cpu");
    assert_eq!((ran, unexplained), (199, 199));
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
    // Where threads ran is not where they may run: nothing is said of that.
    assert_eq!(gap["timeline"][0]["text"], "4 CPUs, 25 % busy, the busiest one 100 %", "{gap}");
    let because = gap["advice"][0]["because"].as_str().unwrap();
    assert!(because.ends_with("; the machine's CPUs were 25 % busy"), "{because}");
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
    // 39 waits of 24 ms, and one of 1 ms before them; the two ends alone would have said 200 for all of it.
    assert_eq!((line["ns"].as_u64().unwrap() / MS, had(200), had(300)), (39 * 24 + 1, 39 * 4, 39 * 20 + 1), "{gap}");
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
    let gap = |lines: &[String]| support::found(&parsed(&chain(&[], &lines.concat()).stdout), "gap").remove(0);
    let whole = gap(&lines);
    assert_eq!((&whole["n"], cause_ns(&whole, "io_wait"), &whole["unexplained_ns"]), (&json!(10), 450 * MS, &json!(0)));
    let mut broken = lines.clone();
    broken[at].truncate(40);
    broken[at].push('\n');
    // ingero-join says which stream it was of.
    let told = json!({"src":"ingero","op":"lost","mono_ns":3451 * MS,"dur_ns":49 * MS,"stream":"sched","count":1,"why":"bad_line"});
    let mut joined = lines.clone();
    joined[at] = format!("{told}\n");
    for gap in [gap(&broken), gap(&joined)] {
        assert_eq!((&gap["n"], cause_ns(&gap, "io_wait")), (&json!(10), 405 * MS), "{gap}");
        // What came before that record is doubtful, and nothing is put in its place.
        let host_ns = cause_ns(&whole, "host_cpu") - cause_ns(&gap, "host_cpu");
        assert_eq!(gap["unexplained_ns"].as_u64(), Some(45 * MS + host_ns), "{gap}");
        assert!(host_ns <= 5 * MS, "{gap}");
    }
}
