//! Random machines whose truth is known (`tests/sim`), and what the pipeline says of them. `INGERO_SIM_SEEDS=0..200` is the
//! long run.

use std::process::Command;

use ingero_tests::{Output, bin_dir, repository};

#[test]
fn reports_on_random_machines_agree_with_the_truth() {
    let seeds = std::env::var("INGERO_SIM_SEEDS").unwrap_or_else(|_| "0..40".into());
    let mut run = Command::new("python3");
    run.env("PYTHONDONTWRITEBYTECODE", "1").arg(repository().join("tests/sim/run.py"));
    Output::of(run.arg("--bin").arg(bin_dir()).args(["--self-test", "--seeds", &seeds])).exits(0);
}
