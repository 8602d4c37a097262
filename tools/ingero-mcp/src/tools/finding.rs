//! A finding as answers show it, in the order of ingero-chain's report: what and how bad, when, why, what to try, how
//! complete the data is.

use ingero_chain::CauseLine;
use ingero_chain::model::{Finding, GridLine, Launches, Occurrence};
use schemars::JsonSchema;
use serde::Serialize;

/// One finding. The causes' ns and unexplained_ns add up to lost_ns.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct FindingOut {
    /// Names this finding in calls of this tool
    id: String,
    /// gap (the GPU waited for a call), total (all gaps of a process before several kinds of calls: the same time once more),
    /// slow_call, host_calls (allocating, loading or blocking copies for 5 % of the loop and more), launch_bound, stall (no
    /// call any more, or one that does not return), oom (killed for memory)
    kind: String,
    /// high from 20 % of the loop, medium from 5 %, low from 1 %
    severity: String,
    /// In one sentence
    summary: String,
    pid: u32,
    comm: String,
    /// The slow call, the call that ends the gaps, the call that hangs
    #[serde(skip_serializing_if = "String::is_empty")]
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// Size class of the call: bytes from
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_from: Option<u64>,
    /// ... to
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_to: Option<u64>,
    /// Nanoseconds lost in all occurrences
    lost_ns: u64,
    /// The same as a share of the process's loop
    lost_share: f64,
    /// gap, total: the part in which the GPU is known to have had nothing to do; beyond it lost_ns is an upper bound
    #[serde(skip_serializing_if = "Option::is_none")]
    proven_ns: Option<u64>,
    /// slow_call: the part that may have been waiting for a GPU at work, which is no fault of the host
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_wait_ns: Option<u64>,
    /// total: before how many kinds of calls
    #[serde(skip_serializing_if = "Option::is_none")]
    kinds: Option<u64>,
    /// host_calls: memory, load or copy
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    /// host_calls: the operations
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ops: Vec<OpOut>,
    /// launch_bound: how the launches were made
    #[serde(skip_serializing_if = "Option::is_none")]
    launches: Option<LaunchesOut>,
    /// oom: what was killed: cuda, worker, other
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// oom: what it had resident
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    when: When,
    /// Why, largest first
    causes: Vec<CauseOut>,
    /// The part that no record explains
    unexplained_ns: u64,
    /// What the machine, the host and the calls did meanwhile
    layers: Vec<LayerOut>,
    /// What to try
    advice: Vec<AdviceOut>,
    evidence: EvidenceOut,
}

/// When it happened, and how long it took each time.
#[derive(Debug, Serialize, JsonSchema)]
struct When {
    /// Start of the first occurrence, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    /// From there to the end of the last one
    dur_ns: u64,
    /// Occurrences; of host_calls and launch_bound the calls
    n: u64,
    /// They recur once in so many nanoseconds; absent where nothing regular shows
    #[serde(skip_serializing_if = "Option::is_none")]
    period_ns: Option<u64>,
    /// Median: of the gaps, or of all calls of the group
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ns: Option<u64>,
    /// slow_call: the longest as a multiple of the median
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// gap: time lost in each of equal slices
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<GridOut>,
}

