//! Where records are missing.

use std::collections::VecDeque;

/// An interval in which records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Whose records; `None` = anybody's.
    pub pid: Option<u32>,
    /// How many; `None` = not known.
    pub count: Option<u64>,
    /// A tool that stores a part of what it sees left them out, here and there, rather than losing all for a while.
    pub sampled: bool,
}

impl Loss {
    /// Whether records of process `pid` may be missing in [`from_ns`, `to_ns`).
    ///
    /// What is lost ended in [`start_ns`, `end_ns`]. At the ends of a call, and of a silence, the thread ran: a loss that only
    /// reaches there is of what came before or after. But a loss of which only one instant is known counts at both ends:
    ///
    /// ```text
    ///   call          |----------|
    ///   lost    |-----|                 not in the call: its thread was on a CPU when it began
    ///   lost          !                 it is of that very instant: in the call, or it can't be told
    /// ```
    pub fn touches(&self, pid: u32, from_ns: u64, to_ns: u64) -> bool {
        let overlaps = if self.start_ns == self.end_ns {
            (from_ns..=to_ns).contains(&self.start_ns)
        } else {
            self.start_ns < to_ns && self.end_ns > from_ns
        };
        overlaps && self.pid.is_none_or(|p| p == pid)
    }

    /// One loss that covers both: too much rather than too little.
    fn with(self, other: Self) -> Self {
        Self {
            start_ns: self.start_ns.min(other.start_ns),
            end_ns: self.end_ns.max(other.end_ns),
            pid: self.pid.filter(|_| self.pid == other.pid),
            count: self.count.zip(other.count).map(|(a, b)| a.saturating_add(b)),
            sampled: self.sampled && other.sampled,
        }
    }
}

/// More intervals than this are joined with their neighbours, which only widens what counts as lost.
const MAX_LOSSES: usize = 4096;

/// The intervals in which one tracer's records are missing.
#[derive(Debug, Default)]
pub struct Losses {
    /// By their end.
    all: VecDeque<Loss>,
}

impl Losses {
    /// Takes note of one.
    pub fn add(&mut self, loss: Loss) {
        let at = self.all.iter().rposition(|known| known.end_ns <= loss.end_ns).map_or(0, |before| before + 1);
        self.all.insert(at, loss);
        if self.all.len() > MAX_LOSSES
            && let (Some(a), Some(b)) = (self.all.pop_front(), self.all.pop_front())
        {
            self.all.push_front(a.with(b));
        }
    }

