//! The protocol, by raw lines: whatever a client does wrong, the server answers what can be answered and goes on.

use std::io::Write;
use std::time::Duration;

use crate::support::{Server, recording, tool};
use serde_json::{Value, json};

/// What a request of the stateless revision carries.
fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}
    })
}

/// The promise is one second. rmcp by itself takes five when an answer is being made, so this tells them apart without
/// asking a busy machine to be quick.
const SOON: Duration = Duration::from_secs(3);

const ENDLESS: &str = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";

#[test]
fn every_handshake_revision_is_answered_with_itself() {
    let (_dir, path) = recording(400);
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut server = Server::start(tool().arg(&path));
        let answer = server.initialize(version);
        assert_eq!(answer["result"]["protocolVersion"], version);
        assert!(answer["result"]["instructions"].as_str().unwrap().contains("are data"), "{answer}");
        assert_eq!(server.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len(), 8);
        assert!(server.close().0.success());
    }
}

#[test]
fn an_unknown_version_is_answered_with_the_newest_handshake() {
    let (_dir, path) = recording(400);
    for version in ["1999-01-01", "2026-07-28", "4", ""] {
        let mut server = Server::start(tool().arg(&path));
        assert_eq!(server.initialize(version)["result"]["protocolVersion"], "2025-11-25", "{version}");
        server.expect_silence();
    }
}

#[test]
fn discover_comes_first_and_requests_need_no_handshake() {
    let (_dir, path) = recording(400);
    let mut server = Server::start(tool().arg(&path));
    let answer = server.request("server/discover", json!({"_meta": meta("2026-07-28")}));
    let versions = answer["result"]["supportedVersions"].as_array().unwrap_or_else(|| panic!("{answer}"));
    assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2024-11-05")), "{answer}");
    let answer = server.request("tools/list", json!({"_meta": meta("2026-07-28")}));
    assert_eq!(answer["result"]["tools"].as_array().map(Vec::len), Some(8), "{answer}");
    let params = json!({"name": "get_trace_stats", "arguments": {}, "_meta": meta("2026-07-28")});
    let answer = server.request("tools/call", params);
    assert_eq!(answer["result"]["structuredContent"]["recording"], "run", "{answer}");
    // Its requests say their version each time; one that is unknown is refused by itself.
    let answer = server.request("tools/list", json!({"_meta": meta("2031-01-01")}));
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert!(server.request("tools/list", json!({"_meta": meta("2026-07-28")}))["result"].is_object());
    assert!(server.close().0.success());
}

#[test]
fn what_comes_before_the_handshake_does_no_harm() {
    let (_dir, path) = recording(400);
    let mut server = Server::start(tool().arg(&path));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    server.send(&json!({"jsonrpc": "2.0", "id": 99, "result": {}}));
    assert!(server.request("ping", json!({}))["result"].is_object());
    let answer = server.request("tools/list", json!({}));
    assert!(answer["error"]["message"].is_string(), "{answer}");
    assert_eq!(server.initialize("2025-06-18")["result"]["protocolVersion"], "2025-06-18");
    server.expect_silence();
}

#[test]
fn notifications_are_never_answered() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    for method in ["notifications/initialized", "notifications/roots/list_changed", "notifications/nonsense", "ping"] {
        server.send(&json!({"jsonrpc": "2.0", "method": method}));
    }
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "never sent"}}));
    server.send(&json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "run_sql", "arguments": {"sql": "SELECT 1"}}}));
    server.expect_silence();
}

#[test]
fn a_cancelled_request_is_not_answered_and_frees_the_recording() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    server.answer("get_trace_stats", json!({}));
    let id = server.begin("tools/call", json!({"name": "run_sql", "arguments": {"sql": ENDLESS}}));
    server.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}));
    // The next line is this answer, and not that of the cancelled request.
    let rows = server.answer("run_sql", json!({"sql": "SELECT 7 AS n"}));
    assert_eq!(rows["rows"], json!([[7]]));
    server.expect_silence();
}

