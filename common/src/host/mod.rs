//! One model of the host's scheduler: which process and thread was that, when was it off the CPU and why, who had its CPU,
//! and where may records be missing?

mod cpu_timeline;
mod hash;
mod instance;
mod interner;
mod losses;
mod state;
mod table;
mod task;
mod tracers;
mod watch;

pub use cpu_timeline::{CpuTimeline, SwitchedIn};
pub use hash::{HashMap, HashSet};
pub use instance::{Birth, InstanceId, OffCpu, ProcessInstance, Program, SwitchedOut, ThreadInstance};
pub use interner::{Interner, Name};
pub use losses::{Loss, Losses, LostRanges};
pub use state::State;
pub use table::{MAX_OFFS, TaskTable};
pub use task::{Task, Thread};
pub use tracers::{Side, Tracers, Until};
pub use watch::{Watch, WatchedPart};
