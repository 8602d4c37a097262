//! Takes the records of a joined stream one by one and knows, at any time, what has been found so far.

use std::collections::BTreeMap;

use ingero_common::clock::{WallClock, parse_ts};
use ingero_common::host::{
    CpuTimeline, HashMap, HashSet, InstanceId, Interner, Loss, Losses, OffCpu, Program, Side, State, SwitchedIn, Task,
    TaskTable, Thread, Tracers,
};
use ingero_common::record::{Parsed, Record, SysSample, Who, parse, src, why};
use ingero_common::text::Traced;

use crate::stats::calls::Facts;
use crate::input::samples::{GpuSamples, Samples};
use crate::input::kills::Kills;
use crate::report::Wanted;
use crate::report::model::Report;
use crate::blame::path::Sources;
use crate::process::{CudaProcess, Until as SettleUntil};
use crate::stats::totals::Stats;

/// A stretch is judged so long after its end: records may be late (ingero-join's window, and what its inputs are late among
/// themselves), a sample of the machine covers the second before it, and when a thread left its CPU is told of when it comes
/// back (`cpu_timeline`).
const SETTLE_NS: u64 = 1_500_000_000;
/// Old intervals are dropped, and gaps settled, once in so many records.
const HOUSEKEEPING: u64 = 16_384;

/// A record that ends so much later than all before it is believed once the next one confirms it.
const LEAP_NS: u64 = 3_600_000_000_000;
/// No machine has been up for 146 years.
const ABSURD_NS: u64 = 1 << 62;

/// Processes whose times off the CPU are summed up.
const MAX_STATS: usize = 100_000;
/// Processes with CUDA calls that are kept, ended ones included.
const MAX_CUDA: usize = 1024;

/// Hosts that the report names.
const MAX_HOSTS: usize = 8;

/// The newest version of the contract that is understood here.
const NEWEST_SCHEMA: u64 = 2;

/// The state of the analysis.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) names: Interner,
    pub(crate) tasks: TaskTable,
    pub(crate) cpu_timeline: CpuTimeline,
    pub(crate) sched_losses: Losses,
    pub(crate) cuda_losses: Losses,
    pub(crate) samples: Samples,
    pub(crate) kills: Kills,
    pub(crate) cuda: BTreeMap<Program, CudaProcess>,
    pub(crate) stats: HashMap<InstanceId, Stats>,
    pub(crate) wall: Option<WallClock>,
    /// What records without a monotonic time are placed by.
    wall_offset_ns: Option<i64>,
    pub(crate) start_ns: Option<u64>,
    /// The first record of a birth, an exec or an end.
    pub(crate) first_task_ns: Option<u64>,
    /// The latest end of any record.
    pub(crate) now_ns: u64,
    tracers: Tracers,
    /// A record that ends so far beyond all before it that another one has to confirm it.
    leap: Option<(u64, Vec<u8>)>,
    pub(crate) records: u64,
    /// Of these, those that are of the contract.
    known: u64,
    pub(crate) bad_lines: u64,
    own_bad_lines: u64,
    /// Of these, those since the last record.
    bad_here: u64,
    /// An input broke off since the last record.
    broken_here: bool,
    /// Who was traced, by the names that `start` records give.
    pub(crate) hosts: Vec<Traced>,
    /// The first `start` record of a version of the contract that is not understood here.
    pub(crate) unknown_schema: Option<u64>,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    /// Records of a second tracer beside another one of its kind.
    pub(crate) double: u64,
    /// Processes with CUDA calls that had ended and of which nothing is kept.
    pub(crate) forgotten: u64,
}

impl Engine {
    /// A line that was no record. It may have been one, of either tracer, that ended between its neighbours.
    pub fn bad_line(&mut self) {
        self.bad_lines += 1;
        self.own_bad_lines += 1;
        self.bad_here += 1;
    }

    /// An input could not be read on. What it still had, of either tracer, lies before what comes next.
    pub fn broke_off(&mut self) {
        self.broken_here = true;
    }

    /// Whether nothing has been read, not even a bad line.
    pub fn is_empty(&self) -> bool {
        self.records == 0 && self.bad_lines == 0
    }

