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

use super::cpu_timeline::SwitchedIn;
use super::hash::HashMap;
use super::instance::{Birth, InstanceId, OffCpu, ProcessInstance, SwitchedOut, ThreadInstance};
use super::interner::Name;
use super::state::State;
use super::task::Thread;
use super::tracers::Side;
use super::watch::Watch;

/// 64 bytes each.
pub const MAX_OFFS: usize = 400_000;
/// Lives of threads that are remembered.
const MAX_THREADS: usize = 100_000;
/// Lives of processes that are remembered.
const MAX_PROCESSES: usize = 50_000;
/// Two CPUs may report a birth and what follows it in the wrong order, at most so far apart.
const SKEW_NS: u64 = 1_000_000;

/// All lives that may still matter.
#[derive(Debug, Default)]
pub struct TaskTable {
    threads: HashMap<u32, Vec<ThreadInstance>>,
    processes: HashMap<u32, Vec<ProcessInstance>>,
    thread_lives: usize,
    process_lives: usize,
    next_life: u32,
    offs: usize,
    forgotten_ns: u64,
}

impl TaskTable {
    /// The life of process `pid` at `at_ns`; the one that was seen first where there is none, from then on.
    pub fn process(&mut self, pid: u32, at_ns: u64) -> &mut ProcessInstance {
        if self.find_process(pid, at_ns).is_none() {
            self.new_process(pid, None, at_ns);
        }
        let lives = self.processes.entry(pid).or_default();
        let at = position_at(lives, at_ns).unwrap_or(lives.len() - 1);
        &mut lives[at]
    }

    /// The life of process `pid` that something over [`start_ns`, `end_ns`] belongs to: the one in which it began. Its end
    /// may have been noticed by another tracer, a little after the exit.
    pub fn process_over(&mut self, pid: u32, start_ns: u64, end_ns: u64) -> &mut ProcessInstance {
        let skewed_ns = start_ns.saturating_sub(SKEW_NS);
        let known = [start_ns, end_ns, skewed_ns].into_iter().find(|&at_ns| self.find_process(pid, at_ns).is_some());
        self.process(pid, known.unwrap_or(end_ns))
    }

