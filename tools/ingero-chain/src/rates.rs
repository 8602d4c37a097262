//! How often each operation was called over time, and whether that fell: a *drop*.
//!
//! ```text
//!   launches in windows of 200 ms:  400 410 395 402 398 | 120 131 118 125 122 119 …   to the end
//!   usual 400, below 60 % of it for longer than a second -> drop; what is missing, (400 - 120) / 400 of each
//!   window, is time that went elsewhere
//! ```
//!
//! Fewer calls need not be a loss: each may take longer, mostly because the GPU has more to do, and gaps and slow
//! calls say more by themselves. So what the windows of a drop spent in calls (or with a GPU that was at work) beyond
//! what so many calls usually take, and in gaps, is taken off; only the rest is reported.
//!
//! Its causes are those of the stretches between calls that are too short for a gap, beyond what so many calls usually
//! have of each. The shortest are not looked at, nor are those in which the records don't tell what happened. Where
//! such are a usual part of the time, what takes their place in a drop may be any of its causes, so that much of each
//! is not put down to it but left unexplained:
//!
//! ```text
//!   usual:  4000 calls in 200 ms, 50 us each: 10 in the call, 40 between, not looked at
//!   drop:   1000 calls in 200 ms, 200 us each: 10 in the call, 160 on the CPU and 30 waiting for it between
//!
//!   lost 150 ms of each 200. On the CPU 160 ms, of which 40 may be the usual: 120. Waiting 30, all of which
//!   may be the usual: 0. Unexplained: 30.
//! ```

use ingero_common::host::HashMap;

use crate::calls::GroupKey;
use crate::cause::Bill;

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
    /// Time in calls, and between them with a GPU that was at work, by window.
    busy_ns: Vec<u64>,
    /// The causes of the stretches too short for a gap, by the window that they end in.
    between: Vec<Bill>,
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
    /// Why; adds up to what is lost.
    pub bill: Bill,
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

    /// In [`start_ns`, `end_ns`] the GPU was at work between calls, of which those that end it have been counted.
    pub fn add_gpu_busy(&mut self, start_ns: u64, end_ns: u64) {
        if self.window_ns > 0 {
            self.add_busy(start_ns, end_ns, self.window(end_ns).min(MAX_WINDOWS - 1));
        }
    }

    /// A stretch between calls that is too short for a gap ended at `end_ns`, in a call that has been counted.
    pub fn add_between(&mut self, end_ns: u64, bill: &Bill) {
        if self.window_ns == 0 {
            return;
        }
        let at = self.window(end_ns).min(MAX_WINDOWS - 1);
        if self.between.len() <= at {
            self.between.resize(at + 1, Bill::default());
        }
        self.between[at].add_all(bill);
    }

    /// Spreads a call over the windows that it lasted in.
    fn add_busy(&mut self, start_ns: u64, end_ns: u64, last: usize) {
        if self.busy_ns.len() <= last {
            self.busy_ns.resize(last + 1, 0);
        }
        for at in self.window(start_ns)..=last {
            let from_ns = self.start_of_ns(at);
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
        let (mut best, mut usual_windows, mut usual_gaps_ns): (Option<(usize, usize)>, _, _) = (None, Vec::new(), 0);
        let mut from = 0;
        for run in counts.chunk_by(|&a, &b| low(a) == low(b)) {
            let to = from + run.len();
            if !low(run[0]) {
                usual_windows.extend(from..to);
                usual_gaps_ns += gap_ns(self.start_of_ns(from), self.start_of_ns(to));
            } else if from > 0 && best.is_none_or(|(_, len)| run.len() > len) {
                // What comes before the first usual window is the beginning, not a drop.
                best = Some((from, run.len()));
            }
            from = to;
        }
        let (from, len) = best.filter(|&(_, len)| len >= least)?;
        let run = &counts[from..from + len];
        let (start_ns, end_ns) = (self.start_of_ns(from), self.start_of_ns(from + len));
        let here = self.sums(from..from + len, gap_ns(start_ns, end_ns));
        let elsewhere = self.sums(usual_windows.iter().copied(), usual_gaps_ns);
        // So many usual windows would have had as many calls, and would have come with so much of anything.
        let expected: f64 = run.iter().map(|&c| f64::from(c) / usual).sum();
        let usually_ns = |ns: u64| (ns as f64 / usual_windows.len() as f64 * expected) as u64;
        let missing_ns = ((len as f64 - expected) * self.window_ns as f64) as u64;
        let busy_ns = here.busy_ns.saturating_sub(usually_ns(elsewhere.busy_ns));
        let lost_ns = missing_ns.saturating_sub(busy_ns).saturating_sub(here.gaps_ns);
        // What of the usual is not looked at, less what of it may still be the same here.
        let unknown_ns = usually_ns(elsewhere.unknown_ns()).saturating_sub(here.unknown_ns());
        let bill = here.between.beyond(|cause| usually_ns(elsewhere.between.of(cause)) + unknown_ns);
        let bill = if bill.total_ns() > lost_ns { bill.scaled_to(lost_ns) } else { bill.filled_to(lost_ns) };
        let calls = run.iter().map(|&c| u64::from(c)).sum::<u64>() / len as u64;
        let (usual_calls, window_ns) = (usual as u64, self.window_ns);
        Some(Drop { call, start_ns, end_ns, lost_ns, calls, usual_calls, window_ns, bill })
    }

    fn start_of_ns(&self, window: usize) -> u64 {
        self.start_ns + window as u64 * self.window_ns
    }

    fn sums(&self, windows: impl Iterator<Item = usize>, gaps_ns: u64) -> Sums {
        let mut sums = Sums { gaps_ns, ..Sums::default() };
        for at in windows {
            sums.all_ns += self.window_ns;
            sums.busy_ns += self.busy_ns.get(at).copied().unwrap_or(0);
            if let Some(bill) = self.between.get(at) {
                sums.between.add_all(bill);
            }
        }
        sums
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
        let both = |pair: &[Bill]| {
            let mut sum = Bill::default();
            pair.iter().for_each(|bill| sum.add_all(bill));
            sum
        };
        self.between = self.between.chunks(2).map(both).collect();
    }
}

