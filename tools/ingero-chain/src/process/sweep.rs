//! From the pieces of the timeline, in the order of time, to the entries of the account.
//!
//! Idle pieces that follow one another are one interval, also across calls that give the GPU nothing to do. It ends with the
//! call that does, and that thread's path is its cause. What follows the last work is held back: with the next work it is
//! part of the loop, without it, it is shutdown.
//!
//! ```text
//!   sync  |       idle: one interval       |launch   sync ░░░░░░░ silence ░░░░░ query  … launch
//!   ██████|   malloc ██        record █    |██████   ██                                  ██████
//!                                           names it                  both are named by this one
//! ```

use std::collections::BTreeMap;

use ingero_common::host::{Losses, Thread};

use crate::blame::path::{self, OwnCall, Sources};
use crate::limits::{GPU_BUSY_PCT, MAX_CALLS_IN_IDLE, MAX_UNNAMED, SHORT_WAIT_NS, SILENCE_NS};
use crate::process::class::{Class, Classes, Doing};
use crate::process::ledger::{Entry, Ledger};
use crate::process::lost::Lost;
use crate::process::timeline::{InCall, Item, Piece, Run};
use crate::stats::calls::GroupKey;

/// What the sweep asks about the process whose pieces it takes.
pub(crate) struct Context<'a> {
    pub(crate) pid: u32,
    pub(crate) sources: Sources<'a>,
    pub(crate) cuda_losses: &'a Losses,
    /// The operations of the process, by their places.
    pub(crate) ops: &'a [GroupKey],
    /// The name of a thread.
    pub(crate) thread: &'a dyn Fn(u32) -> Thread,
    /// No other process on this host uses a GPU, so that the counter of its use speaks of this one.
    pub(crate) alone: bool,
}

/// A lost interval that has not ended yet.
#[derive(Clone, Debug)]
struct Open {
    start_ns: u64,
    end_ns: u64,
    proven: bool,
    calls: Vec<OwnCall>,
}

/// What came after the last work.
#[derive(Clone, Debug)]
enum Held {
    Span {
        start_ns: u64,
        end_ns: u64,
        classes: Classes,
        worked_ns: u64,
    },
    Lost {
        lost: Box<Lost>,
        before: InCall,
    },
    /// A lost interval that ended, but not with a call: the next one is what it was before.
    Ended(Box<Open>),
}

/// Calls and nanoseconds by what they do and operation, of those that keep the host and those that wait for the GPU.
pub(crate) type Tally = BTreeMap<(Doing, GroupKey), (u64, u64)>;

/// The state between two pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sweep {
    open: Option<Open>,
    held: Vec<Held>,
    /// How many of these have [`Held::Ended`].
    ended: usize,
    /// Records were lost while the GPU was idle: whether it still is, is not known until work is enqueued and waited for again.
    doubt: bool,
    /// Calls so far.
    calls: u64,
    /// Idle intervals so far: steps, where each step of a loop waits for the GPU.
    pub(crate) drains: u64,
    pub(crate) busy_ns: u64,
    pub(crate) tally: Tally,
    pub(crate) waits: Waits,
}

/// Waits for the GPU right after it was given work, in the order of the calls: without lost time in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) n: u64,
    /// Those that were over at once: the GPU was done before it was waited for.
    pub(crate) short: u64,
}

impl Sweep {
    /// The start of what is not counted yet, for which the past is still needed.
    pub(crate) fn needs_from_ns(&self) -> Option<u64> {
        let ended = self.held.iter().filter(|_| self.ended > 0).find_map(|held| match held {
            Held::Ended(open) => Some(open.start_ns),
            Held::Span { .. } | Held::Lost { .. } => None,
        });
        ended.or(self.open.as_ref().map(|open| open.start_ns))
    }

    /// Takes the next item.
    pub(crate) fn take(&mut self, item: Item, context: &Context<'_>, ledger: &mut Ledger) {
        match item {
            Item::Piece(piece) => {
                for piece in self.judged(piece, context).into_iter().flatten() {
                    self.piece(&piece, context, ledger);
                }
            }
            Item::Run(run) => self.run(&run, context, ledger),
        }
    }

