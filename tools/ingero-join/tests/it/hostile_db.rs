//! SQLite recordings that were made to do harm, or that are merely odd.

use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;

/// A recording as it should be, changed by `sql`, and joined: exit status, stdout, stderr.
fn joined_after(sql: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch(include_str!("data/recording.sql")).unwrap();
    connection.execute_batch(sql).unwrap();
    drop(connection);
    joined(&path)
}

fn joined(path: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-join"));
    let out = command.arg(path).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code(), text(out.stdout), text(out.stderr))
}

const NO_NAMES: &str = "DROP TABLE process_names;";

#[test]
fn what_no_recording_has_is_refused() {
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)";
    let names = "SELECT x AS pid, printf('%.*c', 900000000, 'x') AS name, 0 AS seen_at FROM c";
    for (sql, says) in [
        (format!("{NO_NAMES} CREATE VIEW process_names AS {endless} {names};"), "views, triggers or virtual tables"),
        // The catalogue says that it is a table, which SQLite notices.
        (
            format!(
                "{NO_NAMES} CREATE VIEW process_names AS {endless} {names}; PRAGMA writable_schema = ON;
                 UPDATE sqlite_master SET type = 'table' WHERE name = 'process_names';"
            ),
            "malformed database schema",
        ),
        // 80 bytes a row become 900 MB.
        (
            format!(
                "{NO_NAMES} CREATE TABLE process_names (pid INTEGER PRIMARY KEY, seen_at INTEGER,
                     name TEXT AS (printf('%.*c', 900000000, 'x')));
                 {endless} INSERT INTO process_names (pid) SELECT x FROM c LIMIT 500;"
            ),
            "process_names has computed columns",
        ),
        (
            "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT 1; END;".to_owned(),
            "views, triggers or virtual tables",
        ),
        // A value that is there.
        ("UPDATE process_names SET name = printf('%.*c', 2000000, 'x');".to_owned(), "a value of more than 1 MB"),
    ] {
        let (status, _, said) = joined_after(&sql);
        assert!(status == Some(2) && said.contains(says), "{sql}: {status:?} {said}");
    }
}

#[test]
fn work_is_bounded_by_the_size_of_the_file() {
    // 16 million rows, of which each is made quickly.
    let (status, _, said) = joined_after(
        "DROP TABLE sources; CREATE TABLE sources (id INTEGER, name TEXT); DROP TABLE ops;
         CREATE TABLE ops (source_id INTEGER, op_id INTEGER, name TEXT);
         WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 4000) INSERT INTO sources SELECT 1, 'CUDA' FROM c;
         INSERT INTO ops SELECT 1, 1, 'x' FROM sources;",
    );
    assert!(status == Some(2) && said.contains("more work than a recording of its size"), "{status:?} {said}");
}

#[test]
fn a_large_recording_is_within_its_bounds() {
    let (status, out, said) = joined_after(
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000)
         INSERT INTO events (timestamp, pid, tid, source, op, duration) SELECT x, x % 7, x % 97, 1, 1 + x % 2, x % 1000 FROM c;
         INSERT INTO event_aggregates SELECT DISTINCT timestamp, source, op, pid, 9, 1 FROM events WHERE timestamp < 30000;",
    );
    let calls = out.lines().filter(|line| line.contains("\"cudart\"")).count();
    assert!(status == Some(0) && calls > 30_000, "{status:?} {calls} {said}");
}

#[test]
fn names_that_are_no_utf8_are_read() {
    let (status, out, said) = joined_after(
        "UPDATE process_names SET name = CAST(x'ff747261696eff' AS TEXT); UPDATE sessions SET kernel = CAST(x'36fe' AS TEXT);
         UPDATE ops SET name = CAST(x'637564614d616c6c6f63ff' AS TEXT) WHERE name = 'cudaMalloc';",
    );
    assert_eq!(status, Some(0), "{said}");
    for text in ["\"comm\":\"\u{fffd}train\u{fffd}\"", "\"op\":\"cudaMalloc\u{fffd}\"", "\"kernel\":\"6\u{fffd}\""] {
        assert!(out.contains(text), "{text}: {out}");
    }
}

#[test]
fn a_damaged_file_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.db");
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("PRAGMA page_size = 4096;").unwrap();
    connection.execute_batch(include_str!("data/recording.sql")).unwrap();
    drop(connection);
    let whole = std::fs::read(&path).unwrap();
    // Lengths, counts and page numbers: whatever they say, it ends in order and soon.
    for at in (100..whole.len()).step_by(997) {
        let mut bytes = whole.clone();
        for byte in &mut bytes[at..(at + 4).min(whole.len())] {
            *byte = 0xff;
        }
        std::fs::write(&path, &bytes).unwrap();
        let (status, _, said) = joined(&path);
        assert!(matches!(status, Some(0 | 2)), "{at}: {status:?} {said}");
    }
}
