//! `get_causal_chains`: where time was lost, and why.

use ingero_chain::Severity;
use ingero_chain::cause::CauseLine;
use ingero_chain::chain::{Chain, Occurrence};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset, quoted};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Only chains of this severity or above: high from 20 % of the process's time lost, medium from 5 %, low from 1 %
    severity: Option<AtLeast>,
    /// Only chains of this process
    pid: Option<u32>,
    /// Only this chain, with its occurrences, the longest first
    id: Option<String>,
    /// Chains, or occurrences of one chain, in one answer (1 to 100, usually 10)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum AtLeast {
    High,
    Medium,
    Low,
}

impl From<AtLeast> for Severity {
    fn from(severity: AtLeast) -> Self {
        match severity {
            AtLeast::High => Severity::High,
            AtLeast::Medium => Severity::Medium,
            AtLeast::Low => Severity::Low,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Chains {
    recording: String,
    /// Chains, the worst first
    #[schemars(with = "Vec<ChainOut>")]
    chains: Vec<Value>,
    /// Of the one chain that was asked for by id: when it happened
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<OccurrenceOut>")]
    occurrences: Vec<Value>,
    /// Where nothing was found: what was looked for
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checked: Vec<String>,
    #[serde(flatten)]
    page: PageInfo,
}

/// One finding. The causes' ns and unexplained_ns add up to lost_ns.
#[derive(Debug, Serialize, JsonSchema)]
struct ChainOut {
    /// Names this chain in calls of this tool
    id: String,
    /// gap (no CUDA call in flight in the whole process), slow_call, stall, drop, oom (killed for memory)
    kind: String,
    severity: String,
    /// In one sentence
    summary: String,
    pid: u32,
    comm: String,
    /// Start of the first occurrence, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    /// From there to the end of the last one
    dur_ns: u64,
    /// Occurrences
    n: u64,
    /// They recur once in so many nanoseconds
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ns: Option<u64>,
    /// Nanoseconds lost in all of them
    lost_ns: u64,
    /// The same as a share of the process's observed time
    lost_share: f64,
    /// gap: the part in which the GPU provably had nothing to do; beyond it lost_ns is an upper bound
    #[serde(skip_serializing_if = "Option::is_none")]
    proven_ns: Option<u64>,
    /// The slow call, or the call that ends the gaps
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// Median of the calls, or of the usual time between calls
    p50_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    max_ns: u64,
    /// Largest first
    causes: Vec<CauseOut>,
    /// The part that no record explains
    unexplained_ns: u64,
    timeline: Vec<LayerOut>,
    /// What to try, and what in the record led to it
    advice: Vec<AdviceOut>,
    evidence: EvidenceOut,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CauseOut {
    /// host_cpu, cpu_wait, quota, io_wait, blocked, driver_cpu, worker_cpu, worker_cpu_wait, worker_quota, worker_io, wait,
    /// sleep, off_cpu, steal: see the resource ingero://contract
    cause: String,
    ns: u64,
    share: f64,
    /// Whose doing, largest first, the first few
    #[serde(skip_serializing_if = "Vec::is_empty")]
    who: Vec<WhoOut>,
    /// How many there are in all, where they are not all here
    #[serde(skip_serializing_if = "Option::is_none")]
    who_total: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WhoOut {
    pid: u32,
    comm: String,
    ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LayerOut {
    /// SYSTEM, HOST or CUDA
    layer: String,
    text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct AdviceOut {
    text: String,
    because: String,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EvidenceOut {
    /// Records lost in this time
    lost: u64,
    /// Share of the lost time that the scheduler tracer watched
    watched_share: f64,
    /// Calls, or stretches between calls, that it was compared with
    samples: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct OccurrenceOut {
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    dur_ns: u64,
    causes: Vec<CauseOut>,
    unexplained_ns: u64,
}

/// Parties of a cause in one answer.
const MAX_WHO: usize = 6;
/// Layers and pieces of advice in one answer: ingero-chain has three layers and a handful of advice.
const MAX_LINES: usize = 8;

fn cause(line: &CauseLine) -> CauseOut {
    CauseOut {
        cause: line.cause.name().to_owned(),
        ns: line.ns,
        share: line.share,
        who: line.who.iter().take(MAX_WHO).map(|w| WhoOut { pid: w.pid, comm: w.comm.clone(), ns: w.ns }).collect(),
        who_total: (line.who.len() > MAX_WHO).then_some(line.who.len() as u64),
    }
}

fn chain(c: &Chain) -> ChainOut {
    ChainOut {
        id: c.id.clone(),
        kind: c.op.name().to_owned(),
        severity: c.severity.name().to_owned(),
        summary: c.summary.clone(),
        pid: c.pid,
        comm: c.comm.clone(),
        mono_ns: c.mono_ns,
        dur_ns: c.dur_ns,
        n: c.n,
        period_ns: c.period.map(|p| p.ns),
        lost_ns: c.lost_ns,
        lost_share: c.lost_share,
        proven_ns: c.proven_ns,
        call: c.call.clone(),
        dir: c.dir.clone(),
        p50_ns: c.p50_ns,
        p99_ns: c.p99_ns,
        max_ns: c.max_ns,
        causes: c.causes.iter().map(cause).collect(),
        unexplained_ns: c.unexplained_ns,
        timeline: c
            .timeline
            .iter()
            .take(MAX_LINES)
            .map(|t| LayerOut { layer: t.layer.to_owned(), text: t.text.clone() })
            .collect(),
        advice: c
            .advice
            .iter()
            .take(MAX_LINES)
            .map(|a| AdviceOut { text: a.text.clone(), because: a.because.clone() })
            .collect(),
        evidence: EvidenceOut {
            lost: c.evidence.lost,
            watched_share: c.evidence.watched_share,
            samples: c.evidence.samples,
        },
    }
}

fn occurrence(one: &Occurrence) -> OccurrenceOut {
    OccurrenceOut {
        mono_ns: one.mono_ns,
        ts: one.ts.as_ref().map(|ts| ts.as_str().to_owned()),
        dur_ns: one.dur_ns,
        causes: one.causes.iter().map(cause).collect(),
        unexplained_ns: one.unexplained_ns,
    }
}

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_causal_chains",
        "Where time was lost, and why",
        "What the GPU waited for: gaps without any CUDA call, slow calls, stalls and drops, each with the nanoseconds lost and \
         with causes that add up to them, what to try and what that rests on. With `id`, one chain and each of its \
         occurrences. A cause below 10 % of the lost time is not the reason; `unexplained_ns` is not to be explained away.",
        r#"{"severity": "medium"} or {"id": "gap-4242-cudaMemcpyAsync-h2d"}"#,
        |context, arguments: Arguments| chains(context, &arguments),
    )
}

fn chains(context: &Context<'_>, arguments: &Arguments) -> Result<Chains, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 10, 100)?;
    let offset = offset(arguments.cursor.as_deref())?;
    let view = context.view(recording)?;
    let report = &view.report;
    let mut answer = Chains {
        recording: recording.name.clone(),
        chains: Vec::new(),
        occurrences: Vec::new(),
        checked: Vec::new(),
        page: PageInfo::default(),
    };
    if let Some(id) = &arguments.id {
        let Some(found) = report.chains.iter().find(|c| c.id == *id) else {
            let known: Vec<String> = report.chains.iter().take(20).map(|c| quoted(&c.id)).collect();
            let known =
                if known.is_empty() { "no chain was found".into() } else { format!("there are {}", known.join(", ")) };
            return Err(Problem::Told(format!("no chain has the id {}; {known}", quoted(id))));
        };
        answer.chains = vec![crate::answer::plain(&chain(found))];
        let filler = Filler::new(limit, &answer);
        (answer.occurrences, answer.page) = filler.page(found.occurrences.iter().map(occurrence), offset);
        return Ok(answer);
    }
    let wanted: Vec<&Chain> = report
        .chains
        .iter()
        .filter(|c| arguments.severity.is_none_or(|s| c.severity >= s.into()))
        .filter(|c| arguments.pid.is_none_or(|pid| c.pid == pid))
        .collect();
    if wanted.is_empty() {
        answer.checked = report.summary.checked.clone();
    }
    let filler = Filler::new(limit, &answer);
    (answer.chains, answer.page) = filler.page(wanted.into_iter().map(chain), offset);
    Ok(answer)
}
