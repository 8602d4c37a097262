//! One instance of a process or thread: what its number means from its fork or creation to its exit.

use std::collections::VecDeque;

use super::cpu_timeline::SwitchedIn;
use super::interner::Name;
use super::state::State;
use super::task::{Task, Thread};
use super::tracers::Side;
use super::watch::Watch;

/// Programs of one process that are told apart.
const MAX_EXECS: usize = 1024;

/// One time a thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// When it left, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// From when on it was runnable again and waited for a CPU.
    pub wake_ns: u64,
    /// When it came back.
    pub end_ns: u64,
    /// Who woke it; pid 0 = nobody seen.
    pub waker: Thread,
    /// Who had the CPU while it was runnable, at the beginning and at the end of that; pid 0 = not known or idle.
    pub had_cpu: [Task; 2],
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

/// One instance of a thread.
#[derive(Debug)]
pub struct ThreadInstance {
    /// Its process.
    pub pid: u32,
    /// Known when it was created under watch.
    pub birth: Option<Birth>,
    /// When the life of this tid before it ended.
    pub(super) after_ns: u64,
    pub(super) died_ns: Option<u64>,
    pub(super) seen_ns: u64,
    /// Intervals that ended before this were dropped for want of room.
    pub unknown_before_ns: u64,
    pub(super) offs: VecDeque<OffCpu>,
    /// When it last came back, and on which CPU.
    pub(super) switched_in: Option<SwitchedIn>,
}

impl ThreadInstance {
    pub(super) fn new(pid: u32, birth: Option<Birth>, after_ns: u64, seen_ns: u64) -> Self {
        Self {
            pid,
            birth,
            after_ns,
            died_ns: None,
            seen_ns,
            unknown_before_ns: 0,
            offs: VecDeque::new(),
            switched_in: None,
        }
    }

    /// The off-CPU intervals that overlap [`from_ns`, `to_ns`], by start.
    pub fn offs(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &OffCpu> {
        let first = self.offs.partition_point(|o| o.end_ns <= from_ns);
        self.offs.range(first..).take_while(move |o| o.start_ns < to_ns)
    }

    pub(super) fn covers(&self, from_ns: u64, to_ns: u64) -> bool {
        let began = self.birth.map_or(self.after_ns < from_ns || self.after_ns == 0, |b| b.at_ns <= from_ns);
        began && self.died_ns.is_none_or(|died| to_ns <= died)
    }
}

/// Identifies one instance of one process for the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub(super) u32);

/// One program in one instance of a process: `exec` replaces it and keeps the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// The instance.
    pub instance: InstanceId,
    execs: u32,
}

impl Program {
    /// All programs of one instance, in their order.
    pub fn all_of(instance: InstanceId) -> std::ops::RangeInclusive<Self> {
        Self { instance, execs: 0 }..=Self { instance, execs: u32::MAX }
    }
}

/// One instance of a process.
#[derive(Debug)]
pub struct ProcessInstance {
    /// Which.
    pub id: InstanceId,
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
    pub(super) threads: Vec<u32>,
    /// When it became another program.
    pub(super) execs_ns: Vec<u64>,
}

impl ProcessInstance {
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
        Program { instance: self.id, execs: self.execs_ns.iter().filter(|&&exec_ns| exec_ns <= at_ns).count() as u32 }
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
pub struct SwitchedOut {
    /// When it had come there, and which one it was, where that is on record.
    pub switched_in: Option<SwitchedIn>,
    /// When it left.
    pub at_ns: u64,
}
