//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use ingero_common::cli::{Common, HasCommon};

const LONG_ABOUT: &str = "\
Serves recordings to an AI client over the Model Context Protocol: what was found in them and why, each process, what \
happened when, single records, and SQL. Everything is read-only. Without --http it talks over stdin and stdout, as \
clients that start their servers expect it, and ends with the end of its input.";

const AFTER_HELP: &str = "\
RECORDINGS

Streams of ingero-join, plain, gzip or zstd; streams of ingero-cuda and ingero-sched of one boot, which are joined into \
one recording; SQLite recordings of ingero (.db). Two recordings or more can be compared. A recording is loaded into a \
temporary database (TMPDIR) of about half its uncompressed size, which is gone when the server ends.

EXAMPLES

  ingero-mcp joined.ndjson.zst
  ingero-mcp cuda.ndjson sched.ndjson
      the two halves of one recording
  ingero-mcp before.ndjson after.ndjson
      two recordings, for compare_traces
  ingero-mcp --follow joined.ndjson
      a recording that is still being written
  sudo ingero-cuda | ingero-join <(sudo ingero-sched) | ingero-mcp --http 127.0.0.1:7410 --follow -
      a live pipeline

Over HTTP a client sends a token; without --token-file or --token-env it is in a file that only you can read, and \
stderr says where.

In a client's configuration:

  {\"mcpServers\": {\"ingero\": {\"command\": \"ingero-mcp\", \"args\": [\"/path/to/joined.ndjson.zst\"]}}}

EXIT STATUS

0 done; 2 an error.";

/// What ingero-mcp is asked to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "ingero-mcp", version, about = "Let an AI client investigate recordings, over MCP", long_about = LONG_ABOUT, after_long_help = AFTER_HELP)]
pub struct Options {
    /// Recordings: NDJSON (also gzip or zstd), ingero .db, FIFOs; - is stdin, with --http only
    #[arg(value_name = "RECORDING", required_unless_present_any = ["schema", "generate"])]
    pub recordings: Vec<OsString>,

    /// The recording is still being written: serve what is there and read on
    #[arg(short, long)]
    pub follow: bool,

    /// Serve streamable HTTP at this address (127.0.0.1:7410, path /mcp) instead of stdin and stdout; a bare port is one
    /// of 127.0.0.1
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub http: Option<SocketAddr>,

    /// Clients must send the token in this file as `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE", requires = "http")]
    pub token_file: Option<PathBuf>,

    /// The same with the token in this environment variable
    #[arg(long, value_name = "NAME", requires = "http", conflicts_with = "token_file")]
    pub token_env: Option<String>,

    /// Serve every user of this machine, without a token; otherwise, at the loopback interface, a random one is written to a
    /// file that only you can read, and stderr says where
    #[arg(long, requires = "http", conflicts_with_all = ["token_file", "token_env"])]
    pub no_token: bool,

    /// Accept this Host header besides those of the loopback interface (repeatable)
    #[arg(long, value_name = "HOST", requires = "http")]
    pub allow_host: Vec<String>,

    /// Accept requests of web pages from this origin, scheme and all (repeatable); none is accepted otherwise
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    pub allow_origin: Vec<String>,

    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags of all tools")]
    pub common: Common,
}

/// `127.0.0.1:7410`, or only a port, which is one of the loopback interface.
fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse().map_err(|_| "is no address; write for instance 127.0.0.1:7410".to_owned()),
    }
}

impl HasCommon for Options {
    fn common(&self) -> &Common {
        &self.common
    }
}
