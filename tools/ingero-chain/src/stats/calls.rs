//! Calls in groups, and which of them were slow.
//!
//! A group is one operation of one process in one direction and one size class (a power of two of bytes):
//! within it, durations can be compared. Slow is what lasts beyond three times the group's median *and*
//! 100 us beyond it; what is lost is the sum of (duration - median) over the slow ones.
//!
//! ```text
//!   400 launches of 30 us, 20 of which last 3 ms, preempted for 2.97 ms each:
//!   median 30 us -> limit max(90 us, 130 us) = 130 us -> n = 20, lost = 20 x 2.97 ms = 59.4 ms
//!   usual launches: 30 us on a CPU, 0 waiting; the slow ones: 30 us on a CPU, 2.97 ms waiting
//!   beyond the usual: 2.97 ms waiting each -> cpu_wait 59.4 ms
//! ```
//!
//! The median is only known at the end, so candidates are kept as they are: all calls beyond 100 us. When
//! they get many, those far below the limit of that moment are dropped and those far above are summed up;
//! only calls near the limit of a group with thousands of candidates can be judged by a median that moved.

use ingero_common::host::{HashMap, Interner, Losses, LostRanges, Name, Task};
use ingero_common::record::{Host, HostBy, Record};
use ingero_common::text::Traced;

use crate::blame::breakdown::{Breakdown, Cause};
use crate::gpu::outstanding::Known;
use crate::input::samples::{Quota, Samples};
use crate::limits::{MAX_CANDIDATES, MAX_GROUPS, MAX_YOUNG, MIN_CALLS, SLOW_FACTOR, SLOW_NS};
use crate::stats::parts::{ASLEEP, OFF_UNKNOWN, ON_CPU, Parts, UNKNOWN, apportion};
use crate::stats::period;
use crate::stats::quantiles::Quantiles;

/// Which calls are compared with one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    /// `cudart`, `cuda` or `nccl`.
    pub source: Name,
    /// The API name.
    pub op: Name,
    /// The direction; empty where there is none.
    pub dir: Name,
    /// The size class: 1 + log2 of the bytes; 0 where there are none.
    pub size: u8,
}

impl GroupKey {
    /// The group of a call.
    pub(crate) fn of(record: &Record<'_>, names: &mut Interner) -> Self {
        Self {
            source: names.id(&record.src),
            op: names.id(&record.op),
            dir: names.id(record.dir.as_deref().unwrap_or_default()),
            size: record.bytes.and_then(u64::checked_ilog2).map_or(0, |log2| 1 + log2 as u8),
        }
    }

    /// What the call that this is the group of does.
    pub(crate) fn function(self, record: &Record<'_>) -> Known {
        ingero_common::cuda_api::find(&record.src, &record.op)
    }

    /// The direction, where there is one.
    pub(crate) fn dir(self, names: &Interner) -> Option<Traced> {
        Some(names.text(self.dir)).filter(|dir| !dir.is_empty()).map(Traced::from)
    }

    /// The bytes that calls of the group carry: from, to (both included).
    pub(crate) fn bytes(self) -> Option<(u64, u64)> {
        let log2 = self.size.checked_sub(1)?;
        let from = 1_u64 << log2;
        Some((from, from - 1 + from))
    }
}

/// What is known besides the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Samples of the machine.
    pub samples: &'a Samples,
    /// Lost scheduler records.
    pub losses: &'a Losses,
}

/// When a call was made, and what it may have waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// How long it took.
    pub dur_ns: u64,
    /// Whether the GPU at work may be what it waited for.
    pub may_wait: bool,
    /// The GPU was idle meanwhile, which is told as such.
    pub is_idle: bool,
}

/// A call that may turn out to be slow.
#[derive(Clone, Debug)]
struct Candidate {
    start_ns: u64,
    dur_ns: u64,
    /// Its place among the group's calls, from 0.
    seq: u64,
    parts: Parts,
    had_cpu: Vec<(Task, u64)>,
    /// The GPU at work may be what it waited for.
    may_wait: bool,
}

