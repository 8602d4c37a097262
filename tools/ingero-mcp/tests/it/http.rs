//! Who gets through over HTTP: the right host, no foreign web page, and only with the token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{recording, tool};
use serde_json::json;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Http {
    child: Child,
    address: String,
}

impl Http {
    /// A server of a small recording.
    fn start(arguments: &[&str]) -> (tempfile::TempDir, Self) {
        let (dir, path) = recording(400);
        let server = Self::with(&dir, arguments, &[path.to_str().unwrap()], Stdio::null());
        (dir, server)
    }

    fn with(dir: &tempfile::TempDir, arguments: &[&str], recordings: &[&str], stdin: Stdio) -> Self {
        let token = dir.path().join("token");
        std::fs::write(&token, format!("{TOKEN}\n")).unwrap();
        let mut command = tool();
        command.args(["--http", "127.0.0.1:0", "--token-file"]).arg(&token).args(arguments).args(recordings);
        Self::of_command(command.stdin(stdin)).0
    }

    /// A server as the command starts it, and what it said before it served.
    fn of_command(command: &mut Command) -> (Self, String) {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said = String::new();
        let line = lines.find(|line| {
            said.push_str(line);
            said.push('\n');
            line.contains("serving at")
        });
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.as_deref().and_then(|line| line.split("http://").nth(1)?.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
        (Self { child, address }, said)
    }

    /// Connects and sends a request without the end of its body.
    fn begin_slow_body(&self) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAuthorization: Bearer {TOKEN}\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: 100\r\n\r\n{{",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// Descriptors that the server has open.
    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Posts a request; the status, and the message that came back.
    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        self.send("POST", path, headers, body)
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
        let mut request =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        let usual = [
            ("Host", self.address.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Authorization", &format!("Bearer {TOKEN}")),
        ];
        let overridden = |name: &str| headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        for (name, value) in usual.iter().filter(|(n, _)| !overridden(n)).chain(headers) {
            if !value.is_empty() {
                request.push_str(&format!("{name}: {value}\r\n"));
            }
        }
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        // A server that refuses need not read a long body to its end.
        let _ = stream.write_all(body.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"));
        (status, answer)
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn initialize() -> String {
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string()
}

#[test]
fn only_those_who_may_get_through() {
    let (_dir, server) = Http::start(&["--allow-host", "gpu-box.example", "--allow-origin", "https://app.example"]);
    let wrong = format!("Bearer {}", TOKEN.replace('f', "e"));
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    let (local, allowed) = (format!("localhost:{port}"), format!("gpu-box.example:{port}"));
    for (headers, status) in [
        (vec![], 200),
        (vec![("Host", local.as_str())], 200),
        (vec![("Host", allowed.as_str())], 200),
        (vec![("Host", "evil.example")], 403),
        (vec![("Host", "127.0.0.1.evil.example")], 403),
        (vec![("Origin", "https://app.example")], 200),
        (vec![("Origin", "http://app.example")], 403),
        (vec![("Origin", "https://evil.example")], 403),
        (vec![("Origin", "null")], 403),
        (vec![("Authorization", "")], 401),
        (vec![("Authorization", wrong.as_str())], 401),
        (vec![("Authorization", TOKEN)], 401),
        (vec![("Authorization", "Bearer ")], 401),
        // A refused token is refused before anything else is looked at.
        (vec![("Authorization", ""), ("Host", "evil.example")], 401),
    ] {
        let (got, answer) = server.post("/mcp", &headers, &initialize());
        assert_eq!(got, status, "{headers:?}: {answer}");
        assert_eq!(answer.contains("ingero-mcp\""), status == 200, "{headers:?}: {answer}");
    }
    assert_eq!(server.post("/", &[], &initialize()).0, 404);
    assert_eq!(server.post("/mcp", &[], "junk").0 / 100, 4);
    assert_eq!(server.post("/mcp", &[], &format!("\"{}\"", "x".repeat(17_000_000))).0, 413);
}

#[test]
fn a_session_and_a_stateless_request_are_answered() {
    let (_dir, server) = Http::start(&[]);
    let (_, answer) = server.post("/mcp", &[], &initialize());
    let session =
        answer.lines().find_map(|l| l.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned)).unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "get_trace_stats", "arguments": {}}});
    let (status, answer) = server.post("/mcp", &[("Mcp-Session-Id", &session)], &call.to_string());
    assert!(status == 200 && answer.contains("structuredContent"), "{answer}");

    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let mut stateless = call.clone();
    stateless["params"]["_meta"] = meta;
    let headers =
        [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "get_trace_stats")];
    let (status, answer) = server.post("/mcp", &headers, &stateless.to_string());
    assert!(status == 200 && answer.contains("structuredContent"), "{status} {answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(body.contains("\"records\""), "{body}");
}

