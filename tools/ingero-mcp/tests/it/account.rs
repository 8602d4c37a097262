//! The account, wherever it is shown: the same numbers, which add up.

use serde_json::{Value, json};

use crate::support::generate::TRAINER;
use crate::support::{Server, recording, tool};

fn ns(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"))
}

#[test]
fn every_nanosecond_of_an_account_has_a_class_and_all_tools_say_the_same() {
    let (_dir, path) = recording(20_000);
    let mut server = Server::of(&path);
    let stats = server.answer("get_trace_stats", json!({}));
    assert_eq!((&stats["accounts_total"], stats["accounts"].as_array().unwrap().len()), (&json!(1), 1));
    let account = &stats["accounts"][0];
    let classes = &account["classes"];
    let sum: u64 = classes.as_object().unwrap().values().map(|ns| ns.as_u64().unwrap()).sum();
    assert_eq!((classes.as_object().unwrap().len(), sum), (12, ns(account, "observed_ns")));
    assert_eq!(ns(account, "lost_ns"), ns(classes, "idle") + ns(classes, "silence"));
    // 0.3 ms and 20 ms of waiting for a worker, once in each step of about 1.1 ms more.
    let share = account["lost_share"].as_f64().unwrap();
    assert!((share - ns(account, "lost_ns") as f64 / ns(account, "loop_ns") as f64).abs() < 1e-6);
    assert!(share > 0.5, "{account}");
    // The loop waits until the GPU is done once a step.
    assert!(ns(account, "steps").abs_diff(1000) < 5, "{account}");

    let process = server.answer("get_per_process_breakdown", json!({"pid": TRAINER}));
    assert_eq!(process["processes"][0]["accounts"], json!([account]));
    let worker = server.answer("get_per_process_breakdown", json!({"role": "worker"}));
    assert!(worker["processes"][0].get("accounts").is_none(), "{worker}");

    let sql = "SELECT pid, observed_ns, loop_ns, lost_ns, start_up_ns + idle_ns + silence_ns + gpu_wait_ns + enqueue_ns + copy_ns \
               + memory_ns + load_ns + other_call_ns + between_ns + wind_down_ns + not_judged_ns, idle_ns, gpu_wait_ns, \
               not_judged_ns, steps FROM accounts";
    let row = json!([
        TRAINER,
        account["observed_ns"],
        account["loop_ns"],
        account["lost_ns"],
        account["observed_ns"],
        classes["idle"],
        classes["gpu_wait"],
        classes["not_judged"],
        account["steps"]
    ]);
    assert_eq!(server.answer("run_sql", json!({"sql": sql}))["rows"], json!([row]));

    // Nobody else's is asked for.
    let other = server.answer("get_trace_stats", json!({"pid": TRAINER + 1}));
    assert_eq!((&other["accounts"], &other["accounts_total"]), (&json!([]), &json!(0)));
}

#[test]
fn the_timeline_has_all_lost_time_however_many_gaps_there_were() {
    let (_dir, path) = recording(40_000);
    let mut server = Server::of(&path);
    let found = server.answer("get_causal_chains", json!({}));
    let gaps: Vec<&Value> = found["findings"].as_array().unwrap().iter().filter(|f| f["kind"] == "gap").collect();
    let lost_ns: u64 = gaps.iter().map(|gap| ns(gap, "lost_ns")).sum();
    // More than are kept one by one.
    let one = server.answer("get_causal_chains", json!({"id": gaps[0]["id"], "limit": 1}));
    assert!(ns(&gaps[0]["when"], "n") > ns(&one, "total"), "{one}");
    let grid_ns = |finding: &Value| -> u64 {
        finding["when"]["grid"]["lost_ns"].as_array().unwrap().iter().map(|ns| ns.as_u64().unwrap()).sum()
    };
    assert_eq!(grid_ns(gaps[0]), ns(gaps[0], "lost_ns"));
    assert_eq!(grid_ns(&one["findings"][0]), ns(gaps[0], "lost_ns"));
    assert!(gaps[0]["when"]["grid"]["lost_ns"].as_array().unwrap().len() <= 20);

    for slices in [1, 7, 100] {
        let timeline = server.answer("get_timeline", json!({"slices": slices}));
        let in_slices: u64 = timeline["slices"].as_array().unwrap().iter().map(|slice| ns(slice, "lost_ns")).sum();
        assert_eq!(in_slices, lost_ns, "{slices}");
        // The waits come regularly: there is lost time in the first slice and in all others.
        assert!(timeline["slices"].as_array().unwrap().iter().all(|slice| ns(slice, "lost_ns") > 0), "{timeline}");
    }
    // One that is kept lies exactly where it was.
    let longest = &one["occurrences"][0];
    let (from, to) = (ns(longest, "mono_ns"), ns(longest, "mono_ns") + ns(longest, "dur_ns"));
    let narrow = server.answer("get_timeline", json!({"from_ns": from, "to_ns": to, "slices": 1}));
    assert_eq!(ns(&narrow["slices"][0], "lost_ns"), to - from);
    let in_tables = server.answer("run_sql", json!({"sql": "SELECT sum(lost_ns), count(*) <= 100 FROM lost_time"}));
    assert_eq!(in_tables["rows"], json!([[lost_ns, 1]]));
}

