//! Random machines whose truth is known (`tests/sim`), and what the pipeline says of them.

use std::process::Command;

use ingero_tests::{Output, bin_dir, repository};

#[test]
fn reports_on_random_machines_agree_with_the_truth() {
    let mut run = Command::new("python3");
    run.env("PYTHONDONTWRITEBYTECODE", "1").arg(repository().join("tests/sim/run.py"));
    Output::of(run.arg("--bin").arg(bin_dir()).args(["--self-test", "--seeds", "0..40"])).exits(0);
}
