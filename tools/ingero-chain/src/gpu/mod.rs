//! Can the GPU have had work?

pub(crate) mod activity;
pub(crate) mod capture;
pub(crate) mod counter;
mod events;
pub(crate) mod outstanding;
