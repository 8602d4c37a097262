//! The classes of the account: each nanosecond of a process that uses CUDA has exactly one.
//!
//! Calls of several threads overlap, and one class has to be chosen for each instant. What feeds the GPU comes first, since
//! then it is not waiting, whatever the other threads do; then comes the GPU's own state, and only then what else is being
//! done:
//!
//! ```text
//!   precedence   enqueue > copy > cold launch (load) > idle > gpu_wait > load > memory > other_call > between, silence
//!
//!   thread 1     launch |-- synchronise ----|                     |-- launch --|
//!   thread 2                 |------- cudaMalloc -------------------------------------|
//!   the GPU      ? ██████████████████████████ drained             ?
//!   the account  enqueue| gpu_wait          | idle                | enqueue    | memory
//! ```

use serde::{Serialize, Serializer};

/// What the process did with an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Class {
    /// Before its loop: imports, the context, cold calls.
    StartUp,
    /// The GPU is known to have had nothing to do.
    Idle,
    /// A long time between calls in which the GPU may have had work: an upper bound of the time that it waited.
    Silence,
    /// A thread waited in a call for a GPU that was at work.
    GpuWait,
    /// In a call that gives the GPU work.
    Enqueue,
    /// In a copy that blocks its caller: synchronous, or from or to pageable memory.
    Copy,
    /// Allocating, freeing, registering, trimming while the GPU may have had work.
    Memory,
    /// Loading code, instantiating graphs, first launches.
    Load,
    /// In any other call while the GPU may have had work.
    OtherCall,
    /// A short time between calls with work in the queue, or any time in which the GPU is known to have been at work.
    Between,
    /// After its last work.
    WindDown,
    /// Records are missing, or nobody watched.
    NotJudged,
}

/// How many there are.
pub(crate) const CLASSES: usize = 12;

impl Class {
    /// All of them, in the order of the contract.
    pub const ALL: [Class; CLASSES] = [
        Class::StartUp,
        Class::Idle,
        Class::Silence,
        Class::GpuWait,
        Class::Enqueue,
        Class::Copy,
        Class::Memory,
        Class::Load,
        Class::OtherCall,
        Class::Between,
        Class::WindDown,
        Class::NotJudged,
    ];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Class::StartUp => "start_up",
            Class::Idle => "idle",
            Class::Silence => "silence",
            Class::GpuWait => "gpu_wait",
            Class::Enqueue => "enqueue",
            Class::Copy => "copy",
            Class::Memory => "memory",
            Class::Load => "load",
            Class::OtherCall => "other_call",
            Class::Between => "between",
            Class::WindDown => "wind_down",
            Class::NotJudged => "not_judged",
        }
    }
}

/// Nanoseconds by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes([u64; CLASSES]);

impl Classes {
    /// All of `ns` in one class.
    pub(crate) fn of(class: Class, ns: u64) -> Self {
        let mut classes = Self::default();
        classes.add(class, ns);
        classes
    }

    pub(crate) fn add(&mut self, class: Class, ns: u64) {
        self.0[class as usize] += ns;
    }

    /// Adds all of another account.
    pub fn add_all(&mut self, other: &Classes) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, ns)| *sum += ns);
    }

    /// Nanoseconds of one class.
    pub fn get(&self, class: Class) -> u64 {
        self.0[class as usize]
    }

    /// Nanoseconds of all classes together.
    pub fn total_ns(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Time in which the GPU waited, at most.
    pub fn lost_ns(&self) -> u64 {
        self.get(Class::Idle) + self.get(Class::Silence)
    }

    /// Moves up to `ns` from one class to another; says how much that was.
    pub(crate) fn shift(&mut self, from: Class, to: Class, ns: u64) -> u64 {
        let ns = ns.min(self.get(from));
        self.0[from as usize] -= ns;
        self.0[to as usize] += ns;
        ns
    }

    /// Each class that has any time.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u64)> {
        Class::ALL.into_iter().map(|class| (class, self.get(class))).filter(|&(_, ns)| ns > 0)
    }
}

impl Serialize for Classes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter().map(|(class, ns)| (class.name(), ns)))
    }
}

/// What a thread does inside one call, by rank: of several threads' calls the highest decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Doing {
    Other,
    Memory,
    Load,
    /// Asking a GPU that is at work.
    Poll,
    Wait,
    /// The same at the beginning of a copy that blocks its caller: that copy is enqueued already.
    WaitToCopy,
    ColdLaunch,
    /// A copy that blocks its caller…
    Copy,
    /// …and one from the host to an idle GPU, asynchronous by its name: it is what the GPU waits for.
    Upload,
    Enqueue,
}

impl Doing {
    /// Whether such a call gives the GPU something to do, so that it is not idle meanwhile.
    pub(crate) fn feeds(self) -> bool {
        self >= Doing::WaitToCopy
    }

    /// Whether it waits for the GPU.
    pub(crate) fn waits(self) -> bool {
        matches!(self, Doing::Poll | Doing::Wait | Doing::WaitToCopy)
    }

    /// The class of its time, where the GPU is not idle.
    pub(crate) fn class(self) -> Class {
        match self {
            Doing::Other => Class::OtherCall,
            Doing::Memory => Class::Memory,
            Doing::Load | Doing::ColdLaunch => Class::Load,
            Doing::Poll | Doing::Wait | Doing::WaitToCopy => Class::GpuWait,
            Doing::Copy | Doing::Upload => Class::Copy,
            Doing::Enqueue => Class::Enqueue,
        }
    }

    /// What time that was counted as `class` becomes where such a call turns out to have been going on.
    pub(crate) fn over(self, class: Class) -> Class {
        let rank = match class {
            Class::Between | Class::Silence => None,
            Class::OtherCall => Some(Doing::Other),
            Class::Memory => Some(Doing::Memory),
            Class::Load => Some(Doing::Load),
            Class::GpuWait => Some(Doing::Wait),
            Class::Copy => Some(Doing::Copy),
            Class::Enqueue => Some(Doing::Enqueue),
            Class::Idle if self.feeds() => None,
            Class::Idle | Class::StartUp | Class::WindDown | Class::NotJudged => return class,
        };
        if rank.is_none_or(|rank| rank < self) { self.class() } else { class }
    }
}
