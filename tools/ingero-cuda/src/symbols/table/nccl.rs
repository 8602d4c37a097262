//! NCCL (`nccl.h`). `bytes` is `count` elements: what this rank gives to the call, whatever the algorithm sends.

use ingero_common::discover::LibraryKind;

use crate::symbols::op::OpClass::*;
use crate::symbols::op::Param::*;
use crate::symbols::op::{Op, OpClass, Param};

const fn op(name: &'static str, class: OpClass, params: &'static [Param]) -> Op {
    Op::new(LibraryKind::Nccl, name, class, params)
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
pub(super) const OPS: &[Op] = &[
    op("ncclAllReduce", Collective, REDUCING),
    op("ncclAllReduceConfig", Collective, REDUCING),
    op("ncclReduceScatter", Collective, REDUCING),
    op("ncclReduceScatterConfig", Collective, REDUCING),
    op("ncclReduce", Collective, REDUCING_TO_ROOT),
    op("ncclReduceConfig", Collective, REDUCING_TO_ROOT),
    op("ncclAllGather", Collective, GATHERING),
    op("ncclAllGatherConfig", Collective, GATHERING),
    op("ncclAlltoAll", Collective, GATHERING),
    op("ncclAlltoAllConfig", Collective, GATHERING),
    op("ncclBroadcast", Collective, ROOTED),
    op("ncclBroadcastConfig", Collective, ROOTED),
    op("ncclGather", Collective, ROOTED),
    op("ncclGatherConfig", Collective, ROOTED),
    op("ncclScatter", Collective, ROOTED),
    op("ncclScatterConfig", Collective, ROOTED),
    op("ncclBcast", Collective, ONE_BUFFER),
    op("ncclSend", Collective, ONE_BUFFER),
    op("ncclRecv", Collective, ONE_BUFFER),
    op("ncclPutSignal", Collective, &[Skip, Count, Dtype, Skip, Skip, Skip, Skip, Skip, Skip, Skip, Stream]),
    op("ncclSignal", Collective, &[Skip, Skip, Skip, Skip, Skip, Stream]),
    op("ncclWaitSignal", Collective, &[Skip, Skip, Skip, Stream]),
    // The calls of a group only collect; its end is what launches them and may block.
    op("ncclGroupEnd", Collective, &[]),

    op("ncclMemAlloc", Alloc, &[Out, Size]),
    op("ncclMemFree", Free, &[Ptr]),
    op("ncclCommInitRank", Init, JOINING),
    op("ncclCommInitRankConfig", Init, JOINING),
    // comm, ranks, rank, number of ids, ids, config.
    op("ncclCommInitRankScalable", Init, &[Skip, Ranks, Rank]),
    op("ncclCommInitAll", Init, &[]),
    op("ncclCommSplit", Init, &[]),
    op("ncclCommShrink", Init, &[]),
    op("ncclCommFinalize", Init, &[]),
    op("ncclCommDestroy", Init, &[]),
    op("ncclCommAbort", Init, &[]),
];
