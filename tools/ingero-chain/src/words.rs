//! A chain in words: its summary, its timeline, what to try. Made from its numbers and nothing else.
//!
//! A cause with less than a tenth of the lost time is not named as one. Advice names what in the records led
//! to it, and there is none where the records don't say why.

use ingero_common::host::Interner;
use ingero_common::text::{Bytes, Nanos, counted};

use crate::advice;
use crate::cause::{Cause, CauseLine, WhoNs};
use crate::chain::{Chain, GapTotal, Kind, Summary, TimelineLine};
use crate::cpus::CpuSet;
use crate::evidence::Samples;
use crate::family::Family;
use crate::oom::{Kill, Kills};
use crate::ops::Class;
use crate::stats::Block;

/// A cause with a smaller share isn't named.
pub const NAMED_SHARE: f64 = 0.10;

/// Victims named in one chain.
const MAX_KILLED: usize = 4;

/// Fills in the words.
pub fn tell(chain: &mut Chain, family: &Family<'_>, machine: Machine) {
    chain.summary = summary(chain);
    chain.timeline = timeline(chain, &machine);
    chain.advice = advice::of(chain, family, &machine);
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
    /// The machine over the interval of `chain`.
    pub fn over(samples: &Samples, kills: &Kills, names: &Interner, chain: &Chain) -> Self {
        let (from_ns, to_ns) = (chain.mono_ns, chain.mono_ns + chain.dur_ns);
        let from_ns = if chain.op == Kind::Oom { from_ns.saturating_sub(BEFORE_KILL_NS) } else { from_ns };
        let to_ns = to_ns.max(from_ns + 1);
        let mut machine = Self::default();
        let mut swap: Option<(u64, u64)> = None;
        for sample in samples.over(from_ns, to_ns) {
            machine.samples += 1;
            machine.cpu_pct += sample.cpu_pct.unwrap_or(0.0);
            machine.cpu_max_pct = machine.cpu_max_pct.max(sample.cpu_max_pct.unwrap_or(0.0));
            machine.cpus = machine.cpus.max(sample.cpus);
            machine.steal_pct = machine.steal_pct.max(sample.steal_pct);
            machine.throttled_ns += sample.throttled_ns(chain.pid);
            machine.mem_avail_bytes = machine.mem_avail_bytes.into_iter().chain(sample.mem_avail_bytes).min();
            if let Some(used) = sample.swap_used_bytes {
                swap = Some((swap.map_or(used, |(first, _)| first), used));
            }
        }
        machine.cpu_pct /= machine.samples.max(1) as f64;
        machine.gpu_pct = samples.gpu_pct(from_ns, to_ns);
        let killed = kills.between(chain.mono_ns, chain.mono_ns + chain.dur_ns);
        let who = |kill: &Kill| match (names.text(kill.victim.name), names.text(kill.by.name)) {
            (victim, by) if chain.op == Kind::Oom && kill.by.pid != 0 => {
                format!("{victim} ({}), when {by} ({}) asked for memory", kill.victim.pid, kill.by.pid)
            }
            (victim, _) => format!("{victim} ({})", kill.victim.pid),
        };
        let own = |kill: &&Kill| chain.op != Kind::Oom || kill.victim.pid == chain.pid;
        machine.killed = killed.filter(own).take(MAX_KILLED).map(who).collect();
        machine.swap_grew_bytes = swap.map_or(0, |(first, last)| last.saturating_sub(first));
        machine
    }
}

/// The causes that are large enough to be named.
pub(crate) fn named(chain: &Chain) -> impl Iterator<Item = &CauseLine> {
    chain.causes.iter().filter(|line| line.share >= NAMED_SHARE)
}

