//! One model of the host's scheduler: which process and thread was that, when was it off the CPU and why, who had its CPU,
//! and where may records be missing?

mod cpu_timeline;
mod hash;
mod interner;
mod lifetime;
mod losses;
mod memory;
mod process;
mod state;
mod table;
mod task;
#[cfg(test)]
mod tests;
mod thread;
mod tracers;
mod watch;

pub use cpu_timeline::{CpuTimeline, SwitchedIn};
pub use hash::{HashMap, HashSet};
pub use interner::{Interner, Name};
pub use lifetime::{Birth, Lifetime};
pub use losses::{Loss, Losses, LostRanges};
pub use memory::Limits;
pub use process::{InstanceId, ProcessInstance, Program, Watcher};
pub use state::State;
pub use table::TaskTable;
pub use task::{Task, Thread};
pub use thread::{OffCpu, OffCpuPart, Pages, SwitchedOut, ThreadInstance};
pub use tracers::{Side, Tracers, Until};
pub use watch::{Watch, WatchedPart};
