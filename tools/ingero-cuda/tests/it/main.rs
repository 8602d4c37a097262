//! ingero-cuda beside what a compiler makes of a program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod calling_convention;
