//! NCCL (`nccl.h`).

use super::Class::{self, *};
use super::{Device, Function};
use crate::discover::LibraryKind;

const fn of(class: Class) -> Function {
    Function::group(LibraryKind::Nccl, class)
}

#[rustfmt::skip]
pub(super) static FUNCTIONS: &[&[Function]] = &[
    // They return when the work has been enqueued.
    &of(Collective).named([
        "ncclAllReduce", "ncclAllReduceConfig", "ncclReduceScatter", "ncclReduceScatterConfig", "ncclReduce",
        "ncclReduceConfig", "ncclAllGather", "ncclAllGatherConfig", "ncclAlltoAll", "ncclAlltoAllConfig",
        "ncclBroadcast", "ncclBroadcastConfig", "ncclBcast", "ncclGather", "ncclGatherConfig", "ncclScatter",
        "ncclScatterConfig", "ncclSend", "ncclRecv", "ncclPutSignal", "ncclSignal", "ncclWaitSignal",
    ]),
    // The calls of a group only collect; its end is what launches them and may block.
    &of(Collective).named(["ncclGroupEnd"]),
    &of(Alloc).named(["ncclMemAlloc"]),
    &of(Free).may_synchronize().named(["ncclMemFree"]),
    &of(Register).untraced().named([
        "ncclCommRegister", "ncclCommDeregister", "ncclCommWindowRegister", "ncclCommWindowDeregister",
    ]),
    &of(Init).named([
        "ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommSplit", "ncclCommShrink",
    ]),
    &of(Init).device(Device::Several).named(["ncclCommInitAll"]),
    &of(Init).untraced().named(["ncclGetUniqueId", "ncclCommGetUniqueId", "ncclCommGrow", "ncclCommResume"]),
    // "Flushes all issued communications".
    &of(Unload).may_synchronize().named(["ncclCommFinalize", "ncclCommDestroy"]),
    &of(Unload).named(["ncclCommAbort"]),
    &of(Unload).untraced().named(["ncclCommRevoke", "ncclCommSuspend"]),
    &of(Get).untraced().named([
        "ncclGetVersion", "ncclGetErrorString", "ncclGetLastError", "ncclCommGetAsyncError", "ncclCommCount",
        "ncclCommCuDevice", "ncclCommUserRank", "ncclCommMemStats", "ncclWinGetUserPtr", "ncclGroupSimulateEnd",
    ]),
    &of(Destroy).untraced().named(["ncclRedOpDestroy"]),
    &of(Other).untraced().named(["ncclGroupStart", "ncclRedOpCreatePreMulSum"]),
];
