//! The owner's cases (`tests/cases`): joins and chains on small streams, each number of which can be checked by hand.

use std::process::Command;

use ingero_tests::{Output, bin_dir, repository};

#[test]
fn all_cases_hold() {
    let cases = repository().join("tests/cases");
    let there = std::fs::read_dir(&cases).into_iter().flatten().flatten();
    let there = there.filter(|entry| entry.path().join("expected.json").exists()).count();
    let mut check = Command::new("python3");
    check.arg(cases.join("check.py")).arg(bin_dir());
    let whole = format!("cases: {there} of {there}");
    Output::of(&mut check).exits(0).shows(&whole, |done| there > 0 && done.text().trim_end().ends_with(&whole));
}
