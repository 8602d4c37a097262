//! Traces CUDA API calls; see the library for how.

use std::process::ExitCode;

use ingero_common::{cli, exit};
use ingero_cuda::{Options, TOOL, run};

fn main() -> ExitCode {
    let options = cli::parse::<Options>();
    exit::run(TOOL, || match cli::answer(&options)? {
        Some(exit) => Ok(exit),
        None => run(&options),
    })
}
