//! What the records can and cannot prove: lost records, and what the machine did meanwhile.
//!
//! Silence is evidence only where somebody was listening: a thread without an off-CPU record was on a CPU
//! *if* its process was watched and no scheduler record was lost just then. `world` knows about watching,
//! this module about losses and about the samples of the whole machine (quota counters, steal, busy CPUs).

use std::collections::VecDeque;

use ingero_common::record::SysSample;
use serde::Deserialize;

/// An interval in which records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Whose records; `None` = anybody's.
    pub pid: Option<u32>,
    /// How many; `None` = not known.
    pub count: Option<u64>,
    /// A tool that stores a part of what it sees left them out, here and there, rather than losing all for a while.
    pub sampled: bool,
}

impl Loss {
    /// Whether records of process `pid` may be missing somewhere in [`from_ns`, `to_ns`].
    pub fn touches(&self, pid: u32, from_ns: u64, to_ns: u64) -> bool {
        self.pid.is_none_or(|p| p == pid) && self.start_ns <= to_ns && self.end_ns >= from_ns
    }
}

/// More intervals than this are joined with their neighbours, which only widens what counts as lost.
const MAX_LOSSES: usize = 4096;

/// The intervals in which one tracer's records are missing.
#[derive(Debug, Default)]
pub struct Losses {
    all: VecDeque<Loss>,
}

impl Losses {
    /// Takes note of one.
    pub fn add(&mut self, loss: Loss) {
        self.all.push_back(loss);
        if self.all.len() > MAX_LOSSES {
            let (Some(a), Some(b)) = (self.all.pop_front(), self.all.pop_front()) else { return };
            self.all.push_front(Loss {
                start_ns: a.start_ns.min(b.start_ns),
                end_ns: a.end_ns.max(b.end_ns),
                pid: if a.pid == b.pid { a.pid } else { None },
                count: a.count.zip(b.count).map(|(a, b)| a + b),
                sampled: a.sampled && b.sampled,
            });
        }
    }

    /// Those that may concern process `pid` in [`from_ns`, `to_ns`].
    pub fn touching(&self, pid: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Loss> {
        self.all.iter().filter(move |loss| loss.touches(pid, from_ns, to_ns))
    }

    /// The intervals in which records of process `pid` may be missing, to be asked many times.
    pub fn of(&self, pid: u32) -> Doubtful {
        let of_it = self.all.iter().filter(|l| l.pid.is_none_or(|p| p == pid));
        Doubtful { parts: union(of_it.map(|l| (l.start_ns, l.end_ns)).collect()) }
    }

    /// How much of [`from_ns`, `to_ns`] lies in intervals in which records of process `pid` were lost.
    pub fn lost_ns(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        let clip = |l: &Loss| (l.start_ns.max(from_ns), l.end_ns.min(to_ns));
        let parts = union(self.touching(pid, from_ns, to_ns).map(clip).collect());
        parts.iter().map(|(start_ns, end_ns)| end_ns.saturating_sub(*start_ns)).sum()
    }

    /// The last instant up to `to_ns` at which records of anybody were lost.
    pub fn last_ns(&self, to_ns: u64) -> Option<u64> {
        self.all.iter().filter(|loss| loss.start_ns <= to_ns).map(|loss| loss.end_ns.min(to_ns)).max()
    }

    /// How many records are missing there; an unknown number counts as one.
    pub fn count(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        self.touching(pid, from_ns, to_ns).map(|loss| loss.count.unwrap_or(1)).sum()
    }
}

/// The same intervals by time, those that touch joined.
fn union(mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.sort_unstable();
    parts.dedup_by(|next, before| {
        let joins = next.0 <= before.1;
        before.1 = if joins { before.1.max(next.1) } else { before.1 };
        joins
    });
    parts
}

/// Where records of one process may be missing.
#[derive(Clone, Debug, Default)]
pub struct Doubtful {
    /// By time; none touch.
    parts: Vec<(u64, u64)>,
}

impl Doubtful {
    /// Whether that is so somewhere in [`from_ns`, `to_ns`].
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        let next = self.parts.partition_point(|&(_, end_ns)| end_ns < from_ns);
        self.parts.get(next).is_some_and(|&(start_ns, _)| start_ns <= to_ns)
    }
}

/// The `gpu` key of a `sys` `sample` record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct GpuSamples {
    gpu: Vec<GpuSample>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct GpuSample {
    util_pct: Option<f64>,
}


