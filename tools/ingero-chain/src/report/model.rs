//! What ingero-chain writes: findings, accounts, processes, the summary. `docs/schema.md`, "What ingero-chain writes", is
//! the contract; the numbers are here, the words are made from them.

use ingero_common::clock::Ts;
use ingero_common::cuda_api::{self, Function};
use ingero_common::text::Traced;
use serde::{Serialize, Serializer};

use crate::blame::{CauseLine, FoldedLine, WaitLine};
use crate::findings::severity::Severity;
use crate::process::class::Classes;
pub use crate::report::lines::{CallLine, Cold, ProcessReport, Switches};

/// What kind of loss a finding tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the contract")]
pub enum Kind {
    Total,
    Gap,
    SlowCall,
    HostCalls,
    LaunchBound,
    NoInput,
    Stall,
    Oom,
}

impl Kind {
    /// The value of `op`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Total => "total",
            Kind::Gap => "gap",
            Kind::SlowCall => "slow_call",
            Kind::HostCalls => "host_calls",
            Kind::LaunchBound => "launch_bound",
            Kind::NoInput => "no_input",
            Kind::Stall => "stall",
            Kind::Oom => "oom",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// How regularly something recurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Period {
    /// Once in so many calls.
    pub every: u64,
    /// Once in so many nanoseconds.
    pub ns: u64,
}

/// What a finding rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Evidence {
    /// Lost records that may have lain in the lost time.
    pub lost: u64,
    /// Share of the lost time that the scheduler tracer watched.
    pub watched_share: f64,
    /// Calls, or stretches between calls, that it was compared with.
    pub samples: u64,
}

/// One layer of a finding's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineLine {
    /// `SYSTEM`, `HOST`, `WAITS` or `CUDA`.
    pub layer: &'static str,
    /// What happened there.
    pub text: String,
}

/// What to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The thing to try.
    pub text: String,
    /// What in the records led to it.
    pub because: String,
    /// What it could bring at most, in nanoseconds of the recording.
    pub up_to_ns: u64,
}

/// One of a finding's occurrences, with its own causes.
#[derive(Clone, Debug, Serialize)]
pub struct Occurrence {
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// The same instant as wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    /// A gap's length, a call's duration.
    pub dur_ns: u64,
    /// Calls before it: of the process for a gap, of its group for a call.
    pub after_calls: u64,
    /// Its own causes, largest first; a call's whole time, not only what was lost.
    pub causes: Vec<CauseLine>,
    /// The part that no record explains.
    pub unexplained_ns: u64,
}

/// Lost time over the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GridLine {
    /// Where the first slice begins, CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// How long each slice is, in nanoseconds.
    pub slice_ns: u64,
    /// Nanoseconds lost in each.
    pub lost_ns: Vec<u64>,
}

/// The call that a finding is about.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallPart {
    /// The slow call, the call that ends the gaps, the call that hangs or stopped coming.
    #[serde(skip_serializing_if = "Traced::is_empty")]
    pub call: Traced,
    /// Its source.
    #[serde(skip_serializing_if = "Traced::is_empty")]
    pub call_src: Traced,
    /// Its direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<Traced>,
    /// The size class: bytes from, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<[u64; 2]>,
}

impl CallPart {
    /// What the call does; `None` where it is in no table.
    pub(crate) fn function(&self) -> Option<&'static Function> {
        cuda_api::find(self.call_src.raw(), self.call.raw())
    }
}

/// How long it took each time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// Median: of the gaps, or of the calls of the group; of a stall, of the time that it usually takes.
    pub p50_ns: u64,
    /// 99th percentile; absent below 100 samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: u64,
    /// Calls: the longest as a multiple of the median; absent where that is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Where they recur regularly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
}

/// What only some kinds of findings have.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Extra {
    /// Gaps: the GPU was known to be idle in all of them. Otherwise `lost_ns` is an upper bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<bool>,
    /// Gaps: the part of `lost_ns` in which it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_ns: Option<u64>,
    /// Slow calls: the part of `lost_ns` in which they may have waited for the GPU, which was at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_wait_ns: Option<u64>,
    /// Slow calls: they may have waited for room in the queue to the GPU; nothing on record says whether it was at work.
    #[serde(skip)]
    pub queue_may_be_full: bool,
    /// Totals: before how many kinds of calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kinds: Option<u64>,
    /// Host calls: which class of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// Host calls: how often each operation was called, and for how long.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpLine>,
    /// Launch bound: how the launches were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launches: Option<Launches>,
    /// Killed for memory: what it was, `cuda`, `worker` or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Killed for memory: what it had resident, as the kernel counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
}

/// One operation of `host_calls`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct OpLine {
    pub op: Traced,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<Traced>,
    pub n: u64,
    pub ns: u64,
}

/// How the launches of a launch-bound loop were made.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Launches {
    pub n: u64,
    /// Between two waits for the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_step: Option<u64>,
    /// In the call.
    pub call_ns: u64,
    /// From one to the next, the call included.
    pub each_ns: u64,
    /// What the amount may be off by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub err_ns: Option<u64>,
}

/// In words.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Story {
    /// SYSTEM, HOST, CUDA.
    pub timeline: Vec<TimelineLine>,
    /// In one sentence.
    pub summary: String,
    /// What to try.
    pub advice: Vec<Advice>,
}

