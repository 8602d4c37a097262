//! ingero-cuda.

fn main() {}
