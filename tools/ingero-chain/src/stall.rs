//! A process that lives and makes no calls any more, or hangs in one.
//!
//! ```text
//!   train   ██ ██ ██ ██                                  end of the stream, the process lives
//!           calls      |-------- 5 s, D ------------------|       -> stall, 5 s io_wait
//!
//!   train   ██ ██ ███████████████████████████████████████ open    -> stall in that call
//! ```
//!
//! Every stream is cut off somewhere, so the last stretch means nothing by itself: it must be long, and far
//! longer than anything before. A call that was seen to be open is told of from [`SHORT_NS`] on, because a short
//! run may end before it has hung for long, but below [`STALL_NS`] it is a remark and no more.
//!
//! A process that goes silent before it ever did the same again and again is a remark as well: it may be one that starts others
//! and waits for them, and touched CUDA on the way.
//!
//! A thread that hangs while the others get on with something is a remark as well, from [`STALL_NS`] on.
//! What the process does besides counts only if it gets on with something: a watchdog thread that asks every 100 ms
//! whether an event has happened, while a collective hangs, does not.

use ingero_common::host::{Losses, Until};

use crate::calls::GroupKey;
use crate::cause::{Bill, Cause};
use crate::path::{self, Sources};
use crate::process::{CudaProcess, OpenCall, watched_ns};

/// A stall lasts at least so long…
pub const STALL_NS: u64 = 2_000_000_000;
/// A call that hangs is worth a remark from here on.
pub const SHORT_NS: u64 = 100_000_000;
/// A tracer that stops tells of the calls that are still open, then takes its probes away and ends: 80 to 400 ms later,
/// measured, and more where there are many.
const STOPPING_NS: u64 = 2_000_000_000;
/// …and so many times the longest stretch between calls, or the longest call of its kind, before.
pub const STALL_FACTOR: u64 = 3;

/// The last stretch of a process, in which nothing returned.
#[derive(Debug)]
pub struct Stall {
    /// End of the last call that returned, or start of the one that hangs.
    pub start_ns: u64,
    /// From there to the end of the stream.
    pub lost_ns: u64,
    /// The call that hangs, else the one that was made last.
    pub call: GroupKey,
    /// Whether it hangs in a call.
    pub in_call: bool,
    /// Worth a remark and no more: only a thread hangs while the process gets on with something, or the process had not
    /// come to do anything again and again, so that its silence is nothing unusual.
    pub remark: bool,
    /// What is usual: the median duration of that call, or time between calls.
    pub usual_ns: u64,
    /// The GPU was drained when it began.
    pub proven: bool,
    /// Lost records that may have lain in it.
    pub lost: u64,
    /// How much of it was watched.
    pub watched_ns: u64,
    /// Its causes.
    pub bill: Bill,
}

/// The stall at the end of `process`'s stream, if there is one.
///
/// `until`: when the evidence on it ends, and whether its tracer said so.
pub fn of(process: &CudaProcess, sources: Sources<'_>, cuda_losses: &Losses, until: Until) -> Option<Stall> {
    let end_ns = until.ns;
    if process.over {
        return None;
    }
    // It has given its context or code back: it has nothing more to do.
    if process.open.is_empty() && process.ending.from_ns(false).is_some() {
        return None;
    }
    // One that was told of as open before, but not when its tracer stopped, has ended with its process or its thread.
    let is_open = |open: &&OpenCall| !until.in_order || open.end_ns.saturating_add(STOPPING_NS) >= end_ns;
    // The one that hangs longest tells the story; the others may wait for it.
    let stall = match process.open.iter().filter(is_open).min_by_key(|open| open.start_ns) {
        Some(open) => in_call(process, open, end_ns)?,
        None if process.open.is_empty() => between_calls(process, sources, end_ns)?,
        None => return None,
    };
    let (start_ns, pid) = (stall.start_ns, process.pid);
    let cuda_lost = cuda_losses.count(pid, start_ns, end_ns);
    if cuda_lost > 0 && !stall.in_call {
        return None;
    }
    let sched_lost = sources.losses.count(pid, start_ns, end_ns);
    let lost = cuda_lost + sched_lost;
    let mut bill = stall.bill;
    if sched_lost > 0 {
        // Of a call that hangs it was thought that its thread ran, as nothing else was on record.
        bill.doubt(Cause::DriverCpu);
    }
    let watched_ns = watched_ns(sources, pid, start_ns, end_ns);
    Some(Stall { lost, watched_ns, proven: stall.proven && lost == 0 && watched_ns == stall.lost_ns, bill, ..stall })
}

