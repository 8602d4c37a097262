//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ingero_common::cli::{self, Common, HasCommon};
use ingero_ebpf::sched::ProbeMode;

const AFTER_HELP: &str = "\
EXAMPLES

  sudo ingero-sched                       CUDA processes and their descendants, until Ctrl-C
  sudo ingero-sched -p 4711 -d 60s -o s.ndjson  one process and its descendants, for a minute
  sudo ingero-sched --all | head          everything on the machine
  sudo ingero-cuda | ingero-join <(sudo ingero-sched) | ingero-chain

OUTPUT

Each line with \"src\":\"sched\",\"op\":\"sched_switch\" is one time that a watched thread was off the CPU: for how long \
(dur_ns), how much of that it waited for a CPU (runq_ns), in which state it left, who took the CPU, who woke it. \
`--schema` prints the whole contract.

EXIT STATUS

0 at the end, 2 on an error.";

/// Traces what keeps threads off the CPU: scheduler, memory and system events, one JSON line for each.
///
/// Watches the processes that use CUDA and all their descendants, now and later. Needs root, and Linux 5.15 or newer,
/// best with BTF. Runs at a niceness of -10, to keep up when CPUs are scarce.
#[derive(Clone, Debug, Parser)]
#[command(name = "ingero-sched", version, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Watch these processes and their descendants, instead of those that use CUDA, until they have all ended
    #[arg(short, long = "pid", value_name = "PID", value_delimiter = ',', allow_hyphen_values = true, value_parser = cli::pid, conflicts_with = "all")]
    pub pids: Vec<u32>,

    /// Watch those that use CUDA too, beside --pid
    #[arg(long, requires = "pids")]
    pub cuda: bool,

    /// Watch everything on the machine
    #[arg(long)]
    pub all: bool,

    /// Stop after this time (60s, 500ms, 2m)
    #[arg(short, long, value_name = "TIME", allow_hyphen_values = true, value_parser = cli::duration)]
    pub duration: Option<Duration>,

    /// Write to a file instead of stdout; a FIFO is waited for until somebody reads it, but not longer than --duration
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// One record for each page allocation, instead of sums by thread
    #[arg(long)]
    pub raw: bool,

    /// No page allocations
    #[arg(long, conflicts_with = "raw")]
    pub no_mem: bool,

    /// No block I/O, and nothing of what TCP sends again
    #[arg(long)]
    pub no_io: bool,

    /// How often a second it is told where in its code each running thread is; 0: not at all, nor when one goes to sleep
    #[arg(long, value_name = "HZ", default_value = "49", value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub stacks: u32,

    /// No samples of the whole system
    #[arg(long)]
    pub no_sys: bool,

    /// How often to look for new copies of the CUDA libraries, and processes that use them; those that call cuInit in a known
    /// one are watched at once
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = cli::duration)]
    pub scan_interval: Duration,

    /// How to trace; auto takes raw, which knows less, where the kernel has no type information (BTF)
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub probe_mode: Mode,

    /// Size of the buffer between kernel and tool (64k, 16m); rounded up to a power of two
    #[arg(long, value_name = "SIZE", default_value = "16m", value_parser = ring_bytes)]
    pub ring_size: u32,

    #[command(flatten)]
    #[allow(missing_docs, reason = "described where it is defined")]
    pub common: Common,
}

impl Options {
    /// Whether to look for processes that use CUDA.
    pub fn finds_cuda(&self) -> bool {
        !self.all && (self.pids.is_empty() || self.cuda)
    }

    /// Whether nothing is left to watch once the processes of `--pid` and their descendants have ended.
    pub fn ends_with_pids(&self) -> bool {
        !self.pids.is_empty() && !self.cuda
    }
}

/// Values of `--probe-mode`, named as in `start` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "described where they are translated to")]
pub enum Mode {
    Auto,
    #[value(name = "tp_btf")]
    TpBtf,
    Raw,
}

impl From<Mode> for ProbeMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::TpBtf => Self::Btf,
            Mode::Raw => Self::Raw,
        }
    }
}

impl HasCommon for Options {
    fn common(&self) -> &Common {
        &self.common
    }
}

fn ring_bytes(text: &str) -> anyhow::Result<u32> {
    let bytes = cli::size_bytes(text)?;
    match u32::try_from(bytes) {
        // The kernel refuses rings above 2 GiB; and at less than 64 KiB nobody gets to read in time.
        Ok(bytes @ 0x1_0000..=0x8000_0000) => Ok(bytes),
        _ => anyhow::bail!("must be between 64k and 2g"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn pids_are_a_list_and_repeatable() {
        let options = Options::try_parse_from(["x", "-p", "1,2", "--pid", "3"]).unwrap();
        assert_eq!(options.pids, [1, 2, 3]);
        assert!(!options.finds_cuda());
        assert!(Options::try_parse_from(["x", "-p", "1", "--cuda"]).unwrap().finds_cuda());
        assert!(Options::try_parse_from(["x"]).unwrap().finds_cuda());
        assert!(!Options::try_parse_from(["x", "--all"]).unwrap().finds_cuda());
        for bad in [&["x", "-p", "1", "--all"][..], &["x", "-p", "-1"], &["x", "--cuda"], &["x", "--ring-size", "1k"]] {
            assert!(Options::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
