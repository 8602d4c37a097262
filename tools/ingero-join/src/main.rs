//! `ingero-join`: see the library.

use std::process::ExitCode;

use ingero_common::exit::{self, Exit};
use ingero_common::output::Output;
use ingero_common::signal::Stop;
use ingero_common::{cli, cli::HasCommon};
use ingero_join::{Options, join, sources};

const TOOL: &str = "ingero-join";

fn main() -> ExitCode {
    let options = cli::parse::<Options>();
    exit::run(TOOL, || body(&options))
}

fn body(options: &Options) -> anyhow::Result<Exit> {
    if let Some(exit) = cli::answer(options)? {
        return Ok(exit);
    }
    let sources = sources(options)?;
    // Ctrl-C reaches the tracers too; what they still write must be read. A second one ends us.
    let _stop = Stop::filter()?;
    let mut out = Output::beside(options.output.as_deref(), &options.inputs)?;
    join(options, sources, &mut out, &options.common().log(TOOL))
}
