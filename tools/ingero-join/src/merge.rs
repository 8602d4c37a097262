//! The merge: many inputs in, one sequence out, ordered by end time, with bounded memory.
//!
//! A worked example, with a window of 100 ms; `a3@410` is the third line of input a, ending at 410 ms.
//!
//! | step | the input that is furthest behind gives | a read to | b read to | watermark | leaves, in order |
//! |------|------------------------------------------|-----------|-----------|-----------|------------------|
//! | 1    | a: `a1@300`                              | 300       | nowhere   | none      |                  |
//! | 2    | b: `b1@250`                              | 300       | 250       | 150       |                  |
//! | 3    | b: `b2@420`                              | 300       | 420       | 200       |                  |
//! | 4    | a: `a2@260` (an inversion)               | 300       | 420       | 200       |                  |
//! | 5    | a: `a3@410`                              | 410       | 420       | 310       | b1 a2 a1         |
//! | 6    | a: `a4@290` (too late)                   | 410       | 420       | 310       | a4, flagged      |
//! | 7    | a: its end                               | -         | 420       | 320       |                  |
//! | 8    | b: its end                               | -         | -         | -         | a3 b2            |
//!
//! The next line is always taken from the input that is furthest behind in time. So all inputs advance
//! together, what is held is a window's worth and not a file's, and for files the result depends on their
//! bytes alone: never on which thread was quicker. An input may disturb its own order by up to the
//! window: when it was read to `h`, whatever it still brings ends at `h - window` or later. The watermark
//! is the smallest of these; what ends before it may leave. Equal ends leave in the order of the inputs
//! and within one in its own order.
//!
//! A live tracer says now and then that it has told of everything up to some instant (`alive`): what ends before that may leave at
//! once, as far as this input goes, and needs no window.
//!
//! One wrong time (a duration that wrapped around) must not send an input into the future, where nobody
//! would read it any more: a leap of more than [`LEAP_NS`] counts only once the line after it confirms it.
//!
//! Waiting for the input that is furthest behind would let one silent pipe stop everything, hence the
//! stall: a pipe that has had nothing for so long no longer counts, until it brings something. Regular
//! files never stall; a slow disk is not a silent program.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use ingero_common::record::LEAP_NS;

use crate::clocks::Clocks;
use crate::entry::{BadLines, Entry, Kept, LANE_SHIFT};
use crate::item::{Batch, Item, Kind, Start, Time};
use crate::queue::{Hub, Taken};

/// What waits for its turn may cost so much memory; beyond that the window is cut short.
const MAX_HELD_BYTES: usize = 11 * 1024 * 1024;

/// First lines of an input that are kept until the output begins: a joined stream has one of each of its inputs.
const MAX_HEAD_BYTES: usize = 4 * 1024 * 1024;

/// A line that belongs further up in its input than this goes to the strays.
const MAX_STEPS: usize = 32;

/// What comes next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The first line of a stream, before everything that has a time.
    Head(Entry),
    /// The next line in order (or a late one).
    Line(Entry),
    /// Nothing can leave before this input has said more.
    Wait(usize),
    /// All inputs that are still open are silent, and nothing is held.
    Idle,
    /// An input could not be read to its end: its number and why. It counts as ended.
    Broken(usize, anyhow::Error),
    /// All inputs have ended.
    End,
}

/// One input.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) name: String,
    /// A regular file: waiting for it is never in vain.
    patient: bool,
    state: State,
    batch: Option<Rc<Batch>>,
    next: usize,
    /// Lines that wait, in order.
    held: VecDeque<Entry>,
    /// The latest end so far: how far it was read.
    high_ns: Option<u64>,
    /// Its tracer has promised that nothing ends before this.
    promised_ns: u64,
    /// The end of the last line, where it leapt into the future and nothing has confirmed it.
    leap_ns: Option<u64>,
    /// The end of the line before.
    last_ns: u64,
    lines: u64,
    /// Only `start` records so far, of so many bytes.
    at_head: bool,
    head_bytes: usize,
    wall_offset_ns: Option<i64>,
    domain: u16,
    bad: BadLines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The others wait for it.
    Holding,
    /// Silent for too long: nobody waits for it.
    Stalled,
    Ended,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Merge {
    hub: Arc<Hub>,
    pub(crate) lanes: Vec<Lane>,
    window_ns: u64,
    clocks: Clocks,
    strict: bool,
    /// Lines that came far out of their input's order, and wait too.
    strays: BinaryHeap<Reverse<Entry>>,
    held_bytes: usize,
    kept: Kept,
    /// What may leave at once.
    ready: VecDeque<Entry>,
    /// The latest end that left.
    released_ns: u64,
    /// The window had to be cut short to save memory.
    pub(crate) cut_short: bool,
}