    /// The life of process `pid` at `at_ns`, if one is known.
    pub fn find_process(&self, pid: u32, at_ns: u64) -> Option<&ProcessInstance> {
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
    pub fn instances(&self, pid: u32) -> impl Iterator<Item = &ProcessInstance> {
        self.processes.get(&pid).into_iter().flatten()
    }

    /// The lives that this one descends from, parents first, as far as births are on record.
    pub fn ancestors<'a>(&'a self, life: &'a ProcessInstance) -> impl Iterator<Item = &'a ProcessInstance> {
        let parent = |life: &'a ProcessInstance| life.birth.and_then(|b| self.find_process(b.parent.pid, b.at_ns));
        // A few generations: fork servers and shells between. A bound, since records may say anything.
        std::iter::successors(parent(life), move |life| parent(life)).take(8)
    }

    /// A life by its identity.
    pub fn instance(&self, pid: u32, id: InstanceId) -> Option<&ProcessInstance> {
        self.processes.get(&pid)?.iter().find(|life| life.id == id)
    }

    /// Every process life that is remembered, by identity.
    pub fn processes(&self) -> Vec<&ProcessInstance> {
        let mut all: Vec<_> = self.processes.values().flatten().collect();
        all.sort_by_key(|life| life.id);
        all
    }

    /// The life of thread `tid` of process `pid` at `at_ns`; where it had none yet, the one that began next.
    pub fn thread(&self, pid: u32, tid: u32, at_ns: u64) -> Option<&ThreadInstance> {
        let lives = self.threads.get(&tid)?;
        let own = || lives.iter().filter(move |life| life.pid == pid);
        let next = |life: &&ThreadInstance| life.birth.is_some_and(|b| b.at_ns > at_ns);
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
    pub fn exit_process(&mut self, pid: u32, at_ns: u64) -> Option<InstanceId> {
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
    pub fn add_off(&mut self, pid: u32, tid: u32, mut off: OffCpu, cpu: Option<u32>) -> Option<SwitchedOut> {
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
        let fits = |l: &ThreadInstance| l.pid == pid && l.covers(off.start_ns.saturating_add(SKEW_NS), off.end_ns);
        let life = lives.iter_mut().rev().find(|l| fits(l))?;
        if let Some(birth) = life.birth {
            off.start_ns = off.start_ns.max(birth.at_ns).min(off.end_ns);
            off.wake_ns = off.wake_ns.max(off.start_ns);
        }
        // A record out of its order says nothing of where the thread was before it.
        let switched_in = life.switched_in.filter(|came| came.at_ns <= off.start_ns);
        if off.state == State::Preempted {
            off.waited_on = switched_in.and_then(|came| u16::try_from(came.cpu).ok());
        }
        if life.switched_in.is_none_or(|came| came.at_ns <= off.end_ns) {
            life.switched_in = cpu.map(|cpu| SwitchedIn { at_ns: off.end_ns, cpu });
        }
        life.seen_ns = life.seen_ns.max(off.end_ns);
        let at = life.offs.iter().rposition(|o| o.start_ns <= off.start_ns).map_or(0, |before| before + 1);
        life.offs.insert(at, off);
        self.offs += 1;
        Some(SwitchedOut { switched_in, at_ns: off.start_ns })
    }

    /// When and where thread `tid` of process `pid`, which runs at `at_ns`, came on its CPU.
    pub fn switched_in(&self, pid: u32, tid: u32, at_ns: u64) -> Option<SwitchedIn> {
        self.thread(pid, tid, at_ns)?.switched_in.filter(|came| came.at_ns <= at_ns)
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
            let keep = |l: &ThreadInstance| {
                l.died_ns.is_none_or(|d| d >= horizon_ns) && (!l.offs.is_empty() || l.died_ns.is_none())
            };
            self.retain_threads(keep);
            if self.thread_lives > MAX_THREADS {
                self.retain_threads(|l| !l.offs.is_empty());
            }
        }
    }

    fn retain_threads(&mut self, keep: impl Fn(&ThreadInstance) -> bool) {
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
        lives.push(ThreadInstance::new(pid, birth, after_ns, seen_ns));
        let process = self.process(pid, seen_ns);
        if process.died_ns.is_none() && process.threads.len() < MAX_THREADS {
            process.threads.push(tid);
        }
    }

    fn new_process(&mut self, pid: u32, birth: Option<Birth>, seen_ns: u64) {
        let id = InstanceId(self.next_life);
        self.next_life += 1;
        self.process_lives += 1;
        let life = ProcessInstance {
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
fn position_at(lives: &[ProcessInstance], at_ns: u64) -> Option<usize> {
    let began = |at: usize| match lives[at].birth {
        Some(birth) => birth.at_ns <= at_ns,
        None => at.checked_sub(1).and_then(|before| lives[before].died_ns).is_none_or(|died_ns| died_ns < at_ns),
    };
    let at = (0..lives.len()).rev().find(|&at| began(at))?;
    lives[at].died_ns.is_none_or(|died_ns| at_ns <= died_ns).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::task::Task;
    use super::*;

    fn thread(pid: u32, tid: u32) -> Thread {
        Thread { pid, tid, name: Name::default() }
    }

    fn off(start_ns: u64, end_ns: u64) -> OffCpu {
        OffCpu {
            start_ns,
            wake_ns: end_ns,
            end_ns,
            waker: Thread::default(),
            had_cpu: [Task::default(); 2],
            state: State::Sleep,
            cpu_was_free: false,
            waited_on: None,
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_reused_pid_inherits_nothing() {
        let mut tasks = TaskTable::default();
        let first = tasks.process(100, 1000 * MS).id;
        assert!(tasks.add_off(100, 100, off(1100 * MS, 1200 * MS), None).is_some());
        assert_eq!(tasks.exit_process(100, 2000 * MS), Some(first));
        tasks.fork(thread(1, 1), 100, 5000 * MS);
        assert!(tasks.add_off(100, 100, off(1900 * MS, 5150 * MS), None).is_none());
        assert!(tasks.add_off(100, 100, off(5001 * MS, 5100 * MS), None).is_some());
        assert!(tasks.add_off(100, 100, off(1900 * MS, 1950 * MS), None).is_some(), "late, but of the first life");
        assert_eq!(tasks.process(100, 1500 * MS).id, first);
        assert_eq!(tasks.find_process(100, 3000 * MS).map(|l| l.id), None);
        assert_ne!(tasks.process(100, 5500 * MS).id, first);
        assert_eq!(tasks.thread(100, 100, 5050 * MS).unwrap().offs(0, u64::MAX).count(), 1);
    }

    #[test]
    fn a_second_life_without_a_birth_begins_after_the_first() {
        let mut tasks = TaskTable::default();
        tasks.process(7, MS);
        assert!(tasks.add_off(7, 7, off(2 * MS, 3 * MS), None).is_some());
        tasks.exit_process(7, 10 * MS);
        assert!(tasks.add_off(7, 7, off(20 * MS, 30 * MS), None).is_some());
        let offs = |at_ns| tasks.thread(7, 7, at_ns).map(|life| life.offs(0, u64::MAX).count());
        assert_eq!((offs(5 * MS), offs(25 * MS)), (Some(1), Some(1)));
        assert_eq!(tasks.thread(7, 7, 5 * MS).unwrap().offs(0, u64::MAX).next().unwrap().end_ns, 3 * MS);
    }

    #[test]
    fn a_life_without_a_birth_is_none_of_those_before() {
        let mut tasks = TaskTable::default();
        let mut ids = Vec::new();
        for at_ns in [10 * MS, 30 * MS] {
            tasks.fork(thread(1, 1), 7, at_ns);
            ids.push(tasks.process(7, at_ns).id);
            tasks.exit_process(7, at_ns + 10 * MS);
        }
        // The third fork was lost, and the exit.
        ids.push(tasks.process(7, 60 * MS).id);
        tasks.fork(thread(1, 1), 7, 90 * MS);
        ids.push(tasks.process(7, 90 * MS).id);
        let at = |ms| tasks.find_process(7, ms * MS).and_then(|life| ids.iter().position(|&id| id == life.id));
        assert_eq!([5, 15, 25, 35, 50, 60, 95].map(at), [None, Some(0), None, Some(1), Some(2), Some(2), Some(3)]);
    }

    #[test]
    fn threads_end_with_their_process() {
        let mut tasks = TaskTable::default();
        tasks.process(7, MS);
        tasks.create_thread(thread(7, 8), thread(7, 7), 2 * MS);
        tasks.exit_process(7, 9 * MS);
        assert!(tasks.thread(7, 8, 8 * MS).is_some() && tasks.thread_is_dead(7, 8));
        assert!(tasks.thread(7, 8, 10 * MS).is_none());
    }

    #[test]
    fn memory_is_bounded_and_what_is_dropped_is_known_to_be_unknown() {
        let mut tasks = TaskTable::default();
        let n = MAX_OFFS as u64 + 1;
        for i in 0..n {
            tasks.add_off(7, 7, off(i * 10, i * 10 + 5), None);
        }
        tasks.forget_before(50, n * 10);
        assert!(tasks.off_count() <= MAX_OFFS / 4 * 3);
        let life = tasks.thread(7, 7, n * 10).unwrap();
        assert!(life.unknown_before_ns > 50);
        assert!(life.offs(0, u64::MAX).all(|o| o.end_ns > life.unknown_before_ns));
    }
}
