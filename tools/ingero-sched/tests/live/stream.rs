//! The stream as such: losses, a lone event, closed pipes, what cannot start.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use ingero_tests::{in_mounts, without_btf, without_root};

use super::*;

#[test]
pub(crate) fn what_a_full_ring_loses_is_counted() {
    let _machine = Machine::take();
    let mut workload = Workload::start(&["ping-pong", "20011"]);
    let pid = workload.pid();
    // Nobody reads: the pipe fills up, then the tool waits, then the ring runs full.
    let mut sched = Background::start_stalled(tool().args(["-v", "--ring-size", "64k", "--pid", &pid.to_string()]));
    sched.wait_until("a word that it watches", |_, said| said.contains("watching 1 process"));
    workload.go();
    workload.wait_for("done");
    sched.read_on();
    let records = stop(sched);
    assert!(ring_full(&records) > 10_000, "{}", ring_full(&records));
    assert!(records.of("ingero", "lost").all(|lost| lost["stream"] == "sched"));
    // And said to be missing from the time at which it is.
    let covered = records
        .of("ingero", "lost")
        .any(|r| r["mono_ns"].as_u64().unwrap() < workload.said("to_ns") && end_ns(r) > workload.said("from_ns"));
    assert!(covered);
    workload.end();
}

fn ring_full(records: &Records) -> u64 {
    records.only("ingero", "end")["lost"]["ring_full"].as_u64().unwrap_or(0)
}

#[test]
pub(crate) fn nothing_is_lost_with_the_default_ring_and_a_reader() {
    let _machine = Machine::take();
    let mut workload = Workload::start(&["ping-pong", "20011"]);
    let pid = workload.pid();
    let mut sched = Background::start_piped(tool().args(["--pid", &pid.to_string()]));
    sched.wait_for("the watch record", |r| is_watch(r, pid));
    workload.go();
    workload.wait_for("done");
    let records = stop(sched);
    assert_eq!(ring_full(&records), 0);
    workload.end();
}

#[test]
pub(crate) fn a_lone_event_needs_no_other_to_be_seen() {
    let _machine = Machine::take();
    let mut workload = Workload::start(&["spin", "1"]);
    let mut sched = sched_on(workload.pid(), &["--no-sys", "--no-mem"]);
    workload.go();
    // It came back from the gate, and there is nothing more until it is let go on.
    let pid = workload.pid();
    // Or that its record is lost, where it came back from a process that the kernel hides from tracing.
    sched.wait_for("the first switch", |r| {
        (r["op"] == "sched_switch" && r["tid"] == pid) || (r["op"] == "lost" && r["pid"] == pid)
    });
    stop(sched);
    workload.end();
}

#[test]
pub(crate) fn a_reader_that_has_enough_ends_it_quietly() {
    let _machine = Machine::take();
    let mut sched = tool().arg("--all").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(sched.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("\"start\""), "{first}");
    let status = sched.wait().unwrap();
    let mut said = String::new();
    sched.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}

#[test]
pub(crate) fn a_reader_that_goes_away_is_noticed_without_anything_to_write() {
    let _machine = Machine::take();
    let workload = Workload::start(&["spin", "1"]);
    let pid = workload.pid().to_string();
    let mut sched =
        tool().args(["--no-sys", "--no-mem", "--pid", &pid]).stdout(Stdio::piped()).spawn().expect("starting the tool");
    let mut reader = BufReader::new(sched.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"watch\"") {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    drop(reader);
    assert_eq!(sched.wait().unwrap().code(), Some(0));
}

#[test]
pub(crate) fn a_full_disk() {
    let _machine = Machine::take();
    Output::of(tool().args(["--all", "-o", "/dev/full", "-d", "200ms"]))
        .exits(2)
        .says_in_one_line(&["/dev/full", "space"]);
}

#[test]
pub(crate) fn what_cannot_start_says_why_in_one_line() {
    let _machine = Machine::take();
    Output::of(&mut without_root(&reachable_tool())).exits(2).says_in_one_line(&["ingero-sched: not root", "sudo"]);
    // PIDs end below 2^22.
    Output::of(tool().args(["--pid", "4194305"])).exits(2).says_in_one_line(&["4194305", "no process"]);
    Output::of(tool().args(["-o", "/nonexistent/x", "-d", "1s"]))
        .exits(2)
        .says_in_one_line(&["/nonexistent/x", "make the directory"]);
    for (option, bad) in [("--pid", "-1"), ("-d", "-5s")] {
        Output::of(tool().args([option, bad])).exits(2).shows("the value", |o| o.stderr.contains(&format!("'{bad}'")));
    }
    let mut powerless = Command::new("setpriv");
    powerless.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--"]).arg(tool().get_program());
    Output::of(&mut powerless).exits(2).says_in_one_line(&["root here", "CAP_BPF", "--privileged"]);
    // What root sees is not what another user does, even if he may trace.
    let mut hidden = Command::new("setpriv");
    hidden.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    hidden.args(["--inh-caps=+bpf,+perfmon", "--ambient-caps=+bpf,+perfmon", "--"]);
    hidden.arg(reachable_tool().get_program()).args(["-p", &std::process::id().to_string()]);
    Output::of(&mut in_mounts("mount -t proc -o hidepid=2 proc /proc", &hidden)).exits(2).says_in_one_line(&[
        "no process",
        "hidepid",
        "sudo",
    ]);
    Output::of(&mut in_mounts("mount -t tmpfs none /proc", &tool()))
        .exits(2)
        .says_in_one_line(&["/proc", "mount -t proc"]);
    Output::of(&mut without_btf(&tool())).exits(2).says_in_one_line(&["no BTF", "CONFIG_DEBUG_INFO_BTF"]);
    Output::of(tool().args(["--ring-size", "1k"]))
        .exits(2)
        .shows("the limits", |o| o.stderr.contains("between 64k and 2g"));

    let mut workload = Workload::start(&["threads"]);
    let main = workload.pid();
    workload.go();
    // Its last thread is all that is left of it besides the main one's remains.
    let tid = loop {
        let tasks = std::fs::read_dir(format!("/proc/{main}/task")).unwrap();
        let ids = tasks.flatten().map(|entry| entry.file_name().to_str().unwrap().parse::<u32>().unwrap());
        if let Some(tid) = ids.filter(|id| *id != main).last() {
            break tid;
        }
    };
    let output = Output::of(tool().args(["-d", "1ms", "--pid", &tid.to_string()]));
    // The threads before the last one come and go meanwhile.
    output
        .exits(2)
        .shows("that it is a thread or gone", |o| o.stderr.contains("is a thread") || o.stderr.contains("no process"));
    workload.end();
}

/// The tool where anybody may run it: the target directory may be root's alone.
fn reachable_tool() -> Command {
    let dir = std::env::temp_dir().join("ingero-sched-for-all");
    std::fs::create_dir_all(&dir).unwrap();
    let copy = dir.join("ingero-sched");
    std::fs::copy(env!("CARGO_BIN_EXE_ingero-sched"), &copy).unwrap();
    Command::new(copy)
}
