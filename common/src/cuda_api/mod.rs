//! The functions of the CUDA runtime, the CUDA driver and NCCL: what a call of each one does, once.
//!
//! ```text
//! a record's src, op          find("cuda", "cuMemcpyDtoH")
//! what it is                  class Copy, dir d2h, drain Copy
//! what a call of it proves    drains(None) -> Stream: when it returns, its stream has nothing left to do
//! ```
//!
//! The tracer takes name, layer and direction from here and adds how the arguments are read; what is traced is marked. The
//! other functions are here because recordings of other tools have them.
//!
//! A function that is not in the table is unknown: take it for one that may give the GPU work and proves nothing.
//!
//! What a function promises is taken from the public headers of CUDA 12.9 and 13.5 (`cuda_runtime_api.h`, `cuda.h`) and of
//! NCCL 2.32 (`nccl.h`), and from the chapter "API synchronization behavior" of the CUDA reference manuals, of which this
//! is the part on copies and fills:
//!
//! ```text
//! form            from, to               it returns
//! cudaMemcpy      pageable h2d           when the data has been staged: the stream's earlier work is done, the copy may not be
//! (no "Async")    pinned h2d             when the copy is done
//!                 d2h                    when the copy is done
//!                 d2d, p2p               at once
//!                 h2h                    when the copy is done; the GPU has no part in it
//! …Async          pinned h2d, d2h; d2d   at once
//!                 pageable h2d, d2h      at once or later: "might be synchronous"
//!                 h2h                    when the copy is done
//! cudaMemset…     with "Async" or not    at once (without it, into pinned memory: when that is done)
//! ```
//!
//! Whether memory is pageable is in no record, so of the blocking copies only those to the host prove something.

mod cuda;
mod cudart;
mod nccl;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::discover::LibraryKind;

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Starts a kernel.
    Launch,
    /// Starts an instantiated graph.
    GraphLaunch,
    /// Puts a host function into a stream.
    HostFunc,
    /// Copies memory.
    Copy,
    /// Fills memory.
    Set,
    /// Moves graphs or managed memory to where they will be used, or changes whose it is, in the order of a stream.
    Prefetch,
    /// Allocates device, managed or pinned host memory, makes a pool of it, or maps it.
    Alloc,
    /// Gives it back.
    Free,
    /// Pins memory that the program has, or ends that.
    Register,
    /// Waits on the host until the device has done something.
    Sync,
    /// Asks, without waiting, whether it has.
    Query,
    /// Makes a stream wait.
    StreamWait,
    /// Puts a marker into a stream.
    Record,
    /// Begins or ends the capture of a graph.
    Capture,
    /// Makes a graph ready to launch.
    Instantiate,
    /// Loads code, or links it.
    Load,
    /// Gives up code, a context, a device or a communicator.
    Unload,
    /// Gives up a stream, an event, a graph or another small object.
    Destroy,
    /// Sets up the driver, a device, a context or a communicator.
    Init,
    /// Communicates between GPUs.
    Collective,
    /// Looks something up: properties, attributes, errors. Nothing of it depends on how far the GPU is.
    Get,
    /// Anything else that is host work only: creates streams and events, describes graphs, changes settings.
    Other,
}

/// Whether the successful return of a call proves that a stretch of earlier work is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drain {
    /// It does not.
    No,
    /// All earlier work of its stream is.
    Stream,
    /// All earlier work of the context is. A primary context counts its green contexts in (`cuCtxSynchronize` in `cuda.h`).
    Context,
    /// A blocking copy: it depends on the direction, see [`Function::drains`].
    Copy,
}

/// Direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dir {
    /// Host to device.
    H2d,
    /// Device to host.
    D2h,
    /// Device to device.
    D2d,
    /// Host to host.
    H2h,
    /// Between two devices.
    P2p,
}

impl Dir {
    /// Its value in a record.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::H2d => "h2d",
            Self::D2h => "d2h",
            Self::D2d => "d2d",
            Self::H2h => "h2h",
            Self::P2p => "p2p",
        }
    }
}

/// Which device a call is about, as far as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Device {
    /// The one that the thread works on.
    Current,
    /// It chooses the one, or the context, that the thread works on from now on.
    Chosen,
    /// It makes a context of its own beside others, and makes the thread work on it.
    NewContext,
    /// More than one.
    Several,
}

/// A function, under the name that it has without suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// The name without suffixes (`_v2`, `_ptsz`): the `op` of its records.
    pub name: &'static str,
    /// The library it belongs to: the `src` of its records.
    pub layer: LibraryKind,
    /// What it does.
    pub class: Class,
    /// What its successful return proves, for a copy before its direction is known: see [`Function::drains`].
    pub drain: Drain,
    /// The direction that its name says.
    pub dir: Option<Dir>,
    /// Which device it is about.
    pub device: Device,
    /// Whether ingero-cuda traces it.
    pub traced: bool,
    /// An allocation or free that a stream does when it gets there.
    stream_ordered: bool,
    /// It "may perform implicit synchronization", as the headers say of `cudaFree`.
    may_synchronize: bool,
}

