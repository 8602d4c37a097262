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

use std::borrow::Cow;

use ingero_common::host::{Interner, OffCpuPart, ProcessInstance, State, ThreadInstance};
use ingero_common::record::{Host, HostBy, Str};

/// At most so many processes are listed in `by`, those that had most of the time.
const MAX_BY: usize = 32;

/// Whose call it is, and when: [`start_ns`, `end_ns`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// What `thread` of `process` went through during a call of it. `watched` is the caller's to add.
pub(crate) fn of<'a>(
    process: &ProcessInstance,
    thread: Option<&ThreadInstance>,
    names: &'a Interner,
    call: Call,
) -> Host<'a> {
    let mut host = Host::default();
    let Some(thread) = thread else { return host };
    // The call belongs to the program and the thread in which it began, and nothing after their ends is its.
    let ends_ns = [process.program_end_after(call.start_ns), thread.died_ns];
    let over_ns = ends_ns.into_iter().flatten().min().unwrap_or(u64::MAX);
    let end_ns = call.end_ns.min(over_ns);
    for off in thread.off_cpu(call.start_ns, end_ns) {
        host.switches += 1;
        add(&mut host, &off, names);
    }
    for pages in thread.pages(call.start_ns, end_ns).filter(|pages| pages.start_ns < over_ns) {
        host.pages = host.pages.saturating_add(pages.count);
        host.page_bytes = host.page_bytes.saturating_add(pages.bytes);
    }
    host.by.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.pid.cmp(&b.pid)));
    host.by.truncate(MAX_BY);
    host
}

/// Counts the part of a time off the CPU that lies in the call.
fn add<'a>(host: &mut Host<'a>, off: &OffCpuPart<'_>, names: &'a Interner) {
    let ns = off.end_ns - off.start_ns;
    host.off_ns += ns;
    *match off.whole.state {
        State::Preempted => &mut host.preempted_ns,
        State::Sleep => &mut host.sleep_ns,
        State::Uninterruptible => &mut host.io_ns,
        State::Stopped | State::Parked | State::Dead | State::Unknown => &mut host.unknown_ns,
    } += ns;
    let runq_ns = off.end_ns - off.wake_ns;
    host.runq_ns += runq_ns;
    let [holder, _] = off.whole.had_cpu;
    if runq_ns == 0 || holder.pid == 0 {
        return;
    }
    match host.by.iter_mut().find(|by| by.pid == holder.pid) {
        Some(by) => by.ns += runq_ns,
        None => host.by.push(HostBy {
            pid: holder.pid,
            comm: Str(Cow::Borrowed(names.text(holder.name).raw())),
            ns: runq_ns,
        }),
    }
}