fn summary(chain: &Chain) -> String {
    if chain.op == Kind::Oom {
        let what = match chain.role {
            Some("cuda") => ", which makes CUDA calls,",
            Some("worker") => ", a worker of a process that makes CUDA calls,",
            _ => "",
        };
        let resident = chain.resident_bytes.map(|b| format!(" with {} resident", Bytes(b))).unwrap_or_default();
        return format!("the kernel killed {}{what} for memory{resident}", name(chain));
    }
    let lost = Nanos(chain.lost_ns);
    let percent = pct(chain.lost_share);
    let call = call(chain);
    let head = match chain.op {
        Kind::Gap => {
            let bound = if chain.proven == Some(true) { "the GPU waited" } else { "the GPU waited at most" };
            let times = if chain.n == 1 { "once".to_owned() } else { format!("{} times", chain.n) };
            format!("{bound} {lost} ({percent} of the time), {times}, for {} to make the next {call}", name(chain))
        }
        Kind::SlowCall => {
            let class = Class::of(&chain.call_src, &chain.call);
            let waits = match gpu_at_work(chain) {
                true if matches!(class, Class::Launch | Class::Set | Class::Collective) => {
                    ", mostly waiting for room in the queue of the GPU, which was at work"
                }
                true => ", mostly waiting for the GPU, which was at work",
                false => "",
            };
            format!("{call} took {lost} more than usual in {} ({percent} of the time){waits}", count(chain.n, "call"))
        }
        Kind::Stall if chain.proven.is_none() => format!("{call} of {} has not returned for {lost}", name(chain)),
        Kind::Stall => format!("{} has made no call for the last {lost}; the last one was {call}", name(chain)),
        Kind::Drop => format!(
            "{} called {call} less often than usual for {}: {lost} ({percent} of the time) went into neither calls nor gaps",
            name(chain),
            Nanos(chain.dur_ns)
        ),
        Kind::Oom => String::new(),
    };
    let causes: Vec<String> = named(chain).map(|line| format!("{} {}", pct(line.share), phrase(line))).collect();
    let mut text = head;
    if causes.is_empty() {
        text.push_str(match chain.evidence.watched_share {
            s if s < 0.5 => "; why is not known: the scheduler tracer did not watch",
            _ => "; the records do not say why",
        });
    } else {
        text.push_str(": ");
        text.push_str(&causes.join(", "));
    }
    let unexplained = chain.unexplained_ns as f64 / chain.lost_ns.max(1) as f64;
    if unexplained >= NAMED_SHARE && !causes.is_empty() {
        text.push_str(&format!("; {} unexplained", pct(unexplained)));
    }
    text
}

/// All gaps of a process in one sentence.
pub fn total(total: &GapTotal) -> String {
    let who = if total.comm.is_empty() { "process".to_owned() } else { total.comm.clone() };
    let mut text = format!(
        "all gaps of {who} ({}): {} before {} kinds of calls, {} = {} of the time",
        total.pid,
        total.n,
        total.kinds,
        Nanos(total.lost_ns),
        pct(total.lost_share)
    );
    let large = total.causes.iter().filter(|line| line.share >= NAMED_SHARE);
    let causes: Vec<String> = large.map(|line| format!("{} {}", pct(line.share), phrase(line))).collect();
    if !causes.is_empty() {
        text.push_str(": ");
        text.push_str(&causes.join(", "));
    }
    let unexplained = total.unexplained_ns as f64 / total.lost_ns.max(1) as f64;
    if unexplained >= NAMED_SHARE {
        text.push_str(&format!("; {} unexplained", pct(unexplained)));
    }
    text
}