/// What some windows have in all, in nanoseconds.
#[derive(Debug, Default)]
struct Sums {
    all_ns: u64,
    busy_ns: u64,
    gaps_ns: u64,
    between: Bill,
}

impl Sums {
    /// The part that is in no call and in no gap and of which nothing is known.
    fn unknown_ns(&self) -> u64 {
        let known_ns = self.between.total_ns() - self.between.unexplained_ns();
        self.all_ns.saturating_sub(self.busy_ns + self.gaps_ns + known_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cause::Cause;
    use ingero_common::host::{Name, Task};

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

    /// The example at the head of this file.
    #[test]
    fn the_causes_of_a_drop_are_what_is_beyond_the_usual_of_each() {
        let (mut rates, mut t) = rates(&[(3000, 500)]);
        let mut bill = Bill::default();
        bill.add(Cause::HostCpu, Task::default(), 1_600_000);
        bill.add(Cause::CpuWait, Task::default(), 300_000);
        for _ in 0..1500 {
            rates.add(key(), t, t + MS / 10);
            t += 2 * MS;
            rates.add_between(t - 1, &bill);
        }
        let drop = rates.drop(t, |_, _| 0).unwrap();
        let share = |ns: u64| ns as f64 / drop.lost_ns as f64;
        assert_eq!((drop.usual_calls, drop.calls, drop.bill.total_ns()), (400, 100, drop.lost_ns));
        let (cpu, wait) = (share(drop.bill.of(Cause::HostCpu)), share(drop.bill.of(Cause::CpuWait)));
        assert!((cpu - 0.8).abs() < 0.1 && wait < 0.05, "{cpu} {wait} {drop:?}");
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

    /// In a loop that waits for the GPU nearly all the time, one long call leaves no less time in calls than usual.
    #[test]
    fn what_went_into_one_long_call_is_no_drop() {
        let (mut rates, mut t) = (Rates::default(), 1_000_000_000);
        for step in 0..2000 {
            rates.add(key(), t, t + 10_000);
            rates.add(GroupKey { size: 1, ..key() }, t + 10_000, t + 3 * MS);
            t += 3 * MS;
            if step == 1000 {
                rates.add(GroupKey { size: 2, ..key() }, t, t + 3000 * MS);
                t += 3000 * MS;
            }
        }
        assert!(rates.drop(t, |_, _| 0).is_none_or(|d| d.lost_ns < 100 * MS), "{:?}", rates.drop(t, |_, _| 0));
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
