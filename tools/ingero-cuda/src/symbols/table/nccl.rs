//! NCCL (`nccl.h`). `bytes` is `count` elements: what this rank gives to the call, whatever the algorithm sends.

use ingero_common::discover::LibraryKind;

use crate::symbols::signature::Param::*;
use crate::symbols::signature::{Param, Signature};

const fn of(name: &str, params: &'static [Param]) -> Signature {
    Signature::new(LibraryKind::Nccl, name, params)
}

/// send, recv, count, type, reduction, comm, stream.
const REDUCING: &[Param] = &[Skip, Skip, Count, Dtype, Skip, Skip, Stream];
/// send, recv, count, type, reduction, root, comm, stream.
const REDUCING_TO_ROOT: &[Param] = &[Skip, Skip, Count, Dtype, Skip, Skip, Skip, Stream];
/// send, recv, count, type, comm, stream.
const GATHERING: &[Param] = &[Skip, Skip, Count, Dtype, Skip, Stream];
/// send, recv, count, type, root, comm, stream.
const ROOTED: &[Param] = &[Skip, Skip, Count, Dtype, Skip, Skip, Stream];
/// buffer, count, type, peer or root, comm, stream.
const ONE_BUFFER: &[Param] = &[Skip, Count, Dtype, Skip, Skip, Stream];

/// comm, ranks, id, rank: `ncclUniqueId` is a structure of 128 bytes that is passed by value, on the stack (x86-64) or by
/// reference (Arm).
const JOINING: &[Param] = &[Skip, Ranks, SkipBytes(128), Rank];

#[rustfmt::skip]
pub(super) const SIGNATURES: &[Signature] = &[
    of("ncclAllReduce", REDUCING),
    of("ncclAllReduceConfig", REDUCING),
    of("ncclReduceScatter", REDUCING),
    of("ncclReduceScatterConfig", REDUCING),
    of("ncclReduce", REDUCING_TO_ROOT),
    of("ncclReduceConfig", REDUCING_TO_ROOT),
    of("ncclAllGather", GATHERING),
    of("ncclAllGatherConfig", GATHERING),
    of("ncclAlltoAll", GATHERING),
    of("ncclAlltoAllConfig", GATHERING),
    of("ncclBroadcast", ROOTED),
    of("ncclBroadcastConfig", ROOTED),
    of("ncclGather", ROOTED),
    of("ncclGatherConfig", ROOTED),
    of("ncclScatter", ROOTED),
    of("ncclScatterConfig", ROOTED),
    of("ncclBcast", ONE_BUFFER),
    of("ncclSend", ONE_BUFFER),
    of("ncclRecv", ONE_BUFFER),
    of("ncclPutSignal", &[Skip, Count, Dtype, Skip, Skip, Skip, Skip, Skip, Skip, Skip, Stream]),
    of("ncclSignal", &[Skip, Skip, Skip, Skip, Skip, Stream]),
    of("ncclWaitSignal", &[Skip, Skip, Skip, Stream]),
    // The calls of a group only collect; its end is what launches them and may block.
    of("ncclGroupEnd", &[]),

    of("ncclMemAlloc", &[Out, Size]),
    of("ncclMemFree", &[Ptr]),
    of("ncclCommInitRank", JOINING),
    of("ncclCommInitRankConfig", JOINING),
    // comm, ranks, rank, number of ids, ids, config.
    of("ncclCommInitRankScalable", &[Skip, Ranks, Rank]),
    of("ncclCommInitAll", &[]),
    of("ncclCommSplit", &[]),
    of("ncclCommShrink", &[]),
    of("ncclCommFinalize", &[]),
    of("ncclCommDestroy", &[]),
    of("ncclCommAbort", &[]),
];