impl Function {
    /// Whether a call gives the GPU work: a kernel, graph, copy, fill, prefetch, host function or collective.
    ///
    /// Recording an event or waiting for one gives none, nor does memory that is allocated or freed in the order of a
    /// stream: a GPU that has only such things to do is idle.
    #[must_use]
    pub fn enqueues(&self) -> bool {
        use Class::*;
        matches!(self.class, Launch | GraphLaunch | HostFunc | Copy | Set | Prefetch | Collective)
    }

    /// Whether a call may wait for the GPU by its nature: it synchronises, is a blocking copy, or gives up memory that the
    /// GPU may be using.
    ///
    /// Any call "may block or synchronize for various reasons such as contention for or unavailability of internal
    /// resources" (API synchronization behavior): a launch, for room in the queue; loading code lazily, for the context.
    /// That is not meant here.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.class == Class::Sync || self.drain == Drain::Copy || self.may_synchronize
    }

    /// Whether waiting for the GPU is what a call is for, or comes with it: a synchronise or a blocking copy, not a free.
    #[must_use]
    pub fn is_wait(&self) -> bool {
        self.waits() && self.class != Class::Free
    }

    /// Whether a call returns by design before its work is done, or without waiting for its turn in a stream.
    ///
    /// Copies between device memory and fills are so in the form without `Async`, too (API synchronization behavior).
    #[must_use]
    pub fn is_async(&self) -> bool {
        use Class::*;
        match self.class {
            Copy => self.drain == Drain::No,
            Alloc | Free => self.stream_ordered,
            Launch | GraphLaunch | HostFunc | Set | Prefetch | StreamWait | Record | Collective => true,
            _ => false,
        }
    }

    /// Whether a call looks at something and changes nothing that others see: `cudaGetLastError` resets the thread's error,
    /// and looking up an attribute of a kernel may load the kernel.
    #[must_use]
    pub fn only_asks(&self) -> bool {
        matches!(self.class, Class::Query | Class::Get)
    }

    /// Whether a call with this direction (a record's `dir`; `None` = not known) waits for its copy: the form without
    /// `Async`, unless device memory is on both sides.
    #[must_use]
    pub fn blocks(&self, dir: Option<&str>) -> bool {
        self.drain == Drain::Copy && !matches!(self.direction(dir), Some("d2d" | "p2p"))
    }

    /// What the successful return of a call with this direction (a record's `dir`; `None` = not known) proves.
    ///
    /// A blocking copy to the host follows the earlier work of its stream (the default stream of the thread, as blocking
    /// copies take no stream) and returns when it is complete, so [`Drain::Stream`]. One from the host returns when its
    /// data has been staged, maybe before the GPU has it, so [`Drain::No`]: the copy itself may be all that is left. A copy
    /// of 0 bytes is promised nothing. Source: API synchronization behavior, "Memcpy", "Synchronous".
    #[must_use]
    pub fn drains(&self, dir: Option<&str>) -> Drain {
        match self.drain {
            Drain::Copy if self.direction(dir) == Some(Dir::D2h.name()) => Drain::Stream,
            Drain::Copy => Drain::No,
            other => other,
        }
    }

    /// The direction of a call: what its name says, else what its record says.
    fn direction<'a>(&self, dir: Option<&'a str>) -> Option<&'a str> {
        self.dir.map(Dir::name).or(dir)
    }
}

/// The functions of one library, in groups.
const fn groups(layer: LibraryKind) -> &'static [&'static [Function]] {
    match layer {
        LibraryKind::Cudart => cudart::FUNCTIONS,
        LibraryKind::Cuda => cuda::FUNCTIONS,
        LibraryKind::Nccl => nccl::FUNCTIONS,
    }
}

/// All functions.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    LibraryKind::ALL.into_iter().flat_map(|layer| groups(layer).iter().copied().flatten())
}

/// The function of a record: `source` is its `src` (`cudart`, `cuda`, `nccl`), `op` its `op`, a name without suffixes.
///
/// `None` is a function that is not known: it may give the GPU work, and its return proves nothing.
#[must_use]
pub fn find(source: &str, op: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&str, &Function>> =
        LazyLock::new(|| functions().map(|function| (function.name, function)).collect());
    BY_NAME.get(op).copied().filter(|function| function.layer.src() == source)
}

/// A traced function by its name, for tables that are made when the program is compiled.
#[must_use]
pub const fn traced(layer: LibraryKind, name: &str) -> Option<&'static Function> {
    let mut groups = groups(layer);
    while let [group, others @ ..] = groups {
        let mut functions: &[Function] = group;
        while let [function, others @ ..] = functions {
            if function.traced && table::same(function.name, name) {
                return Some(function);
            }
            functions = others;
        }
        groups = others;
    }
    None
}
