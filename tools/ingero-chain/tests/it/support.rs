//! What the tests of the tool share.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// Runs the tool on `input` in this locale; nothing but `args` decides about colours.
pub(crate) fn chain_in(locale: &str, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ingero-chain"))
        .args(args)
        .env("LC_ALL", locale)
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A tool that stops early closes its input.
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let out = child.wait_with_output().unwrap();
    writer.join().unwrap();
    out
}

/// Runs the tool on `input`.
pub(crate) fn chain(args: &[&str], input: &str) -> Output {
    chain_in("C.UTF-8", args, input.as_bytes())
}

/// As UTF-8, which it must be.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Records, one a line.
pub(crate) fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Lines as records.
pub(crate) fn parsed(stdout: &[u8]) -> Vec<Value> {
    text(stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the tool writes about `stream`, of which it has nothing to complain.
pub(crate) fn report(args: &[&str], stream: &[Value]) -> Vec<Value> {
    let out = chain(args, &lines(stream));
    let records = parsed(&out.stdout);
    let said = text(&out.stderr);
    // Where nothing could be judged, stderr has the reason, too.
    let why = records.last().and_then(|summary| summary["nothing_seen"].as_str());
    assert!(out.status.code() == Some(0) && why.map_or(said.is_empty(), |why| said.contains(why)), "{said}");
    adds_up(&records);
    records
}

/// The records of one kind.
pub(crate) fn found(records: &[Value], op: &str) -> Vec<Value> {
    records.iter().filter(|record| record["op"] == op).cloned().collect()
}

/// The nanoseconds of one class in the account, which must be the only one.
pub(crate) fn class_ns(records: &[Value], class: &str) -> u64 {
    let accounts = found(records, "account");
    assert_eq!(accounts.len(), 1, "{accounts:?}");
    accounts[0]["classes"][class].as_u64().unwrap_or(0)
}

/// The nanoseconds of one cause of a finding.
pub(crate) fn cause_ns(finding: &Value, cause: &str) -> u64 {
    let causes = finding["causes"].as_array().unwrap();
    causes.iter().find(|line| line["cause"] == cause).map_or(0, |line| line["ns"].as_u64().unwrap())
}

/// Sum of what all gaps lost, in nanoseconds.
pub(crate) fn gaps_ns(records: &[Value]) -> u64 {
    found(records, "gap").iter().map(|gap| gap["lost_ns"].as_u64().unwrap()).sum()
}

/// Process 100 is watched by both tracers from `at_ms` on.
pub(crate) fn watched(at_ms: u64) -> Vec<Value> {
    ["cuda", "sched"]
        .map(|stream| {
            json!({"src":"ingero","op":"watch","mono_ns":at_ms * MS,"pid":100,"tid":100,"comm":"train","stream":stream})
        })
        .to_vec()
}

/// A call of thread `tid` of process 100 that succeeded.
pub(crate) fn call(op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Value {
    let src = if op.starts_with("nccl") { "nccl" } else { "cudart" };
    json!({"src":src,"op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":tid,"comm":"train","ret":0,"depth":0,
        "func":"0x1"})
}

/// The end of the whole stream.
pub(crate) fn end(at_ns: u64) -> Value {
    json!({"src":"ingero","op":"end","mono_ns":at_ns})
}

/// What every report must keep to.
fn adds_up(records: &[Value]) {
    for account in records.iter().filter(|record| record["op"] == "account") {
        let classes = account["classes"].as_object().unwrap();
        let sum: u64 = classes.values().map(|ns| ns.as_u64().unwrap()).sum();
        assert_eq!(Some(sum), account["observed_ns"].as_u64(), "{account}");
        let lost = ["idle", "silence"].iter().filter_map(|class| classes.get(*class)?.as_u64()).sum::<u64>();
        assert_eq!(Some(lost), account["lost_ns"].as_u64(), "{account}");
    }
    for finding in records.iter().filter(|record| record["causes"].is_array()) {
        let causes: u64 = finding["causes"].as_array().unwrap().iter().map(|line| line["ns"].as_u64().unwrap()).sum();
        assert_eq!(
            Some(causes + finding["unexplained_ns"].as_u64().unwrap()),
            finding["lost_ns"].as_u64(),
            "{finding}"
        );
    }
}

/// A stream under way.
#[derive(Clone, Default)]
pub(crate) struct Stream(pub(crate) Vec<Value>);

impl Stream {
    /// A process that is watched by both tracers and works: 2 s of launches and synchronises, one of each in 2 ms; the GPU
    /// always has something to do.
    pub(crate) fn working() -> Self {
        let mut s = Self(watched(1000));
        for i in 0..1000 {
            let t = (1000 + 2 * i) * MS;
            s = s.call("cudaLaunchKernel", 100, t, 10_000).call("cudaDeviceSynchronize", 100, t + MS / 2, 3 * MS / 2);
        }
        s
    }

    pub(crate) fn put(mut self, record: Value) -> Self {
        self.0.push(record);
        self
    }

    pub(crate) fn call(self, op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Self {
        self.put(call(op, tid, mono_ns, dur_ns))
    }

    /// A call that has not returned.
    pub(crate) fn open(self, op: &str, tid: u32, mono_ns: u64, dur_ns: u64) -> Self {
        let mut open = call(op, tid, mono_ns, dur_ns);
        open["open"] = json!(true);
        open.as_object_mut().unwrap().remove("ret");
        self.put(open)
    }

    pub(crate) fn end(self, mono_ns: u64) -> Self {
        self.put(end(mono_ns))
    }

    /// What the tool says: accounts, findings, processes, summary.
    pub(crate) fn report(&self) -> Vec<Value> {
        report(&["--per-process"], &self.0)
    }

    pub(crate) fn found(&self, op: &str) -> Vec<Value> {
        found(&self.report(), op)
    }
}
