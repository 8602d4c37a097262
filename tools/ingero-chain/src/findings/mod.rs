//! What was lost? One file for each kind of finding; all of them go through one list.

mod gap;
mod host_calls;
mod launch_bound;
mod no_input;
mod oom;
pub(crate) mod severity;
mod slow_call;
pub(crate) mod stall;
#[cfg(test)]
mod tests;
mod total;

use ingero_common::host::Name;
use ingero_common::record::src;

use crate::blame::{Breakdown, share};
use crate::findings::severity::{Certainty, Severity};
use crate::findings::stall::Stall;
use crate::input::ingest::Engine;
use crate::limits::{LOW_SHARE, MAX_OCCURRENCES};
use crate::process::{Account, CudaProcess};
use crate::report::model::{CallPart, Evidence, Extra, Finding, Kind, LostPart, Occurrence, Story};
use crate::stats::calls::GroupKey;

/// One process to be judged.
pub(crate) struct About<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) process: &'a CudaProcess,
    pub(crate) account: &'a Account,
    pub(crate) stall: Option<&'a Stall>,
    /// Occurrences are wanted, too.
    pub(crate) details: bool,
}

/// A kind of finding about one process.
pub(crate) trait Finder {
    /// What it looks for, with its thresholds.
    fn checked(&self) -> String;
    /// What it finds.
    fn find(&self, about: &About<'_>) -> Vec<Finding>;
}

/// All of them, in the order in which they are explained.
pub(crate) const FINDERS: [&dyn Finder; 7] = [
    &gap::Gaps,
    &total::Total,
    &slow_call::SlowCalls,
    &host_calls::HostCalls,
    &launch_bound::LaunchBound,
    &no_input::NoInput,
    &stall::Stalls,
];

/// Everything found, worst first.
pub(crate) fn all(
    engine: &Engine,
    processes: &[(&CudaProcess, Account, Option<Stall>)],
    details: bool,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (process, account, stall) in processes {
        let about = About { engine, process, account, stall: stall.as_ref(), details };
        findings.extend(FINDERS.iter().flat_map(|finder| finder.find(&about)));
    }
    findings.extend(oom::all(engine));
    findings.sort_by(|a, b| {
        let key =
            |f: &Finding| (std::cmp::Reverse(f.severity), std::cmp::Reverse(f.lost.lost_ns), f.op, f.lost.mono_ns);
        key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
    });
    unique_ids(&mut findings);
    findings
}

/// What was looked for, with thresholds: an empty result must say what it is the result of.
pub(crate) fn checked() -> Vec<String> {
    let mut lines: Vec<String> = FINDERS.iter().map(|finder| finder.checked()).collect();
    lines.push(oom::CHECKED.to_owned());
    lines.push(format!("reported from {} % of a process's loop on", LOW_SHARE * 100.0));
    lines
}

/// Two lives of one pid can have the same finding.
fn unique_ids(findings: &mut [Finding]) {
    let mut seen = std::collections::HashMap::new();
    for finding in findings {
        let n = seen.entry(finding.id.clone()).and_modify(|n| *n += 1).or_insert(1_u32);
        if *n > 1 {
            finding.id = format!("{}-{n}", finding.id.raw()).into();
        }
    }
}

impl About<'_> {
    /// A share of the process's loop. One that hangs in its first call has none, and lost all of what was seen of it.
    fn share(&self, ns: u64) -> f64 {
        share(ns, self.account.loop_len_ns().max(ns))
    }

    /// How bad it is to have lost `ns`; `None` where that isn't worth a word.
    fn severity(&self, ns: u64, certainty: Certainty) -> Option<Severity> {
        Severity::judge(self.share(ns), certainty)
    }

    /// How bad it is that the GPU waited. That nobody asked for anything is not bad, and of a thread that asks for something
    /// without pause nobody knows how long that was there.
    fn severity_of_gaps(&self, breakdown: &Breakdown) -> Option<Severity> {
        let input_ns = breakdown.total_ns() - breakdown.no_input_ns();
        let severity = self.severity(input_ns - breakdown.spun_ns(), Certainty::Likely);
        severity.or_else(|| self.severity(input_ns, Certainty::Doubtful))
    }

    /// Records that either tracer lost and that may concern the process in [`from_ns`, `to_ns`].
    fn lost_records(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.engine.lost_between(self.process.pid, from_ns, to_ns)
    }

    fn finding(&self, op: Kind, severity: Severity, breakdown: &Breakdown) -> Finding {
        let mut finding = bare(self.engine, op, self.process.pid, self.process.name, severity, breakdown);
        finding.lost.lost_share = self.share(finding.lost.lost_ns);
        finding
    }

    /// One that is about a kind of calls.
    fn about_call(&self, op: Kind, call: GroupKey, severity: Severity, breakdown: &Breakdown) -> Finding {
        let names = &self.engine.names;
        let dir = call.dir(names);
        let name = names.text(call.op).raw();
        let bytes = call.bytes().map(|(from, _)| format!("-{from}")).unwrap_or_default();
        let dash_dir = dir.as_ref().map(|dir| format!("-{}", dir.raw())).unwrap_or_default();
        Finding {
            id: format!("{}-{}-{name}{dash_dir}{bytes}", op.name(), self.process.pid).into(),
            call: CallPart {
                call: name.into(),
                call_src: names.text(call.source).into(),
                dir,
                bytes: call.bytes().map(|(from, to)| [from, to]),
            },
            ..self.finding(op, severity, breakdown)
        }
    }

    /// The longest of some occurrences: start, length, place, breakdown.
    fn occurrences(&self, all: impl Iterator<Item = (u64, u64, u64, Breakdown)>) -> Vec<Occurrence> {
        if !self.details {
            return Vec::new();
        }
        let one = |(mono_ns, dur_ns, after_calls, breakdown): (u64, u64, u64, Breakdown)| Occurrence {
            mono_ns,
            ts: None,
            dur_ns,
            after_calls,
            causes: breakdown.causes(&self.engine.names, &self.engine.stacks),
            unexplained_ns: breakdown.unexplained_ns(),
        };
        let mut all: Vec<_> = all.map(one).collect();
        all.sort_by_key(|o| (std::cmp::Reverse(o.dur_ns), o.mono_ns));
        all.truncate(MAX_OCCURRENCES);
        all
    }
}

/// What all kinds have in common; numbers that they don't are 0 here.
fn bare(engine: &Engine, op: Kind, pid: u32, name: Name, severity: Severity, breakdown: &Breakdown) -> Finding {
    Finding {
        src: src::CHAIN,
        op,
        id: format!("{}-{pid}", op.name()).into(),
        severity,
        lost: LostPart {
            lost_ns: breakdown.total_ns(),
            causes: breakdown.causes(&engine.names, &engine.stacks),
            unexplained_ns: breakdown.unexplained_ns(),
            waits: breakdown.waits(None, &engine.names),
            folded: breakdown.folded(&engine.names, &engine.stacks),
            ..LostPart::default()
        },
        pid,
        comm: engine.names.text(name).into(),
        call: CallPart::default(),
        times: None,
        extra: Extra::default(),
        story: Story::default(),
        evidence: Evidence::default(),
        occurrences: Vec::new(),
        so_far: false,
    }
}
