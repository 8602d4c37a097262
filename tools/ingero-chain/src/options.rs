//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Parser, ValueEnum};
use ingero_common::cli::{self, Common, HasCommon};

use crate::findings::severity::Severity;
use crate::report::model::Report;

/// Finds what the GPU waited for.
///
/// Reads a stream of ingero-join and accounts for the time of each process that uses CUDA: how long its GPU waited,
/// when, and for what, with causes in nanoseconds that add up; besides, calls that are slower than usual, that keep the
/// host from feeding the GPU, or that hang.
#[derive(Clone, Debug, Parser)]
#[command(name = "ingero-chain", version, after_long_help = AFTER_HELP)]
#[command(mut_arg("verbose", |arg| arg.help("Say more: the findings by call in the text, details on stderr")))]
pub struct Options {
    /// Recordings to read, one after another (NDJSON, also gzip or zstd); - or none is stdin
    #[arg(value_name = "FILE")]
    pub inputs: Vec<PathBuf>,

    /// Where to write; stdout if absent
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// How to write: text at a terminal and NDJSON in a pipe if absent
    #[arg(short, long, value_enum)]
    pub format: Option<Format>,

    /// Report these processes only; all others still count as evidence (list, repeatable)
    #[arg(short, long, value_name = "PID", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Vec<u32>,

    /// List the findings, one line each, with the ids that --explain takes
    #[arg(long, conflicts_with_all = ["explain", "every"])]
    pub list: bool,

    /// Exit with 1 when something of this severity or above is found
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,

    /// Add what each process did: calls, times off the CPU, pages
    #[arg(long)]
    pub per_process: bool,

    /// Print an interim report every TIME of recorded time (10s, 1m)
    #[arg(long, value_name = "TIME", value_parser = cli::duration)]
    pub every: Option<Duration>,

    /// Report one finding only, by its id, with all evidence: each of its occurrences with its own causes
    #[arg(long, value_name = "ID")]
    pub explain: Option<String>,

    /// Stop at the first line that is no record
    #[arg(long)]
    pub strict: bool,

    /// Flags of all ingero tools.
    #[command(flatten)]
    pub common: Common,
}

const AFTER_HELP: &str = "\
EXAMPLES

  sudo ingero-cuda | ingero-join <(sudo ingero-sched) | ingero-chain
      watch a training run; Ctrl-C stops the tracers and prints the report
  ingero-join cuda.ndjson sched.ndjson | ingero-chain --fail-on medium
      judge a recording; exit status 1 when 5 % of the time or more was lost somewhere
  ingero-chain --format html -o report.html joined.ndjson.zst
      the same as a page to look at
  ingero-chain --list joined.ndjson
      the findings with their ids
  ingero-chain --explain gap-4711-cudaMemcpyAsync-h2d joined.ndjson
      every gap of that finding with its own causes

OUTPUT

text (at a terminal): for each process what and how bad, when, why, what to try, how complete the data is, where to look
further; -v adds the findings by call with their evidence. NDJSON (in a pipe): an `account` record for each process that
uses CUDA, a record for each finding, `process` records with --per-process, `summary` last; the records read are not
passed on. csv: a line for each cause of each finding (accounts are not in it). html: one page in the order of the text.
folded: `process;call;cause;who;functions nanoseconds` of gaps, slow calls and stalls, for flame graphs. logfmt: a line for each
account, finding and the summary.

EXIT STATUS

0 done, 1 something found at or above --fail-on (of what --pid and --explain leave in the report), 2 an error: also lines
that were no records, an input that breaks off (what was read of it is reported) and an input without any record. With
--fail-on also where nothing could be judged: no CUDA call, no watched process, a schema that is not known.";

/// How a report is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Format {
    /// For people
    Text,
    /// Records, one a line
    Ndjson,
    /// A table: a line for each cause of each finding
    Csv,
    /// One page that needs nothing else, with the waits drawn
    Html,
    /// Stacks for flame graphs
    Folded,
    /// key=value, one line for each account and finding
    Logfmt,
}

/// [`Severity`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FailOn {
    High,
    Medium,
    Low,
}

impl From<FailOn> for Severity {
    fn from(fail_on: FailOn) -> Self {
        match fail_on {
            FailOn::High => Severity::High,
            FailOn::Medium => Severity::Medium,
            FailOn::Low => Severity::Low,
        }
    }
}

impl Options {
    /// Whether any process asked for is in the recording: a mistyped number must not look like a healthy process.
    ///
    /// # Errors
    /// When none is.
    pub fn check(&self, report: &Report) -> anyhow::Result<()> {
        let known =
            |pid: &u32| report.processes.iter().any(|p| p.pid == *pid) || report.findings.iter().any(|c| c.pid == *pid);
        let Some(missing) = self.pid.first().filter(|_| !self.pid.iter().any(known)) else { return Ok(()) };
        let cuda: Vec<String> =
            report.processes.iter().filter(|p| p.role == "cuda").map(|p| p.pid.to_string()).collect();
        match cuda.len() {
            0 => bail!("no process {missing} in this recording, nor any that makes CUDA calls"),
            _ => bail!("no process {missing} in this recording; those that make CUDA calls: {}", cuda.join(", ")),
        }
    }

    /// Leaves in a report what was asked for.
    pub fn select(&self, report: &mut Report) {
        if !self.pid.is_empty() {
            report.retain(|pid| self.pid.contains(&pid));
            if report.accounts.is_empty() {
                report.summary.stream.nothing_seen.get_or_insert("the processes asked for made none");
            }
        }
    }
}

impl HasCommon for Options {
    fn common(&self) -> &Common {
        &self.common
    }
}
