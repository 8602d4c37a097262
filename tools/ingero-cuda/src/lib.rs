//! ingero-cuda, as a library.

pub mod symbols;
