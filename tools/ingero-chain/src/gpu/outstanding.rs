//! Whether the GPU can have had work left: the proof that it idled in a gap.
//!
//! The GPU is drained when everything that was enqueued has been waited for. A device or context
//! synchronise waits for all that was enqueued before it began; a stream synchronise for its stream.
//!
//! ```text
//!   launch(s7)  copy(s7)  streamSynchronize(s7)   -> drained: a gap from here on is proven
//!   launch(s7)  launch(s9)  streamSynchronize(s7) -> s9 may still run: not proven
//!   launch(?)   streamSynchronize(s7)             -> not proven; streamSynchronize(default) -> drained
//! ```
//!
//! *Default* is not one stream. Each thread has its own where the program is built so (the symbol ends in `_ptsz` or
//! `_ptds`) or asks for it (handle 0x2), and each device has its own. Which device a thread works on is only known as far
//! as `cudaSetDevice` is on record with its `device` (older recordings have none, the driver's `cuCtxSetCurrent` has none). So
//! once a process may work on more than one, waiting for a default stream or for "the device" proves nothing any more; handles
//! of other streams are unique in the process and still do:
//!
//! ```text
//!   thread A: launch_ptsz(0)   thread B: streamSynchronize_ptsz(0)                -> A's may still run: not proven
//!   setDevice  launch(0)  setDevice  launch(0)  deviceSynchronize                 -> the other device, maybe: not proven
//!   setDevice(0)  launch(0)  setDevice(0)  launch(0)  deviceSynchronize           -> one device: drained
//!   setDevice  setDevice  launch(0)  deviceSynchronize  launch(0) …               -> one device: drained
//! ```
//!
//! The same account says whether a call that took long may have waited for the GPU ([`Outstanding::may_wait`]). A free that is not
//! stream-ordered waits for what was enqueued, so not where everything has been waited for. A launch returns at once unless
//! the queue to the GPU is full; there is room for about a thousand operations, so it may be full where half as many may be
//! outstanding on that stream. A copy from or to the host's memory that is asynchronous by name waits for its stream where that
//! memory is pageable, which is not on record:
//!
//! ```text
//!   launch x 400 sync  launch x 400 sync …             a slow launch is the host's
//!   launch launch launch …  (800 since any wait)       a slow launch may wait for room, as it should
//! ```
//!
//! Waiting for an event, or a query that finds it done, counts for what lies before it (`events`). Where that is not on record,
//! it counts as a wait for room for what had been enqueued before the wait for the event before it, as in a loop that stays a
//! step or two ahead of the GPU, and proves nothing.

use ingero_common::cuda_api::{Class, Device, Drain, Function};
use ingero_common::host::HashMap;
use ingero_common::record::Record;

use super::events::{Covered, Events};

use crate::limits::{FULL_FROM, MAX_STREAMS};

/// What is known of an operation; `None` = it is in no table, and may give the GPU work.
pub(crate) type Known = Option<&'static Function>;

/// Whether a call of it may give the GPU something to do.
pub(crate) fn enqueues(function: Known) -> bool {
    function.is_none_or(Function::enqueues)
}

/// `cudaStreamLegacy` and `cudaStreamPerThread`, which are the driver's `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`
/// (driver_types.h, cuda.h).
const LEGACY: &str = "0x1";
const PER_THREAD: &str = "0x2";

/// A stream as far as it can be told from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stream {
    /// The default stream of a device, or not known.
    Default,
    /// The default stream of a thread.
    OfThread(u32),
    /// A handle.
    Handle(Box<str>),
}

impl Stream {
    pub(super) fn of(record: &Record<'_>) -> Self {
        let of_thread = || Self::OfThread(record.tid.unwrap_or_default());
        let per_thread = record.sym.as_deref().is_some_and(|sym| sym.ends_with("_ptsz") || sym.ends_with("_ptds"));
        match record.stream.as_deref() {
            Some(PER_THREAD) => of_thread(),
            None | Some("0x0") if per_thread => of_thread(),
            None | Some("0x0" | LEGACY) => Self::Default,
            Some(handle) => Self::Handle(handle.into()),
        }
    }
}

