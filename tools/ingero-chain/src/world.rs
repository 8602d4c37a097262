//! Processes, threads, their lives, and each thread's times off the CPU.
//!
//! A pid or tid means one process or thread only within one *life*: from its fork or creation to its exit.
//! Everything is looked up by number *and* instant, so that a reused pid inherits nothing. An off-CPU
//! interval never crosses the bounds of its thread's life; one that does is stale and belongs to nobody:
//!
//! ```text
//!   pid 100   [ first life ]exit            fork[ second life …
//!   record         |------------------------------|        100 ms to 3 s, of neither: dropped
//! ```
//!
//! Off-CPU intervals are kept as long as a gap may need them (`forget_before`), and never more than
//! [`MAX_OFFS`] of them: beyond, the oldest go, and what they covered is unknown from then on.

use std::collections::VecDeque;

use crate::cause::Party;
use crate::map::HashMap;
use crate::names::{Name, Thread};
use crate::occupancy::Came;
use crate::tracers::Side;
use crate::watch::Watch;

/// 64 bytes each.
pub const MAX_OFFS: usize = 400_000;
/// Lives of threads that are remembered.
const MAX_THREADS: usize = 100_000;
/// Lives of processes that are remembered.
const MAX_PROCESSES: usize = 50_000;
/// Programs of one process that are told apart.
const MAX_EXECS: usize = 1024;
/// Two CPUs may report a birth and what follows it in the wrong order, at most so far apart.
const SKEW_NS: u64 = 1_000_000;

/// How a thread left the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `R`: preempted while runnable.
    Runnable,
    /// `S`, `I`, stopped, traced: asleep.
    Asleep,
    /// `D`: waiting in the kernel for a device.
    Disk,
    /// Not in the record.
    Unknown,
}

impl State {
    /// From the letter in a record.
    pub fn of(letter: Option<&str>) -> Self {
        match letter.and_then(|s| s.bytes().next()) {
            Some(b'R') => State::Runnable,
            Some(b'D') => State::Disk,
            Some(b'?') | None => State::Unknown,
            Some(_) => State::Asleep,
        }
    }
}

/// One time a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Off {
    /// When it left, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// From when on it was runnable again and waited for a CPU.
    pub wake_ns: u64,
    /// When it came back.
    pub end_ns: u64,
    /// Who woke it; pid 0 = nobody seen.
    pub waker: Thread,
    /// Who had the CPU while it was runnable, at the beginning and at the end of that; pid 0 = not known or idle.
    pub had_cpu: [Party; 2],
    /// The state it left with.
    pub state: State,
    /// While it was runnable, the CPU that it last had or got next ran nobody.
    pub cpu_was_free: bool,
    /// The CPU in whose queue it waited, as far as that can be told: the one that it was driven from, or, where it had been
    /// asleep, the one that it got.
    pub waited_on: Option<u16>,
}

/// How a thread or process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// When.
    pub at_ns: u64,
    /// Who created it.
    pub parent: Thread,
}

/// One life of a thread.
#[derive(Debug)]
pub struct ThreadLife {
    /// Its process.
    pub pid: u32,
    /// Known when it was created under watch.
    pub birth: Option<Birth>,
    /// When the life of this tid before it ended.
    after_ns: u64,
    died_ns: Option<u64>,
    seen_ns: u64,
    /// Intervals that ended before this were dropped for want of room.
    pub unknown_before_ns: u64,
    offs: VecDeque<Off>,
    /// When it last came back, and on which CPU.
    came: Option<Came>,
}

impl ThreadLife {
    fn new(pid: u32, birth: Option<Birth>, after_ns: u64, seen_ns: u64) -> Self {
        Self { pid, birth, after_ns, died_ns: None, seen_ns, unknown_before_ns: 0, offs: VecDeque::new(), came: None }
    }

    /// The off-CPU intervals that overlap [`from_ns`, `to_ns`], by start.
    pub fn offs(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Off> {
        let first = self.offs.partition_point(|o| o.end_ns <= from_ns);
        self.offs.range(first..).take_while(move |o| o.start_ns < to_ns)
    }

    fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        let began = self.birth.map_or(self.after_ns < from_ns || self.after_ns == 0, |b| b.at_ns <= from_ns);
        began && self.died_ns.is_none_or(|died| to_ns <= died)
    }
}

