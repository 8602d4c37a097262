//! Lost time: single intervals, and what is kept of many of them.
//!
//! Sums, quantiles, causes and the grid are of all intervals, however many there are. One by one are kept the longest and the
//! latest.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::blame::breakdown::Breakdown;
use crate::limits::{FIRST_SLICE_NS, MAX_FIRST, MAX_LATEST, MAX_LONGEST, MAX_SLICES};
use crate::stats::quantiles::Quantiles;

/// One interval in which the GPU waited, or may have.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// The GPU is known to have been idle.
    pub(crate) proven: bool,
    /// How many calls the process had made by then.
    pub(crate) seq: u64,
    /// Lost records that may have lain in it.
    pub(crate) lost_records: u64,
    /// How much of it the scheduler tracer watched without a loss.
    pub(crate) watched_ns: u64,
    pub(crate) breakdown: Breakdown,
}

impl Lost {
    pub(crate) fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// Lost time by slices of the recording, all of one length, which doubles when there get too many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grid {
    pub(crate) start_ns: u64,
    pub(crate) slice_ns: u64,
    pub(crate) slices: Vec<u64>,
}

impl Grid {
    fn add(&mut self, start_ns: u64, end_ns: u64) {
        if self.slice_ns == 0 {
            (self.start_ns, self.slice_ns) = (start_ns, FIRST_SLICE_NS);
        }
        // One that began before the first of all, as seen by another thread, counts from there.
        let mut at_ns = start_ns.max(self.start_ns);
        while (end_ns.saturating_sub(self.start_ns)) > self.slice_ns.saturating_mul(MAX_SLICES as u64) {
            self.slices = self.slices.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.slice_ns = self.slice_ns.saturating_mul(2);
        }
        while at_ns < end_ns {
            let slice = ((at_ns - self.start_ns) / self.slice_ns) as usize;
            let until_ns = (self.start_ns + (slice as u64 + 1) * self.slice_ns).min(end_ns);
            if self.slices.len() <= slice {
                self.slices.resize(slice + 1, 0);
            }
            self.slices[slice] += until_ns - at_ns;
            at_ns = until_ns;
        }
    }
}

/// Ordered by length; of equal ones the earlier is the longer.
#[derive(Clone, Debug)]
struct ByLength(Lost);

impl ByLength {
    fn key(&self) -> (u64, Reverse<u64>) {
        (self.0.len_ns(), Reverse(self.0.start_ns))
    }
}

impl PartialEq for ByLength {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByLength {}

impl PartialOrd for ByLength {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByLength {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The lost time before one kind of call.
#[derive(Clone, Debug, Default)]
pub(crate) struct LostSum {
    pub(crate) n: u64,
    pub(crate) lost_ns: u64,
    pub(crate) proven_ns: u64,
    pub(crate) watched_ns: u64,
    pub(crate) lost_records: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_end_ns: u64,
    pub(crate) breakdown: Breakdown,
    pub(crate) lengths: Quantiles,
    pub(crate) grid: Grid,
    first: Vec<Lost>,
    longest: BinaryHeap<Reverse<ByLength>>,
    latest: VecDeque<Lost>,
}

impl LostSum {
    pub(crate) fn add(&mut self, lost: Lost) {
        self.first_ns = if self.n == 0 { lost.start_ns } else { self.first_ns.min(lost.start_ns) };
        self.last_end_ns = self.last_end_ns.max(lost.end_ns);
        self.n += 1;
        self.lost_ns += lost.len_ns();
        self.proven_ns += if lost.proven { lost.len_ns() } else { 0 };
        self.watched_ns += lost.watched_ns;
        self.lost_records = self.lost_records.saturating_add(lost.lost_records);
        self.breakdown.add_all(&lost.breakdown);
        self.lengths.add(lost.len_ns());
        self.grid.add(lost.start_ns, lost.end_ns);
        self.latest.push_back(lost);
        if self.latest.len() > MAX_LATEST
            && let Some(old) = self.latest.pop_front()
        {
            if self.first.len() < MAX_FIRST {
                self.first.push(old);
                return;
            }
            self.longest.push(Reverse(ByLength(old)));
            if self.longest.len() > MAX_LONGEST {
                self.longest.pop();
            }
        }
    }

    /// Those that are kept one by one: the first, the longest and the latest, in the order of time.
    pub(crate) fn kept(&self) -> Vec<&Lost> {
        let mut kept: Vec<&Lost> =
            self.longest.iter().map(|Reverse(ByLength(lost))| lost).chain(&self.first).chain(&self.latest).collect();
        kept.sort_by_key(|lost| lost.start_ns);
        kept
    }

    /// The latest, without any left out between them: what a period is read from.
    pub(crate) fn latest(&self) -> impl Iterator<Item = &Lost> {
        self.latest.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(start_ns: u64, len_ns: u64) -> Lost {
        let mut breakdown = Breakdown::default();
        breakdown.add_unexplained(len_ns);
        let end_ns = start_ns + len_ns;
        Lost { start_ns, end_ns, proven: true, seq: 0, lost_records: 0, watched_ns: 0, breakdown }
    }

    #[test]
    fn whatever_is_dropped_sums_stay_and_the_first_and_the_longest_are_kept() {
        let (mut sum, mut total) = (LostSum::default(), 0);
        let step_ns = 10_000_000;
        for i in 0..20_000_u64 {
            let len_ns = if i == 77 { 9_000_000 } else { 1_000 + i * 7919 % 5_000 };
            sum.add(lost(i * step_ns, len_ns));
            total += len_ns;
        }
        assert_eq!((sum.n, sum.lost_ns, sum.proven_ns, sum.breakdown.total_ns()), (20_000, total, total, total));
        assert_eq!((sum.first_ns, sum.lengths.max_ns()), (0, 9_000_000));
        assert_eq!(sum.grid.slices.iter().sum::<u64>(), total);
        assert_eq!((sum.grid.slices.len(), sum.grid.slice_ns), (79, 256 * 10_000_000), "100 at most");
        let kept = sum.kept();
        assert_eq!(kept[0].start_ns, 0);
        assert!(kept.iter().any(|lost| lost.start_ns == 77 * step_ns));
        assert_eq!((sum.first.len(), sum.longest.len(), sum.latest().count()), (16, 256, 256));
        assert_eq!(kept.last().map(|lost| lost.start_ns), Some(19_999 * step_ns));
    }

    #[test]
    fn an_interval_lies_in_all_slices_that_it_touches() {
        let mut grid = Grid::default();
        grid.add(5, 10);
        grid.add(10_000_000, 20_000_100);
        assert_eq!(grid.slices, [10, 10_000_000, 95]);
    }
}
