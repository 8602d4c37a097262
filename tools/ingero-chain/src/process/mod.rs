//! One process that uses CUDA: what phase it is in, and where each nanosecond of it went.

pub(crate) mod class;
pub(crate) mod ledger;
pub(crate) mod lost;
pub(crate) mod phases;
pub(crate) mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod timeline;

use ingero_common::cuda_api::Class as Kind;
use ingero_common::host::{HashMap, HashSet, Interner, Losses, Name, ProcessInstance, Program, TaskTable, Thread};
use ingero_common::record::Record;

use crate::blame::breakdown::Breakdown;
use crate::blame::path::Sources;
use crate::gpu::activity;
use crate::gpu::capture::Captures;
use crate::gpu::outstanding::{Known, Outstanding};
use crate::limits::{LOOK_NS, MAX_ENTRY_OPS, MAX_NAMES, MAX_OPEN, MAX_WORKERS, SILENT_NS, SLOW_NS};
use crate::process::class::{Class, Classes, Doing};
use crate::process::ledger::Ledger;
use crate::process::phases::Phases;
use crate::process::sweep::{Context, Sweep, Tally, Waits};
use crate::process::timeline::{InCall, Item, Timeline};
use crate::stats::calls::{Call, Facts, GroupKey, Groups};
use crate::stats::parts;

/// A call that had not returned when it was last heard of.
#[derive(Clone, Debug)]
pub(crate) struct OpenCall {
    /// Who makes it.
    pub(crate) thread: Thread,
    /// Which.
    pub(crate) call: GroupKey,
    /// Since when.
    pub(crate) start_ns: u64,
    /// Until when it was watched.
    pub(crate) end_ns: u64,
    /// What it went through so far.
    pub(crate) breakdown: Breakdown,
}

/// What was last heard of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Last {
    /// End of the last call that returned.
    pub(crate) returned_ns: u64,
    /// End of the last call that did more than ask.
    pub(crate) progress_ns: u64,
    /// Who made the last call.
    pub(crate) thread: Thread,
    /// Which that was.
    pub(crate) call: Option<GroupKey>,
    /// Its latest calls have no end: only their entries are traced.
    pub(crate) by_entries: bool,
}

/// Names and places that repeat in the calls of a process.
#[derive(Debug, Default)]
struct Seen {
    threads: HashMap<u32, Name>,
    ops: Vec<GroupKey>,
    places: HashMap<GroupKey, u32>,
    /// Threads that have given the GPU work or waited for it.
    workers: HashSet<u32>,
}

impl Seen {
    fn op(&mut self, key: GroupKey) -> u32 {
        let next = self.ops.len();
        if next >= MAX_NAMES {
            return self.places.get(&key).copied().unwrap_or(u32::MAX);
        }
        *self.places.entry(key).or_insert_with(|| {
            self.ops.push(key);
            next as u32
        })
    }

    fn thread(&mut self, thread: Thread) {
        if self.threads.len() < MAX_NAMES || self.threads.contains_key(&thread.tid) {
            self.threads.insert(thread.tid, thread.name);
        }
    }

    /// Whether thread `tid`, which makes a call, never did anything but ask, in a process where others do. One that does
    /// something now is none from now on.
    fn only_asks(&mut self, tid: u32, function: Known) -> bool {
        let query = function.is_some_and(|function| function.class == Kind::Query);
        if phases::is_work(function) && !query && self.workers.len() < MAX_WORKERS {
            self.workers.insert(tid);
        }
        let tells_apart = !self.workers.is_empty() && self.workers.len() < MAX_WORKERS;
        tells_apart && function.is_some_and(|function| function.only_asks()) && !self.workers.contains(&tid)
    }
}

/// What ingero-chain knows of one program in one life of a process that makes CUDA calls.
#[derive(Debug)]
pub(crate) struct CudaProcess {
    pub(crate) program: Program,
    /// TGID.
    pub(crate) pid: u32,
    /// The name of the thread that made the last call; of the main thread where it made any.
    pub(crate) name: Name,
    /// Start of its first call.
    pub(crate) first_call_ns: u64,
    pub(crate) groups: Groups,
    pub(crate) phases: Phases,
    pub(crate) outstanding: Outstanding,
    captures: Captures,
    pub(crate) last: Last,
    /// Calls so far, nested ones not counted.
    pub(crate) calls: u64,
    /// Calls without an end, by operation.
    pub(crate) entries: HashMap<GroupKey, u64>,
    /// Calls that had not returned when last heard of.
    pub(crate) open: Vec<OpenCall>,
    /// It ended, or became another program.
    pub(crate) over: bool,
    seen: Seen,
    timeline: Timeline,
    books: Books,
}

