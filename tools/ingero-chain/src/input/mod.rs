//! What did the stream say?

pub(crate) mod ingest;
pub(crate) mod kills;
pub(crate) mod samples;
