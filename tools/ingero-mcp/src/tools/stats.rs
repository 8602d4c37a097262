//! `get_trace_stats`: what is in a recording.

use ingero_chain::model::CallLine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::account::{self, AccountOut};
use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset};
use crate::recording::{Recording, View};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Only the account and the calls of this process
    pid: Option<u32>,
    /// Call statistics in one answer (1 to 200, usually 30)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

/// What a recording is, in a few numbers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// Name of the recording, for the other tools
    recording: String,
    /// Its files
    files: String,
    /// All recordings that are served
    recordings: Vec<String>,
    /// Start on CLOCK_MONOTONIC, nanoseconds: subtract it from any mono_ns for the time since the beginning
    start_mono_ns: u64,
    /// End, nanoseconds
    end_mono_ns: u64,
    /// The start as wall clock
    #[serde(skip_serializing_if = "Option::is_none")]
    start_ts: Option<String>,
    /// Length, nanoseconds
    dur_ns: u64,
    /// All records, those about the stream itself included
    records: u64,
    /// Outermost CUDA calls
    calls: u64,
    /// Processes that made CUDA calls
    cuda_processes: u64,
    /// Records that the tracers lost, as far as they could count them
    lost: u64,
    /// Findings, by severity
    findings: Counts,
    /// Where the time of each process that uses CUDA went, the one for which the GPU waited longest first
    accounts: Vec<AccountOut>,
    /// How many accounts there are in all; get_per_process_breakdown has them
    accounts_total: u64,
    /// Why nothing could be judged, where that is so
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing_seen: Option<String>,
    /// What was looked for, with thresholds
    checked: Vec<String>,
    /// More may come: all numbers are those so far
    growing: bool,
    /// Why the recording ends before its end
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Counts {
    high: u64,
    medium: u64,
    low: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Stats {
    #[serde(flatten)]
    overview: Overview,
    /// Records of each kind, most first
    #[schemars(with = "Vec<KindLine>")]
    kinds: Vec<KindLine>,
    /// Outermost CUDA calls by process and operation, most time first; cold ones are not in the percentiles. Times are
    /// those of the call on the host: for an asynchronous call the time to enqueue
    #[schemars(with = "Vec<CallStats>")]
    call_stats: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

#[derive(Debug, Serialize, JsonSchema)]
struct KindLine {
    src: String,
    op: String,
    records: u64,
}

/// Kinds in one answer: the tracers write about 80.
const MAX_KINDS: usize = 60;

/// Calls of one operation.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallStats {
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    src: String,
    op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    n: u64,
    /// Durations are absent where only entries were traced
    #[serde(skip_serializing_if = "Option::is_none")]
    avg_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    /// Absent below 100 samples
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ns: Option<u64>,
    /// Bytes copied, set or allocated, in all of them
    bytes: u64,
    /// Where calls are told apart by what one carries: bytes from
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_from: Option<u64>,
    /// ... to
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_to: Option<u64>,
}

impl CallStats {
    pub(super) fn of(pid: Option<u32>, line: &CallLine) -> Self {
        Self {
            pid,
            src: line.src.raw().to_owned(),
            op: line.op.raw().to_owned(),
            dir: line.dir.as_ref().map(|dir| dir.raw().to_owned()),
            n: line.n,
            avg_ns: line.avg_ns,
            p50_ns: line.p50_ns,
            p99_ns: line.p99_ns,
            max_ns: line.max_ns,
            bytes: line.bytes,
            bytes_from: line.size_bytes.map(|[from, _]| from),
            bytes_to: line.size_bytes.map(|[_, to]| to),
        }
    }
}

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_trace_stats",
        "What is in a recording, and where the time went",
        "What a recording holds, and where the time went: the account of each process that uses CUDA (how long the GPU waited for \
         it, of how long a loop, and what the rest was), findings by severity, records of each kind, and statistics of CUDA \
         calls by process and operation. Begin here.",
        r#"{} or {"pid": 4242, "limit": 20}"#,
        |context, arguments: Arguments| stats(context, &arguments),
    )
}

/// What a recording is, in a few numbers.
pub(crate) fn overview(context: &Context<'_>, recording: &Recording, view: &View, pid: Option<u32>) -> Overview {
    let summary = &view.report.summary;
    let seen = recording.seen();
    let start_ns = seen.start_ns.unwrap_or(summary.mono_ns);
    let (accounts, accounts_total) = account::largest(&view.report, pid);
    Overview {
        recording: recording.name.clone(),
        files: recording.files.clone(),
        recordings: context.recordings.iter().map(|r| r.name.clone()).collect(),
        start_mono_ns: start_ns,
        end_mono_ns: seen.end_ns,
        start_ts: summary.ts.as_ref().map(|ts| ts.as_str().to_owned()),
        dur_ns: seen.end_ns.saturating_sub(start_ns),
        records: seen.records,
        calls: summary.stream.calls,
        cuda_processes: summary.stream.processes,
        lost: summary.stream.lost,
        findings: Counts { high: summary.chains.high, medium: summary.chains.medium, low: summary.chains.low },
        accounts,
        accounts_total,
        nothing_seen: summary.stream.nothing_seen.map(str::to_owned),
        checked: summary.checked.clone(),
        growing: view.growing,
        problem: view.problem.clone(),
    }
}

fn stats(context: &Context<'_>, arguments: &Arguments) -> Result<Stats, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 30, 200)?;
    let offset = offset(arguments.cursor.as_deref())?;
    let view = context.view(recording)?;
    let mut lines: Vec<(u32, &CallLine)> = Vec::new();
    for process in view.report.processes.iter().filter(|p| arguments.pid.is_none_or(|pid| pid == p.pid)) {
        lines.extend(process.calls.iter().map(|line| (process.pid, line)));
    }
    let total_ns = |line: &CallLine| u128::from(line.avg_ns.unwrap_or(0)) * u128::from(line.n);
    lines.sort_by(|(a_pid, a), (b_pid, b)| {
        total_ns(b).cmp(&total_ns(a)).then_with(|| (a_pid, &a.op).cmp(&(b_pid, &b.op)))
    });
    let mut kinds: Vec<KindLine> = recording
        .seen()
        .kinds()
        .map(|(src, op, records)| KindLine { src: src.to_owned(), op: op.to_owned(), records })
        .collect();
    kinds.sort_by(|a, b| b.records.cmp(&a.records).then_with(|| (&a.src, &a.op).cmp(&(&b.src, &b.op))));
    kinds.truncate(MAX_KINDS);
    let mut stats = Stats {
        overview: overview(context, recording, &view, arguments.pid),
        kinds,
        call_stats: Vec::new(),
        page: PageInfo::default(),
    };
    let filler = Filler::new(limit, &stats);
    (stats.call_stats, stats.page) =
        filler.page(lines.iter().map(|(pid, line)| CallStats::of(Some(*pid), line)), offset);
    Ok(stats)
}