/// The account and what leads to it.
#[derive(Clone, Debug, Default)]
struct Books {
    sweep: Sweep,
    ledger: Ledger,
    /// Where the first item began.
    first_ns: Option<u64>,
    /// All up to here has been swept.
    swept_ns: u64,
}

/// The account of one process as it is told.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Where it was observed, from and to.
    pub(crate) observed_ns: (u64, u64),
    /// Where its loop ran, from and to; equal where it had none.
    pub(crate) loop_ns: (u64, u64),
    /// All of what was observed, by class.
    pub(crate) classes: Classes,
    /// Lost time and the calls that it went before.
    pub(crate) ledger: Ledger,
    /// Idle intervals of the loop.
    pub(crate) drains: u64,
    /// Time between calls in which the GPU is known to have been at work although it was long.
    pub(crate) busy_ns: u64,
    /// What calls took of some classes, by operation.
    pub(crate) tally: Tally,
    /// How often it had to wait for the GPU right after it had given it work.
    pub(crate) waits: Waits,
}

impl Account {
    pub(crate) fn loop_len_ns(&self) -> u64 {
        self.loop_ns.1 - self.loop_ns.0
    }
}

impl CudaProcess {
    /// A process at its first call.
    pub(crate) fn new(program: Program, pid: u32, first_call_ns: u64) -> Self {
        Self {
            program,
            pid,
            name: Name::default(),
            first_call_ns,
            groups: Groups::default(),
            phases: Phases::default(),
            outstanding: Outstanding::default(),
            captures: Captures::default(),
            last: Last { returned_ns: first_call_ns, progress_ns: first_call_ns, ..Last::default() },
            calls: 0,
            entries: HashMap::default(),
            open: Vec::new(),
            over: false,
            seen: Seen::default(),
            timeline: Timeline::default(),
            books: Books::default(),
        }
    }

