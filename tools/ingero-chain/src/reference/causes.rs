//! Causes against a reference that is slow and obviously right.
//!
//! The reference knows no streams, intervals or recursion over stretches: for every single millisecond of a silence it asks what
//! the thread that makes the next call was doing just then, and if it slept, what the thread that was to wake it was doing just
//! then. Random machines (several processes, threads that are born, sleep, wake one another, wait for CPUs and disks, take a
//! wait up again; losses; processes watched late or never) must get the same silences and the same causes from both, one by
//! one, nanosecond by nanosecond.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Dice, config};
use crate::blame::breakdown::{Breakdown, Cause};
use crate::input::ingest::Engine;
use crate::process::Tail;
use crate::report::Wanted;
use crate::testing::engine;

const TICK_NS: u64 = 1_000_000;
const TICKS: usize = 3000;
const BASE_NS: u64 = 5_000_000_000;
const HOME: u32 = 100;

/// Start, length, and nanoseconds by cause and pid (no cause: unexplained).
type Silence = (u64, u64, BTreeMap<(Option<Cause>, u32), u64>);

#[derive(Clone, Debug)]
struct OffCpu {
    start: usize,
    wake: usize,
    end: usize,
    state: char,
    waker: Option<(u32, u32)>,
    irq: bool,
    had_cpu: Option<u32>,
    /// `in`, the kind of `on`, whether that takes connections, `io`; nothing of it from an older tracer.
    wait: (&'static str, &'static str, bool, Option<bool>),
    timed_out: bool,
}

/// What threads wait in here.
const WAITS: [(&str, &str, bool, Option<bool>); 10] = [
    ("", "", false, None),
    ("", "", false, Some(false)),
    ("clock_nanosleep", "", false, Some(false)),
    ("futex", "gil", false, Some(false)),
    ("futex", "futex", false, Some(false)),
    ("recvfrom", "socket", false, Some(false)),
    ("epoll_wait", "epoll", false, Some(false)),
    ("epoll_wait", "epoll", true, Some(false)),
    ("read", "pipe", false, Some(false)),
    ("read", "file", false, Some(true)),
];

