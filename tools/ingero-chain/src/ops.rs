//! What kind of work an API name stands for: which calls give the GPU work, which wait for it, which are
//! part of warming up. Names are those of the CUDA runtime and driver API references and of NCCL.

use ingero_common::record::src;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Enqueues a kernel or a graph.
    Launch,
    /// Enqueues a copy and returns (`…Async`).
    Copy,
    /// Copies and may wait until that is done (`cudaMemcpy`, `cuMemcpyDtoH`).
    SyncCopy,
    /// Enqueues a memset, or a move of managed memory.
    Set,
    /// Waits until the GPU has finished something.
    Sync,
    /// Asks whether the GPU has finished something, without waiting.
    Query,
    /// Allocates memory.
    Alloc,
    /// Frees memory; waits for the GPU where it isn't stream-ordered.
    Free,
    /// Loads code, creates contexts, instantiates graphs: one-time work.
    Load,
    /// Gives a stream, an event or a graph back.
    Destroy,
    /// Gives a context or code back: what a program does when it ends.
    Unload,
    /// Enqueues a collective.
    Collective,
    /// Anything else.
    Other,
}

impl Class {
    /// The class of API function `op` of source `source` (`cudart`, `cuda`, `nccl`).
    pub fn of(source: &str, op: &str) -> Self {
        if source == src::NCCL {
            return Self::of_nccl(op);
        }
        let name = op.strip_prefix("cuda").or_else(|| op.strip_prefix("cu")).unwrap_or(op);
        if name.contains("Query") {
            Class::Query
        } else if name.contains("Synchronize") || name.ends_with("Sync") {
            Class::Sync
        } else if ["StreamDestroy", "EventDestroy", "GraphDestroy", "GraphExecDestroy"].iter().any(|n| name.contains(n))
        {
            Class::Destroy
        } else if name.contains("Unload")
            || ["CtxRelease", "CtxDestroy", "CtxReset", "DeviceReset"].iter().any(|n| name.contains(n))
        {
            Class::Unload
        } else if name.contains("Instantiate") || name.contains("Load") || name == "Init" || name.contains("CtxCreate")
        {
            Class::Load
        } else if name.contains("Launch") {
            Class::Launch
        } else if name.contains("Memcpy") {
            if name.contains("Async") { Class::Copy } else { Class::SyncCopy }
        } else if name.contains("Memset") || name.contains("Prefetch") {
            Class::Set
        } else if name.contains("Free") {
            Class::Free
        } else if name.contains("Alloc") || name.contains("Malloc") {
            Class::Alloc
        } else {
            Class::Other
        }
    }

    fn of_nccl(op: &str) -> Self {
        const COLLECTIVES: [&str; 9] =
            ["Reduce", "Broadcast", "Bcast", "Gather", "Scatter", "AlltoAll", "Send", "Recv", "GroupEnd"];
        if COLLECTIVES.iter().any(|c| op.contains(c)) {
            Class::Collective
        } else if op.contains("CommInit") {
            Class::Load
        } else {
            Class::Other
        }
    }

    /// Whether such a call leaves work behind for the GPU.
    pub fn enqueues(self) -> bool {
        matches!(self, Class::Launch | Class::Copy | Class::SyncCopy | Class::Set | Class::Collective)
    }

    /// Whether such a call waits for the GPU by its nature.
    pub fn waits_for_gpu(self) -> bool {
        matches!(self, Class::Sync | Class::SyncCopy | Class::Free)
    }

    /// Whether such a call is part of the process's work: gives the GPU some, or looks whether it is done.
    pub fn is_work(self) -> bool {
        self.enqueues() || matches!(self, Class::Sync | Class::Query)
    }

    /// Whether a call of API function `op` looks at something and changes nothing.
    pub fn only_asks(self, op: &str) -> bool {
        self == Class::Query || self == Class::Other && (op.contains("Get") || op.contains("Peek"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_driver_and_nccl_names() {
        let class = |op: &str| Class::of(if op.starts_with("nccl") { "nccl" } else { "cudart" }, op);
        for (op, want) in [
            ("cudaLaunchKernel", Class::Launch),
            ("cuLaunchKernelEx", Class::Launch),
            ("cudaGraphLaunch", Class::Launch),
            ("cudaGraphInstantiate", Class::Load),
            ("cudaMemcpyAsync", Class::Copy),
            ("cudaMemcpy2DToArrayAsync", Class::Copy),
            ("cudaMemcpy", Class::SyncCopy),
            ("cuMemcpyDtoH", Class::SyncCopy),
            ("cudaMemsetAsync", Class::Set),
            ("cudaMalloc", Class::Alloc),
            ("cuMemAllocManaged", Class::Alloc),
            ("cudaHostAlloc", Class::Alloc),
            ("cudaFreeHost", Class::Free),
            ("cudaStreamSynchronize", Class::Sync),
            ("cudaEventSynchronize", Class::Sync),
            ("cudaEventQuery", Class::Query),
            ("cudaEventRecord", Class::Other),
            ("cuModuleLoadData", Class::Load),
            ("cuLibraryUnload", Class::Unload),
            ("cuDevicePrimaryCtxRelease", Class::Unload),
            ("cuDevicePrimaryCtxRetain", Class::Other),
            ("cudaDeviceReset", Class::Unload),
            ("cuInit", Class::Load),
            ("cudaStreamDestroy", Class::Destroy),
            ("cuEventDestroy_v2", Class::Destroy),
            ("cuCtxDestroy", Class::Unload),
            ("cudaMemPrefetchAsync", Class::Set),
            ("cudaThreadSynchronize", Class::Sync),
            ("ncclAllReduce", Class::Collective),
            ("ncclAlltoAll", Class::Collective),
            ("ncclCommInitRank", Class::Load),
            ("ncclGetVersion", Class::Other),
        ] {
            assert_eq!(class(op), want, "{op}");
        }
    }
}
