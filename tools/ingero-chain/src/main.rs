//! ingero-chain.

fn main() {}
