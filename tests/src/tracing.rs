//! The tracers on one process, and what the rest of the pipeline makes of what they wrote.

use std::io::Write;
use std::process::Command;

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{Background, Output, Records, tool, with_tracefs};

/// `ingero-cuda` on one process.
pub fn cuda(pid: u32) -> Command {
    let mut command = tool("ingero-cuda");
    command.arg("--pid").arg(pid.to_string());
    command
}

/// `ingero-sched` on one process and its descendants.
pub fn sched(pid: u32) -> Command {
    let mut command = tool("ingero-sched");
    command.arg("--pid").arg(pid.to_string());
    command
}

/// The same tracer on one attach tier.
pub fn in_tier(mode: &str, tracer: &mut Command) -> Command {
    with_tracefs(tracer.args(["--probe-mode", mode]))
}

/// Whether a record says that a tracer (`cuda` or `sched`) watches this process from now on.
pub fn watching(record: &Value, stream: &str, pid: u32) -> bool {
    record["src"] == "ingero" && record["op"] == "watch" && record["stream"] == stream && record["pid"] == pid
}

/// Both tracers at work on one process.
#[derive(Debug)]
pub struct Tracers {
    cuda: Background,
    sched: Background,
}

impl Tracers {
    /// Starts them; returns when both watch the process.
    #[track_caller]
    pub fn on(pid: u32) -> Self {
        let mut cuda = Background::start(&mut cuda(pid));
        let mut sched = Background::start(&mut sched(pid));
        cuda.wait_for("the watch record of ingero-cuda", |r| watching(r, "cuda", pid));
        sched.wait_for("the watch record of ingero-sched", |r| watching(r, "sched", pid));
        Self { cuda, sched }
    }

    /// Stops them as Ctrl-C does; both streams.
    #[track_caller]
    pub fn stop(self) -> [Output; 2] {
        let (cuda, sched) = (self.cuda.interrupt().exits(0), self.sched.interrupt().exits(0));
        cuda.records().balance();
        [cuda, sched]
    }
}

/// What `ingero-join A B | ingero-chain ARGUMENTS` says about two recorded streams.
#[track_caller]
pub fn report(streams: &[Output; 2], arguments: &[&str]) -> (Output, Records) {
    let files = streams.each_ref().map(|stream| {
        let mut file = NamedTempFile::new().unwrap();
        file.write_all(&stream.stdout).unwrap();
        file
    });
    let joined = Output::of(tool("ingero-join").args(files.each_ref().map(NamedTempFile::path))).exits(0);
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&joined.stdout).unwrap();
    let said = Output::of(tool("ingero-chain").args(["--format", "ndjson"]).args(arguments).arg(file.path()));
    let records = said.records();
    (said, records)
}