/// Whether a process works on one device, as far as its calls tell.
#[derive(Debug, Default)]
struct Devices {
    /// The one that was chosen, where that is on record.
    chosen: Option<i64>,
    /// The thread that chose one.
    chosen_by: Option<u32>,
    has_enqueued: bool,
    has_context: bool,
    /// A second thread chose, or one chose after something had been enqueued: for another device, maybe. Or it made a
    /// second context, which is waited for by itself, or a call that is about several devices.
    many: bool,
}

impl Devices {
    fn add(&mut self, record: &Record<'_>, function: Known) {
        self.has_enqueued |= enqueues(function);
        match function.map(|function| function.device) {
            Some(Device::Chosen) => self.choose(record),
            Some(Device::NewContext) => {
                self.many |= self.has_context;
                self.has_context = true;
            }
            Some(Device::Several) => self.many = true,
            Some(Device::Current) | None => {}
        }
    }

    fn choose(&mut self, record: &Record<'_>) {
        if let Some(device) = record.device {
            self.many |= self.chosen.is_some_and(|chosen| chosen != device);
            self.chosen = Some(device);
            return;
        }
        let tid = record.tid.unwrap_or_default();
        self.many |= self.has_enqueued || self.chosen_by.is_some_and(|by| by != tid);
        self.chosen_by = Some(tid);
    }
}

/// What is known of one stream.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// The end of the last enqueuing call, where that has not been waited for beyond doubt.
    pending_ns: Option<u64>,
    /// Operations that may be outstanding…
    all: u64,
    /// …of which those that had been enqueued when an event was last waited for.
    before_event: u64,
}

impl Queue {
    /// All that was enqueued by `upto_ns` is done. Says whether (1) or not (0) that was the last of it.
    fn done_by(&mut self, upto_ns: u64) -> usize {
        let done = self.pending_ns.is_some_and(|last_ns| last_ns <= upto_ns);
        self.pending_ns = self.pending_ns.filter(|_| !done);
        usize::from(done)
    }
}

/// What one process has enqueued and not waited for.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    queues: HashMap<Stream, Queue>,
    /// How many of them have something pending.
    pending: usize,
    /// The end of the last enqueuing call of everything that found no place above.
    overflow_ns: Option<u64>,
    /// When a synchronising call last returned.
    waited_ns: Option<u64>,
    /// A query has heard of work that is in no record, and nothing has been waited for since.
    unrecorded: bool,
    devices: Devices,
    events: Events,
}

impl Outstanding {
    /// Whether a synchronising call has returned and nothing is pending.
    pub(crate) fn is_drained(&self) -> bool {
        self.waited_ns.is_some() && !self.has_pending() && !self.unrecorded
    }

    /// Whether all that is on record has been waited for, whatever a query has heard since.
    pub(crate) fn is_drained_on_record(&self) -> bool {
        self.waited_ns.is_some() && !self.has_pending()
    }

    /// The GPU has work that is in no record.
    pub(crate) fn has_unrecorded(&mut self) {
        self.unrecorded = true;
    }