impl Candidate {
    /// What it went through. ingero-join says what was on record when the call was written; records of the scheduler that
    /// were lost may be told of later, and then its silence is no evidence.
    fn parts(&self, doubtful: &LostRanges) -> Parts {
        if doubtful.touches(self.start_ns, self.start_ns + self.dur_ns) {
            let unknown = self.parts.unknown + self.parts.on_cpu;
            Parts { unknown, on_cpu: 0, ..self.parts }
        } else {
            self.parts
        }
    }
}

/// Sums over calls.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: u64,
    parts: [u128; 6],
}

impl Sums {
    fn add(&mut self, parts: Parts) {
        self.n += 1;
        for (sum, part) in self.parts.iter_mut().zip(parts.array()) {
            *sum += u128::from(part);
        }
    }

    /// The mean of each part over these calls without those in `without`.
    fn mean_without(&self, without: &Sums) -> [u64; 6] {
        let n = u128::from(self.n.saturating_sub(without.n)).max(1);
        std::array::from_fn(|i| (self.parts[i].saturating_sub(without.parts[i]) / n) as u64)
    }
}

/// What is usual in a group.
#[derive(Clone, Copy, Debug)]
struct Usual {
    median_ns: u64,
    parts: [u64; 6],
}

/// Slow calls summed up.
#[derive(Clone, Debug, Default)]
struct SlowSum {
    n: u64,
    /// Those of which everything is on record.
    watched: Sums,
    /// What they had beyond the usual, by part.
    beyond: [u128; 6],
    /// Of that, what may have been waiting for the GPU: asleep or spinning, or nothing to the contrary on record.
    gpu_beyond: u128,
    dur_ns: u128,
    first_ns: u64,
    last_end_ns: u64,
    /// Waiting for a CPU, by who had it; the rest of `waiting` is nobody's.
    had_cpu: Breakdown,
    /// Waiting that no one had the CPU for, while the quota counters grew.
    throttled_ns: u64,
    /// Time on a CPU in which the hypervisor may have run others.
    stolen_ns: u64,
    on_cpu_ns: u64,
}

/// All calls of one group.
#[derive(Debug)]
pub(crate) struct Group {
    function: Known,
    pid: u32,
    /// Durations of all calls that aren't cold.
    pub durations: Quantiles,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Sum of their durations.
    pub total_ns: u128,
    /// Over calls of which everything is on record: what is usual.
    watched: Sums,
    candidates: Vec<Candidate>,
    folded: SlowSum,
    /// Calls without a `host`, or not watched throughout.
    pub unwatched: u64,
}

/// Where a group's calls were slow.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    /// How many calls.
    pub n: u64,
    /// Sum of (duration - median).
    pub lost_ns: u64,
    /// From the first one's start…
    pub first_ns: u64,
    /// …to the last one's end.
    pub last_end_ns: u64,
    /// The lost time by cause.
    pub breakdown: Breakdown,
    /// The part of it that may have been waiting for the GPU, which was at work: no fault of the host.
    pub gpu_wait_ns: u64,
    /// Places and starts of slow calls, for a period; empty where they weren't all kept.
    pub occurrences: Vec<period::Occurrence>,
}

impl Group {
    fn new(function: Known, pid: u32) -> Self {
        Self {
            function,
            pid,
            durations: Quantiles::default(),
            bytes: 0,
            total_ns: 0,
            watched: Sums::default(),
            candidates: Vec::new(),
            folded: SlowSum::default(),
            unwatched: 0,
        }
    }

    /// Its kind of calls.
    pub(crate) fn function(&self) -> Known {
        self.function
    }

