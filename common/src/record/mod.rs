//! The record contract (schema 1): what the tools write and what they understand when they read.
//!
//! `docs/schema.md` has the words. Writing uses the structs of [`mod@write`], which borrow everything and
//! are serialised without an allocation; reading uses [`Record`], one flat view of the keys that any
//! tool of the suite acts on, borrowed from the line.

mod host;
mod read;
pub mod stack;
pub mod write;

pub use host::{Host, HostBy};
pub use read::{Affinity, Parsed, QuotaSample, Record, Str, SysSample, Who, parse};

/// The version of the contract, in every `start` record.
pub const SCHEMA_VERSION: u32 = 1;

/// A record that ends so much later than all before it is believed once another one confirms it. A wrong time is one that
/// wrapped around or was taken from another clock, and off by far more than an hour; a silence is hardly ever so long, since
/// ingero-sched tells of the whole machine once a second.
pub const LEAP_NS: u64 = 3_600_000_000_000;

/// Values of `src`.
pub mod src {
    #![allow(missing_docs, reason = "the names are the values; docs/schema.md says what they mean")]
    pub const INGERO: &str = "ingero";
    pub const CUDART: &str = "cudart";
    pub const CUDA: &str = "cuda";
    pub const NCCL: &str = "nccl";
    pub const SCHED: &str = "sched";
    pub const MEM: &str = "mem";
    pub const BLOCK: &str = "block";
    pub const NET: &str = "net";
    pub const SYS: &str = "sys";
    pub const STACK: &str = "stack";
    pub const CHAIN: &str = "chain";

    /// Whether records of this source are CUDA-side calls with a duration.
    pub fn is_call(src: &str) -> bool {
        matches!(src, CUDART | CUDA | NCCL)
    }
}

/// Values of `why` in `lost` records.
pub mod why {
    #![allow(missing_docs, reason = "the names are the values; docs/schema.md says what they mean")]
    pub const RING_FULL: &str = "ring_full";
    pub const MAP_FULL: &str = "map_full";
    pub const UNMATCHED: &str = "unmatched";
    pub const SAMPLED: &str = "sampled";
    pub const LATE: &str = "late";
    pub const BAD_LINE: &str = "bad_line";
}
