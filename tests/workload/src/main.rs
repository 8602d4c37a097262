//! The workload driver.

fn main() {}
