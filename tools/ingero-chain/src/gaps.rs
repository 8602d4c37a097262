//! Gaps: time in which no traced call was in flight in the whole process.
//!
//! Calls of all threads are one union. Records come in the order of their *ends*, so a long call of one
//! thread arrives after the short ones that it covers, and cuts what looked like a gap:
//!
//! ```text
//!   thread 1   ██                     ██            arrives  1st, 2nd -> between (2, 23)
//!   thread 2        ██████████████                  arrives  … when? it ends at 17: before the 2nd
//!   thread 3          ███████████████████████████   ends at 35, after both: cuts (17, 23) away, leaves (2, 5)
//!              0 2  5            17   23  25     35
//! ```
//!
//! A stretch between calls is therefore only settled (its cause looked for) when every thread that makes
//! calls has been seen to begin one after it, or has ended, or has been silent for long.
//!
//! Who has been silent for long may still be in a call, and be so for minutes. What was settled meanwhile holds until the
//! record of that call comes: then the call is cut out of it. A rest of a settled stretch keeps no causes, since what its
//! thread went through in exactly that part may be forgotten by then; there are two such rests for a call at most.
//!
//! ```text
//!   thread 1   █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █ █            the stretches after 10 s are settled…
//!   thread 2   █      ██████████████████████████   ends     …and taken back here: it was in a call
//! ```
//!
//! A call that was told of while it hangs covers all that follows, until its end. If records were lost since, that end may
//! be among them: then it isn't known whether the process was in a call, and the stretch isn't judged.
//!
//! Some stretches are no gaps whatever their length, because the call that ends them tells that the GPU had work
//! all along: a query that says "not ready", a synchronise that goes on to wait. Nothing can have been enqueued in
//! the stretch itself (where no calls were lost), so what is still unfinished at its end was there at its beginning:
//!
//! ```text
//!   host   launch |------- prepares the next batch -------| synchronise, asleep for 30 ms |
//!   GPU    ██████████████████████████████████████████████████████████████████████████████       waited for nobody
//! ```
//!
//! A thread that only asks, and gives the GPU nothing to do, is a bystander: a watchdog that looks each 100 ms whether an event
//! has happened, as NCCL's does in every distributed run, ends no gap and is not the rhythm of the process. What it hears is
//! evidence all the same: where the GPU is "not ready", the stretch up to there was none.
//!
//! ```text
//!   main       launch sync |--------------- waits for its data ---------------| launch       one gap, of main
//!   watchdog          ?        ?        ?        ?        ?        ?        ?
//! ```
//!
//! Whether another stretch is a gap depends on the process's usual time between calls (the median), known at the
//! end: stretches of at least 1 ms are candidates, gaps are those of at least ten times the median.

use std::collections::VecDeque;

use ingero_common::host::{HashMap, Thread};

use crate::calls::GroupKey;
use crate::cause::Bill;
use crate::sketch::Sketch;

/// No gap is shorter.
pub const MIN_GAP_NS: u64 = 1_000_000;
/// Shorter stretches between calls are not looked at: a caller that has nothing else to do needs some microseconds.
pub const MIN_SHORT_NS: u64 = 50_000;
/// A gap lasts so many times the usual time between calls.
pub const GAP_FACTOR: u64 = 10;
/// A thread that has been silent so long is not waited for.
pub const SILENT_NS: u64 = 10_000_000_000;
/// Settled candidates kept one by one for each ending call.
const MAX_KEPT: usize = 1024;
/// Of which the youngest, as a call that has been going on may still be cut out of them.
const MAX_YOUNG: usize = 256;
/// Candidates that wait to be settled.
const MAX_PENDING: usize = 4096;
/// Stretches too short for a gap that wait to be settled; of more, the oldest are not looked at.
const MAX_SHORT: usize = 32_768;
/// Threads whose calls are told apart.
const MAX_CALLERS: usize = 4096;

