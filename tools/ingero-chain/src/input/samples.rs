//! What the machine did meanwhile: samples of quota counters, steal, busy CPUs and GPUs.

use std::collections::VecDeque;

use ingero_common::record::{Affinity, SysSample};
use serde::Deserialize;

use crate::limits::{COUNTER_LAG_NS, CPUS_FREE_BELOW_PCT, MAX_SAMPLES, STEAL_FROM_PCT};

/// The `gpu` key of a `sys` `sample` record.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct GpuSamples {
    gpu: Vec<GpuSample>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct GpuSample {
    util_pct: Option<f64>,
}

/// The machine over one interval.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
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
    /// Processes that may not run on all CPUs.
    pub(crate) affinity: Vec<Affinity>,
}

impl Sample {
    /// How long the cgroup of process `pid` was throttled, in nanoseconds; 0 where it is under no limit.
    pub(crate) fn throttled_ns(&self, pid: u32) -> u64 {
        self.throttled.iter().find(|(p, _)| *p == pid).map_or(0, |&(_, ns)| ns)
    }
}

/// What is known about a CPU quota in some stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// No sample covers it.
    Unknown,
    /// Samples cover it and the process's counters stood still.
    Still,
    /// The process's cgroup was throttled for so many nanoseconds, while CPUs were free.
    GrewCpusFree(u64),
    /// It was throttled for so long, and the CPUs were busy as well.
    GrewCpusBusy(u64),
}

/// A share, where it can be one.
fn percent(pct: Option<f64>) -> Option<f64> {
    pct.filter(|pct| (0.0..=100.0).contains(pct))
}

/// The samples, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    all: VecDeque<Sample>,
}

impl Samples {
    /// Takes note of a sample over [`start_ns`, `end_ns`].
    pub(crate) fn add(&mut self, start_ns: u64, end_ns: u64, sample: &SysSample, gpus: &GpuSamples) {
        let throttled = sample.quota.iter().flat_map(|q| q.pids.iter().map(|&pid| (pid, q.throttled_ns))).collect();
        self.all.push_back(Sample {
            start_ns,
            end_ns,
            cpu_pct: percent(sample.cpu_pct),
            cpu_max_pct: percent(sample.cpu_max_pct),
            cpus: sample.cpus,
            steal_pct: percent(sample.steal_pct).unwrap_or(0.0),
            swap_used_bytes: sample.swap_used_bytes,
            mem_avail_bytes: sample.mem_avail_bytes,
            gpus_pct: gpus.gpu.iter().filter_map(|gpu| percent(gpu.util_pct)).collect(),
            throttled,
            affinity: sample.affinity.clone(),
        });
        if self.all.len() > MAX_SAMPLES {
            self.all.pop_front();
        }
    }

    /// Those that overlap [`from_ns`, `to_ns`].
    pub(crate) fn over(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Sample> {
        // Ordered by end, about equally long: the search may start near.
        let first = self.all.partition_point(|s| s.end_ns <= from_ns);
        self.all.range(first..).take_while(move |s| s.start_ns < to_ns)
    }

    /// Mean use of the GPUs over [`from_ns`, `to_ns`], percent; `None` where it was not sampled.
    pub(crate) fn gpu_pct(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let all: Vec<f64> = self.over(from_ns, to_ns).flat_map(|sample| &sample.gpus_pct).copied().collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    }

    /// The lowest use of any GPU in any sample that may be about [`from_ns`, `to_ns`], percent; `None` where these do not cover
    /// all of it.
    pub(crate) fn least_gpu_pct(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let to_ns = to_ns.saturating_add(COUNTER_LAG_NS);
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
    pub(crate) fn quota(&self, pid: u32, from_ns: u64, to_ns: u64) -> Quota {
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
    pub(crate) fn stolen_ns(&self, from_ns: u64, to_ns: u64) -> u64 {
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
    fn old_samples_are_dropped() {
        let mut samples = Samples::default();
        (0..16_385).for_each(|n| samples.add(n * 10, n * 10 + 10, &sample(30.0, 0), &GpuSamples::default()));
        assert_eq!((samples.all.len(), samples.over(0, 10).count(), samples.over(10, 20).count()), (16_384, 0, 1));
    }

    #[test]
    fn quota_counters_speak_for_their_own_interval_and_process() {
        let mut samples = Samples::default();
        samples.add(0, 100, &sample(30.0, 0), &GpuSamples::default());
        samples.add(100, 200, &sample(30.0, 40), &GpuSamples::default());
        samples.add(200, 300, &sample(90.0, 40), &GpuSamples::default());
        samples.add(400, 500, &sample(89.9, 40), &GpuSamples::default());
        assert_eq!(samples.quota(7, 10, 90), Quota::Still);
        assert_eq!(samples.quota(7, 10, 190), Quota::GrewCpusFree(40));
        assert_eq!(samples.quota(7, 210, 290), Quota::GrewCpusBusy(40));
        assert_eq!(samples.quota(7, 210, 310), Quota::GrewCpusBusy(40));
        assert_eq!(samples.quota(7, 410, 490), Quota::GrewCpusFree(40));
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
            &SysSample { cpu_pct: Some(50.0), steal_pct: Some(4.9), ..SysSample::default() },
            &GpuSamples::default(),
        );
        assert_eq!(
            (samples.stolen_ns(0, 100), samples.stolen_ns(950, 1050), samples.stolen_ns(1000, 1100)),
            (50, 25, 0)
        );
        samples.add(
            2000,
            3000,
            &SysSample { cpu_pct: Some(50.0), steal_pct: Some(5.0), ..SysSample::default() },
            &GpuSamples::default(),
        );
        assert_eq!(samples.stolen_ns(2000, 2100), 10);
    }
}
