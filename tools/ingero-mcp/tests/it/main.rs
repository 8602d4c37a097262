//! ingero-mcp as its clients see it: one module a question.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "it is test code")]

mod account;
mod answers;
mod follow;
mod hostile;
mod http;
mod limits;
mod protocol;
mod schemas;
mod sql;
mod stdout;
mod support;
