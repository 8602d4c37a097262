//! Time in calls that keep the host from feeding the GPU: by their share of the loop, not by comparison with themselves.

use ingero_common::text::Traced;

use crate::blame::Breakdown;
use crate::findings::severity::Certainty;
use crate::findings::{About, Finder};
use crate::limits::{MAX_LISTED_OPS, MEDIUM_SHARE};
use crate::process::class::Class;
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
        [Class::Memory, Class::Load, Class::Copy].into_iter().filter_map(|class| host_calls(about, class)).collect()
    }
}

fn host_calls(about: &About<'_>, class: Class) -> Option<Finding> {
    let mut ops: Vec<(GroupKey, u64, u64)> = about
        .account
        .tally
        .iter()
        .filter(|((of, _), _)| *of == class)
        .map(|(&(_, key), &(n, ns))| (key, n, ns))
        .collect();
    ops.sort_by_key(|&(key, _, ns)| (std::cmp::Reverse(ns), key));
    // The tally begins with the first warm call, the loop maybe later.
    let lost_ns = ops.iter().map(|&(.., ns)| ns).sum::<u64>().min(about.account.classes.get(class));
    if about.share(lost_ns) < MEDIUM_SHARE {
        return None;
    }
    let severity = about.severity(lost_ns, Certainty::Likely)?;
    let mut breakdown = Breakdown::default();
    for &(key, _, ns) in &ops {
        breakdown.add_all(&about.process.groups.breakdown_of(key, ns));
    }
    let breakdown = breakdown.scaled_to(lost_ns);
    let mut finding = about.finding(Kind::HostCalls, severity, &breakdown);
    finding.id = format!("host_calls-{}-{}", about.process.pid, class.name()).into();
    let (from_ns, to_ns) = about.account.loop_ns;
    (finding.lost.mono_ns, finding.lost.dur_ns) = (from_ns, to_ns - from_ns);
    finding.lost.n = ops.iter().map(|&(_, n, _)| n).sum();
    let names = &about.engine.names;
    let line = |&(key, n, ns): &(GroupKey, u64, u64)| OpLine {
        op: names.text(key.op).into(),
        dir: Some(names.text(key.dir)).filter(|dir| !dir.is_empty()).map(Traced::from),
        n,
        ns,
    };
    finding.extra = Extra {
        class: Some(class.name()),
        ops: ops.iter().take(MAX_LISTED_OPS).map(line).collect(),
        ..Extra::default()
    };
    finding.evidence = Evidence {
        lost: about.lost_records(from_ns, to_ns),
        watched_share: 1.0 - crate::blame::share(breakdown.unexplained_ns(), lost_ns),
        samples: finding.lost.n,
    };
    Some(finding)
}