    /// Whether something was enqueued and not waited for.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending > 0 || self.overflow_ns.is_some()
    }

    /// Whether the GPU at work may be what a call that began at `start_ns` waited for.
    pub(crate) fn may_wait(&self, record: &Record<'_>, function: Known, start_ns: u64) -> bool {
        let Some(function) = function else { return false };
        let dir = record.dir.as_deref();
        match function.class {
            Class::Sync => true,
            Class::Copy if function.blocks(dir) => true,
            Class::Free => {
                function.waits()
                    && !(self.is_drained() && self.waited_ns.is_some_and(|waited_ns| waited_ns <= start_ns))
            }
            Class::Copy if dir != Some("d2d") => {
                let pending = |stream: &Stream| self.queues.get(stream).is_some_and(|queue| queue.pending_ns.is_some());
                pending(&Stream::of(record)) || pending(&Stream::Default)
            }
            _ if function.enqueues() => {
                self.queues.get(&Stream::of(record)).is_some_and(|queue| queue.all >= FULL_FROM)
            }
            _ => false,
        }
    }

    /// Takes note of a call that has returned.
    pub(crate) fn add(&mut self, record: &Record<'_>, function: Known, start_ns: u64, end_ns: u64) {
        let stream = Stream::of(record);
        self.devices.add(record, function);
        let drain = function.map_or(Drain::No, |function| function.drains(record.dir.as_deref()));
        let event = record.event.as_deref();
        if function.is_some_and(|function| function.class == Class::Query) && record.ret == Some(0) {
            self.unrecorded = false;
        }
        match (function.map(|function| function.class), event) {
            (Some(Class::Record), Some(event)) => self.events.record(event, stream, start_ns),
            (Some(Class::StreamWait), Some(event)) => self.events.stream_waits(stream, event),
            // A query that finds everything done.
            (Some(Class::Query), _) if record.ret != Some(0) => {}
            (Some(Class::Query), Some(event)) => self.wait_event(event, start_ns, end_ns),
            (Some(Class::Query), None) if record.stream.is_some() => {
                self.wait(Drain::Stream, &stream, start_ns, end_ns)
            }
            _ if drain != Drain::No || function.is_some_and(|function| function.class == Class::Sync) => {
                if record.ret.is_some_and(|ret| ret != 0) {
                    return;
                }
                self.make_room(drain, &stream);
                match event {
                    Some(event) => self.wait_event(event, start_ns, end_ns),
                    None => self.wait(drain, &stream, start_ns, end_ns),
                }
            }
            _ if enqueues(function) => self.enqueue(stream, end_ns),
            _ => {}
        }
    }

    /// Takes note of a call of which it isn't known when it returned, nor how.
    pub(crate) fn may_have_enqueued(&mut self, function: Known, at_ns: u64) {
        if enqueues(function) {
            self.overflow_ns = self.overflow_ns.max(Some(at_ns));
        }
    }

    fn enqueue(&mut self, stream: Stream, end_ns: u64) {
        if self.queues.len() >= MAX_STREAMS && !self.queues.contains_key(&stream) {
            self.queues.retain(|_, queue| queue.pending_ns.is_some());
            if self.queues.len() >= MAX_STREAMS {
                self.overflow_ns = self.overflow_ns.max(Some(end_ns));
                return;
            }
        }
        let queue = self.queues.entry(stream).or_default();
        self.pending += usize::from(queue.pending_ns.is_none());
        queue.pending_ns = queue.pending_ns.max(Some(end_ns));
        queue.all += 1;
    }

    /// All that was enqueued to a stream, or to the device, before `start_ns` is done.
    fn wait(&mut self, drain: Drain, stream: &Stream, start_ns: u64, end_ns: u64) {
        match drain {
            Drain::Context if !self.devices.many => {
                let done = self.queues.values_mut().map(|queue| queue.done_by(start_ns)).sum::<usize>();
                self.pending -= done;
                self.overflow_ns = self.overflow_ns.filter(|last_ns| *last_ns > start_ns);
                self.waited_ns = self.waited_ns.max(Some(end_ns));
                self.unrecorded = false;
            }
            Drain::Stream => {
                let covered = self.events.covered(stream, start_ns);
                self.done(&covered, end_ns);
            }
            Drain::Context | Drain::No | Drain::Copy => {}
        }
    }

    /// All that lies before an event is done, if it had been recorded by then.
    fn wait_event(&mut self, event: &str, start_ns: u64, end_ns: u64) {
        if let Some(covered) = self.events.of(event).cloned()
            && covered.values().all(|&upto_ns| upto_ns <= start_ns)
        {
            self.done(&covered, end_ns);
        }
    }

    /// Default streams of several devices can't be told apart; a handle is of one device.
    fn done(&mut self, covered: &Covered, end_ns: u64) {
        for (stream, &upto_ns) in covered {
            if self.devices.many && !matches!(stream, Stream::Handle(_)) {
                continue;
            }
            self.pending -= self.queues.get_mut(stream).map_or(0, |queue| queue.done_by(upto_ns));
            self.waited_ns = self.waited_ns.max(Some(end_ns));
            self.unrecorded = false;
        }
    }

    /// What was waited for is outstanding no more. Where it isn't sure what that was, the queues count as emptied: a slow
    /// launch is the host's unless the records speak for the GPU.
    fn make_room(&mut self, drain: Drain, stream: &Stream) {
        if drain == Drain::Stream {
            if let Some(queue) = self.queues.get_mut(stream) {
                (queue.all, queue.before_event) = (0, 0);
            }
            return;
        }
        for queue in self.queues.values_mut() {
            queue.all = if drain == Drain::Context { 0 } else { queue.all - queue.before_event };
            queue.before_event = queue.all;
        }
    }
}

#[cfg(test)]
mod tests;
