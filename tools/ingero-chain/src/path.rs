//! The critical path: what a thread did in a stretch of time at the end of which it ran, and, where it
//! slept, what the thread that woke it did meanwhile.
//!
//! ```text
//!   gap of 50 ms before the next copy of `train` (100), which worker `loader` (200) fed:
//!
//!   train   100   ████|-------- asleep, woken by 201 -----------------|..|█ call      .. = waits for a CPU
//!   feeder  201        |------- asleep, woken by 200 -------------|███^
//!   loader  200   ██████|------ D, a disk read ---------|█████████^
//!                 0    4 6                               36       45  49 50
//!
//!   0-4   host_cpu            100 itself
//!   4-49  asleep: the waker's same stretch is followed, over the border to process 200:
//!         4-45  thread 201 slept: its waker is followed, freely, being of the same process:
//!               4-6    worker_cpu     200
//!               6-36   worker_io      200
//!               36-45  worker_cpu     200
//!         45-49 worker_cpu            201, which is process 200 as well
//!   49-50 cpu_wait                    whoever had the CPU
//! ```
//!
//! Every nanosecond of the stretch goes to exactly one cause or to `unexplained`. A thread created inside
//! the stretch is continued, before its birth, by its creator. One border to another process is crossed;
//! whom that one waited for beyond is named (`wait`) and not followed, unless it is the process that lost the time:
//! what one of its own threads did is followed again, up to its borders.
//!
//! ```text
//!   train   100   |------ asleep, woken by 200 ------|█ call        0-20 host_cpu  `sampler`: the worker waited for an
//!   loader  200   |-- asleep, woken by 101 --|█████^                               index that the process itself makes
//!   sampler 101   ████████████████████^                             20-26 worker_cpu
//! ```
//!
//! It ends: each hop looks at a part of the stretch that ends no later, hops are at most `MAX_HOPS` deep,
//! and the intervals looked at are counted. What a limit cuts off is named, not guessed.

use ingero_common::host::{
    CpuTimeline, Losses, OffCpu, OffCpuPart, Side, State, Task, TaskTable, Thread, ThreadInstance, Until, WatchedPart,
};

use crate::cause::{Bill, Cause, Slept};
use crate::evidence::{Quota, Samples};

/// Hand-overs followed from one instant back to another. Real queues need two or three.
const MAX_HOPS: u32 = 64;
/// While CPUs are free, nobody who may run waits so long for others to have their turn: a turn is some milliseconds
/// (`base_slice_ns`: 3 ms on eight CPUs and more), and an idle CPU takes waiting threads over.
const LONGEST_TURN_NS: u64 = 10_000_000;
/// Who sleeps again so soon had nothing to do in between.
const STRAIGHT_BACK_NS: u64 = 1_000_000;
/// Sleeps in a row that are looked at.
const MAX_RENEWALS: usize = 64;
/// Off-CPU intervals looked at for one gap.
const MAX_STEPS: u32 = 2_000_000;

/// Where the path is: in the process that lost the time, or in the one that it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Home,
    Away,
    /// Home again: the one that it waited for waited for it.
    Back,
}

/// Everything the path is read from.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Lives and off-CPU intervals.
    pub tasks: &'a TaskTable,
    /// Who had which CPU.
    pub cpu_timeline: &'a CpuTimeline,
    /// Lost scheduler records.
    pub losses: &'a Losses,
    /// Samples of the machine.
    pub samples: &'a Samples,
    /// Until when the scheduler tracer looked.
    pub sched: Until,
}

impl Sources<'_> {
    /// Whether the scheduler tracer watches a process with this number, or ever did.
    pub fn is_watched(&self, pid: u32) -> bool {
        self.tasks.is_watched(pid)
    }

    /// The parts of [`from_ns`, `to_ns`] in which the scheduler tracer watched process `pid`.
    pub fn watched(&self, pid: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = WatchedPart> {
        let life = self.tasks.find_process(pid, to_ns).into_iter();
        life.flat_map(move |life| life.watch(Side::Sched).parts(from_ns, to_ns, self.sched.ns))
    }
}

/// Splits [`from_ns`, `to_ns`] of `thread`, which runs at `to_ns`, into causes.
pub fn bill(sources: Sources<'_>, thread: Thread, from_ns: u64, to_ns: u64) -> Bill {
    let mut path = Path { sources, home: thread.pid, bill: Bill::default(), steps_left: MAX_STEPS, throttled_ns: 0 };
    path.follow(thread, from_ns, to_ns, Place::Home, 0);
    debug_assert_eq!(path.bill.total_ns(), to_ns.saturating_sub(from_ns), "causes must add up to the stretch");
    path.bill
}

struct Path<'a> {
    sources: Sources<'a>,
    home: u32,
    bill: Bill,
    steps_left: u32,
    /// Waiting put down to the quota although somebody else had the CPU: no more than the counters grew.
    throttled_ns: u64,
}

