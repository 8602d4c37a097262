//! All processes and threads that may still matter, and what each thread went through.
//!
//! A time off the CPU belongs to the instance of the thread in which it began, and ends with that one or with its program
//! at the latest: whoever runs `exit` or `exec` is on a CPU. See `lifetime` for instances, and `memory` for how much is kept.

use super::HashMap;
use super::cpu_timeline::SwitchedIn;
use super::interner::Thread;
use super::lifetime::{Birth, Instances, Lifetime};
use super::memory::{Limits, Memory};
use super::process::{InstanceId, ProcessInstance, Watcher};
use super::thread::{OffCpu, Pages, SwitchedOut, ThreadInstance};
use super::tracers::Side;

/// Threads that one process is known to have begun, and that end with it.
const MAX_THREADS_OF_ONE: usize = 100_000;
/// Another tracer may notice the end of something by so much after the exit.
const SKEW_NS: u64 = 1_000_000;

/// All instances that may still matter.
#[derive(Debug, Default)]
pub struct TaskTable {
    pub(super) threads: HashMap<u32, Instances<ThreadInstance>>,
    pub(super) processes: HashMap<u32, Instances<ProcessInstance>>,
    next_instance: u32,
    pub(super) memory: Memory,
}

impl TaskTable {
    /// One that keeps no more than this.
    pub fn with_limits(limits: Limits) -> Self {
        Self { memory: Memory::new(limits), ..Self::default() }
    }

    /// The instance of process `pid` at `at_ns`; where none is known, one that was seen then for the first time.
    pub fn process(&mut self, pid: u32, at_ns: u64) -> &mut ProcessInstance {
        self.process_with(pid, at_ns, Instances::position)
    }

    /// The instance of process `pid` that something over [`start_ns`, `end_ns`] belongs to: the one in which it began. Its
    /// end may have been noticed by another tracer, a little after the exit.
    pub fn process_over(&mut self, pid: u32, start_ns: u64, end_ns: u64) -> &mut ProcessInstance {
        let skewed_ns = start_ns.saturating_sub(SKEW_NS);
        let known = [start_ns, end_ns, skewed_ns].into_iter().find(|&at_ns| self.find_process(pid, at_ns).is_some());
        self.process(pid, known.unwrap_or(end_ns))
    }

    /// The instance of process `pid` at `at_ns`, if one is known.
    pub fn find_process(&self, pid: u32, at_ns: u64) -> Option<&ProcessInstance> {
        self.processes.get(&pid)?.find(at_ns)
    }

    /// The instance of process `pid` that something which begins at `at_ns` belongs to.
    pub fn find_process_from(&self, pid: u32, at_ns: u64) -> Option<&ProcessInstance> {
        self.processes.get(&pid)?.find_from(at_ns)
    }

    /// The last instance of process `pid` that began by `at_ns`, whether or not it has ended.
    pub fn latest_process(&self, pid: u32, at_ns: u64) -> Option<&ProcessInstance> {
        self.processes.get(&pid)?.latest(at_ns)
    }

    /// Every instance of process `pid`, oldest first.
    pub fn instances(&self, pid: u32) -> impl Iterator<Item = &ProcessInstance> {
        self.processes.get(&pid).into_iter().flat_map(|all| &all.0)
    }

    /// An instance by its identity.
    pub fn instance(&self, pid: u32, id: InstanceId) -> Option<&ProcessInstance> {
        self.processes.get(&pid)?.0.iter().rfind(|process| process.id == id)
    }

    /// Every process instance that is remembered, by identity.
    pub fn processes(&self) -> Vec<&ProcessInstance> {
        let mut all: Vec<_> = self.processes.values().flat_map(|all| &all.0).collect();
        all.sort_by_key(|process| process.id);
        all
    }

