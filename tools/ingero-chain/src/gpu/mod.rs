//! Can the GPU have had work?

pub(crate) mod activity;
pub(crate) mod counter;
pub(crate) mod outstanding;
