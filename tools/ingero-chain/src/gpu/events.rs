//! What events tell: which work of which streams lies before each of them.
//!
//! An event marks a place in a stream. Who waits for it waits for what was in that stream before it, and for what that stream
//! itself had been made to wait for by then:
//!
//! ```text
//!   stream 7   launch  record E |                        E covers the launch
//!   stream 9           waitEvent E  launch  record F |   F covers stream 9's launch and, through E, stream 7's
//!   host                                eventSynchronize F   -> both have nothing left: drained
//! ```
//!
//! Handles of events are on record since ingero-cuda reads them (`event`); of older recordings events tell nothing.

use ingero_common::host::HashMap;

use super::outstanding::Stream;

use crate::limits::MAX_EVENTS;

/// Streams, and up to which instant what was enqueued to them is covered.
pub(super) type Covered = HashMap<Stream, u64>;

/// The events of one process, and the streams that wait for them.
#[derive(Debug, Default)]
pub(super) struct Events {
    recorded: HashMap<Box<str>, Covered>,
    /// By stream, what it has been made to wait for.
    follows: HashMap<Stream, Covered>,
}

impl Events {
    /// Event `event` was recorded in `stream` by a call that began at `at_ns`.
    pub(super) fn record(&mut self, event: &str, stream: Stream, at_ns: u64) {
        if self.recorded.len() >= MAX_EVENTS && !self.recorded.contains_key(event) {
            self.recorded.clear();
        }
        let covered = self.covered(&stream, at_ns);
        self.recorded.insert(event.into(), covered);
    }

    /// What is enqueued to `stream` from here on waits for `event`.
    pub(super) fn stream_waits(&mut self, stream: Stream, event: &str) {
        if self.follows.len() >= MAX_EVENTS {
            self.follows.clear();
        }
        let Some(covered) = self.recorded.get(event) else { return };
        let follows = self.follows.entry(stream).or_default();
        for (stream, &at_ns) in covered {
            let known_ns = follows.entry(stream.clone()).or_default();
            *known_ns = at_ns.max(*known_ns);
        }
    }

    /// What lies before `event`, where that is on record.
    pub(super) fn of(&self, event: &str) -> Option<&Covered> {
        self.recorded.get(event)
    }

    /// What is done when everything is that was enqueued to `stream` by `at_ns`.
    pub(super) fn covered(&self, stream: &Stream, at_ns: u64) -> Covered {
        let mut covered = self.follows.get(stream).cloned().unwrap_or_default();
        covered.retain(|_, upto_ns| *upto_ns <= at_ns);
        covered.insert(stream.clone(), at_ns);
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_events_prove_nothing() {
        let mut events = Events::default();
        (0..4_096).for_each(|n| events.record(&format!("0x{n}"), Stream::Default, n));
        assert!(events.of("0x0").is_some() && events.of("0x4095").is_some());
        events.record("0x0", Stream::Default, 9_000);
        assert!(events.of("0x1").is_some(), "it is known already");
        events.record("0xfff0000", Stream::Default, 9_000);
        assert!(events.of("0x0").is_none() && events.of("0xfff0000").is_some());
        (0..4_096).for_each(|n| events.stream_waits(Stream::OfThread(n), "0xfff0000"));
        assert_eq!(events.covered(&Stream::OfThread(0), 10_000).len(), 2);
        events.stream_waits(Stream::OfThread(5_000), "0xfff0000");
        assert_eq!(events.covered(&Stream::OfThread(0), 10_000).len(), 1);
    }
}
