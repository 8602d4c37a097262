//! Loops that are bound by their launches: the GPU is done with each kernel before the host has made the next.
//!
//! No single idle time shows, since there is always something in the queue as far as the calls tell. What shows is that the
//! host never has to wait for the GPU, and that the driver's counter says that the GPU was idle beyond the time that is
//! accounted for otherwise.

use ingero_common::cuda_api::Class as Function;

use crate::blame::Breakdown;
use crate::findings::severity::{Certainty, Severity};
use crate::findings::{About, Finder};
use crate::gpu::counter;
use crate::limits::{MIN_LAUNCHING, MIN_WAITS, SHORT_SHARE};
use crate::process::class::{Class, Doing};
use crate::report::model::{Evidence, Extra, Finding, Kind, Launches};

pub(crate) struct LaunchBound;

impl Finder for LaunchBound {
    fn checked(&self) -> String {
        "launch_bound: the driver's counter says that the GPU was idle beyond the gaps, or synchronises hardly ever have to wait for it".to_owned()
    }

    fn find(&self, about: &About<'_>) -> Vec<Finding> {
        let launches = launches(about);
        if launches.n == 0 {
            return Vec::new();
        }
        let counted = counter::of(&about.engine.samples, about.account);
        let (lost_ns, err_ns, severity) = match counted {
            Some(counted) => {
                let sure_ns = counted.launch_bound_ns.saturating_sub(counted.err_ns);
                (counted.launch_bound_ns, Some(counted.err_ns), about.severity(sure_ns, Certainty::Likely))
            }
            None => (0, None, hardly_waits(about).then_some(Severity::Low)),
        };
        let Some(severity) = severity else { return Vec::new() };
        let mut breakdown = Breakdown::default();
        breakdown.add_unexplained(lost_ns);
        let mut finding = about.finding(Kind::LaunchBound, severity, &breakdown);
        let (from_ns, to_ns) = about.account.loop_ns;
        (finding.lost.mono_ns, finding.lost.dur_ns, finding.lost.n) = (from_ns, to_ns - from_ns, launches.n);
        finding.extra = Extra { launches: Some(Launches { err_ns, ..launches }), ..Extra::default() };
        finding.evidence = Evidence {
            lost: about.lost_records(from_ns, to_ns),
            watched_share: 0.0,
            samples: about.engine.samples.over(from_ns, to_ns).count() as u64,
        };
        vec![finding]
    }
}

fn waits(about: &About<'_>) -> u64 {
    let waits = |((doing, _), _): &(&(Doing, _), _)| matches!(doing, Doing::Wait | Doing::WaitToCopy);
    about.account.tally.iter().filter(waits).map(|(_, (n, _))| n).sum()
}

fn launching_ns(about: &About<'_>) -> u64 {
    [Class::Enqueue, Class::Between, Class::OtherCall].iter().map(|&class| about.account.classes.get(class)).sum()
}

/// Whether the synchronises of the loop hardly ever have to wait, as far as the calls tell.
fn hardly_waits(about: &About<'_>) -> bool {
    let (waits, (from_ns, to_ns)) = (about.account.waits, about.account.loop_ns);
    waits.n >= MIN_WAITS
        && waits.short as f64 >= waits.n as f64 * SHORT_SHARE
        && about.share(launching_ns(about)) >= MIN_LAUNCHING
        && about.engine.cuda_losses.count(about.process.pid, from_ns, to_ns) == 0
}

fn launches(about: &About<'_>) -> Launches {
    let is_launch = |class: Function| matches!(class, Function::Launch | Function::GraphLaunch);
    let groups = about.process.groups.iter();
    let launches = groups.filter(|(_, group)| group.function().is_some_and(|function| is_launch(function.class)));
    let (n, call_ns) =
        launches.fold((0_u64, 0_u128), |(n, ns), (_, group)| (n + group.durations.len(), ns + group.total_ns));
    let (each, waits) = (n.max(1), waits(about));
    Launches {
        n,
        per_step: (waits > 0).then(|| n / waits),
        call_ns: (call_ns / u128::from(each)) as u64,
        each_ns: launching_ns(about) / each,
        err_ns: None,
    }
}