/// Identifies one life of one process for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LifeId(u32);

/// One program in one life of a process: `exec` replaces it and keeps the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// The life.
    pub life: LifeId,
    execs: u32,
}

impl Program {
    /// All programs of one life, in their order.
    pub fn all_of(life: LifeId) -> std::ops::RangeInclusive<Self> {
        Self { life, execs: 0 }..=Self { life, execs: u32::MAX }
    }
}

/// One life of a process.
#[derive(Debug)]
pub struct ProcessLife {
    /// Which.
    pub id: LifeId,
    /// TGID.
    pub pid: u32,
    /// Known when it was forked under watch.
    pub birth: Option<Birth>,
    /// When it was first seen.
    pub seen_ns: u64,
    /// When it ended.
    pub died_ns: Option<u64>,
    /// A tracer watches it as the descendant of another one.
    pub is_child: bool,
    /// When the scheduler tracer watched it.
    pub sched_watch: Watch,
    /// When the CUDA tracer watched it.
    pub cuda_watch: Watch,
    /// Its main thread's name, seen last.
    pub name: Name,
    threads: Vec<u32>,
    /// When it became another program.
    execs_ns: Vec<u64>,
}

impl ProcessLife {
    /// When one kind of tracer watched it.
    pub fn watch_mut(&mut self, side: Side) -> &mut Watch {
        match side {
            Side::Cuda => &mut self.cuda_watch,
            Side::Sched => &mut self.sched_watch,
        }
    }

    /// It becomes another program.
    pub fn exec(&mut self, at_ns: u64) {
        if self.execs_ns.len() < MAX_EXECS {
            self.execs_ns.push(at_ns);
        }
    }

    /// The program that it is at `at_ns`.
    pub fn program_at(&self, at_ns: u64) -> Program {
        Program { life: self.id, execs: self.execs_ns.iter().filter(|&&exec_ns| exec_ns <= at_ns).count() as u32 }
    }

    /// Whether the program of `at_ns` is known to run no more.
    pub fn is_over(&self, at_ns: u64) -> bool {
        self.died_ns.is_some() || self.execs_ns.iter().any(|&exec_ns| exec_ns > at_ns)
    }

    /// When a program began, if that is known: with the fork, or with an exec.
    pub fn program_start_ns(&self, program: Program) -> Option<u64> {
        let mut execs_ns = self.execs_ns.clone();
        execs_ns.sort_unstable();
        match (program.execs as usize).checked_sub(1) {
            Some(last) => execs_ns.get(last).copied(),
            None => self.birth.map(|birth| birth.at_ns),
        }
    }

    /// When a program ended, if that is known.
    pub fn program_end_ns(&self, program: Program) -> Option<u64> {
        let mut execs_ns = self.execs_ns.clone();
        execs_ns.sort_unstable();
        execs_ns.get(program.execs as usize).copied().or(self.died_ns)
    }
}

/// How a thread left a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// When it had come there, and which one it was, where that is on record.
    pub came: Option<Came>,
    /// When it left.
    pub at_ns: u64,
}

/// All lives that may still matter.
#[derive(Debug, Default)]
pub struct World {
    threads: HashMap<u32, Vec<ThreadLife>>,
    processes: HashMap<u32, Vec<ProcessLife>>,
    thread_lives: usize,
    process_lives: usize,
    next_life: u32,
    offs: usize,
    forgotten_ns: u64,
}

impl World {
    /// The life of process `pid` at `at_ns`; the one that was seen first where there is none, from then on.
    pub fn process(&mut self, pid: u32, at_ns: u64) -> &mut ProcessLife {
        if self.find_process(pid, at_ns).is_none() {
            self.new_process(pid, None, at_ns);
        }
        let lives = self.processes.entry(pid).or_default();
        let at = position_at(lives, at_ns).unwrap_or(lives.len() - 1);
        &mut lives[at]
    }

    /// The life of process `pid` that something over [`start_ns`, `end_ns`] belongs to: the one in which it began. Its end
    /// may have been noticed by another tracer, a little after the exit.
    pub fn process_over(&mut self, pid: u32, start_ns: u64, end_ns: u64) -> &mut ProcessLife {
        let skewed_ns = start_ns.saturating_sub(SKEW_NS);
        let known = [start_ns, end_ns, skewed_ns].into_iter().find(|&at_ns| self.find_process(pid, at_ns).is_some());
        self.process(pid, known.unwrap_or(end_ns))
    }