    /// The instances that this one descends from, parents first, as far as births, or parents of those who were there
    /// before anybody watched, are on record.
    pub fn ancestors<'a>(&'a self, process: &'a ProcessInstance) -> impl Iterator<Item = &'a ProcessInstance> {
        let parent = |child: &'a ProcessInstance| match child.birth {
            Some(birth) => self.find_process(birth.parent.pid, birth.at_ns),
            // It may be heard of a little later than its child.
            None => self.instances(child.parent_pid).find(|process| {
                process.id != child.id
                    && process.died_ns.is_none_or(|died_ns| died_ns > child.seen_ns)
                    && process.birth.is_none_or(|birth| birth.at_ns < child.seen_ns)
            }),
        };
        // A few generations: fork servers and shells between. A bound, since records may say anything.
        std::iter::successors(parent(process), move |process| parent(process)).take(8)
    }

    /// When a thread of process `pid` was last heard of in a scheduler record; 0 = never.
    pub fn heard_ns(&self, pid: u32) -> u64 {
        self.instances(pid).map(|process| process.watch(Side::Sched).heard_ns()).max().unwrap_or(0)
    }

    /// Whether the scheduler tracer watches any instance of process `pid`.
    pub fn is_watched(&self, pid: u32) -> bool {
        self.instances(pid).any(|process| process.watch(Side::Sched).since_ns().is_some())
    }

    /// Tracers stopped at `at_ns`: as far as they were the ones that watched them, nobody watches these processes any more.
    pub fn tracers_stopped(&mut self, which: impl Fn(Watcher) -> bool, at_ns: u64) {
        let watches = self.processes.values_mut().flat_map(|all| &mut all.0).flat_map(ProcessInstance::watches_mut);
        watches.filter(|(watcher, _)| which(*watcher)).for_each(|(_, watch)| watch.stop(at_ns));
    }

    /// One of several tracers was killed; no more will come.
    pub fn tracer_killed(&mut self, side: Side) {
        let watches = self.processes.values_mut().flat_map(|all| &mut all.0).flat_map(ProcessInstance::watches_mut);
        watches.filter(|(watcher, _)| *watcher == side.into()).for_each(|(_, watch)| watch.doubt());
    }

    /// The instance of thread `tid` of process `pid` at `at_ns`; where it had none yet, the one that began next.
    pub fn thread(&self, pid: u32, tid: u32, at_ns: u64) -> Option<&ThreadInstance> {
        let threads = self.threads.get(&tid)?;
        let next = |thread: &&ThreadInstance| thread.pid == pid && thread.birth.is_some_and(|b| b.at_ns > at_ns);
        threads.find(at_ns).filter(|thread| thread.pid == pid).or_else(|| threads.0.iter().find(next))
    }

    /// The instance of thread `tid` of process `pid` that something which begins at `at_ns` belongs to.
    pub fn find_thread_from(&self, pid: u32, tid: u32, at_ns: u64) -> Option<&ThreadInstance> {
        self.threads.get(&tid)?.find_from(at_ns).filter(|thread| thread.pid == pid)
    }

    /// Whether thread `tid` of process `pid` was seen to end, and not to begin again.
    pub fn thread_is_dead(&self, pid: u32, tid: u32) -> bool {
        let last = self.threads.get(&tid).and_then(|threads| threads.0.iter().rfind(|thread| thread.pid == pid));
        last.is_some_and(|thread| thread.died_ns.is_some())
    }

    /// A process was forked.
    pub fn fork(&mut self, parent: Thread, child_pid: u32, at_ns: u64) {
        let birth = Birth { at_ns, parent };
        match self.find_process(child_pid, at_ns).map(|known| known.is_born_at(at_ns)) {
            Some(true) => self.process(child_pid, at_ns).birth = Some(birth),
            known => {
                if known.is_some() {
                    // Its exit was lost: it must have ended by now, with its threads.
                    self.exit_process(child_pid, at_ns);
                }
                let id = self.next_id();
                let new = |lifetime| ProcessInstance::new(id, child_pid, lifetime);
                self.processes.entry(child_pid).or_default().begin(Some(birth), at_ns, new);
            }
        }
        self.create_thread(Thread { pid: child_pid, tid: child_pid, ..parent }, parent, at_ns);
    }

    /// A thread was created.
    pub fn create_thread(&mut self, child: Thread, parent: Thread, at_ns: u64) {
        let birth = Birth { at_ns, parent };
        let threads = self.threads.entry(child.tid).or_default();
        if let Some(known) = threads.find_mut(at_ns).filter(|known| known.pid == child.pid && known.is_born_at(at_ns)) {
            known.birth = Some(birth);
        } else {
            self.new_thread(child.pid, child.tid, at_ns, Some(birth));
        }
    }

    /// A thread ended.
    pub fn exit_thread(&mut self, pid: u32, tid: u32, at_ns: u64) {
        let known = self.threads.get(&tid).and_then(|threads| threads.find(at_ns));
        if known.is_some_and(|thread| thread.pid == pid && thread.died_ns == Some(at_ns)) {
            return;
        }
        if let Some(thread) = self.thread_from(pid, tid, at_ns) {
            thread.died_ns = Some(at_ns);
        }
    }

    /// A process ended, and all its threads with it. Says which instance that was, unless it was known.
    pub fn exit_process(&mut self, pid: u32, at_ns: u64) -> Option<InstanceId> {
        let process = self.process(pid, at_ns);
        if process.died_ns.replace(at_ns) == Some(at_ns) {
            return None;
        }
        let id = process.id;
        for tid in std::mem::take(&mut process.threads) {
            let thread = self.threads.get_mut(&tid).and_then(|threads| threads.find_mut(at_ns));
            if let Some(thread) = thread.filter(|thread| thread.pid == pid) {
                thread.died_ns = Some(at_ns);
            }
        }
        Some(id)
    }

    /// Takes note of a time off the CPU, at the end of which the thread came back on `cpu`, and says on which one it had
    /// been. `None` where it goes on beyond the instance or program in which it began, and so is no whole one, or where it
    /// is known.
    pub fn add_off(&mut self, pid: u32, tid: u32, mut off: OffCpu, cpu: Option<u32>) -> Option<SwitchedOut> {
        let program_end_ns = self.find_process_from(pid, off.start_ns).and_then(|p| p.program_end_after(off.start_ns));
        let thread = self.thread_from(pid, tid, off.start_ns)?;
        let kept = thread.len();
        let end_ns = [thread.died_ns, program_end_ns].into_iter().flatten().fold(off.end_ns, u64::min);
        let left = (end_ns == off.end_ns).then(|| thread.switch(&mut off, cpu));
        let is_new = off.start_ns == off.end_ns || thread.add_off_cpu(OffCpu { end_ns, ..off });
        let keeps = thread.len();
        self.memory.entries = self.memory.entries + keeps - kept;
        left.filter(|_| is_new)
    }

    /// Takes note of page allocations of a thread.
    pub fn add_pages(&mut self, pid: u32, tid: u32, pages: Pages) {
        if let Some(thread) = self.thread_from(pid, tid, pages.start_ns) {
            thread.add_pages(pages);
            self.memory.entries += 1;
        }
    }

    /// When and where thread `tid` of process `pid`, which runs at `at_ns`, came on its CPU.
    pub fn switched_in(&self, pid: u32, tid: u32, at_ns: u64) -> Option<SwitchedIn> {
        self.thread(pid, tid, at_ns)?.switched_in.filter(|came| came.at_ns <= at_ns)
    }

    /// The thread that something which begins at `at_ns` belongs to; `None` where its number is another process's then.
    fn thread_from(&mut self, pid: u32, tid: u32, at_ns: u64) -> Option<&mut ThreadInstance> {
        let known = self.threads.get(&tid).and_then(|threads| threads.find_from(at_ns));
        // An exit was lost where the number has passed on to another process.
        if known.is_none_or(|thread| thread.pid != pid && thread.died_ns.is_none() && thread.heard_ns <= at_ns) {
            self.new_thread(pid, tid, at_ns, None);
        }
        let threads = self.threads.get_mut(&tid)?;
        let at = threads.position_from(at_ns)?;
        Some(&mut threads.0[at]).filter(|thread| thread.pid == pid)
    }

    fn new_thread(&mut self, pid: u32, tid: u32, at_ns: u64, birth: Option<Birth>) {
        self.make_room_for_thread();
        let process = self.process_with(pid, at_ns, Instances::position_from);
        if process.threads.len() < MAX_THREADS_OF_ONE {
            process.threads.push(tid);
        }
        let of_process = **process;
        let new = |lifetime: Lifetime| ThreadInstance::new(pid, lifetime.within(&of_process));
        let threads = self.threads.entry(tid).or_default();
        if birth.is_some() || threads.position_from(at_ns).is_some() {
            threads.begin(birth, at_ns, new);
        } else {
            threads.get_or_fill(None, at_ns, new);
        }
        self.memory.threads += 1;
    }

    fn process_with(
        &mut self,
        pid: u32,
        at_ns: u64,
        position: impl Fn(&Instances<ProcessInstance>, u64) -> Option<usize>,
    ) -> &mut ProcessInstance {
        let known = self.processes.get(&pid).and_then(|processes| position(processes, at_ns));
        let id = if known.is_none() { self.next_id() } else { InstanceId(0) };
        let processes = self.processes.entry(pid).or_default();
        processes.get_or_fill(known, at_ns, |lifetime| ProcessInstance::new(id, pid, lifetime))
    }

    /// Before a process is added.
    fn next_id(&mut self) -> InstanceId {
        self.make_room_for_process();
        self.memory.processes += 1;
        self.next_instance += 1;
        InstanceId(self.next_instance)
    }
}
