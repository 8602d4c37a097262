//! The function that a thread was in when it was not in Python's own: the innermost one, which is known whatever the compiler did.

use super::Place;

/// What is known of the code of processes.
#[derive(Debug, Default)]
pub(crate) struct Natives {}

impl Natives {
    /// The function at `ip` of process `pid`; `None` where that is not known, or is the interpreter's own loop.
    pub(super) fn place(&mut self, _pid: u32, _ip: u64) -> Option<Place> {
        None
    }

    /// The process has ended, or is another program now.
    pub(super) fn forget(&mut self, _pid: u32) {}
}
