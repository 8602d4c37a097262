//! The `host` object: what a call's own thread went through while the call lasted.
//!
//! A worked example. Thread 100 makes a call from 10.00 to 11.00 ms; its off-CPU records around it are
//!
//! | off the CPU     | left as | last part waiting | who had the CPU | inside the call | counts as                        |
//! |-----------------|---------|-------------------|-----------------|-----------------|----------------------------------|
//! |  9.95 - 10.10   | `R`     | all of it         | `by` 77         | 10.00 - 10.10   | 100 us preempted, 100 us runq, 77 |
//! | 10.40 - 10.60   | `D`     | 10.55 - 10.60     | `prev` 12       | 10.40 - 10.60   | 200 us io, 50 us runq, 12        |
//! | 10.93 - 11.03   | `S`     | 10.99 - 11.03     | nobody (idle)   | 10.93 - 11.00   | 70 us sleep, 10 us runq          |
//! | 11.00 - 12.00   | `S`     | none              |                 | nothing         | not at all: it only touches      |
//!
//! `off_ns` 370,000 = preempted 100,000 + sleep 70,000 + io 200,000 + unknown 0; `runq_ns` 160,000;
//! `switches` 3; `by` [77: 100,000, 12: 50,000]. The rest of the call the thread was on a CPU.
//!
//! The waiting part of an interval is its *end*: a thread sleeps first, is woken, and then waits for a
//! CPU. So clipping at the call's end takes from the waiting part first, clipping at its start takes
//! from the sleep first.
//!
//! What is *not* counted: other threads; an interval that began in another life of the process or the
//! thread (the PID changed hands in between); time already covered by an earlier record of the same
//! thread, so that the same records read twice, or an open interval followed by the whole one, never
//! add up to more than the call.

use serde::Serialize;

use crate::history::{Interval, Thread};
use crate::item::State;
use crate::process::Process;

/// At most so many processes are listed in `by`, those that had most of the time.
const MAX_BY: usize = 32;

/// What the contract calls `host`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Host {
    off_ns: u64,
    preempted_ns: u64,
    runq_ns: u64,
    sleep_ns: u64,
    io_ns: u64,
    unknown_ns: u64,
    switches: u64,
    pages: u64,
    page_bytes: u64,
    by: Vec<By>,
    pub(crate) watched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct By {
    pid: u32,
    comm: String,
    ns: u64,
}

impl Host {
    /// What `thread` of `process` went through in [`start_ns`, `end_ns`]. `watched` is the caller's to add.
    pub(crate) fn of(process: &Process, thread: &Thread, start_ns: u64, end_ns: u64) -> Self {
        let mut host = Self::default();
        // The call belongs to the life in which it began, and nothing after that life is its.
        let life_end_ns = [process.life.next_after(start_ns), thread.life.next_after(start_ns)]
            .into_iter()
            .flatten()
            .fold(u64::MAX, u64::min);
        let end_ns = end_ns.min(life_end_ns);
        let same_life = |at_ns| process.life.same(at_ns, start_ns) && thread.life.same(at_ns, start_ns);

        let mut covered_ns = start_ns;
        let mut last_start_ns = None;
        for interval in thread.intervals_in(start_ns, end_ns) {
            let (from_ns, to_ns) = (interval.start_ns.max(covered_ns), interval.end_ns.min(end_ns));
            if from_ns >= to_ns || !same_life(interval.start_ns) {
                continue;
            }
            // An open interval and its continuation are one switch.
            host.switches += u64::from(last_start_ns != Some(interval.start_ns));
            last_start_ns = Some(interval.start_ns);
            host.add(interval, from_ns, to_ns);
            covered_ns = to_ns;
        }
        for pages in thread.pages_inside(start_ns, end_ns).filter(|p| same_life(p.start_ns)) {
            host.pages = host.pages.saturating_add(pages.count);
            host.page_bytes = host.page_bytes.saturating_add(pages.bytes);
        }
        host.by.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.pid.cmp(&b.pid)));
        host.by.truncate(MAX_BY);
        host
    }

    /// Counts the part [`from_ns`, `to_ns`] of an interval.
    fn add(&mut self, interval: &Interval, from_ns: u64, to_ns: u64) {
        let ns = to_ns - from_ns;
        self.off_ns += ns;
        *match interval.state {
            State::Preempted => &mut self.preempted_ns,
            State::Sleep => &mut self.sleep_ns,
            State::Io => &mut self.io_ns,
            State::Unknown => &mut self.unknown_ns,
        } += ns;
        let runq_ns = to_ns.saturating_sub(interval.runnable_ns.max(from_ns));
        self.runq_ns += runq_ns;
        let Some(holder) = interval.holder.as_ref().filter(|_| runq_ns > 0) else { return };
        match self.by.iter_mut().find(|by| by.pid == holder.pid) {
            Some(by) => by.ns += runq_ns,
            None => self.by.push(By { pid: holder.pid, comm: holder.comm.to_string(), ns: runq_ns }),
        }
    }
}
