//! The recent past of a process, of which it may still turn out that some thread was in a call.
//!
//! Records come in the order of their *ends*. A call that ends after all before it adds two pieces: the time in which
//! nobody was in a call, and the part of the call that is new. A long call of one thread comes after the short ones that it
//! covers, and changes what they looked like:
//!
//! ```text
//!   thread 1   ██ launch                 ██ launch        arrive 1st and 2nd: between 2 and 23 nobody was in a call
//!   thread 2        ██████ cudaMalloc ██████████          arrives 3rd, from 5 to 35: memory from 5 to 23
//!              0 2  5                    23 25   35
//! ```
//!
//! Pieces leave in the order of time once no thread can still have been in a call in them. Until then the youngest are kept
//! one by one; older ones in which no time was lost are summed up in runs, of which a late call takes its part of each
//! class. A thread that has been silent for long is not waited for.

use std::collections::VecDeque;

use crate::limits::{MAX_CALLERS, MAX_FINE, MAX_PIECES, MAX_RUN, SILENCE_NS};
use crate::process::class::{Class, Classes, Doing};
use ingero_common::host::HashMap;

/// Which call a piece lies in: the thread, the place of its operation among those of the process, what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InCall {
    pub(crate) tid: u32,
    pub(crate) op: u32,
    pub(crate) doing: Doing,
}

/// A stretch of time in which nothing began and nothing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// The call that decides, where there is any.
    pub(crate) call: Option<InCall>,
    /// Everything on record that was enqueued had been waited for.
    pub(crate) drained: bool,
    /// A later call has shown that the GPU had work.
    pub(crate) busy: bool,
    /// Calls may have been made that nobody saw.
    pub(crate) unseen: bool,
    /// The call was told of while it hangs, last at this instant: unless the record of its end was lost since.
    pub(crate) hung_at_ns: u64,
}

impl Piece {
    pub(crate) fn len_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }

    pub(crate) fn class(&self) -> Class {
        match self.call {
            _ if self.unseen => Class::NotJudged,
            Some(call) if call.doing.feeds() || !self.drained => call.doing.class(),
            _ if self.drained => Class::Idle,
            _ if self.busy || self.len_ns() < SILENCE_NS => Class::Between,
            _ => Class::Silence,
        }
    }

    /// Whether its place and its length may matter later, beyond its class.
    fn stands_alone(&self) -> bool {
        let in_runs = [Class::Enqueue, Class::OtherCall, Class::Between];
        // What a long one counts as may change in view of what was lost meanwhile.
        !in_runs.contains(&self.class()) || self.hung_at_ns > 0 || self.len_ns() >= SILENCE_NS
    }

    /// The same for [`from_ns`, `to_ns`] only; `None` where they do not meet.
    fn clipped(&self, from_ns: u64, to_ns: u64) -> Option<Piece> {
        let (start_ns, end_ns) = (self.start_ns.max(from_ns), self.end_ns.min(to_ns));
        (start_ns < end_ns).then_some(Piece { start_ns, end_ns, ..*self })
    }
}

/// Older pieces in which no time was lost, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) classes: Classes,
    /// Calls in it.
    pub(crate) calls: u32,
    /// The first of them.
    pub(crate) first: Option<InCall>,
    /// The first that gave the GPU something to do…
    pub(crate) fed: Option<InCall>,
    /// …and the end of the last piece in which the GPU was fed or waited for.
    pub(crate) worked_ns: u64,
}

impl Run {
    fn of(piece: &Piece) -> Self {
        let mut run = Self {
            start_ns: piece.start_ns,
            end_ns: piece.start_ns,
            classes: Classes::default(),
            calls: 0,
            first: None,
            fed: None,
            worked_ns: 0,
        };
        run.add(piece);
        run
    }

    fn add(&mut self, piece: &Piece) {
        self.end_ns = piece.end_ns;
        self.classes.add(piece.class(), piece.len_ns());
        if let Some(call) = piece.call {
            self.calls += 1;
            self.first = self.first.or(Some(call));
            self.note(call, piece.end_ns);
        }
    }