impl OffCpu {
    /// What its record says of what it was in.
    fn wait_keys(&self) -> String {
        let (call, kind, listens, io) = self.wait;
        let io = io.map(|io| format!(r#","io":{io}"#)).unwrap_or_default();
        if call.is_empty() {
            return io;
        }
        let listens = if listens { r#","listens":true"# } else { "" };
        let on = if kind.is_empty() { String::new() } else { format!(r#","on":{{"kind":"{kind}"{listens}}}"#) };
        let slept_ns = (self.wake - self.start) as u64 * TICK_NS;
        let timeout = if self.timed_out { format!(r#","timeout_ns":{slept_ns}"#) } else { String::new() };
        format!(r#","in":"{call}"{on}{timeout}{io}"#)
    }
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
    /// Who ended the sleep at `place`. One that nobody was seen to end and that was taken up again within a millisecond, before
    /// `to`, is part of the next one.
    fn ended_by(&self, place: usize, to: usize) -> Option<(u32, u32)> {
        let off = &self.offs[place];
        if off.waker.is_some() && !off.irq {
            return off.waker;
        }
        self.next(place, to).and_then(|next| self.ended_by(next, to))
    }

    /// Who is thought to have had Python's GIL during the wait that begins at `place` and that nobody was seen to end: a thread of
    /// the process that ended the last one before the end of it.
    fn held_by(&self, place: usize, to: usize) -> Option<(u32, u32)> {
        if let Some(next) = self.next(place, to) {
            return self.held_by(next, to);
        }
        let is_gil = |o: &&OffCpu| o.wait.1 == "gil";
        let seen = |o: &OffCpu| o.waker.filter(|_| !o.irq).filter(|waker| waker.0 == self.pid);
        Some(&self.offs[place]).filter(is_gil)?;
        self.offs[..place].iter().filter(is_gil).filter_map(seen).next_back()
    }

    /// Whether the wait that the sleep at `place` is part of ended by its time-out.
    fn timed_out(&self, place: usize, to: usize) -> bool {
        let off = &self.offs[place];
        let ended = off.waker.is_some() && !off.irq;
        let next = if ended { None } else { self.next(place, to) };
        next.map_or(off.timed_out, |next| self.timed_out(next, to))
    }

    /// The sleep that goes on with the one at `place`: on the same kind of thing, as far as that is known.
    fn next(&self, place: usize, to: usize) -> Option<usize> {
        let off = &self.offs[place];
        // Waiting for a CPU in between is nothing that it did.
        let at = (place + 1..self.offs.len()).find(|&at| self.offs[at].state != 'R')?;
        let awake: usize = (place + 1..=at).map(|at| self.offs[at].start - self.offs[at - 1].end).sum();
        let next = Some(&self.offs[at]).filter(|next| next.start < to && awake <= 1)?;
        let kinds = [off.wait, next.wait].map(|(call, kind, listens, _)| (call, kind, listens));
        let pauses = kinds.iter().any(|(call, ..)| *call == "clock_nanosleep");
        let same = kinds[0] == kinds[1] || kinds.iter().any(|(call, ..)| call.is_empty());
        // Pipes and files are things of no kind.
        let named = |(call, kind, _): (&str, &str, bool)| call == "read" && (kind == "pipe" || kind == "file");
        let same = same || kinds.into_iter().all(named);
        (off.state == 'S' && next.state == 'S' && same && !pauses).then_some(at)
    }

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
            let start = at + 1 + dice.roll_one_of(&[1, 3, 40, 200]);
            let end = start + 1 + dice.roll_one_of(&[4, 60, 150]);
            let state = dice.one_of(&['S', 'S', 'S', 'R', 'D', '?']);
            let wake = match state {
                'R' => start,
                _ if dice.roll(2) == 0 => end,
                _ => start + dice.roll(end - start + 1),
            };
            let had_cpu = dice.one_of(&[Some(777), Some(778), None, Some(0)]);
            let (wait, timed_out) = (dice.one_of(&WAITS), dice.roll(3) == 0);
            let wait = if state == 'R' { WAITS[0] } else { wait };
            task.offs.push(OffCpu { start, wake, end, state, waker: None, irq: false, had_cpu, wait, timed_out });
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
            if (off.state == 'S' || off.state == 'D' && dice.roll(2) == 0) && off.wake > off.start {
                off.waker = match dice.roll(8) {
                    0 | 1 => None,
                    2 => Some((900, 900)),
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
        // The loop begins with the warm launch, the third call, which lasts to the end of the first tick.
        let t = at(0);
        all.push((t + 1000, call_line("cudaMalloc", t, 1000, HOME, HOME)));
        all.push((t + 2000, call_line("cudaLaunchKernel", t + 1000, 1000, HOME, HOME)));
        all.push((t + TICK_NS, call_line("cudaLaunchKernel", t + 10_000, TICK_NS - 10_000, HOME, HOME)));
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
                let wait = off.wait_keys();
                all.push((t + dur, format!(r#"{{"src":"sched","op":"sched_switch","mono_ns":{t},"dur_ns":{dur},"pid":{pid},"tid":{tid},"comm":"t{tid}","runq_ns":{runq}{state}{cpu}{waker}{irq}{wait}}}"#)));
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

    /// The silences by the definition: ticks without any call in flight, between two calls. Nothing is ever waited for.
    fn silences(&self) -> Vec<(usize, usize, (u32, u32))> {
        let mut busy = vec![false; TICKS + 200];
        busy[0] = true;
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
    fn at(&self, thread: (u32, u32), tick: usize, to: usize) -> (Option<Cause>, u32) {
        let (pid, _) = thread;
        let away = pid != HOME;
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
            return self.at(creator, tick, to.min(born));
        }
        let Some(place) = task.offs.iter().position(|o| o.start <= tick && tick < o.end) else { return on_cpu() };
        let off = &task.offs[place];
        if off.state == 'R' || tick >= off.wake {
            return match off.had_cpu {
                Some(0) if off.state == 'R' => (pick(Cause::Quota, Cause::WorkerQuota), pid),
                had_cpu => (pick(Cause::CpuWait, Cause::WorkerCpuWait), had_cpu.unwrap_or(0)),
            };
        }
        let watched = |pid: u32| self.watched_from.get(&pid).is_some_and(|&from| from != usize::MAX);
        let (call, kind, _, io) = off.wait;
        match (off.state, task.ended_by(place, to).or_else(|| task.held_by(place, to))) {
            ('?', _) => (Some(Cause::OffCpu), pid),
            _ if io == Some(true) => (pick(Cause::IoWait, Cause::WorkerIo), pid),
            _ if call == "clock_nanosleep" => (Some(Cause::Pause), pid),
            ('D', Some(waker)) if watched(waker.0) => self.at(waker, tick, to.min(off.wake)),
            ('D', _) if io == Some(false) => (Some(Cause::Lock), pid),
            ('D', _) => (pick(Cause::IoWait, Cause::WorkerIo), pid),
            (_, Some(waker)) => self.at(waker, tick, to.min(off.wake)),
            _ if kind == "socket" || off.wait.2 || kind == "epoll" && !task.timed_out(place, to) => {
                (Some(Cause::Network), pid)
            }
            _ if kind == "gil" || kind == "futex" && !task.timed_out(place, to) => (Some(Cause::Lock), pid),
            _ => (Some(Cause::Sleep), pid),
        }
    }

    /// All silences with their causes: by cause and pid, nanoseconds; `None` = unexplained.
    fn truth(&self) -> Vec<Silence> {
        self.silences()
            .into_iter()
            .map(|(from, to, thread)| {
                let mut causes = BTreeMap::new();
                for tick in from..to {
                    *causes.entry(self.at(thread, tick, to)).or_default() += TICK_NS;
                }
                (ns(from), (to - from) as u64 * TICK_NS, causes)
            })
            .collect()
    }
}

fn call_line(op: &str, t: u64, dur: u64, pid: u32, tid: u32) -> String {
    format!(
        r#"{{"src":"cudart","op":"{op}","mono_ns":{t},"dur_ns":{dur},"pid":{pid},"tid":{tid},"comm":"t{tid}","ret":0,"depth":0}}"#
    )
}

fn by_cause_and_pid(breakdown: &Breakdown) -> BTreeMap<(Option<Cause>, u32), u64> {
    let mut sums = BTreeMap::new();
    for cause in Cause::ALL {
        for (party, ns) in breakdown.parties(cause) {
            *sums.entry((Some(cause), party.pid)).or_default() += ns;
        }
    }
    if breakdown.unexplained_ns() > 0 {
        sums.insert((None, 0), breakdown.unexplained_ns());
    }
    sums
}

fn found(engine: &Engine, shift_ns: u64) -> Vec<Silence> {
    let process = engine.cuda.values().find(|p| p.pid == HOME).unwrap();
    let account = process.account(0, Tail::ShutDown, (engine.sources(), &engine.cuda_losses));
    let kept = account.ledger.lost.values().flat_map(|sum| sum.kept());
    let mut all: Vec<_> =
        kept.map(|lost| (lost.start_ns - shift_ns, lost.len_ns(), by_cause_and_pid(&lost.breakdown))).collect();
    all.sort();
    all
}

/// The first silence on which two lists differ.
fn difference(got: &[Silence], want: &[Silence]) -> Option<(Option<Silence>, Option<Silence>)> {
    let at = (0..got.len().max(want.len())).find(|&i| got.get(i) != want.get(i))?;
    Some((got.get(at).cloned(), want.get(at).cloned()))
}

proptest! {
    #![proptest_config(config())]

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
            offs.push(OffCpu { start, wake: start + 1, end: start + 5, state: 'S', waker: Some((HOME, HOME)), irq: false, had_cpu: Some(HOME), wait: WAITS[0], timed_out: false });
        }
        busier.tasks.push(Task { pid: 5000, tid: 5000, born: None, offs: offs.clone(), calls: Vec::new() });
        busier.tasks.push(Task { pid: HOME, tid: 5001, born: None, offs, calls: Vec::new() });
        busier.watched_from.insert(5000, 0);
        prop_assert_eq!(difference(&found(&engine(&busier.lines(0), false), 0), &machine.truth()), None);
    }

    #[test]
    fn reports_add_up_and_do_not_depend_on_how_the_stream_was_read(seed: u64) {
        let lines = machine(seed).lines(0);
        let report = engine(&lines, false).report(Wanted::default());
        for finding in &report.findings {
            let causes: u64 = finding.lost.causes.iter().map(|c| c.ns).sum();
            prop_assert_eq!(causes + finding.lost.unexplained_ns, finding.lost.lost_ns);
            for cause in &finding.lost.causes {
                prop_assert!(cause.who.iter().map(|w| w.ns).sum::<u64>() <= cause.ns);
            }
        }
        let again = engine(&lines, true).report(Wanted::default());
        prop_assert_eq!(serde_json::to_string(&report.findings).unwrap(), serde_json::to_string(&again.findings).unwrap());
        prop_assert_eq!(serde_json::to_string(&report.accounts).unwrap(), serde_json::to_string(&again.accounts).unwrap());
    }
}
