//! What one thread went through lately: its off-CPU intervals and page allocations, kept until the
//! calls that may cover them have been written.
//!
//! A thread's outermost calls come one after another, so once a call that began at `s` is written,
//! nothing that ended before `s` can matter any more. A thread that makes no calls would keep its past
//! for ever; there the past is cut, and the cut remembered: a call that reaches back beyond it cannot be
//! said to have been watched.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::holders::Holder;
use crate::item::{State, Switch};
use crate::life::Life;

/// A thread off the CPU in [`start_ns`, `end_ns`].
#[derive(Clone, Debug)]
pub(crate) struct Interval {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// From here on it was runnable and waited for a CPU.
    pub(crate) runnable_ns: u64,
    pub(crate) state: State,
    pub(crate) holder: Option<Arc<Holder>>,
}

/// Pages that the kernel allocated for a thread in [`start_ns`, `end_ns`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl Interval {
    pub(crate) fn new(start_ns: u64, end_ns: u64, switch: &Switch) -> Self {
        let runnable_ns = end_ns.saturating_sub(switch.runq_ns).max(start_ns);
        Self { start_ns, end_ns: end_ns.max(start_ns), runnable_ns, state: switch.state, holder: switch.holder.clone() }
    }
}

/// One thread.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    /// Boundaries of this thread alone; those of its process come on top.
    pub(crate) life: Life,
    /// In order of their ends.
    intervals: VecDeque<Interval>,
    /// Some interval began before one that ended before it: their starts are not in order.
    overlapping: bool,
    /// No interval is longer.
    longest_ns: u64,
    /// In order of their ends.
    pages: VecDeque<Pages>,
    /// Something that ended here or before was dropped although a call may still cover it.
    cut_ns: Option<u64>,
}

impl Thread {
    pub(crate) fn add_interval(&mut self, interval: Interval) {
        // Nearly always the last one.
        let at = back_position(&self.intervals, |i| i.end_ns <= interval.end_ns);
        let before = at.checked_sub(1).and_then(|at| self.intervals.get(at));
        self.overlapping |= before.is_some_and(|i| i.start_ns > interval.start_ns)
            || self.intervals.get(at).is_some_and(|i| i.start_ns < interval.start_ns);
        self.longest_ns = self.longest_ns.max(interval.end_ns - interval.start_ns);
        self.intervals.insert(at, interval);
    }

    pub(crate) fn add_pages(&mut self, pages: Pages) {
        let at = back_position(&self.pages, |p| p.end_ns <= pages.end_ns);
        self.pages.insert(at, pages);
    }

    /// The intervals that overlap [`start_ns`, `end_ns`], in order of their ends.
    pub(crate) fn intervals_in(&self, start_ns: u64, end_ns: u64) -> impl Iterator<Item = &Interval> {
        // A window's worth of intervals lies behind the call. A thread is off the CPU once at a time, so
        // the first that begins after the call is the last to look at. Where records say otherwise, the
        // first that would begin after the call even if it were the longest.
        let begins_by_ns = move |i: &Interval| {
            if self.overlapping { i.end_ns.saturating_sub(self.longest_ns) } else { i.start_ns }
        };
        // What ended before was mostly forgotten with the call before this one.
        self.intervals
            .iter()
            .skip_while(move |i| i.end_ns <= start_ns)
            .take_while(move |i| begins_by_ns(i) < end_ns)
            .filter(move |i| i.start_ns < end_ns)
    }

    /// The allocations that lie wholly inside [`start_ns`, `end_ns`].
    pub(crate) fn pages_inside(&self, start_ns: u64, end_ns: u64) -> impl Iterator<Item = &Pages> {
        let from = self.pages.partition_point(|p| p.end_ns < start_ns);
        self.pages.range(from..).take_while(move |p| p.end_ns <= end_ns).filter(move |p| p.start_ns >= start_ns)
    }

    /// A call that began at `start_ns` has been written. How many entries became free.
    pub(crate) fn forget_before(&mut self, start_ns: u64) -> usize {
        let before = self.len();
        while self.intervals.front().is_some_and(|i| i.end_ns <= start_ns) {
            self.intervals.pop_front();
        }
        while self.pages.front().is_some_and(|p| p.end_ns < start_ns) {
            self.pages.pop_front();
        }
        if self.intervals.is_empty() {
            (self.overlapping, self.longest_ns) = (false, 0);
        }
        before - self.len()
    }

    /// Keeps only the latest `keep` entries of each kind, to save memory. How many entries became free.
    pub(crate) fn cut(&mut self, keep: usize) -> usize {
        let before = self.len();
        while self.intervals.len() > keep {
            self.cut_ns = self.cut_ns.max(self.intervals.pop_front().map(|i| i.end_ns));
        }
        while self.pages.len() > keep {
            self.cut_ns = self.cut_ns.max(self.pages.pop_front().map(|p| p.end_ns));
        }
        self.intervals.shrink_to_fit();
        self.pages.shrink_to_fit();
        before - self.len()
    }

    /// Whether all that a call beginning at `start_ns` may cover is still there.
    pub(crate) fn reaches_back_to(&self, start_ns: u64) -> bool {
        self.cut_ns.is_none_or(|cut_ns| cut_ns <= start_ns)
    }

    /// How many entries it holds.
    pub(crate) fn len(&self) -> usize {
        self.intervals.len() + self.pages.len()
    }

    /// Whether forgetting it loses nothing.
    pub(crate) fn is_blank(&self) -> bool {
        self.len() == 0 && self.cut_ns.is_none() && !self.life.is_bounded()
    }
}

/// Behind the last element for which `before` holds, searched from the back.
fn back_position<T>(sorted: &VecDeque<T>, before: impl Fn(&T) -> bool) -> usize {
    match sorted.back() {
        Some(last) if !before(last) => sorted.partition_point(before),
        _ => sorted.len(),
    }
}