/// Lost time over the recording.
#[derive(Debug, Serialize, JsonSchema)]
struct GridOut {
    /// Where the first slice begins, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    slice_ns: u64,
    /// Nanoseconds lost in each slice
    lost_ns: Vec<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CauseOut {
    /// host_cpu, cpu_wait, quota, io_wait, blocked, driver_cpu, worker_cpu, worker_cpu_wait, worker_quota, worker_io, wait,
    /// sleep, off_cpu, steal, cuda_call, lock, pause, network, spin, gc, worker_gc: see the resource ingero://contract
    cause: String,
    ns: u64,
    share: f64,
    /// Who went through it (of cpu_wait and worker_cpu_wait: who had the CPU), largest first, the first few
    #[serde(skip_serializing_if = "Vec::is_empty")]
    who: Vec<WhoOut>,
    /// How many there are in all, where they are not all here
    #[serde(skip_serializing_if = "Option::is_none")]
    who_total: Option<u64>,
    /// cuda_call: in which operations, largest first, the first few
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ops: Vec<CauseOpOut>,
    /// How many there are in all, where they are not all here
    #[serde(skip_serializing_if = "Option::is_none")]
    ops_total: Option<u64>,
    /// In which functions, with their shares of this cause, largest first; behind `>` what the program's own code called
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    places: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WhoOut {
    pid: u32,
    comm: String,
    ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct CauseOpOut {
    op: String,
    ns: u64,
}

/// One operation of host_calls.
#[derive(Debug, Serialize, JsonSchema)]
struct OpOut {
    op: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// Calls
    n: u64,
    /// Time in them
    ns: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct LaunchesOut {
    n: u64,
    /// Between two waits for the GPU
    #[serde(skip_serializing_if = "Option::is_none")]
    per_step: Option<u64>,
    /// Time in each launch
    call_ns: u64,
    /// From one launch to the next
    each_ns: u64,
    /// What lost_ns may be off by; absent where it is not known for want of samples, and lost_ns is 0
    #[serde(skip_serializing_if = "Option::is_none")]
    err_ns: Option<u64>,
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
    /// What in the records led to it
    because: String,
    /// What it could bring at most; absent where the records do not say
    #[serde(skip_serializing_if = "Option::is_none")]
    up_to_ns: Option<u64>,
}

/// How complete the data on it is.
#[derive(Debug, Serialize, JsonSchema)]
struct EvidenceOut {
    /// Records lost in this time
    lost: u64,
    /// Share of the lost time that the scheduler tracer watched
    watched_share: f64,
    /// Calls, gaps or samples that it rests on
    samples: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct OccurrenceOut {
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<String>,
    /// A gap's length, a call's duration
    dur_ns: u64,
    /// Calls before it: of the process for a gap, of its group for a call
    after_calls: u64,
    /// Of a call's whole time, not only what was lost
    causes: Vec<CauseOut>,
    unexplained_ns: u64,
}

/// Tasks or operations of a cause in one answer.
const MAX_WHO: usize = 6;
/// Layers and pieces of advice in one answer: ingero-chain has three layers and a handful of advice.
const MAX_LINES: usize = 8;
/// Slices of a grid where many findings are listed; one that is asked for by id has all of its own.
pub(super) const LISTED_SLICES: usize = 20;

fn cause(line: &CauseLine) -> CauseOut {
    CauseOut {
        cause: line.cause.name().to_owned(),
        ns: line.ns,
        share: line.share,
        who: line
            .who
            .iter()
            .take(MAX_WHO)
            .map(|w| WhoOut { pid: w.pid, comm: w.comm.raw().to_owned(), ns: w.ns })
            .collect(),
        who_total: (line.who.len() > MAX_WHO).then_some(line.who.len() as u64),
        ops: line.ops.iter().take(MAX_WHO).map(|op| CauseOpOut { op: op.op.raw().to_owned(), ns: op.ns }).collect(),
        ops_total: (line.ops.len() > MAX_WHO).then_some(line.ops.len() as u64),
        places: ingero_chain::places(line),
    }
}

/// At most so many slices: neighbours are added up.
fn grid(line: &GridLine, slices: usize) -> GridOut {
    let wide = line.lost_ns.len().div_ceil(slices.max(1)).max(1);
    GridOut {
        mono_ns: line.mono_ns,
        slice_ns: line.slice_ns.saturating_mul(wide as u64),
        lost_ns: line.lost_ns.chunks(wide).map(|part| part.iter().sum()).collect(),
    }
}

fn launches(l: Launches) -> LaunchesOut {
    LaunchesOut { n: l.n, per_step: l.per_step, call_ns: l.call_ns, each_ns: l.each_ns, err_ns: l.err_ns }
}

fn when(f: &Finding, slices: usize) -> When {
    let times = f.times.as_ref();
    When {
        mono_ns: f.lost.mono_ns,
        ts: f.lost.ts.as_ref().map(|ts| ts.as_str().to_owned()),
        dur_ns: f.lost.dur_ns,
        n: f.lost.n,
        period_ns: times.and_then(|times| times.period).map(|period| period.ns),
        p50_ns: times.map(|times| times.p50_ns),
        p99_ns: times.and_then(|times| times.p99_ns),
        max_ns: times.map(|times| times.max_ns),
        ratio: times.and_then(|times| times.ratio),
        grid: f.lost.grid.as_ref().map(|line| grid(line, slices)),
    }
}

/// A finding, its grid in at most so many slices.
pub(super) fn finding(f: &Finding, slices: usize) -> FindingOut {
    let ops = f.extra.ops.iter();
    let layers = f.story.timeline.iter().take(MAX_LINES);
    let advice = f.story.advice.iter().take(MAX_LINES);
    FindingOut {
        id: f.id.raw().to_owned(),
        kind: f.op.name().to_owned(),
        severity: f.severity.name().to_owned(),
        summary: f.story.summary.clone(),
        pid: f.pid,
        comm: f.comm.raw().to_owned(),
        call: f.call.call.raw().to_owned(),
        dir: f.call.dir.as_ref().map(|dir| dir.raw().to_owned()),
        bytes_from: f.call.bytes.map(|[from, _]| from),
        bytes_to: f.call.bytes.map(|[_, to]| to),
        lost_ns: f.lost.lost_ns,
        lost_share: f.lost.lost_share,
        proven_ns: f.extra.proven_ns,
        gpu_wait_ns: f.extra.gpu_wait_ns,
        kinds: f.extra.kinds,
        class: f.extra.class.map(str::to_owned),
        ops: ops
            .map(|op| OpOut {
                op: op.op.raw().to_owned(),
                dir: op.dir.as_ref().map(|dir| dir.raw().to_owned()),
                n: op.n,
                ns: op.ns,
            })
            .collect(),
        launches: f.extra.launches.map(launches),
        role: f.extra.role.map(str::to_owned),
        resident_bytes: f.extra.resident_bytes,
        when: when(f, slices),
        causes: f.lost.causes.iter().map(cause).collect(),
        unexplained_ns: f.lost.unexplained_ns,
        layers: layers.map(|line| LayerOut { layer: line.layer.to_owned(), text: line.text.clone() }).collect(),
        advice: advice
            .map(|a| AdviceOut {
                text: a.text.clone(),
                because: a.because.clone(),
                up_to_ns: Some(a.up_to_ns).filter(|&ns| ns > 0),
            })
            .collect(),
        evidence: EvidenceOut {
            lost: f.evidence.lost,
            watched_share: f.evidence.watched_share,
            samples: f.evidence.samples,
        },
    }
}

pub(super) fn occurrence(one: &Occurrence) -> OccurrenceOut {
    OccurrenceOut {
        mono_ns: one.mono_ns,
        ts: one.ts.as_ref().map(|ts| ts.as_str().to_owned()),
        dur_ns: one.dur_ns,
        after_calls: one.after_calls,
        causes: one.causes.iter().map(cause).collect(),
        unexplained_ns: one.unexplained_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coarser_grid_has_the_same_sum() {
        let line = GridLine { mono_ns: 7, slice_ns: 10, lost_ns: (1..=97).collect() };
        let coarse = grid(&line, 20);
        assert_eq!((coarse.mono_ns, coarse.slice_ns, coarse.lost_ns.len()), (7, 50, 20));
        assert_eq!(coarse.lost_ns.iter().sum::<u64>(), 97 * 98 / 2);
        assert_eq!(grid(&line, 100).lost_ns, line.lost_ns);
        assert!(grid(&GridLine::default(), 20).lost_ns.is_empty());
    }
}
