//! The account against a reference that looks at every single microsecond.
//!
//! The reference follows the definitions in the manual: what calls are being made in this microsecond, whether everything that
//! was enqueued has been waited for, how long nobody has made a call around it, and whether a later wait tells that the GPU
//! was at work. It knows no pieces, runs or intervals. Random processes (several threads and streams, all kinds of calls, a
//! watchdog) must get the same account from both, nanosecond by nanosecond, and the same lost intervals.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Dice, config};
use crate::input::ingest::Engine;
use crate::process::class::Class;
use crate::process::{Account, Tail};
use crate::testing::engine;

const US: u64 = 1_000;
const BASE_NS: u64 = 7_000_000_000;
const PID: u32 = 100;
const WATCHDOG: u32 = 109;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Launch,
    Collective,
    /// To the device or from it, and whether the function is the blocking one.
    Copy {
        up: bool,
        blocking: bool,
    },
    Set,
    Record,
    StreamSync,
    DeviceSync,
    Query {
        ready: bool,
    },
    Malloc,
    Free,
    Load,
    Create,
}

impl Kind {
    fn op(self) -> &'static str {
        match self {
            Kind::Launch => "cudaLaunchKernel",
            Kind::Collective => "ncclAllReduce",
            Kind::Copy { blocking: true, .. } => "cudaMemcpy",
            Kind::Copy { .. } => "cudaMemcpyAsync",
            Kind::Set => "cudaMemsetAsync",
            Kind::Record => "cudaEventRecord",
            Kind::StreamSync => "cudaStreamSynchronize",
            Kind::DeviceSync => "cudaDeviceSynchronize",
            Kind::Query { .. } => "cudaStreamQuery",
            Kind::Malloc => "cudaMalloc",
            Kind::Free => "cudaFree",
            Kind::Load => "cudaLibraryLoadData",
            Kind::Create => "cudaEventCreate",
        }
    }

    /// Whether its return tells that something is done.
    fn proves(self) -> bool {
        match self {
            Kind::DeviceSync | Kind::StreamSync | Kind::Query { ready: true } => true,
            Kind::Copy { up, blocking } => !up && blocking,
            _ => false,
        }
    }

    /// Whether it leaves work behind. After a blocking copy from the device nothing of it is left.
    fn enqueues(self) -> bool {
        match self {
            Kind::Launch | Kind::Collective | Kind::Set => true,
            Kind::Copy { up, blocking } => up || !blocking,
            _ => false,
        }
    }
}

/// One call; times in microseconds.
#[derive(Clone, Debug)]
struct Call {
    tid: u32,
    kind: Kind,
    stream: usize,
    start: usize,
    end: usize,
    bytes: usize,
    func: usize,
}

