//! A call's argument words as they arrive, and what they mean.

use ingero_common::cuda_api::Dir;

/// What was kept of one call.
///
/// `words` holds the integer argument registers in the order of the calling convention (rdi, rsi, rdx, rcx, r8, r9;
/// or x0 to x7) and then the words of the stack, from the first stack argument on. A word that could not be read, and
/// all after it, are not in the slice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Args<'a> {
    /// Registers, then stack.
    pub words: &'a [u64],
    /// What [`Spec::in_words`](super::Spec) asked to be read at the entry; empty where it could not be.
    pub memory: &'a [u64],
    /// What [`Spec::out_bytes`](super::Spec) asked to be read at the return; `None` where it could not be, or where
    /// the call failed.
    pub out: Option<u64>,
}

/// The direction that a `cudaMemcpyKind` (`driver_types.h`) gives; `cudaMemcpyDefault` leaves it to the driver and gives
/// `None`.
pub(super) fn dir_of_kind(kind: u32) -> Option<Dir> {
    match kind {
        0 => Some(Dir::H2h),
        1 => Some(Dir::H2d),
        2 => Some(Dir::D2h),
        3 => Some(Dir::D2d),
        _ => None,
    }
}

/// The direction between two `CUmemorytype`s (`cuda.h`): 1 host, 2 device, 3 array, which lies on the device; 4 is unified
/// memory, whose side is not known.
pub(super) fn dir_of_memory_types(source: u32, destination: u32) -> Option<Dir> {
    match (source, destination) {
        (1, 1) => Some(Dir::H2h),
        (1, 2 | 3) => Some(Dir::H2d),
        (2 | 3, 1) => Some(Dir::D2h),
        (2 | 3, 2 | 3) => Some(Dir::D2d),
        _ => None,
    }
}

/// The arguments of one call, as far as they apply and could be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Bytes copied, filled, allocated or communicated by this rank.
    pub bytes: Option<u64>,
    /// Direction of a copy.
    pub dir: Option<Dir>,
    /// Stream handle; 0 is the default stream.
    pub stream: Option<u64>,
    /// Kernel handle (runtime: address of the host stub; driver: `CUfunction`) or host function.
    pub func: Option<u64>,
    /// Blocks in the grid, x y z.
    pub grid: Option<[u32; 3]>,
    /// Threads in a block, x y z.
    pub block: Option<[u32; 3]>,
    /// Dynamic shared memory for each block, bytes.
    pub shmem: Option<u64>,
    /// The memory allocated, freed or filled.
    pub ptr: Option<u64>,
    /// Elements (where `dtype` is given) or operations in a batch.
    pub count: Option<u64>,
    /// Element type of a collective.
    pub dtype: Option<&'static str>,
    /// This process's number in a communicator that is set up.
    pub rank: Option<u32>,
    /// How many are in it.
    pub nranks: Option<u32>,
    /// The handle of an event.
    pub event: Option<u64>,
    /// The device that the thread chooses.
    pub device: Option<u32>,
}
