//! Records as they are read: one flat view of the keys that any tool acts on, borrowed from the line.

use std::borrow::Cow;
use std::ops::Deref;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Text that is borrowed from the line unless it holds escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Str<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A thread inside a record (`by`, `prev`, `waker`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Who<'a> {
    pub pid: u32,
    pub tid: u32,
    #[serde(borrow)]
    pub comm: Str<'a>,
}

/// What a thread waited on (`on`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct On<'a> {
    #[serde(borrow)]
    pub kind: Str<'a>,
    #[serde(borrow)]
    pub name: Option<Str<'a>>,
    /// It takes connections.
    pub listens: bool,
}

/// What the tools understand of a record. Unknown keys are skipped; the line itself is kept by the reader.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Record<'a> {
    #[serde(borrow)]
    pub src: Str<'a>,
    #[serde(borrow)]
    pub op: Str<'a>,
    pub mono_ns: Option<u64>,
    #[serde(borrow)]
    pub ts: Option<Str<'a>>,
    pub dur_ns: Option<u64>,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    #[serde(borrow)]
    pub comm: Str<'a>,
    pub open: bool,
    /// A call told of while it hangs: its own record follows.
    pub stuck: bool,
    pub late: bool,
    /// Another tracer's record of the same, by ingero-join.
    pub double: bool,

    // Calls.
    pub depth: u32,
    pub ret: Option<i64>,
    pub bytes: Option<u64>,
    #[serde(borrow)]
    pub dir: Option<Str<'a>>,
    /// The stream handle of a call, or the stream's name in `lost` and `watch` records.
    #[serde(borrow)]
    pub stream: Option<Str<'a>>,
    #[serde(borrow)]
    pub func: Option<Str<'a>>,
    /// The exported symbol of a call where it differs from `op`.
    #[serde(borrow)]
    pub sym: Option<Str<'a>>,
    pub count: Option<u64>,
    /// The event that a call records or waits for.
    #[serde(borrow)]
    pub event: Option<Str<'a>>,
    /// The device that a call chooses, as the process numbers them.
    pub device: Option<i64>,
    /// Of which version of the contract the stream is (`start`).
    pub schema: Option<u64>,
    /// The object that ingero-join adds to a call, or the host's name in a `start` record.
    #[serde(borrow)]
    pub host: Option<&'a RawValue>,

    // Scheduler.
    #[serde(borrow)]
    pub state: Option<Str<'a>>,
    pub runq_ns: Option<u64>,
    pub cpu: Option<u32>,
    #[serde(borrow)]
    pub by: Option<Who<'a>>,
    #[serde(borrow)]
    pub prev: Option<Who<'a>>,
    #[serde(borrow)]
    pub waker: Option<Who<'a>>,
    pub waker_irq: bool,
    /// The system call that a thread left the CPU in.
    #[serde(borrow, rename = "in")]
    pub within: Option<Str<'a>>,
    #[serde(borrow)]
    pub on: Option<On<'a>>,
    /// How long it was to wait at most.
    pub timeout_ns: Option<u64>,
    /// For a device.
    pub io: Option<bool>,
    pub child_pid: Option<u32>,
    pub child_tid: Option<u32>,

    // The stream about itself.
    #[serde(borrow)]
    pub tool: Option<Str<'a>>,
    /// What a `start` record says was asked for.
    #[serde(borrow)]
    pub filter: Option<&'a RawValue>,
    #[serde(borrow)]
    pub boot_id: Option<Str<'a>>,
    #[serde(borrow)]
    pub wall_offset_ns: Option<Str<'a>>,
    #[serde(borrow)]
    pub why: Option<Str<'a>>,
    /// The parent of a process (`watch`).
    pub ppid: Option<u32>,
    /// What an interpreter runs (`watch`).
    #[serde(borrow)]
    pub script: Option<Str<'a>>,
}