    /// The life of process `pid` at `at_ns`, if one is known.
    pub fn find_process(&self, pid: u32, at_ns: u64) -> Option<&ProcessLife> {
        let lives = self.processes.get(&pid)?;
        position_at(lives, at_ns).map(|at| &lives[at])
    }

    /// When a thread of process `pid` was last heard of in a scheduler record; 0 = never.
    pub fn heard_ns(&self, pid: u32) -> u64 {
        let lives = self.threads.values().flatten().filter(|life| life.pid == pid);
        lives.map(|life| life.seen_ns).max().unwrap_or(0)
    }

    /// Whether the scheduler tracer watches any life of process `pid`.
    pub fn is_watched(&self, pid: u32) -> bool {
        self.processes.get(&pid).is_some_and(|lives| lives.iter().any(|life| life.sched_watch.since_ns().is_some()))
    }

    /// A tracer stopped at `at_ns`: as far as it was the one that watched them, nobody watches these processes any more.
    pub fn tracer_stopped(&mut self, side: Side, at_ns: u64) {
        self.processes.values_mut().flatten().for_each(|life| life.watch_mut(side).stop(at_ns));
    }

    /// One of several tracers was killed; no more will come.
    pub fn tracer_killed(&mut self, side: Side) {
        self.processes.values_mut().flatten().for_each(|life| life.watch_mut(side).doubt());
    }

    /// Every life of a process with this number.
    pub fn lives(&self, pid: u32) -> impl Iterator<Item = &ProcessLife> {
        self.processes.get(&pid).into_iter().flatten()
    }

    /// The lives that this one descends from, parents first, as far as births are on record.
    pub fn ancestors<'a>(&'a self, life: &'a ProcessLife) -> impl Iterator<Item = &'a ProcessLife> {
        let parent = |life: &'a ProcessLife| life.birth.and_then(|b| self.find_process(b.parent.pid, b.at_ns));
        // A few generations: fork servers and shells between. A bound, since records may say anything.
        std::iter::successors(parent(life), move |life| parent(life)).take(8)
    }

    /// A life by its identity.
    pub fn life(&self, pid: u32, id: LifeId) -> Option<&ProcessLife> {
        self.processes.get(&pid)?.iter().find(|life| life.id == id)
    }

    /// Every process life that is remembered, by identity.
    pub fn processes(&self) -> Vec<&ProcessLife> {
        let mut all: Vec<_> = self.processes.values().flatten().collect();
        all.sort_by_key(|life| life.id);
        all
    }

    /// The life of thread `tid` of process `pid` at `at_ns`; where it had none yet, the one that began next.
    pub fn thread(&self, pid: u32, tid: u32, at_ns: u64) -> Option<&ThreadLife> {
        let lives = self.threads.get(&tid)?;
        let own = || lives.iter().filter(move |life| life.pid == pid);
        let next = |life: &&ThreadLife| life.birth.is_some_and(|b| b.at_ns > at_ns);
        own().rev().find(|life| life.covers(at_ns, at_ns)).or_else(|| own().find(next))
    }

    /// Whether thread `tid` of process `pid` was seen to end, and not to begin again.
    pub fn thread_is_dead(&self, pid: u32, tid: u32) -> bool {
        let life = self.threads.get(&tid).and_then(|lives| lives.iter().rev().find(|life| life.pid == pid));
        life.is_some_and(|life| life.died_ns.is_some())
    }

    /// A process was forked.
    pub fn fork(&mut self, parent: Thread, child_pid: u32, at_ns: u64) {
        let birth = Birth { at_ns, parent };
        if let Some(life) = self.processes.get_mut(&child_pid).and_then(|lives| lives.last_mut())
            && life.died_ns.is_none()
        {
            if life.birth.is_none() && life.seen_ns + SKEW_NS >= at_ns {
                life.birth = Some(birth);
                return self.create_thread(Thread { pid: child_pid, tid: child_pid, ..parent }, parent, at_ns);
            }
            // Its exit was lost: it must have ended by now.
            self.exit_process(child_pid, at_ns);
        }
        self.new_process(child_pid, Some(birth), at_ns);
        self.create_thread(Thread { pid: child_pid, tid: child_pid, name: parent.name }, parent, at_ns);
    }