impl Path<'_> {
    fn follow(&mut self, thread: Thread, from_ns: u64, to_ns: u64, place: Place, hops: u32) {
        if from_ns >= to_ns {
            return;
        }
        if hops > MAX_HOPS || self.steps_left == 0 {
            return self.unknown(thread, place, to_ns - from_ns);
        }
        let tasks = self.sources.tasks;
        let Some(instance) = tasks.thread(thread.pid, thread.tid, to_ns) else {
            // Never seen in a record: it was never off the CPU while it was watched.
            return self.on_cpu(thread, from_ns, to_ns, place);
        };
        let mut at_ns = from_ns;
        if let Some(birth) = instance.birth.filter(|b| b.at_ns > from_ns) {
            at_ns = birth.at_ns.min(to_ns);
            self.hand_over(birth.parent, thread.pid, from_ns, at_ns, place, hops);
        }
        if instance.unknown_before_ns > at_ns {
            let known_ns = instance.unknown_before_ns.min(to_ns);
            self.bill.add_unexplained(known_ns - at_ns);
            at_ns = known_ns;
        }
        for off in instance.off_cpu(at_ns, to_ns) {
            self.steps_left = self.steps_left.saturating_sub(1);
            self.on_cpu(thread, at_ns, off.start_ns, place);
            if place != Place::Away && off.whole.state == State::Sleep && off.whole.waker.pid == 0 {
                self.note_sleep(instance, off, to_ns);
            }
            self.asleep(thread, off.whole, off.start_ns, off.wake_ns, place, hops);
            self.runnable(thread, off.whole, off.wake_ns, off.end_ns, place);
            at_ns = off.end_ns;
        }
        self.on_cpu(thread, at_ns, to_ns, place);
    }

    /// A sleep that nobody was seen to end: the longest is remembered, and who ended the sleep that the thread went straight
    /// back to.
    fn note_sleep(&mut self, thread: &ThreadInstance, off: OffCpuPart<'_>, to_ns: u64) {
        let ns = off.wake_ns - off.start_ns;
        if ns <= self.bill.slept().ns {
            return;
        }
        let mut back_ns = off.whole.end_ns;
        let after = thread.off_cpu(back_ns, to_ns).map(|next| next.whole).take(MAX_RENEWALS);
        let renewed = after.take_while(|next| {
            let straight = next.start_ns.saturating_sub(back_ns) <= STRAIGHT_BACK_NS;
            back_ns = next.end_ns;
            straight && next.state == State::Sleep
        });
        let then = renewed.map(|next| next.waker).find(|waker| waker.pid != 0).map_or_else(Task::default, party);
        self.bill.note_sleep(Slept { ns, then });
    }

    /// Off the CPU and not runnable in [`from_ns`, `to_ns`], which is part of `off`.
    fn asleep(&mut self, thread: Thread, off: &OffCpu, from_ns: u64, to_ns: u64, place: Place, hops: u32) {
        let ns = to_ns - from_ns;
        match off.state {
            State::Preempted => self.runnable(thread, off, from_ns, to_ns, place),
            State::Stopped | State::Parked | State::Dead | State::Unknown => {
                self.bill.add(Cause::OffCpu, self.party(thread, place), ns);
            }
            State::Uninterruptible if place == Place::Away => self.bill.add(Cause::WorkerIo, party(thread), ns),
            State::Uninterruptible => self.bill.add(Cause::IoWait, Task::default(), ns),
            State::Sleep if off.waker.pid == 0 => self.bill.add(Cause::Sleep, self.party(thread, place), ns),
            State::Sleep => self.hand_over(off.waker, thread.pid, from_ns, to_ns, place, hops),
        }
    }

    /// `thread_pid`'s thread waited for `other` in [`from_ns`, `to_ns`], at the end of which `other` ran.
    fn hand_over(&mut self, other: Thread, thread_pid: u32, from_ns: u64, to_ns: u64, place: Place, hops: u32) {
        if from_ns >= to_ns {
            return;
        }
        let other_place = match place {
            _ if other.pid == thread_pid => place,
            Place::Home => Place::Away,
            Place::Away if other.pid == self.home => Place::Back,
            // The one border is behind us.
            Place::Away | Place::Back => return self.bill.add(Cause::Wait, party(other), to_ns - from_ns),
        };
        self.follow(other, from_ns, to_ns, other_place, hops + 1);
    }

    /// No off-CPU record covers [`from_ns`, `to_ns`]: on a CPU, as far as somebody was watching.
    fn on_cpu(&mut self, thread: Thread, from_ns: u64, to_ns: u64, place: Place) {
        if from_ns >= to_ns {
            return;
        }
        let sources = self.sources;
        let mut watched_ns = 0;
        for part in sources.watched(thread.pid, from_ns, to_ns) {
            // Whatever began in this silence and was going on when the tracer was killed is in no record.
            if part.is_open && part.end_ns < to_ns && !sources.sched.in_order {
                continue;
            }
            watched_ns += part.len_ns();
            self.watched_on_cpu(thread, part, place);
        }
        self.unknown(thread, place, to_ns - from_ns - watched_ns);
    }

    /// Somebody was watching, and no off-CPU record covers `part`.
    fn watched_on_cpu(&mut self, thread: Thread, part: WatchedPart, place: Place) {
        let (since_ns, until_ns) = (part.start_ns, part.end_ns);
        let lost_ns = doubtful_ns(self.sources.losses, thread.pid, since_ns, until_ns);
        self.bill.add_unexplained(lost_ns);
        let ns = part.len_ns() - lost_ns;
        if ns == 0 {
            return;
        }
        let stolen_ns = self.sources.samples.stolen_ns(since_ns, until_ns).min(ns);
        self.bill.add(Cause::Steal, Task::default(), stolen_ns);
        let cause = if place == Place::Away { Cause::WorkerCpu } else { Cause::HostCpu };
        self.bill.add(cause, party(thread), ns - stolen_ns);
    }

    /// Runnable without a CPU in [`from_ns`, `to_ns`], which is part of `off`.
    fn runnable(&mut self, thread: Thread, off: &OffCpu, from_ns: u64, to_ns: u64, place: Place) {
        let ns = to_ns.saturating_sub(from_ns);
        if ns == 0 {
            return;
        }
        let quota_ns = match self.sources.samples.quota(thread.pid, from_ns, to_ns) {
            // A free CPU and no right to it. Without a sample, the free CPU alone says so.
            Quota::Unknown | Quota::GrewCpusFree(_) | Quota::GrewCpusBusy(_) if off.cpu_was_free => ns,
            // Somebody else had that CPU, but others were free, and no turn lasts so long: throttled, for no longer
            // than was counted.
            Quota::GrewCpusFree(grew_ns) if off.end_ns - off.wake_ns >= LONGEST_TURN_NS => {
                ns.min(grew_ns.saturating_sub(self.throttled_ns))
            }
            _ => 0,
        };
        if !off.cpu_was_free {
            self.throttled_ns += quota_ns;
        }
        let (quota, waiting) = match place {
            Place::Home | Place::Back => (Cause::Quota, Cause::CpuWait),
            Place::Away => (Cause::WorkerQuota, Cause::WorkerCpuWait),
        };
        self.bill.add(quota, self.party(thread, place), quota_ns);
        let mut left_ns = ns - quota_ns;
        if quota_ns == 0 {
            for (who, had_ns) in self.holders(thread, off, from_ns, to_ns) {
                self.bill.add(waiting, party(who), had_ns);
                left_ns -= had_ns;
            }
        }
        if left_ns < ns - quota_ns {
            return self.bill.add(waiting, Task::default(), left_ns);
        }
        // Nothing is known of that CPU but what the record itself says.
        let [first, last] = off.had_cpu;
        let last_ns = if first == last { 0 } else { left_ns / 2 };
        self.bill.add(waiting, first, left_ns - last_ns);
        self.bill.add(waiting, last, last_ns);
    }

    /// Who had the CPU that `thread` waited for in [`from_ns`, `to_ns`], as far as its switches tell.
    fn holders(&mut self, thread: Thread, off: &OffCpu, from_ns: u64, to_ns: u64) -> Vec<(Thread, u64)> {
        let Some(cpu) = off.waited_on else { return Vec::new() };
        let lost_ns = self.sources.losses.last_ns(to_ns);
        let had = self.sources.cpu_timeline.holders(u32::from(cpu), thread, from_ns, to_ns, lost_ns);
        self.steps_left = self.steps_left.saturating_sub(had.len() as u32);
        had
    }

    /// Nothing is known about `thread` but its name, for `ns`.
    fn unknown(&mut self, thread: Thread, place: Place, ns: u64) {
        match place {
            Place::Home | Place::Back => self.bill.add_unexplained(ns),
            Place::Away => self.bill.add(Cause::Wait, party(thread), ns),
        }
    }

    /// Names a thread only where it isn't of the process that lost the time.
    fn party(&self, thread: Thread, place: Place) -> Task {
        if place != Place::Away && thread.pid == self.home { Task::default() } else { party(thread) }
    }
}