    /// What is known of a piece in view of the records that are missing there: at most a part that is not judged, and a rest.
    fn judged(&mut self, mut piece: Piece, context: &Context<'_>) -> [Option<Piece>; 2] {
        if !piece.drained {
            self.doubt = false;
        }
        if piece.class() == Class::Between && piece.len_ns() < SILENCE_NS {
            return [Some(piece), None];
        }
        if piece.hung_at_ns > 0 && context.cuda_losses.count(context.pid, piece.hung_at_ns, piece.end_ns) > 0 {
            return [Some(Piece { unseen: true, ..piece }), None];
        }
        let mut missing = 0.0;
        let mut unknown_to_ns = piece.start_ns;
        for loss in context.cuda_losses.touching(context.pid, piece.start_ns, piece.end_ns) {
            self.doubt = true;
            // What kept the GPU busy at the end may have been given to it in the middle.
            piece.busy = false;
            let (from_ns, to_ns) = (loss.start_ns.max(piece.start_ns), loss.end_ns.min(piece.end_ns));
            match loss.count {
                Some(0) => {}
                Some(count) if loss.sampled => {
                    let whole_ns = (loss.end_ns - loss.start_ns).max(1);
                    missing += count as f64 * (to_ns - from_ns) as f64 / whole_ns as f64;
                }
                // A call that was lost ended while records were being lost and may have begun at any time before.
                _ if loss.start_ns >= piece.end_ns => {}
                Some(count) if part_ns(to_ns - piece.start_ns, count as f64) >= SILENCE_NS as f64 => {
                    missing += count as f64
                }
                _ => unknown_to_ns = unknown_to_ns.max(to_ns),
            }
        }
        if self.doubt && piece.drained {
            piece.drained = false;
        }
        if piece.class() != Class::Silence {
            return [Some(piece), None];
        }
        if part_ns(piece.len_ns(), missing) < SILENCE_NS as f64 {
            return [Some(Piece { unseen: true, ..piece }), None];
        }
        let unknown = Piece { end_ns: unknown_to_ns, unseen: true, ..piece };
        let rest = Piece { start_ns: unknown_to_ns, ..piece };
        [unknown, rest].map(|part| Some(part).filter(|part| part.start_ns < part.end_ns))
    }

    fn piece(&mut self, piece: &Piece, context: &Context<'_>, ledger: &mut Ledger) {
        let class = piece.class();
        let class =
            if class == Class::Silence && self.counter_says_busy(piece, context) { Class::Between } else { class };
        if class == Class::Between && piece.len_ns() >= SILENCE_NS {
            self.busy_ns += piece.len_ns();
        }
        match class {
            Class::Idle => self.extend(piece, true, context),
            Class::Silence => self.extend(piece, false, context),
            _ => {
                self.close(piece.call, context);
                if class == Class::NotJudged {
                    self.give_up();
                }
                let worked_ns = if class == Class::GpuWait { piece.end_ns } else { 0 };
                let fed = piece.call.filter(|call| call.doing.feeds());
                self.hold(piece.start_ns, piece.end_ns, Classes::of(class, piece.len_ns()), worked_ns);
                self.name(fed, context, ledger);
            }
        }
        if let Some(call) = piece.call {
            self.calls += 1;
            self.note(call, class, piece.len_ns(), context);
        }
    }

    /// Adds up what host calls take, and how often the GPU is waited for.
    fn note(&mut self, call: InCall, class: Class, ns: u64, context: &Context<'_>) {
        let counts = matches!(class, Class::Memory | Class::Load | Class::GpuWait | Class::Copy);
        if class == Class::GpuWait && !self.held.iter().any(|held| matches!(held, Held::Lost { .. })) {
            self.waits.n += 1;
            // However short it is, a query that says "not ready" found the GPU at work.
            self.waits.short += u64::from(ns < SHORT_WAIT_NS && call.doing != Doing::Poll);
        }
        if let Some(&key) = context.ops.get(call.op as usize).filter(|_| counts) {
            let (n, sum_ns) = self.tally.entry((call.doing, key)).or_default();
            (*n, *sum_ns) = (*n + 1, *sum_ns + ns);
        }
    }

    fn run(&mut self, run: &Run, context: &Context<'_>, ledger: &mut Ledger) {
        self.doubt = false;
        self.close(run.first, context);
        self.hold(run.start_ns, run.end_ns, run.classes, run.worked_ns);
        self.calls += u64::from(run.calls);
        self.name(run.fed, context, ledger);
    }

    fn counter_says_busy(&self, piece: &Piece, context: &Context<'_>) -> bool {
        let least_pct = || context.sources.samples.least_gpu_pct(piece.start_ns, piece.end_ns);
        context.alone && least_pct().is_some_and(|pct| pct >= GPU_BUSY_PCT)
    }

    /// Adds a piece to the lost interval that is open, or opens one.
    fn extend(&mut self, piece: &Piece, proven: bool, context: &Context<'_>) {
        if self.open.as_ref().is_some_and(|open| open.proven != proven || open.end_ns != piece.start_ns) {
            self.close(piece.call, context);
        }
        let open = self.open.get_or_insert_with(|| Open {
            start_ns: piece.start_ns,
            end_ns: piece.start_ns,
            proven,
            calls: Vec::new(),
        });
        open.end_ns = piece.end_ns;
        if let Some(call) = piece.call.filter(|_| open.calls.len() < MAX_CALLS_IN_IDLE) {
            let op = context.ops.get(call.op as usize).map(|key| key.op).unwrap_or_default();
            open.calls.push(OwnCall { tid: call.tid, op, start_ns: piece.start_ns, end_ns: piece.end_ns });
        }
    }