/// The machine over one interval.
#[derive(Clone, Debug)]
pub struct Sample {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Busy share of all CPUs, percent.
    pub cpu_pct: Option<f64>,
    /// Busiest CPU, percent.
    pub cpu_max_pct: Option<f64>,
    /// How many CPUs there are.
    pub cpus: Option<u32>,
    /// Time that the hypervisor ran others, percent of all CPUs.
    pub steal_pct: f64,
    /// Swap in use.
    pub swap_used_bytes: Option<u64>,
    /// Memory that could be had.
    pub mem_avail_bytes: Option<u64>,
    /// Use of each GPU as its driver gives it, percent: some kernel ran, not how much of the GPU it used.
    pub(crate) gpus_pct: Vec<f64>,
    /// For each process under a CPU limit: how long its cgroup was throttled, in nanoseconds.
    throttled: Vec<(u32, u64)>,
}

impl Sample {
    /// How long the cgroup of process `pid` was throttled, in nanoseconds; 0 where it is under no limit.
    pub fn throttled_ns(&self, pid: u32) -> u64 {
        self.throttled.iter().find(|(p, _)| *p == pid).map_or(0, |&(_, ns)| ns)
    }
}

/// Kept for about 4.5 hours at one a second.
const MAX_SAMPLES: usize = 16_384;
/// Below this share of busy CPUs, one is free for whoever may run.
const CPUS_FREE_BELOW_PCT: f64 = 90.0;
/// Steal below this is the daily noise of a virtual machine.
const STEAL_FROM_PCT: f64 = 5.0;

/// What is known about a CPU quota in some stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// No sample covers it.
    Unknown,
    /// Samples cover it and the process's counters stood still.
    Still,
    /// The process's cgroup was throttled for so many nanoseconds, while CPUs were free.
    GrewCpusFree(u64),
    /// It was throttled for so long, and the CPUs were busy as well.
    GrewCpusBusy(u64),
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub struct Samples {
    all: VecDeque<Sample>,
}

impl Samples {
    /// Takes note of a sample over [`start_ns`, `end_ns`].
    pub fn add(&mut self, start_ns: u64, end_ns: u64, sample: &SysSample, gpus: &GpuSamples) {
        let throttled = sample.quota.iter().flat_map(|q| q.pids.iter().map(|&pid| (pid, q.throttled_ns))).collect();
        self.all.push_back(Sample {
            start_ns,
            end_ns,
            cpu_pct: sample.cpu_pct,
            cpu_max_pct: sample.cpu_max_pct,
            cpus: sample.cpus,
            steal_pct: sample.steal_pct.unwrap_or(0.0),
            swap_used_bytes: sample.swap_used_bytes,
            mem_avail_bytes: sample.mem_avail_bytes,
            gpus_pct: gpus.gpu.iter().filter_map(|gpu| gpu.util_pct).collect(),
            throttled,
        });
        if self.all.len() > MAX_SAMPLES {
            self.all.pop_front();
        }
    }

