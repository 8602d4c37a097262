//! ingero-chain as a library: a stream of records in, a [`Report`] out.
//!
//! What each part answers:
//!
//! - [`ingero_common::host`]: which process and thread was that, when was it off the CPU, who had that CPU, and where may
//!   records be missing?
//! - [`evidence`]: what did the machine do meanwhile?
//! - [`family`]: who belongs to a process, and who is a stranger?
//! - [`startup`]: which calls are warming up?
//! - [`calls`]: which calls were slow, beyond what is usual for their kind?
//! - [`gaps`]: when was no call in flight in the whole process?
//! - [`drain`]: had the GPU anything left to do then?
//! - [`path`]: what was the thread that made the next call waiting for?
//! - [`stall`], [`rates`]: did the calls stop, hang, or come less often?
//! - [`cpus`]: which CPUs had a process?
//! - [`oom`]: who was killed for memory?
//! - [`advice`], [`words`], [`text`], [`table`], [`page`]: what to tell, and how.

pub mod advice;
#[cfg(test)]
mod agreement;
pub mod calls;
pub mod cause;
pub mod chain;
pub mod cpus;
pub mod drain;
pub mod engine;
pub mod evidence;
pub mod family;
pub mod gaps;
pub mod oom;
pub mod ops;
pub mod options;
pub mod page;
pub mod path;
pub mod period;
pub mod process;
pub mod rates;
#[cfg(test)]
mod reference;
mod report;
pub mod run;
pub mod sketch;
pub mod stall;
pub mod startup;
pub mod stats;
pub mod table;
pub mod text;
pub mod winddown;
pub mod words;

pub use chain::{Chain, Report, Severity};
pub use engine::Engine;
pub use run::{analyse, run};
