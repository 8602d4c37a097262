//! ingero-sched.

fn main() {}
