//! The account of one process: the class of each nanosecond, and the time that it lost, from its loop's beginning on.
//!
//! When the loop began is only known once the process has done the same for a while. Until then everything is kept in order
//! (`early`), and then counted: what came before the loop is start-up.

use std::collections::BTreeMap;

use crate::limits::{MAX_EARLY, MAX_KINDS};
use crate::process::class::{Class, Classes};
use crate::process::lost::{Lost, LostSum};
use crate::stats::calls::GroupKey;

/// What is counted, in the order of time.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// Time of classes that are not lost.
    Span { start_ns: u64, end_ns: u64, classes: Classes },
    /// Lost time, and the call that it went before.
    Lost(Box<Lost>, GroupKey),
}

impl Entry {
    pub(crate) fn end_ns(&self) -> u64 {
        match self {
            Entry::Span { end_ns, .. } => *end_ns,
            Entry::Lost(lost, _) => lost.end_ns,
        }
    }

    fn start_ns(&self) -> u64 {
        match self {
            Entry::Span { start_ns, .. } => *start_ns,
            Entry::Lost(lost, _) => lost.start_ns,
        }
    }
}

/// The account so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Until it is known when the loop began.
    early: Vec<Entry>,
    settled: bool,
    /// From the beginning of what was counted.
    pub(crate) classes: Classes,
    /// Where the loop begins: the end of the start-up.
    pub(crate) loop_start_ns: Option<u64>,
    /// The end of the last work, or of the wait for it.
    pub(crate) loop_end_ns: u64,
    /// Lost time by the call that it went before.
    pub(crate) lost: BTreeMap<GroupKey, LostSum>,
}

impl Ledger {
    /// Counts something that ended by the process's last work.
    pub(crate) fn add(&mut self, entry: Entry) {
        self.loop_end_ns = self.loop_end_ns.max(entry.end_ns());
        if self.settled {
            return self.count(entry);
        }
        match (self.early.last_mut(), &entry) {
            (Some(Entry::Span { end_ns, classes, .. }), Entry::Span { end_ns: to_ns, classes: more, start_ns })
                if *end_ns == *start_ns =>
            {
                *end_ns = *to_ns;
                classes.add_all(more);
            }
            _ => self.early.push(entry),
        }
    }

    /// Time before the loop.
    pub(crate) fn start_up(&mut self, ns: u64) {
        self.classes.add(Class::StartUp, ns);
    }

    /// Lost intervals of which it is not decided yet whether they are part of the start-up: start and length.
    pub(crate) fn early_lost(&self) -> impl Iterator<Item = (u64, u64)> {
        self.early.iter().filter_map(|entry| match entry {
            Entry::Lost(lost, _) => Some((lost.start_ns, lost.len_ns())),
            Entry::Span { .. } => None,
        })
    }

    /// Whether it is still open when the loop began.
    pub(crate) fn is_early(&self) -> bool {
        !self.settled
    }

    /// Whether so much has come that it has to be decided now.
    pub(crate) fn is_full(&self) -> bool {
        self.early.len() > MAX_EARLY
    }

    /// The loop began at `at_ns`, which is the end of a lost interval or before all of them.
    pub(crate) fn begin_loop(&mut self, at_ns: u64) {
        self.settled = true;
        for entry in std::mem::take(&mut self.early) {
            if entry.end_ns() <= at_ns {
                self.start_up(entry.end_ns() - entry.start_ns());
            } else {
                self.count(entry);
            }
        }
    }

    fn count(&mut self, entry: Entry) {
        self.loop_start_ns.get_or_insert(entry.start_ns());
        match entry {
            Entry::Span { classes, .. } => self.classes.add_all(&classes),
            Entry::Lost(lost, call) => {
                let class = if lost.proven { Class::Idle } else { Class::Silence };
                self.classes.add(class, lost.len_ns());
                let known = self.lost.len() < MAX_KINDS || self.lost.contains_key(&call);
                self.lost.entry(if known { call } else { GroupKey::default() }).or_default().add(*lost);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::breakdown::Breakdown;
    use ingero_common::host::Interner;

    fn span(start_ns: u64, end_ns: u64) -> Entry {
        Entry::Span { start_ns, end_ns, classes: Classes::of(Class::Enqueue, end_ns - start_ns) }
    }

    fn lost(start_ns: u64, end_ns: u64, proven: bool, call: GroupKey) -> Entry {
        let mut breakdown = Breakdown::default();
        breakdown.add_unexplained(end_ns - start_ns);
        let lost = Lost { start_ns, end_ns, proven, seq: 0, lost_records: 0, watched_ns: 0, breakdown };
        Entry::Lost(Box::new(lost), call)
    }

    #[test]
    fn what_came_before_the_loop_is_start_up_whatever_it_was() {
        let mut ledger = Ledger::default();
        let call = GroupKey::default();
        ledger.start_up(5);
        for entry in [span(5, 10), span(10, 20), lost(20, 120, true, call), span(120, 130), lost(130, 150, false, call)]
        {
            ledger.add(entry);
        }
        assert_eq!((ledger.early.len(), ledger.classes.total_ns()), (4, 5), "spans that meet are one");
        assert_eq!(ledger.early_lost().collect::<Vec<_>>(), [(20, 100), (130, 20)]);
        ledger.begin_loop(120);
        ledger.add(span(150, 151));
        let of = |class| ledger.classes.get(class);
        assert_eq!((of(Class::StartUp), of(Class::Idle), of(Class::Silence), of(Class::Enqueue)), (120, 0, 20, 11));
        assert_eq!((ledger.loop_start_ns, ledger.is_early()), (Some(120), false));
        assert_eq!((ledger.lost[&call].n, ledger.lost[&call].proven_ns), (1, 0));
    }

    #[test]
    fn a_start_that_is_never_over_is_counted_in_the_end() {
        let mut ledger = Ledger::default();
        for n in 0..65_536 {
            ledger.add(lost(2 * n, 2 * n + 1, true, GroupKey::default()));
            assert!(!ledger.is_full(), "{n}");
        }
        ledger.add(lost(200_000, 200_001, true, GroupKey::default()));
        assert!(ledger.is_full());
    }

    #[test]
    fn kinds_of_calls_beyond_the_bound_are_one() {
        let (mut ledger, mut names) = (Ledger::default(), Interner::default());
        ledger.begin_loop(0);
        let keys: Vec<GroupKey> =
            (0..600).map(|n| GroupKey { op: names.id(&format!("cudaCall{n}")), ..GroupKey::default() }).collect();
        for (n, &key) in keys.iter().chain(&keys).enumerate() {
            ledger.add(lost(10 * n as u64, 10 * n as u64 + 3, true, key));
        }
        // The 512 first, and one for all others.
        assert_eq!((ledger.lost.len(), ledger.lost[&keys[511]].n), (513, 2));
        assert_eq!(ledger.lost[&GroupKey::default()].n, 2 * 88);
        assert_eq!(ledger.lost.values().map(|sum| sum.lost_ns).sum::<u64>(), ledger.classes.get(Class::Idle));
    }
}
