//! A finding in words: what was lost, why, and the evidence. Made from its numbers and nothing else.

use ingero_common::cuda_api::Class as Function;
use ingero_common::text::{Bytes, Nanos, Traced, counted};

use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, CauseLine};
use crate::limits::{MAX_NAMED_OPS, MOSTLY_WATCHED, NAMED_SHARE};
use crate::process::class::Class;
use crate::report::advice;
use crate::report::machine::Machine;
use crate::report::model::{Finding, Kind, Launches, OpLine, Story, Summary, TimelineLine};
use crate::report::phrases::{self, phrase};

/// Fills in the words.
pub(crate) fn tell(finding: &mut Finding, tree: &ProcessTree<'_>, machine: &Machine) {
    finding.story = Story {
        timeline: timeline(finding, machine),
        summary: summary(finding),
        advice: advice::of(finding, tree, machine),
    };
}

/// The part of the lost time of which it is not known why. That a loop is bound by its launches says it by itself.
pub(crate) fn unexplained_ns(finding: &Finding) -> u64 {
    if finding.op == Kind::LaunchBound { 0 } else { finding.lost.unexplained_ns }
}

/// The causes that are large enough to be named.
pub(crate) fn named(finding: &Finding) -> impl Iterator<Item = &CauseLine> {
    finding.lost.causes.iter().filter(|line| line.share >= NAMED_SHARE)
}

/// The whole of a finding in one sentence: who, what, why.
fn summary(finding: &Finding) -> String {
    let mut text = match finding.op {
        Kind::Oom => return claim(finding),
        _ => format!("{}: {}", name(finding), claim(finding)),
    };
    if finding.op == Kind::LaunchBound {
        return text;
    }
    let causes: Vec<String> =
        named(finding).map(|line| format!("{} {}", pct(line.share), phrase(finding, line))).collect();
    if causes.is_empty() {
        text.push_str(match finding.evidence.watched_share {
            s if s < MOSTLY_WATCHED => "; the cause is unknown, because the scheduler tracer did not watch",
            _ => "; the records do not show the cause",
        });
        return text;
    }
    text.push_str(&format!("; {}", causes.join(", ")));
    let unexplained = finding.lost.unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64;
    if unexplained >= NAMED_SHARE {
        text.push_str(&format!(", {} unexplained", pct(unexplained)));
    }
    text
}

/// What was lost, without whose it was and why.
pub(crate) fn claim(finding: &Finding) -> String {
    let (n, lost, percent) = (finding.lost.n, Nanos(finding.lost.lost_ns), pct(finding.lost.lost_share));
    let call = call(finding);
    match finding.op {
        Kind::Gap if n == 1 => format!("one gap before {call}, {lost} ({percent} of the loop){}", bound(finding)),
        Kind::Gap => format!("{n} gaps before {call}, {lost} in total ({percent} of the loop){}", bound(finding)),
        Kind::Total => {
            let kinds = counted(finding.extra.kinds.unwrap_or(0), "kind", "kinds");
            format!("{n} gaps before {kinds} of call, {lost} in total ({percent} of the loop){}", bound(finding))
        }
        Kind::SlowCall => {
            let calls = count(n, "call");
            let total = if n == 1 { "" } else { " in total" };
            format!("{calls} of {call} took {lost} longer than usual{total} ({percent} of the loop){}", waits(finding))
        }
        Kind::HostCalls => host_calls(finding),
        Kind::LaunchBound => launch_bound(finding),
        Kind::NoInput => format!("nobody asked for anything for {lost} ({percent} of the loop)"),
        Kind::Stall if finding.extra.proven.is_none() => format!("{call} has not returned for {lost}"),
        Kind::Stall => format!("no CUDA call for the last {lost}; the last one was {call}"),
        Kind::Oom => {
            let what = match finding.extra.role {
                Some("cuda") => ", which makes CUDA calls",
                Some("worker") => ", a worker of a process that makes CUDA calls",
                _ => "",
            };
            let resident = finding.extra.resident_bytes.map(|bytes| format!("; it had {} resident", Bytes(bytes)));
            format!("the kernel was out of memory and killed {}{what}{}", name(finding), resident.unwrap_or_default())
        }
    }
}

