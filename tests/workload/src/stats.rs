//! Reads the counts that `stub-app` keeps in its shared file. The layout is that of `tests/stub/app/stats.c`, in the
//! machine's own byte order; its sizes are asserted there.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

const MAGIC: u64 = 0x3141_5453;
const HEADER_BYTES: usize = 32;
const OP_BYTES: usize = 80;
const SLOT_HEAD_BYTES: usize = 80;

/// What one function was called for by one thread. Times are the caller's: they include a tracer's probes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpCount {
    /// Calls that returned.
    pub n: u64,
    /// Their durations together.
    pub total_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Those that returned something other than 0.
    pub failed: u64,
}

/// One thread of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// `main`, `thread`, `worker`, `feeder`, `pin`, `child` or `spin`.
    pub role: String,
    /// Name when it began.
    pub comm: String,
    /// Start of its work, `CLOCK_MONOTONIC`.
    pub started_ns: u64,
    /// End of its work; `None` where it never came to that.
    pub finished_ns: Option<u64>,
    /// Time on a CPU between the two, from the thread's `schedstat`.
    pub cpu_ns: u64,
    /// Time runnable without a CPU between the two, from the same.
    pub run_delay_ns: u64,
    /// Voluntary context switches, from `getrusage`.
    pub voluntary: u64,
    /// Involuntary ones.
    pub involuntary: u64,
    /// By function.
    pub calls: BTreeMap<String, OpCount>,
}

/// Everything that the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// When the library had been opened, `CLOCK_MONOTONIC`; `None` where it never was.
    pub opened_ns: Option<u64>,
    /// In the order in which they began.
    pub threads: Vec<Thread>,
}

impl Stats {
    /// Reads the file. `Ok(None)` while `stub-app` has not written its head.
    pub fn read(file: &File) -> anyhow::Result<Option<Self>> {
        let bytes = usize::try_from(file.metadata().context("looking at the workload's counts")?.len())?;
        let mut all = vec![0; bytes];
        file.read_exact_at(&mut all, 0).context("reading the workload's counts")?;
        parse(&all).context("the workload's counts are not readable")
    }

    /// All calls of a function by all threads.
    pub fn calls(&self, name: &str) -> u64 {
        self.threads.iter().filter_map(|t| t.calls.get(name)).map(|op| op.n).sum()
    }

    /// All calls of all functions by all threads; the host's own work is none.
    pub fn all_calls(&self) -> u64 {
        self.threads.iter().flat_map(|t| &t.calls).filter(|(name, _)| *name != "host").map(|(_, op)| op.n).sum()
    }

    /// The threads in a role.
    pub fn in_role<'a>(&'a self, role: &'a str) -> impl Iterator<Item = &'a Thread> {
        self.threads.iter().filter(move |t| t.role == role)
    }
}

fn parse(bytes: &[u8]) -> anyhow::Result<Option<Stats>> {
    let (Some(MAGIC), Some(slot_bytes), Some(slots_n), Some(opened)) =
        (u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 24))
    else {
        return Ok(None);
    };
    let slot_bytes = usize::try_from(slot_bytes)?;
    if slot_bytes < SLOT_HEAD_BYTES || !(slot_bytes - SLOT_HEAD_BYTES).is_multiple_of(OP_BYTES) {
        bail!("slots of {slot_bytes} bytes, which is another layout");
    }
    let threads = bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(slot_bytes);
    let threads = threads.take(usize::try_from(slots_n)?).filter_map(thread).collect();
    Ok(Some(Stats { opened_ns: (opened != 0).then_some(opened), threads }))
}

/// `None` for a slot that was taken a moment ago and is not filled in.
fn thread(slot: &[u8]) -> Option<Thread> {
    let role = match u32_at(slot, 8)? {
        1 => "main",
        2 => "thread",
        3 => "worker",
        4 => "feeder",
        5 => "pin",
        6 => "child",
        7 => "spin",
        _ => return None,
    };
    let finished = u64_at(slot, 40)?;
    let ops = slot.get(SLOT_HEAD_BYTES..)?.chunks_exact(OP_BYTES).take(u32_at(slot, 12)? as usize);
    let calls = ops.filter_map(|op| {
        let count =
            OpCount { n: u64_at(op, 48)?, total_ns: u64_at(op, 56)?, max_ns: u64_at(op, 64)?, failed: u64_at(op, 72)? };
        Some((text(op.get(..48)?), count))
    });
    Some(Thread {
        pid: u32_at(slot, 0)?,
        tid: u32_at(slot, 4)?,
        role: role.into(),
        comm: text(slot.get(16..32)?),
        started_ns: u64_at(slot, 32)?,
        finished_ns: (finished != 0).then_some(finished),
        cpu_ns: u64_at(slot, 48)?,
        run_delay_ns: u64_at(slot, 56)?,
        voluntary: u64_at(slot, 64)?,
        involuntary: u64_at(slot, 72)?,
        calls: calls.collect(),
    })
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unfinished_file_is_no_counts() {
        assert_eq!(parse(&[]).unwrap(), None);
        assert_eq!(parse(&[0; 4096]).unwrap(), None);
    }

    #[test]
    fn another_layout_is_an_error() {
        let head: Vec<u8> = [MAGIC, 81, 0, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert!(parse(&head).is_err());
    }
}