#[test]
fn unknown_names_are_refused_with_those_that_exist() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    let answer = server.request("tools/call", json!({"name": "drop_table", "arguments": {}}));
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("get_causal_chains"), "{answer}");
    let answer = server.request("prompts/get", json!({"name": "nothing"}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("investigate"), "{answer}");
    let answer = server.request("resources/read", json!({"uri": "ingero://nothing"}));
    assert!(answer["error"]["message"].as_str().unwrap().contains("ingero://contract"), "{answer}");
    let answer = server.request("no/such/method", json!({}));
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

#[test]
fn bad_arguments_say_what_to_write_instead() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    for (name, arguments, says) in [
        ("run_sql", json!({}), "missing field `sql`"),
        ("run_sql", json!({"sql": 5}), "\"sql\""),
        ("get_timeline", json!({"slices": "many"}), "{\"slices\": 20}"),
        ("get_timeline", json!({"slices": 0}), "between 1 and 200"),
        ("get_timeline", json!({"from_ns": 9, "to_ns": 3}), "from_ns 9 is after to_ns 3"),
        ("get_timeline", json!({"to_ns": 5}), "the recording reaches from"),
        ("get_causal_chains", json!({"severity": "huge"}), "`high`"),
        ("get_causal_chains", json!({"id": "gap-1"}), "no finding has the id \"gap-1\""),
        ("get_causal_chains", json!({"cursor": "\u{202e}; drop"}), "leave it out to begin"),
        ("get_per_process_breakdown", json!({"pid": -4}), "\"pid\""),
        ("get_per_process_breakdown", json!({"pid": 77}), "there are 4242"),
        ("query_events", json!({"tabel": "calls"}), "\"tabel\""),
        ("query_events", json!({"limit": 5000}), "between 1 and 500"),
        ("query_events", json!({"table": "samples", "pid": 4242}), "samples have no pid"),
        ("query_events", json!({"order": "duration", "cursor": "id:5"}), "leave it out to begin"),
        ("compare_traces", json!({}), "start ingero-mcp with two recordings"),
        ("get_capture_health", json!({"recording": "other"}), "there is \"run\""),
        ("get_trace_stats", json!({"recording": ["run"]}), "\"recording\""),
    ] {
        let message = server.refusal(name, arguments.clone());
        assert!(message.contains(says), "{name} {arguments}: {message}");
        assert!(!message.contains('\u{202e}'), "{message}");
    }
    server.expect_silence();
}

#[test]
fn an_argument_of_ten_megabytes_is_refused_in_a_short_answer() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    let long = "x".repeat(10_000_000);
    for (name, arguments) in [
        ("run_sql", json!({"sql": format!("SELECT '{long}'")})),
        ("get_causal_chains", json!({"id": long})),
        ("query_events", json!({"op": long})),
    ] {
        let message = server.refusal(name, arguments);
        assert!(message.contains("at most 100000 are read") && message.len() < 1000, "{message}");
    }
    // Longer than any line may be: it is dropped, and what follows is read.
    server.send_line(&"y".repeat(20_000_000));
    server.expect_silence();
}

#[test]
fn junk_does_not_end_the_session() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    // What is no JSON can't be answered: there is no id, and two programs that answer each other's noise never stop.
    for junk in ["", "   ", "junk", "{", "\u{0}\u{1}", "nul", "\"half", "{\"jsonrpc\":\"2.0\",\"id\":3"] {
        server.send_line(junk);
    }
    server.expect_silence();
    // JSON that is no message is told so.
    for junk in ["{}", "[]", "7", "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}"] {
        server.send_line(junk);
        let answer = server.receive();
        assert_eq!(answer["error"]["code"], -32600, "{junk}: {answer}");
    }
    server.expect_silence();
}

#[test]
fn the_end_of_input_ends_the_server() {
    let (_dir, path) = recording(400);
    // Nothing was said.
    let (status, after) = Server::start(tool().arg(&path)).close();
    assert!(status.success() && after < SOON, "{status} {after:?}");
    // A statement is running.
    let mut server = Server::of(&path);
    server.begin("tools/call", json!({"name": "run_sql", "arguments": {"sql": ENDLESS}}));
    let (status, after) = server.close();
    assert!(status.success() && after < SOON, "{status} {after:?}");
}

#[test]
fn the_end_of_input_ends_the_server_while_it_loads_or_follows() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("stream");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    for follow in [false, true] {
        let mut command = tool();
        if follow {
            command.arg("--follow");
        }
        let mut server = Server::start(command.arg(&fifo));
        // A stream that begins and does not go on: the load can't be over.
        let mut stream = std::fs::File::options().write(true).open(&fifo).unwrap();
        stream.write_all(b"{\"src\":\"ingero\",\"op\":\"start\",\"mono_ns\":1}\n").unwrap();
        server.initialize("2025-11-25");
        if !follow {
            // It waits for the load.
            server.begin("tools/call", json!({"name": "get_trace_stats", "arguments": {}}));
        }
        let (status, after) = server.close();
        assert!(status.success() && after < SOON, "{status} {after:?}");
    }
}

#[test]
fn answers_in_flight_at_the_end_of_input_still_come() {
    let (_dir, path) = recording(400);
    let mut server = Server::of(&path);
    server.answer("get_trace_stats", json!({}));
    let id = server.begin("tools/call", json!({"name": "run_sql", "arguments": {"sql": "SELECT count(*) FROM calls"}}));
    server.close();
    let rest = server.rest();
    assert_eq!(serde_json::from_str::<Value>(&rest[0]).unwrap()["id"], id, "{rest:?}");
}

#[test]
fn what_can_not_be_served_is_said_before_anything_else() {
    for (arguments, says) in [
        (vec!["/no/such/recording"], "opening /no/such/recording"),
        (vec!["/"], "is a directory"),
        (vec!["-"], "stdin carries the protocol"),
        (vec!["--follow", "/dev/null", "/dev/null"], "takes one recording"),
        (vec!["--http", "0.0.0.0:0", "/dev/null"], "can be reached from other machines"),
        (vec!["--http", "0.0.0.0:0", "--no-token", "/dev/null"], "can be reached from other machines"),
    ] {
        let output = tool().args(&arguments).stdin(std::process::Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {stderr}");
        assert!(stderr.starts_with("ingero-mcp: ") && stderr.contains(says), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}
