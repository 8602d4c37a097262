//! Takes the records of a joined stream one by one and knows, at any time, what has been found so far.

use std::collections::BTreeMap;

use ingero_common::host::{
    CpuTimeline, HashMap, HashSet, InstanceId, Interner, Losses, Program, Side, TaskTable, Tracers,
};
use ingero_common::record::{LEAP_NS, Parsed, Record, SysSample, parse, src};

use crate::blame::path::Sources;
use crate::input::clock::Clock;
use crate::input::coverage::Coverage;
use crate::input::kills::Kills;
use crate::input::samples::{GpuSamples, Samples};
use crate::input::stacks::Stacks;
use crate::limits::{ABSURD_NS, HOUSEKEEPING, MAX_CUDA, MAX_STATS, SETTLE_NS};
use crate::process::{CudaProcess, Until as SettleUntil};
use crate::report::Wanted;
use crate::report::model::Report;
use crate::stats::calls::Facts;
use crate::stats::totals::Stats;

/// The state of the analysis.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) names: Interner,
    pub(crate) tasks: TaskTable,
    pub(crate) cpu_timeline: CpuTimeline,
    pub(crate) sched_losses: Losses,
    pub(crate) cuda_losses: Losses,
    pub(crate) samples: Samples,
    pub(crate) stacks: Stacks,
    pub(crate) kills: Kills,
    pub(crate) cuda: BTreeMap<Program, CudaProcess>,
    pub(crate) stats: HashMap<InstanceId, Stats>,
    pub(crate) clock: Clock,
    pub(super) tracers: Tracers,
    pub(crate) coverage: Coverage,
    /// Processes with CUDA calls that had ended and of which nothing is kept.
    pub(crate) forgotten: u64,
}

impl Engine {
    /// A line that was no record. It may have been one, of either tracer, that ended between its neighbours.
    pub fn bad_line(&mut self) {
        self.coverage.bad_line();
    }

    /// An input could not be read on. What it still had, of either tracer, lies before what comes next.
    pub fn broke_off(&mut self) {
        self.coverage.broken_here = true;
    }

    /// Whether nothing has been read, not even a bad line.
    pub fn is_empty(&self) -> bool {
        self.coverage.records == 0 && self.coverage.bad_lines == 0
    }

    /// How many boots of machines the `start` records name.
    pub(crate) fn boots(&self) -> usize {
        self.coverage.boots()
    }

    /// An object whose keys aren't of the contract's types: somebody else's record.
    pub fn unknown_record(&mut self) {
        self.coverage.records += 1;
    }

    /// Lines that were no records here, without those that ingero-join had dropped before.
    pub fn own_bad_lines(&self) -> u64 {
        self.coverage.own_bad_lines
    }

    /// What the bad lines since the last record may have been lies between it and one that ends at `end_ns`.
    fn place_bad_lines(&mut self, end_ns: u64) {
        if let Some(loss) = self.coverage.missing_up_to(self.clock.now_ns, end_ns) {
            self.sched_losses.add(loss);
            self.cuda_losses.add(loss);
        }
    }

    /// One record; `line` is what it was read from.
    pub fn record(&mut self, record: &Record<'_>, line: &[u8]) {
        self.coverage.records += 1;
        let Some(start_ns) = record.mono_ns.or_else(|| self.clock.placed_ns(record)) else { return };
        let end_ns = start_ns.saturating_add(record.dur_ns.unwrap_or(0));
        if end_ns >= ABSURD_NS {
            return;
        }
        self.coverage.known += 1;
        if record.src.0 == src::INGERO {
            return self.frame(record, start_ns, end_ns);
        }
        if record.double {
            self.coverage.double += 1;
            return;
        }
        let held = self.clock.leap.take();
        if self.clock.now_ns > 0 && end_ns > self.clock.now_ns.saturating_add(LEAP_NS) {
            let confirmed = held.filter(|(held_ns, _)| end_ns.abs_diff(*held_ns) <= LEAP_NS);
            let Some((held_ns, held_line)) = confirmed else {
                self.clock.leap = Some((end_ns, line.to_vec()));
                return;
            };
            if let Parsed::Record(held) = parse(&held_line) {
                let held_start_ns = held_ns.saturating_sub(held.dur_ns.unwrap_or(0));
                self.take(&held, &held_line, held_start_ns, held_ns);
            }
        }
        self.take(record, line, start_ns, end_ns);
    }

    /// A record whose time is to be believed.
    fn take(&mut self, record: &Record<'_>, line: &[u8], start_ns: u64, end_ns: u64) {
        self.place_bad_lines(end_ns);
        // Who is whose child is told from before the interval that the stream covers.
        if record.src.0 == src::SCHED && &*record.op != "sched_switch" {
            self.clock.first_task_ns =
                Some(self.clock.first_task_ns.map_or(start_ns, |first_ns| first_ns.min(start_ns)));
        } else {
            self.clock.seen_from(start_ns);
        }
        self.clock.now_ns = self.clock.now_ns.max(end_ns);
        match &*record.src {
            src::SCHED | src::MEM | src::BLOCK | src::NET | src::SYS | src::STACK => {
                self.tracers.heard(Side::Sched, end_ns)
            }
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
            src::STACK => self.stack(record, line, start_ns),
            source if src::is_call(source) => self.call(record, start_ns, end_ns),
            _ => {}
        }
        if self.coverage.records.is_multiple_of(HOUSEKEEPING) {
            self.settle(false);
        }
    }

