//! All gaps of a process together, where they are before several kinds of calls.

use crate::blame::{Breakdown, share};
use crate::findings::{About, Finder};
use crate::limits::ONE_KIND_SHARE;
use crate::process::lost::Grid;
use crate::report::model::{Evidence, Extra, Finding, GridLine, Kind};

pub(crate) struct Total;

impl Finder for Total {
    fn checked(&self) -> String {
        "total: all gaps of a process, also those before calls for which they are too small to be told of".to_owned()
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let sums = &about.account.ledger.lost;
        let largest_ns = sums.values().map(|sum| sum.lost_ns).max().unwrap_or(0);
        let mut breakdown = Breakdown::default();
        sums.values().for_each(|sum| breakdown.add_all(&sum.breakdown));
        if largest_ns as f64 > breakdown.total_ns() as f64 * ONE_KIND_SHARE {
            return Vec::new();
        }
        let Some(severity) = about.severity_of_gaps(&breakdown) else { return Vec::new() };
        let mut finding = about.finding(Kind::Total, severity, &breakdown);
        let first_ns = sums.values().map(|sum| sum.first_ns).min().unwrap_or(0);
        let last_ns = sums.values().map(|sum| sum.last_end_ns).max().unwrap_or(first_ns);
        (finding.lost.mono_ns, finding.lost.dur_ns) = (first_ns, last_ns - first_ns);
        finding.lost.n = sums.values().map(|sum| sum.n).sum();
        finding.lost.grid = grid(sums.values().map(|sum| &sum.grid));
        let proven_ns = sums.values().map(|sum| sum.proven_ns).sum();
        finding.extra = Extra {
            proven: Some(proven_ns == finding.lost.lost_ns),
            proven_ns: Some(proven_ns),
            kinds: Some(sums.len() as u64),
            ..Extra::default()
        };
        let watched_ns = sums.values().map(|sum| sum.watched_ns).sum();
        let lost =
            if sums.values().all(|sum| sum.lost_records == 0) { 0 } else { about.lost_records(first_ns, last_ns) };
        finding.evidence =
            Evidence { lost, watched_share: share(watched_ns, finding.lost.lost_ns), samples: finding.lost.n };
        vec![finding]
    }
}

/// Several grids as one, in slices of the coarsest. A finer slice counts where it begins.
fn grid<'a>(grids: impl Iterator<Item = &'a Grid> + Clone) -> Option<GridLine> {
    let grids = grids.filter(|grid| !grid.slices.is_empty());
    let mono_ns = grids.clone().map(|grid| grid.start_ns).min()?;
    let slice_ns = grids.clone().map(|grid| grid.slice_ns).max()?.max(1);
    let mut lost_ns: Vec<u64> = Vec::new();
    for grid in grids {
        for (i, &ns) in grid.slices.iter().enumerate() {
            let at = ((grid.start_ns - mono_ns + grid.slice_ns * i as u64) / slice_ns) as usize;
            if lost_ns.len() <= at {
                lost_ns.resize(at + 1, 0);
            }
            lost_ns[at] += ns;
        }
    }
    Some(GridLine { mono_ns, slice_ns, lost_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_of_different_slices_keep_their_sum_and_their_places() {
        let fine = Grid { start_ns: 1_050, slice_ns: 10, slices: vec![1, 2, 3, 4, 5, 6] };
        let coarse = Grid { start_ns: 1_000, slice_ns: 50, slices: vec![50, 0, 0, 7] };
        let line = grid([&fine, &coarse, &Grid::default()].into_iter()).unwrap();
        assert_eq!((line.mono_ns, line.slice_ns, line.lost_ns), (1_000, 50, vec![50, 15, 6, 7]));
        assert!(grid([].into_iter()).is_none());
    }
}