fn in_call(process: &CudaProcess, open: &OpenCall, end_ns: u64) -> Option<Stall> {
    let durations = process.groups.get(open.call).map(|group| &group.durations);
    let longest_ns = durations.map_or(0, |d| d.max_ns());
    // Other threads may have gone on for a while: the process as a whole hangs since it last got on.
    let start_ns = open.start_ns.max(process.progress_ns);
    let lost_ns = end_ns.saturating_sub(start_ns);
    // What it went through is known as far as it was told of.
    let thread_only = lost_ns < SHORT_NS;
    let start_ns = if thread_only { open.start_ns } else { start_ns };
    let lost_ns = end_ns.saturating_sub(start_ns);
    let known_ns = open.end_ns.clamp(start_ns, end_ns.max(start_ns)) - start_ns;
    let mut bill = open.bill.scaled_to(known_ns);
    bill.add_unexplained(lost_ns - known_ns);
    let least_ns = if thread_only { STALL_NS } else { SHORT_NS };
    if lost_ns < least_ns || open.end_ns - open.start_ns < longest_ns.saturating_mul(STALL_FACTOR) {
        return None;
    }
    Some(Stall {
        start_ns,
        lost_ns,
        call: open.call,
        in_call: true,
        remark: thread_only,
        usual_ns: durations.map_or(0, |d| d.median_ns()),
        proven: false,
        lost: 0,
        watched_ns: 0,
        bill,
    })
}

/// Whether process `pid` is known to have lived at `end_ns`: its end would have been on record, had there been one since
/// it was last heard of. One that nobody watched may have ended long ago.
fn is_alive(sources: Sources<'_>, pid: u32, since_ns: u64, end_ns: u64) -> bool {
    let heard_ns = sources.tasks.heard_ns(pid).clamp(since_ns, end_ns.max(since_ns));
    watched_ns(sources, pid, heard_ns, end_ns) == end_ns.saturating_sub(heard_ns)
}

fn between_calls(process: &CudaProcess, sources: Sources<'_>, end_ns: u64) -> Option<Stall> {
    process.startup.gaps_from_ns(true)?;
    // One that never gave the GPU anything to do keeps it waiting for nothing.
    if !process.ending.has_worked() {
        return None;
    }
    let start_ns = process.returned_ns;
    if !is_alive(sources, process.pid, start_ns, end_ns) {
        return None;
    }
    let lost_ns = end_ns.saturating_sub(start_ns);
    if process.by_entries || lost_ns < STALL_NS {
        return None;
    }
    if lost_ns < process.union.usual.max_ns().saturating_mul(STALL_FACTOR) {
        return None;
    }
    // While a tracer runs, what a thread does now is in no record yet: its silence is none to go by.
    let mut sources = sources;
    if !sources.sched.in_order {
        sources.sched.ns = sources.sched.ns.min(end_ns.saturating_sub(1));
    }
    Some(Stall {
        start_ns,
        lost_ns,
        call: process.last_call?,
        in_call: false,
        remark: !process.startup.has_repeated(),
        usual_ns: process.union.usual.median_ns(),
        proven: process.drain.is_drained(),
        lost: 0,
        watched_ns: 0,
        // The thread that made the last call is the one that should make the next.
        bill: path::bill(sources, process.last_thread, start_ns, end_ns),
    })
}
