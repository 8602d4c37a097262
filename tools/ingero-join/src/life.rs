//! Lives: the instants at which a PID or a TID changes hands, and whether two instants belong to one life.

use std::collections::VecDeque;

/// So many of the latest boundaries are kept. Older ones only matter to a record that is stale by as
/// many lives; the oldest kept one still bounds it.
const KEPT: usize = 32;

/// The boundaries (exits, forks, execs) of one process or one thread, in order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    boundaries_ns: VecDeque<u64>,
}

impl Life {
    /// One life ends or the next one begins at `at_ns`.
    pub(crate) fn bound(&mut self, at_ns: u64) {
        let at = self.boundaries_ns.partition_point(|&b| b < at_ns);
        if self.boundaries_ns.get(at) == Some(&at_ns) {
            return;
        }
        self.boundaries_ns.insert(at, at_ns);
        if self.boundaries_ns.len() > KEPT {
            self.boundaries_ns.pop_front();
        }
    }

    /// Whether the instants `a_ns` and `b_ns` belong to one life: no boundary lies after the earlier
    /// one, up to the later one. What happens at a boundary belongs to the life that begins there.
    pub(crate) fn same(&self, a_ns: u64, b_ns: u64) -> bool {
        let (from, to) = (a_ns.min(b_ns), a_ns.max(b_ns));
        self.next_after(from).is_none_or(|boundary| boundary > to)
    }

    /// The first boundary after `at_ns`: where the life that `at_ns` belongs to ends.
    pub(crate) fn next_after(&self, at_ns: u64) -> Option<u64> {
        self.boundaries_ns.get(self.boundaries_ns.partition_point(|&b| b <= at_ns)).copied()
    }

    /// Whether there is any boundary.
    pub(crate) fn is_bounded(&self) -> bool {
        !self.boundaries_ns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_belongs_to_what_begins_there() {
        let mut life = Life::default();
        assert!(life.same(0, u64::MAX));
        life.bound(20);
        life.bound(10);
        life.bound(20);
        assert!(life.same(3, 9) && life.same(9, 3));
        assert!(life.same(10, 19) && !life.same(9, 10) && !life.same(20, 19));
        assert!(!life.same(5, 25) && life.same(20, 99));
        assert_eq!((life.next_after(9), life.next_after(10), life.next_after(20)), (Some(10), Some(20), None));
    }

    #[test]
    fn old_boundaries_make_room() {
        let mut life = Life::default();
        for at in 0..1000 {
            life.bound(at);
        }
        assert_eq!(life.boundaries_ns.len(), KEPT);
        assert!(!life.same(5, 999) && life.same(999, 5000));
    }
}
