//! Records that came after their place in the output had passed are written, flagged, and told of: one
//! `lost` record a window for each stream, not one for each.

use std::time::Duration;

/// What a `lost` record with `why` "late" will say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) stream: String,
    pub(crate) count: u64,
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
}

/// Late records that no `lost` record has told of yet.
#[derive(Debug, Default)]
pub(crate) struct Late {
    groups: Vec<Group>,
    /// How far the output was when the first of them came.
    since_ns: u64,
}

impl Late {
    /// A late record of `stream` at [`start_ns`, `end_ns`], while the output was at `now_ns`.
    pub(crate) fn add(&mut self, stream: &str, start_ns: u64, end_ns: u64, now_ns: u64) {
        if self.groups.is_empty() {
            self.since_ns = now_ns;
        }
        match self.groups.iter_mut().find(|g| g.stream == stream) {
            Some(group) => {
                group.count += 1;
                group.start_ns = group.start_ns.min(start_ns);
                group.end_ns = group.end_ns.max(end_ns);
            }
            None => self.groups.push(Group { stream: stream.to_owned(), count: 1, start_ns, end_ns }),
        }
    }

    /// Whether it is time to tell, the output being at `now_ns`.
    pub(crate) fn is_due(&self, now_ns: u64, window: Duration) -> bool {
        !self.groups.is_empty() && u128::from(now_ns.saturating_sub(self.since_ns)) >= window.as_nanos()
    }

    /// What to tell, once.
    pub(crate) fn take(&mut self) -> Vec<Group> {
        std::mem::take(&mut self.groups)
    }
}