    fn add(&mut self, record: &Record<'_>, call: Call, names: &mut Interner, facts: Facts<'_>) {
        let Call { start_ns, dur_ns, may_wait, is_idle } = call;
        let host = record.host.and_then(|raw| serde_json::from_str::<Host<'_>>(raw.get()).ok());
        if !host.as_ref().is_some_and(|h| h.watched) {
            self.unwatched += 1;
        }
        let parts = Parts::of(host.as_ref(), dur_ns);
        let seq = self.durations.len();
        self.durations.add(dur_ns);
        self.total_ns += u128::from(dur_ns);
        self.bytes = self.bytes.saturating_add(record.bytes.unwrap_or(0));
        if parts.unknown == 0 {
            self.watched.add(parts);
        }
        if dur_ns <= SLOW_NS || is_idle {
            return;
        }
        let party = |by: &HostBy<'_>, names: &mut Interner| (Task { pid: by.pid, name: names.id(&by.comm) }, by.ns);
        let had_cpu = host.iter().flat_map(|h| &h.by).filter(|by| by.pid != 0).map(|by| party(by, names)).collect();
        self.candidates.push(Candidate { start_ns, dur_ns, seq, parts, had_cpu, may_wait });
        if self.candidates.len() > MAX_CANDIDATES {
            self.fold(facts);
        }
    }

    /// The duration beyond which a call is slow.
    fn limit_ns(&self) -> u64 {
        let median_ns = self.durations.median_ns();
        median_ns.saturating_mul(SLOW_FACTOR).max(median_ns.saturating_add(SLOW_NS))
    }

    /// Makes room: drops clear cases on one side of the limit, sums up those on the other.
    fn fold(&mut self, facts: Facts<'_>) {
        let limit_ns = self.limit_ns();
        let (pid, doubtful) = (self.pid, facts.losses.ranges(self.pid));
        let young = self.candidates.split_off(self.candidates.len() - MAX_YOUNG);
        for (low, high) in [(limit_ns / 2, limit_ns.saturating_mul(2)), (limit_ns, limit_ns)] {
            let usual = self.usual(limit_ns);
            let folded = &mut self.folded;
            self.candidates.retain(|c| {
                if c.dur_ns > high {
                    folded.add(c, &usual, pid, facts.samples, &doubtful);
                }
                c.dur_ns > low && c.dur_ns <= high
            });
            if self.candidates.len() <= MAX_CANDIDATES / 2 - MAX_YOUNG {
                break;
            }
        }
        self.candidates.extend(young);
    }

    /// What is usual: the median, and the mean parts of the calls that aren't slow.
    fn usual(&self, limit_ns: u64) -> Usual {
        let mut slow = self.folded.watched;
        for call in self.candidates.iter().filter(|c| c.dur_ns > limit_ns && c.parts.unknown == 0) {
            slow.add(call.parts);
        }
        Usual { median_ns: self.durations.median_ns(), parts: self.watched.mean_without(&slow) }
    }

    /// Its slow calls; `None` where there are none or too few calls to say.
    pub(crate) fn slow(&self, samples: &Samples, doubtful: &LostRanges) -> Option<Slow> {
        if self.durations.len() < MIN_CALLS {
            return None;
        }
        let limit_ns = self.limit_ns();
        let usual = self.usual(limit_ns);
        let mut sum = self.folded.clone();
        let mut occurrences = Vec::new();
        for candidate in self.candidates.iter().filter(|c| c.dur_ns > limit_ns) {
            sum.add(candidate, &usual, self.pid, samples, doubtful);
            occurrences.push(period::Occurrence {
                seq: candidate.seq,
                start_ns: candidate.start_ns,
                len_ns: candidate.dur_ns,
            });
        }
        if self.folded.n > 0 {
            occurrences.clear();
        }
        let n = sum.n;
        if n == 0 {
            return None;
        }
        let lost_ns = sum.dur_ns.saturating_sub(u128::from(usual.median_ns) * u128::from(n));
        let lost_ns = u64::try_from(lost_ns).unwrap_or(u64::MAX);
        let breakdown = sum.breakdown(lost_ns);
        let beyond_ns = sum.beyond.iter().sum::<u128>().max(1);
        let gpu_wait_ns = (sum.gpu_beyond.saturating_mul(u128::from(lost_ns)) / beyond_ns) as u64;
        Some(Slow {
            n,
            lost_ns,
            first_ns: sum.first_ns,
            last_end_ns: sum.last_end_ns,
            gpu_wait_ns,
            breakdown,
            occurrences,
        })
    }

    /// The slow calls that are kept one by one: start, duration, place among the group's calls, whole breakdown.
    pub(crate) fn slow_calls<'a>(
        &'a self,
        samples: &'a Samples,
        doubtful: &'a LostRanges,
    ) -> impl Iterator<Item = (u64, u64, u64, Breakdown)> + 'a {
        let limit_ns = self.limit_ns();
        let usual = self.usual(limit_ns);
        self.candidates.iter().filter(move |c| c.dur_ns > limit_ns).map(move |c| {
            let mut one = SlowSum::default();
            one.add(c, &usual, self.pid, samples, doubtful);
            let mut breakdown = c.parts(doubtful).breakdown();
            one.split_waiting(c.parts.waiting, &mut breakdown);
            (c.start_ns, c.dur_ns, c.seq, breakdown)
        })
    }
}