    fn note(&mut self, call: InCall, end_ns: u64) {
        if call.doing.feeds() {
            self.fed = self.fed.or(Some(call));
        }
        if call.doing.feeds() || call.doing.waits() {
            self.worked_ns = self.worked_ns.max(end_ns);
        }
    }

    /// A call went on over [`start_ns`, `end_ns`]. Where in the run its parts lie is not known any more, so that of a part
    /// of the run the same part of each class is taken.
    fn cover(&mut self, start_ns: u64, end_ns: u64, call: InCall) {
        let (from_ns, to_ns) = (start_ns.max(self.start_ns), end_ns.min(self.end_ns));
        let (part, whole) = (u128::from(to_ns.saturating_sub(from_ns)), u128::from(self.end_ns - self.start_ns));
        if part == 0 {
            return;
        }
        for (class, ns) in self.classes.iter().collect::<Vec<_>>() {
            let ns = (u128::from(ns) * part / whole) as u64;
            self.classes.shift(class, call.doing.over(class), ns);
        }
        self.note(call, to_ns);
    }

    /// Splits it at an instant inside it, each class in proportion.
    pub(crate) fn split(self, at_ns: u64) -> (Self, Self) {
        let (part, whole) = (u128::from(at_ns - self.start_ns), u128::from(self.end_ns - self.start_ns));
        let (mut before, mut after) = (self, self);
        (before.end_ns, after.start_ns) = (at_ns, at_ns);
        (before.classes, after.classes) = (Classes::default(), Classes::default());
        // Rounded as a running sum, so that each side has its length to the nanosecond.
        let (mut sum_ns, mut told_ns) = (0_u128, 0_u64);
        for (class, ns) in self.classes.iter() {
            sum_ns += u128::from(ns);
            let ns_before = (sum_ns * part / whole) as u64 - told_ns;
            told_ns += ns_before;
            before.classes.add(class, ns_before.min(ns));
            after.classes.add(class, ns - ns_before.min(ns));
        }
        (before, after)
    }
}

/// What leaves the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "runs are as common as pieces")]
pub(crate) enum Item {
    Piece(Piece),
    Run(Run),
}

impl Item {
    pub(crate) fn start_ns(&self) -> u64 {
        match self {
            Item::Piece(piece) => piece.start_ns,
            Item::Run(run) => run.start_ns,
        }
    }

    pub(crate) fn end_ns(&self) -> u64 {
        match self {
            Item::Piece(piece) => piece.end_ns,
            Item::Run(run) => run.end_ns,
        }
    }

    /// Splits it at an instant inside it.
    pub(crate) fn split(self, at_ns: u64) -> (Self, Self) {
        match self {
            Item::Piece(piece) => {
                (Item::Piece(Piece { end_ns: at_ns, ..piece }), Item::Piece(Piece { start_ns: at_ns, ..piece }))
            }
            Item::Run(run) => {
                let (before, after) = run.split(at_ns);
                (Item::Run(before), Item::Run(after))
            }
        }
    }
}

/// A call that was told of while it hangs: until it returns, the process is in it.
#[derive(Clone, Copy, Debug)]
struct Hanging {
    start_ns: u64,
    told_ns: u64,
    call: InCall,
}

/// The recent past of one process.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    aged: VecDeque<Item>,
    fine: VecDeque<Piece>,
    covered_ns: Option<u64>,
    /// By thread, the start of its last call.
    callers: HashMap<u32, u64>,
    hanging: HashMap<u32, Hanging>,
    /// Calls may be made that nobody sees, from the end of what is covered on.
    unseen: bool,
    /// No run goes over this instant.
    mark_ns: Option<u64>,
}

impl Timeline {
    /// The end of the last call of all; `None` before the first.
    pub(crate) fn covered_ns(&self) -> Option<u64> {
        self.covered_ns
    }

    /// Something may begin at `at_ns`, where a piece begins: what lies before it must not become one with what follows.
    pub(crate) fn mark(&mut self, at_ns: u64) {
        self.mark_ns.get_or_insert(at_ns);
    }

