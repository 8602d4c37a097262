//! A server as a client sees it: lines in, lines out.
#![allow(clippy::print_stderr, reason = "the harness shows it where a test fails")]

pub(crate) mod generate;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far more than anything here needs, on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The tool under test.
pub(crate) fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ingero-mcp"))
}

/// A recording of so many records in a directory of its own.
pub(crate) fn recording(records: u64) -> (TempDir, PathBuf) {
    named_recording(records, &generate::Names::default())
}

/// The same with other names in it.
pub(crate) fn named_recording(records: u64, names: &generate::Names<'_>) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.ndjson");
    let mut bytes = Vec::new();
    generate::joined(&mut bytes, records, names).unwrap();
    std::fs::write(&path, bytes).unwrap();
    (dir, path)
}

/// A running server.
pub(crate) struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Receiver<String>,
    next_id: i64,
    /// Every line that came out.
    pub(crate) seen: Vec<String>,
}

impl Server {
    /// Starts `command`; nothing is said yet.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the server");
        let stdout = child.stdout.take().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let (to_said, said) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            // Shown by the harness where the test fails.
            eprint!("{text}");
            let _ = to_said.send(text);
        });
        let (to, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if to.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, said, next_id: 1, seen: Vec::new() }
    }

    /// A server of one recording, after the handshake.
    pub(crate) fn of(path: &Path) -> Self {
        Self::of_command(tool().arg(path))
    }

    /// The same with a command of its own.
    pub(crate) fn of_command(command: &mut Command) -> Self {
        let mut server = Self::start(command);
        let answer = server.initialize("2025-11-25");
        assert_eq!(answer["result"]["serverInfo"]["name"], "ingero-mcp", "{answer}");
        server
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let params =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.request("initialize", params);
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).unwrap();
        stdin.write_all(b"\n").unwrap();
        stdin.flush().unwrap();
    }

    /// The next line.
    pub(crate) fn receive(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("an answer");
        let value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("no JSON on stdout: {line}: {e}"));
        self.seen.push(line);
        value
    }

    /// The next line, if it comes soon.
    pub(crate) fn receive_within(&mut self, patience: Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(patience).ok()?;
        self.seen.push(line.clone());
        Some(serde_json::from_str(&line).unwrap())
    }

    /// Sends a request and waits for its answer, which must be the next line.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.receive();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Sends a request.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Calls a tool; the whole result.
    pub(crate) fn call(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        answer.get("result").unwrap_or_else(|| panic!("{name}: {answer}")).clone()
    }

    /// Calls a tool that must have an answer; its structured content, which must be what the text says.
    pub(crate) fn answer(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.call(name, arguments.clone());
        assert_eq!(result["isError"], false, "{name} {arguments}: {result}");
        let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        text
    }

    /// Calls a tool that must refuse; what it says.
    pub(crate) fn refusal(&mut self, name: &str, arguments: Value) -> String {
        let result = self.call(name, arguments.clone());
        assert_eq!(result["isError"], true, "{name} {arguments}: {result}");
        assert!(result.get("structuredContent").is_none());
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Nothing is waiting to be read: the answer to a ping is the next line.
    pub(crate) fn expect_silence(&mut self) {
        assert!(self.request("ping", json!({}))["result"].is_object());
    }

    /// The names of its threads.
    pub(crate) fn threads(&self) -> Vec<String> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let name =
            |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.ok()?.path().join("comm")).ok();
        tasks.filter_map(name).map(|name| name.trim_end().to_owned()).collect()
    }

    /// The most memory it has had so far, KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Bytes on disk of the files that it has open and that have no name any more.
    pub(crate) fn temporary_bytes(&self) -> u64 {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let bytes = |file: std::io::Result<std::fs::DirEntry>| {
            let path = file.ok()?.path();
            let is_gone = std::fs::read_link(&path).ok()?.to_string_lossy().ends_with(" (deleted)");
            std::fs::metadata(&path).ok().filter(|_| is_gone).map(|file| file.blocks() * 512)
        };
        files.filter_map(bytes).sum()
    }

    /// Ends the input; the exit status, and how long that took.
    pub(crate) fn close(&mut self) -> (ExitStatus, Duration) {
        drop(self.stdin.take());
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What it wrote to stderr, after its end.
    pub(crate) fn stderr(&mut self) -> String {
        self.said.recv_timeout(PATIENCE).expect("stderr ends")
    }

    /// The lines that are left after the end.
    pub(crate) fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => return rest,
                Err(RecvTimeoutError::Timeout) => panic!("stdout stays open"),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
