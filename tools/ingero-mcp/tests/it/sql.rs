//! `run_sql` reads and does nothing else.

use crate::support::{Server, recording};
use serde_json::json;

#[test]
fn nothing_but_reading_is_let_through() {
    let (dir, path) = recording(2000);
    let before = (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().modified().unwrap());
    let mut server = Server::of(&path);
    let new = dir.path().join("new.db");
    let new = new.display();
    for (sql, says) in [
        ("INSERT INTO calls (id) VALUES (1)", "read-only"),
        ("UPDATE calls SET op = 'x'", "read-only"),
        ("DELETE FROM calls", "read-only"),
        ("DROP TABLE calls", "read-only"),
        ("CREATE TABLE x (y)", "read-only"),
        ("CREATE TEMP TABLE x (y)", "read-only"),
        ("REPLACE INTO calls (id) VALUES (1)", "read-only"),
        ("WITH x AS (SELECT 1) DELETE FROM calls", "read-only"),
        ("WITH x AS (SELECT 1) INSERT INTO calls (id) SELECT * FROM x RETURNING id", "read-only"),
        ("EXPLAIN DELETE FROM calls", "read-only"),
        ("VACUUM", "read-only"),
        ("BEGIN", "read-only"),
        ("REINDEX", "read-only"),
        ("ANALYZE", "read-only"),
        (&format!("VACUUM INTO '{new}'"), "read-only"),
        (&format!("ATTACH '{new}' AS x"), "read-only"),
        (&format!("/* */ ATTACH '{new}' AS x"), "read-only"),
        ("DETACH main", "read-only"),
        ("PRAGMA journal_mode = WAL", "read-only"),
        ("-- a comment\nPRAGMA table_info(calls)", "read-only"),
        ("SELECT * FROM pragma_table_info('calls')", "read-only"),
        ("SELECT * FROM pragma_database_list", "read-only"),
        ("SELECT * FROM dbstat", "read-only"),
        ("SELECT load_extension('/tmp/x.so')", "load_extension"),
        ("SELECT fts3_tokenizer('simple')", "fts3_tokenizer"),
        ("SELECT readfile('/etc/passwd')", "no such function"),
        // What is left out is told with what there is.
        ("SELECT replace(comm, 'a', 'b') FROM calls", "there are ->, ->>, abs, avg"),
        ("SELECT trim(comm, 'a') FROM calls", "not authorized to use function: trim"),
        ("SELECT json_group_array(comm) FROM calls", "not authorized to use function: json_group_array"),
        ("SELECT json_pretty(detail) FROM frames", "not authorized to use function: json_pretty"),
        ("SELECT sum(length(randomblob(9))) FROM calls", "not authorized to use function: randomblob"),
        ("SELECT 1; DROP TABLE calls", "not allowed"),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        ("", "empty"),
        ("-- nothing", "empty"),
        ("SELECT x FROM nowhere", "sqlite_schema"),
        ("SELECT ?1 FROM calls WHERE", "SQLite"),
    ] {
        let message = server.refusal("run_sql", json!({"sql": sql}));
        assert!(message.contains(says), "{sql}: {message}");
    }
    assert_eq!(server.answer("run_sql", json!({"sql": "SELECT count(*) FROM calls"}))["rows"], json!([[1300]]));
    let tables = server.answer("run_sql", json!({"sql": "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"}));
    assert!(tables.to_string().contains("CREATE TABLE switches"));
    server.close();
    let after = (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().modified().unwrap());
    assert!(before == after, "the recording was touched");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "a file was made");
}

/// A value and a pattern that cost millions of steps to compare.
const SLOW: &str =
    "WITH v AS MATERIALIZED (SELECT printf('%.*c', 60000, 'a') AS a, printf('%%%.*c', 98, 'a') || 'b' AS p)";