impl Record<'_> {
    /// End of the interval on CLOCK_MONOTONIC; the instant itself where there is no `dur_ns`.
    pub fn end_ns(&self) -> Option<u64> {
        self.mono_ns.map(|start| start.saturating_add(self.dur_ns.unwrap_or(0)))
    }

    /// Whether `src` and `op` are these.
    pub fn is(&self, src: &str, op: &str) -> bool {
        &*self.src == src && &*self.op == op
    }
}

/// What a line is.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "made once a line and consumed at once; a box would be an allocation each"
)]
pub enum Parsed<'a> {
    /// An object of which every known key has its type.
    Record(Record<'a>),
    /// An object that is not ours to interpret (a known key with another type): passed on as it is.
    Unknown,
    /// No JSON object; why.
    Bad(String),
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Parsed<'_> {
    let text = match std::str::from_utf8(line) {
        Ok(text) => text,
        Err(error) => return Parsed::Bad(format!("not UTF-8 at byte {}", error.valid_up_to() + 1)),
    };
    if !text.trim_ascii_start().starts_with('{') {
        return Parsed::Bad("not a JSON object".into());
    }
    match serde_json::from_str::<Record<'_>>(text) {
        Ok(record) => Parsed::Record(record),
        // Not our types, or no JSON at all: a second, indifferent look tells.
        Err(_) => match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => Parsed::Unknown,
            Err(error) => Parsed::Bad(format!("not valid JSON: {error}")),
        },
    }
}

/// A `sys` `sample` record's own keys, read from the same line where they are needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct SysSample {
    pub cpu_pct: Option<f64>,
    pub cpu_max_pct: Option<f64>,
    pub cpus: Option<u32>,
    pub runnable: Option<f64>,
    pub iowait_pct: Option<f64>,
    pub steal_pct: Option<f64>,
    pub mem_avail_bytes: Option<u64>,
    pub swap_used_bytes: Option<u64>,
    pub quota: Vec<QuotaSample>,
    pub affinity: Vec<Affinity>,
}

/// The CPUs that the main threads of some processes may run on, where these are not all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Affinity {
    pub cpus_allowed: String,
    pub pids: Vec<u32>,
}

/// One cgroup's quota counters over the sample's interval.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct QuotaSample {
    pub cgroup: String,
    pub pids: Vec<u32>,
    pub periods: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(line: &str) -> Record<'_> {
        match parse(line.as_bytes()) {
            Parsed::Record(record) => record,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn known_keys_borrow_and_unknown_keys_are_skipped() {
        let r = record(
            r#" {"src":"cudart","op":"cudaMalloc","mono_ns":9007199254740993,"dur_ns":3,"x":{"pid":1},"pid":7,"host":{"off_ns":1}}"#,
        );
        assert!(r.is("cudart", "cudaMalloc"));
        assert!(matches!(r.src.0, Cow::Borrowed(_)));
        assert_eq!((r.pid, r.end_ns()), (Some(7), Some(9_007_199_254_740_996)));
        assert_eq!(r.host.map(RawValue::get), Some(r#"{"off_ns":1}"#));
    }

    #[test]
    fn other_types_are_unknown_not_bad() {
        for line in [
            r#"{"pid":"x"}"#,
            r#"{"mono_ns":1.5}"#,
            r#"{"pid":-1}"#,
            r#"{"src":1}"#,
            r#"{"op":"\ud800"}"#,
            r#"{"pid":1,"pid":2}"#,
        ] {
            assert!(matches!(parse(line.as_bytes()), Parsed::Unknown), "{line}");
        }
    }

    #[test]
    fn what_is_no_object_is_bad() {
        for line in ["[]", "42", "\"x\"", "null", "true", "{]", "word", "{", "{\"a\":1", "{} {}", "{\"a\":NaN}"] {
            assert!(matches!(parse(line.as_bytes()), Parsed::Bad(_)), "{line}");
        }
        assert!(matches!(parse(b"{\"a\":\"\xff\"}"), Parsed::Bad(_)));
    }

    #[test]
    fn deep_nesting_under_an_unknown_key_is_skipped_without_a_crash() {
        let line = format!("{{\"a\":{}1{},\"pid\":3}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(record(&line).pid, Some(3));
    }
}
