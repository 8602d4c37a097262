//! Records of where in their code threads were: `"src":"stack"`.

use serde::Serialize;

use super::write::Text;
use crate::clock::Ts;

/// A stack, told of once for each stream, before the first sample of it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Frames<'a> {
    pub src: &'static str,
    pub op: &'static str,
    pub mono_ns: u64,
    pub ts: Ts,
    pub id: u64,
    /// Innermost first.
    pub frames: &'a [Frame<'a>],
}

/// A function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Frame<'a> {
    #[serde(rename = "fn")]
    pub function: Text<'a>,
    pub file: Text<'a>,
    /// The line that it was at; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// `python`, `native`.
    pub lang: &'static str,
}

/// A thread in a stack.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Sample {
    pub src: &'static str,
    pub op: &'static str,
    /// The instant, or the end of the sleep.
    pub mono_ns: u64,
    pub ts: Ts,
    pub pid: u32,
    pub tid: u32,
    /// Absent where the stack is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// The time between two samples, or how long it slept.
    pub weight_ns: u64,
    pub on_cpu: bool,
    /// The system call that it was in.
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    pub within: Option<&'static str>,
    /// It collected garbage.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gc: bool,
    /// What was read does not fit together: it was being changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub torn: bool,
}
