//! Records with something changed in them: every other key stays as it is, in its place.

use std::borrow::Cow;
use std::fmt;
use std::io;

use ingero_common::clock::Ts;
use ingero_common::ndjson::to_json;
use ingero_common::record::Host;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// `line` with what is to be added before its last brace.
pub(crate) fn annotate(
    into: &mut Vec<u8>,
    line: &[u8],
    host: Option<&Host<'_>>,
    late: bool,
    double: bool,
) -> io::Result<()> {
    into.clear();
    // A record is an object, so there is one; and it has keys, so a comma is due.
    let end = line.iter().rposition(|&b| b == b'}').unwrap_or(line.len());
    into.extend_from_slice(line[..end].trim_ascii_end());
    if let Some(host) = host {
        into.extend_from_slice(b",\"host\":");
        to_json(into, host)?;
    }
    if late {
        into.extend_from_slice(b",\"late\":true");
    }
    if double {
        into.extend_from_slice(b",\"double\":true");
    }
    into.extend_from_slice(&line[end..]);
    Ok(())
}

/// `line` at another time.
pub(crate) fn at_time(into: &mut Vec<u8>, line: &[u8], mono_ns: u64, ts: Option<Ts>) -> io::Result<()> {
    let mut object: Object<'_> = serde_json::from_slice(line)?;
    let (mono, ts) = (to_raw_value(&mono_ns)?, ts.map(|ts| to_raw_value(&ts)).transpose()?);
    for (key, value) in &mut object.0 {
        match (&**key, &ts) {
            ("mono_ns", _) => *value = &mono,
            ("ts", Some(ts)) => *value = ts,
            _ => {}
        }
    }
    into.clear();
    to_json(into, &object)
}

/// The keys of an object in their order, with their values as they are written.
struct Object<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    keys.push(entry);
                }
                Ok(Object(keys))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_changes() {
        let line = br#"{"op":"watch", "mono_ns":5,"x":[1, 2],"a\"b":"\u0041","mono_ns":6}"#;
        let mut out = Vec::new();
        at_time(&mut out, line, 70, None).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#"{"op":"watch","mono_ns":70,"x":[1, 2],"a\"b":"\u0041","mono_ns":70}"#
        );
    }
}
