//! Stdout holds protocol lines and nothing else, whatever happens inside.

use std::process::Command;

use crate::support::{Server, recording, tool};
use serde_json::{Value, json};

/// An example of this package, which cargo builds with its tests.
fn example(name: &str) -> Command {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("examples").join(name);
    assert!(path.is_file(), "{} is not there: cargo test builds it", path.display());
    Command::new(path)
}

fn all_are_messages(lines: &[String]) {
    for line in lines {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
    }
}

#[test]
fn with_everything_logged_stdout_has_messages_only() {
    let (dir, path) = recording(2000);
    // A bad line and a late one are told on stderr.
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("junk\n");
    std::fs::write(dir.path().join("bad.ndjson"), text).unwrap();
    let mut command = tool();
    command.env("RUST_LOG", "trace").arg("-v").arg(&path).arg(dir.path().join("bad.ndjson"));
    let mut server = Server::of_command(&mut command);
    server.answer("get_capture_health", json!({"recording": "bad"}));
    server.refusal("run_sql", json!({"sql": "nonsense"}));
    server.send_line("junk");
    server.request("no/such/method", json!({}));
    server.close();
    let rest = server.rest();
    all_are_messages(&server.seen);
    all_are_messages(&rest);
    assert!(server.seen.len() >= 4);
}

#[test]
fn a_panic_in_a_tool_ends_that_request_only() {
    let (_dir, path) = recording(2000);
    let mut command = example("with_a_bug");
    let mut server = Server::of_command(command.env("RUST_LOG", "trace").arg(&path));
    for _ in 0..3 {
        let message = server.refusal("bug", json!({}));
        assert!(message.contains("bug") && !message.contains("forced"), "{message}");
        // The recording is still served.
        assert_eq!(server.answer("run_sql", json!({"sql": "SELECT count(*) FROM calls"}))["rows"], json!([[1300]]));
    }
    assert!(server.close().0.success());
    let rest = server.rest();
    all_are_messages(&server.seen);
    all_are_messages(&rest);
}
