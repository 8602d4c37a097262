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
//!   4-49  asleep: the waker's same stretch is followed, into process 200:
//!         4-45  thread 201 slept: its waker is followed:
//!               4-6    worker_cpu     200
//!               6-36   worker_io      200
//!               36-45  worker_cpu     200
//!         45-49 worker_cpu            201, which is process 200 as well
//!   49-50 cpu_wait                    whoever had the CPU
//! ```
//!
//! Every nanosecond of the stretch goes to exactly one cause or to `unexplained`. A thread created inside
//! the stretch is continued, before its birth, by its creator. Whoever ended a sleep is followed, through any number of
//! processes of this host, and back into the process that lost the time:
//!
//! ```text
//!   train   100   |------ asleep, woken by 200 ------|█ call        0-20 host_cpu  `sampler`: the worker waited for an
//!   loader  200   |-- asleep, woken by 101 --|█████^                               index that the process itself makes
//!   sampler 101   ████████████████████^                             20-26 worker_cpu
//! ```
//!
//! A sleep that a timer ends and that the thread takes up again at once is one wait: it was for whoever ends it at last. A
//! thread in uninterruptible sleep that another one wakes waited for a lock that this one held; a device's wake-up comes
//! from an interrupt, or from a thread of the kernel that nobody watches.
//!
//! The GPU's process may be in CUDA calls meanwhile, of which none gives the GPU anything to do: where its thread is on a CPU
//! in one, the cause is that call.
//!
//! It ends: each hop looks at a part of the stretch that ends no later, and hops are at most `MAX_HOPS` deep. What that cuts off
//! is named, not guessed.

use ingero_common::host::{
    CpuTimeline, Losses, Name, OffCpu, OffCpuPart, Side, State, Task, TaskTable, Thread, Until, WaitKind, WatchedPart,
};

use crate::blame::breakdown::{Breakdown, Cause, WaitKey};
use crate::blame::places::Place;
use crate::blame::waits::{self, Ending};
use crate::input::samples::{Quota, Samples};
use crate::input::stacks::Stacks;
use crate::limits::{LONGEST_TURN_NS, MAX_HOPS, STRAIGHT_BACK_NS};

/// Everything the path is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sources<'a> {
    /// Lives and off-CPU intervals.
    pub tasks: &'a TaskTable,
    /// Who had which CPU.
    pub cpu_timeline: &'a CpuTimeline,
    /// Lost scheduler records.
    pub losses: &'a Losses,
    /// Samples of the machine.
    pub samples: &'a Samples,
    /// Samples of stacks.
    pub stacks: &'a Stacks,
    /// Until when the scheduler tracer looked.
    pub sched: Until,
}

impl Sources<'_> {
    /// Whether the scheduler tracer watches a process with this number, or ever did.
    pub(crate) fn is_watched(&self, pid: u32) -> bool {
        self.tasks.is_watched(pid)
    }

    /// The parts of [`from_ns`, `to_ns`] in which the scheduler tracer watched process `pid`.
    pub(crate) fn watched(&self, pid: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = WatchedPart> {
        let life = self.tasks.find_process(pid, to_ns).into_iter();
        life.flat_map(move |life| life.watch(Side::Sched).parts(from_ns, to_ns, self.sched.ns))
    }
}

/// A CUDA call that the process made while the GPU was idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnCall {
    pub(crate) tid: u32,
    /// The operation.
    pub(crate) op: Name,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// Splits [`from_ns`, `to_ns`] of `thread`, which runs at `to_ns`, into causes. `calls`: those that it made meanwhile.
pub(crate) fn breakdown(
    sources: Sources<'_>,
    thread: Thread,
    from_ns: u64,
    to_ns: u64,
    calls: &[OwnCall],
) -> Breakdown {
    let mut path = Path { sources, home: thread.pid, calls, breakdown: Breakdown::default(), throttled_ns: 0 };
    path.follow(thread, from_ns, to_ns, 0);
    debug_assert_eq!(path.breakdown.total_ns(), to_ns.saturating_sub(from_ns), "causes must add up to the stretch");
    path.breakdown
}

/// How much of [`from_ns`, `to_ns`] the scheduler tracer watched process `pid` without losing a record.
pub(crate) fn watched_ns(sources: Sources<'_>, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
    let parts = sources.watched(pid, from_ns, to_ns);
    parts.map(|part| part.len_ns() - sources.losses.lost_ns(pid, part.start_ns, part.end_ns)).sum()
}