/// A stretch between calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    /// End of the last call before.
    pub start_ns: u64,
    /// Start of the call that ends it.
    pub end_ns: u64,
    /// Who makes that call.
    pub thread: Thread,
    /// Which call.
    pub call: GroupKey,
    /// The GPU was drained when it began.
    pub drained: bool,
    /// How many calls the process had made by then.
    pub seq: u64,
    /// The call that ends it shows that the GPU had work throughout.
    pub gpu_busy: bool,
    /// A thread was in a call that hangs, unless the record of its end was lost after this instant, when it was last told of.
    pub hung_at_ns: Option<u64>,
}

/// What is known of the process before a call, and what the call tells about the time before it.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    /// See [`Between`].
    pub drained: bool,
    /// See [`Between`].
    pub seq: u64,
    /// See [`Between`].
    pub gpu_busy: bool,
    /// It is a bystander's: it says nothing of the rhythm in which the process works.
    pub asks_only: bool,
}

impl Between {
    /// Its length.
    pub fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    /// What a call over [`start_ns`, `end_ns`] leaves of it: the part before, which that call ends, and the one after.
    fn without(&self, start_ns: u64, end_ns: u64, thread: Thread, call: GroupKey, gpu_busy: bool) -> [Option<Self>; 2] {
        let before = (self.start_ns < start_ns).then(|| Self {
            end_ns: start_ns,
            thread,
            call,
            gpu_busy: gpu_busy || self.gpu_busy,
            ..self.clone()
        });
        let after = (end_ns < self.end_ns).then(|| Self { start_ns: end_ns, ..self.clone() });
        [before, after].map(|part| part.filter(|part| part.len_ns() >= MIN_GAP_NS))
    }
}

/// Takes a call over [`start_ns`, `end_ns`] out of what looked like gaps, in the order of time.
pub fn cut(
    stretches: &mut VecDeque<Between>,
    start_ns: u64,
    end_ns: u64,
    thread: Thread,
    call: GroupKey,
    gpu_busy: bool,
) {
    // The youngest lie at the back; most calls touch none.
    let mut at = stretches.iter().rposition(|b| b.end_ns <= start_ns).map_or(0, |before| before + 1);
    while at < stretches.len() {
        let between = &stretches[at];
        if between.start_ns >= end_ns {
            break;
        }
        let parts = between.without(start_ns, end_ns, thread, call, gpu_busy);
        stretches.remove(at);
        for part in parts.into_iter().flatten() {
            stretches.insert(at, part);
            at += 1;
        }
    }
}

/// How far the streams are known.
#[derive(Clone, Copy, Debug)]
pub struct Known<F> {
    /// The latest end of any record.
    pub now_ns: u64,
    /// What ended so long before that is complete.
    pub delay_ns: u64,
    /// The scheduler's stream was read to here.
    pub sched_ns: u64,
    /// Whether a thread has ended.
    pub is_dead: F,
}

/// The union of a process's calls.
#[derive(Debug, Default)]
pub struct Union {
    covered_ns: Option<u64>,
    between_ns: u64,
    pending: VecDeque<Between>,
    /// Those too short for a gap.
    short: VecDeque<Between>,
    /// By thread, the start of its last call.
    callers: HashMap<u32, u64>,
    /// By thread, a call that was told of while it hangs: its start, and the end of what was told of it.
    hanging: HashMap<u32, (u64, u64)>,
    /// Lengths between calls.
    pub usual: Sketch,
}

impl Union {
    /// End of the last call of all; `None` before the first.
    pub fn covered_ns(&self) -> Option<u64> {
        self.covered_ns
    }

    /// Time between calls, all of it, as far as it was seen when they came.
    pub fn between_ns(&self) -> u64 {
        self.between_ns
    }

    /// The program in the process was replaced: what follows has nothing to do with what was.
    pub fn restart(&mut self) {
        self.covered_ns = None;
        self.callers.clear();
        self.hanging.clear();
    }

    /// Thread `tid` has been in a call since `start_ns` and has not returned: until it does, the process is in a call.
    /// It was told of at `told_ns`.
    pub fn hangs(&mut self, tid: u32, start_ns: u64, told_ns: u64) {
        if self.hanging.len() < MAX_CALLERS {
            self.hanging.insert(tid, (start_ns, told_ns));
        }
    }

