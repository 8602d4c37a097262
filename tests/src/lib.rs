//! What the end-to-end tests share. They run the real binaries on real probes, as root, one test at a time, and compare with
//! what the workload says that it did: counts and who was at fault, never how long something took.
//!
//! A test that lacks something (root, BTF, bpftool, pip) fails and says what. Only one on an attach tier that is younger than
//! the running kernel is skipped, and says so; `tests/live/tiers.rs` sees to it that no other one is missing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says why on stderr; stdout is the test program's"
)]

mod binaries;
pub mod bpf;
mod cache;
pub mod clients;
mod compiler;
mod guest;
mod machine;
mod process;
pub mod pty;
pub mod python;
mod records;
mod tracing;
pub mod wheels;
mod workload;

pub use binaries::{bin, bin_dir, repository};
pub use compiler::compiled;
pub use guest::Guest;
pub use machine::{Machine, TIERS, has_tier, in_mounts, tiers, with_tracefs, without_btf, without_root};
pub use process::{Background, Output, tool};
pub use records::Records;
pub use tracing::{Tracers, cuda, in_tier, report, sched, watching};
pub use workload::{Workload, plan};
