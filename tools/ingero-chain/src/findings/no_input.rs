//! No input: the GPU had nothing to do because nobody asked the process for anything. That is no fault of the code.

use ingero_common::host::Task;

use crate::blame::{Breakdown, Cause};
use crate::findings::severity::Severity;
use crate::findings::{About, Finder};
use crate::limits::LOW_SHARE;
use crate::report::model::{Finding, Kind};

pub(crate) struct NoInput;

impl Finder for NoInput {
    fn checked(&self) -> String {
        "no_input: the GPU idle while the path to its next work waited for a connection or a request".to_owned()
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let sums = || about.account.ledger.lost.values().filter(|sum| sum.breakdown.no_input_ns() > 0);
        let ns = sums().map(|sum| sum.breakdown.no_input_ns()).sum();
        if about.share(ns) < LOW_SHARE {
            return Vec::new();
        }
        let mut breakdown = Breakdown::default();
        breakdown.add(Cause::Network, Task { pid: about.process.pid, name: about.process.name }, ns);
        let mut finding = about.finding(Kind::NoInput, Severity::Low, &breakdown);
        finding.lost.n = sums().map(|sum| sum.n).sum();
        finding.lost.mono_ns = sums().map(|sum| sum.first_ns).min().unwrap_or(0);
        let end_ns = sums().map(|sum| sum.last_end_ns).max().unwrap_or(0);
        finding.lost.dur_ns = end_ns.saturating_sub(finding.lost.mono_ns);
        vec![finding]
    }
}