/// How sure it is that the GPU was idle.
fn bound(finding: &Finding) -> String {
    match (finding.extra.proven, finding.extra.proven_ns) {
        (Some(true), _) => String::new(),
        (_, Some(proven_ns)) if proven_ns > 0 => {
            format!(", an upper bound: the GPU is known to be idle for {} of it", Nanos(proven_ns))
        }
        _ => ", an upper bound: the GPU may have had work".to_owned(),
    }
}

/// What the calls were slow for, where that is the GPU.
fn waits(finding: &Finding) -> &'static str {
    let function = finding.call.function();
    let launches = function.is_some_and(|function| function.enqueues() && function.class != Function::Copy);
    match gpu_at_work(finding) {
        true if launches => ", mostly waiting for room in the queue of a busy GPU",
        true => ", mostly waiting for a busy GPU",
        false => "",
    }
}

fn host_calls(finding: &Finding) -> String {
    let what = match finding.extra.class {
        Some("memory") => "allocating and freeing memory",
        Some("load") => "loading code",
        _ => "copies that block the host",
    };
    let ops: Vec<String> = finding
        .extra
        .ops
        .iter()
        .take(MAX_NAMED_OPS)
        .map(|op| format!("{} of {}", count(op.n, "call"), op.op))
        .collect();
    if finding.lost.lost_ns == 0 {
        let took = Nanos(finding.extra.ops.iter().map(|op| op.ns).sum());
        return format!(
            "the GPU waited for copies that take {took} of the loop, from memory that is not pinned, it seems: {}",
            ops.join(", ")
        );
    }
    let (lost, percent) = (Nanos(finding.lost.lost_ns), pct(finding.lost.lost_share));
    format!("{lost} of the loop ({percent}) went into {what}: {}", ops.join(", "))
}

fn launch_bound(finding: &Finding) -> String {
    let Some(launches) = finding.extra.launches else { return "bound by its launches".to_owned() };
    let each = Nanos(launches.each_ns);
    let how = format!("{}, one every {each}", counted(launches.n, "launch", "launches"));
    let (lost, percent) = (Nanos(finding.lost.lost_ns), pct(finding.lost.lost_share));
    match launches.err_ns {
        Some(err_ns) => format!(
            "bound by its launches: besides the gaps, the GPU was idle for {lost} of the loop ({percent}), plus or minus {}; {how}",
            Nanos(err_ns)
        ),
        None => format!(
            "bound by its launches: it hardly ever has to wait for the GPU; {how}; the amount is unknown without samples of the GPU's use"
        ),
    }
}

/// What may be missing in the records; `None` where nothing is known to be.
pub fn incomplete(summary: &Summary) -> Option<String> {
    let stream = &summary.stream;
    let parts: Vec<String> = [
        (stream.lost, "record lost", "records lost"),
        (stream.late, "record too late to be in order", "records too late to be in order"),
        (stream.bad_lines, "line that is no record", "lines that are no records"),
        (stream.double, "duplicate of a second tracer left out", "duplicates of a second tracer left out"),
        (stream.entries, "call without an end (only entries traced)", "calls without an end (only entries traced)"),
        (stream.forgotten_processes, "ended process left out", "ended processes left out"),
    ]
    .into_iter()
    .filter(|&(n, ..)| n > 0)
    .map(|(n, one, many)| counted(n, one, many))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether the time in slow calls is mainly the GPU's: asleep or spinning, they wait for it.
pub(crate) fn gpu_at_work(finding: &Finding) -> bool {
    let seen = |cause| finding.lost.causes.iter().any(|line| line.cause == cause);
    (seen(Cause::Blocked) || seen(Cause::DriverCpu))
        && finding.extra.gpu_wait_ns.is_some_and(|ns| ns > finding.lost.lost_ns / 2)
}

pub(crate) fn name(finding: &Finding) -> String {
    process(&finding.comm, finding.pid)
}

/// A process by its name and id.
pub(crate) fn process(comm: &Traced, pid: u32) -> String {
    if comm.is_empty() { format!("process {pid}") } else { format!("{comm} ({pid})") }
}

/// The call of a finding with what tells it from its like.
pub fn call(finding: &Finding) -> String {
    let dir = finding.call.dir.as_ref().map(|dir| format!(" {dir}")).unwrap_or_default();
    let size = finding.call.bytes.map(|bytes| format!(" of {}", size(bytes))).unwrap_or_default();
    format!("{}{dir}{size}", finding.call.call)
}

/// A size class: bytes from, to (both included).
pub fn size([from, _]: [u64; 2]) -> String {
    format!("{} to {}", Bytes(from), Bytes(from.saturating_mul(2)))
}

/// A class of the account for people.
pub(crate) fn class(class: Class) -> &'static str {
    match class {
        Class::StartUp => "start-up",
        Class::Idle => "GPU idle",
        Class::Silence => "no calls, GPU possibly idle",
        Class::GpuWait => "waiting for the GPU",
        Class::Enqueue => "enqueueing work",
        Class::Copy => "blocking copies",
        Class::Memory => "allocating and freeing",
        Class::Load => "loading code",
        Class::OtherCall => "other calls",
        Class::Between => "between calls",
        Class::WindDown => "shutdown",
        Class::NotJudged => "not judged",
    }
}

