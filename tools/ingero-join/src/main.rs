//! ingero-join.

fn main() {}
