//! A finding in words: its summary, its timeline, what to try. Made from its numbers and nothing else.
//!
//! A cause with less than a tenth of the lost time is not named as one. Advice names what in the records led
//! to it, and there is none where the records don't say why.

use ingero_common::cuda_api::Class;
use ingero_common::host::Interner;
use ingero_common::text::{Bytes, Nanos, counted};

use crate::blame::cpus::CpuSet;
use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, CauseLine, WhoNs};
use crate::input::kills::{Kill, Kills};
use crate::input::samples::Samples;
use crate::report::advice;
use crate::report::model::{Finding, Kind, Launches, OpLine, Summary, TimelineLine};
use crate::stats::totals::Block;

/// A cause with a smaller share isn't named.
pub const NAMED_SHARE: f64 = 0.10;

/// Victims named in one finding.
const MAX_KILLED: usize = 4;

/// Fills in the words.
pub fn tell(finding: &mut Finding, tree: &ProcessTree<'_>, machine: Machine) {
    finding.story.summary = summary(finding);
    finding.story.timeline = timeline(finding, &machine);
    finding.story.advice = advice::of(finding, tree, &machine);
}

/// What the samples say about the machine meanwhile.
#[derive(Debug, Default)]
pub struct Machine {
    pub(crate) samples: usize,
    pub(crate) cpu_pct: f64,
    cpu_max_pct: f64,
    pub(crate) steal_pct: f64,
    pub(crate) swap_grew_bytes: u64,
    gpu_pct: Option<f64>,
    pub(crate) mem_avail_bytes: Option<u64>,
    /// How long the CPU limit of the process's cgroup throttled it.
    pub(crate) throttled_ns: u64,
    /// Who was killed for memory.
    killed: Vec<String>,
    /// How many CPUs there are.
    pub cpus: Option<u32>,
    /// The CPUs that the process had, and those that its workers had, where these are known to be fewer.
    pub own_cpus: Option<CpuSet>,
    /// See `own_cpus`.
    pub worker_cpus: Option<CpuSet>,
    /// Requests to block devices by those who waited for one, over all the time they were watched.
    pub io: Vec<(WhoNs, Block)>,
}

/// Before a kill for memory, the machine is looked at for so long.
const BEFORE_KILL_NS: u64 = 2_000_000_000;

impl Machine {
    /// The machine over the interval of `finding`.
    pub fn over(samples: &Samples, kills: &Kills, names: &Interner, finding: &Finding) -> Self {
        let (from_ns, to_ns) = (finding.lost.mono_ns, finding.lost.mono_ns + finding.lost.dur_ns);
        let from_ns = if finding.op == Kind::Oom { from_ns.saturating_sub(BEFORE_KILL_NS) } else { from_ns };
        let to_ns = to_ns.max(from_ns + 1);
        let mut machine = Self::default();
        let mut swap: Option<(u64, u64)> = None;
        for sample in samples.over(from_ns, to_ns) {
            machine.samples += 1;
            machine.cpu_pct += sample.cpu_pct.unwrap_or(0.0);
            machine.cpu_max_pct = machine.cpu_max_pct.max(sample.cpu_max_pct.unwrap_or(0.0));
            machine.cpus = machine.cpus.max(sample.cpus);
            machine.steal_pct = machine.steal_pct.max(sample.steal_pct);
            machine.throttled_ns += sample.throttled_ns(finding.pid);
            machine.mem_avail_bytes = machine.mem_avail_bytes.into_iter().chain(sample.mem_avail_bytes).min();
            if let Some(used) = sample.swap_used_bytes {
                swap = Some((swap.map_or(used, |(first, _)| first), used));
            }
        }
        machine.cpu_pct /= machine.samples.max(1) as f64;
        machine.gpu_pct = samples.gpu_pct(from_ns, to_ns);
        let killed = kills.between(finding.lost.mono_ns, finding.lost.mono_ns + finding.lost.dur_ns);
        let who = |kill: &Kill| match (names.text(kill.victim.name), names.text(kill.by.name)) {
            (victim, by) if finding.op == Kind::Oom && kill.by.pid != 0 => {
                format!("{victim} ({}), when {by} ({}) asked for memory", kill.victim.pid, kill.by.pid)
            }
            (victim, _) => format!("{victim} ({})", kill.victim.pid),
        };
        let own = |kill: &&Kill| finding.op != Kind::Oom || kill.victim.pid == finding.pid;
        machine.killed = killed.filter(own).take(MAX_KILLED).map(who).collect();
        machine.swap_grew_bytes = swap.map_or(0, |(first, last)| last.saturating_sub(first));
        machine
    }
}

/// The causes that are large enough to be named.
pub(crate) fn named(finding: &Finding) -> impl Iterator<Item = &CauseLine> {
    finding.lost.causes.iter().filter(|line| line.share >= NAMED_SHARE)
}

