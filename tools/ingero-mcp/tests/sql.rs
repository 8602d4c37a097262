//! `run_sql` reads and does nothing else.

mod support;

use serde_json::json;
use support::{Server, recording};

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

#[test]
fn bombs_are_stopped_and_the_server_goes_on() {
    let (_dir, path) = recording(2000);
    let mut server = Server::of(&path);
    for (sql, says) in [
        // This would go on for ever.
        ("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c", "stopped after 4 s"),
        ("SELECT zeroblob(2000000000)", "at most 1 MB"),
        ("SELECT randomblob(2000000000)", "at most 1 MB"),
        ("SELECT printf('%.*c', 2000000000, 'x')", "at most 1 MB"),
        ("SELECT replace(hex(zeroblob(400000)), '00', 'xxxxxxxxxxxxxxxx')", "at most 1 MB"),
        ("SELECT group_concat(hex(zeroblob(5000))) FROM calls", "at most 1 MB"),
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