fn party(thread: Thread) -> Task {
    Task { pid: thread.pid, name: thread.name }
}

/// How much of a silence over [`from_ns`, `to_ns`] proves nothing because records of process `pid` were lost. One that
/// is lost ended while records were being lost, and may have begun at any time since the thread was last heard of:
///
/// ```text
///   record ----|            silence             |---- record       from and to
///                      |lost|
///              [ doubtful   ][ on a CPU         ]
/// ```
pub fn doubtful_ns(losses: &Losses, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
    losses.touching(pid, from_ns, to_ns).map(|l| l.end_ns.min(to_ns) - from_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::Loss;

    #[test]
    fn a_loss_casts_doubt_on_the_silence_before_it() {
        let mut losses = Losses::default();
        losses.add(Loss { start_ns: 40, end_ns: 45, pid: Some(7), count: Some(1), sampled: false });
        let doubtful = |pid, from_ns, to_ns| doubtful_ns(&losses, pid, from_ns, to_ns);
        assert_eq!((doubtful(7, 0, 100), doubtful(7, 43, 100), doubtful(7, 0, 42)), (45, 2, 42));
        assert_eq!((doubtful(7, 45, 100), doubtful(7, 0, 40), doubtful(8, 0, 100)), (0, 0, 0));
        assert_eq!(losses.lost_ns(7, 0, 100), 5);
    }
}
