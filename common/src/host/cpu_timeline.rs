//! Who had a CPU, as far as the switches on record tell.
//!
//! Each time off the CPU of a watched thread shows its CPU at two instants: when the thread left (it had the CPU, `by` took
//! it) and when it came back (`prev` had it, the thread took it). The CPU that it left is the one that it last came back
//! on. Put in order, the switches of one CPU say who had it from one to the next:
//!
//! ```text
//!   records on CPU 0                          switches        from … to      came   left   had it
//!   A off 10-24, by B, prev C                 10  A -> B       10-16 ms       B      B      B, all of it
//!   B off 16-31, by C, prev x                 16  B -> C       16-24          C      C      C, all of it
//!   (C is not watched)                        24  C -> A       24-31          A      x      A for half, x for half:
//!                                             31  x -> B                                    A left, it is not known when
//! ```
//!
//! So of A's wait from 10 to 24 B had 6 ms and C 8 ms. Where the one who came and the one who left differ, others may have
//! been there in between; each of the two is given half, which is right on average and never more than the stretch. The idle
//! task and whoever waits had no CPU: then the other of the two is given all.
//!
//! A thread that ends does so on its CPU, and is seen to leave it then.
//!
//! Switchs come late: a thread's leaving is only told of when it comes back. So that the answer doesn't depend on when it
//! is asked for, what became known later than `KNOWN_WITHIN_NS` after the end of a wait isn't used for it. And a thread of
//! which records were lost may have moved to another CPU unseen: where it seemed to leave since then isn't used either.
//!
//! Memory: two switches for each record, forgotten with the records, `MAX_SWITCHES` at most; without the oldest of them a
//! wait is shared by those that are left.

use super::HashMap;
use super::interner::Thread;

/// 48 bytes each.
const MAX_SWITCHES: usize = 400_000;
/// Some are forgotten whenever so many have come: it costs more than to keep them for a while.
const FORGET_EVERY: usize = 65_536;
/// What is told of so much later isn't used: gaps wait a little longer to be settled.
const KNOWN_WITHIN_NS: u64 = 1_200_000_000;
/// CPUs that are told apart: more than any machine has.
const MAX_CPUS: usize = 8192;

/// One switch on one CPU.
#[derive(Clone, Copy, Debug)]
struct Switch {
    at_ns: u64,
    /// Who left; pid 0 = the idle task, or not on record.
    out: Thread,
    /// Who came.
    into: Thread,
    /// When it was told of: see `later_ns`.
    known: u32,
    /// Since when that CPU is known to be the one.
    since: u32,
}

impl Switch {
    fn known_ns(&self) -> u64 {
        self.at_ns + (u64::from(self.known) << SHIFT)
    }

    fn since_ns(&self) -> u64 {
        self.at_ns.saturating_sub(u64::from(self.since) << SHIFT)
    }
}

/// Distances in time are kept in 1,024 ns, rounded up, and cut at 73 minutes.
const SHIFT: u32 = 10;

fn distance(from_ns: u64, to_ns: u64) -> u32 {
    u32::try_from(to_ns.saturating_sub(from_ns).div_ceil(1 << SHIFT)).unwrap_or(u32::MAX)
}

#[derive(Debug, Default)]
struct Cpu {
    switches: Vec<Switch>,
    /// So many are in order.
    sorted: usize,
}

impl Cpu {
    fn sort(&mut self) {
        if self.sorted < self.switches.len() {
            // Of equal times are only the two sides of one switch, which say the same.
            self.switches.sort_by_key(|s| s.at_ns);
            self.sorted = self.switches.len();
        }
    }

    /// Drops what lies before `before_ns` but the last of it: who came then may have had the CPU for long.
    fn forget(&mut self, before_ns: u64) {
        self.sort();
        let gone = self.switches.partition_point(|s| s.at_ns < before_ns).saturating_sub(1);
        self.switches.drain(..gone);
        self.sorted = self.switches.len();
        if self.switches.capacity() > 64 && self.switches.len() < self.switches.capacity() / 4 {
            self.switches.shrink_to(self.switches.len() * 2);
        }
    }
}

