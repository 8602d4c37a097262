//! Calls that took much longer than usual for their kind.

use ingero_common::cuda_api::Function;

use crate::blame::share;
use crate::findings::severity::{Certainty, Severity};
use crate::findings::{About, Finder};
use crate::gpu::outstanding::enqueues;
use crate::limits::{MIN_CALLS, QUEUE_BUSY_PCT, SLOW_FACTOR, SLOW_NS};
use crate::report::model::{Evidence, Extra, Finding, Kind, Times};
use crate::stats::calls::{Group, GroupKey, Slow};
use crate::stats::period;

pub(crate) struct SlowCalls;

impl Finder for SlowCalls {
    fn checked(&self) -> String {
        format!(
            "slow_call: beyond {SLOW_FACTOR}x the median of its group and {} us over it, groups of at least {MIN_CALLS} calls, without cold ones and those during which the GPU was idle",
            SLOW_NS / 1000
        )
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let (engine, process) = (about.engine, about.process);
        let doubtful = engine.sched_losses.ranges(process.pid);
        let groups = process.groups.sorted(&engine.names).into_iter();
        let slow = groups.filter_map(|(call, group)| Some((call, group, group.slow(&engine.samples, &doubtful)?)));
        slow.filter_map(|(call, group, slow)| {
            let mut finding = slow_call(about, call, group, &slow)?;
            finding.occurrences = about.occurrences(group.slow_calls(&engine.samples, &doubtful));
            Some(finding)
        })
        .collect()
    }
}

fn slow_call(about: &About<'_>, call: GroupKey, group: &Group, slow: &Slow) -> Option<Finding> {
    let (first_ns, last_ns) = (slow.first_ns, slow.last_end_ns);
    let function = group.function();
    let gpu_pct = about.engine.samples.gpu_pct(first_ns, last_ns);
    let gpu_worked = match gpu_pct {
        Some(pct) if enqueues(function) => pct >= QUEUE_BUSY_PCT,
        Some(_) => true,
        // A synchronise tells by itself that the GPU was at work. That a queue was full, only a busy GPU does.
        None => function.is_some_and(|function| function.waits()),
    };
    let gpu_wait_ns = if gpu_worked { slow.gpu_wait_ns } else { 0 };
    let mostly_may_wait = slow.gpu_wait_ns > slow.lost_ns / 2;
    let waited = gpu_worked && mostly_may_wait;
    // The GPU at work is worth a remark, never an alarm. What cannot have been that counts by itself, where a call
    // need not wait for it by its nature.
    let by_nature = function.is_some_and(Function::is_wait);
    let certainty = if waited && by_nature { Certainty::Doubtful } else { Certainty::Likely };
    let severity = about.severity(slow.lost_ns, certainty)?;
    let severity = match waited {
        true => about.severity(slow.lost_ns - gpu_wait_ns, certainty).unwrap_or(Severity::Low),
        false => severity,
    };
    let mut finding = about.about_call(Kind::SlowCall, call, severity, &slow.breakdown);
    finding.lost.mono_ns = first_ns;
    finding.lost.dur_ns = last_ns - first_ns;
    finding.lost.n = slow.n;
    finding.times = Some(times(group, slow));
    finding.extra = Extra {
        gpu_wait_ns: Some(gpu_wait_ns).filter(|&ns| ns > 0),
        queue_may_be_full: !gpu_worked && gpu_pct.is_none() && mostly_may_wait,
        ..Extra::default()
    };
    finding.evidence = Evidence {
        lost: about.lost_records(first_ns, last_ns),
        watched_share: 1.0 - share(slow.breakdown.unexplained_ns(), slow.lost_ns),
        samples: group.durations.len(),
    };
    Some(finding)
}

fn times(group: &Group, slow: &Slow) -> Times {
    let (p50_ns, max_ns) = (group.durations.median_ns(), group.durations.max_ns());
    Times {
        p50_ns,
        p99_ns: group.durations.p99_ns(),
        max_ns,
        ratio: (p50_ns > 0).then(|| (max_ns as f64 / p50_ns as f64 * 1e3).round() / 1e3),
        period: period::of(slow.occurrences.iter().copied()),
    }
}