    /// The lost interval that is open ends, with the call `before`; without one, with the next that begins.
    fn close(&mut self, before: Option<InCall>, context: &Context<'_>) {
        if let Some(open) = self.open.take() {
            self.held.push(Held::Ended(Box::new(open)));
            self.ended += 1;
        }
        let Some(before) = before else { return };
        for at in (0..self.held.len()).rev() {
            if self.ended == 0 {
                break;
            }
            if let Held::Ended(open) = &self.held[at] {
                let lost = Box::new(self.lost(open, before, context));
                self.drains += u64::from(lost.proven);
                self.held[at] = Held::Lost { lost, before };
                self.ended -= 1;
            }
        }
    }

    /// What ended those lost intervals is something that nobody saw.
    fn give_up(&mut self) {
        for held in self.held.iter_mut().filter(|_| self.ended > 0) {
            if let Held::Ended(open) = held {
                *held = not_judged(open);
            }
        }
        self.ended = 0;
    }

    fn lost(&self, open: &Open, before: InCall, context: &Context<'_>) -> Lost {
        let (start_ns, end_ns, pid) = (open.start_ns, open.end_ns, context.pid);
        let lost_records =
            context.cuda_losses.count(pid, start_ns, end_ns) + context.sources.losses.count(pid, start_ns, end_ns);
        Lost {
            start_ns,
            end_ns,
            proven: open.proven,
            seq: self.calls,
            lost_records,
            watched_ns: path::watched_ns(context.sources, pid, start_ns, end_ns),
            breakdown: path::breakdown(context.sources, (context.thread)(before.tid), start_ns, end_ns, &open.calls),
        }
    }

    fn hold(&mut self, start_ns: u64, end_ns: u64, classes: Classes, worked_ns: u64) {
        match self.held.last_mut() {
            // The loop may end with the last wait for work, so that what follows one stands for itself.
            Some(Held::Span { end_ns: last_ns, classes: sum, worked_ns: last_worked_ns, .. })
                if *last_worked_ns == 0 || worked_ns > 0 =>
            {
                *last_ns = end_ns;
                sum.add_all(&classes);
                *last_worked_ns = worked_ns.max(*last_worked_ns);
            }
            _ => self.held.push(Held::Span { start_ns, end_ns, classes, worked_ns }),
        }
    }

    /// The next work came: what was held back is part of the loop, lost time is before `fed`.
    fn name(&mut self, fed: Option<InCall>, context: &Context<'_>, ledger: &mut Ledger) {
        if fed.is_none() && self.held.len() < MAX_UNNAMED {
            return;
        }
        self.ended = 0;
        for held in std::mem::take(&mut self.held) {
            ledger.add(entry(held, fed, context));
        }
    }

    /// No more will come: what is left, of which the part up to the last wait for work belongs to the loop. Says what the
    /// rest consists of.
    pub(crate) fn finish(&mut self, context: &Context<'_>, ledger: &mut Ledger) -> Classes {
        let mut rest = Classes::default();
        self.close(None, context);
        let worked = |held: &Held| matches!(held, Held::Span { worked_ns, .. } if *worked_ns > 0);
        let until = self.held.iter().rposition(worked).map_or(0, |at| at + 1);
        for (at, held) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if at < until {
                ledger.add(entry(held, None, context));
                continue;
            }
            let (proven, ns) = match held {
                Held::Span { classes, .. } => {
                    rest.add_all(&classes);
                    continue;
                }
                Held::Lost { lost, .. } => (lost.proven, lost.len_ns()),
                Held::Ended(open) => (open.proven, open.end_ns - open.start_ns),
            };
            rest.add(if proven { Class::Idle } else { Class::Silence }, ns);
        }
        rest
    }
}

fn entry(held: Held, fed: Option<InCall>, context: &Context<'_>) -> Entry {
    match held {
        Held::Span { start_ns, end_ns, classes, .. } => Entry::Span { start_ns, end_ns, classes },
        Held::Lost { lost, before } => {
            let op = fed.unwrap_or(before).op;
            let key = context.ops.get(op as usize).copied().unwrap_or_default();
            Entry::Lost(lost, key)
        }
        Held::Ended(open) => entry(not_judged(&open), fed, context),
    }
}

fn not_judged(open: &Open) -> Held {
    let (start_ns, end_ns) = (open.start_ns, open.end_ns);
    Held::Span { start_ns, end_ns, classes: Classes::of(Class::NotJudged, end_ns - start_ns), worked_ns: 0 }
}

/// How long each part of a stretch of `len_ns` is if `missing` calls were made in it at even distances.
fn part_ns(len_ns: u64, missing: f64) -> f64 {
    len_ns as f64 / (missing + 1.0)
}

#[cfg(test)]
mod tests;