struct Path<'a> {
    sources: Sources<'a>,
    home: u32,
    calls: &'a [OwnCall],
    breakdown: Breakdown,
    /// Waiting put down to the quota although somebody else had the CPU: no more than the counters grew.
    throttled_ns: u64,
}

impl Path<'_> {
    fn follow(&mut self, thread: Thread, from_ns: u64, to_ns: u64, hops: u32) {
        if from_ns >= to_ns {
            return;
        }
        if hops > MAX_HOPS {
            return self.unknown(thread, to_ns - from_ns);
        }
        let tasks = self.sources.tasks;
        let Some(instance) = tasks.thread(thread.pid, thread.tid, to_ns) else {
            // Never seen in a record: it was never off the CPU while it was watched.
            return self.on_cpu(thread, from_ns, to_ns);
        };
        let mut at_ns = from_ns;
        if let Some(birth) = instance.birth.filter(|b| b.at_ns > from_ns) {
            at_ns = birth.at_ns.min(to_ns);
            self.follow(birth.parent, from_ns, at_ns, hops + 1);
        }
        if instance.unknown_before_ns > at_ns {
            let known_ns = instance.unknown_before_ns.min(to_ns);
            self.breakdown.add_unexplained(known_ns - at_ns);
            at_ns = known_ns;
        }
        let offs: Vec<OffCpuPart<'_>> = instance.off_cpu(at_ns, to_ns).collect();
        for (i, (off, last)) in offs.iter().zip(waits::last_of_each(&offs)).enumerate() {
            let waker = waits::ended_by(thread.pid, last);
            if hops == 0 {
                self.waited(off, last, waker);
            }
            let neighbours = [i.checked_sub(1), Some(i + 1)].map(|at| offs.get(at?).map(|part| part.whole));
            if waits::spins(off.whole, neighbours) {
                let again = off.start_ns - at_ns <= STRAIGHT_BACK_NS && i > 0;
                self.on_cpu(thread, at_ns, if again { at_ns } else { off.start_ns });
                let from_ns = if again { at_ns } else { off.start_ns };
                self.breakdown.add(Cause::Spin, thread.task(), off.end_ns - from_ns);
            } else {
                self.on_cpu(thread, at_ns, off.start_ns);
                self.asleep(thread, off, (last, waker), hops);
                self.runnable(thread, off.whole, off.wake_ns, off.end_ns);
            }
            at_ns = off.end_ns;
        }
        self.on_cpu(thread, at_ns, to_ns);
    }

    /// Off the CPU and not runnable, until it was woken; `last` is the end of that wait, and who ended it.
    fn asleep(&mut self, thread: Thread, off: &OffCpuPart<'_>, (last, waker): (&OffCpu, Thread), hops: u32) {
        let (from_ns, to_ns) = (off.start_ns, off.wake_ns);
        let watched = self.sources.is_watched(waker.pid);
        match waits::ending(off.whole, last, waker, watched, thread.pid != self.home) {
            Ending::Runnable => self.runnable(thread, off.whole, from_ns, to_ns),
            Ending::By(waker) => self.follow(waker, from_ns, to_ns, hops + 1),
            Ending::Cause(cause) => self.ends(thread, off, cause),
        }
    }

    /// The path ends with `cause`: nobody was seen to end this.
    fn ends(&mut self, thread: Thread, off: &OffCpuPart<'_>, cause: Cause) {
        let (from_ns, to_ns) = (off.start_ns, off.wake_ns);
        let in_call_ns: u64 = match off.whole.state {
            State::Sleep => self.own_calls(thread, from_ns, to_ns).map(|(_, ns)| ns).sum(),
            _ => 0,
        };
        let ns = to_ns - from_ns - in_call_ns;
        self.breakdown.add(Cause::Blocked, thread.task(), in_call_ns);
        self.breakdown.add(cause, thread.task(), ns);
        let wait = off.whole.wait;
        self.breakdown.add_wait(WaitKey { of: Some(cause), text: wait.text, by: thread.task() }, ns, 1);
        if let Some(stack) = self.sources.stacks.asleep(thread, off.whole.end_ns) {
            self.breakdown.add_place(Place { cause, task: thread.task(), stack, gc: false, asks: false }, ns, 1);
        }
        if cause == Cause::Network && wait.kind == WaitKind::Listen {
            self.breakdown.add_no_input(ns);
        }
    }

    /// What the thread that feeds the GPU was in, and who ended it at last. One that is taken up again counts at its end.
    fn waited(&mut self, off: &OffCpuPart<'_>, last: &OffCpu, waker: Thread) {
        let key = WaitKey { of: None, text: off.whole.wait.text, by: waker.task() };
        self.breakdown.add_wait(key, off.wake_ns - off.start_ns, u64::from(std::ptr::eq(off.whole, last)));
    }

    /// The calls that `thread` was in during [`from_ns`, `to_ns`], and for how long.
    fn own_calls(&self, thread: Thread, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (Name, u64)> {
        let (calls, home) = (self.calls, self.home);
        let first = calls.partition_point(|call| call.end_ns <= from_ns);
        let inside = calls[first..].iter().take_while(move |call| call.start_ns < to_ns);
        inside
            .filter(move |call| call.tid == thread.tid && thread.pid == home)
            .map(move |call| (call.op, call.end_ns.min(to_ns) - call.start_ns.max(from_ns)))
    }

    /// No off-CPU record covers [`from_ns`, `to_ns`]: on a CPU, as far as somebody was watching.
    fn on_cpu(&mut self, thread: Thread, from_ns: u64, to_ns: u64) {
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
            self.watched_on_cpu(thread, part);
        }
        self.unknown(thread, to_ns - from_ns - watched_ns);
    }

    /// Somebody was watching, and no off-CPU record covers `part`.
    fn watched_on_cpu(&mut self, thread: Thread, part: WatchedPart) {
        let (since_ns, until_ns) = (part.start_ns, part.end_ns);
        let lost_ns = doubtful_ns(self.sources.losses, thread.pid, since_ns, until_ns);
        self.breakdown.add_unexplained(lost_ns);
        let since_ns = since_ns + lost_ns;
        let stolen_ns = self.sources.samples.stolen_ns(since_ns, until_ns).min(until_ns - since_ns);
        self.breakdown.add(Cause::Steal, thread.task(), stolen_ns);
        let cause = if thread.pid == self.home { Cause::HostCpu } else { Cause::WorkerCpu };
        self.places(thread, since_ns, until_ns, cause);
        let mut left_ns = until_ns - since_ns - stolen_ns;
        for (op, ns) in self.own_calls(thread, since_ns, until_ns).collect::<Vec<_>>() {
            let ns = ns.min(left_ns);
            left_ns -= ns;
            self.breakdown.add_in_call(thread.task(), op, ns);
        }
        self.breakdown.add(cause, thread.task(), left_ns);
    }

    /// Where the thread was on a CPU in [`from_ns`, `to_ns`], as far as it was sampled there.
    fn places(&mut self, thread: Thread, from_ns: u64, to_ns: u64, cause: Cause) {
        let calls = self.calls.iter().filter(|call| call.tid == thread.tid && thread.pid == self.home);
        for (at_ns, sample) in self.sources.stacks.on_cpu(thread, from_ns, to_ns) {
            let in_call = calls.clone().any(|call| (call.start_ns..call.end_ns).contains(&at_ns));
            let cause = if in_call { Cause::CudaCall } else { cause };
            let place = Place { cause, task: thread.task(), stack: sample.stack, gc: sample.gc, asks: sample.asks };
            self.breakdown.add_place(place, 0, 1);
        }
    }

    /// Runnable without a CPU in [`from_ns`, `to_ns`], which is part of `off`.
    fn runnable(&mut self, thread: Thread, off: &OffCpu, from_ns: u64, to_ns: u64) {
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
        let (quota, waiting) = match thread.pid == self.home {
            true => (Cause::Quota, Cause::CpuWait),
            false => (Cause::WorkerQuota, Cause::WorkerCpuWait),
        };
        self.breakdown.add(quota, thread.task(), quota_ns);
        let mut left_ns = ns - quota_ns;
        if quota_ns == 0 {
            for (who, had_ns) in self.holders(thread, off, from_ns, to_ns) {
                self.breakdown.add(waiting, who.task(), had_ns);
                left_ns -= had_ns;
            }
        }
        if left_ns < ns - quota_ns {
            return self.breakdown.add(waiting, Task::default(), left_ns);
        }
        // Nothing is known of that CPU but what the record itself says.
        let [first, last] = off.had_cpu;
        let last_ns = if first == last { 0 } else { left_ns / 2 };
        self.breakdown.add(waiting, first, left_ns - last_ns);
        self.breakdown.add(waiting, last, last_ns);
    }

    /// Who had the CPU that `thread` waited for in [`from_ns`, `to_ns`], as far as its switches tell.
    fn holders(&self, thread: Thread, off: &OffCpu, from_ns: u64, to_ns: u64) -> Vec<(Thread, u64)> {
        let Some(cpu) = off.waited_on else { return Vec::new() };
        let lost_ns = self.sources.losses.last_ns(to_ns);
        self.sources.cpu_timeline.holders(u32::from(cpu), thread, from_ns, to_ns, lost_ns)
    }

    /// Nothing is known about `thread` but its name, for `ns`.
    fn unknown(&mut self, thread: Thread, ns: u64) {
        if thread.pid == self.home {
            self.breakdown.add_unexplained(ns);
        } else {
            self.breakdown.add(Cause::Wait, thread.task(), ns);
        }
    }
}

