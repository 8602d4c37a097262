//! What did the late thread go through?

#[cfg(test)]
mod agreement;
pub(crate) mod breakdown;
pub(crate) mod path;
pub(crate) mod places;
pub(crate) mod process_tree;
mod waits;

pub(crate) use breakdown::Breakdown;
#[cfg(test)]
pub(crate) use breakdown::OnLine;
pub use breakdown::{Cause, CauseLine, OpNs, WhoNs, share};
pub(crate) use breakdown::{FoldedLine, WaitLine};
pub(crate) use places::{InnerLine, WhereLine};