    /// A thread was created.
    pub fn create_thread(&mut self, child: Thread, parent: Thread, at_ns: u64) {
        let birth = Birth { at_ns, parent };
        if let Some(life) = self.threads.get_mut(&child.tid).and_then(|lives| lives.last_mut())
            && life.died_ns.is_none()
        {
            if life.birth.is_none() && life.pid == child.pid && life.seen_ns + SKEW_NS >= at_ns {
                life.birth = Some(birth);
                return;
            }
            life.died_ns = Some(at_ns);
        }
        self.new_thread(child.tid, child.pid, Some(birth), at_ns);
    }

    /// A thread ended.
    pub fn exit_thread(&mut self, tid: u32, at_ns: u64) {
        if let Some(life) = self.threads.get_mut(&tid).and_then(|lives| lives.last_mut())
            && life.died_ns.is_none()
            && life.birth.is_none_or(|b| b.at_ns <= at_ns)
        {
            life.died_ns = Some(at_ns);
        }
    }

    /// A process ended, and all its threads with it. Says which life that was.
    pub fn exit_process(&mut self, pid: u32, at_ns: u64) -> Option<LifeId> {
        let life = self.processes.get_mut(&pid)?.last_mut()?;
        if life.died_ns.is_some() || life.birth.is_some_and(|b| b.at_ns > at_ns) {
            return None;
        }
        life.died_ns = Some(at_ns);
        let id = life.id;
        for tid in std::mem::take(&mut life.threads) {
            if self.threads.get(&tid).and_then(|lives| lives.last()).is_some_and(|life| life.pid == pid) {
                self.exit_thread(tid, at_ns);
            }
        }
        Some(id)
    }

    /// Takes note of a time off the CPU, at the end of which the thread came back on `cpu`, and says on which one it had
    /// been. `None` where it crosses the bounds of the thread's life.
    pub fn add_off(&mut self, pid: u32, tid: u32, mut off: Off, cpu: Option<u32>) -> Option<Left> {
        let known = self
            .threads
            .get(&tid)
            .is_some_and(|lives| lives.iter().any(|l| l.died_ns.is_none_or(|d| d > off.start_ns)));
        if !known {
            let after = self.threads.get(&tid).and_then(|lives| lives.last()).and_then(|l| l.died_ns);
            if after.is_some_and(|died| died > off.start_ns) {
                return None;
            }
            self.new_thread(tid, pid, None, off.start_ns);
        }
        let lives = self.threads.get_mut(&tid)?;
        let fits = |l: &ThreadLife| l.pid == pid && l.covers(off.start_ns.saturating_add(SKEW_NS), off.end_ns);
        let life = lives.iter_mut().rev().find(|l| fits(l))?;
        if let Some(birth) = life.birth {
            off.start_ns = off.start_ns.max(birth.at_ns).min(off.end_ns);
            off.wake_ns = off.wake_ns.max(off.start_ns);
        }
        // A record out of its order says nothing of where the thread was before it.
        let came = life.came.filter(|came| came.at_ns <= off.start_ns);
        if off.state == State::Runnable {
            off.waited_on = came.and_then(|came| u16::try_from(came.cpu).ok());
        }
        if life.came.is_none_or(|came| came.at_ns <= off.end_ns) {
            life.came = cpu.map(|cpu| Came { at_ns: off.end_ns, cpu });
        }
        life.seen_ns = life.seen_ns.max(off.end_ns);
        let at = life.offs.iter().rposition(|o| o.start_ns <= off.start_ns).map_or(0, |before| before + 1);
        life.offs.insert(at, off);
        self.offs += 1;
        Some(Left { came, at_ns: off.start_ns })
    }

    /// When and where thread `tid` of process `pid`, which runs at `at_ns`, came on its CPU.
    pub fn came(&self, pid: u32, tid: u32, at_ns: u64) -> Option<Came> {
        self.thread(pid, tid, at_ns)?.came.filter(|came| came.at_ns <= at_ns)
    }

    /// How many off-CPU intervals are kept.
    pub fn off_count(&self) -> usize {
        self.offs
    }