    /// What the bad lines since the last record may have been, or what could not be read, lies between it and one that
    /// ends at `end_ns`.
    fn place_bad_lines(&mut self, end_ns: u64) {
        let count = std::mem::take(&mut self.bad_here);
        let broken = std::mem::take(&mut self.broken_here);
        if count > 0 || broken {
            let loss = Loss {
                start_ns: self.now_ns.min(end_ns),
                end_ns: self.now_ns.max(end_ns),
                pid: None,
                count: Some(count).filter(|_| !broken),
                sampled: false,
            };
            self.sched_losses.add(loss);
            self.cuda_losses.add(loss);
        }
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
        let Some(start_ns) = record.mono_ns.or_else(|| self.placed_ns(record)) else { return };
        let end_ns = start_ns.saturating_add(record.dur_ns.unwrap_or(0));
        if end_ns >= ABSURD_NS {
            return;
        }
        self.known += 1;
        if record.src.0 == src::INGERO {
            return self.frame(record, start_ns, end_ns);
        }
        if record.double {
            self.double += 1;
            return;
        }
        let held = self.leap.take();
        if self.now_ns > 0 && end_ns > self.now_ns.saturating_add(LEAP_NS) {
            let confirmed = held.filter(|(held_ns, _)| end_ns.abs_diff(*held_ns) <= LEAP_NS);
            let Some((held_ns, held_line)) = confirmed else {
                self.leap = Some((end_ns, line.to_vec()));
                return;
            };
            if let Parsed::Record(held) = parse(&held_line) {
                let held_start_ns = held_ns.saturating_sub(held.dur_ns.unwrap_or(0));
                self.take(&held, &held_line, held_start_ns, held_ns);
            }
        }
        self.take(record, line, start_ns, end_ns);
    }

    /// Where a record that has only a wall clock time lies on the monotonic clock.
    fn placed_ns(&self, record: &Record<'_>) -> Option<u64> {
        let wall_ns = parse_ts(record.ts.as_deref()?)?;
        u64::try_from(wall_ns - i128::from(self.wall_offset_ns?)).ok()
    }

