//! A server with one more tool, which panics: `tests/it/stdout.rs` sees what becomes of the session.
//!
//!     with_a_bug RECORDING

use clap::Parser;
use ingero_common::text::Log;
use ingero_mcp::server::Server;
use ingero_mcp::tools::{Problem, ToolEntry};
use ingero_mcp::{Options, load, stdio};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Arguments {}

#[derive(serde::Serialize, schemars::JsonSchema)]
struct Answer {}

#[allow(clippy::panic, clippy::print_stdout, reason = "that is what it is for")]
fn bug(_: &ingero_mcp::tools::Context<'_>, _: Arguments) -> Result<Answer, Problem> {
    println!("a library that prints to stdout");
    panic!("forced");
}

fn main() -> anyhow::Result<()> {
    let stdout = stdio::claim_stdout()?;
    let log = Log::new("with_a_bug", false, true);
    let plans = load::plan(&Options::parse())?;
    let recordings = plans.into_iter().map(|plan| load::start(plan, &log)).collect::<anyhow::Result<Vec<_>>>()?;
    let server = Server::new(recordings).with_tool(ToolEntry::new("bug", "A bug", "Panics.", "{}", bug));
    tokio::runtime::Runtime::new()?.block_on(stdio::serve(server, stdout))
}