#[test]
fn bombs_are_stopped_and_the_server_goes_on() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    for (sql, says) in [
        // This would go on for ever.
        ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c", "stopped after 4 s"),
        ("SELECT zeroblob(2000000000)", "zeroblob"),
        ("SELECT printf('%.*c', 2000000000, 'x')", "at most 64 kB"),
        ("SELECT hex(printf('%.*c', 60000, 'x'))", "at most 64 kB"),
        ("SELECT group_concat(printf('%5000d', id)) FROM calls", "at most 64 kB"),
        // A slow function for each row: some rows after the time is over, the statement is.
        (&format!("{SLOW} SELECT sum(a LIKE p) FROM v, calls, switches"), "stopped after 4 s"),
    ] {
        let message = server.refusal("run_sql", json!({"sql": sql}));
        assert!(message.contains(says), "{sql}: {message}");
    }
    let deep = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
    server.refusal("run_sql", json!({"sql": deep}));
    let long = format!("SELECT {}1", "1 + ".repeat(8000));
    server.refusal("run_sql", json!({"sql": long}));
    let wide = format!("SELECT 1 {}", "UNION SELECT 2 ".repeat(300));
    server.refusal("run_sql", json!({"sql": wide}));
    let message = server.refusal("run_sql", json!({"sql": format!("SELECT {}1", "1, ".repeat(150))}));
    assert!(message.contains("at most 100"), "{message}");
    // No end of rows: a page is a page.
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c";
    let page = server.answer("run_sql", json!({"sql": endless, "limit": 3}));
    assert_eq!(page["rows"], json!([[1], [2], [3]]));
    assert!(page["truncated"] == true && page.get("total").is_none(), "{page}");
    let page = server.answer("run_sql", json!({"sql": endless, "limit": 2, "cursor": page["next_cursor"]}));
    assert_eq!(page["rows"], json!([[4], [5]]));
}

#[test]
fn the_answer_does_not_wait_for_a_row_that_takes_minutes() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    // SQLite does not look at the clock within a row.
    let many = vec![format!("max({})", vec!["a LIKE p"; 100].join(",")); 10].join(",");
    let message = server.refusal("run_sql", json!({"sql": format!("{SLOW} SELECT {many} FROM v")}));
    assert!(message.contains("stopped after 4 s"), "{message}");
    // It goes on, and the server does not wait for it to end either.
    assert!(server.threads().iter().any(|name| name == "sql"), "{:?}", server.threads());
    server.expect_silence();
    assert!(server.close().0.success());
}

#[test]
fn a_sort_needs_little_memory() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    server.answer("get_trace_stats", json!({}));
    let before_kib = server.peak_kib();
    // Hundreds of megabytes, as far as it comes within its time.
    let sql = "SELECT a.id, printf('%4000d', b.id) AS x FROM calls a, calls b ORDER BY x, a.id";
    let result = server.call("run_sql", json!({"sql": sql}));
    let grown_kib = server.peak_kib() - before_kib;
    assert!(grown_kib < 100_000, "{grown_kib} KiB more: {result}");
}

#[test]
fn the_functions_of_the_usual_questions_work() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    for sql in [
        "SELECT op, count(*), sum(dur_ns), avg(dur_ns), round(max(dur_ns) / 1e6, 2) FROM calls WHERE comm LIKE 'train%' \
         AND op GLOB 'cuda*' GROUP BY op",
        "SELECT *, row_number() OVER (PARTITION BY pid ORDER BY id), lag(mono_ns) OVER (ORDER BY id) FROM calls",
        "SELECT substr(comm, 1, instr(comm, '.') - 1), coalesce(bytes, 0), upper(op) FROM calls",
        "SELECT tool, detail ->> '$.version', json_extract(detail, '$.probes.mode') FROM frames WHERE op = 'start'",
        "SELECT value FROM frames, json_each(detail, '$.probes.attached') WHERE op = 'start'",
        "SELECT * FROM frames ORDER BY detail DESC",
        "SELECT group_concat(DISTINCT op), datetime(0, 'unixepoch'), printf('%.3f', 2) FROM calls",
    ] {
        let answer = server.answer("run_sql", json!({"sql": sql}));
        assert!(answer["returned"].as_u64() > Some(0), "{sql}: {answer}");
    }
}
