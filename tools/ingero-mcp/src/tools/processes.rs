//! `get_per_process_breakdown`: what each process did.

use ingero_chain::model::{ProcessReport, Report};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::account::AccountOut;
use super::stats::CallStats;
use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Only this process
    pid: Option<u32>,
    /// Only processes of this role: cuda makes CUDA calls, worker descends from one that does, other is the rest
    role: Option<Role>,
    /// Processes in one answer (1 to 100, usually 10)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Role {
    Cuda,
    Worker,
    Other,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Cuda => "cuda",
            Role::Worker => "worker",
            Role::Other => "other",
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Breakdown {
    recording: String,
    /// Processes, those with most kinds of CUDA calls first
    #[schemars(with = "Vec<ProcessOut>")]
    processes: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ProcessOut {
    pid: u32,
    comm: String,
    /// cuda, worker (of one that makes CUDA calls) or other
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<u32>,
    /// First seen, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    /// Observed for so long
    dur_ns: u64,
    /// Where its time went, if it makes CUDA calls; more than one where it became another program
    #[serde(skip_serializing_if = "Vec::is_empty")]
    accounts: Vec<AccountOut>,
    /// CUDA calls by operation, the first few
    calls: Vec<CallStats>,
    /// Operations in all
    calls_total: u64,
    /// Calls while the process was warming up, in no percentile
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_ns: Option<u64>,
    /// Times that its threads left the CPU by themselves
    voluntary: u64,
    /// Times that they were preempted
    preempted: u64,
    avg_off_ns: u64,
    max_off_ns: u64,
    /// Runnable without a CPU, all threads together
    runq_ns: u64,
    /// Pages that the kernel allocated for it
    pages: u64,
    page_bytes: u64,
}

/// Operations of one process in one answer; get_trace_stats has all.
const MAX_CALLS: usize = 15;

/// Programs that one process was, in one answer.
const MAX_ACCOUNTS: usize = 4;

fn process(report: &Report, p: &ProcessReport) -> ProcessOut {
    // A pid may have been used twice.
    let (from_ns, to_ns) = (p.mono_ns, p.mono_ns.saturating_add(p.dur_ns));
    let own = report.accounts.iter().filter(|a| a.pid == p.pid && (from_ns..=to_ns).contains(&a.mono_ns));
    ProcessOut {
        pid: p.pid,
        comm: p.comm.raw().to_owned(),
        role: p.role.to_owned(),
        parent: p.parent,
        mono_ns: p.mono_ns,
        dur_ns: p.dur_ns,
        accounts: own.take(MAX_ACCOUNTS).map(AccountOut::from).collect(),
        calls: p.calls.iter().take(MAX_CALLS).map(|line| CallStats::of(None, line)).collect(),
        calls_total: p.calls.len() as u64,
        cold_calls: p.cold.map(|cold| cold.calls),
        cold_ns: p.cold.map(|cold| cold.ns),
        voluntary: p.switches.voluntary,
        preempted: p.switches.preempted,
        avg_off_ns: p.switches.avg_off_ns,
        max_off_ns: p.switches.max_off_ns,
        runq_ns: p.switches.runq_ns,
        pages: p.pages,
        page_bytes: p.page_bytes,
    }
}

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_per_process_breakdown",
        "What each process did",
        "Each process with its role (cuda, worker, other) and parent: the account of its time (where it went, how long the GPU \
         waited), its CUDA calls by operation, how often its threads left the CPU and how long they waited for one, pages.",
        r#"{"role": "cuda"} or {"pid": 4242}"#,
        |context, arguments: Arguments| breakdown(context, &arguments),
    )
}

fn breakdown(context: &Context<'_>, arguments: &Arguments) -> Result<Breakdown, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 10, 100)?;
    let offset = offset(arguments.cursor.as_deref())?;
    let view = context.view(recording)?;
    let all = &view.report.processes;
    let wanted: Vec<&ProcessReport> = all
        .iter()
        .filter(|p| arguments.pid.is_none_or(|pid| pid == p.pid))
        .filter(|p| arguments.role.is_none_or(|role| role.name() == p.role))
        .collect();
    if let (Some(pid), true) = (arguments.pid, wanted.is_empty()) {
        let pids: Vec<String> = all.iter().take(20).map(|p| p.pid.to_string()).collect();
        return Err(Problem::Told(format!("no such process {pid} in the recording; there are {}", pids.join(", "))));
    }
    let mut answer = Breakdown { recording: recording.name.clone(), processes: Vec::new(), page: PageInfo::default() };
    let filler = Filler::new(limit, &answer);
    (answer.processes, answer.page) = filler.page(wanted.into_iter().map(|p| process(&view.report, p)), offset);
    Ok(answer)
}
