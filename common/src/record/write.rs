//! Records as they are written. Every struct borrows; `None` leaves its key out.
//!
//! Times: `mono_ns` is the start of the interval on CLOCK_MONOTONIC, `ts` the same instant as text,
//! `dur_ns` the interval's length, absent for an instant.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::clock::Ts;
use crate::record::read::Affinity;
use crate::text::Printable;

/// Bytes of unknown origin (a thread's name, a path) as JSON text: UTF-8 as it is, any other byte as the
/// four characters `\xNN`, so that nothing is lost silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub &'a [u8]);

impl<'a> Text<'a> {
    /// A fixed-size, NUL-padded kernel string such as `comm`.
    pub fn until_nul(bytes: &'a [u8]) -> Self {
        let len = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        Self(&bytes[..len])
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            // The writer's formatter escapes what needs it.
            Ok(text) => s.serialize_str(text),
            Err(_) => s.collect_str(&LossyHex(self.0)),
        }
    }
}

struct LossyHex<'a>(&'a [u8]);

impl fmt::Display for LossyHex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            write!(f, "{}", Printable(chunk.invalid()))?;
        }
        Ok(())
    }
}

/// A 64-bit handle, pointer or hash: the string `"0x…"`, since JSON numbers stop being exact at 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex(pub u64);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&format_args!("{:#x}", self.0))
    }
}

/// A 64-bit integer that may leave the exact range of JSON numbers, as a decimal string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal(pub i64);

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

fn is_false(b: &bool) -> bool {
    !*b
}

/// First line of every stream.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Start<'a, F: Serialize> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub schema: u32,
    pub tool: &'a str,
    pub version: &'a str,
    pub host: &'a str,
    pub boot_id: &'a str,
    pub clock: &'static str,
    pub wall_offset_ns: Decimal,
    pub kernel: &'a str,
    /// What was asked for: which processes, which limits.
    pub filter: F,
    pub probes: Probes<'a>,
}

/// Which probes a tracer attached, and how.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Probes<'a> {
    /// Names of what was attached (symbols, tracepoints).
    pub attached: Vec<&'a str>,
    /// Names of what was looked for and not found, or refused.
    pub missing: Vec<&'a str>,
    /// The attach tier, or how tracepoints were attached.
    pub mode: &'a str,
}

/// A step of the wall clock.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct ClockStep {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub wall_offset_ns: Decimal,
    pub step_ns: i64,
}

/// A tracer watches a process from this instant on.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Watch<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    pub comm: Text<'a>,
    /// `cuda`, `child` or `asked`.
    pub why: &'a str,
    /// `cuda` or `sched`: which tracer watches.
    pub stream: &'a str,
    /// For the cuda stream: the library files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lib: Vec<Text<'a>>,
    /// For the cuda stream: `cudart`, `cuda`, `nccl`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<&'a str>,
    /// For the cuda stream: `Some(false)` where only the entries of calls are probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub returns: Option<bool>,
    /// What keeps this watch from being complete, in words; absent when nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    /// For the sched stream: who the process is.
    #[serde(flatten)]
    pub who: Identity<'a>,
}

/// Who a process is, as far as that is known.
#[derive(Clone, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Identity<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ppid: Option<u32>,
    /// What an interpreter runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<Text<'a>>,
    /// The CPUs that its main thread may run on: `0-3,8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus_allowed: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
}

/// Records are missing in [`mono_ns`, + `dur_ns`].
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Lost<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub dur_ns: u64,
    /// `cuda`, `sched` or the name of an input.
    pub stream: &'a str,
    /// Absent = not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub why: &'a str,
}

/// Nothing of this stream ends before `mono_ns`.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Alive {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub stream: &'static str,
}

/// Last line of every stream. `seen` = `written` + the sum of `lost`.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct End<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub stream: &'static str,
    pub seen: u64,
    pub written: u64,
    pub lost: &'a BTreeMap<&'static str, u64>,
    pub user_ns: u64,
    pub sys_ns: u64,
}

/// One CUDA-side call: runtime, driver or NCCL.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Call<'a> {
    pub src: &'a str,
    /// The base API name.
    pub op: &'a str,
    pub mono_ns: u64,
    pub ts: Ts,
    /// Absent where its return is not probed: then the record is one of its entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur_ns: Option<u64>,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    pub comm: Text<'a>,
    /// What it returned; absent while it has not, or where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<i32>,
    /// 0 = outermost traced call of the thread; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// The exported symbol where it differs from `op`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sym: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub func: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<[u32; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shmem: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ptr: Option<Hex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<&'static str>,
    /// Of a process that joins a communicator: its number in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// And how many are in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nranks: Option<u32>,
    /// The event that is recorded, or waited or asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<Hex>,
    /// The device that the thread chooses, as the process numbers them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Still going on at the end of the interval: the tracer stopped, or tells of a hanging call.
    #[serde(skip_serializing_if = "is_false")]
    pub open: bool,
    /// Told of while it hangs: another record of the same call follows.
    #[serde(skip_serializing_if = "is_false")]
    pub stuck: bool,
}