impl Lane {
    pub(crate) fn new(name: String, patient: bool) -> Self {
        Self {
            name,
            patient,
            state: State::Holding,
            batch: None,
            next: 0,
            held: VecDeque::new(),
            high_ns: None,
            promised_ns: 0,
            leap_ns: None,
            last_ns: 0,
            lines: 0,
            at_head: true,
            head_bytes: 0,
            wall_offset_ns: None,
            domain: 0,
            bad: BadLines::default(),
        }
    }

    /// How far it was read.
    pub(crate) fn high_ns(&self) -> u64 {
        self.high_ns.unwrap_or(0)
    }

    /// A line that ends at `end_ns` was read.
    fn advance(&mut self, end_ns: u64, window_ns: u64) {
        let confirmed = self.leap_ns.take().is_some_and(|leap_ns| end_ns >= leap_ns.saturating_sub(window_ns));
        let leaps = self.high_ns.is_some_and(|high_ns| end_ns > high_ns.saturating_add(LEAP_NS));
        if leaps && !confirmed {
            self.leap_ns = Some(end_ns);
        } else {
            self.high_ns = self.high_ns.max(Some(end_ns));
        }
    }

    /// Whether it is no regular file.
    pub(crate) fn is_live(&self) -> bool {
        !self.patient
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// Whether it has brought anything yet.
    pub(crate) fn has_spoken(&self) -> bool {
        self.lines > 0
    }
}

impl Merge {
    pub(crate) fn new(hub: Arc<Hub>, lanes: Vec<Lane>, window: Duration, clocks: Clocks, strict: bool) -> Self {
        Self {
            hub,
            lanes,
            window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX),
            clocks,
            strict,
            strays: BinaryHeap::new(),
            held_bytes: 0,
            kept: Kept::default(),
            ready: VecDeque::new(),
            released_ns: 0,
            cut_short: false,
        }
    }

    /// What comes next.
    pub(crate) fn next(&mut self) -> anyhow::Result<Step> {
        loop {
            if let Some(entry) = self.ready.pop_front() {
                let head = entry.end_ns == 0 && matches!(entry.item().kind, Kind::Start(_));
                return Ok(if head { Step::Head(entry) } else { Step::Line(entry) });
            }
            if let Some(entry) = self.release() {
                return Ok(Step::Line(entry));
            }
            let Some(lane) = self.furthest_behind() else {
                let all_ended = self.lanes.iter().all(Lane::has_ended);
                return Ok(if all_ended { Step::End } else { Step::Idle });
            };
            if let Some(step) = self.pull(lane)? {
                return Ok(step);
            }
        }
    }

