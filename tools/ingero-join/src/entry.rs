//! Lines that wait for their turn, and what they keep in memory meanwhile.

use std::cmp::Ordering;
use std::rc::{Rc, Weak};

use crate::item::{Batch, Item, Kind, Time};

/// A line that waits keeps its batch. Batches of which a line waits may cost so much, or twice what is left when each such
/// line was copied out of its batch; of a stream in order nearly all of a batch waits.
const MAX_KEPT_BYTES: usize = 32 * 1024 * 1024;

/// So many bad lines of an input get a place and a `lost` record each; of a flood, those between two lines with a time get
/// one place together.
pub(crate) const SINGLE_BAD_LINES: u64 = 1000;

/// A line at its place in time.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Input and position in it, so that equal ends keep their order.
    pub(crate) order: u64,
    pub(crate) batch: Rc<Batch>,
    pub(crate) index: u32,
    pub(crate) domain: u16,
    /// Its place in the output had passed when it came.
    pub(crate) late: bool,
    /// Another input says the same.
    pub(crate) double: bool,
}

/// The bits of [`Entry::order`] below the input's number.
pub(crate) const LANE_SHIFT: u32 = 48;

impl Entry {
    pub(crate) fn item(&self) -> &Item {
        &self.batch.items[self.index as usize]
    }

    pub(crate) fn line(&self) -> &[u8] {
        self.batch.line(self.item())
    }

    pub(crate) fn lane(&self) -> usize {
        (self.order >> LANE_SHIFT) as usize
    }

    /// When it says that it began, wherever it was placed.
    pub(crate) fn own_start_ns(&self) -> u64 {
        if let Time::Mono { start_ns, .. } = self.item().time { start_ns } else { self.start_ns }
    }

    /// Takes the line out of its batch into one of its own.
    pub(crate) fn stand_alone(&mut self) {
        (self.batch, self.index) = (Rc::new(Batch::of_one(self.line(), self.item())), 0);
    }

    /// About what it costs to hold it.
    pub(crate) fn held_bytes(&self) -> usize {
        self.line().len() + size_of::<Self>() + size_of::<Item>()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.end_ns, self.order).cmp(&(other.end_ns, other.order))
    }
}

/// Bad lines since the last one with a time; they lie between it and the next.
#[derive(Debug, Default)]
pub(crate) struct BadLines {
    pub(crate) waiting: Vec<Entry>,
    /// So many of the input came before, with these.
    seen: u64,
}

impl BadLines {
    /// One more, to be placed by `order`.
    pub(crate) fn push(&mut self, order: u64, domain: u16, item: &Item) {
        self.seen += 1;
        if self.seen > SINGLE_BAD_LINES + 1
            && let Some(last) = self.waiting.last_mut()
            // Nobody else has it before it is placed.
            && let Some(Kind::Bad { count, .. }) = Rc::get_mut(&mut last.batch).map(|batch| &mut batch.items[0].kind)
        {
            *count += 1;
            return;
        }
        let batch = Rc::new(Batch::of_one(b"", item));
        let (start_ns, end_ns, index) = (0, 0, 0);
        self.waiting.push(Entry { start_ns, end_ns, order, batch, index, domain, late: false, double: false });
    }
}

/// The batches of which some line waits.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    batches: Vec<(Weak<Batch>, usize)>,
    /// What they cost, and those that were let go since it was last counted.
    bytes: usize,
    limit_bytes: usize,
}

impl Kept {
    /// Takes note of a batch; whether they cost too much now.
    pub(crate) fn add(&mut self, batch: &Rc<Batch>) -> bool {
        self.batches.push((Rc::downgrade(batch), batch.cost_bytes()));
        self.bytes += batch.cost_bytes();
        if self.bytes <= self.limit_bytes {
            return false;
        }
        self.count();
        self.bytes > MAX_KEPT_BYTES / 2
    }

    pub(crate) fn count(&mut self) {
        self.batches.retain(|(batch, _)| batch.strong_count() > 0);
        self.bytes = self.batches.iter().map(|(_, bytes)| bytes).sum();
        self.limit_bytes = MAX_KEPT_BYTES.max(2 * self.bytes);
    }
}