impl Call {
    fn line(&self) -> String {
        let (ns, dur) = (BASE_NS + self.start as u64 * US, (self.end - self.start) as u64 * US);
        let (op, tid, func) = (self.kind.op(), self.tid, self.func);
        let src = if self.kind == Kind::Collective { "nccl" } else { "cudart" };
        let more = match self.kind {
            Kind::Copy { up, .. } => format!(r#","dir":"{}","bytes":{}"#, if up { "h2d" } else { "d2h" }, self.bytes),
            _ => String::new(),
        };
        let ret = if self.kind == (Kind::Query { ready: false }) { 600 } else { 0 };
        let stream = match self.kind {
            Kind::Copy { blocking: true, .. } | Kind::DeviceSync => String::new(),
            _ => format!(r#","stream":"0x7f0{}""#, self.stream),
        };
        format!(
            r#"{{"src":"{src}","op":"{op}","mono_ns":{ns},"dur_ns":{dur},"pid":{PID},"tid":{tid},"comm":"t{tid}","ret":{ret},"depth":0,"func":"0x{func}"{stream}{more}}}"#
        )
    }

    /// The streams that it is about; the default stream is the last one.
    fn queue(&self) -> usize {
        if matches!(self.kind, Kind::Copy { blocking: true, .. }) { DEFAULT } else { self.stream }
    }

    fn is_pageable_copy(&self) -> bool {
        matches!(self.kind, Kind::Copy { .. }) && self.end - self.start >= 100
    }
}

const DEFAULT: usize = 9;

/// A process: its calls in the order in which they return.
#[derive(Clone, Debug)]
struct Process {
    calls: Vec<Call>,
    end: usize,
}

/// Bursts of calls, with a pause of seconds between them in which everything can be settled.
fn process(seed: u64) -> Process {
    let mut dice = Dice(seed);
    let threads = 1 + dice.roll(3) as u32;
    let streams = 1 + dice.roll(3);
    let mut calls = Vec::new();
    let mut burst_at = 10;
    for _ in 0..2 {
        let mut last = burst_at;
        for tid in 100..100 + threads {
            let mut at = burst_at + dice.roll(500);
            for i in 0..60 {
                let kind = if i == 0 { Kind::Launch } else { kind(&mut dice) };
                let len = 1 + length(kind, &mut dice);
                let (stream, func, bytes) = (dice.roll(streams), dice.roll(2), 4000 << dice.roll(12));
                calls.push(Call { tid, kind, stream, start: at, end: at + len, bytes, func });
                at += len + dice.roll_one_of(&[1, 5, 5, 20, 300, 3000]);
            }
            last = last.max(at);
        }
        if dice.roll(3) == 0 {
            let mut at = burst_at + 700;
            while at < last {
                let kind = Kind::Query { ready: dice.roll(2) == 0 };
                calls.push(Call { tid: WATCHDOG, kind, stream: 0, start: at, end: at + 2, bytes: 0, func: 0 });
                at += 400 + dice.roll(3000);
            }
        }
        burst_at = last + dice.one_of(&[3, 2_700_000]);
    }
    calls.sort_by_key(|call| call.end);
    let mut process = Process { calls, end: burst_at + 40 };
    process.leave_no_contradiction();
    process
}

fn kind(dice: &mut Dice) -> Kind {
    match dice.roll(16) {
        0..=4 => Kind::Launch,
        5 => Kind::Copy { up: dice.roll(2) == 0, blocking: false },
        6 => Kind::Copy { up: dice.roll(2) == 0, blocking: true },
        7 => Kind::Set,
        8 => Kind::Record,
        9 => Kind::StreamSync,
        10 | 11 => Kind::DeviceSync,
        12 => Kind::Query { ready: dice.roll(2) == 0 },
        13 => dice.one_of(&[Kind::Malloc, Kind::Free]),
        14 => dice.one_of(&[Kind::Load, Kind::Create]),
        _ => Kind::Collective,
    }
}

fn length(kind: Kind, dice: &mut Dice) -> usize {
    match kind {
        Kind::Launch | Kind::Set | Kind::Record | Kind::Create => dice.roll_one_of(&[5, 20]),
        Kind::Copy { .. } => dice.roll_one_of(&[20, 99, 2000]),
        Kind::Query { .. } => dice.roll(4),
        Kind::Collective => dice.roll_one_of(&[10, 4000]),
        _ => dice.roll_one_of(&[10, 60, 3000]),
    }
}

/// What a microsecond is, from the one that decides last to the one that decides first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    Nothing,
    Other,
    Memory,
    Load,
    Wait,
    ColdLaunch,
    Copy,
    Enqueue,
}

impl Process {
    fn lines(&self) -> Vec<String> {
        let watch = format!(r#"{{"src":"ingero","op":"watch","mono_ns":{BASE_NS},"pid":{PID},"stream":"cuda"}}"#);
        let end_ns = BASE_NS + self.end as u64 * US;
        let end = format!(r#"{{"src":"ingero","op":"end","mono_ns":{end_ns},"stream":"cuda"}}"#);
        [watch].into_iter().chain(self.calls.iter().map(Call::line)).chain([end]).collect()
    }

    /// The call as one of those that give the GPU work, and everything after which that work is done: when each of these
    /// waits returned. Only what had returned by call `by` (a place in the order of returns) is known.
    fn done_at(&self, enqueued: usize, by: usize) -> Option<usize> {
        let work = &self.calls[enqueued];
        let covers = |wait: &&Call| {
            let queue = match wait.kind {
                Kind::DeviceSync => None,
                Kind::StreamSync | Kind::Query { ready: true } => Some(wait.stream),
                Kind::Copy { up: false, blocking: true } => Some(DEFAULT),
                _ => return false,
            };
            queue.is_none_or(|queue| queue == work.queue()) && wait.start >= work.end
        };
        self.calls[..by].iter().filter(covers).map(|wait| wait.end).min()
    }

    /// Whether all that had been enqueued has been waited for, as known when call `by` returns.
    fn is_drained_by(&self, by: usize) -> bool {
        let pending = |&at: &usize| self.calls[at].kind.enqueues() && self.done_at(at, by).is_none();
        self.calls[..by].iter().any(|call| call.kind.proves()) && !(0..by).any(|at| pending(&at))
    }

    /// A wait that lasts, or a query that is not ready, with nothing on record to wait for, would tell of calls that are
    /// missing; these have tests of their own.
    fn leave_no_contradiction(&mut self) {
        for at in 0..self.calls.len() {
            if !self.is_drained_by(at) {
                continue;
            }
            let call = &mut self.calls[at];
            match call.kind {
                Kind::Query { ready: false } => call.kind = Kind::Query { ready: true },
                Kind::StreamSync | Kind::DeviceSync if call.end - call.start >= 900 => call.start = call.end - 800,
                _ => {}
            }
        }
    }

    /// Prolongs calls until the next one of another thread returns; says which, by their places. What does depend on the order
    /// is which of two first calls is the cold one, where the loop begins, and whether there was anything to wait for.
    fn let_some_end_together(&mut self) -> Vec<usize> {
        let may = |call: &Call| {
            let waits = matches!(call.kind, Kind::StreamSync | Kind::DeviceSync | Kind::Query { .. });
            !waits && !matches!(call.kind, Kind::Copy { .. })
        };
        let mut pairs: Vec<usize> = Vec::new();
        for at in 20..self.calls.len() - 1 {
            let (one, next) = (&self.calls[at], &self.calls[at + 1]);
            let is_first = |call: &Call| !self.calls[..at].iter().any(|c| (c.kind, c.func) == (call.kind, call.func));
            let own_next =
                self.calls[at + 1..].iter().find(|call| call.tid == one.tid).map_or(self.end, |call| call.start);
            let alone = one.end < next.end && self.calls.get(at + 2).is_none_or(|call| call.end > next.end);
            if alone && may(one) && may(next) && own_next >= next.end && ![one, next].into_iter().any(is_first) {
                pairs.push(at);
            }
        }
        // One that is prolonged is not the one that another one is prolonged to.
        pairs.dedup_by(|next, before| *next == *before + 1);
        pairs.iter().for_each(|&at| self.calls[at].end = self.calls[at + 1].end);
        pairs
    }

    /// What the thread does in each part of a call: from, to.
    fn doing(&self, at: usize) -> Vec<(usize, usize, Doing)> {
        let call = &self.calls[at];
        let (start, end) = (call.start, call.end);
        let doing = match call.kind {
            Kind::Launch if self.is_cold(at) => Doing::ColdLaunch,
            Kind::Copy { blocking, .. } if blocking || call.is_pageable_copy() => {
                // Copying takes a microsecond for each 4,000 bytes at most: before that it waited, if there was what to
                // wait for.
                let waited = (end - start).saturating_sub(call.bytes / 4000);
                let waited = if self.is_drained_by(at) { 0 } else { waited };
                return vec![(start, start + waited, Doing::Wait), (start + waited, end, Doing::Copy)];
            }
            Kind::StreamSync | Kind::DeviceSync | Kind::Query { ready: false } => Doing::Wait,
            Kind::Malloc | Kind::Free => Doing::Memory,
            Kind::Load => Doing::Load,
            _ if call.kind.enqueues() => Doing::Enqueue,
            _ => Doing::Other,
        };
        vec![(start, end, doing)]
    }

    /// The first launch, and the first of each kernel function.
    fn is_cold(&self, at: usize) -> bool {
        let same = |call: &&Call| call.kind == Kind::Launch && call.func == self.calls[at].func;
        !self.calls[..at].iter().any(|call| same(&call))
    }

    /// The loop begins when the first wait after the last cold launch ended, or else with the first warm launch.
    fn loop_start(&self) -> Option<usize> {
        let launches = |kind| matches!(kind, Kind::Launch | Kind::Collective);
        let first = |at: usize| match self.calls[at].kind {
            Kind::Launch => self.is_cold(at),
            kind => !self.calls[..at].iter().any(|call| call.kind == kind),
        };
        let cold = |at: usize| first(at) || self.calls[at].end - self.calls[at].start >= 1000;
        let all = || (0..self.calls.len()).filter(|&at| launches(self.calls[at].kind));
        let warm = all().find(|&at| !cold(at))?;
        let last_cold = all().take_while(|&at| at < warm).last();
        let waits =
            |call: &&Call| matches!(call.kind, Kind::DeviceSync | Kind::StreamSync | Kind::Copy { blocking: true, .. });
        let wait = last_cold.and_then(|cold| self.calls[cold..warm].iter().find(waits));
        Some(wait.map_or(self.calls[warm].start, |wait| wait.end))
    }

    /// Looks of a thread that does nothing else are no calls.
    fn is_look(&self, at: usize) -> bool {
        self.calls[at].tid == WATCHDOG
    }

    /// The class of each microsecond.
    fn classes(&self) -> Vec<Class> {
        let (mut doing, mut drained) = (vec![Doing::Nothing; self.end], vec![false; self.end]);
        if let Some(first) = self.calls.iter().find(|call| call.kind.proves()) {
            drained[first.end..].fill(true);
        }
        for at in (0..self.calls.len()).filter(|&at| self.calls[at].kind.enqueues()) {
            let done = self.done_at(at, self.calls.len()).unwrap_or(self.end);
            drained[self.calls[at].start..done].fill(false);
        }
        // A copy that has returned with the data is done, and is work until then.
        for copy in self.calls.iter().filter(|call| call.kind == Kind::Copy { up: false, blocking: true }) {
            drained[copy.start..copy.end].fill(false);
        }
        for at in (0..self.calls.len()).filter(|&at| !self.is_look(at)) {
            for (from, to, what) in self.doing(at) {
                doing[from..to].iter_mut().for_each(|most| *most = (*most).max(what));
            }
        }
        let mut classes: Vec<Class> =
            doing.iter().zip(&drained).map(|(&doing, &drained)| class(doing, drained)).collect();
        let first_call = self.calls.iter().map(|call| call.start).min().unwrap();
        let mut at = first_call;
        while at < self.end {
            let to = (at..self.end).find(|&to| doing[to] != Doing::Nothing).unwrap_or(self.end);
            // The watchdog may hear that everything is done.
            let known = (at..to).find(|&known| drained[known]).unwrap_or(to);
            if known > at {
                let from = self.gpu_was_busy_to(at, known);
                if known - from >= 1000 {
                    classes[from..known].fill(Class::Silence);
                }
            }
            at = to.max(at + 1);
        }
        // Nothing is known of the time before the first call that returned, at any rate.
        let loop_start = self.loop_start().map_or(self.end, |at| at.max(self.calls[0].start));
        let is_work = |class: Class, doing: Doing| class == Class::GpuWait || doing >= Doing::ColdLaunch;
        let last_work = (0..self.end).rev().find(|&at| is_work(classes[at], doing[at]));
        let loop_end = last_work.map_or(0, |at| at + 1).max(loop_start);
        classes[..loop_start].fill(Class::StartUp);
        classes[loop_end..].fill(Class::WindDown);
        classes
    }

    /// Up to when a later call tells that the GPU had work since `from`, where nobody was in a call up to `to`: it asks and
    /// hears so, or waits for it for a millisecond, and nothing was enqueued in between.
    fn gpu_was_busy_to(&self, from: usize, to: usize) -> usize {
        let tells = |&at: &usize| {
            let call = &self.calls[at];
            let shows = match call.kind {
                Kind::Query { ready } => !ready,
                Kind::StreamSync | Kind::DeviceSync => call.end - call.start >= 1000,
                _ => false,
            };
            shows && !self.is_drained_by(at) && call.start > from
        };
        let fed_before = |at: usize| {
            let call = &self.calls[at];
            let feeds = |other: &Call| other.kind.enqueues() || matches!(other.kind, Kind::Copy { .. });
            self.calls[..at].iter().any(|other| feeds(other) && other.end > from && other.start < call.start)
        };
        let told = (0..self.calls.len()).filter(tells).filter(|&at| !fed_before(at));
        told.map(|at| self.calls[at].start.min(to)).max().unwrap_or(from)
    }
}

fn class(doing: Doing, drained: bool) -> Class {
    match doing {
        Doing::Enqueue => Class::Enqueue,
        Doing::Copy => Class::Copy,
        Doing::ColdLaunch => Class::Load,
        _ if drained => Class::Idle,
        Doing::Wait => Class::GpuWait,
        Doing::Load => Class::Load,
        Doing::Memory => Class::Memory,
        Doing::Other => Class::OtherCall,
        Doing::Nothing => Class::Between,
    }
}

fn sums(classes: &[Class]) -> BTreeMap<&'static str, u64> {
    let mut sums = BTreeMap::new();
    for class in classes {
        *sums.entry(class.name()).or_default() += US;
    }
    sums
}

fn account(engine: &Engine) -> Account {
    let process = engine.cuda.values().next().unwrap();
    process.account(BASE_NS, Tail::ShutDown, (engine.sources(), &engine.cuda_losses))
}

fn found(account: &Account) -> BTreeMap<&'static str, u64> {
    account.classes.iter().map(|(class, ns)| (class.name(), ns)).collect()
}

/// Stretches of one class of lost time: start and end in microseconds, and whether the GPU is known to have been idle.
type Lost = (usize, usize, bool);

fn lost(classes: &[Class]) -> Vec<Lost> {
    let mut all = Vec::new();
    let mut at = 0;
    for run in classes.chunk_by(|a, b| a == b) {
        if matches!(run[0], Class::Idle | Class::Silence) {
            all.push((at, at + run.len(), run[0] == Class::Idle));
        }
        at += run.len();
    }
    all
}

fn lost_found(account: &Account) -> Vec<Lost> {
    let us = |ns: u64| ((ns - BASE_NS) / US) as usize;
    let kept = account.ledger.lost.values().flat_map(|sum| sum.kept());
    let mut all: Vec<Lost> = kept.map(|lost| (us(lost.start_ns), us(lost.end_ns), lost.proven)).collect();
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn each_microsecond_has_the_class_that_its_definition_gives(seed: u64) {
        let process = process(seed);
        let truth = process.classes();
        for eager in [false, true] {
            let account = account(&engine(&process.lines(), eager));
            prop_assert_eq!(lost_found(&account), lost(&truth), "eager: {}", eager);
            prop_assert_eq!(found(&account), sums(&truth), "eager: {}", eager);
        }
    }

    #[test]
    fn the_order_of_records_that_end_together_changes_no_sum(seed: u64) {
        let mut process = process(seed);
        let pairs = process.let_some_end_together();
        let mut other = process.clone();
        pairs.iter().for_each(|&at| other.calls.swap(at, at + 1));
        let [one, two] = [process, other].map(|process| found(&account(&engine(&process.lines(), false))));
        prop_assert_eq!(one, two, "{} pairs", pairs.len());
    }
}