    /// Thread `tid` is in no such call any more.
    pub fn returned(&mut self, tid: u32) {
        if !self.hanging.is_empty() {
            self.hanging.remove(&tid);
        }
    }

    /// Adds a call over [`start_ns`, `end_ns`].
    pub fn add(&mut self, start_ns: u64, end_ns: u64, thread: Thread, call: GroupKey, before: Before) {
        let Before { drained, seq, gpu_busy, asks_only } = before;
        if !asks_only && (self.callers.len() < MAX_CALLERS || self.callers.contains_key(&thread.tid)) {
            let last_ns = self.callers.entry(thread.tid).or_default();
            *last_ns = start_ns.max(*last_ns);
        }
        let Some(covered_ns) = self.covered_ns else {
            self.covered_ns = Some(end_ns);
            return;
        };
        if start_ns > covered_ns {
            // Each of the calls that hang covers it, unless that one has ended.
            let hanging = self.hanging.values().filter(|&&(since_ns, _)| since_ns < start_ns);
            let hung_at_ns = hanging.map(|&(_, told_ns)| told_ns).max();
            let between =
                Between { start_ns: covered_ns, end_ns: start_ns, thread, call, drained, seq, gpu_busy, hung_at_ns };
            if hung_at_ns.is_none() {
                if !asks_only {
                    self.usual.add(between.len_ns());
                }
                self.between_ns += between.len_ns();
            }
            if between.len_ns() >= MIN_GAP_NS {
                self.pending.push_back(between);
            } else if between.len_ns() >= MIN_SHORT_NS {
                self.short.push_back(between);
                if self.short.len() > MAX_SHORT {
                    self.short.pop_front();
                }
            }
        } else {
            cut(&mut self.pending, start_ns, end_ns, thread, call, gpu_busy);
            cut(&mut self.short, start_ns, end_ns, thread, call, gpu_busy);
        }
        self.covered_ns = Some(covered_ns.max(end_ns));
    }

    /// The start of the oldest stretch that isn't settled.
    pub fn oldest_pending_ns(&self) -> Option<u64> {
        let oldest = [self.pending.front(), self.short.front()];
        oldest.into_iter().flatten().map(|b| b.start_ns).min()
    }

    /// Takes out the next stretch that can be settled.
    pub fn next_settled(&mut self, known: &Known<impl Fn(u32) -> bool>) -> Option<Between> {
        let settled = self.is_settled(self.pending.front()?, known);
        if settled || self.pending.len() > MAX_PENDING { self.pending.pop_front() } else { None }
    }

    /// The same of those too short for a gap.
    pub fn next_short(&mut self, known: &Known<impl Fn(u32) -> bool>) -> Option<Between> {
        if self.is_settled(self.short.front()?, known) { self.short.pop_front() } else { None }
    }

    /// Whether no thread can still turn out to have been in a call in a stretch, and who did what in it is known.
    fn is_settled(&self, between: &Between, known: &Known<impl Fn(u32) -> bool>) -> bool {
        let in_call = |(&tid, &last_ns): (&u32, &u64)| {
            last_ns < between.end_ns && known.now_ns.saturating_sub(last_ns) < SILENT_NS && !(known.is_dead)(tid)
        };
        let is_old = between.end_ns.saturating_add(known.delay_ns) <= known.now_ns;
        is_old && between.end_ns <= known.sched_ns && !self.callers.iter().any(in_call)
    }

    /// The length from which on a stretch is a gap.
    pub fn limit_ns(&self) -> u64 {
        self.usual.median_ns().saturating_mul(GAP_FACTOR).max(MIN_GAP_NS)
    }
}

/// Which stretches of a process are gaps.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// From which length on.
    pub limit_ns: u64,
    /// Those before this instant are part of the start-up…
    pub rhythm_ns: u64,
    /// …if they are longer than this.
    pub start_up_from_len_ns: u64,
    /// Those from this instant on are part of the wind-down.
    pub until_ns: u64,
}

impl Bounds {
    fn is_start_up(&self, gap: &Settled) -> bool {
        gap.start_ns < self.rhythm_ns && gap.len_ns > self.start_up_from_len_ns
    }
}