    /// A record whose time is to be believed.
    fn take(&mut self, record: &Record<'_>, line: &[u8], start_ns: u64, end_ns: u64) {
        self.place_bad_lines(end_ns);
        // Who is whose child is told from before the interval that the stream covers.
        if record.src.0 == src::SCHED && &*record.op != "sched_switch" {
            self.first_task_ns = Some(self.first_task_ns.map_or(start_ns, |first_ns| first_ns.min(start_ns)));
        } else {
            self.seen_from(start_ns);
        }
        self.now_ns = self.now_ns.max(end_ns);
        match &*record.src {
            src::SCHED | src::MEM | src::BLOCK | src::NET | src::SYS => self.tracers.heard(Side::Sched, end_ns),
            source if src::is_call(source) => self.tracers.heard(Side::Cuda, end_ns),
            _ => {}
        }
        match &*record.src {
            src::SCHED => self.sched(record, start_ns, end_ns),
            src::MEM if &*record.op == "oom_kill" => {
                let life = record.pid.and_then(|pid| self.tasks.find_process(pid, start_ns)).map(|life| life.id);
                self.kills.add(record, line, start_ns, life, &mut self.names);
            }
            src::MEM => self.stats(record, start_ns, end_ns, |stats| stats.pages(record)),
            src::BLOCK => self.stats(record, start_ns, end_ns, |stats| stats.block(record)),
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

    /// The stream begins at `start_ns` at the latest; one that says it is much older than the first is not believed.
    fn seen_from(&mut self, start_ns: u64) {
        self.start_ns = Some(match self.start_ns {
            Some(first_ns) if start_ns.saturating_add(LEAP_NS) < first_ns => first_ns,
            Some(first_ns) => first_ns.min(start_ns),
            None => start_ns,
        });
    }

    /// The latest end of any record so far, CLOCK_MONOTONIC nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// What has been found so far; what is too young to be judged is not in it.
    pub fn report_so_far(&mut self) -> Report {
        self.settle(false);
        self.cpu_timeline.sort();
        self.report(Wanted { so_far: true, ..Wanted::default() })
    }

    /// No more records will come.
    pub fn end(&mut self) {
        self.tracers.finished = true;
        self.place_bad_lines(self.now_ns);
        if let Some((held_ns, line)) = self.leap.take()
            && self.tracers.stopped_within(held_ns, LEAP_NS)
            && let Parsed::Record(held) = parse(&line)
        {
            // The last record after a long silence: the end confirms it.
            self.take(&held, &line, held_ns.saturating_sub(held.dur_ns.unwrap_or(0)), held_ns);
        }
        for side in [Side::Cuda, Side::Sched] {
            if self.tracers.one_of_several_killed(side) {
                self.tasks.tracer_killed(side);
            }
        }
        let ends_ns: Vec<(Program, u64)> = self.cuda.iter().map(|(&program, process)| (program, self.end_of_ns(process))).collect();
        for (program, end_ns) in ends_ns {
            if let Some(process) = self.cuda.get_mut(&program) {
                let died_ns = process.instance(&self.tasks).and_then(|instance| instance.program_end_ns(program));
                process.end(died_ns.unwrap_or(end_ns));
            }
        }
        self.settle(true);
    }

    /// Until when CUDA calls would have been seen.
    pub(crate) fn end_ns(&self) -> u64 {
        self.tracers.cuda_end_ns(self.now_ns)
    }

    /// Until when calls of `process` would have been seen.
    pub(crate) fn end_of_ns(&self, process: &CudaProcess) -> u64 {
        let end_ns = self.end_ns();
        match process.instance(&self.tasks).and_then(|life| life.watch(Side::Cuda).until_ns()) {
            Some(until_ns) => until_ns.min(end_ns),
            None => end_ns,
        }
    }

    /// Whether that is because its tracer said that it stops, so that what was going on then is on record.
    pub(crate) fn ends_in_order(&self, process: &CudaProcess) -> bool {
        let life = process.instance(&self.tasks);
        self.tracers.cuda_in_order() || life.is_some_and(|life| life.watch(Side::Cuda).stopped_in_order())
    }

    /// What paths are read from.
    pub(crate) fn sources(&self) -> Sources<'_> {
        let sched = self.tracers.sched();
        Sources {
            tasks: &self.tasks,
            cpu_timeline: &self.cpu_timeline,
            losses: &self.sched_losses,
            samples: &self.samples,
            sched,
        }
    }

    /// Why no CUDA call was seen, as far as the stream tells.
    pub(crate) fn nothing_seen(&self) -> &'static str {
        if self.known == 0 {
            return "none of its lines is a record of ingero";
        }
        if self.tracers.started(Side::Cuda) == 0 {
            return "no stream of ingero-cuda is in it";
        }
        if !self.tasks.processes().iter().any(|instance| instance.watch(Side::Cuda).since_ns().is_some()) {
            return "ingero-cuda watched no process";
        }
        "the processes that ingero-cuda watched made no CUDA call"
    }

