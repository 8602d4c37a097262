//! One model of the host's scheduler: which process and thread was that, when was it off the CPU and why, who had its CPU,
//! and where may records be missing?

mod cpu_timeline;
mod interner;
mod lifetime;
mod losses;
mod memory;
mod process;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod thread;
mod tracers;
mod wait;
mod watch;

pub use cpu_timeline::{CpuTimeline, SwitchedIn};
pub use interner::{Interner, Name, Task, Thread};
pub use lifetime::{Birth, Lifetime};
pub use losses::{Loss, Losses, LostRanges};
pub use memory::Limits;
pub use process::{InstanceId, ProcessInstance, Program, Watcher};
pub use state::State;
pub use table::TaskTable;
pub use thread::{OffCpu, OffCpuPart, Pages, SwitchedOut, ThreadInstance};
pub use tracers::{Side, Tracers, Until};
pub use wait::{Wait, WaitKind};
pub use watch::{Watch, WatchedPart};

/// As in the standard library, with a hasher that is quick for the short keys that every record is looked up by: thread
/// numbers and names. It is seeded anew in each map, and wherever names are keys their number is bounded (see [`Interner`]).
pub type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// See [`HashMap`].
pub type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
