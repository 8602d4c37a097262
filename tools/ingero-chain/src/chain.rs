//! What ingero-chain writes: chains, processes, the summary. `docs/schema.md`, "What `ingero-chain` writes",
//! is the contract; the numbers are here, the words are made from them.

use ingero_common::clock::Ts;
use serde::{Serialize, Serializer};

use crate::cause::CauseLine;

/// How bad, by the share of the observed wall time that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the contract")]
pub enum Severity {
    Low,
    Medium,
    High,
}

/// Lost share from which on a chain is high.
pub const HIGH_SHARE: f64 = 0.20;
/// Lost share from which on it is medium.
pub const MEDIUM_SHARE: f64 = 0.05;
/// Lost share from which on it is reported at all.
pub const LOW_SHARE: f64 = 0.01;

impl Severity {
    /// By the share of the observed wall time that was lost; `None` where that isn't worth a word.
    pub fn of(lost_share: f64) -> Option<Self> {
        match lost_share {
            s if s >= HIGH_SHARE => Some(Severity::High),
            s if s >= MEDIUM_SHARE => Some(Severity::Medium),
            s if s >= LOW_SHARE => Some(Severity::Low),
            _ => None,
        }
    }

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        }
    }
}

impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// What kind of loss a chain tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are those of the contract")]
pub enum Kind {
    Gap,
    SlowCall,
    Stall,
    Drop,
    Oom,
}

impl Kind {
    /// The value of `op`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Gap => "gap",
            Kind::SlowCall => "slow_call",
            Kind::Stall => "stall",
            Kind::Drop => "drop",
            Kind::Oom => "oom",
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// A ratio, or `null` where there is no base for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(pub Option<f64>);

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0.filter(|r| r.is_finite()) {
            Some(ratio) => s.serialize_f64((ratio * 1e3).round() / 1e3),
            None => s.serialize_none(),
        }
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

/// What the chain rests on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Lost records that may have lain in the lost time.
    pub lost: u64,
    /// Share of the lost time that the scheduler tracer watched.
    pub watched_share: f64,
    /// Calls, or stretches between calls, that it was compared with.
    pub samples: u64,
}

/// One layer of a chain's story.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimelineLine {
    /// `SYSTEM`, `HOST` or `CUDA`.
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
}

/// One of a chain's occurrences, with its own causes.
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

/// One finding, however often it recurs.
#[derive(Clone, Debug, Serialize)]
pub struct Chain {
    /// `chain`.
    pub src: &'static str,
    /// What kind.
    pub op: Kind,
    /// Names this chain in one report, for `--explain`.
    pub id: String,
    /// How bad.
    pub severity: Severity,
    /// Start of the first occurrence, CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// The same instant as wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    /// From there to the end of the last occurrence.
    pub dur_ns: u64,
    /// The process that lost the time.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Killed for memory: what it was, `cuda`, `worker` or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Killed for memory: what it had resident, as the kernel counts it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Occurrences.
    pub n: u64,
    /// Where they recur regularly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// Nanoseconds lost in all of them.
    pub lost_ns: u64,
    /// The same as a share of the process's observed wall time.
    pub lost_share: f64,
    /// Gaps: the GPU had provably nothing to do in all of them. Otherwise `lost_ns` is an upper bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven: Option<bool>,
    /// Gaps: the part of `lost_ns` that is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_ns: Option<u64>,
    /// Slow calls: the part of `lost_ns` in which they may have waited for the GPU, which was at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_wait_ns: Option<u64>,
    /// Slow calls: they may have waited for room in the queue to the GPU; nothing on record says whether it was at work.
    #[serde(skip)]
    pub queue_may_be_full: bool,
    /// The slow call, the call that ends the gaps, the call that hangs or stopped coming.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// Its source.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub call_src: String,
    /// Its direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The size class: bytes from, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<[u64; 2]>,
    /// Median: of the calls' durations, or of the process's time between calls; drop: usual time for each call.
    pub p50_ns: u64,
    /// Calls: 99th percentile; absent below 100 samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    /// The longest; drop: the time for each call meanwhile.
    pub max_ns: u64,
    /// The longest as a multiple of the median.
    pub ratio: Ratio,
    /// Why `ratio` is null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_reason: Option<&'static str>,
    /// Why, largest first. Their `ns` plus `unexplained_ns` equal `lost_ns`.
    pub causes: Vec<CauseLine>,
    /// The part that no record explains.
    pub unexplained_ns: u64,
    /// SYSTEM, HOST, CUDA.
    pub timeline: Vec<TimelineLine>,
    /// In one sentence.
    pub summary: String,
    /// What to try.
    pub advice: Vec<Advice>,
    /// What it rests on.
    pub evidence: Evidence,
    /// Its occurrences, the longest first, where details were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub occurrences: Vec<Occurrence>,
    /// The stream goes on: the numbers may still grow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}

/// Calls of one operation in a `process` record; durations are absent where only entries were traced.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct CallLine {
    pub src: String,
    pub op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    pub n: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    pub bytes: u64,
    /// Where calls are told apart by what one carries: bytes from, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<[u64; 2]>,
}

