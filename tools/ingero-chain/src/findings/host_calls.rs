//! Time in calls that keep the host from feeding the GPU: by their share of the loop, not by comparison with themselves.

use crate::blame::{Breakdown, share};
use crate::findings::severity::{Certainty, Severity};
use crate::findings::{About, Finder};
use crate::limits::{MAX_LISTED_OPS, MEDIUM_SHARE};
use crate::process::class::{Class, Doing};
use crate::report::model::{Evidence, Extra, Finding, Kind, OpLine};
use crate::stats::calls::GroupKey;

pub(crate) struct HostCalls;

impl Finder for HostCalls {
    fn checked(&self) -> String {
        format!(
            "host_calls: allocating and freeing, loading code, or blocking copies for {} % of the loop and more while the GPU may have had work",
            MEDIUM_SHARE * 100.0
        )
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let classes = [Class::Memory, Class::Load, Class::Copy].into_iter();
        classes.filter_map(|class| host_calls(about, class).or_else(|| uploads(about, class))).collect()
    }
}

/// Operations with their number and time, the longest first.
type Ops = Vec<(GroupKey, u64, u64)>;

/// What the loop did of some class; `of` says which calls count.
fn ops_of(about: &About<'_>, of: impl Fn(Doing) -> bool) -> (Ops, u64) {
    let tally = about.account.tally.iter().filter(|((doing, _), _)| of(*doing));
    let mut ops: Ops = tally.map(|(&(_, key), &(n, ns))| (key, n, ns)).collect();
    ops.sort_by_key(|&(key, _, ns)| (std::cmp::Reverse(ns), key));
    let ns = ops.iter().map(|&(.., ns)| ns).sum();
    (ops, ns)
}

/// Copies from the host to an idle GPU, asynchronous by their name, that take as long as copying does: their memory is not
/// pinned, it seems, but that is in no record, nor what pinning it would bring. A remark.
fn uploads(about: &About<'_>, class: Class) -> Option<Finding> {
    let (ops, ns) = ops_of(about, |doing| doing == Doing::Upload && class == Class::Copy);
    let much = about.share(ns) >= MEDIUM_SHARE;
    much.then(|| finding(about, class, &ops, Severity::Low, &Breakdown::default()))
}

fn host_calls(about: &About<'_>, class: Class) -> Option<Finding> {
    let (ops, ns) = ops_of(about, |doing| doing.class() == class && doing != Doing::Upload);
    // The tally begins with the first warm call, the loop maybe later.
    let lost_ns = ns.min(about.account.classes.get(class));
    if about.share(lost_ns) < MEDIUM_SHARE {
        return None;
    }
    let severity = about.severity(lost_ns, Certainty::Likely)?;
    let mut breakdown = Breakdown::default();
    for &(key, _, ns) in &ops {
        breakdown.add_all(&about.process.groups.breakdown_of(key, ns));
    }
    let breakdown = breakdown.scaled_to(lost_ns);
    // Of copies, also those are listed of which nobody knows what they cost.
    let (listed, _) = ops_of(about, |doing| doing.class() == class);
    Some(finding(about, class, &listed, severity, &breakdown))
}

fn finding(about: &About<'_>, class: Class, ops: &Ops, severity: Severity, breakdown: &Breakdown) -> Finding {
    let mut finding = about.finding(Kind::HostCalls, severity, breakdown);
    finding.id = format!("host_calls-{}-{}", about.process.pid, class.name()).into();
    let (from_ns, to_ns) = about.account.loop_ns;
    (finding.lost.mono_ns, finding.lost.dur_ns) = (from_ns, to_ns - from_ns);
    finding.lost.n = ops.iter().map(|&(_, n, _)| n).sum();
    let names = &about.engine.names;
    let line =
        |&(key, n, ns): &(GroupKey, u64, u64)| OpLine { op: names.text(key.op).into(), dir: key.dir(names), n, ns };
    finding.extra = Extra {
        class: Some(class.name()),
        ops: ops.iter().take(MAX_LISTED_OPS).map(line).collect(),
        ..Extra::default()
    };
    finding.evidence = Evidence {
        lost: about.lost_records(from_ns, to_ns),
        watched_share: 1.0 - share(breakdown.unexplained_ns(), breakdown.total_ns()),
        samples: finding.lost.n,
    };
    finding
}
