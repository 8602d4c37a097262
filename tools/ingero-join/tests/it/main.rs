//! ingero-join as a whole: streams and recordings in, one stream out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at the first surprise")]

mod chrome;
mod hostile_db;
mod inputs;
mod process;
mod properties;
mod reference;
mod streams;
mod support;
