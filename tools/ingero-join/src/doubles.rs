//! One process that two tracers of a kind watch: whatever it does is in two inputs.
//!
//! Two ingero-cuda on one process both write each of its calls, with starts some microseconds apart. Taken as they come, every
//! call would count twice and a thread would be off the CPU for twice as long as it was. So one input is believed, the one
//! whose tracer watched the process first, and what the others say of the process meanwhile is marked. Where the first one
//! ends, the next one is believed:
//!
//! ```text
//! a.ndjson   watch 7  call   call   end
//! b.ndjson            watch 7    call   call   call
//! joined     watch 7  call  watch 7  call  call*  end  call  call          * "double":true
//! ```
//!
//! Tracers with different filters share only some processes, or none: it is each process that is looked at.

use std::collections::VecDeque;

use ingero_common::host::HashMap;

use crate::item::Side;

/// A process on its kernel: a PID is only unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) domain: u16,
    pub(crate) pid: u32,
}

/// Which tracers are meant, of which process.
type Stream = (Side, Key);

/// So many watched processes are remembered; of those beyond, nothing is marked.
const MAX_STREAMS: usize = 65_536;

/// Who watches what.
#[derive(Debug, Default)]
pub(crate) struct Doubles {
    watched: HashMap<Stream, Watchers>,
    /// Processes that have ended, oldest first: they make room. Some may have begun anew since.
    ended: VecDeque<Stream>,
    /// There was a process with several watchers.
    shared: bool,
}

/// The inputs that watch a process, in the order in which they began.
#[derive(Debug, Default)]
struct Watchers {
    lanes: Vec<usize>,
    /// The process has ended: who begins to watch now watches another one by the same number.
    ended: bool,
}

impl Doubles {
    /// The tracer of input `lane` watches the process from here on.
    pub(crate) fn watch(&mut self, side: Side, key: Key, lane: usize) {
        if self.watched.len() >= MAX_STREAMS && !self.watched.contains_key(&(side, key)) {
            let ended = |stream: &Stream| self.watched.get(stream).is_some_and(|watchers| watchers.ended);
            let Some(at) = self.ended.iter().position(ended) else { return self.ended.clear() };
            if let Some(stream) = self.ended.drain(..=at).next_back() {
                self.watched.remove(&stream);
            }
        }
        let watchers = self.watched.entry((side, key)).or_default();
        if std::mem::take(&mut watchers.ended) {
            watchers.lanes.clear();
        }
        if !watchers.lanes.contains(&lane) {
            watchers.lanes.push(lane);
            self.shared |= watchers.lanes.len() > 1;
        }
    }

    /// The process has ended.
    pub(crate) fn ended(&mut self, key: Key) {
        for side in [Side::Cuda, Side::Sched] {
            if let Some(watchers) = self.watched.get_mut(&(side, key))
                && !std::mem::replace(&mut watchers.ended, true)
            {
                self.ended.push_back((side, key));
            }
        }
        // One that is forgotten here makes no room: it may stay.
        while self.ended.len() > MAX_STREAMS {
            self.ended.pop_front();
        }
    }

    /// The tracer of input `lane` has ended; `side` where that is known.
    pub(crate) fn stopped(&mut self, side: Option<Side>, lane: usize) {
        self.watched.retain(|(of, _), watchers| {
            if side.is_none_or(|side| side == *of) {
                watchers.lanes.retain(|other| *other != lane);
            }
            !watchers.lanes.is_empty()
        });
    }

    /// The input that says what a record about the process, in input `lane`, says again. `tells` is whether an input goes on as
    /// far as this record: one whose tracer was killed has no end.
    pub(crate) fn before(&self, side: Side, key: Key, lane: usize, tells: impl Fn(usize) -> bool) -> Option<usize> {
        if !self.shared {
            return None;
        }
        let lanes = &self.watched.get(&(side, key))?.lanes;
        // Whoever does not watch the process has it from somewhere else.
        let own = lanes.iter().position(|other| *other == lane)?;
        lanes[..own].iter().copied().find(|other| tells(*other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Key = Key { domain: 0, pid: 7 };

    #[test]
    fn the_first_who_watches_is_believed_as_long_as_it_tells() {
        let mut doubles = Doubles::default();
        let before = |doubles: &Doubles, lane, tells| doubles.before(Side::Cuda, P, lane, |_| tells);
        doubles.watch(Side::Cuda, P, 1);
        assert_eq!(before(&doubles, 1, true), None);
        doubles.watch(Side::Cuda, P, 0);
        doubles.watch(Side::Cuda, P, 0);
        assert_eq!([before(&doubles, 1, true), before(&doubles, 0, true)], [None, Some(1)]);
        // One that was killed, and an input that does not watch the process.
        assert_eq!([before(&doubles, 0, false), before(&doubles, 2, true)], [None, None]);
        // The other kind, and another process.
        assert_eq!(doubles.before(Side::Sched, P, 0, |_| true), None);
        assert_eq!(doubles.before(Side::Cuda, Key { pid: 8, ..P }, 0, |_| true), None);
        doubles.stopped(Some(Side::Sched), 1);
        assert_eq!(before(&doubles, 0, true), Some(1));
        doubles.stopped(Some(Side::Cuda), 1);
        assert_eq!(before(&doubles, 0, true), None);
    }

    #[test]
    fn a_number_that_is_used_again_begins_anew() {
        let mut doubles = Doubles::default();
        doubles.watch(Side::Sched, P, 0);
        doubles.watch(Side::Sched, P, 1);
        doubles.ended(P);
        // What the other one says of the end.
        assert_eq!(doubles.before(Side::Sched, P, 1, |_| true), Some(0));
        doubles.watch(Side::Sched, P, 1);
        assert_eq!(doubles.before(Side::Sched, P, 1, |_| true), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut doubles = Doubles::default();
        for pid in 0..100_000 {
            doubles.watch(Side::Cuda, Key { domain: 0, pid }, 0);
        }
        assert_eq!(doubles.watched.len(), MAX_STREAMS);
        doubles.ended(Key { domain: 0, pid: 1 });
        doubles.watch(Side::Cuda, Key { domain: 0, pid: 200_000 }, 0);
        assert_eq!(doubles.watched.len(), MAX_STREAMS);
        assert!(doubles.watched.contains_key(&(Side::Cuda, Key { domain: 0, pid: 200_000 })));
    }
}
