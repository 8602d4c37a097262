//! What the tools answer: right numbers, short answers, whole lists through cursors.

use crate::support::generate::TRAINER;
use crate::support::{Server, recording, tool};
use serde_json::{Value, json};

#[test]
fn the_tools_agree_with_each_other_and_with_the_recording() {
    let (_dir, path) = recording(20_000);
    let mut server = Server::of(&path);
    let lines: Vec<Value> =
        std::fs::read_to_string(&path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let calls = lines.iter().filter(|l| l["src"] == "cudart").count();

    let stats = server.answer("get_trace_stats", json!({}));
    assert_eq!(stats["records"], lines.len());
    assert_eq!(stats["calls"], calls);
    let launches = stats["call_stats"].as_array().unwrap().iter().find(|c| c["op"] == "cudaLaunchKernel").unwrap();
    let health = server.answer("get_capture_health", json!({}));
    assert_eq!(
        (&health["complete"], &health["calls_watched"], &health["lost"]),
        (&json!(true), &json!(calls), &json!(0))
    );
    assert_eq!(health["watched_sched"], 9);

    let chains = server.answer("get_causal_chains", json!({}));
    let chain = &chains["findings"][0];
    let sum: u64 = chain["causes"].as_array().unwrap().iter().map(|c| c["ns"].as_u64().unwrap()).sum();
    assert_eq!(sum + chain["unexplained_ns"].as_u64().unwrap(), chain["lost_ns"].as_u64().unwrap());
    // A worker that is preempted six sevenths of each gap: made so.
    assert_eq!(
        (chain["severity"].as_str(), chain["causes"][0]["cause"].as_str()),
        (Some("high"), Some("worker_cpu_wait"))
    );
    let one = server.answer("get_causal_chains", json!({"id": chain["id"], "limit": 5}));
    assert_eq!(one["occurrences"].as_array().unwrap().len(), 5);
    // The longest and the latest are kept one by one.
    let (kept, n) = (one["total"].as_u64().unwrap(), chain["when"]["n"].as_u64().unwrap());
    assert!((500..n).contains(&kept), "{kept} of {n}");

    let timeline = server.answer("get_timeline", json!({"slices": 10}));
    let slices = timeline["slices"].as_array().unwrap();
    let in_slices: u64 = slices.iter().map(|s| s["calls"].as_u64().unwrap()).sum();
    assert_eq!((slices.len(), in_slices), (10, calls as u64));
    assert!(slices.iter().all(|s| s["findings"][0]["id"] == chain["id"]), "{timeline}");
    // The second before step 450 and the one before step 950, of a thousand in 3.35 s.
    let sampled: Vec<bool> = slices.iter().map(|s| s["cpu_pct"] == 91.5).collect();
    assert_eq!(sampled, [false, true, true, true, true, false, true, true, true, true]);
    // A narrow stretch is counted from its single records, and agrees with them.
    let one_call = lines.iter().filter(|l| l["op"] == "cudaStreamSynchronize").nth(500).unwrap();
    let from = one_call["mono_ns"].as_u64().unwrap();
    let narrow = server.answer("get_timeline", json!({"slices": 4, "from_ns": from, "to_ns": from + 999_999}));
    let in_calls: Vec<u64> =
        narrow["slices"].as_array().unwrap().iter().map(|s| s["call_ns"].as_u64().unwrap()).collect();
    assert!(narrow["precision_ns"].as_u64().unwrap() < 1000, "{narrow}");
    assert_eq!((narrow["slices"][0]["calls"].as_u64(), in_calls.iter().sum::<u64>()), (Some(1), 999_999));
    assert!(in_calls.iter().all(|&ns| ns.abs_diff(250_000) < 1000), "{in_calls:?}");

    let process = server.answer("get_per_process_breakdown", json!({"role": "cuda"}));
    assert_eq!((&process["total"], &process["processes"][0]["pid"]), (&json!(1), &json!(TRAINER)));
    let workers = server.answer("get_per_process_breakdown", json!({"role": "worker"}));
    assert_eq!(workers["total"], 8);

    let sql = server
        .answer("run_sql", json!({"sql": "SELECT count(*), max(dur_ns) FROM calls WHERE op = 'cudaLaunchKernel'"}));
    // Cold launches are not in the statistics.
    assert_eq!(sql["rows"][0][1], launches["max_ns"]);
    let found = server.answer("run_sql", json!({"sql": "SELECT finding, lost_ns FROM findings"}));
    assert_eq!(found["rows"], json!([[chain["id"], chain["lost_ns"]]]));
    let longest =
        server.answer("query_events", json!({"table": "switches", "state": "S", "order": "duration", "limit": 1}));
    assert_eq!(longest["records"][0]["dur_ns"], 20_000_000);
    assert_eq!(longest["total"], lines.iter().filter(|l| l["state"] == "S").count());
}

/// Goes through all pages of a list.
fn all_pages(server: &mut Server, name: &str, arguments: &Value, key: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut arguments = arguments.clone();
    loop {
        let page = server.answer(name, arguments.clone());
        let new = page[key].as_array().unwrap();
        assert_eq!(page["returned"], new.len());
        assert!(!new.is_empty() || items.is_empty());
        items.extend(new.iter().cloned());
        if page["truncated"] == false {
            assert!(page.get("next_cursor").is_none());
            assert_eq!(page["total"], items.len(), "{name} {arguments}");
            return items;
        }
        arguments["cursor"] = page["next_cursor"].clone();
    }
}

#[test]
fn cursors_lead_through_everything_once_and_in_order() {
    let (_dir, path) = recording(4000);
    let mut server = Server::of(&path);
    let events = all_pages(&mut server, "query_events", &json!({"table": "switches", "limit": 500}), "records");
    assert_eq!(events.len(), 1400);
    assert!(events.windows(2).all(|w| w[0]["id"].as_u64() < w[1]["id"].as_u64()));
    let by_length = all_pages(&mut server, "query_events", &json!({"order": "duration", "limit": 499}), "records");
    assert_eq!(by_length.len(), 2600);
    assert!(by_length.windows(2).all(|w| w[0]["dur_ns"].as_u64() >= w[1]["dur_ns"].as_u64()));
    let mut ids: Vec<u64> = by_length.iter().map(|r| r["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 2600);
    let rows = all_pages(&mut server, "run_sql", &json!({"sql": "SELECT id, op FROM calls", "limit": 1000}), "rows");
    assert_eq!(rows.len(), 2600);
    let processes = all_pages(&mut server, "get_per_process_breakdown", &json!({"limit": 2}), "processes");
    assert_eq!(processes.len(), 9);
    let stats = all_pages(&mut server, "get_trace_stats", &json!({"limit": 1}), "call_stats");
    assert_eq!(stats.len(), 3);
    // A stretch of time has what overlaps it.
    let some = &events[700];
    let (from, to) = (some["mono_ns"].as_u64().unwrap(), some["mono_ns"].as_u64().unwrap() + 1);
    let at =
        all_pages(&mut server, "query_events", &json!({"table": "switches", "from_ns": from, "to_ns": to}), "records");
    let overlap = |r: &Value| {
        r["mono_ns"].as_u64().unwrap() <= to && r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap() >= from
    };
    assert_eq!(at, events.iter().filter(|r| overlap(r)).cloned().collect::<Vec<_>>());
    assert!(at.contains(some));
}

#[test]
fn no_answer_has_more_than_twenty_thousand_tokens() {
    // `make bench` has the same with a million records; what bounds an answer does not depend on their number.
    let (_dir, path) = recording(30_000);
    let mut server = Server::of_command(tool().arg(&path).arg(&path));
    let wide = "SELECT *, printf('%0400d', 0), '\"\\' || comm FROM calls";
    for (name, arguments) in [
        ("get_trace_stats", json!({"limit": 200})),
        ("get_capture_health", json!({"limit": 200})),
        ("get_causal_chains", json!({"limit": 100})),
        ("get_causal_chains", json!({"id": "gap-4242-cudaMemcpyAsync-h2d", "limit": 100})),
        ("get_per_process_breakdown", json!({"limit": 100})),
        ("get_timeline", json!({"slices": 200})),
        ("query_events", json!({"limit": 500})),
        ("query_events", json!({"table": "switches", "limit": 500})),
        ("query_events", json!({"table": "frames", "limit": 500})),
        ("run_sql", json!({"sql": "SELECT * FROM switches", "limit": 1000})),
        ("run_sql", json!({"sql": wide, "limit": 1000})),
        ("run_sql", json!({"sql": "SELECT printf('%.*c', 60000, 'x') FROM calls", "limit": 1000})),
        (
            "run_sql",
            json!({"sql": "SELECT char(0x202e, 0x200b, 1, 34, 92) || group_concat(op) FROM calls GROUP BY id / 100", "limit": 1000}),
        ),
        ("compare_traces", json!({"limit": 200})),
    ] {
        let result = server.call(name, arguments.clone());
        let tokens = result.to_string().len() / 4;
        assert!(tokens < 20_000, "{name} {arguments}: {tokens} tokens");
        assert_eq!(result["isError"], false, "{name} {arguments}: {result}");
    }
}

#[test]
fn raw_halves_of_a_recording_are_joined_on_the_way() {
    let (dir, path) = recording(2000);
    let text = std::fs::read_to_string(&path).unwrap();
    let (mut cuda, mut sched) = (String::new(), String::new());
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let mut record = record.as_object().unwrap().clone();
        record.remove("host");
        let is_sched = record["src"] == "sched"
            || record["src"] == "sys"
            || record.get("stream") == Some(&json!("sched"))
            || record.get("tool") == Some(&json!("ingero-sched"));
        if record.get("tool") != Some(&json!("ingero-join")) && record.get("stream") != Some(&json!("join")) {
            let to = if is_sched { &mut sched } else { &mut cuda };
            to.push_str(&Value::Object(record).to_string());
            to.push('\n');
        }
    }
    let (cuda_path, sched_path) = (dir.path().join("cuda.ndjson.zst"), dir.path().join("sched.ndjson.gz"));
    std::fs::write(&cuda_path, zstd::encode_all(cuda.as_bytes(), 1).unwrap()).unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, sched.as_bytes()).unwrap();
    std::fs::write(&sched_path, gz.finish().unwrap()).unwrap();

    let mut joined = Server::of(&path);
    let mut halves = Server::of_command(tool().arg(&sched_path).arg(&cuda_path));
    let calls = |server: &mut Server| {
        let health = server.answer("get_capture_health", json!({}));
        let chains = server.answer("get_causal_chains", json!({}));
        (
            health["calls_watched"].clone(),
            chains["findings"][0]["lost_ns"].clone(),
            chains["findings"][0]["causes"].clone(),
        )
    };
    assert_eq!(calls(&mut joined), calls(&mut halves));
    let asleep = "SELECT count(*) FROM calls WHERE op = 'cudaStreamSynchronize' AND watched = 1";
    assert_eq!(halves.answer("run_sql", json!({"sql": asleep}))["rows"], json!([[100]]));
}

#[test]
fn a_recording_compared_with_itself_is_the_same() {
    let (_dir, path) = recording(20_000);
    let mut server = Server::of_command(tool().arg(&path).arg(&path));
    let same = server.answer("compare_traces", json!({"before": "run", "after": "run-2"}));
    let chains = server.answer("get_causal_chains", json!({}));
    let causes = chains["findings"][0]["causes"].as_array().unwrap();
    let changes = same["changes"].as_array().unwrap();
    assert_eq!(changes.len(), causes.len() + usize::from(chains["findings"][0]["unexplained_ns"] != 0));
    assert!(changes.iter().all(|c| c["change"] == "same" && c["before_ns"] == c["after_ns"]), "{same}");
    // By role and name, not by pid.
    assert!(changes.iter().all(|c| c["process"] == "cuda train.py"), "{same}");
    assert_eq!((&changes[0]["cause"], &changes[0]["who"]), (&causes[0]["cause"], &json!(["worker pt_data_worker"])));
    assert_eq!(same["before"]["lost_ns"], chains["findings"][0]["lost_ns"]);
}

#[test]
fn causes_say_in_which_functions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stacks.ndjson");
    let mut lines = Vec::new();
    let mut put =
        |at_us: u64, rest: &str| lines.push(format!(r#"{{"mono_ns":{},{rest}}}"#, 1_000_000_000 + at_us * 1_000));
    let call = |op: &str| {
        format!(r#""dur_ns":10000,"src":"cudart","op":"{op}","pid":7,"tid":7,"comm":"train","ret":0,"depth":0"#)
    };
    for stream in ["cuda", "sched"] {
        put(0, &format!(r#""src":"ingero","op":"watch","pid":7,"tid":7,"comm":"train","stream":"{stream}""#));
    }
    put(0, &call("cudaLaunchKernel"));
    put(20, &call("cudaLaunchKernel"));
    put(110, &call("cudaDeviceSynchronize"));
    let frame = r#"{"fn":"load\u001b[2J","file":"/app/train.py","line":84,"lang":"python"}"#;
    put(110, &format!(r#""src":"stack","op":"frames","id":1,"frames":[{frame}]"#));
    for ms in 1..20 {
        put(ms * 1_000, r#""src":"stack","op":"sample","pid":7,"tid":7,"id":1,"weight_ns":1000000,"on_cpu":true"#);
    }
    put(20_130, &call("cudaLaunchKernel"));
    put(30_000, r#""src":"ingero","op":"end""#);
    std::fs::write(&path, lines.join("\n")).unwrap();
    let found = Server::of(&path).answer("get_causal_chains", json!({}));
    let cause = &found["findings"][0]["causes"][0];
    assert_eq!(
        (&cause["cause"], &cause["where"]),
        (&json!("host_cpu"), &json!(["100 % load\\u{1b}[2J (train.py:84)"])),
        "{found}"
    );
}
