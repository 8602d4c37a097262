//! Takes the records of a joined stream one by one and knows, at any time, what has been found so far.

use std::collections::{BTreeMap, HashMap};

use ingero_common::clock::WallClock;
use ingero_common::record::{Record, SysSample, Who, src, why};

use crate::evidence::{GpuSamples, Loss, Losses, Samples};
use crate::names::{Names, Thread};
use crate::path::Sources;
use crate::process::CudaProcess;
use crate::stats::Stats;
use crate::world::{LifeId, Off, State, World};

/// Records may come so late: ingero-join's window, and what its inputs are late among themselves.
const SETTLE_NS: u64 = 500_000_000;
/// A sample of the machine covers the second before it.
const SETTLE_WITH_SAMPLES_NS: u64 = 1_500_000_000;
/// Old intervals are dropped, and gaps settled, once in so many records.
const HOUSEKEEPING: u64 = 16_384;

/// Processes whose times off the CPU are summed up.
const MAX_STATS: usize = 100_000;
/// Processes with CUDA calls that are kept, ended ones included.
const MAX_CUDA: usize = 1024;

/// The tracers of one kind: how many began, how many stopped, and the last stop.
#[derive(Clone, Copy, Debug, Default)]
struct Watches {
    started: usize,
    stopped: usize,
    last_stop_ns: u64,
}

impl Watches {
    fn stop(&mut self, at_ns: u64) {
        self.stopped += 1;
        self.last_stop_ns = self.last_stop_ns.max(at_ns);
    }

    /// When the last of them stopped, once all have.
    fn end_ns(self) -> Option<u64> {
        (self.stopped > 0 && self.stopped >= self.started).then_some(self.last_stop_ns)
    }
}

/// The state of the analysis.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) names: Names,
    pub(crate) world: World,
    pub(crate) sched_losses: Losses,
    pub(crate) cuda_losses: Losses,
    pub(crate) samples: Samples,
    pub(crate) cuda: BTreeMap<LifeId, CudaProcess>,
    pub(crate) stats: HashMap<LifeId, Stats>,
    pub(crate) wall: Option<WallClock>,
    pub(crate) start_ns: Option<u64>,
    /// The latest end of any record.
    pub(crate) now_ns: u64,
    /// When tracers said that they stop.
    pub(crate) stops_ns: Vec<u64>,
    sched_watches: Watches,
    cuda_watches: Watches,
    pub(crate) records: u64,
    pub(crate) bad_lines: u64,
    own_bad_lines: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    /// Processes with CUDA calls that had ended and of which nothing is kept.
    pub(crate) forgotten: u64,
}

impl Engine {
    /// A line that was no record.
    pub fn bad_line(&mut self) {
        self.bad_lines += 1;
        self.own_bad_lines += 1;
    }

    /// An object whose keys aren't of the contract's types: somebody else's record.
    pub fn unknown_record(&mut self) {
        self.records += 1;
    }

    /// Lines that were no records here, without those that ingero-join had dropped before.
    pub fn own_bad_lines(&self) -> u64 {
        self.own_bad_lines
    }

    /// One record; `line` is what it was read from.
    pub fn record(&mut self, record: &Record<'_>, line: &[u8]) {
        self.records += 1;
        let (Some(start_ns), Some(end_ns)) = (record.mono_ns, record.end_ns()) else { return };
        if record.src.0 == src::INGERO {
            return self.frame(record, start_ns, end_ns);
        }
        self.start_ns = Some(self.start_ns.map_or(start_ns, |s| s.min(start_ns)));
        self.now_ns = self.now_ns.max(end_ns);
        match &*record.src {
            src::SCHED => self.sched(record, start_ns, end_ns),
            src::MEM => self.stats(record, start_ns, |stats| stats.pages(record)),
            src::SYS if &*record.op == "sample" => {
                if let Ok(sample) = serde_json::from_slice::<SysSample>(line) {
                    let gpus = serde_json::from_slice::<GpuSamples>(line).unwrap_or_default();
                    self.samples.add(start_ns, end_ns, &sample, &gpus);
                }
            }
            source if src::is_call(source) => self.call(record, start_ns, end_ns),
            _ => {}
        }
        if self.records.is_multiple_of(HOUSEKEEPING) {
            self.settle(false);
        }
    }

    /// The latest end of any record so far, CLOCK_MONOTONIC nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// What has been found so far; what is too young to be judged is not in it.
    pub fn report_so_far(&mut self) -> crate::Report {
        self.settle(false);
        self.report(false)
    }