fn timeline(finding: &Finding, machine: &Machine) -> Vec<TimelineLine> {
    let mut lines = machine.lines(finding);
    let mut host: Vec<String> =
        named(finding).map(|line| format!("{} {}", Nanos(line.ns), phrase(finding, line))).collect();
    let unexplained_ns = unexplained_ns(finding);
    if unexplained_ns > 0 && unexplained_ns as f64 >= finding.lost.lost_ns as f64 * NAMED_SHARE {
        host.push(format!("{} unexplained", Nanos(unexplained_ns)));
    }
    if !host.is_empty() {
        lines.push(TimelineLine { layer: "HOST", text: host.join("; ") });
    }
    lines.extend(phrases::waits(finding).into_iter().map(|text| TimelineLine { layer: "WAITS", text }));
    lines.extend(cuda(finding).map(|text| TimelineLine { layer: "CUDA", text }));
    lines
}

/// What the calls were like.
fn cuda(finding: &Finding) -> Option<String> {
    let times = finding.times.clone().unwrap_or_default();
    let (p50, max, n) = (Nanos(times.p50_ns), Nanos(times.max_ns), finding.lost.n);
    Some(match finding.op {
        Kind::Oom | Kind::Total | Kind::NoInput => return None,
        Kind::Gap => format!("{} before {}: median {p50}, longest {max}", count(n, "gap"), call(finding)),
        Kind::SlowCall => {
            format!(
                "{}: {} of up to {max}, usually {p50} (time of the call on the host)",
                call(finding),
                count(n, "call")
            )
        }
        Kind::HostCalls => {
            let op = |op: &OpLine| {
                let dir = op.dir.as_ref().map(|dir| format!(" {dir}")).unwrap_or_default();
                format!("{} of {}{dir}: {}", count(op.n, "call"), op.op, Nanos(op.ns))
            };
            finding.extra.ops.iter().map(op).collect::<Vec<_>>().join("; ")
        }
        Kind::LaunchBound => {
            let Launches { n, per_step, call_ns, each_ns, .. } = finding.extra.launches?;
            let steps = per_step.map(|n| format!(", {n} between two waits for the GPU")).unwrap_or_default();
            let (launches, each, call) = (counted(n, "launch", "launches"), Nanos(each_ns), Nanos(call_ns));
            format!("{launches}{steps}; {each} from one to the next, {call} of it in the call")
        }
        Kind::Stall => format!("{}: nothing returned for {}", call(finding), Nanos(finding.lost.lost_ns)),
    })
}

/// A share in percent.
pub fn pct(share: f64) -> String {
    match share * 100.0 {
        p if p > 0.0 && p < 0.1 => "<0.1 %".to_owned(),
        p if p > 0.0 && p < 1.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// So many of something, in the singular or the plural.
pub fn count(n: u64, what: &str) -> String {
    counted(n, what, &format!("{what}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_never_rounded_to_nothing() {
        assert_eq!([0.0, 0.0001, 0.006, 0.01, 0.994, 1.0].map(pct), ["0 %", "<0.1 %", "0.6 %", "1 %", "99 %", "100 %"]);
    }
}