    /// The start of the oldest piece that has not left.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.aged.front().map(Item::start_ns).or(self.fine.front().map(|piece| piece.start_ns))
    }

    /// From here until the next call that is seen from its beginning to its end, any call may have been made.
    pub(crate) fn lose_sight(&mut self, at_ns: u64) {
        self.unseen = true;
        self.callers.clear();
        self.hanging.clear();
        self.covered_ns.get_or_insert(at_ns);
        self.extend_to(at_ns, false);
    }

    /// Thread `call.tid` has been in a call since `start_ns` and had not returned at `told_ns`.
    pub(crate) fn hangs(&mut self, call: InCall, start_ns: u64, told_ns: u64) {
        if self.hanging.len() < MAX_CALLERS {
            self.hanging.insert(call.tid, Hanging { start_ns, told_ns, call });
        }
    }

    /// Thread `tid` is in no such call any more.
    pub(crate) fn returned(&mut self, tid: u32) {
        self.hanging.remove(&tid);
    }

    /// Adds a call over [`start_ns`, `end_ns`]. `drained`: everything on record that had been enqueued before it had been
    /// waited for.
    pub(crate) fn add(&mut self, start_ns: u64, end_ns: u64, call: InCall, drained: bool) {
        if self.callers.len() < MAX_CALLERS || self.callers.contains_key(&call.tid) {
            let last_ns = self.callers.entry(call.tid).or_default();
            *last_ns = start_ns.max(*last_ns);
        }
        self.extend_to(start_ns, drained);
        self.unseen = false;
        let covered_ns = self.covered_ns.unwrap_or(start_ns);
        // One that takes no time covers none.
        if start_ns < covered_ns.min(end_ns) {
            self.cover(start_ns, covered_ns.min(end_ns), call);
        }
        let drained = drained && !call.doing.feeds();
        self.push(Piece { call: Some(call), ..self.piece(covered_ns, end_ns, drained) });
        self.covered_ns = Some(covered_ns.max(end_ns));
    }

    /// The time up to `to_ns` in which nobody began a call.
    pub(crate) fn extend_to(&mut self, to_ns: u64, drained: bool) {
        let Some(covered_ns) = self.covered_ns.filter(|&covered_ns| covered_ns < to_ns) else { return };
        let hanging = self.hanging.values().filter(|hanging| hanging.start_ns < to_ns).max_by_key(|h| h.call.doing);
        let piece = self.piece(covered_ns, to_ns, drained);
        let piece = match hanging {
            Some(hanging) => Piece { call: Some(hanging.call), hung_at_ns: hanging.told_ns, drained: false, ..piece },
            None => piece,
        };
        self.push(piece);
        self.covered_ns = Some(to_ns);
    }

    /// A call that began at `at_ns` shows that the GPU had been at work since it was last given something. `contradicted`:
    /// nothing on record was outstanding, so that something was enqueued of which there is no record, nobody knows when.
    pub(crate) fn gpu_was_busy(&mut self, at_ns: u64, contradicted: bool) {
        let mut mark = |piece: &mut Piece| {
            if piece.start_ns >= at_ns {
                return true;
            }
            let fed = piece.call.is_some_and(|call| call.doing.feeds());
            piece.busy |= !fed && !contradicted;
            piece.drained &= !contradicted;
            !fed
        };
        if self.fine.iter_mut().rev().all(&mut mark) {
            for item in self.aged.iter_mut().rev() {
                let further = match item {
                    Item::Piece(piece) => mark(piece),
                    Item::Run(run) => run.fed.is_none(),
                };
                if !further {
                    break;
                }
            }
        }
    }

    /// Before which instant every thread is known to be in no call of which there is no record yet. `silent_ns`: who has
    /// made no call for so long is not waited for.
    pub(crate) fn known_ns(&self, now_ns: u64, silent_ns: u64, is_dead: impl Fn(u32) -> bool) -> u64 {
        let waited_for = |&(&tid, &last_ns): &(&u32, &u64)| now_ns.saturating_sub(last_ns) < silent_ns && !is_dead(tid);
        self.callers.iter().filter(waited_for).map(|(_, &last_ns)| last_ns).min().unwrap_or(u64::MAX)
    }

    /// Takes out the oldest item that ends by `known_ns`, or any if there are too many.
    pub(crate) fn pop(&mut self, known_ns: u64) -> Option<Item> {
        let too_many = self.aged.len() > MAX_PIECES;
        match self.aged.front() {
            Some(item) if item.end_ns() <= known_ns || too_many => self.aged.pop_front(),
            Some(_) => None,
            None => {
                self.fine.front().filter(|piece| piece.end_ns <= known_ns)?;
                self.fine.pop_front().map(Item::Piece)
            }
        }
    }

    fn piece(&self, start_ns: u64, end_ns: u64, drained: bool) -> Piece {
        Piece { start_ns, end_ns, call: None, drained, busy: false, unseen: self.unseen, hung_at_ns: 0 }
    }

    fn push(&mut self, piece: Piece) {
        if piece.start_ns >= piece.end_ns {
            return;
        }
        // A look of a thread that only asks is no call and divides nothing.
        if let Some(last) = self.fine.back_mut().filter(|last| last.call.is_none() && last.end_ns == piece.start_ns)
            && *last == (Piece { start_ns: last.start_ns, end_ns: last.end_ns, ..piece })
        {
            last.end_ns = piece.end_ns;
            return;
        }
        self.fine.push_back(piece);
        while self.fine.len() > MAX_FINE {
            let Some(old) = self.fine.pop_front() else { return };
            self.age(old);
        }
    }

    fn age(&mut self, piece: Piece) {
        match self.aged.back_mut() {
            _ if piece.stands_alone() => self.aged.push_back(Item::Piece(piece)),
            Some(Item::Run(run)) if run.calls < MAX_RUN && Some(run.end_ns) != self.mark_ns => run.add(&piece),
            _ => self.aged.push_back(Item::Run(Run::of(&piece))),
        }
    }

    /// A call of another thread went on over [`start_ns`, `end_ns`] meanwhile.
    fn cover(&mut self, start_ns: u64, end_ns: u64, call: InCall) {
        let mut at = self.fine.len();
        while at > 0 && self.fine[at - 1].end_ns > start_ns {
            at -= 1;
            let piece = self.fine[at];
            if piece.start_ns >= end_ns {
                continue;
            }
            let (inside, outside) = covered(&piece, start_ns, end_ns, call);
            self.fine[at] = inside;
            // The part before it goes in front of it, the one behind it behind it.
            if let Some(after) = outside[1] {
                self.fine.insert(at + 1, after);
            }
            if let Some(before) = outside[0] {
                self.fine.insert(at, before);
            }
        }
        if at == 0 {
            self.cover_aged(start_ns, end_ns, call);
        }
    }

    fn cover_aged(&mut self, start_ns: u64, end_ns: u64, call: InCall) {
        let mut at = self.aged.len();
        while at > 0 && self.aged[at - 1].end_ns() > start_ns {
            at -= 1;
            match &mut self.aged[at] {
                Item::Run(run) => run.cover(start_ns, end_ns, call),
                Item::Piece(piece) => {
                    if piece.start_ns >= end_ns {
                        continue;
                    }
                    let (inside, outside) = covered(piece, start_ns, end_ns, call);
                    *piece = inside;
                    if let Some(after) = outside[1] {
                        self.aged.insert(at + 1, Item::Piece(after));
                    }
                    if let Some(before) = outside[0] {
                        self.aged.insert(at, Item::Piece(before));
                    }
                }
            }
        }
    }
}

/// What a call over [`start_ns`, `end_ns`], which meets `piece`, makes of it: the part inside, and those before and behind.
fn covered(piece: &Piece, start_ns: u64, end_ns: u64, call: InCall) -> (Piece, [Option<Piece>; 2]) {
    let outside = [piece.clipped(0, start_ns), piece.clipped(end_ns, u64::MAX)];
    let mut inside = piece.clipped(start_ns, end_ns).unwrap_or(*piece);
    if inside.call.is_none_or(|other| other.doing < call.doing) {
        inside.call = Some(call);
    }
    inside.drained &= !call.doing.feeds();
    (inside, outside)
}

#[cfg(test)]
mod tests;