    /// The life that it is part of.
    pub(crate) fn instance<'a>(&self, tasks: &'a TaskTable) -> Option<&'a ProcessInstance> {
        tasks.instance(self.pid, self.program.instance)
    }

    /// Adds a call over [`start_ns`, + `dur_ns`] of depth 0.
    pub(crate) fn call(
        &mut self,
        record: &Record<'_>,
        start_ns: u64,
        dur_ns: u64,
        names: &mut Interner,
        facts: Facts<'_>,
    ) {
        let end_ns = start_ns.saturating_add(dur_ns);
        let thread = Thread { pid: self.pid, tid: record.tid.unwrap_or(self.pid), name: names.id(&record.comm) };
        let key = GroupKey::of(record, names);
        let function = self.captures.function(record, key.function(record));
        self.captures.add(record, key.function(record));
        if self.name == Name::default() || thread.tid == self.pid {
            self.name = thread.name;
        }
        self.seen.thread(thread);
        self.first_call_ns = self.first_call_ns.min(start_ns);
        if self.calls == 0 {
            self.phases.start_seen |= phases::initialises(record, function, dur_ns);
        }
        let drained = self.outstanding.is_drained();
        let may_wait = dur_ns > SLOW_NS && self.outstanding.may_wait(record, function, start_ns);
        // A thread is in one call at a time. The same call may be told of while it hangs and again when it is over.
        self.open.retain(|o| o.thread.tid != thread.tid || (o.start_ns, o.end_ns) > (start_ns, end_ns));
        self.last.by_entries = false;
        let first = !self.groups.has(key);
        let call = phases::Call { function, func: record.func.as_deref(), first, end_ns, dur_ns };
        let cold = !record.open && self.phases.add(call, || parts::mostly_waiting(record, dur_ns));
        if let Some(at_ns) = self.phases.at_work_ns(false) {
            self.timeline.mark(at_ns);
        }
        let doing = activity::doing(record, function, dur_ns, cold, drained);
        let op = self.seen.op(GroupKey { size: 0, ..key });
        let asks_only = self.place(record, &call, InCall { tid: thread.tid, op, doing }, start_ns);
        if record.open {
            return self.hangs(record, thread, InCall { tid: thread.tid, op, doing }, (start_ns, end_ns), names);
        }
        self.timeline.returned(thread.tid);
        self.calls += 1;
        if end_ns >= self.last.returned_ns && !asks_only {
            (self.last.returned_ns, self.last.thread, self.last.call) = (end_ns, thread, Some(key));
        }
        if function.is_none_or(|function| function.class != Kind::Query) {
            self.last.progress_ns = self.last.progress_ns.max(end_ns);
        }
        self.outstanding.add(record, function, start_ns, end_ns);
        let key = self.groups.open(key, function, self.pid);
        // While the GPU is known to be idle, the time in a call that gives it nothing to do is idle time, not slowness.
        let is_idle = drained && !doing.feeds();
        if !cold {
            self.groups.add(key, record, Call { start_ns, dur_ns, may_wait, is_idle }, names, facts);
        }
    }

    /// Puts a call in its place in time. Says whether it is a mere look of a thread that only asks.
    fn place(&mut self, record: &Record<'_>, call: &phases::Call<'_>, in_call: InCall, start_ns: u64) -> bool {
        let (function, dur_ns, end_ns) = (call.function, call.dur_ns, call.end_ns);
        let drained = self.outstanding.is_drained();
        let query = function.is_some_and(|function| function.class == Kind::Query);
        let shows_work = activity::shows_gpu_at_work(record, function, dur_ns);
        let waited_for_all = self.outstanding.is_drained_on_record();
        // The first call of its kind may take long for reasons of its own, and so does one that has nothing to wait for.
        let may_have_work = if call.first { self.outstanding.has_pending() } else { !waited_for_all };
        // Such a call that shows work tells that something was enqueued of which there is no record.
        let contradicted = waited_for_all && shows_work && !call.first && (query || dur_ns >= LOOK_NS);
        // A query of which it isn't on record what it heard may have heard that the GPU was at work.
        let heard = !query || record.ret.is_some();
        let asks_only = self.seen.only_asks(in_call.tid, function) && heard && dur_ns < LOOK_NS && !record.open;
        if shows_work && may_have_work || contradicted {
            self.timeline.extend_to(start_ns, drained);
            self.timeline.gpu_was_busy(start_ns, contradicted);
        }
        if contradicted && query {
            self.outstanding.has_unrecorded();
        }
        if asks_only {
            if query && !drained {
                // If it hears that all is done, that is known from here on.
                self.timeline.extend_to(end_ns, false);
            }
            return true;
        }
        let mut drained = drained && !contradicted;
        if function.is_none() {
            // It may give the GPU work.
            self.timeline.extend_to(start_ns, drained);
            drained = false;
        }
        let waited_ns = match in_call.doing {
            Doing::Copy | Doing::Upload if !drained => activity::waited_before_copy_ns(record, dur_ns),
            _ => 0,
        };
        let copies_ns = start_ns.saturating_add(waited_ns);
        if waited_ns > 0 {
            self.timeline.add(start_ns, copies_ns, InCall { doing: Doing::WaitToCopy, ..in_call }, drained);
        }
        self.timeline.add(copies_ns, end_ns, in_call, drained);
        false
    }

    /// A call had not returned when it was told of.
    fn hangs(
        &mut self,
        record: &Record<'_>,
        thread: Thread,
        call: InCall,
        (start_ns, end_ns): (u64, u64),
        names: &mut Interner,
    ) {
        let known = self.open.iter().any(|o| o.thread.tid == thread.tid);
        if !known && self.open.len() < MAX_OPEN {
            let breakdown = parts::open_breakdown(record, end_ns - start_ns, names);
            let key = GroupKey::of(record, names);
            self.open.push(OpenCall { thread, call: key, start_ns, end_ns, breakdown });
        }
        self.timeline.hangs(call, start_ns, end_ns);
    }

    /// Adds a call of which only the entry is known. It may have lasted for any time, so that it says nothing about the
    /// time around it.
    pub(crate) fn entry(&mut self, record: &Record<'_>, at_ns: u64, names: &mut Interner) {
        let key = GroupKey { size: 0, ..GroupKey::of(record, names) };
        let function = key.function(record);
        if self.name == Name::default() || record.tid.is_none_or(|tid| tid == self.pid) {
            self.name = names.id(&record.comm);
        }
        self.calls += 1;
        self.last.by_entries = true;
        (self.last.returned_ns, self.last.progress_ns) =
            (self.last.returned_ns.max(at_ns), self.last.progress_ns.max(at_ns));
        self.timeline.lose_sight(at_ns);
        self.outstanding.may_have_enqueued(function, at_ns);
        if self.entries.len() < MAX_ENTRY_OPS || self.entries.contains_key(&key) {
            *self.entries.entry(key).or_default() += 1;
        }
    }

    /// Nobody watched its calls for some time before `at_ns`, where a tracer begins to again. It may have made any.
    pub(crate) fn watched_again(&mut self, at_ns: u64) {
        self.timeline.lose_sight(at_ns);
        self.open.clear();
        self.outstanding.may_have_enqueued(None, at_ns);
    }

    /// A thread of it has ended; a call that it was in is over.
    pub(crate) fn thread_ended(&mut self, tid: u32) {
        self.open.retain(|open| open.thread.tid != tid);
        self.timeline.returned(tid);
        self.seen.workers.remove(&tid);
    }

    /// No more calls will come: all up to `end_ns` is known.
    pub(crate) fn end(&mut self, end_ns: u64) {
        self.timeline.extend_to(end_ns, self.outstanding.is_drained());
    }

    /// Counts what can be counted by now. `at_end`: nothing more will come.
    pub(crate) fn settle(&mut self, until: &Until, at_end: bool, sources: Sources<'_>, cuda_losses: &Losses) {
        let pid = self.pid;
        let known_ns = if at_end {
            u64::MAX
        } else {
            let is_dead = |tid: u32| sources.tasks.thread_is_dead(pid, tid);
            let sched_ns = if sources.is_watched(pid) { sources.sched.known_ns() } else { u64::MAX };
            let calls_ns = self.timeline.known_ns(until.now_ns, SILENT_NS, is_dead);
            sched_ns.min(calls_ns).min(until.now_ns.saturating_sub(until.delay_ns))
        };
        let at_work_ns = self.phases.at_work_ns(at_end);
        // One that never began its loop did nothing but start up.
        let never = at_end && at_work_ns.is_none();
        let start_up_ns = at_work_ns.unwrap_or_else(|| if never { u64::MAX } else { self.phases.start_up_until_ns() });
        let known_ns = if at_work_ns.is_none() { known_ns.min(start_up_ns) } else { known_ns };
        let (mut books, seen) = (std::mem::take(&mut self.books), &self.seen);
        let thread = |tid| seen.thread_of(pid, tid);
        let context = Context { pid, sources, cuda_losses, ops: &seen.ops, thread: &thread, alone: until.alone };
        while let Some(item) = self.timeline.pop(known_ns) {
            books.first_ns.get_or_insert(item.start_ns());
            books.swept_ns = item.end_ns();
            books.take(item, start_up_ns, &context);
        }
        if books.ledger.is_early()
            && let Some(at_work_ns) = at_work_ns
        {
            books.decide(&self.phases, at_work_ns, at_end);
        }
        self.books = books;
    }

    /// Whether anything waits to be counted.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.timeline.oldest_ns().is_some() || self.books.sweep.needs_from_ns().is_some()
    }

    /// The oldest instant that lost time may still begin at: before it, nothing more is asked.
    pub(crate) fn needs_from_ns(&self) -> Option<u64> {
        let open = if self.over { None } else { self.timeline.covered_ns().map(|_| self.last.returned_ns) };
        [self.books.sweep.needs_from_ns(), self.timeline.oldest_ns(), open].into_iter().flatten().min()
    }

    /// The longest of its lost intervals, in nanoseconds.
    pub(crate) fn longest_lost_ns(&self) -> u64 {
        let counted = self.books.ledger.lost.values().map(|sum| sum.lengths.max_ns()).max().unwrap_or(0);
        self.books.ledger.early_lost().map(|(_, len_ns)| len_ns).fold(counted, u64::max)
    }

    /// The account from `observed_from_ns` on. `tail`: what becomes of the time after the last work.
    pub(crate) fn account(&self, observed_from_ns: u64, tail: Tail, context: (Sources<'_>, &Losses)) -> Account {
        let (sources, cuda_losses) = context;
        let mut books = self.books.clone();
        let thread = |tid| self.seen.thread_of(self.pid, tid);
        let context =
            Context { pid: self.pid, sources, cuda_losses, ops: &self.seen.ops, thread: &thread, alone: false };
        let rest = books.sweep.finish(&context, &mut books.ledger);
        if books.ledger.is_early() {
            let at_work_ns = self.phases.at_work_ns(true).unwrap_or(u64::MAX);
            books.decide(&self.phases, at_work_ns, true);
        }
        books.account(observed_from_ns, self.timeline.covered_ns().unwrap_or(self.first_call_ns), tail, &rest)
    }
}

