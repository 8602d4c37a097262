//! The account of a process as answers show it: where each nanosecond went. The numbers are ingero-chain's.

use ingero_chain::model::{AccountLine, Report};
use ingero_chain::{Class, Classes, share};
use schemars::JsonSchema;
use serde::Serialize;

/// Where the time of one process that uses CUDA went.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AccountOut {
    pid: u32,
    comm: String,
    /// Time in which the GPU waited for this process: idle + silence
    lost_ns: u64,
    /// The same as a share of loop_ns
    lost_share: f64,
    /// The process was observed from here, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    /// ... for so long; the classes add up to it
    observed_ns: u64,
    /// Its loop begins here: after imports, the context and cold calls
    loop_mono_ns: u64,
    /// ... and lasts so long, until its last work
    loop_ns: u64,
    classes: ClassesOut,
    /// Use of the GPU over the loop as its driver counts it, percent; absent without samples
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_busy_pct: Option<f64>,
    /// How much of enqueue, between and other_call the GPU was idle, by that counter: an estimate beside the classes
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_bound_ns: Option<u64>,
    /// What launch_bound_ns may be off by
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_bound_err_ns: Option<u64>,
    /// Times that the loop waited until the GPU had nothing left to do; absent where it never did
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_per_s: Option<f64>,
}

/// Nanoseconds of each class. Every instant has exactly one.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ClassesOut {
    /// Before the loop
    start_up: u64,
    /// The GPU is known to have had nothing to do
    idle: u64,
    /// 1 ms and more between calls in which the GPU may have had work: an upper bound of the time that it waited
    silence: u64,
    /// In a call that waits for a GPU at work
    gpu_wait: u64,
    /// In calls that give the GPU work
    enqueue: u64,
    /// In copies that block the host
    copy: u64,
    /// Allocating and freeing while the GPU may have had work
    memory: u64,
    /// Loading code, first launches
    load: u64,
    /// In any other call while the GPU may have had work
    other_call: u64,
    /// Short times between calls with work queued
    between: u64,
    /// After the last work
    wind_down: u64,
    /// Records are missing, or nobody watched
    not_judged: u64,
}

impl From<&Classes> for ClassesOut {
    fn from(classes: &Classes) -> Self {
        Self {
            start_up: classes.get(Class::StartUp),
            idle: classes.get(Class::Idle),
            silence: classes.get(Class::Silence),
            gpu_wait: classes.get(Class::GpuWait),
            enqueue: classes.get(Class::Enqueue),
            copy: classes.get(Class::Copy),
            memory: classes.get(Class::Memory),
            load: classes.get(Class::Load),
            other_call: classes.get(Class::OtherCall),
            between: classes.get(Class::Between),
            wind_down: classes.get(Class::WindDown),
            not_judged: classes.get(Class::NotJudged),
        }
    }
}

impl From<&AccountLine> for AccountOut {
    fn from(line: &AccountLine) -> Self {
        Self {
            pid: line.pid,
            comm: line.comm.raw().to_owned(),
            lost_ns: line.lost_ns,
            lost_share: line.lost_share,
            mono_ns: line.mono_ns,
            observed_ns: line.observed_ns,
            loop_mono_ns: line.loop_mono_ns,
            loop_ns: line.loop_ns,
            classes: (&line.classes).into(),
            gpu_busy_pct: line.gpu.gpu_busy_pct,
            launch_bound_ns: line.gpu.launch_bound_ns,
            launch_bound_err_ns: line.gpu.launch_bound_err_ns,
            steps: line.steps.map(|steps| steps.n),
            steps_per_s: line.steps.map(|steps| steps.per_s),
        }
    }
}

/// Accounts in one answer that has other things, too: a machine has eight GPUs or so.
const MAX_ACCOUNTS: usize = 8;

/// The accounts of those that lost most, and how many there are in all.
pub(crate) fn largest(report: &Report, pid: Option<u32>) -> (Vec<AccountOut>, u64) {
    let mut lines: Vec<&AccountLine> =
        report.accounts.iter().filter(|line| pid.is_none_or(|pid| pid == line.pid)).collect();
    lines.sort_by_key(|line| (std::cmp::Reverse((line.lost_ns, line.loop_ns)), line.pid, line.mono_ns));
    (lines.iter().take(MAX_ACCOUNTS).map(|&line| line.into()).collect(), lines.len() as u64)
}

/// The accounts of processes of one kind together: sums of ingero-chain's numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountSum {
    processes: u64,
    observed_ns: u64,
    loop_ns: u64,
    lost_ns: u64,
    classes: Classes,
    /// Where samples tell: busy percent times nanoseconds of the loop, and these nanoseconds.
    busy: (f64, u64),
    launch_bound_ns: Option<u64>,
    steps: u64,
}

/// One side of a comparison.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(super) struct SideOut {
    /// Processes that use CUDA
    processes: u64,
    observed_ns: u64,
    loop_ns: u64,
    /// Time in which the GPU waited: idle + silence
    lost_ns: u64,
    /// The same as a share of loop_ns
    lost_share: f64,
    classes: ClassesOut,
    /// Use of the GPU over the loops as its driver counts it, percent; absent without samples
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_busy_pct: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    launch_bound_ns: Option<u64>,
    /// Times that a loop waited until the GPU had nothing left to do, per second of loop; absent where none did
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_per_s: Option<f64>,
}

impl AccountSum {
    pub(super) fn add(&mut self, line: &AccountLine) {
        self.processes += 1;
        self.observed_ns += line.observed_ns;
        self.loop_ns += line.loop_ns;
        self.lost_ns += line.lost_ns;
        self.classes.add_all(&line.classes);
        if let Some(pct) = line.gpu.gpu_busy_pct {
            self.busy = (self.busy.0 + pct * line.loop_ns as f64, self.busy.1 + line.loop_ns);
        }
        if let Some(ns) = line.gpu.launch_bound_ns {
            *self.launch_bound_ns.get_or_insert(0) += ns;
        }
        self.steps += line.steps.map_or(0, |steps| steps.n);
    }

    pub(super) fn loop_ns(&self) -> u64 {
        self.loop_ns
    }

    pub(super) fn out(&self) -> SideOut {
        let tenths = |value: f64| (value * 10.0).round() / 10.0;
        SideOut {
            processes: self.processes,
            observed_ns: self.observed_ns,
            loop_ns: self.loop_ns,
            lost_ns: self.lost_ns,
            lost_share: share(self.lost_ns, self.loop_ns),
            classes: (&self.classes).into(),
            gpu_busy_pct: (self.busy.1 > 0).then(|| tenths(self.busy.0 / self.busy.1 as f64)),
            launch_bound_ns: self.launch_bound_ns,
            steps_per_s: (self.steps > 0).then(|| tenths(self.steps as f64 * 1e9 / self.loop_ns.max(1) as f64)),
        }
    }

    /// One with nothing but a loop.
    #[cfg(test)]
    pub(super) fn of_loop(loop_ns: u64) -> Self {
        Self { processes: 1, loop_ns, ..Self::default() }
    }
}
