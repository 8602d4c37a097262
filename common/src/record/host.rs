//! The `host` object, which ingero-join adds to a call and others read.

use serde::{Deserialize, Serialize};

use super::Str;

/// What the thread of a call went through while the call lasted; `docs/schema.md` says what each key counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct Host<'a> {
    pub off_ns: u64,
    pub preempted_ns: u64,
    pub runq_ns: u64,
    pub sleep_ns: u64,
    pub io_ns: u64,
    pub unknown_ns: u64,
    pub switches: u64,
    pub pages: u64,
    pub page_bytes: u64,
    #[serde(borrow)]
    pub by: Vec<HostBy<'a>>,
    pub watched: bool,
}

/// A process that had the CPU while the thread was runnable, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct HostBy<'a> {
    pub pid: u32,
    #[serde(borrow)]
    pub comm: Str<'a>,
    pub ns: u64,
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_what_is_missing_is_nothing() {
        let text = r#"{"off_ns":1,"preempted_ns":2,"runq_ns":3,"sleep_ns":4,"io_ns":5,"unknown_ns":6,"switches":7,"pages":8,"page_bytes":9,"by":[{"pid":10,"comm":"c\n","ns":11}],"watched":true}"#;
        let host: Host<'_> = serde_json::from_str(text).unwrap();
        assert_eq!((host.page_bytes, &*host.by[0].comm, host.watched), (9, "c\n", true));
        assert_eq!(serde_json::to_string(&host).unwrap(), text);
        let partial: Host<'_> = serde_json::from_str(r#"{"by":[{"comm":"c"}],"x":1}"#).unwrap();
        let by = vec![HostBy { comm: Str(Cow::Borrowed("c")), ..HostBy::default() }];
        assert_eq!(partial, Host { by, ..Host::default() });
    }
}