impl SlowSum {
    fn add(&mut self, call: &Candidate, usual: &Usual, pid: u32, samples: &Samples, doubtful: &LostRanges) {
        let end_ns = call.start_ns + call.dur_ns;
        self.first_ns = if self.n == 0 { call.start_ns } else { self.first_ns.min(call.start_ns) };
        self.last_end_ns = self.last_end_ns.max(end_ns);
        self.n += 1;
        if call.parts.unknown == 0 {
            self.watched.add(call.parts);
        }
        let beyond = call.parts(doubtful).beyond(usual.parts, call.dur_ns.saturating_sub(usual.median_ns));
        for (sum, part) in self.beyond.iter_mut().zip(beyond) {
            *sum += u128::from(part);
        }
        if call.may_wait {
            self.gpu_beyond +=
                [ASLEEP, OFF_UNKNOWN, ON_CPU, UNKNOWN].map(|part| u128::from(beyond[part])).iter().sum::<u128>();
        }
        self.dur_ns += u128::from(call.dur_ns);
        self.on_cpu_ns += call.parts.on_cpu;
        self.stolen_ns += samples.stolen_ns(call.start_ns, end_ns).min(call.parts.on_cpu);
        let mut nobody_ns = call.parts.waiting;
        for &(party, ns) in &call.had_cpu {
            let ns = ns.min(nobody_ns);
            nobody_ns -= ns;
            self.had_cpu.add(Cause::CpuWait, party, ns);
        }
        // Nobody was seen to have had the CPU: throttled, if the counters say so.
        if let Quota::GrewCpusFree(grew_ns) | Quota::GrewCpusBusy(grew_ns) = samples.quota(pid, call.start_ns, end_ns) {
            let throttled_ns = nobody_ns.min(grew_ns);
            nobody_ns -= throttled_ns;
            self.throttled_ns += throttled_ns;
        }
        self.had_cpu.add(Cause::CpuWait, Task::default(), nobody_ns);
    }

    /// Splits `lost_ns` by what the calls had beyond the usual ones.
    fn breakdown(&self, lost_ns: u64) -> Breakdown {
        let [waiting, asleep, disk, off_unknown, on_cpu, unknown] = apportion(self.beyond, lost_ns);
        let stolen_ns = u128::from(on_cpu) * u128::from(self.stolen_ns) / u128::from(self.on_cpu_ns.max(1));
        let stolen_ns = stolen_ns as u64;
        let mut breakdown =
            Parts { waiting, asleep, disk, off_unknown, on_cpu: on_cpu - stolen_ns, unknown }.breakdown();
        breakdown.add(Cause::Steal, Task::default(), stolen_ns);
        self.split_waiting(waiting, &mut breakdown);
        breakdown
    }