/// One finding, however often it recurs.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// `chain`.
    pub src: &'static str,
    /// What kind.
    pub op: Kind,
    /// Names it in one report, for `--explain`.
    pub id: Traced,
    /// How bad.
    pub severity: Severity,
    /// Where and how much.
    #[serde(flatten)]
    pub lost: LostPart,
    /// The process that lost the time.
    pub pid: u32,
    /// Its name.
    pub comm: Traced,
    /// The call that it is about.
    #[serde(flatten)]
    pub call: CallPart,
    /// How long it took each time.
    #[serde(flatten)]
    pub times: Option<Times>,
    /// What only some kinds have.
    #[serde(flatten)]
    pub extra: Extra,
    /// In words.
    #[serde(flatten)]
    pub story: Story,
    /// What it rests on.
    pub evidence: Evidence,
    /// Its occurrences that are kept one by one, the longest first, where details were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub occurrences: Vec<Occurrence>,
    /// The stream goes on: the numbers may still grow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}

/// Where time was lost, how much and why.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LostPart {
    /// Start of the first occurrence, CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// The same instant as wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    /// From there to the end of the last occurrence.
    pub dur_ns: u64,
    /// Occurrences.
    pub n: u64,
    /// Nanoseconds lost in all of them.
    pub lost_ns: u64,
    /// The same as a share of the process's loop.
    pub lost_share: f64,
    /// Why, largest first. Their `ns` plus `unexplained_ns` equal `lost_ns`.
    pub causes: Vec<CauseLine>,
    /// The part that no record explains.
    pub unexplained_ns: u64,
    /// Gaps and totals: what the thread that feeds the GPU was in when it slept, largest first; `by` is who ended it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitLine>,
    /// The stacks behind the causes, for flame graphs.
    #[serde(skip)]
    pub folded: Vec<FoldedLine>,
    /// Gaps and totals: lost time over the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<GridLine>,
}

/// The account of one process that uses CUDA.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct AccountLine {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    pub pid: u32,
    pub comm: Traced,
    /// The file that an interpreter runs.
    #[serde(skip_serializing_if = "Traced::is_empty")]
    pub script: Traced,
    pub observed_ns: u64,
    /// The end of what was observed, as wall clock.
    #[serde(skip)]
    pub end_ts: Option<Ts>,
    /// Where its loop begins, CLOCK_MONOTONIC nanoseconds.
    pub loop_mono_ns: u64,
    pub loop_ns: u64,
    pub lost_ns: u64,
    /// Of the loop.
    pub lost_share: f64,
    /// By class; these add up to `observed_ns`.
    pub classes: Classes,
    /// What the driver's counter says of the GPU over the loop.
    #[serde(flatten)]
    pub gpu: GpuLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// The stream goes on: it tells of what can be judged so far.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}

/// The driver's counter of the GPU's use over a loop.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct GpuLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_busy_pct: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_bound_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_bound_err_ns: Option<u64>,
}

/// Times that the loop waited until the GPU had nothing left to do.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Steps {
    pub n: u64,
    pub per_s: f64,
}

/// How many findings of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Counts {
    pub high: u64,
    pub medium: u64,
    pub low: u64,
}

impl Counts {
    /// Counts findings.
    pub fn of(findings: &[Finding]) -> Self {
        let mut counts = Self::default();
        for finding in findings {
            match finding.severity {
                Severity::High => counts.high += 1,
                Severity::Medium => counts.medium += 1,
                Severity::Low => counts.low += 1,
            }
        }
        counts
    }

    /// Findings of any severity.
    pub fn all(self) -> u64 {
        self.high + self.medium + self.low
    }
}

/// What the stream was, and how complete.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Stream {
    pub records: u64,
    pub calls: u64,
    /// Processes with CUDA calls.
    pub processes: u64,
    pub bad_lines: u64,
    /// Records that the tracers lost, as far as they could count them.
    pub lost: u64,
    /// Records that came later than the join's window.
    pub late: u64,
    /// Records of a second tracer that say again what another one says: left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub double: u64,
    /// Calls of which only the entry was traced: nothing is said about the time in or between them.
    #[serde(skip_serializing_if = "is_zero")]
    pub entries: u64,
    /// Processes that ended long ago and of which nothing is kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub forgotten_processes: u64,
    /// Why nothing could be judged, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_seen: Option<&'static str>,
    /// The version of the contract that a stream says it follows, where it is one that is not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown_schema: Option<u64>,
}

/// Last line of a report.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Summary {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    pub dur_ns: u64,
    /// Where it was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Traced>,
    #[serde(flatten)]
    pub stream: Stream,
    /// Of all processes: time that was not judged, before their loops, after their last work.
    pub not_judged_ns: u64,
    pub start_up_ns: u64,
    pub wind_down_ns: u64,
    /// Long times between calls in which the GPU is known to have been at work.
    pub gpu_busy_ns: u64,
    /// Cold calls: in no percentile and no finding.
    pub cold: Cold,
    pub chains: Counts,
    /// What was looked for, with thresholds.
    pub checked: Vec<String>,
    /// The stream goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Everything found in one stream.
#[derive(Clone, Debug)]
pub struct Report {
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// The accounts of the processes that use CUDA.
    pub accounts: Vec<AccountLine>,
    /// The processes.
    pub processes: Vec<ProcessReport>,
    /// The last line.
    pub summary: Summary,
}

impl Report {
    /// Keeps what concerns processes for which `keep` holds. What the summary says of the stream as a whole stays.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.findings.retain(|finding| keep(finding.pid));
        self.accounts.retain(|account| keep(account.pid));
        self.processes.retain(|process| keep(process.pid));
        self.summary.chains = Counts::of(&self.findings);
    }

    /// Whether something of at least `severity` was found.
    pub fn has(&self, severity: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity >= severity)
    }
}