fn summary(finding: &Finding) -> String {
    if finding.op == Kind::Oom {
        let what = match finding.extra.role {
            Some("cuda") => ", which makes CUDA calls,",
            Some("worker") => ", a worker of a process that makes CUDA calls,",
            _ => "",
        };
        let resident = finding.extra.resident_bytes.map(|b| format!(" with {} resident", Bytes(b))).unwrap_or_default();
        return format!("the kernel killed {}{what} for memory{resident}", name(finding));
    }
    let lost = Nanos(finding.lost.lost_ns);
    let percent = pct(finding.lost.lost_share);
    let call = call(finding);
    let head = match finding.op {
        Kind::Gap => {
            let bound = if finding.extra.proven == Some(true) { "the GPU waited" } else { "the GPU waited at most" };
            let times = if finding.lost.n == 1 { "once".to_owned() } else { format!("{} times", finding.lost.n) };
            format!("{bound} {lost} ({percent} of the loop), {times}, for {} to make the next {call}", name(finding))
        }
        Kind::Total => format!(
            "{} gaps before {} kinds of call, {lost} in total ({percent} of the loop), in {}",
            finding.lost.n,
            finding.extra.kinds.unwrap_or(0),
            name(finding)
        ),
        Kind::SlowCall => {
            let function = ingero_common::cuda_api::find(&finding.call.call_src, &finding.call.call);
            let launches = function.is_some_and(|function| function.enqueues() && function.class != Class::Copy);
            let waits = match gpu_at_work(finding) {
                true if launches => ", mostly waiting for room in the queue of the GPU, which was at work",
                true => ", mostly waiting for the GPU, which was at work",
                false => "",
            };
            format!(
                "{call} took {lost} more than usual in {} ({percent} of the loop){waits}",
                count(finding.lost.n, "call")
            )
        }
        Kind::HostCalls => host_calls(finding),
        Kind::LaunchBound => launch_bound(finding),
        Kind::Stall if finding.extra.proven.is_none() => {
            format!("{call} of {} has not returned for {lost}", name(finding))
        }
        Kind::Stall => format!("{} has made no call for the last {lost}; the last one was {call}", name(finding)),
        Kind::Oom => String::new(),
    };
    if finding.op == Kind::LaunchBound {
        return head;
    }
    let causes: Vec<String> = named(finding).map(|line| format!("{} {}", pct(line.share), phrase(line))).collect();
    let mut text = head;
    if causes.is_empty() {
        text.push_str(match finding.evidence.watched_share {
            s if s < 0.5 => "; why is not known: the scheduler tracer did not watch",
            _ => "; the records do not say why",
        });
    } else {
        text.push_str(": ");
        text.push_str(&causes.join(", "));
    }
    let unexplained = finding.lost.unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64;
    if unexplained >= NAMED_SHARE && !causes.is_empty() {
        text.push_str(&format!("; {} unexplained", pct(unexplained)));
    }
    text
}

fn host_calls(finding: &Finding) -> String {
    let what = match finding.extra.class {
        Some("memory") => "allocating and freeing memory",
        Some("load") => "loading code",
        _ => "copies that block the host",
    };
    let ops: Vec<String> =
        finding.extra.ops.iter().take(3).map(|op| format!("{} of {}", count(op.n, "call"), op.op)).collect();
    format!(
        "{} spent {} of its loop ({}) in {what}: {}",
        name(finding),
        Nanos(finding.lost.lost_ns),
        pct(finding.lost.lost_share),
        ops.join(", ")
    )
}

fn launch_bound(finding: &Finding) -> String {
    let Some(launches) = finding.extra.launches else { return String::new() };
    let how = format!(
        "{} launches, one every {} ({} of it in the call)",
        launches.n,
        Nanos(launches.each_ns),
        Nanos(launches.call_ns)
    );
    match launches.err_ns {
        Some(err_ns) => format!(
            "{} is bound by its launches: beyond the gaps, the GPU was idle for {} of the loop ({}, give or take {}); {how}",
            name(finding),
            Nanos(finding.lost.lost_ns),
            pct(finding.lost.lost_share),
            Nanos(err_ns)
        ),
        None => format!(
            "{} is bound by its launches: it hardly ever has to wait for the GPU; {how}; how much is lost is not known without samples of the GPU's use",
            name(finding)
        ),
    }
}

/// What may be missing in the records; `None` where nothing is known to be.
pub fn incomplete(summary: &Summary) -> Option<String> {
    (summary.stream.lost + summary.stream.late + summary.stream.bad_lines > 0).then(|| {
        format!(
            "{} lost, {} late, {}; {} not judged",
            count(summary.stream.lost, "record"),
            summary.stream.late,
            count(summary.stream.bad_lines, "bad line"),
            Nanos(summary.not_judged_ns)
        )
    })
}

