//! What did the late thread go through?

pub(crate) mod breakdown;
pub(crate) mod cpus;
pub(crate) mod path;
pub(crate) mod process_tree;

pub use breakdown::{Breakdown, Cause, CauseLine, OpNs, WhoNs, share};
