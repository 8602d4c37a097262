//! How fast a recording is loaded, and how long each tool then takes:
//!
//!     cargo bench -p ingero-mcp --bench load                                  a million records
//!     INGERO_BENCH_RECORDS=10000000 cargo bench -p ingero-mcp --bench load    ten million, about 3.7 GB in TMPDIR

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "it prints figures")]

#[path = "../tests/it/support/generate.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests")]
mod generate;

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

const DEFAULT_RECORDS: u64 = 1_000_000;

fn main() {
    let records = std::env::var("INGERO_BENCH_RECORDS").map_or(DEFAULT_RECORDS, |n| n.parse().expect("a number"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.ndjson");
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(&path).unwrap());
    generate::joined(&mut file, records, &generate::Names::default()).unwrap();
    file.into_inner().unwrap();
    let mb = std::fs::metadata(&path).unwrap().len() / 1_000_000;
    println!("{records} records, {mb} MB");

    let mut server = Command::new(env!("CARGO_BIN_EXE_ingero-mcp"))
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, mut stdout) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
    let mut ask = move |method: &str, params: Value| -> (Value, usize) {
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})).unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        (serde_json::from_str(&line).unwrap(), line.len())
    };
    let began = Instant::now();
    ask(
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}),
    );
    // Until it is loaded, a tool says so after a while.
    while ask("tools/call", json!({"name": "get_capture_health", "arguments": {}})).0["result"]["isError"] == true {}
    let seconds = began.elapsed().as_secs_f64();
    println!("loaded in {seconds:.1} s: {:.0} records a second", records as f64 / seconds);

    let end = generate::START_NS + records * 167_000;
    let slow = "SELECT pid, op, count(*), avg(dur_ns), max(dur_ns) FROM calls GROUP BY pid, op";
    let full = "SELECT state, count(*), sum(runq_ns) FROM switches WHERE prev_comm LIKE 'pt_%' GROUP BY state";
    for (name, arguments) in [
        ("get_trace_stats", json!({"limit": 200})),
        ("get_capture_health", json!({})),
        ("get_causal_chains", json!({"limit": 100})),
        ("get_causal_chains", json!({"id": "gap-4242-cudaMemcpyAsync-h2d", "limit": 100})),
        ("get_per_process_breakdown", json!({"limit": 100})),
        ("get_timeline", json!({"slices": 200})),
        ("query_events", json!({"limit": 500})),
        ("query_events", json!({"table": "switches", "limit": 500})),
        ("query_events", json!({"order": "duration", "limit": 500})),
        ("query_events", json!({"table": "switches", "state": "S", "min_dur_ns": 1_000_000, "order": "duration"})),
        (
            "query_events",
            json!({"from_ns": end / 2 + generate::START_NS / 2, "to_ns": end / 2 + generate::START_NS / 2 + 50_000_000}),
        ),
        ("run_sql", json!({"sql": slow})),
        ("run_sql", json!({"sql": full})),
        ("run_sql", json!({"sql": "SELECT * FROM calls", "limit": 1000})),
    ] {
        let began = Instant::now();
        let (answer, bytes) = ask("tools/call", json!({"name": name, "arguments": arguments}));
        let error = if answer["result"]["isError"] == true {
            answer["result"]["content"][0]["text"].to_string()
        } else {
            String::new()
        };
        println!("{:>7.3} s {:>6} tokens  {name} {arguments} {error}", began.elapsed().as_secs_f64(), bytes / 4);
    }
    server.kill().unwrap();
    server.wait().unwrap();
}
