//! What a process did besides what it lost: its calls, its times off the CPU, its memory.

use ingero_common::clock::Ts;
use ingero_common::text::Traced;
use serde::Serialize;

/// Calls of one operation in a `process` record; durations are absent where only entries were traced.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct CallLine {
    pub src: Traced,
    pub op: Traced,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<Traced>,
    pub n: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    pub bytes: u64,
    /// Where calls are told apart by what one carries: bytes from, to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<[u64; 2]>,
}

/// Times off the CPU in a `process` record.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Switches {
    pub voluntary: u64,
    pub preempted: u64,
    pub avg_off_ns: u64,
    pub max_off_ns: u64,
    pub runq_ns: u64,
}

/// Calls that were cold.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Cold {
    pub calls: u64,
    pub ns: u64,
}

/// One process (`--per-process`).
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct ProcessReport {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Ts>,
    pub dur_ns: u64,
    pub pid: u32,
    pub comm: Traced,
    /// `cuda`, `worker` (watched as a descendant of another, or born of one that makes CUDA calls) or `other`.
    pub role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    pub calls: Vec<CallLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cold: Option<Cold>,
    pub switches: Switches,
    pub pages: u64,
    pub page_bytes: u64,
}
