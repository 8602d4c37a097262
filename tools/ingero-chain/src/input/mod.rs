//! What did the stream say?

mod clock;
mod coverage;
mod frames;
pub(crate) mod ingest;
pub(crate) mod kills;
pub(crate) mod samples;
mod scheduler;
pub(crate) mod stacks;