/// A thread as part of another record.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Thread<'a> {
    pub pid: u32,
    pub tid: u32,
    pub comm: Text<'a>,
}

/// One time a watched thread was off the CPU.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Switch<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub dur_ns: u64,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    pub comm: Text<'a>,
    /// The state it left with: `R` (preempted), `S`, `D`, `I`, `T`, `X`, …
    pub state: &'a str,
    /// The part spent runnable and waiting for a CPU.
    pub runq_ns: u64,
    /// The CPU it came back on, or left where it has not come back.
    pub cpu: u32,
    /// Who took the CPU when it left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Thread<'a>>,
    /// Who ran on the CPU just before it came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<Thread<'a>>,
    /// The thread that woke it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waker: Option<Thread<'a>>,
    /// An interrupt woke it.
    #[serde(skip_serializing_if = "is_false")]
    pub waker_irq: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub open: bool,
    /// The system call that it left in, or `page_fault`.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<&'a str>,
    /// What that waited on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<On<'a>>,
    /// How long it was to wait at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ns: Option<u64>,
    /// Whether it waited for a device; absent where that was not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<bool>,
}

/// What a system call waited on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct On<'a> {
    pub kind: &'a str,
    /// A path, `pipe:[n]`, `tcp 10.0.0.5:443`, `unix`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text<'a>>,
    /// The address of a futex, `0x…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<Hex>,
    /// It takes connections, or one of those that it waits for does.
    #[serde(skip_serializing_if = "is_false")]
    pub listens: bool,
}

/// fork, exec, exit and thread records.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Task<'a> {
    pub src: &'static str,
    pub op: &'a str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub pid: u32,
    pub tid: u32,
    pub comm: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exe: Option<Text<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
}

/// Kernel page allocations of a thread, or block I/O, or retransmits: an amount over an interval.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Amount<'a> {
    pub src: &'static str,
    pub op: &'a str,
    pub mono_ns: u64,
    pub ts: Ts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dur_ns: Option<u64>,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    pub comm: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The block device, such as `nvme0n1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dev: Option<Text<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    pub open: bool,
}

/// The kernel ended a process to get at its memory.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct OomKill<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub pid: u32,
    pub tid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_pid: Option<u32>,
    pub comm: Text<'a>,
    /// Whose allocation found no memory.
    pub by: Thread<'a>,
    #[serde(flatten)]
    pub memory: Option<OomMemory>,
}

/// What the victim of [`OomKill`] had.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct OomMemory {
    pub total_vm_bytes: u64,
    pub anon_rss_bytes: u64,
    pub file_rss_bytes: u64,
    pub shmem_rss_bytes: u64,
    pub oom_score_adj: i32,
}

/// The machine over the past interval.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Sample<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub dur_ns: u64,
    pub cpu_pct: f64,
    pub cpu_max_pct: f64,
    pub cpus: u32,
    pub runnable: u64,
    pub iowait_pct: f64,
    pub steal_pct: f64,
    pub mem_avail_bytes: u64,
    pub swap_used_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<Psi>,
    pub quota: &'a [Quota],
    /// Watched processes that may not run on all CPUs.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub affinity: &'a [Affinity],
    /// Absent where the NVIDIA management library does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<&'a [Gpu]>,
}

/// What NVIDIA's management library says of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Gpu {
    /// Its number there, which need not be CUDA's.
    pub index: u32,
    /// Mean over the interval of the share of the library's own last sample period in which a kernel ran, percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub util_pct: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_used_bytes: Option<u64>,
}

/// Pressure stall information, "some" avg10, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Psi {
    pub cpu: f64,
    pub memory: f64,
    pub io: f64,
}

/// What a cgroup with a CPU limit went through over the interval: deltas of its own counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Quota {
    pub cgroup: String,
    pub pids: Vec<u32>,
    pub periods: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndjson::to_json;

    fn json(value: impl Serialize) -> String {
        let mut out = Vec::new();
        to_json(&mut out, &value).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn kernel_strings_keep_every_byte_visible() {
        assert_eq!(json(Text::until_nul(b"pt_data_worker\0\0")), r#""pt_data_worker""#);
        assert_eq!(json(Text(b"a\xffb\x01\x7f")), r#""a\\xffb\u0001\u007f""#);
        assert_eq!(json(Text(b"")), r#""""#);
    }

    #[test]
    fn handles_are_strings() {
        assert_eq!(json(Hex(u64::MAX)), r#""0xffffffffffffffff""#);
        assert_eq!(json(Hex(0)), r#""0x0""#);
        assert_eq!(json(Decimal(1_796_040_000_000_000_000)), r#""1796040000000000000""#);
    }
}
