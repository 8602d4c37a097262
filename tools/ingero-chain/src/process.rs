//! One process that makes CUDA calls: its groups of calls, its gaps, its cold start, its open calls.

use std::collections::{BTreeMap, VecDeque};

use ingero_common::host::{HashMap, HashSet, Interner, Losses, Name, ProcessInstance, Program, TaskTable, Thread};
use ingero_common::record::Record;

use crate::calls::{self, Call, Facts, GroupKey, Groups, SLOW_NS};
use crate::cause::Bill;
use crate::drain::Drain;
use crate::gaps::{self, Before, Between, Bounds, Known, MIN_GAP_NS, Settled, Settlement, Union};
use crate::ops::Class;
use crate::path::{self, Sources};
use crate::rates::Rates;
use crate::startup::{self, Startup};
use crate::winddown::WindDown;

/// A call that had not returned when it was last heard of.
#[derive(Clone, Debug)]
pub struct OpenCall {
    /// Who makes it.
    pub thread: Thread,
    /// Which.
    pub call: GroupKey,
    /// Since when.
    pub start_ns: u64,
    /// Until when it was watched.
    pub end_ns: u64,
    /// What it went through so far.
    pub bill: Bill,
}

/// A gap before the rhythm is part of the start-up if it is so many times longer than any after it…
const START_UP_FACTOR: u64 = 10;
/// …and if there are no more than so many of its like: more would be a rhythm of their own.
const START_UP_GAPS: usize = 2;
/// Operations whose entries are counted apart.
const MAX_ENTRY_OPS: usize = 512;
/// Threads that are known to work; with more of them, all are thought to.
const MAX_WORKERS: usize = 4096;
/// Open calls that are remembered.
const MAX_OPEN: usize = 1024;

/// What ingero-chain knows of one life of a process that makes CUDA calls.
#[derive(Debug)]
pub struct CudaProcess {
    /// Which life, and which program in it.
    pub program: Program,
    /// TGID.
    pub pid: u32,
    /// The name of the thread that made the last call; of the main thread where it made any.
    pub name: Name,
    /// Start of its first call.
    pub first_call_ns: u64,
    /// It was traced from its beginning on: only then can there be a start-up.
    pub start_seen: bool,
    /// Its groups of calls.
    pub groups: Groups,
    /// Warming up.
    pub startup: Startup,
    /// Ending.
    pub ending: WindDown,
    /// The longest of its cold calls, in nanoseconds.
    pub longest_cold: Option<(u64, GroupKey)>,
    /// The union of its calls.
    pub union: Union,
    /// What it has not waited for.
    pub drain: Drain,
    /// How often it called what.
    pub rates: Rates,
    /// Settled stretches by the call that ends them (without size).
    pub settlements: BTreeMap<GroupKey, Settlement>,
    /// Stretches that may have held lost calls: not judged, in nanoseconds.
    pub not_judged_ns: u64,
    /// Stretches between calls in which the GPU is known to have had work, in nanoseconds.
    pub gpu_busy_ns: u64,
    /// End of the last call that returned.
    pub returned_ns: u64,
    /// End of the last call that did more than ask.
    pub progress_ns: u64,
    /// Its latest calls have no end: only their entries are traced.
    pub by_entries: bool,
    /// Calls without an end, by operation.
    pub entries: HashMap<GroupKey, u64>,
    /// Who made it.
    pub last_thread: Thread,
    /// Which call that was.
    pub last_call: Option<GroupKey>,
    /// Calls so far, nested ones not counted.
    pub calls: u64,
    /// Sum of their durations, in nanoseconds.
    pub call_ns: u128,
    /// Calls that had not returned when last heard of.
    pub open: Vec<OpenCall>,
    /// It ended, or became another program.
    pub over: bool,
    /// A bystander has heard since the last call that the GPU has work of which there is no record.
    contradicted: bool,
    /// Threads that have given the GPU work or waited for it.
    workers: HashSet<u32>,
    early: VecDeque<Between>,
    /// The latest end of a stretch that was judged.
    judged_ns: u64,
}

