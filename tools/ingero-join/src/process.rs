//! What is known of each process: its lives, its threads, and since when the scheduler tracer watches it.

use std::collections::{HashMap, VecDeque};

use crate::history::{Interval, Pages, Thread};
use crate::item::Task;
use crate::life::Life;

/// All threads together keep at most so many intervals and page records (40 bytes each).
const MAX_ENTRIES: usize = 80_000;
/// A thread of a process that was never seen making a CUDA call keeps so many when memory runs short,
const KEEP_OTHERS: usize = 16;
/// and one of a process that was, so many.
const KEEP_CUDA: usize = 8_192;
/// So many processes that ended are remembered, for the stale record that would reach over their end.
const DEAD_KEPT: usize = 8_192;

/// A process in its host (a PID is only unique on one kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) domain: u16,
    pub(crate) pid: u32,
}

/// The scheduler tracer of an input watched a process in [`from_ns`, `to_ns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from_ns: u64,
    /// Open while the watch goes on.
    pub(crate) to_ns: Option<u64>,
    /// The input whose records tell.
    pub(crate) lane: usize,
}

/// One process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) life: Life,
    pub(crate) threads: HashMap<u32, Thread>,
    pub(crate) spans: Vec<Span>,
    /// It made a CUDA call.
    cuda: bool,
    dead: bool,
}

/// All processes.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: HashMap<Key, Process>,
    dead: VecDeque<Key>,
    entries: usize,
}

impl Processes {
    pub(crate) fn get(&self, key: Key) -> Option<&Process> {
        self.all.get(&key)
    }

    pub(crate) fn add_interval(&mut self, key: Key, tid: u32, interval: Interval) {
        self.all.entry(key).or_default().threads.entry(tid).or_default().add_interval(interval);
        self.count_entry();
    }

    pub(crate) fn add_pages(&mut self, key: Key, tid: u32, pages: Pages) {
        self.all.entry(key).or_default().threads.entry(tid).or_default().add_pages(pages);
        self.count_entry();
    }

    /// The scheduler tracer of input `lane` watches the process from `at_ns` on.
    pub(crate) fn watch(&mut self, key: Key, at_ns: u64, lane: usize) {
        let process = self.all.entry(key).or_default();
        process.dead = false;
        if process.spans.iter().any(|s| s.lane == lane && s.to_ns.is_none() && s.from_ns <= at_ns) {
            return;
        }
        process.spans.push(Span { from_ns: at_ns, to_ns: None, lane });
    }

    /// Something happened to a task at `at_ns`.
    pub(crate) fn task(&mut self, key: Key, tid: u32, task: Task, at_ns: u64) {
        match task {
            Task::Fork { child_pid } => {
                let inherited: Vec<Span> = match self.all.get(&key) {
                    // The tracers of the parent watch the child from its birth.
                    Some(parent) => parent.spans.iter().filter(|s| s.to_ns.is_none()).copied().collect(),
                    None => Vec::new(),
                };
                let child = self.all.entry(Key { pid: child_pid, ..key }).or_default();
                child.bound(at_ns);
                child.dead = false;
                child.spans.extend(inherited.into_iter().map(|s| Span { from_ns: at_ns, ..s }));
            }
            // Another program in the same process: its threads are gone, the watch goes on.
            Task::Exec => self.all.entry(key).or_default().life.bound(at_ns),
            Task::ThreadCreate { child_tid } => {
                self.all.entry(key).or_default().threads.entry(child_tid).or_default().life.bound(at_ns);
            }
            Task::ThreadExit => {
                self.all.entry(key).or_default().threads.entry(tid).or_default().life.bound(at_ns);
            }
            Task::ProcessExit => {
                let process = self.all.entry(key).or_default();
                process.bound(at_ns);
                process.dead = true;
            }
        }
    }

    /// The scheduler stream of input `lane` ended in order at `at_ns`: it watches nothing from there on.
    pub(crate) fn end_of_stream(&mut self, lane: impl Fn(usize) -> bool, at_ns: u64) {
        for process in self.all.values_mut() {
            for span in process.spans.iter_mut().filter(|s| lane(s.lane) && s.to_ns.is_none()) {
                span.to_ns = Some(at_ns);
            }
        }
    }

    /// A call of the thread that began at `start_ns` has been written.
    pub(crate) fn call_written(&mut self, key: Key, tid: u32, start_ns: u64) {
        let process = self.all.entry(key).or_default();
        process.cuda = true;
        if let Some(thread) = process.threads.get_mut(&tid) {
            self.entries -= thread.forget_before(start_ns);
        }
    }

    /// A process ended so long ago that every call it made has been written.
    pub(crate) fn clear_dead(&mut self, key: Key) {
        let Some(process) = self.all.get_mut(&key).filter(|p| p.dead) else { return };
        self.entries -= process.threads.values().map(Thread::len).sum::<usize>();
        process.threads = HashMap::new();
        process.spans = Vec::new();
        process.cuda = false;
        self.dead.push_back(key);
        if self.dead.len() > DEAD_KEPT
            && let Some(oldest) = self.dead.pop_front()
            && self.all.get(&oldest).is_some_and(|p| p.dead)
            && let Some(process) = self.all.remove(&oldest)
        {
            // A stale record may have come after its end.
            self.entries -= process.threads.values().map(Thread::len).sum::<usize>();
        }
    }

    /// A thread ended at `at_ns`, so long ago that every call it made has been written.
    pub(crate) fn clear_thread(&mut self, key: Key, tid: u32, at_ns: u64) {
        if let Some(thread) = self.all.get_mut(&key).and_then(|p| p.threads.get_mut(&tid)) {
            self.entries -= thread.forget_before(at_ns);
        }
    }

    fn count_entry(&mut self) {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            self.save_memory();
        }
    }

    /// Cuts the past of threads, those first of which nobody will ask.
    fn save_memory(&mut self) {
        for (cuda, mut keep) in [(false, KEEP_OTHERS), (false, 0), (true, KEEP_CUDA), (true, 64), (true, 0)] {
            if self.entries <= MAX_ENTRIES / 2 {
                return;
            }
            // Half full again at the least, so that this stays rare.
            keep = keep.min(MAX_ENTRIES / 4);
            for process in self.all.values_mut().filter(|p| p.cuda == cuda) {
                for thread in process.threads.values_mut() {
                    self.entries -= thread.cut(keep);
                }
                process.threads.retain(|_, t| !t.is_blank());
            }
        }
    }
}

impl Process {
    /// One life ends or another begins: what watched the old one does not watch the new one.
    fn bound(&mut self, at_ns: u64) {
        self.life.bound(at_ns);
        for span in self.spans.iter_mut().filter(|s| s.to_ns.is_none()) {
            span.to_ns = Some(at_ns);
        }
    }
}