#[test]
fn a_finding_is_told_in_the_order_of_the_report() {
    let (_dir, path) = recording(20_000);
    let mut server = Server::of(&path);
    let found = server.answer("get_causal_chains", json!({}));
    let finding = &found["findings"][0];
    let keys: Vec<&String> = finding.as_object().unwrap().keys().collect();
    let place = |key: &str| keys.iter().position(|k| *k == key).unwrap_or_else(|| panic!("{key}: {keys:?}"));
    let order = ["severity", "summary", "lost_ns", "when", "causes", "advice", "evidence"];
    assert!(order.map(place).is_sorted(), "{keys:?}");
    assert!(ns(&finding["advice"][0], "up_to_ns") > 0, "{finding}");
    let advice = server.answer("run_sql", json!({"sql": "SELECT text, up_to_ns FROM advice ORDER BY rowid LIMIT 1"}));
    assert_eq!(advice["rows"], json!([[finding["advice"][0]["text"], finding["advice"][0]["up_to_ns"]]]));
}

#[test]
fn the_calls_that_kept_the_gpu_idle_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache.ndjson");
    // The cache of the allocator is emptied in each step, while the GPU has nothing to do.
    let mut text = String::new();
    for tool in ["join", "cuda", "sched"] {
        text.push_str(&format!(
            r#"{{"src":"ingero","op":"start","mono_ns":1000000000,"schema":1,"tool":"ingero-{tool}","version":"0","host":"h","boot_id":"b","clock":"monotonic","wall_offset_ns":"0","kernel":"6","filter":{{}},"probes":{{}}}}"#
        ));
        text.push('\n');
    }
    for stream in ["cuda", "sched"] {
        text.push_str(&format!(
            r#"{{"src":"ingero","op":"watch","mono_ns":1000000000,"stream":"{stream}","pid":7,"tid":7,"comm":"train","why":"cuda"}}"#
        ));
        text.push('\n');
    }
    let mut now = 1_000_000_000_u64;
    for _ in 0..200 {
        for (op, dur_ns) in [("cudaLaunchKernel", 5_000), ("cudaDeviceSynchronize", 2_000_000), ("cudaFree", 1_000_000)]
        {
            text.push_str(&format!(
                r#"{{"src":"cudart","op":"{op}","mono_ns":{now},"dur_ns":{dur_ns},"pid":7,"tid":7,"comm":"train","ret":0,"depth":0}}"#
            ));
            text.push('\n');
            now += dur_ns + 1_000;
        }
    }
    for stream in ["cuda", "sched", "join"] {
        text.push_str(&format!(
            r#"{{"src":"ingero","op":"end","mono_ns":{now},"stream":"{stream}","seen":0,"written":0,"lost":{{}}}}"#
        ));
        text.push('\n');
    }
    std::fs::write(&path, text).unwrap();
    let mut server = Server::of(&path);
    let found = server.answer("get_causal_chains", json!({}));
    let finding = &found["findings"][0];
    assert_eq!((&finding["kind"], &finding["call"]), (&json!("gap"), &json!("cudaLaunchKernel")), "{finding}");
    let cause = finding["causes"].as_array().unwrap().iter().find(|c| c["cause"] == "cuda_call").unwrap();
    assert_eq!(cause["ops"][0]["op"], "cudaFree", "{cause}");
    let sql = "SELECT op, ns > 100000000 FROM ops WHERE cause = 'cuda_call'";
    assert_eq!(server.answer("run_sql", json!({"sql": sql}))["rows"], json!([["cudaFree", 1]]));
}

#[test]
fn accounts_are_compared_as_shares_of_loops() {
    let (dir, path) = recording(20_000);
    let (_other, long) = recording(40_000);
    let longer = dir.path().join("longer.ndjson");
    std::fs::copy(&long, &longer).unwrap();
    let mut server = Server::of_command(tool().arg(&path).arg(&longer));
    let compared = server.answer("compare_traces", json!({}));
    let (before, after) = (&compared["before"], &compared["after"]);
    assert_eq!(compared["accounts_total"], 1);
    assert_eq!(compared["accounts"][0]["process"], "cuda train.py");
    for (side, key) in [(before, "before"), (after, "after")] {
        let account = &compared["accounts"][0][key];
        assert_eq!((&account["lost_ns"], &account["classes"]), (&side["lost_ns"], &side["classes"]));
    }
    // Twice as long, and the same.
    assert!(ns(after, "loop_ns") > ns(before, "loop_ns") * 19 / 10, "{compared}");
    let shares = [before, after].map(|side| side["lost_share"].as_f64().unwrap());
    assert!((shares[0] - shares[1]).abs() < 0.01, "{shares:?}");
    assert!(compared["changes"].as_array().unwrap().iter().all(|c| c["change"] == "same"), "{compared}");
}

#[test]
fn nothing_seen_is_told_apart_from_nothing_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.ndjson");
    std::fs::write(&path, "{\"message\":\"hello\"}\n".repeat(10)).unwrap();
    let mut server = Server::of(&path);
    for (name, key) in [("get_trace_stats", "nothing_seen"), ("get_causal_chains", "nothing_seen")] {
        let answer = server.answer(name, json!({}));
        assert!(answer[key].as_str().unwrap().contains("none of its lines is a record"), "{answer}");
    }
    let health = server.answer("get_capture_health", json!({}));
    assert!(health["complete"] == false && health["warnings"][0].as_str().unwrap().contains("nothing could be judged"));
    let (_dir, fed) = recording(400);
    assert!(Server::of(&fed).answer("get_causal_chains", json!({})).get("nothing_seen").is_none());
}
