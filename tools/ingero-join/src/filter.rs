//! `--pid`, `--since`, `--until`: what is written. What is left out has been attributed like everything else.

use std::collections::HashSet;

use crate::item::{Change, Item, Kind, Side};
use crate::options::{Options, When};

/// What to let through.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// Empty: all.
    pids: HashSet<u32>,
    since: Option<When>,
    until: Option<When>,
    since_ns: Option<u64>,
    until_ns: Option<u64>,
}

impl Filter {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            pids: options.pid.iter().copied().collect(),
            since: options.since,
            until: options.until,
            ..Self::default()
        }
    }

    /// The first record begins at `first_ns`; wall clock minus monotonic is `wall_offset_ns` where known.
    pub(crate) fn begin(&mut self, first_ns: u64, wall_offset_ns: Option<i64>) {
        let mono_ns = |when: When| match when {
            When::After(d) => Some(first_ns.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))),
            When::Wall(ns) => {
                wall_offset_ns.map(|offset_ns| u64::try_from(i128::from(ns) - i128::from(offset_ns)).unwrap_or(0))
            }
        };
        self.since_ns = self.since.and_then(mono_ns);
        self.until_ns = self.until.and_then(mono_ns);
    }

    /// Whether a bound was given as wall clock and can't be placed, since no input says its offset.
    pub(crate) fn lacks_offset(&self) -> bool {
        self.since.is_some() && self.since_ns.is_none() || self.until.is_some() && self.until_ns.is_none()
    }

    /// Whether the first bound lies behind the second: nothing could be between them.
    pub(crate) fn is_empty(&self) -> bool {
        self.since_ns.zip(self.until_ns).is_some_and(|(since_ns, until_ns)| since_ns > until_ns)
    }

    /// Whether to write a record at [`start_ns`, `end_ns`].
    pub(crate) fn keeps(&mut self, item: &Item, start_ns: u64, end_ns: u64) -> bool {
        self.keeps_process(item) && self.keeps_time(item, start_ns, end_ns)
    }

    /// The time within the bounds that a line gets which is kept although it lies outside: what is written is watched
    /// from the first bound to the second, and silence outside is no evidence of anything.
    pub(crate) fn moved(&self, item: &Item, start_ns: u64) -> Option<u64> {
        match item.kind {
            Kind::Watch(_) => self.since_ns.filter(|&since_ns| start_ns < since_ns),
            Kind::End { .. } => self.until_ns.filter(|&until_ns| start_ns > until_ns),
            _ => None,
        }
    }

    /// `at_ns` within the bounds.
    pub(crate) fn within(&self, at_ns: u64) -> u64 {
        at_ns.max(self.since_ns.unwrap_or(0)).min(self.until_ns.unwrap_or(u64::MAX))
    }

    fn keeps_process(&mut self, item: &Item) -> bool {
        if self.pids.is_empty() {
            return true;
        }
        // What names no process (samples of the machine, losses, the frame) concerns all of them.
        let keep = item.pid.is_none_or(|pid| self.pids.contains(&pid));
        match item.kind {
            Kind::Change(Change::Fork { child_pid }) if keep => {
                self.pids.insert(child_pid);
            }
            // A PID that is born elsewhere is somebody else now.
            Kind::Change(Change::Fork { child_pid }) => {
                self.pids.remove(&child_pid);
            }
            _ => {}
        }
        keep
    }

    fn keeps_time(&self, item: &Item, start_ns: u64, end_ns: u64) -> bool {
        if self.until_ns.is_some_and(|until_ns| start_ns > until_ns) {
            return matches!(item.kind, Kind::End { .. });
        }
        if self.since_ns.is_some_and(|since_ns| end_ns < since_ns) {
            // Who is watched and who is whose child is still true later; what was lost before is not.
            return match item.kind {
                Kind::Change(_) => true,
                Kind::LostSched | Kind::Lost => false,
                _ => item.side == Side::Frame,
            };
        }
        true
    }
}
