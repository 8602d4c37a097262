//! What a process did besides CUDA calls: its times off the CPU and its page allocations, summed up.

use ingero_common::host::{OffCpu, State};
use ingero_common::record::Record;

use crate::report::model::Switches;

/// Sums over one life of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    voluntary: u64,
    preempted: u64,
    off_ns: u128,
    max_off_ns: u64,
    runq_ns: u64,
    /// Pages allocated by the kernel for it.
    pub pages: u64,
    /// The same in bytes.
    pub page_bytes: u64,
    /// Requests to block devices that it made.
    pub block: Block,
}

/// Requests to block devices, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Block {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Sum of the times from their making to their completion.
    ns: u128,
    /// The longest of these.
    pub max_ns: u64,
}

impl Block {
    /// Mean time of a request, nanoseconds.
    pub(crate) fn mean_ns(&self) -> u64 {
        (self.ns / u128::from((self.reads + self.writes).max(1))) as u64
    }

    fn add(&mut self, record: &Record<'_>) {
        let bytes = record.bytes.unwrap_or(0);
        match &*record.op {
            "read" => (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes.saturating_add(bytes)),
            "write" => (self.writes, self.written_bytes) = (self.writes + 1, self.written_bytes.saturating_add(bytes)),
            _ => return,
        }
        let dur_ns = record.dur_ns.unwrap_or(0);
        self.ns += u128::from(dur_ns);
        self.max_ns = self.max_ns.max(dur_ns);
    }
}

impl Stats {
    /// Adds a time off the CPU.
    pub(crate) fn switch(&mut self, off: &OffCpu) {
        if off.state == State::Preempted {
            self.preempted += 1;
        } else {
            self.voluntary += 1;
        }
        self.off_ns += u128::from(off.end_ns - off.start_ns);
        self.max_off_ns = self.max_off_ns.max(off.end_ns - off.start_ns);
        self.runq_ns += off.end_ns - off.wake_ns;
    }

    /// Adds page allocations.
    pub(crate) fn pages(&mut self, record: &Record<'_>) {
        self.pages = self.pages.saturating_add(record.count.unwrap_or(1));
        self.page_bytes = self.page_bytes.saturating_add(record.bytes.unwrap_or(0));
    }

    /// Adds a request to a block device.
    pub(crate) fn block(&mut self, record: &Record<'_>) {
        self.block.add(record);
    }

    /// As a `process` record has it.
    pub(crate) fn switches(&self) -> Switches {
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
