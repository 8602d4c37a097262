//! Keeps what the records said so far and answers for each call: what did its thread go through, and can
//! one say so?
//!
//! Records arrive here twice: [`Attribution::learn`] in order of time, a window ahead of the output, and
//! [`Attribution::written`] when they have been written. Between the two a call sees every record that
//! ends up to a window after it: an off-CPU interval may well end after the call that it began in.
//!
//! `watched` is true only where silence is evidence. All of this must hold:
//!
//! | condition                                                                       | else                          |
//! |---------------------------------------------------------------------------------|-------------------------------|
//! | a `watch` record of the scheduler's stream, or birth from a watched process,     | the tracer did not look yet   |
//! |   lies before the call, in the same life                                         |                               |
//! | the watching input has been read to beyond the call's end, and had not ended     | it is late, or stopped        |
//! | no `lost` record of the scheduler's stream, no unreadable line of that input,    | something may be missing here |
//! |   overlaps the call                                                              |                               |
//! | the thread's past was not cut to save memory after the call began                | something was forgotten       |
//!
//! Two tracers of a kind that watch one process both tell of whatever it does, with times some microseconds apart. One input
//! is believed, the one whose tracer watched the process first, and what the others say of it meanwhile is marked. Where the
//! first one ends, the next one is believed:
//!
//! ```text
//! a.ndjson   watch 7  call   call   end
//! b.ndjson            watch 7    call   call   call
//! joined     watch 7  call  watch 7  call  call*  end  call  call          * "double":true
//! ```

use ingero_common::host::{
    Interner, Limits, Loss, Losses, OffCpu, Pages, Side as Tracer, Task, TaskTable, Thread, Wait, Watch, Watcher,
};
use ingero_common::record::Host;

use crate::entry::Entry;
use crate::host::{self, Call};
use crate::item::{Change, Kind, Side, Switch};

/// About 10 MiB in all; what a thread goes through within the window is some hundred entries.
const LIMITS: Limits = Limits { entries: 80_000, threads: 16_384, processes: 16_384, callers_last: true };

/// What is known of an input as a scheduler stream.
#[derive(Clone, Copy, Debug, Default)]
struct Coverage {
    /// It has shown records of the scheduler tracer.
    bears_sched: bool,
    /// It has shown records of others.
    bears_others: bool,
    /// Its `start` record was seen: its watches are its own.
    headed: bool,
    /// The latest end among its records so far.
    high_ns: u64,
    /// Its `end` record was seen.
    finished: bool,
    /// It was read to its end.
    closed: bool,
}

impl Coverage {
    /// Without a head and with nothing but the stream's frame so far, it may be the rest of one.
    fn may_be_sched(&self) -> bool {
        self.bears_sched || !self.headed && !self.bears_others
    }
}

/// What is known of one kernel's tasks.
#[derive(Debug)]
struct Kernel {
    tasks: TaskTable,
    losses: Losses,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Attribution {
    /// By their number, which counts from 0.
    kernels: Vec<Kernel>,
    names: Interner,
    /// So many names have been asked for since their table was made.
    named: usize,
    inputs: Vec<Coverage>,
    /// There was a process with several watchers.
    shared: bool,
    window_ns: u64,
}

impl Attribution {
    pub(crate) fn new(inputs: usize, window_ns: u64) -> Self {
        let inputs = vec![Coverage::default(); inputs];
        Self { kernels: Vec::new(), names: Interner::default(), named: 0, inputs, shared: false, window_ns }
    }

    /// A record at its place.
    pub(crate) fn learn(&mut self, entry: &Entry) {
        let (lane, item) = (entry.lane(), entry.item());
        let Entry { domain, start_ns, end_ns, .. } = *entry;
        let pid = item.pid.unwrap_or(0);
        // Without a thread there is nobody to whom it could belong; the idle task waits for nothing.
        let thread = item.tid.filter(|_| pid != 0);
        match (&item.kind, thread) {
            (Kind::Switch(switch), Some(tid)) => {
                let off = self.off_cpu(switch, start_ns, end_ns);
                self.kernel(domain).tasks.add_off(pid, tid, off, None);
            }
            (Kind::Pages { count, bytes }, Some(tid)) => {
                let pages = Pages { start_ns, end_ns, count: *count, bytes: *bytes };
                self.kernel(domain).tasks.add_pages(pid, tid, pages);
            }
            (Kind::Change(change), _) if pid != 0 => {
                self.change(domain, pid, item.tid.unwrap_or(pid), *change, start_ns);
            }
            (Kind::Watch(side), _) if pid != 0 => self.watch(domain, pid, Watcher::Input(*side, lane as u16), start_ns),
            (Kind::LostSched | Kind::LossAhead { .. }, _) => self.lost(domain, item.pid, start_ns, end_ns),
            (Kind::End { of_sched }, _) => self.finish(lane, *of_sched, end_ns),
            _ => {}
        }
        let horizon_ns = end_ns.saturating_sub(2 * self.window_ns);
        if let Some(kernel) = self.kernels.get_mut(usize::from(domain)).filter(|kernel| kernel.tasks.is_full()) {
            kernel.tasks.make_room(horizon_ns, end_ns);
        }
        let input = &mut self.inputs[lane];
        match item.side {
            Side::Frame => {}
            Side::Sched => (input.bears_sched, input.finished) = (true, false),
            Side::Cuda | Side::Other => input.bears_others = true,
        }
    }

