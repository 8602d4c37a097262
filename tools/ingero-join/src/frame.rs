//! The joined stream's own first and last line, and its own `lost` records.
//!
//! They are made from what the inputs say, not from this machine's clock: a join may run long after the
//! recording and elsewhere, and the same files must give the same bytes.

use std::collections::BTreeMap;

use ingero_common::clock::{Ts, WallClock};
use ingero_common::record::write::Decimal;
use ingero_common::record::{SCHEMA_VERSION, src};
use serde::Serialize;

use crate::item::Start;
use crate::options::Options;

/// First line. What no input told is absent.
#[derive(Debug, Serialize)]
pub(crate) struct OwnStart<'a> {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Ts>,
    schema: u32,
    tool: &'static str,
    version: &'static str,
    host: &'a str,
    boot_id: &'a str,
    clock: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_offset_ns: Option<Decimal>,
    kernel: &'a str,
    filter: Filter<'a>,
    probes: Probes,
    inputs: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct Filter<'a> {
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    pid: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    window_ns: u64,
    stall_ns: u64,
}

#[derive(Debug, Serialize)]
struct Probes {
    attached: [&'static str; 0],
    missing: [&'static str; 0],
    mode: &'static str,
}

/// Records are missing in [`mono_ns`, + `dur_ns`].
#[derive(Debug, Serialize)]
pub(crate) struct OwnLost<'a> {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Ts>,
    dur_ns: u64,
    stream: &'a str,
    /// Absent = not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    why: &'static str,
    /// Which input, where `stream` does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a str>,
}

/// Last line. `seen` = `written` + `filtered` + the sum of `lost`; frames count in none of them.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OwnEnd {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<Ts>,
    stream: &'static str,
    pub(crate) seen: u64,
    pub(crate) written: u64,
    /// Left out because the user asked for it (`--pid`, `--since`, `--until`).
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) filtered: u64,
    /// Written, but behind their place.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) late: u64,
    /// Written, but another input says the same.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) double: u64,
    pub(crate) lost: BTreeMap<&'static str, u64>,
    /// CPU time of this tool; only where an input was live, since it differs from run to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sys_ns: Option<u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Makes these records.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    wall: Option<WallClock>,
}

impl Frame {
    /// The first line, from the first lines of the inputs (in their order) and the earliest instant known.
    pub(crate) fn start<'a>(
        &mut self,
        options: &'a Options,
        heads: &[&'a Start],
        inputs: Vec<&'a str>,
        mono_ns: u64,
    ) -> OwnStart<'a> {
        let told = |of: fn(&Start) -> &str| heads.iter().map(|h| of(h)).find(|s| !s.is_empty()).unwrap_or_default();
        let wall_offset_ns = heads.iter().find_map(|h| h.wall_offset_ns);
        self.wall = wall_offset_ns.map(WallClock::with_offset);
        OwnStart {
            src: src::INGERO,
            op: "start",
            mono_ns,
            ts: self.ts(mono_ns),
            schema: SCHEMA_VERSION,
            tool: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            host: told(|h| &h.host),
            boot_id: told(|h| &h.boot_id),
            clock: "monotonic",
            wall_offset_ns: wall_offset_ns.map(Decimal),
            kernel: told(|h| &h.kernel),
            filter: Filter {
                pid: &options.pid,
                since: options.since.as_ref().map(ToString::to_string),
                until: options.until.as_ref().map(ToString::to_string),
                window_ns: nanos(options.window),
                stall_ns: nanos(options.stall),
            },
            probes: Probes { attached: [], missing: [], mode: "join" },
            inputs,
        }
    }

    pub(crate) fn lost<'a>(
        &mut self,
        why: &'static str,
        stream: &'a str,
        input: Option<&'a str>,
        count: Option<u64>,
        start_ns: u64,
        end_ns: u64,
    ) -> OwnLost<'a> {
        OwnLost {
            src: src::INGERO,
            op: "lost",
            mono_ns: start_ns,
            ts: self.ts(start_ns),
            dur_ns: end_ns.saturating_sub(start_ns),
            stream,
            count,
            why,
            input: input.filter(|name| *name != stream),
        }
    }

    /// The last line; the caller fills in the counts.
    pub(crate) fn end(&mut self, mono_ns: u64) -> OwnEnd {
        OwnEnd { src: src::INGERO, op: "end", mono_ns, ts: self.ts(mono_ns), stream: "join", ..OwnEnd::default() }
    }

    pub(crate) fn ts(&mut self, mono_ns: u64) -> Option<Ts> {
        self.wall.as_mut().map(|wall| wall.ts(mono_ns))
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
