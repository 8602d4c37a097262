//! What did the late thread go through?

#[cfg(test)]
mod agreement;
pub(crate) mod breakdown;
pub(crate) mod path;
pub(crate) mod process_tree;

pub(crate) use breakdown::Breakdown;
pub use breakdown::{Cause, CauseLine, OpNs, WhoNs, share};
