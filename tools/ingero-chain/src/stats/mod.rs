//! Quantiles, groups of calls, totals.

pub(crate) mod calls;
pub(crate) mod parts;
pub(crate) mod period;
pub(crate) mod quantiles;
pub(crate) mod totals;
