//! What one row of the table says.

use ingero_common::discover::LibraryKind;

use super::args::Dir;
use super::memory::Memory;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpClass {
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
    /// Moves managed memory ahead of its use.
    Prefetch,
    /// Allocates device, managed or pinned host memory, or maps it.
    Alloc,
    /// Gives it back.
    Free,
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
    /// Loads or unloads code.
    Load,
    /// Sets up the driver, a device, a context or a communicator.
    Init,
    /// Communicates between GPUs.
    Collective,
}

/// Whether the successful return of a call proves that a stretch of earlier work is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Drain {
    /// It does not.
    No,
    /// All work of one stream is.
    Stream,
    /// All work of the context is.
    Context,
}

/// One parameter of a signature: how it is passed, and what it means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Param {
    /// An integer or pointer that is not kept.
    Skip,
    /// A structure by value, of so many bytes, that is not kept.
    SkipBytes(u16),
    /// `size_t`: a factor of `bytes`.
    Size,
    /// `unsigned int`: a factor of `bytes`.
    Size32,
    /// `size_t` number of elements of so many bytes: a factor of `bytes`.
    Elements(u8),
    /// `unsigned int` number of elements of so many bytes: a factor of `bytes`.
    Elements32(u8),
    /// `cudaExtent` by value: width in bytes, height, depth.
    Extent,
    /// `cudaMemcpyKind`.
    Kind,
    /// A stream handle.
    Stream,
    /// A kernel handle or host function.
    Func,
    /// A pointer kept as `ptr`.
    Ptr,
    /// Where the call stores a pointer, which is kept as `ptr`.
    Out,
    /// Where the call stores a 32-bit device pointer.
    Out32,
    /// `dim3` by value.
    Grid,
    /// `dim3` by value.
    Block,
    /// One `unsigned int` dimension (0 = x) of the grid.
    GridDim(u8),
    /// One `unsigned int` dimension (0 = x) of the block.
    BlockDim(u8),
    /// `size_t` dynamic shared memory.
    Shmem,
    /// `unsigned int` dynamic shared memory.
    Shmem32,
    /// `size_t` count: of elements where a [`Param::Dtype`] follows, else of operations.
    Count,
    /// `ncclDataType_t`.
    Dtype,
    /// `int` number of this process in a communicator.
    Rank,
    /// `int` number of processes in it.
    Ranks,
    /// A pointer to a structure that is read at the entry.
    Inside(Memory),
}

/// A traced function.
#[derive(Debug, PartialEq, Eq)]
pub struct Op {
    /// The name without suffixes: the `op` of its records.
    pub name: &'static str,
    /// The library it belongs to: the `src` of its records.
    pub layer: LibraryKind,
    /// What it does.
    pub class: OpClass,
    /// What its successful return proves.
    pub drain: Drain,
    /// The direction that its name says.
    pub(super) dir: Option<Dir>,
    params: &'static [Param],
    /// Signatures that hold for one version suffix only (`""` = none).
    versions: &'static [(&'static str, &'static [Param])],
}

impl Op {
    pub(super) const fn new(layer: LibraryKind, name: &'static str, class: OpClass, params: &'static [Param]) -> Self {
        Self { name, layer, class, drain: Drain::No, dir: None, params, versions: &[] }
    }

    pub(super) const fn drains(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    pub(super) const fn dir(mut self, dir: Dir) -> Self {
        self.dir = Some(dir);
        self
    }

    /// Signatures of single versions, by suffix.
    pub(super) const fn versions(mut self, versions: &'static [(&'static str, &'static [Param])]) -> Self {
        self.versions = versions;
        self
    }

    /// The signature of the function with this version suffix (`""` or `"_v2"`…).
    pub(super) fn params(&self, version: &str) -> &'static [Param] {
        self.versions.iter().find(|(suffix, _)| *suffix == version).map_or(self.params, |(_, params)| params)
    }

    /// Puts work on the device. Markers (event records, waits) and stream-ordered allocations are none.
    #[must_use]
    pub fn enqueues_work(&self) -> bool {
        matches!(
            self.class,
            OpClass::Launch
                | OpClass::GraphLaunch
                | OpClass::HostFunc
                | OpClass::Copy
                | OpClass::Set
                | OpClass::Prefetch
                | OpClass::Collective
        )
    }
}
