//! What a client can use up: temporary files, connections, sessions.

use serde_json::json;

use crate::support::{Server, recording};

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
