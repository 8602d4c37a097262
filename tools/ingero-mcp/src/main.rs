//! `ingero-mcp`: see the library.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Parser;
use ingero_common::exit::{self, Exit};
use ingero_common::{cli, cli::HasCommon};
use ingero_mcp::server::Server;
use ingero_mcp::{Options, http, load, stdio};

const TOOL: &str = "ingero-mcp";

fn main() -> ExitCode {
    let options = Options::parse();
    exit::run(TOOL, || body(&options))
}

fn body(options: &Options) -> anyhow::Result<Exit> {
    if let Some(exit) = cli::answer(options)? {
        return Ok(exit);
    }
    if options.http.is_none() && options.recordings.iter().any(|name| name == "-") {
        bail!("stdin carries the protocol: a recording can come from stdin with --http only");
    }
    let log = options.common().log(TOOL);
    // Before anything else runs that could print.
    let stdout = stdio::claim_stdout()?;
    let mut recordings = Vec::new();
    for plan in load::plan(options)? {
        log.detail(format!("recording {}: {}", plan.name, plan.files_text()));
        recordings.push(load::start(plan, &log)?);
    }
    let server = Server::new(recordings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the runtime")?;
    let result = match options.http {
        Some(address) => runtime.block_on(http::serve(server, address, options, &log)),
        None => runtime.block_on(stdio::serve(server, stdout)),
    };
    // What still loads or runs ends with the process.
    runtime.shutdown_background();
    result.map(|()| Exit::Ok)
}
