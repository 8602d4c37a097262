//! A recording that is still being written.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use crate::support::{PATIENCE, Server, generate, recording, tool};
use serde_json::{Value, json};

const COUNT: &str = "SELECT count(*) FROM calls";

/// Asks until `holds`.
fn until(server: &mut Server, name: &str, arguments: &Value, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let answer = server.answer(name, arguments.clone());
        if holds(&answer) {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "{name}: {answer}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn lines(records: u64) -> Vec<String> {
    let mut bytes = Vec::new();
    generate::joined(&mut bytes, records, &generate::Names::default()).unwrap();
    String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_file_that_grows_is_read_as_it_grows() {
    let (dir, _) = recording(20);
    // 13 s of calls; ingero-chain judges what is 2.5 s old.
    let lines = lines(80_000);
    let path = dir.path().join("growing.ndjson");
    let mut file = File::create(&path).unwrap();
    // The last line is cut in the middle.
    let (first, rest) = lines.split_at(20_000);
    let (half, other_half) = rest[0].split_at(rest[0].len() / 2);
    write!(file, "{}\n{half}", first.join("\n")).unwrap();

    let mut server = Server::of_command(tool().arg("--follow").arg(&path));
    let in_first = first.iter().filter(|l| l.contains("\"cudart\"")).count();
    until(&mut server, "run_sql", &json!({"sql": COUNT}), |rows| rows["rows"] == json!([[in_first]]));
    let stats = server.answer("get_trace_stats", json!({}));
    assert_eq!((&stats["growing"], &stats["records"]), (&json!(true), &json!(20_000)));
    let so_far = until(&mut server, "get_causal_chains", &json!({}), |chains| chains["total"] == 1);
    let lost_ns = so_far["findings"][0]["lost_ns"].as_u64().unwrap();

    write!(file, "{other_half}\n{}\n", rest[1..].join("\n")).unwrap();
    let calls = lines.iter().filter(|l| l.contains("\"cudart\"")).count();
    until(&mut server, "run_sql", &json!({"sql": COUNT}), |rows| rows["rows"] == json!([[calls]]));
    // What was found grows with it, in the report and in the tables.
    let grown = until(&mut server, "get_causal_chains", &json!({}), |chains| {
        chains["findings"][0]["lost_ns"].as_u64().unwrap() > 3 * lost_ns
    });
    let in_tables = until(&mut server, "run_sql", &json!({"sql": "SELECT lost_ns FROM findings"}), |rows| {
        rows["rows"][0][0].as_u64() >= grown["findings"][0]["lost_ns"].as_u64()
    });
    assert_eq!(in_tables["total"], 1);
    assert_eq!(server.answer("get_capture_health", json!({}))["bad_lines"], 0);
    assert!(server.close().0.success());
}

#[test]
fn a_fifo_is_complete_when_its_writer_ends() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("stream");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut server = Server::of_command(tool().arg("--follow").arg(&fifo));
    // Nobody writes yet, and the server answers.
    server.expect_silence();
    let lines = lines(4000);
    let mut stream = File::options().write(true).open(&fifo).unwrap();
    stream.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    until(&mut server, "get_trace_stats", &json!({}), |stats| stats["records"] == lines.len());
    assert_eq!(server.answer("get_trace_stats", json!({}))["growing"], true);
    drop(stream);
    let stats = until(&mut server, "get_trace_stats", &json!({}), |stats| stats["growing"] == false);
    assert_eq!(stats["findings"]["high"], 1);
    let chains = server.answer("get_causal_chains", json!({}));
    // The same as ingero-chain says of the whole.
    let (_dir, path) = recording(4000);
    let whole = Server::of(&path).answer("get_causal_chains", json!({}));
    assert_eq!(chains["findings"], whole["findings"]);
}

#[test]
fn a_file_that_is_another_one_now_is_told_of() {
    let lines = lines(2000);
    let calls = lines.iter().filter(|l| l.contains("\"cudart\"")).count();
    type Change = fn(&std::path::Path);
    let changes: [(Change, &str); 3] = [
        (|path| File::options().write(true).open(path).unwrap().set_len(5000).unwrap(), "the file was truncated from"),
        (
            |path| {
                let other = path.with_extension("other");
                std::fs::copy(path, &other).unwrap();
                std::fs::rename(&other, path).unwrap();
            },
            "the file was replaced by another one",
        ),
        (|path| std::fs::remove_file(path).unwrap(), "the file was deleted or renamed"),
    ];
    for (change, says) in changes {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("growing.ndjson");
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let mut server = Server::of_command(tool().arg("--follow").arg(&path));
        until(&mut server, "run_sql", &json!({"sql": COUNT}), |rows| rows["rows"] == json!([[calls]]));
        let health = server.answer("get_capture_health", json!({}));
        assert!(!health.to_string().contains("the file was"), "{health}");
        change(&path);
        let health = until(&mut server, "get_capture_health", &json!({}), |health| {
            health["warnings"].to_string().contains(says)
        });
        assert_eq!(health["complete"], false, "{health}");
        // What was read before is served, and nobody waits for more.
        assert_eq!(server.answer("get_trace_stats", json!({}))["growing"], false);
        assert_eq!(server.answer("run_sql", json!({"sql": COUNT}))["rows"], json!([[calls]]));
        assert!(server.close().0.success());
        let stderr = server.stderr();
        assert!(stderr.contains(says) && stderr.contains("growing.ndjson"), "{stderr}");
    }
}
