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

use std::collections::VecDeque;

use crate::history::{Interval, Pages};
use crate::host::Host;
use crate::item::{Item, Kind, Side, Task};
use crate::process::{Key, Processes, Span};

/// Intervals of loss that are remembered one by one; beyond that the oldest two become one.
const MAX_LOSSES: usize = 1024;

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

#[derive(Clone, Copy, Debug)]
struct Loss {
    /// On all kernels where `None`.
    domain: Option<u16>,
    /// Of all processes where `None`.
    pid: Option<u32>,
    start_ns: u64,
    end_ns: u64,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Attribution {
    processes: Processes,
    inputs: Vec<Coverage>,
    losses: VecDeque<Loss>,
    /// Ends of processes and threads whose past may go a window later: a call that was open at the end
    /// may have been noticed by the other tracer a little after it.
    graves: VecDeque<Grave>,
    window_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Grave {
    at_ns: u64,
    key: Key,
    /// Only this thread ended.
    tid: Option<u32>,
}

impl Attribution {
    pub(crate) fn new(inputs: usize, window_ns: u64) -> Self {
        Self {
            processes: Processes::default(),
            inputs: vec![Coverage::default(); inputs],
            losses: VecDeque::new(),
            graves: VecDeque::new(),
            window_ns,
        }
    }

    /// A record of input `lane`, placed at [`start_ns`, `end_ns`].
    pub(crate) fn learn(&mut self, lane: usize, domain: u16, item: &Item, start_ns: u64, end_ns: u64) {
        let key = Key { domain, pid: item.pid.unwrap_or(0) };
        // Without a thread there is nobody to whom it could belong; the idle task waits for nothing.
        let thread = item.tid.filter(|_| key.pid != 0);
        match (&item.kind, thread) {
            (Kind::Switch(switch), Some(tid)) => {
                self.processes.add_interval(key, tid, Interval::new(start_ns, end_ns, switch));
            }
            (Kind::Pages { count, bytes }, Some(tid)) => {
                self.processes.add_pages(key, tid, Pages { start_ns, end_ns, count: *count, bytes: *bytes });
            }
            (Kind::Task(task), _) if key.pid != 0 => {
                self.processes.task(key, item.tid.unwrap_or(key.pid), *task, start_ns);
            }
            (Kind::WatchSched, _) if key.pid != 0 => self.processes.watch(key, start_ns, lane),
            (Kind::LostSched | Kind::LossAhead { .. }, _) => self.lost(domain, item.pid, start_ns, end_ns),
            (Kind::End { of_sched }, _) if of_sched.unwrap_or(self.inputs[lane].may_be_sched()) => {
                self.finish(lane, end_ns)
            }
            _ => {}
        }
        let input = &mut self.inputs[lane];
        match item.side {
            Side::Frame => {}
            Side::Sched => (input.bears_sched, input.finished) = (true, false),
            Side::Cuda | Side::Other => input.bears_others = true,
        }
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

    /// Lines of input `lane` in [`start_ns`, `end_ns`] could not be read.
    pub(crate) fn unreadable(&mut self, lane: usize, domain: u16, start_ns: u64, end_ns: u64) {
        if self.inputs[lane].bears_sched {
            self.lost(domain, None, start_ns, end_ns);
        }
    }

    /// What the thread of a call in [`start_ns`, `end_ns`] went through.
    pub(crate) fn host(&self, domain: u16, pid: u32, tid: u32, start_ns: u64, end_ns: u64) -> Host {
        let Some(process) = self.processes.get(Key { domain, pid }) else { return Host::default() };
        let nothing = crate::history::Thread::default();
        let thread = process.threads.get(&tid).unwrap_or(&nothing);
        let mut host = Host::of(process, thread, start_ns, end_ns);
        host.watched = process.spans.iter().any(|span| self.covers(span, start_ns, end_ns))
            && thread.reaches_back_to(start_ns)
            && !self.losses.iter().any(|loss| loss.hits(domain, pid, start_ns, end_ns));
        host
    }

    /// A record has been written; what only it needed may go.
    pub(crate) fn written(&mut self, domain: u16, item: &Item, start_ns: u64, end_ns: u64) {
        if let Some(pid) = item.pid {
            let (key, tid) = (Key { domain, pid }, item.tid.unwrap_or(pid));
            match item.kind {
                Kind::Call { outermost: true } => self.processes.call_written(key, tid, start_ns),
                Kind::Task(Task::ProcessExit) => self.graves.push_back(Grave { at_ns: start_ns, key, tid: None }),
                Kind::Task(Task::ThreadExit) => self.graves.push_back(Grave { at_ns: start_ns, key, tid: Some(tid) }),
                _ => {}
            }
        }
        while let Some(&Grave { at_ns, key, tid }) = self.graves.front()
            && at_ns.saturating_add(self.window_ns) < end_ns
        {
            self.graves.pop_front();
            match tid {
                None => self.processes.clear_dead(key),
                Some(tid) => self.processes.clear_thread(key, tid, at_ns),
            }
        }
    }

    fn covers(&self, span: &Span, start_ns: u64, end_ns: u64) -> bool {
        if span.from_ns > start_ns {
            return false;
        }
        if let Some(to_ns) = span.to_ns {
            return end_ns <= to_ns;
        }
        let input = &self.inputs[span.lane];
        // A recording cut in two goes on in an input that has no head of its own.
        let continued = |i: &Coverage| !i.headed && i.may_be_sched() && !i.finished && i.high_ns >= end_ns;
        input.high_ns >= end_ns || input.closed && self.inputs.iter().any(continued)
    }

    /// The `end` record of input `lane`: its watch ends, and that of the inputs that it continues.
    fn finish(&mut self, lane: usize, at_ns: u64) {
        let headed = self.inputs[lane].headed;
        let inputs = &self.inputs;
        let ends = |other: usize| other == lane || !headed && inputs[other].closed && !inputs[other].finished;
        self.processes.end_of_stream(ends, at_ns);
        self.inputs[lane].finished = true;
    }

    fn lost(&mut self, domain: u16, pid: Option<u32>, start_ns: u64, end_ns: u64) {
        self.losses.push_back(Loss { domain: Some(domain), pid, start_ns, end_ns });
        if self.losses.len() > MAX_LOSSES
            && let (Some(a), Some(b)) = (self.losses.pop_front(), self.losses.pop_front())
        {
            self.losses.push_front(a.with(b));
        }
    }
}

impl Loss {
    fn hits(&self, domain: u16, pid: u32, start_ns: u64, end_ns: u64) -> bool {
        let overlaps = if self.start_ns == self.end_ns {
            (start_ns..=end_ns).contains(&self.start_ns)
        } else {
            self.start_ns < end_ns && self.end_ns > start_ns
        };
        overlaps && self.domain.is_none_or(|d| d == domain) && self.pid.is_none_or(|p| p == pid)
    }

    /// One loss that covers both: too much rather than too little.
    fn with(self, other: Self) -> Self {
        Self {
            domain: self.domain.filter(|_| self.domain == other.domain),
            pid: self.pid.filter(|_| self.pid == other.pid),
            start_ns: self.start_ns.min(other.start_ns),
            end_ns: self.end_ns.max(other.end_ns),
        }
    }
}
