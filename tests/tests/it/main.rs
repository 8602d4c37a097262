//! What needs no live probe: the tools on cases, samples and simulated machines, clients of the server, and what the tests rest on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cases;
mod harness;
mod mcp;
mod samples;
mod simulated;
mod stub;
mod workload;
