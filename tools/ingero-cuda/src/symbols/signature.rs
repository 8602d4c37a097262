//! What one row of the tables says.

use ingero_common::cuda_api::{self, Function};
use ingero_common::discover::LibraryKind;

use super::memory::Memory;

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
    /// A handle of an event.
    Event,
    /// `int` number of the device that the thread chooses.
    Device,
    /// A pointer to a structure that is read at the entry.
    Inside(Memory),
}

/// How the arguments of a traced function are read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// The function.
    pub(super) function: &'static Function,
    params: &'static [Param],
    /// Signatures that hold for one version suffix only (`""` = none).
    versions: &'static [(&'static str, &'static [Param])],
}

impl Signature {
    /// The signature of a function of `layer`. A name that is not among the traced ones of [`cuda_api`] does not compile.
    #[expect(clippy::panic, reason = "evaluated by the compiler only: all tables are constants")]
    pub(super) const fn new(layer: LibraryKind, name: &str, params: &'static [Param]) -> Self {
        match cuda_api::traced(layer, name) {
            Some(function) => Self { function, params, versions: &[] },
            None => panic!("not among the traced functions of ingero_common::cuda_api"),
        }
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
}
