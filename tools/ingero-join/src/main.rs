//! `ingero-join`: see the library.

use std::process::ExitCode;

use ingero_common::exit::{self, Exit};
use ingero_common::fifo::Patience;
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
    let stop = Stop::filter()?;
    let log = options.common().log(TOOL);
    let patience = Patience { stop: &stop, limit: None, log: &log };
    let Some(mut out) = Output::beside(options.output.as_deref(), &options.inputs, &patience)? else {
        return Ok(Exit::Ok);
    };
    join(options, sources, &mut out, &log)
}