    /// Puts `waiting_ns` down to those who had the CPU, and to the quota, in proportion.
    fn split_waiting(&self, waiting_ns: u64, breakdown: &mut Breakdown) {
        let whole = u128::from(self.had_cpu.total_ns() + self.throttled_ns).max(1);
        let scaled = |ns: u64| (u128::from(ns) * u128::from(waiting_ns) / whole) as u64;
        let mut left = waiting_ns;
        let quota_ns = scaled(self.throttled_ns);
        breakdown.add(Cause::Quota, Task::default(), quota_ns);
        left -= quota_ns;
        for (party, ns) in self.had_cpu.parties(Cause::CpuWait) {
            let ns = scaled(ns);
            breakdown.add(Cause::CpuWait, party, ns);
            left -= ns;
        }
        // What rounding left over, some nanoseconds.
        let (cause, party) = match self.had_cpu.parties(Cause::CpuWait).next() {
            Some((party, _)) => (Cause::CpuWait, party),
            None if self.throttled_ns > 0 => (Cause::Quota, Task::default()),
            None => (Cause::CpuWait, Task::default()),
        };
        breakdown.add(cause, party, left);
    }
}

/// The groups of one process.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: HashMap<GroupKey, Group>,
}

impl Groups {
    /// Whether the group has had a call yet.
    pub(crate) fn has(&self, key: GroupKey) -> bool {
        self.all.contains_key(&key)
    }

    /// Opens the group of a call: its first one, which is cold.
    pub(crate) fn open(&mut self, key: GroupKey, function: Known, pid: u32) -> GroupKey {
        let key = if self.all.len() >= MAX_GROUPS { GroupKey { dir: Name::default(), size: 0, ..key } } else { key };
        self.all.entry(key).or_insert_with(|| Group::new(function, pid));
        key
    }

    /// Adds a call that isn't cold.
    pub(crate) fn add(
        &mut self,
        key: GroupKey,
        record: &Record<'_>,
        call: Call,
        names: &mut Interner,
        facts: Facts<'_>,
    ) {
        if let Some(group) = self.all.get_mut(&key) {
            group.add(record, call, names, facts);
        }
    }

    /// One group.
    pub(crate) fn get(&self, key: GroupKey) -> Option<&Group> {
        self.all.get(&key)
    }

    /// All groups, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupKey, &Group)> {
        self.all.iter()
    }

    /// What `ns` in calls of one operation and direction went into, as all of its calls did.
    pub(crate) fn breakdown_of(&self, key: GroupKey, ns: u64) -> Breakdown {
        let mut sums = Sums::default();
        for (_, group) in self.all.iter().filter(|(of, _)| GroupKey { size: 0, ..**of } == key) {
            sums.n += group.watched.n;
            sums.parts.iter_mut().zip(group.watched.parts).for_each(|(sum, part)| *sum += part);
        }
        let [waiting, asleep, disk, off_unknown, on_cpu, unknown] = apportion(sums.parts, ns);
        let mut breakdown = Parts { waiting, asleep, disk, off_unknown, on_cpu, unknown }.breakdown();
        breakdown.add(Cause::CpuWait, Task::default(), waiting);
        breakdown
    }

    /// All groups, in an order that doesn't depend on that of the records.
    pub(crate) fn sorted<'a>(&'a self, names: &'a Interner) -> Vec<(GroupKey, &'a Group)> {
        let mut all: Vec<_> = self.all.iter().map(|(&k, g)| (k, g)).collect();
        all.sort_by_key(|(k, _)| (names.text(k.source), names.text(k.op), names.text(k.dir), k.size));
        all
    }
}

#[cfg(test)]
mod tests;
