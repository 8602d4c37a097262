//! Which rows may lie in a stretch of time, without an index on time.
//!
//! Records come in order of their ends, with small inversions, and their ids count up. So it is enough to know, for each
//! block of consecutive ids, the earliest start and the latest end in it. With blocks of three records:
//!
//! ```text
//!   id      1 2 3   4 5 6   7 8 9
//!   start   0 4 5   9 2 9  12 14 13
//!   end     3 6 7  10 11 12 14 15 16
//!   block   [0, 7]  [2, 12] [12, 16]
//! ```
//!
//! What overlaps [8, 11] lies between the first block that ends at 8 or later (the second) and the last block that
//! begins at 11 or before (the second): ids 4 to 6. The statement still compares each row's own times.

/// Records in a block.
const BLOCK: u64 = 4096;

/// The blocks of one recording, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// Earliest start and latest end; the place in the list times [`BLOCK`] is the first id.
    spans: Vec<(u64, u64)>,
}

impl Blocks {
    /// Adds a record; ids must not go down.
    pub(crate) fn add(&mut self, id: u64, start_ns: u64, end_ns: u64) {
        let at = (id / BLOCK) as usize;
        if self.spans.len() <= at {
            self.spans.resize(at + 1, (u64::MAX, 0));
        }
        let span = &mut self.spans[at];
        *span = (span.0.min(start_ns), span.1.max(end_ns));
    }

    /// The first and the last id that may overlap [`from_ns`, `to_ns`]; nothing can where `None`.
    pub(crate) fn ids(&self, from_ns: u64, to_ns: u64) -> Option<(u64, u64)> {
        let first = self.spans.iter().position(|span| span.1 >= from_ns)?;
        let last = self.spans.iter().rposition(|span| span.0 <= to_ns)?;
        (first <= last).then_some((first as u64 * BLOCK, last as u64 * BLOCK + BLOCK - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_overlapping_record_lies_between_the_ids() {
        let mut blocks = Blocks::default();
        // Ends go up by 10; every thousandth record is a long one.
        let records: Vec<(u64, u64, u64)> = (1..=50_000_u64)
            .map(|id| {
                let end = id * 10;
                (id, end.saturating_sub(if id % 1000 == 0 { 90_000 } else { 7 }), end)
            })
            .collect();
        for &(id, start, end) in &records {
            blocks.add(id, start, end);
        }
        for (from, to) in [(0, 5), (123_456, 123_999), (499_990, 600_000), (200_000, 200_000)] {
            let (first, last) = blocks.ids(from, to).unwrap();
            for &(id, start, end) in records.iter().filter(|r| r.1 <= to && r.2 >= from) {
                assert!(first <= id && id <= last, "{id} [{start}, {end}] in [{from}, {to}]: {first}..{last}");
            }
            assert!(last - first < 5 * BLOCK, "{first}..{last}");
        }
        assert_eq!(blocks.ids(600_000, 700_000), None);
    }
}
