//! Gaps: the GPU was idle, or may have been, until the process gave it something to do.

use crate::blame::share;
use crate::findings::{About, Finder};
use crate::limits::SILENCE_NS;
use crate::process::lost::{Lost, LostSum};
use crate::report::model::{Evidence, Extra, Finding, GridLine, Kind, Times};
use crate::stats::calls::GroupKey;
use crate::stats::period;

pub(crate) struct Gaps;

impl Finder for Gaps {
    fn checked(&self) -> String {
        format!(
            "gap: the GPU idle (all that was enqueued had been waited for) until the next work, however short; or no call for {} ms and more while it may have had work",
            SILENCE_NS / 1_000_000
        )
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        about.account.ledger.lost.iter().filter_map(|(&call, sum)| gap(about, call, sum)).collect()
    }
}

fn gap(about: &About<'_>, call: GroupKey, sum: &LostSum) -> Option<Finding> {
    let severity = about.severity_of_gaps(&sum.breakdown)?;
    let mut finding = about.about_call(Kind::Gap, call, severity, &sum.breakdown);
    finding.lost.mono_ns = sum.first_ns;
    finding.lost.dur_ns = sum.last_end_ns - sum.first_ns;
    finding.lost.n = sum.n;
    finding.lost.grid = Some(grid(sum));
    let occurrence = |lost: &Lost| period::Occurrence { seq: lost.seq, start_ns: lost.start_ns, len_ns: lost.len_ns() };
    finding.times = Some(Times {
        p50_ns: sum.lengths.median_ns(),
        p99_ns: sum.lengths.p99_ns(),
        max_ns: sum.lengths.max_ns(),
        ratio: None,
        period: period::of(sum.latest().map(occurrence)),
    });
    finding.extra =
        Extra { proven: Some(sum.proven_ns == sum.lost_ns), proven_ns: Some(sum.proven_ns), ..Extra::default() };
    // One loss may touch many gaps, and is counted once.
    let lost = if sum.lost_records == 0 { 0 } else { about.lost_records(sum.first_ns, sum.last_end_ns) };
    finding.evidence = Evidence { lost, watched_share: share(sum.watched_ns, sum.lost_ns), samples: sum.n };
    let kept = sum.kept();
    finding.occurrences = about
        .occurrences(kept.into_iter().map(|lost| (lost.start_ns, lost.len_ns(), lost.seq, lost.breakdown.clone())));
    Some(finding)
}

fn grid(sum: &LostSum) -> GridLine {
    GridLine { mono_ns: sum.grid.start_ns, slice_ns: sum.grid.slice_ns, lost_ns: sum.grid.slices.clone() }
}
