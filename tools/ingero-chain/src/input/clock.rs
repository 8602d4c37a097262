//! The time of the stream: where it begins, how far it has been read, and what wall clock time that was.

use ingero_common::clock::{Ts, WallClock, parse_ts};
use ingero_common::record::{LEAP_NS, Record};

/// See the head of the file.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    wall: Option<WallClock>,
    /// What records without a monotonic time are placed by.
    wall_offset_ns: Option<i64>,
    pub(crate) start_ns: Option<u64>,
    /// The first record of a birth, an exec or an end.
    pub(crate) first_task_ns: Option<u64>,
    /// The latest end of any record.
    pub(crate) now_ns: u64,
    /// A record that ends so far beyond all before it that another one has to confirm it.
    pub(super) leap: Option<(u64, Vec<u8>)>,
}

impl Clock {
    /// A `start` record: the first one gives the wall clock.
    pub(super) fn start(&mut self, record: &Record<'_>) {
        if self.wall.is_none() {
            self.wall_offset_ns = record.wall_offset_ns.as_ref().and_then(|text| text.parse().ok());
            self.wall = self.wall_offset_ns.map(WallClock::with_offset);
        }
    }

    /// A `clock` record: the wall clock was set.
    pub(super) fn step(&mut self, record: &Record<'_>) {
        let offset_ns = record.wall_offset_ns.as_ref().and_then(|text| text.parse().ok());
        self.wall_offset_ns = offset_ns.or(self.wall_offset_ns);
    }

    /// Where a record that has only a wall clock time lies on the monotonic clock.
    pub(super) fn placed_ns(&self, record: &Record<'_>) -> Option<u64> {
        let wall_ns = parse_ts(record.ts.as_deref()?)?;
        u64::try_from(wall_ns - i128::from(self.wall_offset_ns?)).ok()
    }

    /// The stream begins at `start_ns` at the latest; one that says it is much older than the first is not believed.
    pub(super) fn seen_from(&mut self, start_ns: u64) {
        self.start_ns = Some(match self.start_ns {
            Some(first_ns) if start_ns.saturating_add(LEAP_NS) < first_ns => first_ns,
            Some(first_ns) => first_ns.min(start_ns),
            None => start_ns,
        });
    }

    /// The wall clock time of an instant, where the stream gives it.
    pub(crate) fn ts(&mut self, mono_ns: u64) -> Option<Ts> {
        self.wall.as_mut().map(|wall| wall.ts(mono_ns))
    }
}