/// A settled stretch.
#[derive(Clone, Debug)]
pub struct Settled {
    /// Where it began.
    pub start_ns: u64,
    /// How long it lasted.
    pub len_ns: u64,
    /// See [`Between`].
    pub seq: u64,
    /// The GPU had nothing to do, beyond doubt.
    pub proven: bool,
    /// Lost records that may have lain in it.
    pub lost: u64,
    /// How much of it the scheduler tracer watched without a loss.
    pub watched_ns: u64,
    /// Its causes.
    pub bill: Bill,
}

impl Settled {
    /// The part over [`start_ns`, `end_ns`] of one out of which a call was cut; its causes can't be told apart any more.
    fn part(&self, start_ns: u64, end_ns: u64, proven: bool) -> Option<Self> {
        let len_ns = end_ns.checked_sub(start_ns).filter(|&len_ns| len_ns >= MIN_GAP_NS)?;
        let mut bill = Bill::default();
        bill.add_unexplained(len_ns);
        let watched_ns = self.watched_ns.saturating_sub(self.len_ns - len_ns);
        Some(Self { start_ns, len_ns, proven, watched_ns, bill, ..self.clone() })
    }
}

/// Gaps summed up.
#[derive(Clone, Debug, Default)]
pub struct GapSum {
    /// How many.
    pub n: u64,
    /// Sum of their lengths.
    pub lost_ns: u64,
    /// Of which proven.
    pub proven_ns: u64,
    /// Of which watched.
    pub watched_ns: u64,
    /// Lost records in them.
    pub lost: u64,
    /// The longest.
    pub max_ns: u64,
    /// From the first one's start…
    pub first_ns: u64,
    /// …to the last one's end.
    pub last_end_ns: u64,
    /// Their causes.
    pub bill: Bill,
    /// Places and starts, for a period; not complete where some were folded.
    pub occurrences: Vec<(u64, u64)>,
}

impl GapSum {
    fn add(&mut self, gap: &Settled) {
        self.first_ns = if self.n == 0 { gap.start_ns } else { self.first_ns.min(gap.start_ns) };
        self.last_end_ns = self.last_end_ns.max(gap.start_ns + gap.len_ns);
        self.n += 1;
        self.lost_ns += gap.len_ns;
        self.proven_ns += if gap.proven { gap.len_ns } else { 0 };
        self.watched_ns += gap.watched_ns;
        self.lost += gap.lost;
        self.max_ns = self.max_ns.max(gap.len_ns);
        self.bill.add_all(&gap.bill);
    }
}

/// The settled stretches that end in one kind of call.
#[derive(Debug, Default)]
pub struct Settlement {
    kept: Vec<Settled>,
    folded: GapSum,
}

impl Settlement {
    /// Adds one; `limit_ns` is the limit of the moment.
    pub fn add(&mut self, gap: Settled, limit_ns: u64) {
        self.kept.push(gap);
        if self.kept.len() <= MAX_KEPT {
            return;
        }
        let young = self.kept.split_off(self.kept.len() - MAX_YOUNG);
        for (low, high) in [(limit_ns / 2, limit_ns.saturating_mul(2)), (limit_ns, limit_ns)] {
            let folded = &mut self.folded;
            self.kept.retain(|gap| {
                if gap.len_ns >= high {
                    folded.add(gap);
                }
                gap.len_ns >= low && gap.len_ns < high
            });
            if self.kept.len() <= MAX_KEPT / 2 - MAX_YOUNG {
                break;
            }
        }
        self.kept.extend(young);
    }

