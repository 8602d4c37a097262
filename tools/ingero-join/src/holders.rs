//! Who had a CPU: the same few processes over and over, each kept in memory once.

use std::sync::Arc;

use ingero_common::record::Who;

/// A process that had a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    pub(crate) comm: Box<str>,
}

/// Remembers the latest holder for each remainder of the PID: enough to share nearly all, and bounded.
#[derive(Debug)]
pub(crate) struct Holders {
    latest: Vec<Option<Arc<Holder>>>,
}

const SLOTS: usize = 256;

impl Holders {
    pub(crate) fn new() -> Self {
        Self { latest: vec![None; SLOTS] }
    }

    /// The holder that `who` names.
    pub(crate) fn get(&mut self, who: &Who<'_>) -> Arc<Holder> {
        let slot = &mut self.latest[who.pid as usize % SLOTS];
        match slot {
            Some(holder) if holder.pid == who.pid && *holder.comm == *who.comm => Arc::clone(holder),
            _ => Arc::clone(slot.insert(Arc::new(Holder { pid: who.pid, comm: (&*who.comm).into() }))),
        }
    }
}
