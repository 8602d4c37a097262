//! ingero-chain as a library: a stream of records in, a report out.
//!
//! ```text
//! input      what did the stream say?                       records, losses, samples of the machine
//! gpu        can the GPU have had work?                     outstanding work, what calls show, the driver's counter
//! process    where is each nanosecond?                      the timeline, the phases, the account
//! blame      what did the late thread go through?           the critical path, causes
//! findings   what was lost?                                 one file for each kind
//! report     how is it said?                                the model, sentences, advice; text, html, csv
//! stats      quantiles, groups of calls, totals
//! ```

mod blame;
mod findings;
mod gpu;
mod input;
mod limits;
pub mod options;
mod process;
#[cfg(test)]
mod reference;
mod report;
pub mod run;
mod stats;
#[cfg(test)]
mod testing;

pub use blame::{Cause, CauseLine, OpNs, WhoNs, share};
pub use findings::severity::Severity;
pub use input::ingest::Engine;
pub use process::class::{Class, Classes};
pub use report::model;
pub use report::{Wanted, places, sentences};
pub use run::{analyse, run};
