//! ingero-chain.

use std::process::ExitCode;

use ingero_chain::options::Options;
use ingero_chain::run::TOOL;
use ingero_common::signal::Stop;
use ingero_common::{cli, exit};

fn main() -> ExitCode {
    let options = cli::parse::<Options>();
    exit::run(TOOL, || {
        if let Some(exit) = cli::answer(&options)? {
            return Ok(exit);
        }
        // Ctrl-C reaches the whole pipeline; the tracers end it, and what they still send belongs in the report.
        let stop = Stop::filter()?;
        ingero_chain::run(&options, &stop, &options.common.log(TOOL))
    })
}
