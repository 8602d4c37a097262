//! What the CPUs did between two looks at `/proc/stat`.
//!
//! ```text
//!          user nice system  idle iowait irq softirq steal
//! before     10    0      5    80      5   0       0     0
//! after      60    0     15    90     15   0       0    20     sum of differences: 50+10+10+10+20 = 100 ticks
//!            busy 60 %    iowait 10 %    steal 20 %    (idle 10 %)
//! ```
//!
//! `guest` is part of `user` already. Stolen time is neither busy nor idle: the hypervisor had the CPU.

use procfs::{CpuTime, KernelStats};

/// Shares of an interval, in percent with two decimals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Usage {
    /// Busy, of all CPUs together.
    pub(crate) busy_pct: f64,
    /// Busy, of the CPU that was so most.
    pub(crate) busiest_pct: f64,
    /// CPUs that are on-line.
    pub(crate) cpus: u32,
    /// Threads running or waiting for a CPU at the end of the interval, without the one that looked.
    pub(crate) runnable: u64,
    pub(crate) iowait_pct: f64,
    pub(crate) steal_pct: f64,
}

impl Usage {
    pub(crate) fn between(before: &KernelStats, after: &KernelStats) -> Self {
        let all = Ticks::between(&before.total, &after.total);
        // The lines are told apart by their order only: after a hot-plug they may belong to other CPUs.
        let comparable = before.cpu_time.len() == after.cpu_time.len();
        let busiest_pct = before
            .cpu_time
            .iter()
            .zip(&after.cpu_time)
            .filter(|_| comparable)
            .map(|(before, after)| {
                let ticks = Ticks::between(before, after);
                ticks.pct(ticks.busy)
            })
            .fold(all.pct(all.busy), f64::max);
        Self {
            busy_pct: all.pct(all.busy),
            busiest_pct,
            cpus: u32::try_from(after.cpu_time.len()).unwrap_or(u32::MAX),
            runnable: after.procs_running.unwrap_or(0).saturating_sub(1).into(),
            iowait_pct: all.pct(all.iowait),
            steal_pct: all.pct(all.steal),
        }
    }
}

/// Differences, in clock ticks.
struct Ticks {
    busy: u64,
    iowait: u64,
    steal: u64,
    all: u64,
}

impl Ticks {
    fn between(before: &CpuTime, after: &CpuTime) -> Self {
        // Counters of idle and iowait are known to step back now and then.
        let diff = |of: fn(&CpuTime) -> u64| of(after).saturating_sub(of(before));
        let busy = diff(|t| t.user)
            + diff(|t| t.nice)
            + diff(|t| t.system)
            + diff(|t| t.irq.unwrap_or(0))
            + diff(|t| t.softirq.unwrap_or(0));
        let iowait = diff(|t| t.iowait.unwrap_or(0));
        let steal = diff(|t| t.steal.unwrap_or(0));
        Self { busy, iowait, steal, all: busy + iowait + steal + diff(|t| t.idle) }
    }

    fn pct(&self, part: u64) -> f64 {
        // An interval too short for a tick has seen nothing.
        if self.all == 0 { 0.0 } else { (part as f64 / self.all as f64 * 10_000.0).round() / 100.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::prelude::FromReadSI;

    fn stats(cpus: &[&str], running: u32) -> KernelStats {
        let system = procfs::ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        let mut text = String::new();
        for (i, cpu) in cpus.iter().enumerate() {
            let name = if i == 0 { "cpu ".into() } else { format!("cpu{}", i - 1) };
            text += &format!("{name} {cpu} 0 0\n");
        }
        text += &format!("intr 1 2 3\nctxt 5\nbtime 1\nprocesses 9\nprocs_running {running}\nprocs_blocked 0\n");
        KernelStats::from_read(text.as_bytes(), &system).unwrap()
    }

    #[test]
    fn the_example_at_the_top() {
        let before = stats(&["10 0 5 80 5 0 0 0", "5 0 0 80 5 0 0 0", "5 0 5 0 0 0 0 0"], 2);
        let after = stats(&["60 0 15 90 15 0 0 20", "5 0 0 90 15 0 0 20", "55 0 15 0 0 0 0 0"], 4);
        let usage = Usage::between(&before, &after);
        assert_eq!((usage.busy_pct, usage.iowait_pct, usage.steal_pct), (60.0, 10.0, 20.0));
        assert_eq!((usage.busiest_pct, usage.cpus, usage.runnable), (100.0, 2, 3));
    }

    #[test]
    fn counters_that_step_back_and_empty_intervals() {
        let a = stats(&["10 0 5 80 5 0 0 0", "10 0 5 80 5 0 0 0"], 1);
        let b = stats(&["20 0 5 79 4 0 0 0", "20 0 5 79 4 0 0 0"], 0);
        assert_eq!(Usage::between(&a, &b).busy_pct, 100.0);
        let usage = Usage::between(&a, &a);
        assert_eq!((usage.busy_pct, usage.busiest_pct, usage.iowait_pct, usage.runnable), (0.0, 0.0, 0.0, 0));
    }
}
