//! What of a record becomes columns: every key of the contract that a table has, read in one pass.
//!
//! `ingero_common::record::Record` holds what the tools act on; a table also holds what only people ask for (`ret`,
//! `sym`, the parts of `host`), so a line is read here once more, and only here.

use std::fmt;

use ingero_common::record::{Host, Parsed, Str, Who, parse};
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};

/// One record. A key that is absent stays `None`; it is never 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Row<'a> {
    #[serde(borrow)]
    pub(crate) src: Str<'a>,
    #[serde(borrow)]
    pub(crate) op: Str<'a>,
    pub(crate) mono_ns: Option<u64>,
    pub(crate) dur_ns: Option<u64>,
    pub(crate) pid: Option<u32>,
    pub(crate) tid: Option<u32>,
    #[serde(borrow)]
    pub(crate) comm: Str<'a>,
    pub(crate) open: bool,
    pub(crate) late: bool,
    /// A second tracer's record of what is in another one.
    pub(crate) double: bool,

    pub(crate) depth: u32,
    pub(crate) ret: Option<i64>,
    pub(crate) bytes: Option<u64>,
    #[serde(borrow)]
    pub(crate) dir: Option<Str<'a>>,
    #[serde(borrow)]
    pub(crate) stream: Option<Str<'a>>,
    #[serde(borrow)]
    pub(crate) func: Option<Str<'a>>,
    pub(crate) count: Option<u64>,
    #[serde(borrow, deserialize_with = "host")]
    pub(crate) host: Option<Host<'a>>,

    #[serde(borrow)]
    pub(crate) state: Option<Str<'a>>,
    pub(crate) runq_ns: Option<u64>,
    pub(crate) cpu: Option<u32>,
    #[serde(borrow)]
    pub(crate) by: Option<Who<'a>>,
    #[serde(borrow)]
    pub(crate) prev: Option<Who<'a>>,
    #[serde(borrow)]
    pub(crate) waker: Option<Who<'a>>,
    pub(crate) waker_irq: bool,
    pub(crate) child_pid: Option<u32>,
    pub(crate) child_tid: Option<u32>,
    #[serde(borrow)]
    pub(crate) exe: Option<Str<'a>>,
    pub(crate) code: Option<i64>,
    #[serde(borrow)]
    pub(crate) dev: Option<Str<'a>>,

    #[serde(borrow)]
    pub(crate) why: Option<Str<'a>>,
    #[serde(borrow)]
    pub(crate) tool: Option<Str<'a>>,
}

/// What a line is.
#[allow(clippy::large_enum_variant, reason = "made once a line and consumed at once")]
pub(crate) enum Line<'a> {
    /// A record of the contract.
    Row(Row<'a>),
    /// An object whose keys have other types than ours: counted, not stored.
    Unknown,
    /// No JSON object.
    Bad,
}

impl<'a> Line<'a> {
    /// Reads one line.
    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        match serde_json::from_slice::<Row<'a>>(bytes) {
            Ok(row) => Self::Row(row),
            // Rare, so it may cost a second look: the contract's own reader says which it is.
            Err(_) => match parse(bytes) {
                Parsed::Record(_) | Parsed::Unknown => Self::Unknown,
                Parsed::Bad(_) => Self::Bad,
            },
        }
    }
}

impl Row<'_> {
    /// End of the interval on CLOCK_MONOTONIC, in nanoseconds; the instant itself where it has no length.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        self.mono_ns.map(|start| start.saturating_add(self.dur_ns.unwrap_or(0)))
    }
}

/// `host` is an object in a call and the machine's name in a `start` record.
fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Host<'de>>, D::Error> {
    struct ObjectOrName;

    impl<'de> Visitor<'de> for ObjectOrName {
        type Value = Option<Host<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object or a name")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
            Host::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }

        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
    }
    deserializer.deserialize_any(ObjectOrName)
}

/// The rare keys of a `sys` `sample` that [`ingero_common::record::SysSample`] leaves out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SampleRest {
    pub(crate) psi: Option<Psi>,
    pub(crate) gpu: Vec<Gpu>,
}

/// Pressure stall information, "some" avg10, percent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Psi {
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
    pub(crate) io: Option<f64>,
}

/// One GPU in a sample.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gpu {
    pub(crate) util_pct: Option<f64>,
    pub(crate) mem_used_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_an_object_or_a_name() {
        let read = |line: &'static str| match Line::read(line.as_bytes()) {
            Line::Row(row) => row.host.map(|host| (host.off_ns, host.watched)),
            _ => panic!("{line}"),
        };
        assert_eq!(read(r#"{"src":"ingero","op":"start","host":"node-1"}"#), None);
        assert_eq!(read(r#"{"src":"cudart","host":{"off_ns":7,"by":[{"pid":1}],"watched":true}}"#), Some((7, true)));
        assert_eq!(read(r#"{"src":"cudart","host":null}"#), None);
    }

    #[test]
    fn other_types_are_unknown_and_no_object_is_bad() {
        assert!(matches!(Line::read(br#"{"pid":"x"}"#), Line::Unknown));
        assert!(matches!(Line::read(b"[1]"), Line::Bad));
        assert!(matches!(Line::read(b"word"), Line::Bad));
    }
}
