//! When was the time of the findings lost? Over the whole recording, however many occurrences there were.
//!
//! A gap's grid has all of its lost time in at most 100 slices, and the longest and the latest occurrences are kept one by
//! one. What is kept lies where it was; the rest of a slice of the grid is spread evenly over it:
//!
//! ```text
//!   grid            |         40 ms          |          7 ms          |
//!   kept                ████ 30 ms ████                ███ 7 ms
//!   rest            ........ 10 ms .........
//!   slices asked    | 3 ms  |  33 ms |  4 ms |        |  7 ms |       |
//! ```
//!
//! Slow calls and stalls have no grid; of slow calls, what a call took beyond the median is spread over the call.

use ingero_chain::model::{Finding, GridLine, Kind, Occurrence, Report};
use schemars::JsonSchema;
use serde::Serialize;

/// A stretch of time in equal slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) slices: usize,
}

impl Cut {
    fn whole_ns(self) -> u64 {
        (self.to_ns - self.from_ns).max(1)
    }

    /// Length of a slice; all have it but for the rounding.
    pub(super) fn slice_ns(self) -> u64 {
        self.whole_ns() / self.slices as u64
    }

    /// Where a slice begins, and the one before it ends.
    pub(super) fn start_ns(self, at: usize) -> u64 {
        self.from_ns + (u128::from(self.whole_ns()) * at as u128 / self.slices as u128) as u64
    }

    /// The slice in which an instant lies, or the nearest one.
    pub(super) fn slice(self, ns: u64) -> usize {
        let at = u128::from(ns.saturating_sub(self.from_ns)) * self.slices as u128 / u128::from(self.whole_ns());
        (at as usize).min(self.slices - 1)
    }

    /// Spreads `ns` evenly over [`start_ns`, `end_ns`); what lies outside of the cut is left out. Parts are rounded so that
    /// they add up.
    fn spread(self, start_ns: u64, end_ns: u64, ns: u64, sums: &mut [u64]) {
        let (from_ns, to_ns) = (start_ns.max(self.from_ns), end_ns.min(self.to_ns));
        if from_ns >= to_ns {
            return;
        }
        let until = |at_ns: u64| (u128::from(at_ns - start_ns) * u128::from(ns) / u128::from(end_ns - start_ns)) as u64;
        let (first, last) = (self.slice(from_ns), self.slice(to_ns));
        for (at, sum) in sums.iter_mut().enumerate().take(last + 1).skip(first) {
            let (a, b) = (from_ns.max(self.start_ns(at)), to_ns.min(self.start_ns(at + 1)));
            if a < b {
                *sum += until(b) - until(a);
            }
        }
    }
}

/// What one slice lost.
#[derive(Clone, Debug, Default)]
pub(super) struct LostHere {
    /// In gaps, and in stalls between calls: the GPU waited, or may have.
    pub(super) lost_ns: u64,
    /// The findings that lost most here.
    pub(super) findings: Vec<Lost>,
}

/// A finding's part of a slice.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Lost {
    id: String,
    /// Time that it lost here; 0 where it is an instant (oom)
    ns: u64,
}

/// What findings lost, by slice.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) slices: Vec<LostHere>,
    /// Findings of which only the occurrences that are kept have a place.
    pub(super) partly: Vec<String>,
}

/// Findings named in one slice.
const MAX_NAMED: usize = 3;