    /// Before this instant nothing more is asked: drops what ended by then. If more than [`MAX_OFFS`] are
    /// left, drops the older ones too, and takes note of what isn't known any more.
    pub fn forget_before(&mut self, horizon_ns: u64, now_ns: u64) {
        self.drop_offs(horizon_ns, false);
        let mut cut_ns = horizon_ns.max(self.oldest_off_end_ns());
        while self.offs > MAX_OFFS / 4 * 3 && cut_ns < now_ns {
            cut_ns += (now_ns - cut_ns).div_ceil(2);
            self.drop_offs(cut_ns, true);
        }
        self.forgotten_ns = self.forgotten_ns.max(horizon_ns);
        if self.thread_lives > MAX_THREADS / 2 {
            let keep = |l: &ThreadLife| {
                l.died_ns.is_none_or(|d| d >= horizon_ns) && (!l.offs.is_empty() || l.died_ns.is_none())
            };
            self.retain_threads(keep);
            if self.thread_lives > MAX_THREADS {
                self.retain_threads(|l| !l.offs.is_empty());
            }
        }
    }

    fn retain_threads(&mut self, keep: impl Fn(&ThreadLife) -> bool) {
        let mut left = 0;
        self.threads.retain(|_, lives| {
            lives.retain(&keep);
            left += lives.len();
            !lives.is_empty()
        });
        self.thread_lives = left;
        self.offs = self.threads.values().flatten().map(|l| l.offs.len()).sum();
    }

    fn oldest_off_end_ns(&self) -> u64 {
        self.threads.values().flatten().filter_map(|l| l.offs.front()).map(|o| o.end_ns).min().unwrap_or(u64::MAX)
    }

    fn drop_offs(&mut self, before_ns: u64, needed: bool) {
        for life in self.threads.values_mut().flatten() {
            let gone = life.offs.partition_point(|o| o.end_ns <= before_ns);
            if gone == 0 {
                continue;
            }
            if needed {
                life.unknown_before_ns = life.unknown_before_ns.max(before_ns);
            }
            life.offs.drain(..gone);
            self.offs -= gone;
            if life.offs.capacity() > 64 && life.offs.len() < life.offs.capacity() / 4 {
                life.offs.shrink_to(life.offs.len() * 2);
            }
        }
    }

    fn new_thread(&mut self, tid: u32, pid: u32, birth: Option<Birth>, seen_ns: u64) {
        self.thread_lives += 1;
        let lives = self.threads.entry(tid).or_default();
        let after_ns = lives.last().and_then(|life| life.died_ns).unwrap_or(0);
        lives.push(ThreadLife::new(pid, birth, after_ns, seen_ns));
        let process = self.process(pid, seen_ns);
        if process.died_ns.is_none() && process.threads.len() < MAX_THREADS {
            process.threads.push(tid);
        }
    }

    fn new_process(&mut self, pid: u32, birth: Option<Birth>, seen_ns: u64) {
        let id = LifeId(self.next_life);
        self.next_life += 1;
        self.process_lives += 1;
        let life = ProcessLife {
            id,
            pid,
            birth,
            seen_ns,
            died_ns: None,
            is_child: false,
            sched_watch: Watch::default(),
            cuda_watch: Watch::default(),
            name: Name::default(),
            threads: Vec::new(),
            execs_ns: Vec::new(),
        };
        self.processes.entry(pid).or_default().push(life);
        if self.process_lives > MAX_PROCESSES {
            let forgotten_ns = self.forgotten_ns;
            let mut left = 0;
            self.processes.retain(|&p, lives| {
                lives.retain(|l| l.died_ns.is_none_or(|d| d >= forgotten_ns) || p == pid);
                left += lives.len();
                !lives.is_empty()
            });
            self.process_lives = left;
        }
    }
}

