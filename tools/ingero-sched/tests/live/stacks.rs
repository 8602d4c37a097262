//! Where threads are in their code, beside what real interpreters say of themselves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ingero_tests::Records;
use ingero_tests::python::interpreters;
use serde_json::Value;

use crate::{raw, sched_on, stop};

const HZ: u64 = 499;

/// The script, and the lines of its functions.
struct Script {
    path: PathBuf,
    text: String,
}

impl Script {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/stacks.py");
        Self { text: std::fs::read_to_string(&path).unwrap(), path }
    }

    /// The first and the last line of a function.
    fn lines(&self, name: &str) -> (u64, u64) {
        let def = format!("def {name}(");
        let lines: Vec<&str> = self.text.lines().collect();
        let first = lines.iter().position(|line| line.trim_start().starts_with(&def)).unwrap();
        let indent = |line: &str| line.len() - line.trim_start().len();
        let ends = |line: &&str| !line.is_empty() && indent(line) <= indent(lines[first]);
        let len = lines[first + 1..].iter().position(ends).unwrap();
        (first as u64 + 1, (first + 1 + len) as u64)
    }
}

/// A sample with its frames.
struct Sample<'a> {
    record: &'a Value,
    frames: &'a [Value],
}

impl Sample<'_> {
    fn has(&self, name: &str) -> Option<&Value> {
        let named = |f: &&Value| f["fn"].as_str().unwrap().rsplit('.').next() == Some(name) && f["lang"] == "python";
        self.frames.iter().find(named)
    }
}

/// The samples of a stream. Each stack is told of once, before what refers to it.
fn samples(records: &Records) -> Vec<Sample<'_>> {
    let mut stacks: BTreeMap<u64, &[Value]> = BTreeMap::new();
    let mut samples = Vec::new();
    for record in records.0.iter().filter(|r| r["src"] == "stack") {
        if record["op"] == "frames" {
            let frames = record["frames"].as_array().unwrap();
            assert!(!frames.is_empty(), "{record}");
            assert!(stacks.insert(record["id"].as_u64().unwrap(), frames).is_none(), "told of twice: {record}");
        } else {
            let frames = record["id"].as_u64().map_or(&[][..], |id| stacks[&id]);
            samples.push(Sample { record, frames });
        }
    }
    samples
}

#[test]
fn functions_and_lines_are_those_of_the_program() {
    if raw::is_on() {
        return;
    }
    for (minor, python) in interpreters() {
        of_one(minor, &python);
    }
}