/// Times off the CPU in a `process` record.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Switches {
    pub voluntary: u64,
    pub preempted: u64,
    pub avg_off_ns: u64,
    pub max_off_ns: u64,
    pub runq_ns: u64,
}

/// Calls that were cold.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Cold {
    pub calls: u64,
    pub ns: u64,
}

/// One call that was cold.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct ColdCall {
    pub pid: u32,
    pub call: String,
    pub ns: u64,
}

/// One process (`--per-process`).
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct ProcessReport {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    pub dur_ns: u64,
    pub pid: u32,
    pub comm: String,
    /// `cuda`, `worker` (watched as a descendant of another, or born of one that makes CUDA calls) or `other`.
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    pub calls: Vec<CallLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Cold>,
    pub switches: Switches,
    pub pages: u64,
    pub page_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between_calls_share: Option<f64>,
}

/// How many chains of each severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Counts {
    pub high: u64,
    pub medium: u64,
    pub low: u64,
}

impl Counts {
    /// Counts chains.
    pub fn of(chains: &[Chain]) -> Self {
        let mut counts = Self::default();
        for chain in chains {
            match chain.severity {
                Severity::High => counts.high += 1,
                Severity::Medium => counts.medium += 1,
                Severity::Low => counts.low += 1,
            }
        }
        counts
    }
}

/// All gaps of one process, whatever call ends them: also those too small for a chain of their own.
#[derive(Clone, Debug, Serialize)]
pub struct GapTotal {
    /// That of a chain which lost as much.
    pub severity: Severity,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// How many gaps.
    pub n: u64,
    /// Calls that end them, of different kinds.
    pub kinds: u64,
    /// Nanoseconds in all of them.
    pub lost_ns: u64,
    /// The same as a share of the process's observed wall time.
    pub lost_share: f64,
    /// Why, largest first. Their `ns` plus `unexplained_ns` equal `lost_ns`.
    pub causes: Vec<CauseLine>,
    /// The part that no record explains.
    pub unexplained_ns: u64,
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
    pub hosts: Vec<String>,
    pub records: u64,
    pub calls: u64,
    pub processes: u64,
    pub bad_lines: u64,
    /// Records that the tracers lost, as far as they could count them.
    pub lost: u64,
    /// Records that came later than the join's window.
    pub late: u64,
    /// Records of a second tracer that say again what another one says: left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub double: u64,
    /// Processes that ended long ago and of which nothing is kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub forgotten_processes: u64,
    /// Stretches without calls in which lost calls may have lain: in no chain.
    pub not_judged_ns: u64,
    /// Stretches between calls in which the GPU had work, as the call that ended them tells: in no chain.
    pub gpu_busy_ns: u64,
    /// Gaps before processes found their rhythm, where nothing like them came after: in no chain.
    pub start_up_ns: u64,
    /// From the last work of processes to their end, or to their last call where that was not seen: in no chain.
    pub wind_down_ns: u64,
    /// Calls of which only the entry was traced: nothing is said about the time in or between them.
    #[serde(skip_serializing_if = "is_zero")]
    pub entries: u64,
    /// Calls of cold starts: in no percentile and no chain.
    pub cold: Cold,
    /// The longest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_cold: Option<ColdCall>,
    pub chains: Counts,
    /// Processes with gaps before several kinds of calls, each with all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<GapTotal>,
    /// What was looked for, with thresholds.
    pub checked: Vec<String>,
    /// The stream goes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub so_far: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A stretch of a process that no chain counts.
#[derive(Clone, Debug)]
pub struct Aside {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// What it was doing, in a word.
    pub what: &'static str,
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub mono_ns: u64,
    /// Length, nanoseconds.
    pub dur_ns: u64,
}

/// Everything found in one stream.
#[derive(Clone, Debug)]
pub struct Report {
    /// The chains, worst first.
    pub chains: Vec<Chain>,
    /// The processes.
    pub processes: Vec<ProcessReport>,
    /// Starting up and winding down, where it was seen.
    pub asides: Vec<Aside>,
    /// The last line.
    pub summary: Summary,
}

impl Report {
    /// Keeps what concerns processes for which `keep` holds. What the summary says of the stream as a whole stays.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.chains.retain(|chain| keep(chain.pid));
        self.processes.retain(|process| keep(process.pid));
        self.asides.retain(|aside| keep(aside.pid));
        self.summary.gaps.retain(|total| keep(total.pid));
        self.summary.chains = Counts::of(&self.chains);
    }

    /// Whether something of at least `severity` was found: a chain, or the sum of a process's gaps.
    pub fn has(&self, severity: Severity) -> bool {
        self.chains.iter().any(|chain| chain.severity >= severity)
            || self.summary.gaps.iter().any(|total| total.severity >= severity)
    }
}