/// How far the streams are known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// The latest end of any record.
    pub(crate) now_ns: u64,
    /// What ended so long before that is complete.
    pub(crate) delay_ns: u64,
    /// It is the only process with CUDA calls.
    pub(crate) alone: bool,
}

/// What becomes of the time after the last work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// The stream goes on: it can't be judged yet, and is left out.
    Open,
    /// The process shut down, or did nothing more by the end.
    ShutDown,
    /// It is part of the loop: the process never got on.
    Stalled,
}

impl Seen {
    fn thread_of(&self, pid: u32, tid: u32) -> Thread {
        Thread { pid, tid, name: self.threads.get(&tid).copied().unwrap_or_default() }
    }
}

impl Books {
    /// Takes an item, of which what lies before `start_up_ns` is start-up.
    fn take(&mut self, item: Item, start_up_ns: u64, context: &Context<'_>) {
        if item.end_ns() <= start_up_ns {
            return self.ledger.start_up(item.end_ns() - item.start_ns());
        }
        if item.start_ns() >= start_up_ns {
            return self.sweep.take(item, context, &mut self.ledger);
        }
        let (before, after) = item.split(start_up_ns);
        self.ledger.start_up(before.end_ns() - before.start_ns());
        self.sweep.take(after, context, &mut self.ledger);
    }