/// Which of a pid's lives holds at an instant: the last that began by then, unless it has ended before. One that was
/// first seen without a birth began at some time after the end of the one before it.
fn position_at(lives: &[ProcessLife], at_ns: u64) -> Option<usize> {
    let began = |at: usize| match lives[at].birth {
        Some(birth) => birth.at_ns <= at_ns,
        None => at.checked_sub(1).and_then(|before| lives[before].died_ns).is_none_or(|died_ns| died_ns < at_ns),
    };
    let at = (0..lives.len()).rev().find(|&at| began(at))?;
    lives[at].died_ns.is_none_or(|died_ns| at_ns <= died_ns).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(pid: u32, tid: u32) -> Thread {
        Thread { pid, tid, name: Name::default() }
    }

    fn off(start_ns: u64, end_ns: u64) -> Off {
        Off {
            start_ns,
            wake_ns: end_ns,
            end_ns,
            waker: Thread::default(),
            had_cpu: [Party::default(); 2],
            state: State::Asleep,
            cpu_was_free: false,
            waited_on: None,
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_reused_pid_inherits_nothing() {
        let mut world = World::default();
        let first = world.process(100, 1000 * MS).id;
        assert!(world.add_off(100, 100, off(1100 * MS, 1200 * MS), None).is_some());
        assert_eq!(world.exit_process(100, 2000 * MS), Some(first));
        world.fork(thread(1, 1), 100, 5000 * MS);
        assert!(world.add_off(100, 100, off(1900 * MS, 5150 * MS), None).is_none());
        assert!(world.add_off(100, 100, off(5001 * MS, 5100 * MS), None).is_some());
        assert!(world.add_off(100, 100, off(1900 * MS, 1950 * MS), None).is_some(), "late, but of the first life");
        assert_eq!(world.process(100, 1500 * MS).id, first);
        assert_eq!(world.find_process(100, 3000 * MS).map(|l| l.id), None);
        assert_ne!(world.process(100, 5500 * MS).id, first);
        assert_eq!(world.thread(100, 100, 5050 * MS).unwrap().offs(0, u64::MAX).count(), 1);
    }

    #[test]
    fn a_second_life_without_a_birth_begins_after_the_first() {
        let mut world = World::default();
        world.process(7, MS);
        assert!(world.add_off(7, 7, off(2 * MS, 3 * MS), None).is_some());
        world.exit_process(7, 10 * MS);
        assert!(world.add_off(7, 7, off(20 * MS, 30 * MS), None).is_some());
        let offs = |at_ns| world.thread(7, 7, at_ns).map(|life| life.offs(0, u64::MAX).count());
        assert_eq!((offs(5 * MS), offs(25 * MS)), (Some(1), Some(1)));
        assert_eq!(world.thread(7, 7, 5 * MS).unwrap().offs(0, u64::MAX).next().unwrap().end_ns, 3 * MS);
    }

    #[test]
    fn a_life_without_a_birth_is_none_of_those_before() {
        let mut world = World::default();
        let mut ids = Vec::new();
        for at_ns in [10 * MS, 30 * MS] {
            world.fork(thread(1, 1), 7, at_ns);
            ids.push(world.process(7, at_ns).id);
            world.exit_process(7, at_ns + 10 * MS);
        }
        // The third fork was lost, and the exit.
        ids.push(world.process(7, 60 * MS).id);
        world.fork(thread(1, 1), 7, 90 * MS);
        ids.push(world.process(7, 90 * MS).id);
        let at = |ms| world.find_process(7, ms * MS).and_then(|life| ids.iter().position(|&id| id == life.id));
        assert_eq!([5, 15, 25, 35, 50, 60, 95].map(at), [None, Some(0), None, Some(1), Some(2), Some(2), Some(3)]);
    }

    #[test]
    fn threads_end_with_their_process() {
        let mut world = World::default();
        world.process(7, MS);
        world.create_thread(thread(7, 8), thread(7, 7), 2 * MS);
        world.exit_process(7, 9 * MS);
        assert!(world.thread(7, 8, 8 * MS).is_some() && world.thread_is_dead(7, 8));
        assert!(world.thread(7, 8, 10 * MS).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_dropped_is_known_to_be_unknown() {
        let mut world = World::default();
        let n = MAX_OFFS as u64 + 1;
        for i in 0..n {
            world.add_off(7, 7, off(i * 10, i * 10 + 5), None);
        }
        world.forget_before(50, n * 10);
        assert!(world.off_count() <= MAX_OFFS / 4 * 3);
        let life = world.thread(7, 7, n * 10).unwrap();
        assert!(life.unknown_before_ns > 50);
        assert!(life.offs(0, u64::MAX).all(|o| o.end_ns > life.unknown_before_ns));
    }
}