    fn frame(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        match &*record.op {
            "start" => {
                if self.wall.is_none() {
                    self.wall_offset_ns = record.wall_offset_ns.as_ref().and_then(|text| text.parse().ok());
                    self.wall = self.wall_offset_ns.map(WallClock::with_offset);
                }
                self.tracers.start(record);
                self.unknown_schema = self.unknown_schema.or(record.schema.filter(|&schema| schema > NEWEST_SCHEMA));
                let host = record.host.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()).map(Traced::from);
                if let Some(host) = host.filter(|host| !self.hosts.contains(host) && self.hosts.len() < MAX_HOSTS) {
                    self.hosts.push(host);
                }
            }
            "watch" => {
                let Some(pid) = record.pid else { return };
                let life = self.tasks.process(pid, start_ns);
                let Some(side) = Tracers::side(record) else { return };
                let again = life.watch_mut(side).begin(start_ns);
                if again && side == Side::Cuda {
                    let program = life.program_at(start_ns);
                    self.cuda.entry(program).and_modify(|process| process.watched_again(start_ns));
                }
                if record.why.as_deref() == Some("child") {
                    life.is_child = true;
                }
                if !record.comm.is_empty() {
                    life.name = self.names.id(&record.comm);
                }
                self.seen_from(start_ns);
            }
            "lost" => self.lost(record, start_ns, end_ns),
            "clock" => {
                let offset_ns = record.wall_offset_ns.as_ref().and_then(|text| text.parse().ok());
                self.wall_offset_ns = offset_ns.or(self.wall_offset_ns);
            }
            "end" => {
                self.tracers.stop(record, end_ns);
                if let Some(side) = Tracers::side(record) {
                    self.tasks.tracers_stopped(|watcher| watcher == side.into(), end_ns);
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let count = record.count;
        match record.why.as_deref() {
            // Dropped by ingero-join, so not among the lines that are read here.
            Some(why::BAD_LINE) => self.bad_lines += count.unwrap_or(1),
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
                    (Some(child), _) if child != pid => self.tasks.fork(parent, child, start_ns),
                    (_, Some(tid)) => self.tasks.create_thread(Thread { pid, tid, ..parent }, parent, start_ns),
                    _ => {}
                }
            }
            "thread_create" => {
                let Some(child) = record.child_tid else { return };
                let parent = Thread { pid, tid, name: self.names.id(&record.comm) };
                self.tasks.create_thread(Thread { pid, tid: child, ..parent }, parent, start_ns);
            }
            "thread_exit" => self.thread_exit(record, pid, tid, start_ns),
            "sched_process_exit" if tid != pid => self.thread_exit(record, pid, tid, start_ns),
            "sched_process_exit" => {
                if let Some(life) = self.tasks.exit_process(pid, start_ns) {
                    self.over(life);
                }
            }
            "sched_process_exec" => {
                let life = self.tasks.process(pid, start_ns);
                life.name = self.names.id(&record.comm);
                life.exec(start_ns);
                let id = life.id;
                self.over(id);
            }
            _ => {}
        }
    }

    fn thread_exit(&mut self, record: &Record<'_>, pid: u32, tid: u32, at_ns: u64) {
        let this = Thread { pid, tid, name: self.names.id(&record.comm) };
        if let Some(came) = self.tasks.switched_in(pid, tid, at_ns) {
            // It ends while it runs. Who has the CPU then is not on record.
            self.cpu_timeline.switched_out(this, came, at_ns, Thread::default(), at_ns);
        }
        self.tasks.exit_thread(pid, tid, at_ns);
        let Some(life) = self.tasks.find_process(pid, at_ns).map(|life| life.id) else { return };
        if let Some((_, process)) = self.cuda.range_mut(Program::all_of(life)).next_back() {
            process.thread_ended(tid);
        }
    }

    /// The program that ran in this life of a process until now runs no more.
    fn over(&mut self, life: InstanceId) {
        if let Some((_, process)) = self.cuda.range_mut(Program::all_of(life)).next_back() {
            process.over = true;
            process.open.clear();
        }
    }