    /// Those that overlap [`from_ns`, `to_ns`].
    pub fn over(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Sample> {
        // Ordered by end, about equally long: the search may start near.
        let first = self.all.partition_point(|s| s.end_ns <= from_ns);
        self.all.range(first..).take_while(move |s| s.start_ns < to_ns)
    }

    /// Mean use of the GPUs over [`from_ns`, `to_ns`], percent; `None` where it was not sampled.
    pub fn gpu_pct(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let all: Vec<f64> = self.over(from_ns, to_ns).flat_map(|sample| &sample.gpus_pct).copied().collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// The lowest use of any GPU in any sample over [`from_ns`, `to_ns`], percent; `None` where these do not cover all of it.
    pub(crate) fn least_gpu_pct(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let (mut known_to_ns, mut least_pct) = (from_ns, f64::INFINITY);
        for sample in self.over(from_ns, to_ns).filter(|sample| !sample.gpus_pct.is_empty()) {
            if sample.start_ns <= known_to_ns {
                known_to_ns = known_to_ns.max(sample.end_ns);
            }
            least_pct = sample.gpus_pct.iter().copied().fold(least_pct, f64::min);
        }
        (known_to_ns >= to_ns && least_pct.is_finite()).then_some(least_pct)
    }

    /// What the quota counters of process `pid` did in [`from_ns`, `to_ns`].
    pub fn quota(&self, pid: u32, from_ns: u64, to_ns: u64) -> Quota {
        let (mut known_to_ns, mut grew_ns, mut free) = (from_ns, 0, false);
        for sample in self.over(from_ns, to_ns) {
            let Some(&(_, throttled_ns)) = sample.throttled.iter().find(|(p, _)| *p == pid) else { continue };
            if throttled_ns > 0 {
                grew_ns += throttled_ns;
                free |= sample.cpu_pct.is_none_or(|pct| pct < CPUS_FREE_BELOW_PCT);
            }
            if sample.start_ns <= known_to_ns {
                known_to_ns = known_to_ns.max(sample.end_ns);
            }
        }
        match (grew_ns, free) {
            (0, _) if known_to_ns >= to_ns => Quota::Still,
            (0, _) => Quota::Unknown,
            (ns, true) => Quota::GrewCpusFree(ns),
            (ns, false) => Quota::GrewCpusBusy(ns),
        }
    }

    /// How much of `ns` that a thread seemed to be on a CPU in [`from_ns`, `to_ns`] the hypervisor may have
    /// run others: stolen time as a part of the time that CPUs were busy, which it counts in.
    pub fn stolen_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
        let mut stolen = 0.0;
        for sample in self.over(from_ns, to_ns).filter(|s| s.steal_pct >= STEAL_FROM_PCT) {
            let overlap = to_ns.min(sample.end_ns).saturating_sub(from_ns.max(sample.start_ns));
            let busy = sample.cpu_pct.unwrap_or(100.0).max(sample.steal_pct);
            stolen += overlap as f64 * (sample.steal_pct / busy);
        }
        (stolen as u64).min(to_ns - from_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::record::QuotaSample;

    fn sample(cpu_pct: f64, throttled_ns: u64) -> SysSample {
        let quota = vec![QuotaSample { pids: vec![7], throttled_ns, ..QuotaSample::default() }];
        SysSample { cpu_pct: Some(cpu_pct), quota, ..SysSample::default() }
    }

    #[test]
    fn quota_counters_speak_for_their_own_interval_and_process() {
        let mut samples = Samples::default();
        samples.add(0, 100, &sample(30.0, 0), &GpuSamples::default());
        samples.add(100, 200, &sample(30.0, 40), &GpuSamples::default());
        samples.add(200, 300, &sample(99.0, 40), &GpuSamples::default());
        assert_eq!(samples.quota(7, 10, 90), Quota::Still);
        assert_eq!(samples.quota(7, 10, 190), Quota::GrewCpusFree(40));
        assert_eq!(samples.quota(7, 210, 290), Quota::GrewCpusBusy(40));
        assert_eq!(samples.quota(7, 210, 310), Quota::GrewCpusBusy(40));
        assert_eq!(samples.quota(7, 310, 320), Quota::Unknown);
        assert_eq!(samples.quota(8, 10, 90), Quota::Unknown);
    }

    #[test]
    fn steal_is_a_part_of_busy_time() {
        let mut samples = Samples::default();
        samples.add(
            0,
            1000,
            &SysSample { cpu_pct: Some(50.0), steal_pct: Some(25.0), ..SysSample::default() },
            &GpuSamples::default(),
        );
        samples.add(
            1000,
            2000,
            &SysSample { cpu_pct: Some(50.0), steal_pct: Some(1.0), ..SysSample::default() },
            &GpuSamples::default(),
        );
        assert_eq!(
            (samples.stolen_ns(0, 100), samples.stolen_ns(950, 1050), samples.stolen_ns(1000, 1100)),
            (50, 25, 0)
        );
    }

    #[test]
    fn where_records_are_missing_is_the_same_asked_once_or_many_times() {
        let mut losses = Losses::default();
        for (start_ns, end_ns, pid) in
            [(50, 60, None), (10, 20, Some(1)), (15, 30, Some(1)), (55, 56, Some(2)), (80, 80, Some(2))]
        {
            losses.add(Loss { start_ns, end_ns, pid, count: Some(1), sampled: false });
        }
        for pid in 1..4 {
            let doubtful = losses.of(pid);
            for (from_ns, to_ns) in (0..90).flat_map(|from| (from..90).map(move |to| (from, to))) {
                let count = losses.count(pid, from_ns, to_ns);
                assert_eq!(doubtful.touches(from_ns, to_ns), count > 0, "{pid} {from_ns} {to_ns}");
            }
        }
    }

    #[test]
    fn too_many_losses_widen_instead_of_vanishing() {
        let mut losses = Losses::default();
        for i in 0..10_000_u64 {
            losses.add(Loss { start_ns: i * 10, end_ns: i * 10 + 1, pid: Some(1), count: Some(1), sampled: false });
        }
        assert_eq!(losses.count(1, 0, u64::MAX), 10_000);
        assert_eq!(losses.touching(1, 0, 0).count(), 1);
        assert_eq!(losses.touching(2, 0, u64::MAX).count(), 0);
    }
}
