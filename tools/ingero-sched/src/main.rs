//! `ingero-sched`: what kept the host's threads off the CPU, as NDJSON.

use std::process::ExitCode;

use ingero_common::{cli, exit};
use ingero_sched::{Options, TOOL, run};

fn main() -> ExitCode {
    let options = cli::parse::<Options>();
    exit::run(TOOL, || match cli::answer(&options)? {
        Some(exit) => Ok(exit),
        None => run(&options),
    })
}