    /// Those that may concern process `pid` in [`from_ns`, `to_ns`).
    pub fn touching(&self, pid: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Loss> {
        let first = self.all.partition_point(|loss| loss.end_ns < from_ns);
        self.all.range(first..).filter(move |loss| loss.touches(pid, from_ns, to_ns))
    }

    /// The intervals in which records of process `pid` may be missing, to be asked many times.
    pub fn ranges(&self, pid: u32) -> LostRanges {
        let of_it = || self.all.iter().filter(|l| l.pid.is_none_or(|p| p == pid)).map(|l| (l.start_ns, l.end_ns));
        let mut instants_ns: Vec<u64> = of_it().filter(|(start, end)| start == end).map(|(start, _)| start).collect();
        instants_ns.sort_unstable();
        LostRanges { ranges: union(of_it().filter(|(start, end)| start < end).collect()), instants_ns }
    }

    /// How much of [`from_ns`, `to_ns`] lies in intervals in which records of process `pid` were lost.
    pub fn lost_ns(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        let clip = |l: &Loss| (l.start_ns.max(from_ns), l.end_ns.min(to_ns));
        let parts = union(self.touching(pid, from_ns, to_ns).map(clip).collect());
        parts.iter().map(|(start_ns, end_ns)| end_ns.saturating_sub(*start_ns)).sum()
    }

    /// The last instant up to `to_ns` at which records of anybody were lost.
    pub fn last_ns(&self, to_ns: u64) -> Option<u64> {
        self.all.iter().filter(|loss| loss.start_ns <= to_ns).map(|loss| loss.end_ns.min(to_ns)).max()
    }

    /// How many records are missing in [`from_ns`, `to_ns`); an unknown number counts as one.
    pub fn count(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        self.touching(pid, from_ns, to_ns).fold(0, |sum, loss| loss.count.unwrap_or(1).saturating_add(sum))
    }
}

/// The same intervals by time, those that overlap joined.
fn union(mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.sort_unstable();
    parts.dedup_by(|next, before| {
        let joins = next.0 < before.1;
        before.1 = if joins { before.1.max(next.1) } else { before.1 };
        joins
    });
    parts
}

/// Where records of one process may be missing: [`Loss::touches`] for all of its losses at once.
#[derive(Clone, Debug, Default)]
pub struct LostRanges {
    /// By time; none overlap.
    ranges: Vec<(u64, u64)>,
    instants_ns: Vec<u64>,
}

impl LostRanges {
    /// Whether that is so somewhere in [`from_ns`, `to_ns`).
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.ranges.partition_point(|&(_, end_ns)| end_ns <= from_ns);
        let instant = self.instants_ns.partition_point(|&at_ns| at_ns < from_ns);
        self.ranges.get(next).is_some_and(|&(start_ns, _)| start_ns < to_ns)
            || self.instants_ns.get(instant).is_some_and(|&at_ns| at_ns <= to_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_records_are_missing_is_the_same_asked_once_or_many_times() {
        let mut losses = Losses::default();
        for (start_ns, end_ns, pid) in
            [(50, 60, None), (10, 20, Some(1)), (15, 30, Some(1)), (55, 56, Some(2)), (80, 80, Some(2))]
        {
            losses.add(Loss { start_ns, end_ns, pid, count: Some(1), sampled: false });
        }
        for pid in 1..4 {
            let doubtful = losses.ranges(pid);
            for (from_ns, to_ns) in (0..90).flat_map(|from| (from..90).map(move |to| (from, to))) {
                let count = losses.count(pid, from_ns, to_ns);
                assert_eq!(doubtful.touches(from_ns, to_ns), count > 0, "{pid} {from_ns} {to_ns}");
            }
        }
    }

    #[test]
    fn a_loss_that_ends_where_a_call_begins_is_none_of_its_own_but_an_instant_is() {
        let loss = |start_ns, end_ns| Loss { start_ns, end_ns, pid: None, count: None, sampled: false };
        assert!(!loss(10, 20).touches(7, 20, 30) && !loss(10, 20).touches(7, 5, 10));
        assert!(loss(10, 20).touches(7, 19, 30) && loss(10, 20).touches(7, 12, 12));
        assert!(loss(20, 20).touches(7, 20, 30) && loss(20, 20).touches(7, 5, 20) && !loss(20, 20).touches(7, 21, 30));
    }

    #[test]
    fn counts_of_hostile_size_stop_at_the_largest() {
        let mut losses = Losses::default();
        for _ in 0..=MAX_LOSSES {
            losses.add(Loss { start_ns: 0, end_ns: 9, pid: None, count: Some(1 << 63), sampled: false });
        }
        assert_eq!(losses.count(7, 0, 10), u64::MAX);
    }

    #[test]
    fn too_many_losses_widen_instead_of_vanishing() {
        let mut losses = Losses::default();
        for i in 0..10_000_u64 {
            losses.add(Loss { start_ns: i * 10, end_ns: i * 10 + 1, pid: Some(1), count: Some(1), sampled: false });
        }
        assert_eq!(losses.count(1, 0, u64::MAX), 10_000);
        assert_eq!(losses.touching(1, 0, 1).count(), 1);
        assert_eq!(losses.touching(2, 0, u64::MAX).count(), 0);
    }
}
