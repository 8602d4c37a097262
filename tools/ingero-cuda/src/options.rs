//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ingero_common::cli::{Common, HasCommon, duration, pid, size_bytes};
use ingero_common::invoker::Invoker;
use ingero_ebpf::attach::Mode;

const ABOUT: &str =
    "Traces CUDA API calls (runtime, driver, NCCL) of running processes and writes one JSON line for each.";

const LONG_ABOUT: &str = "\
Traces CUDA API calls (runtime, driver, NCCL) of running processes and writes one JSON line for each.

Calls are timed on the host, from entry to return. For an asynchronous call (a launch, a copy with Async in its name) \
that is the time to enqueue it, not the time that the GPU works on it.

A call that has not returned for --stuck (10 s) is written once while it hangs, with \"open\":true and \"stuck\":true; its own \
record follows when it returns, or when its thread or the tracing ends. Records with the same pid, tid and mono_ns are one \
call, the last of them counts; `seen` and `written` of the `end` record count records.

Processes and libraries are found while running: start it before or after the program. It needs root, or CAP_BPF and \
CAP_PERFMON with leave to look at other users' processes; --list needs neither.

Once it traces it gives up what else root may do. Below sudo, --output is written as whoever called sudo.

Below sudo, COMMAND runs as whoever called sudo: with their ids and groups, in their environment, looked up in their PATH, \
without any capability. Nothing of theirs is used before root's privileges are given up.

Whoever opens a probed library for writing (cp, rsync --inplace) waits until its probes are off. It is then probed as a new \
library, and a \"lost\" record with the reason \"replaced\" covers the time between.";

const AFTER_HELP: &str = "\
EXAMPLES

  sudo ingero-cuda                             every CUDA process, those to come too
  sudo ingero-cuda -p 4711 -d 30s -o t.ndjson  one process and its children, for 30 seconds
  sudo ingero-cuda -- python3 train.py         run a command as yourself, traced, end with it
  sudo ingero-cuda | ingero-join <(sudo ingero-sched) | ingero-chain
  ingero-cuda --list                           what would be probed, and where

EXIT STATUS

0 at the end, 2 on an error. After COMMAND its own: 128 + n where signal n ended it, 127 where there is no such program, 126 \
where it cannot be run.";

/// What the user asks for.
#[derive(Parser, Debug, Clone)]
#[command(name = "ingero-cuda", version, about = ABOUT, long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Trace these processes and their children only (a list, or several times)
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pub pids: Vec<u32>,

    /// Stop after this time (60s, 500ms, 2m)
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,

    /// Write to a file instead of stdout; a FIFO is waited for until somebody reads it, but not longer than --duration
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Show the CUDA libraries found (or those in these files and directories), and what would be probed in them
    #[arg(long, value_name = "PATH", num_args = 0.., conflicts_with_all = ["pids", "duration", "output", "nested", "command"])]
    pub list: Option<Vec<PathBuf>>,

    /// Write calls inside other traced calls too (the driver calls of runtime calls)
    #[arg(long)]
    pub nested: bool,

    /// Write a call that has not returned for this long once while it hangs (its own record follows when it returns)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub stuck: Duration,

    /// Probe only the entries of calls, which then have no duration: in processes under seccomp if this kernel's return
    /// probes could kill them (auto), in all that are under seccomp (seccomp), or everywhere (always, the value of the bare
    /// flag)
    #[arg(
        long,
        value_name = "WHERE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always",
        hide_possible_values = true
    )]
    pub entry_only: EntryOnly,

    /// Size of the buffer between kernel and tool (64k, 32m); rounded up to a power of two
    #[arg(long, value_name = "SIZE", default_value = "32m", value_parser = ring_bytes)]
    pub ring_size: u32,

    /// How often to look for new processes and libraries
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = duration)]
    pub scan_interval: Duration,

    /// How to attach probes: the best that the kernel has, or one kind
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub probe_mode: ProbeMode,

    /// Only become this user (UID:GID) and then COMMAND: how `-- COMMAND` below sudo goes on after its fork
    #[arg(long, value_name = "UID:GID", hide = true, requires = "command")]
    pub run_as: Option<Invoker>,

    /// A command to run, trace with its children, and end with
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "pids")]
    pub command: Vec<OsString>,

    /// Flags of all tools of the suite.
    #[command(flatten)]
    pub common: Common,
}

impl HasCommon for Options {
    fn common(&self) -> &Common {
        &self.common
    }
}

/// `--entry-only`: where returns are not probed.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryOnly {
    /// In processes under seccomp, on kernels where a return probe could kill them
    Auto,
    /// In processes under seccomp
    Seccomp,
    /// In all processes
    Always,
}

/// `--probe-mode`.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMode {
    /// The best that the kernel has
    Auto,
    /// One link and one program for both ends of a call (Linux 6.13)
    Session,
    /// One link for entries and one for returns (Linux 6.6)
    Multi,
    /// Trace events with many probes each (Linux 5.15, needs tracefs)
    Tracefs,
    /// Perf events, on a dozen functions only (Linux 5.15)
    Perf,
}

impl ProbeMode {
    /// The tier asked for; `None` for the best.
    pub fn mode(self) -> Option<Mode> {
        match self {
            Self::Auto => None,
            Self::Session => Some(Mode::Session),
            Self::Multi => Some(Mode::Multi),
            Self::Tracefs => Some(Mode::Tracefs),
            Self::Perf => Some(Mode::Perf),
        }
    }
}

/// A ring buffer of 4 KiB to 2 GiB, the kernel's limit.
fn ring_bytes(text: &str) -> anyhow::Result<u32> {
    let bytes = size_bytes(text)?;
    match u32::try_from(bytes) {
        Ok(bytes) if (4096..=1 << 31).contains(&bytes) => Ok(bytes),
        _ => anyhow::bail!("must be from 4k to 2g"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn lists_and_repeats() {
        let options = Options::parse_from(["ingero-cuda", "-p", "1,2", "--pid", "3"]);
        assert_eq!(options.pids, [1, 2, 3]);
        assert!(Options::try_parse_from(["ingero-cuda", "-p", "0"]).is_err());
        assert!(Options::try_parse_from(["ingero-cuda", "-p", "x"]).is_err());
    }

    #[test]
    fn a_bare_flag_is_the_strongest() {
        let parsed = |flags: &[&str]| Options::try_parse_from([&["ingero-cuda"], flags].concat()).unwrap().entry_only;
        assert_eq!(parsed(&[]), EntryOnly::Auto);
        assert_eq!(parsed(&["--entry-only"]), EntryOnly::Always);
        assert_eq!(parsed(&["--entry-only=seccomp", "-p", "1"]), EntryOnly::Seccomp);
        assert_eq!(parsed(&["--entry-only", "-p", "1"]), EntryOnly::Always);
    }

    #[test]
    fn a_command_keeps_its_flags() {
        let options = Options::parse_from(["ingero-cuda", "--nested", "--", "python3", "-p", "x"]);
        assert_eq!(options.command, ["python3", "-p", "x"]);
        assert!(options.nested && options.pids.is_empty());
        assert!(Options::try_parse_from(["ingero-cuda", "-p", "1", "--", "true"]).is_err());
        assert!(Options::try_parse_from(["ingero-cuda", "true"]).is_err());
    }

    #[test]
    fn rings() {
        assert_eq!(ring_bytes("64k").unwrap(), 65_536);
        for bad in ["1", "4095", "3g", "x"] {
            assert!(ring_bytes(bad).is_err(), "{bad}");
        }
    }
}