/// When a thread came back on a CPU, and which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchedIn {
    /// CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The CPU's number.
    pub cpu: u32,
}

/// The switches of all CPUs.
#[derive(Debug, Default)]
pub struct CpuTimeline {
    cpus: HashMap<u32, Cpu>,
    len: usize,
    /// What was left when some were last forgotten.
    kept: usize,
}

impl CpuTimeline {
    /// `thread` left the CPU that it had come on, at `at_ns`, and `by` took it; that was told of at `known_ns`.
    pub fn switched_out(&mut self, thread: Thread, came: SwitchedIn, at_ns: u64, by: Thread, known_ns: u64) {
        let (known, since) = (distance(at_ns, known_ns), distance(came.at_ns, at_ns));
        self.add(came.cpu, Switch { at_ns, out: thread, into: by, known, since });
    }

    /// `thread` came on a CPU that `prev` had had.
    pub fn switched_in(&mut self, thread: Thread, came: SwitchedIn, prev: Thread) {
        self.add(came.cpu, Switch { at_ns: came.at_ns, out: prev, into: thread, known: 0, since: 0 });
    }

    fn add(&mut self, cpu: u32, switch: Switch) {
        if self.cpus.len() < MAX_CPUS || self.cpus.contains_key(&cpu) {
            self.cpus.entry(cpu).or_default().switches.push(switch);
            self.len += 1;
        }
    }

    /// Puts in order what has come since the last time: before [`Self::holders`] is asked.
    pub fn sort(&mut self) {
        self.cpus.values_mut().for_each(Cpu::sort);
    }

    /// Before this instant nothing more is asked. If more than `MAX_SWITCHES` are left, half of what is older than
    /// `now_ns` goes, and again.
    pub fn forget_before(&mut self, horizon_ns: u64, now_ns: u64) {
        if self.len < self.kept + FORGET_EVERY {
            return;
        }
        let mut before_ns = horizon_ns;
        loop {
            self.cpus.values_mut().for_each(|cpu| cpu.forget(before_ns));
            self.len = self.cpus.values().map(|cpu| cpu.switches.len()).sum();
            self.kept = self.len;
            if self.len <= MAX_SWITCHES / 4 * 3 || before_ns >= now_ns {
                return;
            }
            let oldest_ns = self.cpus.values().filter_map(|cpu| cpu.switches.get(1)).map(|s| s.at_ns).min();
            before_ns = before_ns.max(oldest_ns.unwrap_or(now_ns));
            before_ns += (now_ns.saturating_sub(before_ns)).div_ceil(2);
        }
    }

    /// Who had `cpu` in [`from_ns`, `to_ns`], which `waiting` waited for: threads with their nanoseconds, no more than its
    /// length in all. `lost_ns`: the last instant by then at which records were lost.
    pub fn holders(
        &self,
        cpu: u32,
        waiting: Thread,
        from_ns: u64,
        to_ns: u64,
        lost_ns: Option<u64>,
    ) -> Vec<(Thread, u64)> {
        let Some(cpu) = self.cpus.get(&cpu) else { return Vec::new() };
        let all = &cpu.switches[..cpu.sorted];
        let usable = |s: &&Switch| {
            s.known_ns() <= to_ns.saturating_add(KNOWN_WITHIN_NS)
                && (s.since == 0 || lost_ns.is_none_or(|lost_ns| s.since_ns() >= lost_ns))
        };
        let first = all.partition_point(|s| s.at_ns <= from_ns);
        let mut last = all[..first].iter().rev().take(MAX_BACK).find(usable);
        let mut had = Vec::new();
        for next in all[first..].iter().filter(usable) {
            Stretch { last, next: Some(next) }.share(waiting.tid, from_ns, to_ns, &mut had);
            last = Some(next);
            if next.at_ns >= to_ns {
                return had;
            }
        }
        Stretch { last, next: None }.share(waiting.tid, from_ns, to_ns, &mut had);
        had
    }
}

/// So many switches that aren't usable are gone back over.
const MAX_BACK: usize = 64;

