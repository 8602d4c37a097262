//! How often each operation was called over time, and whether that fell: a *drop*.
//!
//! ```text
//!   launches in windows of 200 ms:  400 410 395 402 398 | 120 131 118 125 122 119 …   to the end
//!   usual 400, below 60 % of it for longer than a second -> drop; what is missing, (400 - 120) / 400 of each
//!   window, is time that went elsewhere
//! ```
//!
//! Fewer calls need not be a loss: each may take longer, mostly because the GPU has more to do, and gaps and slow
//! calls say more by themselves. So what the windows of a drop spent in calls beyond the usual, and in gaps, is
//! taken off; only the rest is reported, and why it was spent is not known.

use crate::calls::GroupKey;
use crate::map::HashMap;

/// The first length of a window, in nanoseconds; doubled whenever there get too many.
const WINDOW_NS: u64 = 200_000_000;
/// Windows kept for each process.
const MAX_WINDOWS: usize = 4096;
/// Operations counted for each process.
const MAX_OPS: usize = 128;
/// Below this share of the usual rate it is a drop.
pub const DROP_BELOW: f64 = 0.6;
/// A rate of fewer calls in a window is too small to fall.
const MIN_CALLS: f64 = 20.0;
/// A drop lasts so long, and so does what it is compared with.
pub const DROP_NS: u64 = 1_000_000_000;

/// Calls by operation and window.
#[derive(Debug, Default)]
pub struct Rates {
    start_ns: u64,
    window_ns: u64,
    counts: HashMap<GroupKey, Vec<u32>>,
    /// Time in calls, by window.
    busy_ns: Vec<u64>,
}

/// A stretch in which an operation was called less often than usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drop {
    /// Which.
    pub call: GroupKey,
    /// From when…
    pub start_ns: u64,
    /// …to when.
    pub end_ns: u64,
    /// The missing part of the stretch, without what longer calls and gaps took.
    pub lost_ns: u64,
    /// Calls in a window in that stretch…
    pub calls: u64,
    /// …and usually.
    pub usual_calls: u64,
    /// How long a window is.
    pub window_ns: u64,
}

impl Rates {
    /// Counts a call.
    pub fn add(&mut self, call: GroupKey, start_ns: u64, end_ns: u64) {
        if self.window_ns == 0 {
            (self.start_ns, self.window_ns) = (end_ns, WINDOW_NS);
        }
        let mut at = self.window(end_ns);
        while at >= MAX_WINDOWS {
            self.halve();
            at = self.window(end_ns);
        }
        if self.counts.len() < MAX_OPS || self.counts.contains_key(&call) {
            let counts = self.counts.entry(call).or_default();
            if counts.len() <= at {
                counts.resize(at + 1, 0);
            }
            counts[at] = counts[at].saturating_add(1);
        }
        self.add_busy(start_ns, end_ns, at);
    }

    /// Spreads a call over the windows that it lasted in.
    fn add_busy(&mut self, start_ns: u64, end_ns: u64, last: usize) {
        if self.busy_ns.len() <= last {
            self.busy_ns.resize(last + 1, 0);
        }
        for at in self.window(start_ns)..=last {
            let from_ns = self.start_ns + at as u64 * self.window_ns;
            let (from, to) = (start_ns.max(from_ns), end_ns.min(from_ns + self.window_ns));
            self.busy_ns[at] += to.saturating_sub(from);
        }
    }

    /// The largest drop, if any, among the windows that are complete by `end_ns`. `gap_ns(from, to)` says how much
    /// of a stretch lay in gaps.
    pub fn drop(&self, end_ns: u64, gap_ns: impl Fn(u64, u64) -> u64) -> Option<Drop> {
        let complete = (end_ns.saturating_sub(self.start_ns) / self.window_ns.max(1)) as usize;
        let least = DROP_NS.div_ceil(self.window_ns.max(1)).max(2) as usize;
        if complete < 2 * least {
            return None;
        }
        let drops = self.counts.iter().filter_map(|(&call, counts)| {
            let mut counts = counts.clone();
            counts.resize(complete, 0);
            self.longest(call, &counts, least, &gap_ns)
        });
        drops.max_by_key(|d| (d.lost_ns, std::cmp::Reverse(d.call)))
    }

