//! What a thread is in and on, beside what a Python program knows of its own waits.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use ingero_tests::Records;
use serde_json::Value;

use crate::{end_ns, raw, sched_on, stop};

/// The program, and when each kind of wait began and ended.
struct Waits {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    folder: tempfile::TempDir,
}

impl Waits {
    fn start() -> Self {
        // A place on a disk: what lies in memory waits for no device.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/waits.py");
        let mut child = Command::new("python3")
            .args([script.as_os_str(), folder.path().as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tests need python3");
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let pid = said.next().unwrap().unwrap();
        assert_eq!(pid, format!("pid {}", child.id()));
        Self { child, said, folder }
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn spans(&mut self) -> BTreeMap<String, (u64, u64)> {
        let lines = self.said.by_ref().map(Result::unwrap).take_while(|line| line != "done");
        lines
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                (words[0].to_owned(), (words[1].parse().unwrap(), words[2].parse().unwrap()))
            })
            .collect()
    }
}

/// The times off the CPU of the main thread that lie in a span, of 50 us and more.
fn in_span(records: &Records, pid: u32, (from_ns, to_ns): (u64, u64)) -> Vec<&Value> {
    let inside = |r: &&Value| {
        let (start_ns, end_ns) = (r["mono_ns"].as_u64().unwrap(), end_ns(r));
        r["tid"] == pid && start_ns >= from_ns && end_ns <= to_ns && end_ns - start_ns >= 50_000
    };
    records.of("sched", "sched_switch").filter(inside).collect()
}

fn sum_ns<'a>(records: impl IntoIterator<Item = &'a &'a Value>) -> u64 {
    records.into_iter().map(|r| r["dur_ns"].as_u64().unwrap()).sum()
}

#[test]
fn each_wait_has_the_name_of_what_it_was_for() {
    if raw::is_on() {
        return;
    }
    let mut waits = Waits::start();
    let pid = waits.child.id();
    let sched = sched_on(pid, &[]);
    waits.go();
    let spans = waits.spans();
    let records = stop(sched);
    waits.go();
    waits.child.wait().unwrap();

    let data = waits.folder.path().join("data");
    let lock = waits.folder.path().join("lock");
    let on = |kind: &'static str, name: &'static str| (kind, name.to_owned());
    for (span, call, (kind, name), by_timer) in [
        ("pause", "clock_nanosleep", on("", ""), true),
        ("pipe", "read", on("pipe", "pipe:["), false),
        ("full_pipe", "write", on("pipe", "pipe:["), false),
        ("unix", "recvfrom", on("socket", "unix"), false),
        ("connection", "recvfrom", on("socket", "tcp 127.0.0.1:"), false),
        ("request", "epoll_wait", on("epoll", ""), false),
        ("deadline", "poll", on("pipe", "pipe:["), true),
        ("file_lock", "flock", ("file", lock.display().to_string()), false),
        ("lock", "futex", on("futex", ""), false),
        ("child", "wait4", on("", ""), false),
    ] {
        let all = in_span(&records, pid, spans[span]);
        let named = |r: &&&Value| {
            r["in"].as_str().unwrap_or_default().starts_with(call)
                && r["on"]["kind"].as_str().unwrap_or_default() == kind
                && r["on"]["name"].as_str().unwrap_or_default().starts_with(&name)
        };
        let right: Vec<&Value> = all.iter().filter(named).copied().collect();
        assert!(sum_ns(&right) >= 100_000_000, "{span}: {all:#?}");
        let longest = right.iter().max_by_key(|r| r["dur_ns"].as_u64()).unwrap();
        assert_eq!(longest["io"], false, "{longest}");
        let timed_out = longest["timeout_ns"].as_u64().is_some_and(|ns| ns <= longest["dur_ns"].as_u64().unwrap());
        assert_eq!(timed_out, by_timer, "{longest}");
        assert_eq!(longest["on"]["listens"], if span == "request" { true.into() } else { Value::Null }, "{longest}");
    }
    // Whoever reads past the page cache waits for the device, in the read, on the file.
    let read: Vec<&Value> = in_span(&records, pid, spans["device"]).into_iter().filter(|r| r["state"] != "R").collect();
    let waited: Vec<&Value> = read.iter().filter(|r| r["io"] == true).copied().collect();
    assert!(sum_ns(&waited) * 10 >= sum_ns(&read) * 9 && !waited.is_empty(), "{read:#?}");
    assert!(waited.iter().all(|r| r["in"] == "readv" && r["on"]["name"] == data.display().to_string()), "{waited:#?}");
    // Two threads that both want to run Python wait for each other, and for nothing else.
    let fight = in_span(&records, pid, spans["gil"]);
    let slept: Vec<&Value> = fight.iter().filter(|r| r["state"] == "S").copied().collect();
    let gil: Vec<&Value> = slept.iter().filter(|r| r["on"]["kind"] == "gil").copied().collect();
    assert!(sum_ns(&gil) >= 200_000_000 && sum_ns(&gil) * 10 >= sum_ns(&slept) * 9, "{slept:#?}");
    // Who is driven off the CPU in its own code is in no system call.
    let own = |r: &&Value| r["state"] == "R" && r["tid"] == pid && r["dur_ns"].as_u64() >= Some(50_000);
    for r in records.of("sched", "sched_switch").filter(own) {
        assert!(r["in"].as_str() != Some("page_fault") && r["on"].is_null(), "{r}");
    }
}
