//! One instance of a process: its programs, its threads, and who watched it.

use std::ops::RangeInclusive;

use super::interner::Name;
use super::lifetime::{Lifetime, has_lifetime};
use super::tracers::Side;
use super::watch::Watch;

/// Programs of one process that are told apart.
const MAX_EXECS: usize = 1024;

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
    pub fn all_of(instance: InstanceId) -> RangeInclusive<Self> {
        Self { instance, execs: 0 }..=Self { instance, execs: u32::MAX }
    }
}

/// Who watches a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watcher {
    /// A tracer of this kind; of several it isn't known which.
    Any(Side),
    /// A tracer of this kind, behind the input of this number.
    Input(Side, u16),
}

impl From<Side> for Watcher {
    fn from(side: Side) -> Self {
        Watcher::Any(side)
    }
}

/// Of whom nothing is known.
static NEVER: Watch = Watch::never();

/// One instance of a process.
#[derive(Debug)]
pub struct ProcessInstance {
    lifetime: Lifetime,
    /// Which.
    pub id: InstanceId,
    /// TGID.
    pub pid: u32,
    /// A tracer watches it as the descendant of another one.
    pub is_child: bool,
    /// Its parent when it was first watched; 0: not on record.
    pub parent_pid: u32,
    /// What it runs, where its program is an interpreter.
    pub script: Name,
    /// Its main thread's name, seen last.
    pub name: Name,
    watches: Vec<(Watcher, Watch)>,
    pub(super) threads: Vec<u32>,
    /// When it became another program, by time.
    execs_ns: Vec<u64>,
}

has_lifetime!(ProcessInstance);

impl ProcessInstance {
    pub(super) fn new(id: InstanceId, pid: u32, lifetime: Lifetime) -> Self {
        let (watches, threads, execs_ns) = (Vec::new(), Vec::new(), Vec::new());
        let (name, script) = (Name::default(), Name::default());
        Self { lifetime, id, pid, is_child: false, parent_pid: 0, script, name, watches, threads, execs_ns }
    }

    /// When one of them watched it.
    pub fn watch(&self, watcher: impl Into<Watcher>) -> &Watch {
        let watcher = watcher.into();
        self.watches.iter().find(|(who, _)| *who == watcher).map_or(&NEVER, |(_, watch)| watch)
    }

    /// The same, to take note of more.
    pub fn watch_mut(&mut self, watcher: impl Into<Watcher>) -> &mut Watch {
        let watcher = watcher.into();
        let at = self.watches.iter().position(|(who, _)| *who == watcher).unwrap_or_else(|| {
            self.watches.reserve_exact(1);
            self.watches.push((watcher, Watch::never()));
            self.watches.len() - 1
        });
        &mut self.watches[at].1
    }

    /// Everybody who watched it, in the order in which they began.
    pub fn watches(&self) -> impl Iterator<Item = (Watcher, &Watch)> {
        self.watches.iter().map(|(who, watch)| (*who, watch))
    }

    pub(super) fn watches_mut(&mut self) -> impl Iterator<Item = (Watcher, &mut Watch)> {
        self.watches.iter_mut().map(|(who, watch)| (*who, watch))
    }

    /// Whether a CUDA tracer told of a call of it.
    pub fn made_calls(&self) -> bool {
        self.watch(Side::Cuda).heard_ns() > 0
    }

    /// It becomes another program.
    pub fn exec(&mut self, at_ns: u64) {
        if self.execs_ns.len() < MAX_EXECS {
            self.execs_ns.insert(self.execs(at_ns), at_ns);
        }
    }

    /// How many times it had become another program by `at_ns`.
    fn execs(&self, at_ns: u64) -> usize {
        self.execs_ns.partition_point(|&exec_ns| exec_ns <= at_ns)
    }

    /// The program that it is at `at_ns`.
    pub fn program_at(&self, at_ns: u64) -> Program {
        Program { instance: self.id, execs: self.execs(at_ns) as u32 }
    }

    /// Whether the program of `at_ns` is known to run no more.
    pub fn is_over(&self, at_ns: u64) -> bool {
        self.program_end_after(at_ns).is_some()
    }

    /// When that program ended, if that is known.
    pub fn program_end_after(&self, at_ns: u64) -> Option<u64> {
        self.program_end_ns(self.program_at(at_ns))
    }

    /// When a program began, if that is known: with the fork, or with an exec.
    pub fn program_start_ns(&self, program: Program) -> Option<u64> {
        match (program.execs as usize).checked_sub(1) {
            Some(last) => self.execs_ns.get(last).copied(),
            None => self.birth.map(|birth| birth.at_ns),
        }
    }

    /// When a program ended, if that is known.
    pub fn program_end_ns(&self, program: Program) -> Option<u64> {
        self.execs_ns.get(program.execs as usize).copied().or(self.died_ns)
    }
}