fn of_one(minor: u32, python: &Path) {
    let script = Script::new();
    let mut child =
        Command::new(python).arg(&script.path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");
    let sched = sched_on(pid, &["--stacks", &HZ.to_string(), "-v"]);
    let mut go = || child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    go();
    let spent: BTreeMap<String, u64> = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
    let records = stop(sched);
    go();
    child.wait().unwrap();

    let samples = samples(&records);
    let torn = samples.iter().filter(|s| s.record["torn"] == true).count();
    assert!(torn * 50 <= samples.len(), "3.{minor}: {torn} of {} are torn", samples.len());
    // On a CPU: each function has its share of the time, and is at one of its own lines.
    let running: Vec<&Sample<'_>> =
        samples.iter().filter(|s| s.record["on_cpu"] == true && s.record["tid"] == pid).collect();
    let planted = ["seventy", "twenty", "ten"];
    let whole: u64 = planted.iter().map(|name| spent[*name]).sum();
    let found = |name: &str| running.iter().filter(|s| s.has(name).is_some()).count();
    let all: usize = planted.iter().map(|name| found(name)).sum();
    assert!(all as u64 >= whole / (1_000_000_000 / HZ) / 2, "3.{minor}: {all} samples of {whole} ns");
    for name in planted {
        let (share, want) = (found(name) as f64 / all as f64, spent[name] as f64 / whole as f64);
        // Of 500 samples, one in a million such shares is off by 11 points.
        assert!((share - want).abs() < 0.11, "3.{minor}: {name} has {share} of the samples, {want} of the time");
        let (first, last) = script.lines(name);
        for sample in running.iter().filter_map(|s| s.has(name)) {
            let line = sample["line"].as_u64().unwrap();
            assert!((first..=last).contains(&line), "3.{minor}: {sample}, which is lines {first} to {last}");
            assert_eq!(sample["file"], script.path.display().to_string(), "3.{minor}");
        }
        // Who called it is known as well, a generator among them.
        let whole = |s: &&&Sample<'_>| ["items", "main", "<module>"].iter().all(|caller| s.has(caller).is_some());
        let called = running.iter().filter(|s| s.has(name).is_some());
        assert!(
            called.clone().filter(whole).count() * 100 >= called.count() * 95,
            "3.{minor}: {name} without its callers"
        );
    }
    // Asleep: each sleep is on record with its length, in the line that sleeps.
    let asleep: Vec<&Sample<'_>> =
        samples.iter().filter(|s| s.record["on_cpu"] == false && s.has("pause").is_some()).collect();
    let slept: u64 = asleep.iter().map(|s| s.record["weight_ns"].as_u64().unwrap()).sum();
    assert!(slept * 100 >= spent["pause"] * 90 && slept <= spent["pause"], "3.{minor}: {slept} of {}", spent["pause"]);
    let (first, last) = script.lines("pause");
    assert!(asleep.iter().all(|s| (first..=last).contains(&s.frames[0]["line"].as_u64().unwrap())), "3.{minor}");
    let calls: Vec<&str> = asleep.iter().map(|s| s.record["in"].as_str().unwrap()).collect();
    assert!(calls.iter().all(|call| call.contains("sleep") || call.contains("select")), "3.{minor}: {calls:?}");
    // What never comes back is told of at the end.
    let forever =
        |s: &Sample<'_>| s.has("waits_for_ever").is_some() && s.record["on_cpu"] == false && s.record["tid"] != pid;
    assert!(samples.iter().any(forever), "3.{minor}: no open sleep");
    // In a library: its function, below the one that called it.
    let compressing: Vec<&&Sample<'_>> = running.iter().filter(|s| s.has("compress").is_some()).collect();
    let native = |s: &&&&Sample<'_>| {
        let [first, second, ..] = s.frames else { return false };
        first["lang"] == "native" && first["file"].as_str().unwrap().contains("libz") && second["fn"] == "compress"
    };
    assert!(
        compressing.iter().filter(native).count() * 10 >= compressing.len() * 8 && compressing.len() > 20,
        "3.{minor}"
    );
    // Collecting garbage: as long as the program says, and nowhere else.
    let collecting: Vec<&&Sample<'_>> = running.iter().filter(|s| s.record["gc"] == true).collect();
    let ns = collecting.len() as u64 * (1_000_000_000 / HZ);
    // What the hypervisor steals is on the clock of the samples, and not on the thread's.
    let (least, most) = (spent["gc"] * 4 / 5 - 20_000_000, spent["gc_wall"] * 6 / 5 + 20_000_000);
    assert!((least..=most).contains(&ns), "3.{minor}: {ns} ns collecting, {least} to {most} by its timers");
    assert!(collecting.iter().filter(|s| s.has("collect").is_some()).count() * 10 >= collecting.len() * 9, "3.{minor}");
}

#[test]
fn without_stacks_nothing_is_told_of_code() {
    if raw::is_on() {
        return;
    }
    let mut workload = crate::Workload::start(&["spin", "1000"]);
    let sched = sched_on(workload.pid(), &["--stacks", "0"]);
    workload.go();
    workload.wait_for("done");
    let records = stop(sched);
    workload.end();
    assert!(records.0.iter().all(|r| r["src"] != "stack"));
    assert_eq!(records.only("ingero", "start")["filter"]["stacks_hz"], 0);
}
