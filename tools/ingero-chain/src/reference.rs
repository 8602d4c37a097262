//! The streaming engine against a reference that is slow and obviously right.
//!
//! The reference knows no streams, intervals or recursion over stretches: for every single millisecond of a
//! gap it asks what the thread that makes the next call was doing just then, and if it slept, what the thread
//! that was to wake it was doing just then. Random machines (several processes, threads that are born, sleep,
//! wake one another, wait for CPUs and disks; losses; processes watched late or never) must get the same gaps
//! and the same bill from both, gap by gap, nanosecond by nanosecond.

use std::collections::BTreeMap;

use ingero_common::record::{Parsed, parse};
use proptest::prelude::*;

use crate::cause::{Bill, Cause};
use crate::engine::Engine;

const TICK_NS: u64 = 1_000_000;
const TICKS: usize = 3000;
/// Calls in a burst at the start, a microsecond between two.
const BURST: u64 = 1000;
const BASE_NS: u64 = 5_000_000_000;
const HOME: u32 = 100;

/// Start, length, and nanoseconds by cause and pid (no cause: unexplained).
type Gap = (u64, u64, BTreeMap<(Option<Cause>, u32), u64>);

/// A small generator: proptest gives the seed, and may shrink what is asked for, not how it is made.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn roll_one_of(&mut self, sides: &[usize]) -> usize {
        let sides = sides[self.roll(sides.len())];
        self.roll(sides)
    }
}

#[derive(Clone, Debug)]
struct OffCpu {
    start: usize,
    wake: usize,
    end: usize,
    state: char,
    waker: Option<(u32, u32)>,
    irq: bool,
    had_cpu: Option<u32>,
}

#[derive(Clone, Debug)]
struct Task {
    pid: u32,
    tid: u32,
    born: Option<(usize, (u32, u32))>,
    offs: Vec<OffCpu>,
    calls: Vec<(usize, usize)>,
}

impl Task {
    fn on(&self, tick: usize) -> bool {
        self.born.is_none_or(|(at, _)| at <= tick) && !self.offs.iter().any(|o| o.start <= tick && tick < o.end)
    }
}

#[derive(Clone, Debug)]
struct Loss {
    from: usize,
    to: usize,
    pid: Option<u32>,
}

/// Where a path is; see `path.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Home,
    Away,
    Back,
}

#[derive(Clone, Debug)]
struct Machine {
    tasks: Vec<Task>,
    watched_from: BTreeMap<u32, usize>,
    losses: Vec<Loss>,
}

fn machine(seed: u64) -> Machine {
    let mut dice = Dice(seed);
    let mut tasks = Vec::new();
    // Two calls that start in the same instant end a gap both.
    let mut starts = std::collections::HashSet::new();
    for (pid, threads) in [(HOME, 3), (200, 3), (300, 2), (400, 1)] {
        for i in 0..threads {
            tasks.push(Task { pid, tid: pid + i, born: None, offs: Vec::new(), calls: Vec::new() });
        }
    }
    for task in &mut tasks {
        let mut at = 1 + dice.roll(20);
        if task.tid != task.pid && dice.roll(3) == 0 {
            // The creator is found below, when it is known who runs.
            at = 10 + dice.roll(TICKS / 2);
            task.born = Some((at, (0, 0)));
            at += 1 + dice.roll(5);
        }
        while at < TICKS - 200 {
            let start = at + 1 + dice.roll_one_of(&[3, 40, 200]);
            let end = start + 1 + dice.roll_one_of(&[4, 60, 150]);
            let state = ['S', 'S', 'S', 'R', 'D', '?'][dice.roll(6)];
            let wake = match state {
                'R' => start,
                _ if dice.roll(2) == 0 => end,
                _ => start + dice.roll(end - start + 1),
            };
            let had_cpu = [Some(777), Some(778), None, Some(0)][dice.roll(4)];
            task.offs.push(OffCpu { start, wake, end, state, waker: None, irq: false, had_cpu });
            at = end;
        }
        if task.pid == HOME {
            let mut at = task.born.map_or(30, |(at, _)| at) + dice.roll(60);
            while at < TICKS - 100 {
                let end = at + 1 + dice.roll_one_of(&[3, 8, 120]);
                if starts.insert(at) {
                    task.calls.push((at, end));
                }
                at = end + 2 + dice.roll_one_of(&[10, 300]);
            }
        }
    }
    for i in 0..tasks.len() {
        let running = |tick: usize, dice: &mut Dice| {
            let all: Vec<_> =
                tasks.iter().filter(|t| t.tid != tasks[i].tid && t.on(tick)).map(|t| (t.pid, t.tid)).collect();
            if all.is_empty() { None } else { Some(all[dice.roll(all.len())]) }
        };
        let mut task = tasks[i].clone();
        if let Some((at, _)) = task.born {
            let own: Vec<_> = tasks.iter().filter(|t| t.pid == task.pid && t.tid != task.tid && t.on(at - 1)).collect();
            task.born = if own.is_empty() { None } else { Some((at, (task.pid, own[dice.roll(own.len())].tid))) };
        }
        for off in &mut task.offs {
            if off.state == 'S' && off.wake > off.start {
                off.waker = match dice.roll(8) {
                    0 => None,
                    1 => Some((900, 900)),
                    _ => running(off.wake - 1, &mut dice),
                };
                off.irq = off.waker.is_some() && dice.roll(10) == 0;
            }
        }
        tasks[i] = task;
    }
    let watched_from = [
        (HOME, [0, 0, 0, 700][dice.roll(4)]),
        (200, [0, 0, 900][dice.roll(3)]),
        (300, [0, usize::MAX][dice.roll(2)]),
        (400, 0),
    ];
    let losses = (0..dice.roll(4))
        .map(|_| {
            let from = dice.roll(TICKS);
            Loss { from, to: from + dice.roll(300), pid: [None, Some(HOME), Some(200)][dice.roll(3)] }
        })
        .collect();
    Machine { tasks, watched_from: watched_from.into(), losses }
}

