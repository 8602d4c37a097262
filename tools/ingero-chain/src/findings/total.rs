//! All gaps of a process together, where they are before several kinds of calls.

use crate::blame::{Breakdown, share};
use crate::findings::severity::Certainty;
use crate::findings::{About, Finder};
use crate::report::model::{Evidence, Extra, Finding, Kind};

/// One kind of call with more of the time tells the story alone.
const MAIN_SHARE: f64 = 0.95;

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
        if largest_ns as f64 > breakdown.total_ns() as f64 * MAIN_SHARE {
            return Vec::new();
        }
        let Some(severity) = about.severity(breakdown.total_ns(), Certainty::Likely) else { return Vec::new() };
        let mut finding = about.finding(Kind::Total, severity, &breakdown);
        let first_ns = sums.values().map(|sum| sum.first_ns).min().unwrap_or(0);
        let last_ns = sums.values().map(|sum| sum.last_end_ns).max().unwrap_or(first_ns);
        (finding.lost.mono_ns, finding.lost.dur_ns) = (first_ns, last_ns - first_ns);
        finding.lost.n = sums.values().map(|sum| sum.n).sum();
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
