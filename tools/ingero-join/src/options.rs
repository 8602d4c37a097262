//! The command line.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use ingero_common::cli::{self, Common, HasCommon};
use ingero_common::clock::parse_ts;

const LONG_ABOUT: &str = "\
Merges any number of ingero streams into one, ordered by end time, and gives each outermost CUDA call a \
`host` object: what the calling thread went through while the call lasted (preempted and by whom, waiting for a \
CPU, asleep, in I/O, page allocations), and whether the scheduler tracer watched it all the while.";

// A paragraph is a line: the help is wrapped to the terminal's width.
const AFTER_HELP: &str = "\
INPUTS

Files, FIFOs, process substitutions: streams of records, plain, gzip or zstd; and SQLite recordings of ingero (.db). \
`-` is stdin; without any input it is read too.

With exactly one input named and no `-`, stdin is merged as well (as the first input) if it is a pipe, a socket, or a \
regular file that nobody has read from yet: that is what `tracer | ingero-join <(other)` means. With two or more \
inputs named, stdin is read only where `-` says so. A terminal or /dev/null is never read unasked. A stdin that was \
not named and has said nothing when the named input has ended is waited for a few seconds, not for ever.

EXAMPLES

  sudo ingero-cuda | ingero-join <(sudo ingero-sched) | ingero-chain
  ingero-join cuda.ndjson.zst sched.ndjson.zst > joined.ndjson
  ingero-join --pid 4242 --since 10s --until 20s cuda.ndjson sched.ndjson
  ingero-join --format chrome -o trace.json cuda.ndjson sched.ndjson

EXIT STATUS

0 done; 2 an error, or lines that were no records (skipped and counted).

NOTES

A call's duration is the time that the *call* took on the host. For an asynchronous call that is the time to enqueue \
the work, not to do it.";

/// What ingero-join is asked to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "ingero-join", version, about = "Merge ingero streams and say what each CUDA call's thread went through", long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Streams to merge: files or FIFOs, `-` for stdin
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<OsString>,

    /// Write only what concerns these processes and their children
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = cli::pid)]
    pub pid: Vec<u32>,

    /// Leave out what ended before: a wall clock time (2026-11-29T12:00:00Z), or 10s after the first record
    #[arg(long, value_name = "WHEN")]
    pub since: Option<When>,

    /// Leave out what began after; as --since
    #[arg(long, value_name = "WHEN")]
    pub until: Option<When>,

    /// By how much an input may disturb its own order
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = cli::duration)]
    pub window: Duration,

    /// A pipe that is silent for so long (and a window on top) does not hold up the others
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = cli::duration)]
    pub stall: Duration,

    /// What to write
    #[arg(long, value_enum, default_value_t = Format::Ndjson)]
    pub format: Format,

    /// Write to a file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Stop at the first line that is no record
    #[arg(long)]
    pub strict: bool,

    /// Join recordings of different machines or boots, lined up by wall clock
    #[arg(long)]
    pub allow_mixed_clocks: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags of all tools")]
    pub common: Common,
}

impl HasCommon for Options {
    fn common(&self) -> &Common {
        &self.common
    }
}

/// What comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Records, one a line
    Ndjson,
    /// A table of the records' main keys
    Csv,
    /// A trace for ui.perfetto.dev
    Chrome,
}

/// An instant as users give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Nanoseconds since the epoch.
    Wall(i64),
    /// So long after the first record.
    After(Duration),
}

impl std::str::FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(ns) = parse_ts(text).and_then(|ns| i64::try_from(ns).ok()) {
            return Ok(Self::Wall(ns));
        }
        let after = if text == "0" { Ok(Duration::ZERO) } else { cli::duration(text) };
        after.map(Self::After).map_err(|_| {
            "is neither a time like 2026-11-29T12:00:00Z nor a duration like 10s after the first record".to_owned()
        })
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wall(ns) => {
                let ts = ingero_common::clock::WallClock::with_offset(*ns).ts(0);
                f.write_str(ts.as_str())
            }
            Self::After(duration) => write!(f, "{duration:?}"),
        }
    }
}
