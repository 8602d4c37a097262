//! What the samples say about the machine during a finding, and who was killed or read and wrote then.

use std::collections::BTreeMap;

use ingero_common::host::Interner;
use ingero_common::text::{Bytes, Nanos, Traced};

use crate::blame::WhoNs;
use crate::input::kills::{Kill, Kills};
use crate::input::samples::Samples;
use crate::limits::{BEFORE_KILL_NS, MAX_KILLED, STEAL_TOLD_PCT};
use crate::report::model::{Finding, Kind, TimelineLine};
use crate::report::sentences::count;
use crate::stats::totals::Block;

/// The machine over the interval of one finding.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    pub(crate) samples: usize,
    pub(crate) cpu_pct: f64,
    cpu_max_pct: f64,
    /// How many CPUs there are.
    cpus: Option<u32>,
    pub(crate) steal_pct: f64,
    pub(crate) swap_grew_bytes: u64,
    gpu_pct: Option<f64>,
    pub(crate) mem_avail_bytes: Option<u64>,
    /// How long the CPU limit of the process's cgroup throttled it.
    pub(crate) throttled_ns: u64,
    /// Processes that could not run on all CPUs, with those on which they could.
    pub(crate) affinity: BTreeMap<u32, String>,
    /// Who was killed for memory.
    killed: Vec<String>,
    /// How often the GPU had nothing left to do in the loop of the process.
    pub(crate) drains: u64,
    /// Requests to block devices by those who waited for one, over all the time they were watched.
    pub(crate) io: Vec<(WhoNs, Block)>,
}

impl Machine {
    /// The machine over the interval of `finding`.
    pub(crate) fn over(samples: &Samples, kills: &Kills, names: &Interner, finding: &Finding) -> Self {
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
            for affinity in &sample.affinity {
                machine.affinity.extend(affinity.pids.iter().map(|&pid| (pid, affinity.cpus_allowed.clone())));
            }
            machine.throttled_ns += sample.throttled_ns(finding.pid);
            machine.mem_avail_bytes = machine.mem_avail_bytes.into_iter().chain(sample.mem_avail_bytes).min();
            if let Some(used) = sample.swap_used_bytes {
                swap = Some((swap.map_or(used, |(first, _)| first), used));
            }
        }
        machine.cpu_pct /= machine.samples.max(1) as f64;
        machine.gpu_pct = samples.gpu_pct(from_ns, to_ns);
        machine.swap_grew_bytes = swap.map_or(0, |(first, last)| last.saturating_sub(first));
        machine.killed = killed(kills, names, finding);
        machine
    }

    /// What there is to tell of it.
    pub(crate) fn lines(&self, finding: &Finding) -> Vec<TimelineLine> {
        let mut texts = Vec::new();
        if !self.killed.is_empty() {
            texts.push(format!("out of memory: the kernel killed {}", self.killed.join("; ")));
        }
        if self.samples > 0 {
            texts.push(self.usage(finding));
        }
        texts.extend(self.io.iter().map(|(who, io)| requests(who, io)));
        texts.into_iter().map(|text| TimelineLine { layer: "SYSTEM", text }).collect()
    }

    fn usage(&self, finding: &Finding) -> String {
        let mut text = match self.cpus {
            Some(cpus) => format!("{cpus} CPUs, {:.0} % busy", self.cpu_pct),
            None => format!("CPUs {:.0} % busy", self.cpu_pct),
        };
        if self.cpu_max_pct > 0.0 {
            text.push_str(&format!(", the busiest one {:.0} %", self.cpu_max_pct));
        }
        if self.steal_pct >= STEAL_TOLD_PCT {
            text.push_str(&format!(", up to {:.0} % stolen by the hypervisor", self.steal_pct));
        }
        if let Some(pct) = self.gpu_pct {
            text.push_str(&format!(", GPU {pct:.0} % in use by its driver's counter"));
        }
        if let (Kind::Oom, Some(bytes)) = (finding.op, self.mem_avail_bytes) {
            text.push_str(&format!(", {} of memory available", Bytes(bytes)));
        }
        if self.swap_grew_bytes > 0 {
            text.push_str(&format!(", swap grew by {}", Bytes(self.swap_grew_bytes)));
        }
        text
    }
}

fn killed(kills: &Kills, names: &Interner, finding: &Finding) -> Vec<String> {
    let who = |kill: &Kill| {
        let (victim, by) = (Traced::from(names.text(kill.victim.name)), Traced::from(names.text(kill.by.name)));
        match finding.op {
            Kind::Oom if kill.by.pid != 0 => {
                format!("{victim} ({}) when {by} ({}) asked for memory", kill.victim.pid, kill.by.pid)
            }
            _ => format!("{victim} ({})", kill.victim.pid),
        }
    };
    let killed = kills.between(finding.lost.mono_ns, finding.lost.mono_ns + finding.lost.dur_ns);
    let own = |kill: &&Kill| finding.op != Kind::Oom || kill.victim.pid == finding.pid;
    killed.filter(own).take(MAX_KILLED).map(who).collect()
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
    let parts = parts.join(", ");
    format!(
        "block devices, by {} ({}) in the whole recording: {parts}, {mean} each on average, up to {max}",
        who.comm, who.pid
    )
}
