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
//! longer than anything before. A call that was seen to be open is told of from [`HANG_NS`] on, because a short
//! run may end before it has hung for long, but below [`STALL_NS`] it is a remark and no more.
//!
//! A process that goes silent before it ever did the same again and again is a remark as well: it may be one that starts others
//! and waits for them, and touched CUDA on the way.
//!
//! A thread that hangs while the others get on with something is a remark as well, from [`STALL_NS`] on.
//! What the process does besides counts only if it gets on with something: a watchdog thread that asks every 100 ms
//! whether an event has happened, while a collective hangs, does not.

use ingero_common::host::{Losses, Until};

use crate::blame::breakdown::{Breakdown, Cause};
use crate::blame::path::{self, Sources, watched_ns};
use crate::blame::share;
use crate::findings::severity::Certainty;
use crate::findings::{About, Finder};
use crate::limits::{HANG_NS, STALL_FACTOR, STALL_NS, STOPPING_NS};
use crate::process::{CudaProcess, OpenCall};
use crate::report::model::{Evidence, Extra, Finding, Kind, Times};
use crate::stats::calls::GroupKey;

/// The last stretch of a process, in which nothing returned.
#[derive(Debug)]
pub(crate) struct Stall {
    /// End of the last call that returned, or start of the one that hangs.
    pub(crate) start_ns: u64,
    /// From there to the end of the stream.
    pub(crate) lost_ns: u64,
    /// The call that hangs, else the one that was made last.
    pub(crate) call: GroupKey,
    /// Whether it hangs in a call.
    pub(crate) in_call: bool,
    /// Worth a remark and no more: only a thread hangs while the process gets on with something, or the process had not
    /// come to do anything again and again, so that its silence is nothing unusual.
    pub(crate) remark: bool,
    /// What is usual: the median duration of that call.
    pub(crate) usual_ns: u64,
    /// The GPU was drained when it began.
    pub(crate) proven: bool,
    /// Lost records that may have lain in it.
    pub(crate) lost: u64,
    /// How much of it was watched.
    pub(crate) watched_ns: u64,
    /// Its causes.
    pub(crate) breakdown: Breakdown,
}

pub(crate) struct Stalls;

impl Finder for Stalls {
    fn checked(&self) -> String {
        format!(
            "stall: no call, or one that has not returned, for the last {} s or more and {STALL_FACTOR}x the longest wait before, while the process lives; a call open for {} ms or more is worth a remark",
            STALL_NS / 1_000_000_000,
            HANG_NS / 1_000_000
        )
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let Some(stall) = about.stall else { return Vec::new() };
        let doubtful = stall.lost_ns < STALL_NS || stall.remark;
        let certainty = if doubtful { Certainty::Doubtful } else { Certainty::Likely };
        let Some(severity) = about.severity(stall.lost_ns, certainty) else { return Vec::new() };
        let mut finding = about.about_call(Kind::Stall, stall.call, severity, &stall.breakdown);
        (finding.lost.mono_ns, finding.lost.dur_ns, finding.lost.n) = (stall.start_ns, stall.lost_ns, 1);
        finding.times = Some(Times { p50_ns: stall.usual_ns, max_ns: stall.lost_ns, ..Times::default() });
        finding.extra = Extra { proven: if stall.in_call { None } else { Some(stall.proven) }, ..Extra::default() };
        finding.evidence = Evidence {
            lost: stall.lost,
            watched_share: share(stall.watched_ns, stall.lost_ns),
            samples: about.process.calls,
        };
        vec![finding]
    }
}

/// The stall at the end of `process`'s stream, if there is one.
///
/// `until`: when the evidence on it ends, and whether its tracer said so.
pub(crate) fn of(process: &CudaProcess, sources: Sources<'_>, cuda_losses: &Losses, until: Until) -> Option<Stall> {
    let end_ns = until.ns;
    if process.over {
        return None;
    }
    // It has given its context or code back: it has nothing more to do.
    if process.open.is_empty() && process.phases.is_shutting_down() {
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
    let mut breakdown = stall.breakdown;
    if sched_lost > 0 {
        // Of a call that hangs it was thought that its thread ran, as nothing else was on record.
        breakdown.doubt(Cause::DriverCpu);
    }
    let watched_ns = watched_ns(sources, pid, start_ns, end_ns);
    Some(Stall {
        lost,
        watched_ns,
        proven: stall.proven && lost == 0 && watched_ns == stall.lost_ns,
        breakdown,
        ..stall
    })
}

fn in_call(process: &CudaProcess, open: &OpenCall, end_ns: u64) -> Option<Stall> {
    let durations = process.groups.get(open.call).map(|group| &group.durations);
    let longest_ns = durations.map_or(0, |d| d.max_ns());
    // Other threads may have gone on for a while: the process as a whole hangs since it last got on.
    let since_ns = open.start_ns.max(process.last.progress_ns);
    let thread_only = end_ns.saturating_sub(since_ns) < HANG_NS;
    let start_ns = if thread_only { open.start_ns } else { since_ns };
    let lost_ns = end_ns.saturating_sub(start_ns);
    // What it went through is known as far as it was told of.
    let known_ns = open.end_ns.clamp(start_ns, end_ns.max(start_ns)) - start_ns;
    let mut breakdown = open.breakdown.scaled_to(known_ns);
    breakdown.add_unexplained(lost_ns - known_ns);
    let least_ns = if thread_only { STALL_NS } else { HANG_NS };
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
        breakdown,
    })
}

/// Whether process `pid` is known to have lived at `end_ns`: its end would have been on record, had there been one since
/// it was last heard of. One that nobody watched may have ended long ago.
fn is_alive(sources: Sources<'_>, pid: u32, since_ns: u64, end_ns: u64) -> bool {
    let heard_ns = sources.tasks.heard_ns(pid).clamp(since_ns, end_ns.max(since_ns));
    watched_ns(sources, pid, heard_ns, end_ns) == end_ns.saturating_sub(heard_ns)
}

fn between_calls(process: &CudaProcess, sources: Sources<'_>, end_ns: u64) -> Option<Stall> {
    process.phases.at_work_ns(true)?;
    // One that never gave the GPU anything to do keeps it waiting for nothing.
    if !process.phases.has_worked() {
        return None;
    }
    let start_ns = process.last.returned_ns;
    if !is_alive(sources, process.pid, start_ns, end_ns) {
        return None;
    }
    let lost_ns = end_ns.saturating_sub(start_ns);
    if process.last.by_entries || lost_ns < STALL_NS {
        return None;
    }
    if lost_ns < process.longest_lost_ns().saturating_mul(STALL_FACTOR) {
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
        call: process.last.call?,
        in_call: false,
        remark: !process.phases.has_repeated(),
        usual_ns: 0,
        proven: process.outstanding.is_drained(),
        lost: 0,
        watched_ns: 0,
        // The thread that made the last call is the one that should make the next.
        breakdown: path::breakdown(sources, process.last.thread, start_ns, end_ns, &[]),
    })
}