    fn off_cpu(&mut self, switch: &Switch, start_ns: u64, end_ns: u64) -> OffCpu {
        let had_cpu = switch.holder.as_ref().map_or(Task::default(), |(pid, comm)| {
            self.named += 1;
            Task { pid: *pid, name: self.names.id(comm) }
        });
        if self.named > Interner::MAX && self.names.is_full() {
            self.rename();
        }
        OffCpu {
            start_ns,
            wake_ns: end_ns.saturating_sub(switch.runq_ns),
            end_ns,
            waker: Thread::default(),
            had_cpu: [had_cpu; 2],
            state: switch.state,
            cpu_was_free: false,
            waited_on: None,
            wait: Wait::default(),
            gil: None,
        }
    }

    /// Of a stream without an end most names are past: those that are kept get a new table.
    fn rename(&mut self) {
        let (old, mut new) = (std::mem::take(&mut self.names), Interner::default());
        for kernel in &mut self.kernels {
            kernel.tasks.rename(|name| new.id(old.text(name).raw()));
        }
        (self.names, self.named) = (new, 0);
    }

    fn change(&mut self, domain: u16, pid: u32, tid: u32, change: Change, at_ns: u64) {
        let tasks = &mut self.kernel(domain).tasks;
        let this = Thread { pid, tid, ..Thread::default() };
        match change {
            Change::Fork { child_pid } => {
                tasks.fork(this, child_pid, at_ns);
                // The scheduler tracers of the parent watch the child from its birth.
                let parent = tasks.find_process(pid, at_ns);
                let open = parent.into_iter().flat_map(|parent| parent.watches()).filter(|(_, watch)| watch.is_open());
                let sched =
                    open.map(|(watcher, _)| watcher).filter(|who| matches!(who, Watcher::Input(Tracer::Sched, _)));
                for watcher in sched.collect::<Vec<_>>() {
                    self.watch(domain, child_pid, watcher, at_ns);
                }
            }
            // Another program in the same process: its threads are gone, the watch goes on.
            Change::Exec => tasks.process(pid, at_ns).exec(at_ns),
            Change::ThreadCreate { child_tid } => tasks.create_thread(Thread { tid: child_tid, ..this }, this, at_ns),
            Change::ThreadExit => tasks.exit_thread(pid, tid, at_ns),
            Change::ProcessExit => drop(tasks.exit_process(pid, at_ns)),
        }
    }

    fn watch(&mut self, domain: u16, pid: u32, watcher: Watcher, at_ns: u64) {
        let process = self.kernel(domain).tasks.process(pid, at_ns);
        process.watch_mut(watcher).begin(at_ns);
        let same_kind = |who: Watcher| matches!((who, watcher), (Watcher::Input(a, _), Watcher::Input(b, _)) if a == b);
        self.shared |= process.watches().filter(|(who, _)| same_kind(*who)).count() > 1;
    }

    /// The input that says what a record says again: of those whose tracers watch its process, the one that began first is
    /// believed. `tells` is whether an input goes on as far as this record: one whose tracer was killed has no end.
    pub(crate) fn told_before(&self, entry: &Entry, of: Tracer, tells: impl Fn(usize) -> bool) -> Option<usize> {
        if !self.shared {
            return None;
        }
        // What the others say of the end of a process comes after it.
        let tasks = &self.kernels.get(usize::from(entry.domain))?.tasks;
        let process = tasks.latest_process(entry.item().pid?, entry.end_ns)?;
        let open = process.watches().filter(|(_, watch)| watch.is_open());
        let lanes = open.filter_map(|(watcher, _)| match watcher {
            Watcher::Input(side, lane) if side == of => Some(usize::from(lane)),
            _ => None,
        });
        let lanes: Vec<_> = lanes.collect();
        // Whoever does not watch the process has it from somewhere else.
        let own = lanes.iter().position(|other| *other == entry.lane())?;
        lanes[..own].iter().copied().find(|other| tells(*other))
    }