impl CudaProcess {
    /// A process at its first call.
    pub fn new(program: Program, pid: u32, first_call_ns: u64) -> Self {
        Self {
            program,
            pid,
            name: Name::default(),
            first_call_ns,
            start_seen: false,
            groups: Groups::default(),
            startup: Startup::default(),
            ending: WindDown::default(),
            longest_cold: None,
            union: Union::default(),
            drain: Drain::default(),
            rates: Rates::default(),
            settlements: BTreeMap::new(),
            not_judged_ns: 0,
            gpu_busy_ns: 0,
            returned_ns: first_call_ns,
            progress_ns: first_call_ns,
            by_entries: false,
            entries: HashMap::default(),
            last_thread: Thread::default(),
            last_call: None,
            calls: 0,
            call_ns: 0,
            open: Vec::new(),
            over: false,
            contradicted: false,
            workers: HashSet::default(),
            early: VecDeque::new(),
            judged_ns: 0,
        }
    }

    /// The life that it is of, while that is remembered.
    pub fn life<'t>(&self, tasks: &'t TaskTable) -> Option<&'t ProcessInstance> {
        tasks.instance(self.pid, self.program.instance)
    }

    /// Adds an outermost call.
    pub fn call(&mut self, record: &Record<'_>, start_ns: u64, dur_ns: u64, names: &mut Interner, facts: Facts<'_>) {
        let end_ns = start_ns.saturating_add(dur_ns);
        let thread = Thread { pid: self.pid, tid: record.tid.unwrap_or(self.pid), name: names.id(&record.comm) };
        let key = GroupKey::of(record, names);
        let class = self.groups.get(key).map_or_else(|| key.class(record), |group| group.class());
        if self.name == Name::default() || thread.tid == self.pid {
            self.name = thread.name;
        }
        if self.calls == 0 {
            self.start_seen |= startup::initialises(record, dur_ns);
        }
        let ending = GroupKey { size: 0, ..key };
        let first = !self.groups.has(key);
        let shows_work = calls::shows_gpu_at_work(record, class, dur_ns);
        // The first call of its kind may take long for reasons of its own, and so does one that has nothing to wait for.
        let may_have_work = if first { self.drain.has_pending() } else { !self.drain.is_drained() };
        // Such a call that shows work tells that something was enqueued of which there is no record.
        let contradicted = shows_work && !first && (class == Class::Query || dur_ns >= MIN_GAP_NS);
        let drained = self.drain.is_drained() && !contradicted && !self.contradicted;
        let may_wait = dur_ns > SLOW_NS && self.drain.may_wait(record, class, start_ns);
        // A query of which it isn't on record what it heard may have heard that the GPU was at work.
        let heard = class != Class::Query || record.ret.is_some();
        let asks_only =
            self.is_bystander(thread.tid, class, &record.op) && heard && dur_ns < MIN_GAP_NS && !record.open;
        let before = Before { drained, seq: self.calls, gpu_busy: shows_work && may_have_work, asks_only };
        if !asks_only || before.gpu_busy {
            self.union.add(start_ns, end_ns, thread, ending, before);
            self.take_back(start_ns, end_ns, thread, ending, before.gpu_busy);
        }
        self.contradicted = asks_only && (self.contradicted || contradicted);
        // A thread is in one call at a time. The same call may be told of while it hangs and again when it is over.
        self.open.retain(|o| o.thread.tid != thread.tid || (o.start_ns, o.end_ns) > (start_ns, end_ns));
        self.by_entries = false;
        if record.open {
            let known = self.open.iter().any(|o| o.thread.tid == thread.tid);
            if !known && self.open.len() < MAX_OPEN {
                let bill = calls::open_bill(record, dur_ns, names);
                self.open.push(OpenCall { thread, call: key, start_ns, end_ns, bill });
            }
            self.union.hangs(thread.tid, start_ns, end_ns);
            return;
        }
        self.union.returned(thread.tid);
        self.calls += 1;
        self.call_ns += u128::from(dur_ns);
        if end_ns >= self.returned_ns && !asks_only {
            (self.returned_ns, self.last_thread, self.last_call) = (end_ns, thread, Some(key));
        }
        if class != Class::Query {
            self.progress_ns = self.progress_ns.max(end_ns);
        }
        self.drain.add(record, class, start_ns, end_ns);
        self.ending.add(class, end_ns);
        self.rates.add(ending, start_ns, end_ns);
        let key = self.groups.open(key, class, self.pid);
        let waiting = || calls::mostly_waiting(record, dur_ns);
        if self.startup.is_cold(class, record.func.as_deref(), first, end_ns, dur_ns, waiting) {
            self.longest_cold = self.longest_cold.max(Some((dur_ns, key)));
        } else {
            self.groups.add(key, record, Call { start_ns, dur_ns, may_wait }, names, facts);
        }
    }

    /// Whether thread `tid`, which makes a call, never did anything but ask, in a process where others do. One that does
    /// something now is none from now on.
    fn is_bystander(&mut self, tid: u32, class: Class, op: &str) -> bool {
        if class.is_work() && class != Class::Query && self.workers.len() < MAX_WORKERS {
            self.workers.insert(tid);
        }
        let tells_apart = !self.workers.is_empty() && self.workers.len() < MAX_WORKERS;
        tells_apart && class.only_asks(op) && !self.workers.contains(&tid)
    }

    /// What was settled although a thread was in a call then, as is seen now.
    fn take_back(&mut self, start_ns: u64, end_ns: u64, thread: Thread, call: GroupKey, gpu_busy: bool) {
        gaps::cut(&mut self.early, start_ns, end_ns, thread, call, gpu_busy);
        if start_ns >= self.judged_ns {
            return;
        }
        let before: Vec<Settled> = self.settlements.values_mut().flat_map(|s| s.cut(start_ns, end_ns)).collect();
        let limit_ns = self.union.limit_ns();
        for gap in before {
            self.settlements.entry(call).or_default().add(gap, limit_ns);
        }
    }

    /// Adds a call of which only the entry is known. It may have lasted for any time, so that it says nothing about the
    /// time around it: no stretch between calls spans it.
    pub fn entry(&mut self, record: &Record<'_>, at_ns: u64, names: &mut Interner) {
        let key = GroupKey { size: 0, ..GroupKey::of(record, names) };
        let class = key.class(record);
        if self.name == Name::default() || record.tid.is_none_or(|tid| tid == self.pid) {
            self.name = names.id(&record.comm);
        }
        self.calls += 1;
        self.by_entries = true;
        (self.returned_ns, self.progress_ns) = (self.returned_ns.max(at_ns), self.progress_ns.max(at_ns));
        self.union.restart();
        self.drain.may_have_enqueued(class, at_ns);
        self.rates.add(key, at_ns, at_ns);
        if self.entries.len() < MAX_ENTRY_OPS || self.entries.contains_key(&key) {
            *self.entries.entry(key).or_default() += 1;
        }
    }

    /// Nobody watched its calls for some time before `at_ns`, where a tracer begins to again. It may have made any.
    pub fn watched_again(&mut self, at_ns: u64) {
        self.union.restart();
        self.open.clear();
        self.drain.may_have_enqueued(Class::Launch, at_ns);
    }

    /// A thread of it has ended; a call that it was in is over.
    pub fn thread_ended(&mut self, tid: u32) {
        self.open.retain(|open| open.thread.tid != tid);
        self.union.returned(tid);
        self.workers.remove(&tid);
    }

    /// Looks for the causes of the stretches between calls that can be settled by now. `at_end`: nothing more
    /// will come.
    pub fn settle(&mut self, now_ns: u64, delay_ns: u64, at_end: bool, sources: Sources<'_>, cuda_losses: &Losses) {
        let (now_ns, delay_ns) = if at_end { (u64::MAX, 0) } else { (now_ns, delay_ns) };
        let pid = self.pid;
        let is_dead = |tid: u32| sources.tasks.thread_is_dead(pid, tid);
        let sched_ns = if at_end || !sources.is_watched(pid) { u64::MAX } else { sources.sched.known_ns() };
        let known = Known { now_ns, delay_ns, sched_ns, is_dead };
        while let Some(between) = self.union.next_short(&known) {
            if self.startup.gaps_from_ns(at_end).is_some_and(|from_ns| between.start_ns >= from_ns) {
                self.short(&between, sources);
            }
        }
        while let Some(between) = self.union.next_settled(&known) {
            match self.startup.gaps_from_ns(at_end) {
                None if self.early.len() < 4096 => self.early.push_back(between),
                None => {}
                Some(from_ns) => {
                    for early in std::mem::take(&mut self.early) {
                        self.judge(early, from_ns, sources, cuda_losses);
                    }
                    self.judge(between, from_ns, sources, cuda_losses);
                }
            }
        }
        if at_end && let Some(from_ns) = self.startup.gaps_from_ns(true) {
            for early in std::mem::take(&mut self.early) {
                self.judge(early, from_ns, sources, cuda_losses);
            }
        }
    }

    /// Which of the stretches without calls are gaps.
    pub fn gap_bounds(&self) -> Bounds {
        let (limit_ns, until_ns) = (self.union.limit_ns(), self.wind_down_ns().unwrap_or(u64::MAX));
        // A process that had its rhythm long before it was watched has no start-up now.
        let mut rhythm_ns = self.startup.rhythm_ns().filter(|_| self.start_seen).unwrap_or(0);
        let later_ns = self.settlements.values().map(|s| s.longest_ns(rhythm_ns, until_ns)).max().unwrap_or(0);
        let early = || self.settlements.values().flat_map(|s| s.kept_gaps(limit_ns)).filter(|g| g.start_ns < rhythm_ns);
        let longest_ns = early().map(|gap| gap.len_ns).max().unwrap_or(0);
        if early().filter(|gap| gap.len_ns.saturating_mul(START_UP_FACTOR) >= longest_ns).count() > START_UP_GAPS {
            rhythm_ns = 0;
        }
        Bounds { limit_ns, rhythm_ns, start_up_from_len_ns: later_ns.saturating_mul(START_UP_FACTOR), until_ns }
    }

    /// Gaps of its start-up: before its rhythm, and nothing like them after it. Each with its start and length.
    pub fn start_up(&self, bounds: Bounds) -> impl Iterator<Item = (u64, u64)> {
        self.settlements.values().flat_map(move |s| s.start_up(bounds)).map(|gap| (gap.start_ns, gap.len_ns))
    }

    /// How it wound down, start and length: from the end of its work to its own end, where that was seen, or to the end
    /// of its last call.
    pub fn wind_down(&self, died_ns: Option<u64>) -> Option<(u64, u64)> {
        let until_ns = died_ns.unwrap_or(0).max(self.returned_ns);
        self.wind_down_ns().map(|from_ns| (from_ns, until_ns.saturating_sub(from_ns))).filter(|&(_, ns)| ns > 0)
    }

    /// From when on it only wound down: gaps after that are no lost time.
    pub fn wind_down_ns(&self) -> Option<u64> {
        self.ending.gaps_until_ns(self.over)
    }

    /// Whether stretches between its calls wait to be settled.
    pub fn has_unsettled(&self) -> bool {
        !self.early.is_empty() || self.union.oldest_pending_ns().is_some()
    }

    /// The oldest instant that a gap may still begin at: before it, nothing more is asked.
    pub fn needs_from_ns(&self) -> Option<u64> {
        let early = self.early.front().map(|b| b.start_ns);
        let open = if self.over { None } else { self.union.covered_ns().map(|_| self.returned_ns) };
        [early, self.union.oldest_pending_ns(), open].into_iter().flatten().min()
    }

    fn judge(&mut self, mut between: Between, from_ns: u64, sources: Sources<'_>, cuda_losses: &Losses) {
        let limit_ns = self.union.limit_ns();
        if between.start_ns < from_ns {
            return;
        }
        if self.calls > 1000 && between.len_ns() < limit_ns / 2 {
            return self.short(&between, sources);
        }
        if let Some(told_ns) = between.hung_at_ns {
            if between.len_ns() >= limit_ns && cuda_losses.count(self.pid, told_ns, between.end_ns) > 0 {
                self.not_judged_ns += between.len_ns();
            }
            return;
        }
        self.judged_ns = self.judged_ns.max(between.end_ns);
        // Unless a call that isn't on record may have given it something to do just before.
        if between.gpu_busy && cuda_losses.count(self.pid, between.start_ns, between.end_ns) == 0 {
            self.gpu_busy_ns += between.len_ns();
            self.rates.add_gpu_busy(between.start_ns, between.end_ns);
            return;
        }
        let certain_ns = self.certain_from_ns(&between, cuda_losses);
        // What was lost before may still be at work after.
        let lost = cuda_losses.count(self.pid, between.start_ns, between.end_ns);
        self.not_judged_ns += certain_ns - between.start_ns;
        between.start_ns = certain_ns;
        if between.len_ns() < MIN_GAP_NS {
            return;
        }
        let (start_ns, end_ns) = (between.start_ns, between.end_ns);
        let lost = lost + sources.losses.count(self.pid, start_ns, end_ns);
        let watched_ns = watched_ns(sources, self.pid, start_ns, end_ns);
        let gap = Settled {
            start_ns,
            len_ns: between.len_ns(),
            seq: between.seq,
            proven: between.drained && lost == 0 && watched_ns == between.len_ns(),
            lost,
            watched_ns,
            bill: path::bill(sources, between.thread, start_ns, end_ns),
        };
        if gap.len_ns < limit_ns {
            self.rates.add_between(end_ns, &gap.bill);
        }
        self.settlements.entry(between.call).or_default().add(gap, limit_ns);
    }

    /// A stretch far too short for a gap: only many of them together may be told of.
    fn short(&mut self, between: &Between, sources: Sources<'_>) {
        if between.gpu_busy {
            self.rates.add_gpu_busy(between.start_ns, between.end_ns);
        } else if between.hung_at_ns.is_none() {
            let bill = path::bill(sources, between.thread, between.start_ns, between.end_ns);
            self.rates.add_between(between.end_ns, &bill);
        }
    }

    /// From when on there were certainly no calls in a stretch that looks empty.
    ///
    /// A call that was lost ended while records were being lost and may have begun at any time before, so the
    /// stretch is doubtful up to the end of the loss. Where records were left out here and there over a long time
    /// instead, it is doubtful as a whole if that many calls at the process's rhythm can have made up a quarter.
    fn certain_from_ns(&self, between: &Between, cuda_losses: &Losses) -> u64 {
        let mean_ns = (self.call_ns / u128::from(self.calls.max(1))) as u64;
        let rhythm_ns = self.union.usual.median_ns() + mean_ns;
        let (mut certain_ns, mut fill_ns) = (between.start_ns, 0.0);
        for loss in cuda_losses.touching(self.pid, between.start_ns, between.end_ns) {
            let end_ns = between.end_ns.min(loss.end_ns);
            match loss.count {
                Some(0) => {}
                Some(count) if loss.sampled => {
                    let overlap_ns = end_ns - between.start_ns.max(loss.start_ns);
                    let part = overlap_ns as f64 / (loss.end_ns - loss.start_ns).max(1) as f64;
                    fill_ns += count as f64 * part * rhythm_ns as f64;
                }
                _ if loss.start_ns < between.end_ns => certain_ns = certain_ns.max(end_ns),
                _ => {}
            }
        }
        if fill_ns >= between.len_ns() as f64 / 4.0 { between.end_ns } else { certain_ns }
    }
}

/// How much of [`from_ns`, `to_ns`] the scheduler tracer watched process `pid` without losing a record.
pub fn watched_ns(sources: Sources<'_>, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
    let parts = sources.watched(pid, from_ns, to_ns);
    parts.map(|part| part.len_ns() - sources.losses.lost_ns(pid, part.start_ns, part.end_ns)).sum()
}

/// When its program ended, where that is known and still remembered.
pub fn died_ns(tasks: &TaskTable, process: &CudaProcess) -> Option<u64> {
    process.life(tasks).and_then(|life| life.program_end_ns(process.program))
}