#[test]
fn a_live_stream_on_stdin_is_served() {
    let (dir, path) = recording(400);
    let mut server = Http::with(&dir, &["--follow"], &["-"], Stdio::piped());
    let mut stdin = server.child.stdin.take().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    stdin.write_all(&bytes).unwrap();
    let records = bytes.iter().filter(|&&b| b == b'\n').count();
    let ask = |server: &Http| {
        let (_, answer) = server.post("/mcp", &[], &initialize());
        let session = answer.lines().find_map(|l| l.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
        let params = json!({"name": "get_trace_stats", "arguments": {}});
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
        server.post("/mcp", &[("Mcp-Session-Id", &session.unwrap())], &call.to_string()).1
    };
    let until = |text: &str| {
        let began = std::time::Instant::now();
        while !ask(&server).contains(text) {
            assert!(began.elapsed() < crate::support::PATIENCE, "{text}: {}", ask(&server));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("\"growing\":true");
    until(&format!("\"records\":{records},"));
    drop(stdin);
    until("\"growing\":false");
}

#[test]
fn a_weak_or_absent_token_is_refused_at_the_start() {
    let (dir, path) = recording(20);
    let token = dir.path().join("token");
    for (text, says) in
        [("short", "16 printable characters"), ("has a space in the middle", "without spaces"), ("", "16 printable")]
    {
        std::fs::write(&token, text).unwrap();
        let output = tool().args(["--http", "0", "--token-file"]).arg(&token).arg(&path).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(says), "{stderr}");
    }
    let output = tool().args(["--http", "0", "--token-env", "INGERO_NO_SUCH_VARIABLE"]).arg(&path).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("$INGERO_NO_SUCH_VARIABLE"));
}

#[test]
fn without_a_token_of_yours_there_is_one_that_only_you_can_read() {
    let (dir, path) = recording(400);
    let mut command = tool();
    command.args(["--http", "127.0.0.1:0"]).arg(&path).env("XDG_RUNTIME_DIR", dir.path()).stdin(Stdio::null());
    let (mut server, said) = Http::of_command(&mut command);
    let file = said.lines().find_map(|line| line.split_once("must send the token in ")).expect(&said).1.to_owned();
    assert!(std::path::Path::new(&file).starts_with(dir.path()), "{file}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    assert!(token.trim().len() == 64 && !said.contains(token.trim()), "{said}");
    for (header, status) in [("", 401), ("Bearer 0123456789abcdef", 401), (&format!("Bearer {}", token.trim()), 200)] {
        assert_eq!(server.post("/mcp", &[("Authorization", header)], &initialize()).0, status, "{header}");
    }
    // It goes with the server.
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    server.child.wait().unwrap();
    assert!(!std::path::Path::new(&file).exists());

    let mut open = tool();
    open.args(["--http", "127.0.0.1:0", "--no-token"]).arg(&path).stdin(Stdio::null());
    let (server, _) = Http::of_command(&mut open);
    assert_eq!(server.post("/mcp", &[("Authorization", "")], &initialize()).0, 200);
}

#[test]
fn a_body_that_does_not_come_does_not_hold_the_server() {
    let (_dir, server) = Http::start(&[]);
    let mut one = server.begin_slow_body();
    // More than are served at once, each of which never ends.
    let many: Vec<TcpStream> = (0..300).map(|_| server.begin_slow_body()).collect();
    one.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let mut answer = String::new();
    let _ = one.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    assert!(server.descriptors() < 300, "{}", server.descriptors());
    assert_eq!(server.post("/mcp", &[], &initialize()).0, 200);
    drop(many);
}

#[test]
fn sessions_are_bounded() {
    let (_dir, server) = Http::start(&[]);
    let session = |answer: &str| {
        answer.lines().find_map(|l| l.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned))
    };
    let mut sessions = Vec::new();
    let refused = loop {
        let (status, answer) = server.post("/mcp", &[], &initialize());
        match session(&answer) {
            Some(session) => sessions.push(session),
            None => break (status, answer),
        }
        assert!(sessions.len() < 1000, "no bound");
    };
    assert!(refused.0 == 503 && refused.1.to_lowercase().contains("retry-after: "), "{refused:?}");
    // Those that there are go on, and one that is ended makes room.
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "get_trace_stats", "arguments": {}}});
    assert_eq!(server.post("/mcp", &[("Mcp-Session-Id", &sessions[0])], &call.to_string()).0, 200);
    assert_eq!(server.send("DELETE", "/mcp", &[("Mcp-Session-Id", &sessions[0])], "").0 / 100, 2);
    assert_eq!(server.post("/mcp", &[], &initialize()).0, 200);
}
