//! The official clients, as people use them, list and call everything that ingero-mcp has; over stdin and stdout and over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ingero_tests::clients::{Python, TypeScript};
use ingero_tests::{Output, bin, repository};
use serde_json::{Value, json};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Two recordings, made by ingero-join of the small cases: one of a training that a worker starves, one of a healthy one.
fn recordings() -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let files = ["30-starved-by-a-worker", "31-healthy"].map(|case| {
        let case = repository().join("tests/cases").join(case);
        let file = dir.path().join(format!("{}.ndjson", case.file_name().unwrap().to_str().unwrap()));
        let mut join = Command::new(bin("ingero-join"));
        join.args(["cuda.ndjson", "sched.ndjson", "-o"]).arg(&file).current_dir(&case);
        Output::of(&mut join).exits(0);
        file.to_str().unwrap().to_owned()
    });
    (dir, files.into())
}

fn calls() -> Value {
    json!([
        ["get_capture_health", {}],
        ["get_trace_stats", {"limit": 5}],
        ["get_causal_chains", {"severity": "low"}],
        ["get_per_process_breakdown", {}],
        ["get_timeline", {"slices": 5}],
        ["query_events", {"table": "calls", "order": "duration", "limit": 3}],
        ["run_sql", {"sql": "SELECT count(*) AS n, NULL, 1.5, 'x' FROM calls"}],
        ["compare_traces", {}],
        ["run_sql", {"sql": "DROP TABLE calls"}]
    ])
}

#[track_caller]
fn check(said: &Value, client: &str) {
    let names: Vec<&str> = said["tools"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert_eq!(names.len(), 8, "{client}: {names:?}");
    let results = said["results"].as_array().unwrap();
    for name in names {
        assert!(results.iter().any(|r| r["tool"] == name && r["error"] == false), "{client}: {name}: {said}");
    }
    for result in results {
        assert_eq!(result["agrees"], true, "{client}: {result}");
    }
    let of = |tool: &str| results.iter().find(|r| r["tool"] == tool).unwrap()["content"].clone();
    assert_eq!(of("get_causal_chains")["findings"][0]["kind"], "gap", "{client}");
    assert!(of("get_trace_stats")["accounts"][0]["lost_share"].as_f64().unwrap() > 0.2, "{client}");
    assert!(of("run_sql")["rows"][0][0].as_u64().unwrap() > 100, "{client}");
    assert_eq!(of("compare_traces")["changes"][0]["change"], "vanished", "{client}");
    assert_eq!(results.last().unwrap()["error"], true);
    assert!(said["prompt_chars"].as_u64().unwrap() > 1000);
    assert_eq!(said["resources"].as_object().unwrap().len(), 4, "{client}: {said}");
}

/// A server at a free port of the loopback interface.
struct Http {
    child: Child,
    url: String,
}

impl Http {
    fn start(files: &[String]) -> Self {
        let mut command = Command::new(bin("ingero-mcp"));
        command.args(["--http", "127.0.0.1:0", "--token-env", "INGERO_TEST_TOKEN"]).args(files);
        command.env("INGERO_TEST_TOKEN", TOKEN).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let url = lines.find_map(|line| line.split_once("serving at ").map(|(_, url)| url.to_owned())).unwrap();
        // Nobody else reads it, and a full pipe would stop the server.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_python_client_lists_and_calls_every_tool() {
    let (_dir, files) = recordings();
    let python = Python::install();
    let binary = bin("ingero-mcp");
    let mut stdio = vec!["stdio", binary.to_str().unwrap()];
    stdio.extend(files.iter().map(String::as_str));
    let http = Http::start(&files);
    for (mode, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        for (how, server) in [("stdio", &stdio[..]), ("http", &["http", &http.url, TOKEN])] {
            let said = python.run(mode, &calls(), server);
            check(&said, &format!("python {mode} {how}"));
            assert_eq!(said["version"], version, "{mode} {how}");
        }
    }
}

#[test]
fn the_typescript_client_lists_and_calls_every_tool() {
    let (_dir, files) = recordings();
    let typescript = TypeScript::install();
    let binary = bin("ingero-mcp");
    let mut stdio = vec!["stdio", binary.to_str().unwrap()];
    stdio.extend(files.iter().map(String::as_str));
    let http = Http::start(&files);
    for (how, server) in [("stdio", &stdio[..]), ("http", &["http", &http.url, TOKEN])] {
        check(&typescript.run(&calls(), server), &format!("typescript {how}"));
    }
}

#[test]
fn the_configuration_in_the_readme_starts_the_server() {
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let block =
        readme.split("```json\n").filter_map(|rest| rest.split("```").next()).find(|b| b.contains("mcpServers"));
    let configuration: Value = serde_json::from_str(block.expect("a JSON block with mcpServers")).unwrap();
    let server = &configuration["mcpServers"]["ingero"];
    assert!(server["command"].as_str().unwrap().ends_with("/ingero-mcp"));
    // As written, but for the two places that are the reader's own.
    let sample = repository().join("tests/samples/dataloader-starved.ndjson.zst");
    let arguments: Vec<&str> = server["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    let binary = bin("ingero-mcp");
    let mut stdio = vec!["stdio", binary.to_str().unwrap()];
    stdio.extend(arguments.iter().map(|&a| if a.starts_with("/path/to/") { sample.to_str().unwrap() } else { a }));
    let said = TypeScript::install().run(&json!([["get_causal_chains", {}]]), &stdio);
    assert_eq!(said["results"][0]["content"]["findings"][0]["kind"], "gap", "{said}");
}