fn ns(tick: usize) -> u64 {
    BASE_NS + tick as u64 * TICK_NS
}

impl Machine {
    /// The machine's records, in the order of their ends.
    fn lines(&self, shift_ns: u64) -> Vec<String> {
        let mut all: Vec<(u64, String)> = Vec::new();
        let at = |tick: usize| ns(tick) + shift_ns;
        for (&pid, &from) in &self.watched_from {
            if from != usize::MAX {
                let t = at(from);
                all.push((
                    t,
                    format!(
                        r#"{{"src":"ingero","op":"watch","mono_ns":{t},"pid":{pid},"tid":{pid},"stream":"sched"}}"#
                    ),
                ));
            }
        }
        // A burst of calls, so that the usual time between calls is a microsecond.
        for i in 0..BURST {
            let (t, name) = (at(0) + i * 2000 + 1000, if i == 0 { "cudaMalloc" } else { "cudaLaunchKernel" });
            all.push((t + 1000, call_line(name, t, 1000, HOME, HOME)));
        }
        for loss in &self.losses {
            let pid = loss.pid.map(|p| format!(r#","pid":{p}"#)).unwrap_or_default();
            let (t, dur) = (at(loss.from), (loss.to - loss.from) as u64 * TICK_NS);
            all.push((t + dur, format!(r#"{{"src":"ingero","op":"lost","mono_ns":{t},"dur_ns":{dur},"stream":"sched","count":3,"why":"ring_full"{pid}}}"#)));
        }
        for task in &self.tasks {
            let (pid, tid) = (task.pid, task.tid);
            if let Some((tick, (ppid, ptid))) = task.born {
                let t = at(tick);
                all.push((t, format!(r#"{{"src":"sched","op":"thread_create","mono_ns":{t},"pid":{ppid},"tid":{ptid},"comm":"p{ptid}","child_tid":{tid}}}"#)));
            }
            for off in &task.offs {
                let (t, dur) = (at(off.start), (off.end - off.start) as u64 * TICK_NS);
                let (runq, state) = ((off.end - off.wake) as u64 * TICK_NS, off.state);
                let state = if state == '?' { String::new() } else { format!(r#","state":"{state}""#) };
                let key = if off.state == 'R' { "by" } else { "prev" };
                let cpu = off
                    .had_cpu
                    .map(|p| format!(r#","{key}":{{"pid":{p},"tid":{p},"comm":"c{p}"}}"#))
                    .unwrap_or_default();
                let waker = off
                    .waker
                    .map(|(p, t)| format!(r#","waker":{{"pid":{p},"tid":{t},"comm":"t{t}"}}"#))
                    .unwrap_or_default();
                let irq = if off.irq { r#","waker_irq":true"# } else { "" };
                all.push((t + dur, format!(r#"{{"src":"sched","op":"sched_switch","mono_ns":{t},"dur_ns":{dur},"pid":{pid},"tid":{tid},"comm":"t{tid}","runq_ns":{runq}{state}{cpu}{waker}{irq}}}"#)));
            }
            for &(from, to) in &task.calls {
                let dur = (to - from) as u64 * TICK_NS;
                all.push((at(to), call_line("cudaMemcpyAsync", at(from), dur, pid, tid)));
            }
        }
        let t = at(TICKS + 200);
        all.push((t, format!(r#"{{"src":"ingero","op":"end","mono_ns":{t},"stream":"sched"}}"#)));
        all.sort();
        all.into_iter().map(|(_, line)| line).collect()
    }

    /// The gaps by the definition: ticks without any call in flight, between two calls.
    fn gaps(&self) -> Vec<(usize, usize, (u32, u32))> {
        let mut busy = vec![false; TICKS + 200];
        // The burst at the start.
        busy[..(BURST * 2000 / TICK_NS) as usize].fill(true);
        for (from, to) in self.tasks.iter().flat_map(|t| &t.calls) {
            busy[*from..*to].fill(true);
        }
        let mut gaps = Vec::new();
        let mut from = None;
        for (tick, &busy) in busy.iter().enumerate() {
            match (busy, from) {
                (false, None) => from = Some(tick),
                (true, Some(start)) => {
                    let starts = |t: &&Task| t.calls.iter().any(|&(s, _)| s == tick);
                    let next: Vec<_> = self.tasks.iter().filter(starts).collect();
                    gaps.push((start, tick, (next[0].pid, next[0].tid)));
                    from = None;
                }
                _ => {}
            }
        }
        gaps
    }

    /// What `thread` was doing in one tick, as seen from the process that lost the time; it ran at tick `to`.
    fn at(&self, thread: (u32, u32), side: Side, tick: usize, to: usize) -> (Option<Cause>, u32) {
        let ((pid, _), away) = (thread, side == Side::Away);
        let pick = |home: Cause, other: Cause| Some(if away { other } else { home });
        let task = self.tasks.iter().find(|t| (t.pid, t.tid) == thread);
        let on_cpu = || {
            if self.watched_from.get(&pid).is_none_or(|&from| from > tick) {
                return if away { (Some(Cause::Wait), pid) } else { (None, 0) };
            }
            // A record that is lost ended in the loss; it may have begun before this tick.
            let next = task.iter().flat_map(|t| &t.offs).map(|o| o.start).filter(|&s| s > tick).min();
            let silent_to = next.unwrap_or(to).min(to);
            let lost = |l: &Loss| l.pid.is_none_or(|p| p == pid) && l.from < silent_to && tick < l.to;
            if self.losses.iter().any(lost) {
                return (None, 0);
            }
            (pick(Cause::HostCpu, Cause::WorkerCpu), pid)
        };
        let Some(task) = task else { return on_cpu() };
        if let Some((born, creator)) = task.born
            && tick < born
        {
            return self.wait_for(pid, creator, side, tick, to.min(born));
        }
        let Some(off) = task.offs.iter().find(|o| o.start <= tick && tick < o.end) else { return on_cpu() };
        if off.state == 'R' || tick >= off.wake {
            return match off.had_cpu {
                Some(0) if off.state == 'R' => (pick(Cause::Quota, Cause::WorkerQuota), if away { pid } else { 0 }),
                had_cpu => (pick(Cause::CpuWait, Cause::WorkerCpuWait), had_cpu.unwrap_or(0)),
            };
        }
        let me = if away { pid } else { 0 };
        match (off.state, off.waker) {
            ('D', _) => (pick(Cause::IoWait, Cause::WorkerIo), me),
            ('?', _) => (Some(Cause::OffCpu), me),
            (_, Some(waker)) if !off.irq => self.wait_for(pid, waker, side, tick, to.min(off.wake)),
            _ => (Some(Cause::Sleep), me),
        }
    }

    fn wait_for(&self, from_pid: u32, other: (u32, u32), side: Side, tick: usize, to: usize) -> (Option<Cause>, u32) {
        match side {
            side if other.0 == from_pid => self.at(other, side, tick, to),
            Side::Home => self.at(other, Side::Away, tick, to),
            Side::Away if other.0 == HOME => self.at(other, Side::Back, tick, to),
            Side::Away | Side::Back => (Some(Cause::Wait), other.0),
        }
    }

    /// All gaps with their bills: by cause and pid, nanoseconds; `None` = unexplained.
    fn truth(&self) -> Vec<Gap> {
        self.gaps()
            .into_iter()
            .map(|(from, to, thread)| {
                let mut bill = BTreeMap::new();
                for tick in from..to {
                    *bill.entry(self.at(thread, Side::Home, tick, to)).or_default() += TICK_NS;
                }
                (ns(from), (to - from) as u64 * TICK_NS, bill)
            })
            .collect()
    }
}

fn call_line(op: &str, t: u64, dur: u64, pid: u32, tid: u32) -> String {
    format!(
        r#"{{"src":"cudart","op":"{op}","mono_ns":{t},"dur_ns":{dur},"pid":{pid},"tid":{tid},"comm":"t{tid}","ret":0,"depth":0}}"#
    )
}

fn by_cause_and_pid(bill: &Bill) -> BTreeMap<(Option<Cause>, u32), u64> {
    let mut sums = BTreeMap::new();
    for cause in Cause::ALL {
        for (party, ns) in bill.parties(cause) {
            *sums.entry((Some(cause), party.pid)).or_default() += ns;
        }
    }
    if bill.unexplained_ns() > 0 {
        sums.insert((None, 0), bill.unexplained_ns());
    }
    sums
}

/// Feeds the lines; `eager` settles after each record, as a long stream would now and then.
fn engine(lines: &[String], eager: bool) -> Engine {
    let mut engine = Engine::default();
    for line in lines {
        let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
        engine.record(&record, line.as_bytes());
        if eager {
            engine.settle(false);
        }
    }
    engine.end();
    engine
}

fn found(engine: &Engine, shift_ns: u64) -> Vec<Gap> {
    let process = engine.cuda.values().find(|p| p.pid == HOME).unwrap();
    assert_eq!(process.union.limit_ns(), TICK_NS, "the burst makes a millisecond a gap");
    let kept = process.settlements.values().flat_map(|s| s.kept());
    let mut all: Vec<_> = kept.map(|g| (g.start_ns - shift_ns, g.len_ns, by_cause_and_pid(&g.bill))).collect();
    all.sort();
    all
}

/// The first gap on which two lists differ.
fn difference(got: &[Gap], want: &[Gap]) -> Option<(Option<Gap>, Option<Gap>)> {
    let at = (0..got.len().max(want.len())).find(|&i| got.get(i) != want.get(i))?;
    Some((got.get(at).cloned(), want.get(at).cloned()))
}

/// Few by default, since each is a whole machine; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_reference(seed: u64) {
        let machine = machine(seed);
        let truth = machine.truth();
        let lines = machine.lines(0);
        prop_assert_eq!(difference(&found(&engine(&lines, false), 0), &truth), None);
        prop_assert_eq!(difference(&found(&engine(&lines, true), 0), &truth), None, "settling as it goes changes nothing");
    }

    #[test]
    fn times_are_relative(seed: u64, shift_ns in 1_u64..1 << 60) {
        let machine = machine(seed);
        let found = found(&engine(&machine.lines(shift_ns), false), shift_ns);
        prop_assert_eq!(difference(&found, &machine.truth()), None);
    }

    #[test]
    fn threads_on_no_path_change_nothing(seed: u64) {
        let machine = machine(seed);
        let mut busier = machine.clone();
        let mut offs = Vec::new();
        for start in (10..TICKS - 10).step_by(7) {
            offs.push(OffCpu { start, wake: start + 1, end: start + 5, state: 'S', waker: Some((HOME, HOME)), irq: false, had_cpu: Some(HOME) });
        }
        busier.tasks.push(Task { pid: 5000, tid: 5000, born: None, offs: offs.clone(), calls: Vec::new() });
        busier.tasks.push(Task { pid: HOME, tid: 5001, born: None, offs, calls: Vec::new() });
        busier.watched_from.insert(5000, 0);
        prop_assert_eq!(difference(&found(&engine(&busier.lines(0), false), 0), &machine.truth()), None);
    }

    #[test]
    fn reports_add_up_and_do_not_depend_on_how_the_stream_was_read(seed: u64) {
        let lines = machine(seed).lines(0);
        let report = engine(&lines, false).report(false);
        for chain in &report.chains {
            let causes: u64 = chain.causes.iter().map(|c| c.ns).sum();
            prop_assert_eq!(causes + chain.unexplained_ns, chain.lost_ns);
            for cause in &chain.causes {
                prop_assert!(cause.who.iter().map(|w| w.ns).sum::<u64>() <= cause.ns);
            }
        }
        let again = engine(&lines, true).report(false);
        prop_assert_eq!(serde_json::to_string(&report.chains).unwrap(), serde_json::to_string(&again.chains).unwrap());
    }
}