    /// No more records will come.
    pub fn end(&mut self) {
        self.settle(true);
    }

    /// Until when CUDA calls would have been seen: where the CUDA tracers stopped. Where streams don't say which
    /// tracer stops, the first stop after the last record.
    pub(crate) fn end_ns(&self) -> u64 {
        let first_stop_ns = || self.stops_ns.iter().copied().filter(|&stop| stop >= self.now_ns).min();
        self.cuda_watches.end_ns().or_else(first_stop_ns).unwrap_or(self.now_ns)
    }

    /// What paths are read from.
    pub(crate) fn sources(&self) -> Sources<'_> {
        let sched_end_ns = self.sched_watches.end_ns().unwrap_or(u64::MAX);
        Sources { world: &self.world, losses: &self.sched_losses, samples: &self.samples, sched_end_ns }
    }

    fn frame(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        match &*record.op {
            "start" => {
                if self.wall.is_none() {
                    let offset = record.wall_offset_ns.as_ref().and_then(|text| text.parse().ok());
                    self.wall = offset.map(WallClock::with_offset);
                }
                match record.tool.as_deref() {
                    Some("ingero-sched") => self.sched_watches.started += 1,
                    Some("ingero-cuda") => self.cuda_watches.started += 1,
                    _ => {}
                }
            }
            "watch" => {
                let Some(pid) = record.pid else { return };
                let life = self.world.process(pid, start_ns);
                let since = match record.stream.as_deref() {
                    Some("sched") => &mut life.sched_watch_ns,
                    Some("cuda") => &mut life.cuda_watch_ns,
                    _ => return,
                };
                *since = Some(since.map_or(start_ns, |s| s.min(start_ns)));
                if record.why.as_deref() == Some("child") {
                    life.is_child = true;
                }
                if !record.comm.is_empty() {
                    life.name = self.names.id(&record.comm);
                }
                self.start_ns = Some(self.start_ns.map_or(start_ns, |s| s.min(start_ns)));
            }
            "lost" => self.lost(record, start_ns, end_ns),
            "end" => {
                self.stops_ns.push(end_ns);
                match record.stream.as_deref() {
                    Some("sched") => self.sched_watches.stop(end_ns),
                    Some("cuda") => self.cuda_watches.stop(end_ns),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let count = record.count;
        match record.why.as_deref() {
            // Dropped by ingero-join, so not among the lines that are read here.
            Some(why::BAD_LINE) => return self.bad_lines += count.unwrap_or(1),
            // These records are there, flagged, only out of order.
            Some(why::LATE) => return self.late += count.unwrap_or(1),
            _ => self.lost += count.unwrap_or(1),
        }
        let sampled = record.why.as_deref() == Some(why::SAMPLED);
        let loss = Loss { start_ns, end_ns, pid: record.pid, count, sampled };
        match record.stream.as_deref() {
            Some("sched") => self.sched_losses.add(loss),
            Some("cuda") => self.cuda_losses.add(loss),
            // A tool that stores a part of what it sees says what that was: neither calls nor switches here.
            _ if sampled => {}
            // It isn't said whose records they were.
            _ => {
                self.sched_losses.add(loss);
                self.cuda_losses.add(loss);
            }
        }
    }

    fn sched(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let Some(pid) = record.pid.filter(|&pid| pid != 0) else { return };
        let tid = record.tid.unwrap_or(pid);
        match &*record.op {
            "sched_switch" => self.switch(record, pid, tid, start_ns, end_ns),
            "sched_process_fork" => {
                let parent = Thread { pid, tid, name: self.names.id(&record.comm) };
                match (record.child_pid, record.child_tid) {
                    (Some(child), _) if child != pid => self.world.fork(parent, child, start_ns),
                    (_, Some(tid)) => self.world.create_thread(Thread { pid, tid, ..parent }, parent, start_ns),
                    _ => {}
                }
            }
            "thread_create" => {
                let Some(child) = record.child_tid else { return };
                let parent = Thread { pid, tid, name: self.names.id(&record.comm) };
                self.world.create_thread(Thread { pid, tid: child, ..parent }, parent, start_ns);
            }
            "thread_exit" => self.world.exit_thread(tid, start_ns),
            "sched_process_exit" if tid != pid => self.world.exit_thread(tid, start_ns),
            "sched_process_exit" => {
                if let Some(process) = self.world.exit_process(pid, start_ns).and_then(|life| self.cuda.get_mut(&life))
                {
                    process.over = true;
                    process.open.clear();
                }
            }
            "sched_process_exec" => {
                let life = self.world.process(pid, start_ns);
                life.name = self.names.id(&record.comm);
                if let Some(process) = self.cuda.get_mut(&life.id) {
                    process.union.restart();
                    process.open.clear();
                    process.over = true;
                }
            }
            _ => {}
        }
    }

    fn switch(&mut self, record: &Record<'_>, pid: u32, tid: u32, start_ns: u64, end_ns: u64) {
        let state = State::of(record.state.as_deref());
        let len_ns = end_ns - start_ns;
        let runq_ns = match state {
            State::Runnable => len_ns,
            _ => record.runq_ns.unwrap_or(0).min(len_ns),
        };
        let mut thread = |who: &Option<Who<'_>>| match who {
            Some(who) if who.pid != 0 => Thread { pid: who.pid, tid: who.tid, name: self.names.id(&who.comm) },
            _ => Thread::default(),
        };
        let (by, prev) = (thread(&record.by), thread(&record.prev));
        let idle = |who: &Option<Who<'_>>| who.as_ref().is_some_and(|who| who.pid == 0);
        // Who took the CPU of a preempted thread, who held the one that a woken thread got. Where the latter isn't
        // on record but nearly all of the time was waiting, the one who took the CPU is the one who had it.
        let (had_cpu, cpu_was_free) = match state {
            State::Runnable => (by, idle(&record.by)),
            _ if record.prev.is_some() => (prev, false),
            _ if runq_ns * 2 >= len_ns => (by, false),
            _ => (Thread::default(), false),
        };
        let waker = if record.waker_irq { Thread::default() } else { thread(&record.waker) };
        let off = Off { start_ns, wake_ns: end_ns - runq_ns, end_ns, waker, had_cpu, state, cpu_was_free };
        if tid == pid {
            let name = self.names.id(&record.comm);
            self.world.process(pid, end_ns).name = name;
        }
        if self.world.add_off(pid, tid, off) {
            self.stats(record, end_ns, |stats| stats.switch(&off));
        }
    }

    fn stats(&mut self, record: &Record<'_>, at_ns: u64, add: impl FnOnce(&mut Stats)) {
        if let Some(pid) = record.pid {
            let life = self.world.process(pid, at_ns).id;
            add(self.stats.entry(life).or_default());
        }
    }

    fn call(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        // What lies inside another call, or has no duration, is no call of its own.
        let (Some(pid), Some(dur_ns)) = (record.pid, record.dur_ns) else { return };
        if record.depth > 0 {
            return;
        }
        let life = self.world.process(pid, end_ns);
        let (id, died_ns) = (life.id, life.died_ns);
        if life.birth.is_some_and(|birth| birth.at_ns > end_ns) {
            return;
        }
        let process = self.cuda.entry(id).or_insert_with(|| CudaProcess::new(id, pid, start_ns));
        process.over = died_ns.is_some();
        process.call(record, start_ns, dur_ns, &mut self.names, &self.samples);
    }

    pub(crate) fn settle(&mut self, at_end: bool) {
        let delay_ns = if self.samples.any() { SETTLE_WITH_SAMPLES_NS } else { SETTLE_NS };
        let now_ns = self.now_ns;
        let mut horizon_ns = now_ns;
        let mut cuda = std::mem::take(&mut self.cuda);
        for process in cuda.values_mut() {
            process.settle(now_ns, delay_ns, at_end, self.sources(), &self.cuda_losses);
            horizon_ns = horizon_ns.min(process.needs_from_ns().unwrap_or(horizon_ns));
        }
        self.cuda = cuda;
        if !at_end {
            // A process at its very first call is only seen when that call ends, and needs nothing from before.
            self.world.forget_before(horizon_ns, now_ns);
            self.forget_processes();
        }
    }

    /// Bounds what is kept of processes that have ended: of a stream of short ones, the first are forgotten.
    fn forget_processes(&mut self) {
        if self.stats.len() > MAX_STATS {
            let known: std::collections::HashSet<_> = self.world.processes().iter().map(|life| life.id).collect();
            self.stats.retain(|id, _| known.contains(id));
        }
        while self.cuda.len() > MAX_CUDA {
            let Some(id) = self.cuda.iter().find(|(_, process)| process.over).map(|(&id, _)| id) else { break };
            self.cuda.remove(&id);
            self.forgotten += 1;
        }
    }
}
