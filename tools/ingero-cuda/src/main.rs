//! Traces CUDA API calls; see the library for how.

use std::process::ExitCode;

use clap::Parser;
use ingero_common::{cli, exit};
use ingero_cuda::{Options, TOOL, run};

fn main() -> ExitCode {
    let options = Options::parse();
    exit::run(TOOL, || match cli::answer(&options)? {
        Some(exit) => Ok(exit),
        None => run(&options),
    })
}