    /// Decides where the loop began, if that can be told.
    fn decide(&mut self, phases: &Phases, at_work_ns: u64, at_end: bool) {
        let pauses: Vec<(u64, u64)> = self.ledger.early_lost().collect();
        let at_end = at_end || self.ledger.is_full();
        if let Some(start_ns) = phases.loop_start_ns(&pauses, at_work_ns, self.ledger.loop_end_ns, at_end) {
            self.ledger.begin_loop(start_ns);
        }
    }

    fn account(self, observed_from_ns: u64, covered_ns: u64, tail: Tail, rest: &Classes) -> Account {
        let ledger = self.ledger;
        let first_ns = self.first_ns.unwrap_or(covered_ns);
        let from_ns = observed_from_ns.min(first_ns);
        let mut classes = ledger.classes;
        classes.add(Class::StartUp, first_ns - from_ns);
        let start_ns = ledger.loop_start_ns.unwrap_or(self.swept_ns);
        let mut loop_ns = (start_ns, ledger.loop_end_ns.max(start_ns));
        match tail {
            Tail::Open => {}
            Tail::ShutDown => classes.add(Class::WindDown, rest.total_ns()),
            Tail::Stalled => {
                classes.add_all(rest);
                loop_ns.1 += rest.total_ns();
            }
        }
        let to_ns = from_ns + classes.total_ns();
        if tail != Tail::Open && self.first_ns.is_some() {
            debug_assert_eq!(to_ns, self.swept_ns.max(first_ns), "the classes must add up to what was observed");
        }
        Account {
            observed_ns: (from_ns, to_ns),
            loop_ns,
            classes,
            drains: self.sweep.drains,
            busy_ns: self.sweep.busy_ns,
            tally: self.sweep.tally,
            waits: self.sweep.waits,
            ledger,
        }
    }
}
