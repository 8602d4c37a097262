//! Threads and processes as records name them.

use super::interner::Name;

/// A thread as records name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Process (TGID).
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its `comm` when it was seen.
    pub name: Name,
}

/// Who a cause points at. The default is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Task {
    /// Process (TGID); 0 = nobody.
    pub pid: u32,
    /// Name of the thread.
    pub name: Name,
}

impl Thread {
    /// The thread as a cause points at it: its process, and its name.
    pub fn task(self) -> Task {
        Task { pid: self.pid, name: self.name }
    }
}