/// Whether the time in slow calls is mainly the GPU's: asleep or spinning, they wait for it.
pub(crate) fn gpu_at_work(finding: &Finding) -> bool {
    let seen = [Cause::Blocked, Cause::DriverCpu]
        .iter()
        .any(|&cause| finding.lost.causes.iter().any(|line| line.cause == cause));
    seen && finding.extra.gpu_wait_ns.is_some_and(|ns| ns > finding.lost.lost_ns / 2)
}

/// A cause as part of a sentence.
pub(crate) fn phrase(line: &CauseLine) -> String {
    let who = who(line);
    match line.cause {
        Cause::HostCpu => format!("on the CPU in its own code{}", in_thread(line)),
        Cause::CpuWait if who.is_empty() => "waiting for a CPU".into(),
        Cause::CpuWait => format!("waiting for a CPU that {who} had"),
        Cause::Quota => "throttled by its CPU quota".into(),
        Cause::IoWait => "waiting for a device (D)".into(),
        Cause::Blocked => "asleep inside the call".into(),
        Cause::DriverCpu => "on the CPU inside the call, beyond the usual".into(),
        Cause::WorkerCpu => format!("waiting for {who} to compute"),
        Cause::WorkerCpuWait if who.is_empty() => "waiting for a worker that waited for a CPU".into(),
        Cause::WorkerCpuWait => format!("waiting for a worker that waited for a CPU that {who} had"),
        Cause::WorkerQuota => format!("waiting for {who}, throttled by a CPU quota"),
        Cause::WorkerIo => format!("waiting for {who}, in D for a device"),
        Cause::Wait => format!("waiting for {who}"),
        Cause::Sleep => "asleep, woken by no thread (a timer or an interrupt)".into(),
        Cause::OffCpu => "off the CPU, in a state that is not on record".into(),
        Cause::Steal => "possibly stolen by the hypervisor".into(),
        Cause::CudaCall => {
            let ops: Vec<&str> = line.ops.iter().take(3).map(|op| op.op.as_str()).collect();
            format!("in CUDA calls that give the GPU nothing to do ({})", ops.join(", "))
        }
    }
}

/// Those a cause points at, the first two names and how many more there are.
pub(crate) fn who(line: &CauseLine) -> String {
    parties(line.who.iter())
}