    /// Takes a call over [`start_ns`, `end_ns`] out of those that are kept one by one. What is left before it ends in that
    /// call, and is handed back.
    pub fn cut(&mut self, start_ns: u64, end_ns: u64) -> Vec<Settled> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        self.kept.retain(|gap| {
            let gap_end_ns = gap.start_ns + gap.len_ns;
            let touched = gap.start_ns < end_ns && start_ns < gap_end_ns;
            if touched {
                before.extend(gap.part(gap.start_ns, start_ns, gap.proven));
                // The call may have given the GPU something to do.
                after.extend(gap.part(end_ns, gap_end_ns, false));
            }
            !touched
        });
        self.kept.extend(after);
        before
    }

    /// The stretches long enough for a gap that are kept one by one.
    pub fn kept_gaps(&self, limit_ns: u64) -> impl Iterator<Item = &Settled> {
        self.kept.iter().filter(move |gap| gap.len_ns >= limit_ns)
    }

    /// The gaps that are kept one by one.
    pub fn counted(&self, bounds: Bounds) -> impl Iterator<Item = &Settled> {
        self.kept_gaps(bounds.limit_ns).filter(move |gap| gap.start_ns < bounds.until_ns && !bounds.is_start_up(gap))
    }

    /// Those that are part of the start-up.
    pub fn start_up(&self, bounds: Bounds) -> impl Iterator<Item = &Settled> {
        self.kept_gaps(bounds.limit_ns).filter(move |gap| bounds.is_start_up(gap))
    }

    /// The longest stretch that begins in [`from_ns`, `until_ns`), in nanoseconds; of those that were folded, of all.
    pub fn longest_ns(&self, from_ns: u64, until_ns: u64) -> u64 {
        let kept = self.kept.iter().filter(|gap| (from_ns..until_ns).contains(&gap.start_ns)).map(|gap| gap.len_ns);
        kept.max().unwrap_or(0).max(self.folded.max_ns)
    }

    /// How much of [`from_ns`, `to_ns`] lies in gaps that are kept one by one.
    pub fn gap_ns(&self, limit_ns: u64, from_ns: u64, to_ns: u64) -> u64 {
        let gaps = self.kept_gaps(limit_ns);
        gaps.map(|g| to_ns.min(g.start_ns + g.len_ns).saturating_sub(from_ns.max(g.start_ns))).sum()
    }

    /// Those that are still kept one by one.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Settled> {
        self.kept.iter()
    }

    /// The gaps among them, summed up. (Those that were folded are the oldest of very many, and began before the end.)
    pub fn gaps(&self, bounds: Bounds) -> GapSum {
        let mut sum = self.folded.clone();
        for gap in self.counted(bounds) {
            sum.add(gap);
            sum.occurrences.push((gap.seq, gap.start_ns));
        }
        if self.folded.n > 0 {
            sum.occurrences.clear();
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::Name;

    const MS: u64 = 1_000_000;

    fn thread(tid: u32) -> Thread {
        Thread { pid: 1, tid, name: Name::default() }
    }

    fn key() -> GroupKey {
        GroupKey { source: Name::default(), op: Name::default(), dir: Name::default(), size: 0 }
    }

    fn add(union: &mut Union, tid: u32, start_ms: u64, end_ms: u64) {
        let before = Before { drained: false, seq: 0, gpu_busy: false, asks_only: false };
        union.add(start_ms * MS, end_ms * MS, thread(tid), key(), before);
    }

    fn pending(union: &Union) -> Vec<(u64, u64, u32)> {
        union.pending.iter().map(|b| (b.start_ns / MS, b.end_ns / MS, b.thread.tid)).collect()
    }

    #[test]
    fn calls_of_all_threads_are_one_union() {
        let mut union = Union::default();
        add(&mut union, 1, 0, 2);
        add(&mut union, 2, 5, 17);
        add(&mut union, 1, 23, 25);
        assert_eq!(pending(&union), [(2, 5, 2), (17, 23, 1)]);
        add(&mut union, 3, 8, 35);
        assert_eq!(pending(&union), [(2, 5, 2)]);
        add(&mut union, 3, 40, 41);
        assert_eq!(pending(&union), [(2, 5, 2), (35, 40, 3)]);
    }

    #[test]
    fn a_late_call_splits_or_shortens() {
        let mut union = Union::default();
        add(&mut union, 1, 0, 1);
        add(&mut union, 1, 20, 21);
        add(&mut union, 2, 5, 8);
        assert_eq!(pending(&union), [(1, 5, 2), (8, 20, 1)]);
        add(&mut union, 3, 18, 30);
        assert_eq!(pending(&union), [(1, 5, 2), (8, 18, 3)]);
        add(&mut union, 4, 0, 40);
        assert_eq!(pending(&union), []);
    }

    #[test]
    fn settling_waits_for_threads_that_may_be_in_a_call() {
        let mut union = Union::default();
        add(&mut union, 1, 0, 1);
        add(&mut union, 2, 1, 2);
        add(&mut union, 1, 10, 11);
        let next = |union: &mut Union, now_ms: u64, sched_ns, dead: u32| {
            let known = Known { now_ns: now_ms * MS, delay_ns: 5 * MS, sched_ns, is_dead: |tid| tid == dead };
            union.next_settled(&known).is_some()
        };
        assert!(!next(&mut union, 30, u64::MAX, 0), "thread 2 may be in a long call");
        assert!(!next(&mut union, 30, 9 * MS, 2), "the scheduler's stream is late");
        assert!(next(&mut union, 30, 10 * MS, 2));
        add(&mut union, 1, 50, 51);
        add(&mut union, 2, 52, 53);
        assert!(!next(&mut union, 53, u64::MAX, 0), "too young");
        assert!(next(&mut union, 55, u64::MAX, 0));
    }

    #[test]
    fn a_call_is_cut_out_of_what_was_settled() {
        let mut bill = Bill::default();
        bill.add(crate::cause::Cause::HostCpu, ingero_common::host::Task::default(), 10 * MS);
        let gap = |start_ms: u64| Settled {
            start_ns: start_ms * MS,
            len_ns: 10 * MS,
            seq: 0,
            proven: true,
            lost: 0,
            watched_ns: 10 * MS,
            bill: bill.clone(),
        };
        let mut settlement = Settlement::default();
        [0, 20, 40, 60].into_iter().for_each(|start_ms| settlement.add(gap(start_ms), MS));
        let at = |gap: &Settled| (gap.start_ns / MS, gap.len_ns / MS, gap.proven, gap.bill.unexplained_ns() / MS);
        let before: Vec<_> = settlement.cut(24 * MS, 43 * MS).iter().map(at).collect();
        assert_eq!(before, [(20, 4, true, 4)]);
        let mut kept: Vec<_> = settlement.kept().map(at).collect();
        kept.sort_unstable();
        assert_eq!(kept, [(0, 10, true, 0), (43, 7, false, 7), (60, 10, true, 0)]);
    }

    #[test]
    fn the_youngest_are_not_folded() {
        let mut settlement = Settlement::default();
        let gap = |i: u64| Settled {
            start_ns: i * 1000 * MS,
            len_ns: 100 * MS,
            seq: i,
            proven: false,
            lost: 0,
            watched_ns: 0,
            bill: Bill::default(),
        };
        (0..10_000).for_each(|i| settlement.add(gap(i), MS));
        assert!(settlement.kept.len() >= MAX_YOUNG && settlement.kept.len() <= MAX_KEPT);
        settlement.cut((10_000 - MAX_YOUNG as u64) * 1000 * MS, u64::MAX);
        let gaps = settlement.gaps(Bounds { limit_ns: MS, rhythm_ns: 0, start_up_from_len_ns: 0, until_ns: u64::MAX });
        assert_eq!(gaps.n, 10_000 - MAX_YOUNG as u64);
    }

    #[test]
    fn folding_keeps_the_sums() {
        let (mut settlement, mut n, mut lost) = (Settlement::default(), 0, 0);
        for i in 0..5000_u64 {
            let len_ns = (i * 7919 % 100 + 1) * MS;
            settlement.add(
                Settled {
                    start_ns: i * 1000 * MS,
                    len_ns,
                    seq: i,
                    proven: false,
                    lost: 0,
                    watched_ns: 0,
                    bill: Bill::default(),
                },
                10 * MS,
            );
            (n, lost) = if len_ns >= 10 * MS { (n + 1, lost + len_ns) } else { (n, lost) };
        }
        let gaps =
            settlement.gaps(Bounds { limit_ns: 10 * MS, rhythm_ns: 0, start_up_from_len_ns: 0, until_ns: u64::MAX });
        assert_eq!((gaps.n, gaps.lost_ns), (n, lost));
        assert!(settlement.kept.len() <= MAX_KEPT);
    }
}