/// How much of a silence over [`from_ns`, `to_ns`] proves nothing because records of process `pid` were lost. One that
/// is lost ended while records were being lost, and may have begun at any time since the thread was last heard of:
///
/// ```text
///   record ----|            silence             |---- record       from and to
///                      |lost|
///              [ doubtful   ][ on a CPU         ]
/// ```
pub(crate) fn doubtful_ns(losses: &Losses, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
    losses.touching(pid, from_ns, to_ns).map(|l| l.end_ns.min(to_ns) - from_ns).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{Finding, Kind};
    use crate::testing::{MS, Stream, US, found};
    use ingero_common::host::Loss;

    /// The gap of a process that has nothing enqueued from 1 ms to `to_us` and of which the records are those of `during`.
    fn gap(to_us: u64, during: impl FnOnce(&mut Stream)) -> Finding {
        let mut stream = Stream::watched();
        stream.launches(0);
        stream.call("cudaDeviceSynchronize", 40, 960);
        during(&mut stream);
        stream.call("cudaLaunchKernel", to_us, 10);
        stream.end(to_us + 10);
        found(&stream.report(), Kind::Gap)[0].clone()
    }

    fn cause_us(gap: &Finding, cause: Cause) -> u64 {
        gap.lost.causes.iter().find(|line| line.cause == cause).map_or(0, |line| line.ns / US)
    }

    #[test]
    fn a_long_wait_while_cpus_are_free_is_the_quota() {
        let waits = |wait_us: u64, cpu_pct: u32, throttled_us: u64| {
            let rival = r#"{"pid":200,"tid":200,"comm":"stress"}"#;
            let gap = gap(30_000, |stream| {
                let rest = format!(
                    r#""src":"sched","op":"sched_switch","pid":100,"tid":100,"comm":"train","state":"R","by":{rival},"prev":{rival}"#
                );
                stream.put(2_000, wait_us, &rest);
                let quota = format!(r#"[{{"cgroup":"/c","pids":[100],"throttled_ns":{}}}]"#, throttled_us * US);
                stream.put(0, 30_000, &format!(r#""src":"sys","op":"sample","cpu_pct":{cpu_pct},"quota":{quota}"#));
            });
            (cause_us(&gap, Cause::Quota), cause_us(&gap, Cause::CpuWait))
        };
        assert_eq!((waits(10_000, 50, 90_000), waits(9_999, 50, 90_000)), ((10_000, 0), (0, 9_999)));
        assert_eq!(waits(20_000, 50, 15_000), (15_000, 5_000), "no more than was counted");
        assert_eq!((waits(20_000, 95, 90_000), waits(20_000, 50, 0)), ((0, 20_000), (0, 20_000)));
    }

    #[test]
    fn hand_overs_are_followed_so_far_and_no_further() {
        // Thread 100 is woken by 101, that one a little before by 102, and so on; the last one ran all the time.
        let chain = |hand_overs: u32| {
            gap(1_000_000, |stream| {
                for n in (0..hand_overs).rev() {
                    let (tid, waker) = (100 + n, 101 + n);
                    let rest = format!(
                        r#""src":"sched","op":"sched_switch","pid":100,"tid":{tid},"comm":"t{tid}","state":"S","runq_ns":0,"waker":{{"pid":100,"tid":{waker},"comm":"t{waker}"}}"#
                    );
                    stream.put(500, 900_000 - u64::from(n) * 1_000, &rest);
                }
            })
        };
        let (all, cut) = (chain(64), chain(65));
        assert_eq!((cause_us(&all, Cause::HostCpu), all.lost.unexplained_ns), (999_000, 0));
        // What the last of them did until it woke the one before it.
        assert_eq!(cut.lost.unexplained_ns, (900_500 - 64_000 - 1_000) * US);
        assert_eq!(cut.lost.lost_ns, 999 * MS);
    }

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
