//! What the thread of a call went through in it, in parts that add up to its duration.

use ingero_common::host::{Interner, Task};
use ingero_common::record::{Host, Record};

use crate::blame::breakdown::{Breakdown, Cause};

/// A call's time in the parts that causes are made of, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Runnable without a CPU.
    pub(super) waiting: u64,
    pub(crate) asleep: u64,
    pub(super) disk: u64,
    pub(crate) off_unknown: u64,
    /// On a CPU, where that is known.
    pub(crate) on_cpu: u64,
    /// Not on record.
    pub(crate) unknown: u64,
}

impl Parts {
    pub(super) fn of(host: Option<&Host<'_>>, dur_ns: u64) -> Self {
        let Some(host) = host else { return Self { unknown: dur_ns, ..Self::default() } };
        // `runq_ns` holds the preempted time and, beyond it, what followed a wake-up, which is counted in sleep or I/O.
        let after_wake = host.runq_ns.saturating_sub(host.preempted_ns);
        let after_sleep = after_wake.min(host.sleep_ns);
        let after_disk = (after_wake - after_sleep).min(host.io_ns);
        let mut left = dur_ns;
        let mut take = |ns: u64| {
            let taken = ns.min(left);
            left -= taken;
            taken
        };
        let waiting = take(host.preempted_ns + after_sleep + after_disk);
        let disk = take(host.io_ns - after_disk);
        let asleep = take(host.sleep_ns - after_sleep);
        let off_unknown = take(host.unknown_ns);
        let (on_cpu, unknown) = if host.watched { (left, 0) } else { (0, left) };
        Self { waiting, asleep, disk, off_unknown, on_cpu, unknown }
    }

    /// Those of a call that lasted for `dur_ns`.
    pub(crate) fn of_record(record: &Record<'_>, dur_ns: u64) -> Self {
        let host = record.host.and_then(|raw| serde_json::from_str::<Host<'_>>(raw.get()).ok());
        Self::of(host.as_ref(), dur_ns)
    }

    /// What a call had beyond the `usual` parts of its group: `excess_ns` shared out. Where a part that is usual is
    /// missing, it is somewhere in what isn't on record, of which it is taken off.
    pub(super) fn beyond(self, usual: [u64; 6], excess_ns: u64) -> [u64; 6] {
        let parts = self.array();
        let mut beyond: [u64; 6] = std::array::from_fn(|i| parts[i].saturating_sub(usual[i]));
        let mut missing: u64 = (0..6).map(|i| usual[i].saturating_sub(parts[i])).sum();
        for part in [OFF_UNKNOWN, UNKNOWN] {
            let off = beyond[part].min(missing);
            beyond[part] -= off;
            missing -= off;
        }
        apportion(beyond.map(u128::from), excess_ns)
    }

    /// All but the waiting for a CPU.
    pub(super) fn breakdown(self) -> Breakdown {
        let mut breakdown = Breakdown::default();
        breakdown.add(Cause::Blocked, Task::default(), self.asleep);
        breakdown.add(Cause::IoWait, Task::default(), self.disk);
        breakdown.add(Cause::OffCpu, Task::default(), self.off_unknown);
        breakdown.add(Cause::DriverCpu, Task::default(), self.on_cpu);
        breakdown.add_unexplained(self.unknown);
        breakdown
    }

    pub(super) fn array(self) -> [u64; 6] {
        [self.waiting, self.asleep, self.disk, self.off_unknown, self.on_cpu, self.unknown]
    }
}

/// Places in [`Parts::array`].
pub(super) const ASLEEP: usize = 1;
pub(super) const OFF_UNKNOWN: usize = 3;
pub(super) const ON_CPU: usize = 4;
pub(super) const UNKNOWN: usize = 5;

/// Shares `whole` out in proportion to `weights`, exactly; all to the last where all weights are 0.
pub(super) fn apportion(weights: [u128; 6], whole: u64) -> [u64; 6] {
    let sum: u128 = weights.iter().sum();
    let mut parts = [0; 6];
    if sum == 0 {
        parts[5] = whole;
        return parts;
    }
    for (part, weight) in parts.iter_mut().zip(weights) {
        *part = (weight.saturating_mul(u128::from(whole)) / sum) as u64;
    }
    let rest = whole - parts.iter().sum::<u64>();
    if let Some(largest) = (0..6).max_by_key(|&i| weights[i]) {
        parts[largest] += rest;
    }
    parts
}

/// What a call that has not returned went through so far, in causes that add up to `dur_ns`.
pub(crate) fn open_breakdown(record: &Record<'_>, dur_ns: u64, names: &mut Interner) -> Breakdown {
    let host = record.host.and_then(|raw| serde_json::from_str::<Host<'_>>(raw.get()).ok());
    let parts = Parts::of(host.as_ref(), dur_ns);
    let (mut breakdown, waiting) = (parts.breakdown(), parts.waiting);
    let top = host.iter().flat_map(|h| &h.by).filter(|by| by.pid != 0).max_by_key(|by| by.ns);
    let party = top.map_or(Task::default(), |by| Task { pid: by.pid, name: names.id(&by.comm) });
    breakdown.add(Cause::CpuWait, party, waiting);
    breakdown
}

/// Whether what a call went through was mainly waiting for a CPU, which has nothing to do with warming up.
pub(crate) fn mostly_waiting(record: &Record<'_>, dur_ns: u64) -> bool {
    Parts::of_record(record, dur_ns).waiting > dur_ns / 2
}