/// Processes of one name are one party: `pt_data_worker (4 processes) and python3 (17) and 3 more`.
pub(crate) fn parties<'a>(who: impl Iterator<Item = &'a WhoNs>) -> String {
    let mut names: Vec<(&str, u64, Vec<u32>)> = Vec::new();
    for one in who {
        let at = names.iter().position(|(comm, ..)| *comm == one.comm).unwrap_or_else(|| {
            names.push((&one.comm, 0, Vec::new()));
            names.len() - 1
        });
        let (_, ns, pids) = &mut names[at];
        *ns += one.ns;
        pids.push(one.pid);
    }
    // Stable: of equal parts, the first stays first.
    names.sort_by_key(|(_, ns, _)| std::cmp::Reverse(*ns));
    let told = names.iter().take(2).map(|(comm, _, pids)| match pids[..] {
        [pid] => format!("{comm} ({pid})"),
        _ => format!("{comm} ({} processes)", pids.len()),
    });
    let mut text = told.collect::<Vec<_>>().join(" and ");
    let more: usize = names.iter().skip(2).map(|(.., pids)| pids.len()).sum();
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

pub(crate) fn in_thread(line: &CauseLine) -> String {
    match line.who.first() {
        Some(w) if !w.comm.is_empty() => format!(" ({})", w.comm),
        _ => String::new(),
    }
}

pub(crate) fn name(finding: &Finding) -> String {
    if finding.comm.is_empty() {
        format!("process {}", finding.pid)
    } else {
        format!("{} ({})", finding.comm, finding.pid)
    }
}

/// The call of a finding with what tells it from its like.
pub fn call(finding: &Finding) -> String {
    let mut text = finding.call.call.clone();
    if let Some(dir) = &finding.call.dir {
        text.push(' ');
        text.push_str(dir);
    }
    if let Some(bytes) = finding.call.bytes {
        text.push_str(&format!(" of {}", size(bytes)));
    }
    text
}

/// A size class: bytes from, to (both included).
pub fn size([from, _]: [u64; 2]) -> String {
    format!("{} to {}", Bytes(from), Bytes(from.saturating_mul(2)))
}

/// What a process asked of block devices.
fn requests(who: &WhoNs, io: &Block) -> String {
    let mut parts = Vec::new();
    if io.reads > 0 {
        parts.push(format!("{} of {}", count(io.reads, "read"), Bytes(io.read_bytes)));
    }
    if io.writes > 0 {
        parts.push(format!("{} of {}", count(io.writes, "write"), Bytes(io.written_bytes)));
    }
    let (mean, max) = (Nanos(io.mean_ns()), Nanos(io.max_ns));
    format!("block devices, {} ({}) all in all: {}, {mean} each, up to {max}", who.comm, who.pid, parts.join(", "))
}

fn timeline(finding: &Finding, machine: &Machine) -> Vec<TimelineLine> {
    let mut lines = Vec::new();
    if !machine.killed.is_empty() {
        let text = format!("out of memory: the kernel killed {}", machine.killed.join("; "));
        lines.push(TimelineLine { layer: "SYSTEM", text });
    }
    if machine.samples > 0 {
        let mut text = format!("CPUs {:.0} % busy", machine.cpu_pct);
        if machine.cpu_max_pct > 0.0 {
            text.push_str(&format!(", the busiest {:.0} %", machine.cpu_max_pct));
        }
        if machine.steal_pct >= 1.0 {
            text.push_str(&format!(", up to {:.0} % stolen by the hypervisor", machine.steal_pct));
        }
        if let Some(pct) = machine.gpu_pct {
            text.push_str(&format!(", GPU {pct:.0} % in use as its driver counts"));
        }
        if let (Kind::Oom, Some(bytes)) = (finding.op, machine.mem_avail_bytes) {
            text.push_str(&format!(", {} of memory to be had", Bytes(bytes)));
        }
        if machine.swap_grew_bytes > 0 {
            text.push_str(&format!(", swap grew by {}", Bytes(machine.swap_grew_bytes)));
        }
        lines.push(TimelineLine { layer: "SYSTEM", text });
    }
    for (who, set) in [("the process", &machine.own_cpus), ("its workers", &machine.worker_cpus)] {
        if let (Some(set), Some(cpus)) = (set, machine.cpus) {
            let text = format!("{who} ran on {} of the {cpus} only", cpu_list(set));
            lines.push(TimelineLine { layer: "SYSTEM", text });
        }
    }
    for (who, io) in &machine.io {
        lines.push(TimelineLine { layer: "SYSTEM", text: requests(who, io) });
    }
    let mut host: Vec<String> = named(finding).map(|line| format!("{} {}", Nanos(line.ns), phrase(line))).collect();
    if finding.lost.unexplained_ns > 0
        && finding.lost.unexplained_ns as f64 >= finding.lost.lost_ns as f64 * NAMED_SHARE
    {
        host.push(format!("{} unexplained", Nanos(finding.lost.unexplained_ns)));
    }
    if !host.is_empty() {
        lines.push(TimelineLine { layer: "HOST", text: host.join("; ") });
    }
    let times = finding.times.clone().unwrap_or_default();
    let (p50, max) = (Nanos(times.p50_ns), Nanos(times.max_ns));
    let text = match finding.op {
        Kind::Oom | Kind::Total => return lines,
        Kind::Gap => format!("{} before {}: median {p50}, longest {max}", count(finding.lost.n, "gap"), call(finding)),
        Kind::SlowCall => {
            let calls = count(finding.lost.n, "call");
            format!("{}: {calls} of up to {max}, usually {p50} (time of the call on the host)", call(finding))
        }
        Kind::HostCalls => {
            let op = |op: &OpLine| format!("{} {}x {}", op.op, op.n, Nanos(op.ns));
            finding.extra.ops.iter().map(op).collect::<Vec<_>>().join(", ")
        }
        Kind::LaunchBound => match finding.extra.launches {
            Some(Launches { n, per_step: Some(per_step), .. }) => {
                format!("{} in all, {per_step} between two waits for the GPU", counted(n, "launch", "launches"))
            }
            _ => return lines,
        },
        Kind::Stall => format!("{}: nothing returned for {}", call(finding), Nanos(finding.lost.lost_ns)),
    };
    lines.push(TimelineLine { layer: "CUDA", text });
    lines
}

pub(crate) fn cpu_list(set: &CpuSet) -> String {
    format!("CPU{} {set}", if set.len() == 1 { "" } else { "s" })
}

/// A share in percent.
pub fn pct(share: f64) -> String {
    match share * 100.0 {
        p if p < 1.0 => format!("{p:.1} %"),
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
    fn processes_of_one_name_are_told_as_one() {
        let who = [("stress", 11, 40), ("loader", 2, 50), ("stress", 12, 30), ("rcu", 5, 1)];
        let who = who.map(|(comm, pid, ns)| WhoNs { pid, comm: comm.into(), ns });
        assert_eq!(parties(who.iter()), "stress (2 processes) and loader (2) and 1 more");
        assert_eq!(parties([].iter()), "");
    }
}