    fn kernel(&mut self, domain: u16) -> &mut Kernel {
        let at = usize::from(domain);
        if self.kernels.len() <= at {
            let new = || Kernel { tasks: TaskTable::with_limits(LIMITS), losses: Losses::default() };
            self.kernels.resize_with(at + 1, new);
        }
        &mut self.kernels[at]
    }

    /// A `start` record of input `lane`.
    pub(crate) fn started(&mut self, lane: usize, tool: &str) {
        let input = &mut self.inputs[lane];
        input.headed = true;
        if tool == "ingero-sched" {
            input.bears_sched = true;
            input.finished = false;
        }
    }

    /// How far input `lane` has been read: up to a record that ends at `high_ns`, or `closed`, to its end.
    pub(crate) fn read_up_to(&mut self, lane: usize, high_ns: u64, closed: bool) {
        self.inputs[lane].high_ns = high_ns;
        self.inputs[lane].closed = closed;
    }

    /// A line that could not be read, at its place.
    pub(crate) fn unreadable(&mut self, entry: &Entry) {
        if self.inputs[entry.lane()].bears_sched {
            self.lost(entry.domain, None, entry.start_ns, entry.end_ns);
        }
    }

    /// What the thread of a call in [`start_ns`, `end_ns`] went through.
    pub(crate) fn host(&self, domain: u16, call: Call) -> Host<'_> {
        let Some(kernel) = self.kernels.get(usize::from(domain)) else { return Host::default() };
        let Some(process) = kernel.tasks.find_process_from(call.pid, call.start_ns) else { return Host::default() };
        let thread = kernel.tasks.find_thread_from(call.pid, call.tid, call.start_ns);
        let mut host = host::of(process, thread, &self.names, call);
        let watched = |(watcher, watch): (Watcher, &Watch)| {
            let is_open = watch.covers(call.start_ns, call.end_ns);
            is_open.is_some_and(|is_open| self.tells(watcher, is_open, call.end_ns))
        };
        host.watched = process.watches().any(watched)
            && process.died_ns.is_none_or(|died_ns| call.end_ns <= died_ns)
            && thread.is_none_or(|thread| thread.unknown_before_ns <= call.start_ns)
            && kernel.losses.touching(call.pid, call.start_ns, call.end_ns).next().is_none();
        host
    }

    /// A call has been written; what only it needed may go.
    pub(crate) fn written(&mut self, domain: u16, call: Call) {
        let tasks = &mut self.kernel(domain).tasks;
        tasks.process(call.pid, call.start_ns).watch_mut(Tracer::Cuda).heard(call.end_ns.max(1));
        tasks.forget_of_thread(call.pid, call.tid, call.start_ns);
    }

    /// Whether the input behind a watch is known to have told of everything up to `end_ns`.
    fn tells(&self, watcher: Watcher, is_open: bool, end_ns: u64) -> bool {
        let Watcher::Input(Tracer::Sched, lane) = watcher else { return false };
        let input = &self.inputs[usize::from(lane)];
        // A recording cut in two goes on in an input that has no head of its own.
        let continued = |i: &Coverage| !i.headed && i.may_be_sched() && !i.finished && i.high_ns >= end_ns;
        !is_open || input.high_ns >= end_ns || input.closed && self.inputs.iter().any(continued)
    }

    /// The `end` record of input `lane`: its watch ends, and that of the inputs that it continues.
    fn finish(&mut self, lane: usize, of_sched: Option<bool>, at_ns: u64) {
        let (inputs, headed) = (&self.inputs, self.inputs[lane].headed);
        let of_sched_too = of_sched.unwrap_or(inputs[lane].may_be_sched());
        let continued = |other: usize| !headed && inputs[other].closed && !inputs[other].finished;
        let stops = |watcher| match watcher {
            Watcher::Input(Tracer::Sched, other) => {
                of_sched_too && (usize::from(other) == lane || continued(other.into()))
            }
            Watcher::Input(Tracer::Cuda, other) => of_sched != Some(true) && usize::from(other) == lane,
            Watcher::Any(_) => false,
        };
        for kernel in &mut self.kernels {
            kernel.tasks.tracers_stopped(stops, at_ns);
        }
        self.inputs[lane].finished |= of_sched_too;
    }

    fn lost(&mut self, domain: u16, pid: Option<u32>, start_ns: u64, end_ns: u64) {
        let loss = Loss { start_ns, end_ns, pid, count: None, sampled: false };
        self.kernel(domain).losses.add(loss);
    }
}