    fn switch(&mut self, record: &Record<'_>, pid: u32, tid: u32, start_ns: u64, end_ns: u64) {
        let state = State::from_letter(record.state.as_deref());
        let len_ns = end_ns - start_ns;
        let runq_ns = match state {
            State::Preempted => len_ns,
            _ => record.runq_ns.unwrap_or(0).min(len_ns),
        };
        let mut thread = |who: &Option<Who<'_>>| match who {
            Some(who) if who.pid != 0 => Thread { pid: who.pid, tid: who.tid, name: self.names.id(&who.comm) },
            _ => Thread::default(),
        };
        let (by, prev) = (thread(&record.by), thread(&record.prev));
        let idle = |who: &Option<Who<'_>>| who.as_ref().is_some_and(|who| who.pid == 0);
        let party = |who: Thread| Task { pid: who.pid, name: who.name };
        // Who took the CPU of a preempted thread and who held it at the end, who held the one that a woken thread got.
        // Where the latter isn't on record but nearly all of the time was waiting, the one who took the CPU had it.
        let (had_cpu, cpu_was_free) = match state {
            State::Preempted if prev.pid == 0 || by.pid == 0 => ([party(by); 2], idle(&record.by)),
            State::Preempted => ([party(by), party(prev)], false),
            _ if record.prev.is_some() => ([party(prev); 2], false),
            _ if runq_ns * 2 >= len_ns => ([party(by); 2], false),
            _ => ([Task::default(); 2], false),
        };
        let waker = if record.waker_irq { Thread::default() } else { thread(&record.waker) };
        let cpu = record.cpu.filter(|_| !record.open);
        // Of who has slept it is known where it came back. On an idle CPU it waited for nobody there.
        let waited_on = cpu.filter(|_| prev.pid != 0).and_then(|cpu| u16::try_from(cpu).ok());
        let off =
            OffCpu { start_ns, wake_ns: end_ns - runq_ns, end_ns, waker, had_cpu, state, cpu_was_free, waited_on };
        if let Some(left) = self.tasks.add_off(pid, tid, off, cpu) {
            let this = Thread { pid, tid, name: self.names.id(&record.comm) };
            if let (Some(came), Some(_)) = (left.switched_in, &record.by) {
                self.cpu_timeline.switched_out(this, came, left.at_ns, by, end_ns);
            }
            if let (Some(cpu), Some(_)) = (cpu, &record.prev) {
                self.cpu_timeline.switched_in(this, SwitchedIn { at_ns: end_ns, cpu }, prev);
            }
            let life = self.tasks.process_over(pid, start_ns, end_ns);
            life.watch_mut(Side::Sched).heard(end_ns);
            if tid == pid {
                life.name = this.name;
            }
            self.stats(record, start_ns, end_ns, |stats| stats.switch(&off));
        }
    }

    fn stats(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64, add: impl FnOnce(&mut Stats)) {
        if let Some(pid) = record.pid {
            let life = self.tasks.process_over(pid, start_ns, end_ns).id;
            add(self.stats.entry(life).or_default());
        }
    }

    fn call(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let Some(pid) = record.pid else { return };
        // What lies inside another call is no call of its own.
        if record.depth > 0 {
            return;
        }
        let life = self.tasks.process_over(pid, start_ns, end_ns);
        if life.birth.is_some_and(|birth| birth.at_ns > end_ns) {
            return;
        }
        life.watch_mut(Side::Cuda).heard(end_ns);
        let (program, over) = (life.program_at(start_ns), life.is_over(start_ns));
        let process = self.cuda.entry(program).or_insert_with(|| {
            let began_ns = life.program_start_ns(program);
            let start_seen = began_ns.is_some_and(|began_ns| self.tracers.saw_beginning(began_ns));
            let mut process = CudaProcess::new(program, pid, start_ns);
            process.phases.start_seen = start_seen;
            process
        });
        process.over = over;
        match record.dur_ns {
            Some(dur_ns) => {
                let facts = Facts { samples: &self.samples, losses: &self.sched_losses };
                process.call(record, start_ns, dur_ns, &mut self.names, facts);
            }
            None => process.entry(record, start_ns, &mut self.names),
        }
    }

    pub(crate) fn settle(&mut self, at_end: bool) {
        let now_ns = self.now_ns;
        let mut horizon_ns = now_ns;
        if at_end || self.cuda.values().any(|process| process.has_unsettled()) {
            self.cpu_timeline.sort();
        }
        let until = SettleUntil { now_ns, delay_ns: SETTLE_NS, alone: self.cuda.len() == 1 };
        let mut cuda = std::mem::take(&mut self.cuda);
        for process in cuda.values_mut() {
            process.settle(&until, at_end, self.sources(), &self.cuda_losses);
            horizon_ns = horizon_ns.min(process.needs_from_ns().unwrap_or(horizon_ns));
        }
        self.cuda = cuda;
        if !at_end {
            // A process at its very first call is only seen when that call ends, and needs nothing from before.
            self.tasks.forget_before(horizon_ns, now_ns);
            self.cpu_timeline.forget_before(horizon_ns, now_ns);
            self.forget_processes();
        }
    }

    /// Bounds what is kept of processes that have ended: of a stream of short ones, the first are forgotten.
    fn forget_processes(&mut self) {
        if self.stats.len() > MAX_STATS {
            let known: HashSet<_> = self.tasks.processes().iter().map(|life| life.id).collect();
            self.stats.retain(|id, _| known.contains(id));
        }
        while self.cuda.len() > MAX_CUDA {
            let Some(program) = self.cuda.iter().find(|(_, p)| p.over).map(|(&program, _)| program) else { break };
            self.cuda.remove(&program);
            self.forgotten += 1;
        }
    }
}