/// From one switch of a CPU to the next.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    last: Option<&'a Switch>,
    next: Option<&'a Switch>,
}

impl Stretch<'_> {
    /// Adds who had the CPU in that part of it that lies in [`from_ns`, `to_ns`].
    fn share(self, waiting_tid: u32, from_ns: u64, to_ns: u64, had: &mut Vec<(Thread, u64)>) {
        let known = |who: Thread| Some(who).filter(|who| who.pid != 0 && who.tid != waiting_tid);
        let came = self.last.and_then(|s| known(s.into));
        let left = self.next.and_then(|s| known(s.out));
        let (start_ns, end_ns) = (self.last.map_or(0, |s| s.at_ns), self.next.map_or(u64::MAX, |s| s.at_ns));
        let half_ns = match (came, left) {
            (Some(_), Some(_)) => start_ns + (end_ns - start_ns) / 2,
            (Some(_), None) => end_ns,
            (None, _) => start_ns,
        };
        let clipped = |from: u64, to: u64| to.min(to_ns).saturating_sub(from.max(from_ns));
        let parts = [(came, clipped(start_ns, half_ns)), (left, clipped(half_ns, end_ns))];
        for (who, ns) in parts.into_iter().filter_map(|(who, ns)| who.map(|who| (who, ns))) {
            match had.last_mut() {
                Some((last, sum)) if *last == who => *sum += ns,
                _ if ns > 0 => had.push((who, ns)),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Name;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn thread(tid: u32) -> Thread {
        Thread { pid: tid, tid, name: Name::default() }
    }

    fn came(at_ms: u64, cpu: u32) -> SwitchedIn {
        SwitchedIn { at_ns: at_ms * MS, cpu }
    }

    fn holders(
        cpu_timeline: &CpuTimeline,
        waiting: u32,
        from_ms: u64,
        to_ms: u64,
        lost_ns: Option<u64>,
    ) -> Vec<(u32, u64)> {
        let had = cpu_timeline.holders(0, thread(waiting), from_ms * MS, to_ms * MS, lost_ns);
        had.into_iter().map(|(who, ns)| (who.tid, ns / MS)).collect()
    }

    /// The example of this file's head: A, B, C and x are 1, 2, 3 and 9.
    fn example() -> CpuTimeline {
        let mut all = CpuTimeline::default();
        all.switched_in(thread(1), came(8, 0), thread(9));
        all.switched_out(thread(1), came(8, 0), 10 * MS, thread(2), 24 * MS);
        all.switched_in(thread(1), came(24, 0), thread(3));
        all.switched_in(thread(2), came(10, 0), thread(1));
        all.switched_out(thread(2), came(10, 0), 16 * MS, thread(3), 31 * MS);
        all.switched_in(thread(2), came(31, 0), thread(9));
        all.sort();
        all
    }

    #[test]
    fn who_was_seen_to_come_and_to_leave_had_it() {
        let all = example();
        assert_eq!(holders(&all, 1, 10, 24, None), [(2, 6), (3, 8)]);
        assert_eq!(holders(&all, 1, 12, 20, None), [(2, 4), (3, 4)]);
        assert_eq!(holders(&all, 2, 16, 31, None), [(3, 8), (1, 3), (9, 3)]);
        assert_eq!(holders(&all, 7, 40, 50, None), [(2, 10)], "came last");
        assert_eq!(holders(&all, 7, 0, 4, None), [(9, 4)], "was there first");
        assert_eq!(holders(&all, 2, 40, 50, None), [], "who waits has no CPU");
        assert_eq!(all.holders(1, thread(1), 0, 50, None), []);
    }

    #[test]
    fn where_a_thread_left_after_a_loss_is_not_known() {
        let all = example();
        // B came back at 10 by its record; another may be missing since.
        assert_eq!(holders(&all, 1, 10, 24, Some(11 * MS)), [(2, 7), (3, 7)]);
        assert_eq!(holders(&all, 1, 10, 24, Some(9 * MS)), [(2, 6), (3, 8)]);
    }

    #[test]
    fn what_is_told_of_much_later_changes_nothing() {
        let mut all = example();
        let before = holders(&all, 1, 10, 24, None);
        all.switched_out(thread(3), came(16, 0), 20 * MS, thread(5), 24 * MS + KNOWN_WITHIN_NS + 5 * MS);
        all.sort();
        assert_eq!(holders(&all, 1, 10, 24, None), before);
        all.switched_out(thread(3), came(16, 0), 20 * MS, thread(5), 24 * MS + KNOWN_WITHIN_NS - 5 * MS);
        all.sort();
        assert_eq!(holders(&all, 1, 10, 24, None), [(2, 6), (3, 4), (5, 2), (3, 2)]);
    }

    #[test]
    fn memory_is_bounded_and_who_came_last_is_remembered() {
        let mut all = CpuTimeline::default();
        for i in 0..MAX_SWITCHES as u64 {
            all.switched_in(thread(1), came(i, (i % 3) as u32), thread(2));
        }
        all.forget_before(5 * MS, MAX_SWITCHES as u64 * MS);
        assert!(all.len <= MAX_SWITCHES / 4 * 3 && all.len > MAX_SWITCHES / 4);
        let mut all = example();
        all.cpus.values_mut().for_each(|cpu| cpu.forget(30 * MS));
        assert_eq!((all.cpus[&0].switches.len(), holders(&all, 2, 25, 30, None)), (2, vec![(1, 2), (9, 2)]), "{all:?}");
    }

    /// A CPU on which threads take turns: (thread, how long). Those below 100 are watched.
    fn played(turns: &[(u32, u64)]) -> (CpuTimeline, Vec<(u32, u64, u64)>) {
        let (mut all, mut at_ns, mut stints) = (CpuTimeline::default(), 0, Vec::new());
        for &(tid, ns) in turns {
            stints.push((tid, at_ns, at_ns + ns));
            at_ns += ns;
        }
        for (i, &(tid, from_ns, to_ns)) in stints.iter().enumerate().filter(|(_, stint)| stint.0 < 100) {
            let cpu = SwitchedIn { at_ns: from_ns, cpu: 0 };
            all.switched_in(thread(tid), cpu, i.checked_sub(1).map_or(Thread::default(), |i| thread(stints[i].0)));
            let again = stints[i + 1..].iter().find(|stint| stint.0 == tid);
            if let (Some(next), Some(again)) = (stints.get(i + 1), again) {
                all.switched_out(thread(tid), cpu, to_ns, thread(next.0), again.1);
            }
        }
        all.sort();
        (all, stints)
    }

    proptest! {
        /// Where all are watched, the answer is the truth; where some are not, nothing is given twice, and who is watched is
        /// given no less than half of what it had.
        #[test]
        fn the_answer_is_the_truth_as_far_as_it_is_on_record(
            turns in prop::collection::vec((prop_oneof![1..4_u32, 101..104_u32], 1..40_u64), 2..60),
            all_watched in any::<bool>(), from in 0..400_u64, len in 1..200_u64,
        ) {
            let mut turns: Vec<(u32, u64)> = turns.iter().map(|&(tid, n)| (if all_watched { tid % 100 } else { tid }, n * MS / 8)).collect();
            turns.dedup_by_key(|turn| turn.0);
            let (all, stints) = played(&turns);
            let end_ns = stints[stints.len() - 1].2;
            let (from_ns, to_ns) = ((from * MS / 4).min(end_ns), ((from + len) * MS / 4).min(end_ns));
            let had = all.holders(0, thread(999), from_ns, to_ns, None);
            prop_assert!(had.iter().map(|(_, ns)| ns).sum::<u64>() <= to_ns - from_ns);
            if all_watched {
                let mut truth: std::collections::BTreeMap<u32, u64> = Default::default();
                for &(tid, start_ns, stop_ns) in &stints {
                    *truth.entry(tid).or_default() += stop_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
                }
                truth.retain(|_, ns| *ns > 0);
                let mut said: std::collections::BTreeMap<u32, u64> = Default::default();
                had.iter().for_each(|(who, ns)| *said.entry(who.tid).or_default() += ns);
                prop_assert_eq!(said, truth);
            }
        }
    }
}