    /// Stops waiting for pipes that have had nothing for `hold`, and waits again for those that have.
    pub(crate) fn notice_silence(&mut self, hold: Duration) {
        let silences = self.hub.silences();
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            match lane.state {
                State::Holding if !lane.patient && lane.batch.is_none() && silences[at] >= hold => {
                    lane.state = State::Stalled;
                }
                State::Stalled if self.hub.has_any(at) => lane.state = State::Holding,
                _ => {}
            }
        }
    }

    /// Treats an input as ended although it is not.
    pub(crate) fn give_up(&mut self, lane: usize) {
        self.lanes[lane].state = State::Ended;
    }

    /// Everything that ends before this has been read, as all inputs promise that count; 0 where one does not.
    pub(crate) fn promised_ns(&self) -> u64 {
        let holding = self.lanes.iter().filter(|l| l.state == State::Holding);
        holding.map(|l| l.promised_ns).min().unwrap_or(0)
    }

    /// What the inputs' clocks gave reason to tell the user.
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        self.clocks.take_notices()
    }

    fn furthest_behind(&self) -> Option<usize> {
        let holding = self.lanes.iter().enumerate().filter(|(_, l)| l.state == State::Holding);
        holding.min_by_key(|(at, l)| (l.high_ns, *at)).map(|(at, _)| at)
    }

    /// The first of what is held, if it may leave.
    fn release(&mut self) -> Option<Entry> {
        let fronts = self.lanes.iter().enumerate().filter_map(|(at, l)| Some((l.held.front()?, Some(at))));
        let (first, from) = fronts.chain(self.strays.peek().map(|s| (&s.0, None))).min()?;
        let holding = self.lanes.iter().filter(|l| l.state == State::Holding);
        // An input that has said nothing yet (`None`) sorts first and holds everything.
        let known_ns = |lane: &Lane| Some(lane.high_ns?.saturating_sub(self.window_ns).max(lane.promised_ns));
        let may_leave = match holding.map(known_ns).min() {
            None => true,
            Some(None) => false,
            Some(Some(known_ns)) => first.end_ns < known_ns,
        };
        let too_much = self.held_bytes > MAX_HELD_BYTES;
        if !may_leave && !too_much {
            return None;
        }
        self.cut_short |= !may_leave;
        let entry = match from {
            Some(lane) => self.lanes[lane].held.pop_front()?,
            None => self.strays.pop()?.0,
        };
        self.held_bytes -= entry.held_bytes();
        self.released_ns = self.released_ns.max(entry.end_ns);
        Some(entry)
    }

    /// Takes one line of an input.
    fn pull(&mut self, at: usize) -> anyhow::Result<Option<Step>> {
        let lane = &mut self.lanes[at];
        if lane.batch.as_ref().is_none_or(|b| lane.next == b.items.len()) {
            lane.batch = None;
            match self.hub.take(at) {
                Taken::Batch(batch) => {
                    let batch = Rc::from(batch);
                    (lane.batch, lane.next) = (Some(Rc::clone(&batch)), 0);
                    if self.kept.add(&batch) {
                        self.copy_held();
                    }
                    self.rejoin();
                }
                Taken::Empty => return Ok(if self.hear_promises(at)? { None } else { Some(Step::Wait(at)) }),
                Taken::Ended(error) => {
                    lane.state = State::Ended;
                    lane.high_ns = lane.high_ns.max(lane.leap_ns);
                    let end_ns = lane.last_ns;
                    self.place_bad(at, end_ns);
                    return match error {
                        Some(error) if self.lanes[at].lines == 0 => Err(error),
                        error => Ok(error.map(|error| Step::Broken(at, error))),
                    };
                }
            }
            return Ok(None);
        }
        self.accept(at)?;
        Ok(None)
    }

    /// While one input has nothing, the others may already have said how far they are: it is their next line. Whether one has.
    fn hear_promises(&mut self, silent: usize) -> anyhow::Result<bool> {
        for at in (0..self.lanes.len()).filter(|&at| at != silent) {
            let lane = &self.lanes[at];
            let next = lane.batch.as_ref().and_then(|batch| batch.items.get(lane.next));
            if next.is_some_and(|item| matches!(item.kind, Kind::Alive)) {
                self.accept(at)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Gives each line that waits a batch of its own.
    fn copy_held(&mut self) {
        self.lanes.iter_mut().flat_map(|lane| &mut lane.held).for_each(Entry::stand_alone);
        let mut strays = std::mem::take(&mut self.strays).into_vec();
        strays.iter_mut().for_each(|stray| stray.0.stand_alone());
        self.strays = strays.into();
        self.kept.count();
    }

    /// Those that stalled and have something again hold the others again.
    fn rejoin(&mut self) {
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            if lane.state == State::Stalled && self.hub.has_any(at) {
                lane.state = State::Holding;
            }
        }
    }

    /// Gives the next line of a batch its place.
    fn accept(&mut self, at: usize) -> anyhow::Result<()> {
        let other_offset = self.lanes.iter().find_map(|l| l.wall_offset_ns);
        let lane = &mut self.lanes[at];
        let Some(batch) = lane.batch.clone() else { return Ok(()) };
        let index = lane.next;
        lane.next += 1;
        lane.lines += 1;
        let item = &batch.items[index];
        let order = (at as u64) << LANE_SHIFT | lane.lines;

        match &item.kind {
            Kind::Start(start) => {
                lane.domain = self.clocks.admit(&lane.name, start)?;
                lane.wall_offset_ns = start.wall_offset_ns.or(lane.wall_offset_ns);
            }
            Kind::Clock { wall_offset_ns } => lane.wall_offset_ns = Some(*wall_offset_ns),
            Kind::Bad { number, reason, .. } => {
                if self.strict {
                    bail!("{}, line {number}: {reason}; not strict, it would be skipped and counted", lane.name);
                }
                lane.bad.push(order, lane.domain, item);
                return Ok(());
            }
            _ => {}
        }

        let shift_ns = self.clocks.shift_ns(lane.domain);
        let shifted = |ns: u64| ns.saturating_add_signed(shift_ns);
        let wall_offset_ns = lane.wall_offset_ns.or(other_offset);
        let time = match item.time {
            Time::Mono { start_ns, end_ns } => Some((shifted(start_ns), shifted(end_ns))),
            Time::Wall { start_ns, dur_ns } => wall_offset_ns.map(|offset_ns| {
                let start_ns = shifted(u64::try_from(start_ns.saturating_sub(offset_ns)).unwrap_or(0));
                (start_ns, start_ns.saturating_add(dur_ns))
            }),
            Time::None => None,
        };
        let mut entry = Entry {
            start_ns: lane.last_ns,
            end_ns: lane.last_ns,
            order,
            index: index as u32,
            domain: lane.domain,
            late: false,
            double: false,
            batch: Rc::clone(&batch),
        };
        if let Kind::LossAhead { start_ns, end_ns } = item.kind {
            (entry.start_ns, entry.end_ns) = (shifted(start_ns), shifted(end_ns));
            self.ready.push_back(entry);
            return Ok(());
        }
        lane.head_bytes += batch.line(item).len() + size_of::<(Entry, Item, Start)>();
        if lane.at_head && lane.head_bytes <= MAX_HEAD_BYTES && matches!(item.kind, Kind::Start(_)) {
            // Its own time still says how far the input was read.
            lane.high_ns = lane.high_ns.max(time.map(|(_, end_ns)| end_ns));
            (entry.start_ns, entry.end_ns) = (0, 0);
            self.ready.push_back(entry);
            return Ok(());
        }
        lane.at_head = false;
        if let Some((start_ns, end_ns)) = time {
            (entry.start_ns, entry.end_ns) = (start_ns, end_ns);
            lane.advance(end_ns, self.window_ns);
            // Not where nothing confirms it.
            if matches!(item.kind, Kind::Alive) && lane.leap_ns.is_none() {
                lane.promised_ns = lane.promised_ns.max(end_ns);
            }
            // A time that nothing confirms, or from long ago, is no neighbour to what has none.
            if lane.leap_ns.is_none() && end_ns.saturating_add(self.window_ns) >= lane.high_ns() {
                if !lane.bad.waiting.is_empty() {
                    self.place_bad(at, end_ns);
                }
                self.lanes[at].last_ns = end_ns;
            }
        }
        // Without a time of its own it can't be late; it follows the line before it.
        self.hold(entry, time.is_some());
        Ok(())
    }

    /// Places the bad lines of an input between its last line with a time and the one that ends at `end_ns`.
    fn place_bad(&mut self, at: usize, end_ns: u64) {
        let lane = &mut self.lanes[at];
        let (from_ns, to_ns) = (lane.last_ns.min(end_ns), lane.last_ns.max(end_ns));
        for mut entry in std::mem::take(&mut lane.bad.waiting) {
            (entry.start_ns, entry.end_ns) = (from_ns, to_ns);
            self.hold(entry, false);
        }
    }

    fn hold(&mut self, mut entry: Entry, may_be_late: bool) {
        if entry.end_ns < self.released_ns {
            entry.late = may_be_late;
            self.ready.push_back(entry);
        } else {
            self.held_bytes += entry.held_bytes();
            let held = &mut self.lanes[entry.lane()].held;
            // Nearly always 0; inversions between CPUs are a few lines.
            match held.iter().rev().take(MAX_STEPS + 1).take_while(|e| **e > entry).count() {
                steps @ 0..=MAX_STEPS => held.insert(held.len() - steps, entry),
                _ => self.strays.push(Reverse(entry)),
            }
        }
    }
}