/// What no chain tells of.
pub fn counted_nowhere(summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    if summary.start_up_ns > 0 {
        let took = Nanos(summary.start_up_ns);
        lines.push(format!(
            "start-up: {took} between calls before the same was done over and over, and not again, counted nowhere"
        ));
    }
    if summary.wind_down_ns > 0 {
        let took = Nanos(summary.wind_down_ns);
        lines.push(format!(
            "wind-down: {took} from the last work to the last call or the end of the process, counted nowhere"
        ));
    }
    if summary.entries > 0 {
        let (calls, were) = (count(summary.entries, "call"), if summary.entries == 1 { "was" } else { "were" });
        lines.push(format!(
            "{calls} {were} traced by entry alone: nothing is said about the time in and between such calls"
        ));
    }
    if summary.double > 0 {
        let records = count(summary.double, "record");
        lines.push(format!("traced twice: {records} of a second tracer of the same processes, counted nowhere"));
    }
    if summary.gpu_busy_ns > 0 {
        let took = Nanos(summary.gpu_busy_ns);
        lines.push(format!(
            "GPU at work: {took} between calls of which the next one found it still busy, counted nowhere"
        ));
    }
    if summary.cold.calls > 0 {
        let (took, calls) = (Nanos(summary.cold.ns), count(summary.cold.calls, "call"));
        let longest = summary.longest_cold.as_ref().filter(|_| summary.cold.calls > 1);
        let longest = longest.map(|one| format!(", the longest {} ({})", Nanos(one.ns), one.call)).unwrap_or_default();
        lines.push(format!("cold start: {took} in {calls}{longest}, counted nowhere"));
    }
    lines
}

/// What may be missing in the records; `None` where nothing is known to be.
pub fn incomplete(summary: &Summary) -> Option<String> {
    (summary.lost + summary.late + summary.bad_lines > 0).then(|| {
        format!(
            "{} lost, {} late, {}; {} not judged",
            count(summary.lost, "record"),
            summary.late,
            count(summary.bad_lines, "bad line"),
            Nanos(summary.not_judged_ns)
        )
    })
}

/// Whether the time in slow calls is mainly the GPU's: asleep or spinning, they wait for it.
pub(crate) fn gpu_at_work(chain: &Chain) -> bool {
    let seen =
        [Cause::Blocked, Cause::DriverCpu].iter().any(|&cause| chain.causes.iter().any(|line| line.cause == cause));
    seen && chain.gpu_wait_ns.is_some_and(|ns| ns > chain.lost_ns / 2)
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
        Cause::OffCpu => "off the CPU, stopped or in a state that is not on record".into(),
        Cause::Steal => "possibly stolen by the hypervisor".into(),
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

pub(crate) fn name(chain: &Chain) -> String {
    if chain.comm.is_empty() { format!("process {}", chain.pid) } else { format!("{} ({})", chain.comm, chain.pid) }
}

/// The call of a chain with what tells it from its like.
pub fn call(chain: &Chain) -> String {
    let mut text = chain.call.clone();
    if let Some(dir) = &chain.dir {
        text.push(' ');
        text.push_str(dir);
    }
    if let Some(bytes) = chain.bytes {
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

fn timeline(chain: &Chain, machine: &Machine) -> Vec<TimelineLine> {
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
        if let (Kind::Oom, Some(bytes)) = (chain.op, machine.mem_avail_bytes) {
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
    let mut host: Vec<String> = named(chain).map(|line| format!("{} {}", Nanos(line.ns), phrase(line))).collect();
    if chain.unexplained_ns > 0 && chain.unexplained_ns as f64 >= chain.lost_ns as f64 * NAMED_SHARE {
        host.push(format!("{} unexplained", Nanos(chain.unexplained_ns)));
    }
    if !host.is_empty() {
        lines.push(TimelineLine { layer: "HOST", text: host.join("; ") });
    }
    let (p50, max) = (Nanos(chain.p50_ns), Nanos(chain.max_ns));
    let text = match chain.op {
        Kind::Oom => return lines,
        Kind::Gap => {
            format!("{} before {}, the longest {max}; usually {p50} between calls", count(chain.n, "gap"), call(chain))
        }
        Kind::SlowCall => {
            let calls = count(chain.n, "call");
            format!("{}: {calls} of up to {max}, usually {p50} (time of the call on the host)", call(chain))
        }
        Kind::Stall => format!("{}: nothing returned for {}; usually {p50}", call(chain), Nanos(chain.lost_ns)),
        Kind::Drop => format!("{}: one in {max} for {}, usually one in {p50}", call(chain), Nanos(chain.dur_ns)),
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
