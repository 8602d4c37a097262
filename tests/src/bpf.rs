//! What a tracer holds in the kernel, and whether it is gone afterwards.
//!
//! Programs and links are told by their ids, which the kernel shows for each open descriptor and never gives out twice
//! while it runs: whatever else on the machine uses BPF does not matter.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Ids of what a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Of programs.
    pub programs: BTreeSet<u64>,
    /// Of links.
    pub links: BTreeSet<u64>,
}

impl Held {
    /// What a running process holds, by `/proc/PID/fdinfo`.
    pub fn by(pid: u32) -> Self {
        let mut held = Self::default();
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return held };
        for descriptor in descriptors.flatten() {
            // It may have been closed between the two.
            let text = std::fs::read_to_string(descriptor.path()).unwrap_or_default();
            let id = |key: &str| -> Option<u64> {
                text.lines().find_map(|l| l.strip_prefix(key)).and_then(|v| v.trim().parse().ok())
            };
            // A link shows its program too.
            held.links.extend(id("link_id:"));
            held.programs.extend(id("prog_id:"));
        }
        held
    }

    /// Fails the test where bpftool still knows any of them.
    #[track_caller]
    pub fn must_be_gone(&self) {
        assert!(!self.programs.is_empty(), "the tracer held no program, so this would prove nothing");
        // A descriptor that is closed frees its program a moment later (RCU).
        let mut left = self.left();
        for _ in 0..100 {
            if left == Self::default() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            left = self.left();
        }
        panic!("still in the kernel: {left:?} of {self:?}");
    }

    fn left(&self) -> Self {
        Self {
            programs: ids("prog").intersection(&self.programs).copied().collect(),
            links: ids("link").intersection(&self.links).copied().collect(),
        }
    }
}

/// All ids of a kind that are in the kernel.
fn ids(kind: &str) -> BTreeSet<u64> {
    let mut command = Command::new("bpftool");
    command.args(["--json", kind, "show"]).env("PATH", path_with_sbin());
    let done = command.output().unwrap_or_else(|e| panic!("bpftool: {e}; install it with `apt-get install bpftool`"));
    // Between its listing the ids and its asking for one, that one may go: it says so in the list.
    let all: Value =
        serde_json::from_slice(&done.stdout).unwrap_or_else(|e| panic!("bpftool {kind} show: {e}: {done:?}"));
    all.as_array().into_iter().flatten().filter_map(|entry| entry["id"].as_u64()).collect()
}

/// Debian keeps bpftool where a plain user's PATH does not look.
fn path_with_sbin() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Uprobe events in tracefs that name a process's id in their group, where tracefs is mounted.
pub fn trace_events_of(pid: u32) -> Vec<String> {
    let all = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap_or_default();
    all.lines()
        .filter(|line| line.split('/').next().is_some_and(|group| group.contains(&pid.to_string())))
        .map(String::from)
        .collect()
}