    /// The latest end of any record so far, CLOCK_MONOTONIC nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns
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
        self.place_bad_lines(self.clock.now_ns);
        if let Some((held_ns, line)) = self.clock.leap.take()
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
        let ends_ns: Vec<(Program, u64)> =
            self.cuda.iter().map(|(&program, process)| (program, self.end_of_ns(process))).collect();
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
        self.tracers.cuda_end_ns(self.clock.now_ns)
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
            stacks: &self.stacks,
            sched,
        }
    }

    pub(super) fn stats(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64, add: impl FnOnce(&mut Stats)) {
        if let Some(pid) = record.pid {
            let life = self.tasks.process_over(pid, start_ns, end_ns).id;
            add(self.stats.entry(life).or_default());
        }
    }

    /// A stack, or who was in one.
    fn stack(&mut self, record: &Record<'_>, line: &[u8], at_ns: u64) {
        match (&*record.op, record.pid, record.tid) {
            ("frames", ..) => {
                if let Ok(frames) = serde_json::from_slice(line) {
                    self.stacks.add_frames(frames);
                }
            }
            ("sample", Some(pid), Some(tid)) => {
                if let Ok(sample) = serde_json::from_slice(line) {
                    self.stacks.add_sample(pid, tid, at_ns, &sample);
                }
            }
            _ => {}
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
        let now_ns = self.clock.now_ns;
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
            self.stacks.forget_before(horizon_ns);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{BASE_NS, MS, Stream, feed};

    /// A GPU that is idle from 1 to 10 ms; thread 101 made a call at the beginning and none since.
    fn idle() -> Engine {
        let mut stream = Stream::default();
        stream.put(0, 0, r#""src":"ingero","op":"watch","pid":100,"tid":100,"comm":"train","stream":"cuda""#);
        stream.call_of(101, "cudaEventCreate", 0, 1, "");
        stream.launches(10);
        stream.call("cudaDeviceSynchronize", 50, 950);
        stream.launches(10_000);
        let mut engine = Engine::default();
        stream.lines.iter().for_each(|line| feed(&mut engine, line));
        engine
    }

    /// Another process is heard of then.
    fn later(engine: &mut Engine, at_ns: u64) {
        feed(engine, &format!(r#"{{"src":"sched","op":"thread_exit","mono_ns":{},"pid":7,"tid":8}}"#, BASE_NS + at_ns));
    }

    fn counted_ns(engine: &Engine) -> u64 {
        engine.cuda.values().next().unwrap().longest_lost_ns()
    }

    #[test]
    fn a_stretch_is_judged_when_what_is_late_has_come() {
        let counted = |at_ns| {
            let mut engine = idle();
            feed(&mut engine, r#"{"src":"sched","op":"thread_exit","mono_ns":1000000500,"pid":100,"tid":101}"#);
            later(&mut engine, at_ns);
            engine.settle(false);
            counted_ns(&engine)
        };
        assert_eq!((counted(2_510 * MS + 9_999), counted(2_510 * MS + 10_000)), (0, 9 * MS));
    }

    #[test]
    fn a_silent_thread_is_waited_for_so_long() {
        let counted = |at_ns| {
            let mut engine = idle();
            later(&mut engine, at_ns);
            engine.settle(false);
            counted_ns(&engine)
        };
        assert_eq!((counted(10_000 * MS - 1), counted(10_000 * MS)), (0, 9 * MS));
    }

    #[test]
    fn what_can_be_counted_is_counted_now_and_then() {
        let mut engine = idle();
        while engine.coverage.records < 16_383 {
            later(&mut engine, 20_000 * MS);
        }
        assert_eq!(counted_ns(&engine), 0);
        later(&mut engine, 20_000 * MS);
        assert_eq!(counted_ns(&engine), 9 * MS);
    }

    #[test]
    fn a_record_from_the_end_of_time_is_none() {
        let taken = |ns: u64| {
            let mut engine = Engine::default();
            feed(&mut engine, &format!(r#"{{"src":"cudart","op":"cudaMalloc","mono_ns":{ns},"dur_ns":1,"pid":100}}"#));
            engine.cuda.len()
        };
        assert_eq!((taken((1 << 62) - 2), taken((1 << 62) - 1), taken(u64::MAX)), (1, 0, 0));
    }

    #[test]
    fn processes_that_have_ended_are_forgotten() {
        let mut engine = Engine::default();
        let put = |engine: &mut Engine, n: u64, cuda: bool| {
            let (at_ns, pid) = (BASE_NS + n * 10_000, 10 + n);
            if cuda {
                feed(
                    engine,
                    &format!(
                        r#"{{"src":"cudart","op":"cudaMalloc","mono_ns":{at_ns},"dur_ns":1,"pid":{pid},"depth":0}}"#
                    ),
                );
            } else {
                feed(engine, &format!(r#"{{"src":"mem","op":"mm_page_alloc","mono_ns":{at_ns},"pid":{pid}}}"#));
            }
            feed(
                engine,
                &format!(
                    r#"{{"src":"sched","op":"sched_process_exit","mono_ns":{},"pid":{pid},"tid":{pid}}}"#,
                    at_ns + 9
                ),
            );
        };
        (0..1_024).for_each(|n| put(&mut engine, n, true));
        engine.settle(false);
        assert_eq!((engine.cuda.len(), engine.forgotten), (1_024, 0));
        (1_024..1_030).for_each(|n| put(&mut engine, n, true));
        engine.settle(false);
        assert_eq!((engine.cuda.len(), engine.forgotten), (1_024, 6));
        (2_000..102_000).for_each(|n| put(&mut engine, n, false));
        engine.settle(false);
        assert_eq!(engine.stats.len(), 100_000);
        put(&mut engine, 200_000, false);
        engine.settle(false);
        assert!(engine.stats.len() < 60_000, "{}", engine.stats.len());
    }
}
