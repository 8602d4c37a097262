//! The tool as a whole: records in, a report out.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise, in its helpers too")]

mod causes;
mod cli;
mod drained;
mod hangs;
mod inputs;
mod long_call;
mod queue;
mod records;
mod report;
mod startup;
mod support;
mod tracers;
