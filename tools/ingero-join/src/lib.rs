//! ingero-join: merges ingero streams by time and gives each CUDA call what its thread went through.
//!
//! The parts, in the order in which a record meets them:
//!
//! | module          | question it answers                                                    |
//! |-----------------|------------------------------------------------------------------------|
//! | `sources`       | which inputs are read, and is stdin one of them?                        |
//! | `reader`        | how does a slow or silent input hold up nobody? (a thread each)         |
//! | `db`            | how does an SQLite recording become records?                            |
//! | `item`          | what does a line say that matters here?                                 |
//! | `entry`         | what waits for its turn, and what does that cost?                       |
//! | `merge`         | which record is next? (with a worked example)                           |
//! | `clocks`        | may these streams be compared at all?                                   |
//! | `attribution`   | what is known of each thread, is silence evidence, who says it twice?   |
//! | `host`          | what did the thread go through during the call? (with a worked example) |
//! | `join`          | how do these work together?                                             |
//! | `format`        | in which form is it written?                                            |

mod attribution;
mod clocks;
mod db;
mod edit;
mod entry;
mod filter;
mod format;
mod frame;
mod host;
mod item;
mod join;
mod late;
mod merge;
mod options;
mod queue;
mod reader;
mod sink;
mod sources;

use std::sync::Arc;

use ingero_common::exit::Exit;
use ingero_common::text::Log;

pub use options::{Format, Options, When};
pub use sink::Sink;
pub use sources::{Source, sources};

/// Joins `sources` and writes the result to `out`, reporting to people through `log`.
///
/// Errors: an input that can't be opened, clocks that can't be compared, a line that is no record where
/// [`Options::strict`] asks for it, and whatever writing runs into. Lines that are no records are
/// otherwise skipped and counted, and give [`Exit::Error`] at the end.
pub fn join(options: &Options, sources: Vec<Source>, out: impl Sink, log: &Log) -> anyhow::Result<Exit> {
    let hub = Arc::new(queue::Hub::new(sources.len()));
    let lanes = sources.iter().map(|s| merge::Lane::new(s.input.name(), s.patient)).collect();
    let implied = sources.iter().map(|s| s.implied).collect();
    let live = sources.iter().any(|s| !s.patient);
    for (lane, source) in sources.into_iter().enumerate() {
        reader::spawn(&hub, lane, source)?;
    }
    let clocks = clocks::Clocks::new(options.allow_mixed_clocks);
    let merge = merge::Merge::new(Arc::clone(&hub), lanes, options.window, clocks, options.strict);
    join::Join::new(options, log, hub, merge, implied, live, out).run()
}
