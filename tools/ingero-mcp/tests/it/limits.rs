//! What a client can use up: temporary files, connections, sessions.

use serde_json::json;

use crate::support::{Server, recording, tool};

#[test]
fn a_statement_writes_no_gigabytes_of_temporary_files() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    server.answer("get_trace_stats", json!({}));
    let before = server.temporary_bytes();
    // The tables are in a file from the start, which is not counted.
    assert!(before > 0);
    let sql = "SELECT printf('%.*c', 60000, 'x') AS x, a.id FROM calls a, calls b ORDER BY x, b.id";
    server.begin("tools/call", json!({"name": "run_sql", "arguments": {"sql": sql}}));
    let mut most = 0;
    let answer = loop {
        most = most.max(server.temporary_bytes());
        if let Some(answer) = server.receive_within(std::time::Duration::from_millis(10)) {
            break answer;
        }
    };
    // On a slow machine its time is over before that.
    let message = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(message.contains("256 MB of temporary space") || message.contains("stopped after 4 s"), "{message}");
    assert!(most - before < 1 << 30, "{most}");
    // The files are gone with the statement.
    assert!(server.temporary_bytes() <= before + (1 << 20), "{before} {}", server.temporary_bytes());
    // What is usual still works.
    let sorted = server.answer(
        "run_sql",
        json!({"sql": "SELECT a.id, b.op FROM calls a, calls b WHERE b.id < 50 ORDER BY b.op, a.dur_ns", "limit": 5}),
    );
    assert_eq!(sorted["returned"], 5);
}

#[test]
fn a_hostile_database_does_no_harm_to_the_other_recordings() {
    let (dir, path) = recording(2000);
    let hostile = dir.path().join("hostile.db");
    let connection = rusqlite::Connection::open(&hostile).unwrap();
    // Each name would be made anew, of nothing, with 900 MB.
    connection
        .execute_batch(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, timestamp INTEGER, pid INTEGER, tid INTEGER, source INTEGER,
                 op INTEGER, duration INTEGER, arg0 INTEGER, arg1 INTEGER, ret_code INTEGER);
             CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT);
             CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT AS (printf('%.*c', 900000000, 'x')));
             INSERT INTO sources VALUES (1, 'CUDA');
             WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 500) INSERT INTO ops SELECT 1, x FROM c;",
        )
        .unwrap();
    drop(connection);
    let mut server = Server::of_command(tool().arg(&path).arg(&hostile));
    let health = server.answer("get_capture_health", json!({"recording": "hostile"}));
    assert!(health["warnings"].to_string().contains("ops has computed columns"), "{health}");
    assert_eq!(server.answer("run_sql", json!({"sql": "SELECT count(*) FROM calls"}))["rows"], json!([[1300]]));
    assert!(server.peak_kib() < 500_000, "{} KiB", server.peak_kib());
}
