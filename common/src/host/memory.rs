//! How much of the past the task table keeps.
//!
//! What nobody asks for any more goes at once. Where that is not enough, the older half of what is left goes, and again; each
//! thread remembers from when on its past is known. Instances are swept when there are many: those that have ended first,
//! then those that were seen longest ago. A sweep leaves room for many more, so that all sweeps together cost little.

use super::HashSet;
use super::interner::Name;
use super::process::ProcessInstance;
use super::table::TaskTable;
use super::thread::ThreadInstance;

/// How much a table keeps.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Times off the CPU, of 72 bytes each, and page allocations.
    pub entries: usize,
    /// Instances of threads.
    pub threads: usize,
    /// Instances of processes.
    pub processes: usize,
    /// Only threads of processes that make CUDA calls are asked for: the past of the others goes first.
    pub callers_last: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 400_000, threads: 100_000, processes: 50_000, callers_last: false }
    }
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    limits: Limits,
    pub(super) entries: usize,
    pub(super) threads: usize,
    pub(super) processes: usize,
    /// The threads are swept when there are more.
    sweep_threads: usize,
    /// Nothing is asked for that ended before.
    horizon_ns: u64,
    /// Processes that were forgotten although they had not ended, as far as is known.
    forgotten: u64,
}

impl Memory {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }
}

impl TaskTable {
    /// How many times off the CPU and page allocations are kept.
    pub fn entries(&self) -> usize {
        self.memory.entries
    }

    /// Whether that is more than the limit: then [`Self::make_room`] is due.
    pub fn is_full(&self) -> bool {
        self.memory.entries > self.memory.limits.entries
    }

    /// How many processes were forgotten for want of room although no record says that they had ended.
    pub fn forgotten(&self) -> u64 {
        self.memory.forgotten
    }

    /// Nothing more is asked for that ended before `horizon_ns`. What is left, up to `now_ns`, is cut to the limit.
    pub fn forget_before(&mut self, horizon_ns: u64, now_ns: u64) {
        self.drop_before(horizon_ns, false, |_, _| true);
        self.make_room(horizon_ns, now_ns);
    }

    /// Nothing more is asked for of this thread that ended before `before_ns`.
    pub fn forget_of_thread(&mut self, pid: u32, tid: u32, before_ns: u64) {
        let Some(threads) = self.threads.get_mut(&tid) else { return };
        for thread in threads.0.iter_mut().filter(|thread| thread.pid == pid) {
            let kept = thread.len();
            thread.forget_before(before_ns, false);
            self.memory.entries -= kept - thread.len();
        }
    }

    /// Drops what lies before `now_ns` until a quarter of the limit is free: first what ended before `horizon_ns` of threads
    /// that have ended by then, then the older half of the rest, and again.
    pub fn make_room(&mut self, horizon_ns: u64, now_ns: u64) {
        self.memory.horizon_ns = self.memory.horizon_ns.max(horizon_ns);
        let goal = self.memory.limits.entries / 4 * 3;
        if self.memory.entries > goal {
            self.drop_before(horizon_ns, false, |thread, _| thread.died_ns.is_some_and(|died_ns| died_ns < horizon_ns));
        }
        for callers_too in [!self.memory.limits.callers_last, true] {
            let mut cut_ns = horizon_ns.max(self.oldest_ns());
            while self.memory.entries > goal && cut_ns < now_ns {
                cut_ns += (now_ns - cut_ns).div_ceil(2);
                self.drop_before(cut_ns, true, |_, made_calls| callers_too || !made_calls);
            }
        }
    }

    /// Gives all names that are kept a new number.
    pub fn rename(&mut self, mut new: impl FnMut(Name) -> Name) {
        for off in self.threads.values_mut().flat_map(|all| &mut all.0).flat_map(ThreadInstance::off_cpu_mut) {
            off.waker.name = new(off.waker.name);
            off.wait.text = new(off.wait.text);
            off.gil = off.gil.map(|(tid, name)| (tid, new(name)));
            off.had_cpu.iter_mut().for_each(|task| task.name = new(task.name));
        }
        for process in self.processes.values_mut().flat_map(|all| &mut all.0) {
            process.name = new(process.name);
        }
    }

    fn oldest_ns(&self) -> u64 {
        let threads = self.threads.values().flat_map(|all| &all.0);
        threads.filter_map(ThreadInstance::oldest_ns).min().unwrap_or(u64::MAX)
    }

    /// Drops what ended before, of the threads that `of` names: what it is given is whether their process makes calls.
    fn drop_before(&mut self, before_ns: u64, needed: bool, of: impl Fn(&ThreadInstance, bool) -> bool) {
        for thread in self.threads.values_mut().flat_map(|all| &mut all.0) {
            if thread.oldest_ns().is_none_or(|oldest_ns| oldest_ns > before_ns) {
                continue;
            }
            let processes = self.processes.get(&thread.pid);
            let made_calls = processes.is_some_and(|all| all.0.iter().any(|process| process.made_calls()));
            if of(thread, made_calls) {
                let kept = thread.len();
                thread.forget_before(before_ns, needed);
                self.memory.entries -= kept - thread.len();
            }
        }
    }

    /// Before a thread is added.
    pub(super) fn make_room_for_thread(&mut self) {
        let (limit, horizon_ns) = (self.memory.limits.threads, self.memory.horizon_ns);
        if self.memory.threads < limit.max(self.memory.sweep_threads) {
            return;
        }
        self.retain_threads(|thread| thread.died_ns.is_none_or(|died_ns| died_ns >= horizon_ns && thread.len() > 0));
        if self.memory.threads > limit / 2 {
            self.retain_threads(|thread| thread.len() > 0);
        }
        // Those with a past are as many as its limit allows.
        self.memory.sweep_threads = self.memory.threads + limit / 2;
    }

    fn retain_threads(&mut self, keep: impl Fn(&ThreadInstance) -> bool) {
        self.threads.retain(|_, threads| {
            threads.0.retain(&keep);
            !threads.0.is_empty()
        });
        let left = || self.threads.values().flat_map(|all| &all.0);
        (self.memory.threads, self.memory.entries) = (left().count(), left().map(ThreadInstance::len).sum());
    }

    /// Before a process is added.
    pub(super) fn make_room_for_process(&mut self) {
        let (limit, horizon_ns) = (self.memory.limits.processes, self.memory.horizon_ns);
        if self.memory.processes < limit {
            return;
        }
        // Those that have ended make room for many, the others for as many as must be: those that make calls go last.
        let ended = |p: &ProcessInstance| p.died_ns.is_some_and(|died_ns| died_ns < horizon_ns);
        let mut all: Vec<_> = self.processes.values().flat_map(|all| &all.0).collect();
        all.sort_by_key(|p| (!ended(p), p.made_calls(), p.seen_ns));
        let over = all.partition_point(|p| ended(p)).max(all.len().saturating_sub(limit / 4 * 3));
        let over = over.min(all.len().saturating_sub(limit / 2));
        self.memory.forgotten += all[..over].iter().filter(|process| process.died_ns.is_none()).count() as u64;
        let gone: HashSet<_> = all[..over].iter().map(|process| process.id).collect();
        self.processes.retain(|_, processes| {
            processes.0.retain(|process| !gone.contains(&process.id));
            !processes.0.is_empty()
        });
        self.memory.processes -= gone.len();
    }
}
