//! Samples of the whole system: CPUs, memory, pressure, quotas, GPUs.

mod affinity;
mod cgroup;
mod cpu;
mod gpu;

use std::io::Write;

use anyhow::Context;
use ingero_common::clock::mono_ns;
use ingero_common::record::src;
use ingero_common::record::write::{Psi, Sample};
use ingero_common::stream::Stream;
use procfs::{CpuPressure, Current, CurrentSI, IoPressure, KernelStats, Meminfo, MemoryPressure};

use cgroup::Quotas;
use cpu::Usage;
use gpu::Gpus;

/// Takes samples; each covers the time since the one before.
#[derive(Debug)]
pub(crate) struct Sampler {
    since_ns: u64,
    before: KernelStats,
    quotas: Quotas,
    gpus: Gpus,
    has_pressure: bool,
}

impl Sampler {
    /// Starts the first interval.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            since_ns: mono_ns(),
            before: KernelStats::current().context("reading /proc/stat")?,
            quotas: Quotas::new().context("reading /proc/self/mountinfo")?,
            gpus: Gpus::start(),
            has_pressure: std::path::Path::new("/proc/pressure/cpu").exists(),
        })
    }

    /// Ends the interval, writes its record and starts the next one. `pids`: the watched processes.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or the record not be written.
    pub(crate) fn write<W: Write>(
        &mut self,
        stream: &mut Stream<W>,
        pids: impl Iterator<Item = u32>,
    ) -> anyhow::Result<()> {
        let now = KernelStats::current().context("reading /proc/stat")?;
        let now_ns = mono_ns();
        let memory = Meminfo::current().context("reading /proc/meminfo")?;
        let usage = Usage::between(&self.before, &now);
        let gpu = self.gpus.take();
        let pids: Vec<u32> = pids.collect();
        let quota = self.quotas.deltas(pids.iter().copied());
        let affinity = affinity::of(&pids);
        let record = Sample {
            src: src::SYS,
            op: "sample",
            mono_ns: self.since_ns,
            ts: stream.ts(self.since_ns),
            dur_ns: now_ns.saturating_sub(self.since_ns),
            cpu_pct: usage.busy_pct,
            cpu_max_pct: usage.busiest_pct,
            cpus: usage.cpus,
            runnable: usage.runnable,
            iowait_pct: usage.iowait_pct,
            steal_pct: usage.steal_pct,
            // Kernels before 3.14 do not estimate it; ours are newer.
            mem_avail_bytes: memory.mem_available.unwrap_or(memory.mem_free),
            swap_used_bytes: memory.swap_total.saturating_sub(memory.swap_free),
            psi: if self.has_pressure { pressure() } else { None },
            quota: &quota,
            affinity: &affinity,
            gpu: gpu.as_deref(),
        };
        stream.event(&record)?;
        self.since_ns = now_ns;
        self.before = now;
        Ok(())
    }
}

/// Pressure stall information; `None` where the kernel has it switched off (the files are there, reading them fails).
fn pressure() -> Option<Psi> {
    // The crate's numbers are f32; in f64 their two decimals would become many.
    let pct = |value: f32| (f64::from(value) * 100.0).round() / 100.0;
    Some(Psi {
        cpu: pct(CpuPressure::current().ok()?.some.avg10),
        memory: pct(MemoryPressure::current().ok()?.some.avg10),
        io: pct(IoPressure::current().ok()?.some.avg10),
    })
}