/// Places the findings of one process, or of all.
pub(super) fn place(report: &Report, pid: Option<u32>, cut: Cut) -> Placed {
    let mut placed = Placed { slices: vec![LostHere::default(); cut.slices], partly: Vec::new() };
    for finding in report.findings.iter().filter(|f| pid.is_none_or(|pid| pid == f.pid)) {
        let mut sums = vec![0_u64; cut.slices];
        // The GPU waited; the time in slow calls is time of the host.
        let waited = finding.op == Kind::Gap || (finding.op == Kind::Stall && finding.extra.proven.is_some());
        match (finding.op, &finding.lost.grid) {
            (Kind::Gap, Some(grid)) => place_gap(finding, grid, cut, &mut sums),
            (Kind::Stall, _) => {
                let start_ns = finding.lost.mono_ns;
                cut.spread(start_ns, start_ns.saturating_add(finding.lost.dur_ns), finding.lost.lost_ns, &mut sums);
            }
            (Kind::SlowCall, _) => {
                if (finding.occurrences.len() as u64) < finding.lost.n {
                    placed.partly.push(finding.id.raw().to_owned());
                }
                place_slow_calls(finding, cut, &mut sums);
            }
            (Kind::Oom, _) => {
                let at_ns = finding.lost.mono_ns;
                if (cut.from_ns..=cut.to_ns).contains(&at_ns) {
                    placed.slices[cut.slice(at_ns)].findings.push(Lost { id: finding.id.raw().to_owned(), ns: 0 });
                }
            }
            // All gaps once more, or something that all of the loop has.
            _ => {}
        }
        for (here, ns) in placed.slices.iter_mut().zip(sums).filter(|(_, ns)| *ns > 0) {
            here.lost_ns += if waited { ns } else { 0 };
            here.findings.push(Lost { id: finding.id.raw().to_owned(), ns });
        }
    }
    for here in &mut placed.slices {
        // What was killed comes first: it has no time, and there are few.
        here.findings.sort_by(|a, b| (a.ns > 0).cmp(&(b.ns > 0)).then(b.ns.cmp(&a.ns)).then_with(|| a.id.cmp(&b.id)));
        here.findings.truncate(MAX_NAMED);
    }
    placed
}

fn place_gap(finding: &Finding, grid: &GridLine, cut: Cut, sums: &mut [u64]) {
    let slices = Cut {
        from_ns: grid.mono_ns,
        to_ns: grid.mono_ns.saturating_add(grid.slice_ns.saturating_mul(grid.lost_ns.len() as u64)),
        slices: grid.lost_ns.len().max(1),
    };
    let mut kept = vec![0; slices.slices];
    for one in &finding.occurrences {
        let end_ns = end_ns(one);
        slices.spread(one.mono_ns, end_ns, one.dur_ns, &mut kept);
        // Threads may see a gap begin before the first of all; the grid counts from there.
        let start_ns = one.mono_ns.max(grid.mono_ns);
        cut.spread(start_ns, end_ns, end_ns.saturating_sub(start_ns), sums);
    }
    // The last slice may reach beyond the last gap.
    let last_ns = finding.lost.mono_ns.saturating_add(finding.lost.dur_ns);
    for (at, (all_ns, kept_ns)) in grid.lost_ns.iter().zip(kept).enumerate() {
        let (start_ns, end_ns) = (slices.start_ns(at), slices.start_ns(at + 1));
        let end_ns = if last_ns > start_ns { end_ns.min(last_ns) } else { end_ns };
        cut.spread(start_ns, end_ns, all_ns.saturating_sub(kept_ns), sums);
    }
}

fn place_slow_calls(finding: &Finding, cut: Cut, sums: &mut [u64]) {
    let median_ns = finding.times.as_ref().map_or(0, |times| times.p50_ns);
    for one in &finding.occurrences {
        cut.spread(one.mono_ns, end_ns(one), one.dur_ns.saturating_sub(median_ns), sums);
    }
}

fn end_ns(one: &Occurrence) -> u64 {
    one.mono_ns.saturating_add(one.dur_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spread_adds_up_however_it_is_cut() {
        for slices in [1, 3, 7, 40, 200] {
            let cut = Cut { from_ns: 1_000, to_ns: 11_003, slices };
            let mut sums = vec![0; slices];
            cut.spread(1_000, 11_003, 777, &mut sums);
            cut.spread(2_001, 2_002, 1, &mut sums);
            assert_eq!(sums.iter().sum::<u64>(), 778, "{slices}");
        }
    }

    #[test]
    fn what_lies_outside_is_left_out() {
        let cut = Cut { from_ns: 100, to_ns: 200, slices: 2 };
        let mut sums = vec![0; 2];
        cut.spread(0, 400, 400, &mut sums);
        assert_eq!(sums, [50, 50]);
        cut.spread(0, 100, 100, &mut sums);
        cut.spread(200, 300, 100, &mut sums);
        cut.spread(150, 150, 0, &mut sums);
        assert_eq!(sums, [50, 50]);
    }
}