    fn longest(&self, call: GroupKey, counts: &[u32], least: usize, gap_ns: impl Fn(u64, u64) -> u64) -> Option<Drop> {
        let mut sorted = counts.to_vec();
        sorted.sort_unstable();
        // The upper quartile: usual even where the drop lasted for more than half of the time.
        let usual = f64::from(sorted[sorted.len() * 3 / 4]);
        let low = |count: u32| f64::from(count) < usual * DROP_BELOW;
        if usual < MIN_CALLS || counts.iter().filter(|&&c| !low(c)).count() < least {
            return None;
        }
        let mut best: Option<(usize, usize)> = None;
        let mut from = 0;
        for run in counts.chunk_by(|&a, &b| low(a) == low(b)) {
            // What comes before the first usual window is the beginning, not a drop.
            if low(run[0]) && from > 0 && best.is_none_or(|(_, len)| run.len() > len) {
                best = Some((from, run.len()));
            }
            from += run.len();
        }
        let (from, len) = best.filter(|&(_, len)| len >= least)?;
        let run = &counts[from..from + len];
        let missing: f64 = run.iter().map(|&c| 1.0 - f64::from(c) / usual).sum();
        let start_ns = self.start_ns + from as u64 * self.window_ns;
        let end_ns = start_ns + len as u64 * self.window_ns;
        let busy = |at: usize| self.busy_ns.get(at).copied().unwrap_or(0);
        let usual_busy = self.usual_busy_ns(counts, usual);
        let busy_ns: u64 = (from..from + len).map(|at| busy(at).saturating_sub(usual_busy)).sum();
        let missing_ns = (missing * self.window_ns as f64) as u64;
        let lost_ns = missing_ns.saturating_sub(busy_ns).saturating_sub(gap_ns(start_ns, end_ns));
        let calls = run.iter().map(|&c| u64::from(c)).sum::<u64>() / len as u64;
        Some(Drop { call, start_ns, end_ns, lost_ns, calls, usual_calls: usual as u64, window_ns: self.window_ns })
    }

    /// Time in calls in a window with the usual number of calls.
    fn usual_busy_ns(&self, counts: &[u32], usual: f64) -> u64 {
        let usual_windows = counts.iter().enumerate().filter(|(_, c)| f64::from(**c) >= usual * DROP_BELOW);
        let (mut sum, mut n) = (0, 0);
        for (at, _) in usual_windows {
            sum += self.busy_ns.get(at).copied().unwrap_or(0);
            n += 1;
        }
        sum / n.max(1)
    }

    fn window(&self, at_ns: u64) -> usize {
        (at_ns.saturating_sub(self.start_ns) / self.window_ns) as usize
    }

    fn halve(&mut self) {
        self.window_ns = self.window_ns.saturating_mul(2);
        for counts in self.counts.values_mut() {
            *counts = counts.chunks(2).map(|pair| pair.iter().fold(0, |a: u32, b| a.saturating_add(*b))).collect();
        }
        self.busy_ns = self.busy_ns.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    const MS: u64 = 1_000_000;

    fn key() -> GroupKey {
        GroupKey { source: Name::default(), op: Name::default(), dir: Name::default(), size: 0 }
    }

    fn rates(phases: &[(u64, u64)]) -> (Rates, u64) {
        let (mut rates, mut t) = (Rates::default(), 1_000_000_000);
        for &(ms, step_us) in phases {
            let end = t + ms * MS;
            while t < end {
                rates.add(key(), t, t + 1000);
                t += step_us * 1000;
            }
        }
        (rates, t)
    }

    #[test]
    fn a_rate_that_falls_is_a_drop_and_a_steady_one_is_not() {
        let (steady, end) = rates(&[(6000, 500)]);
        assert_eq!(steady.drop(end, |_, _| 0), None);
        let (fell, end) = rates(&[(3000, 500), (3000, 1500)]);
        let drop = fell.drop(end, |_, _| 0).unwrap();
        assert_eq!((drop.usual_calls, drop.calls / 10), (400, 13));
        assert!(drop.lost_ns.abs_diff(2_000 * MS) < 200 * MS, "{drop:?}");
        let gaps = fell.drop(end, |from, to| to - from).unwrap();
        assert_eq!(gaps.lost_ns, 0, "gaps say it already");
    }

    #[test]
    fn a_gpu_with_more_to_do_is_no_drop() {
        let (mut rates, mut t) = rates(&[(3000, 500)]);
        for _ in 0..30 {
            for _ in 0..50 {
                rates.add(key(), t, t + 1000);
                t += 10_000;
            }
            rates.add(GroupKey { size: 1, ..key() }, t, t + 100 * MS);
            t += 100 * MS;
        }
        assert!(rates.drop(t, |_, _| 0).is_none_or(|d| d.lost_ns < 100 * MS));
    }

    #[test]
    fn windows_stay_bounded() {
        let mut rates = Rates::default();
        for i in 0..100_000_u64 {
            rates.add(key(), i * 500 * MS, i * 500 * MS + 1);
        }
        assert!(rates.counts[&key()].len() <= MAX_WINDOWS);
        assert_eq!(rates.counts[&key()].iter().map(|&c| u64::from(c)).sum::<u64>(), 100_000);
    }
}
