//! What a process did besides CUDA calls: its times off the CPU and its page allocations, summed up.

use ingero_common::record::Record;

use crate::chain::Switches;
use crate::world::{Off, State};

/// Sums over one life of a process.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    voluntary: u64,
    preempted: u64,
    off_ns: u128,
    max_off_ns: u64,
    runq_ns: u64,
    /// Pages allocated by the kernel for it.
    pub pages: u64,
    /// The same in bytes.
    pub page_bytes: u64,
}

impl Stats {
    /// Adds a time off the CPU.
    pub fn switch(&mut self, off: &Off) {
        if off.state == State::Runnable {
            self.preempted += 1;
        } else {
            self.voluntary += 1;
        }
        self.off_ns += u128::from(off.end_ns - off.start_ns);
        self.max_off_ns = self.max_off_ns.max(off.end_ns - off.start_ns);
        self.runq_ns += off.end_ns - off.wake_ns;
    }

    /// Adds page allocations.
    pub fn pages(&mut self, record: &Record<'_>) {
        self.pages = self.pages.saturating_add(record.count.unwrap_or(1));
        self.page_bytes = self.page_bytes.saturating_add(record.bytes.unwrap_or(0));
    }

    /// As a `process` record has it.
    pub fn switches(&self) -> Switches {
        let n = self.voluntary + self.preempted;
        Switches {
            voluntary: self.voluntary,
            preempted: self.preempted,
            avg_off_ns: (self.off_ns / u128::from(n.max(1))) as u64,
            max_off_ns: self.max_off_ns,
            runq_ns: self.runq_ns,
        }
    }
}
