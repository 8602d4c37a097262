//! What the kernel side has lost, as `lost` records that cover when.

use std::io::{self, Write};

use ingero_common::clock::mono_ns;
use ingero_common::record::why;
use ingero_common::stream::Stream;
use ingero_ebpf::cuda::{Counters, Tracer};

/// The counts at the last look.
#[derive(Debug)]
pub struct Losses {
    last: Counters,
    looked_ns: u64,
}

impl Default for Losses {
    /// Nothing lost yet.
    fn default() -> Self {
        Self { last: Counters::default(), looked_ns: mono_ns() }
    }
}

impl Losses {
    /// Writes what was lost since the last look. A `lost` record begins with the earliest lost call and ends now.
    ///
    /// # Errors
    /// Those of the output, and the kernel's.
    pub fn look<W: Write>(&mut self, tracer: &mut Tracer, stream: &mut Stream<W>) -> io::Result<Counters> {
        let counters = tracer.counters()?;
        if counters.lost() != self.last.lost() {
            let now = mono_ns();
            let from = tracer.take_lost_since()?.unwrap_or(self.looked_ns).min(now);
            for (why, count) in since(self.last, counters) {
                stream.lost(why, count, from, now, None)?;
            }
            self.last = counters;
        }
        self.looked_ns = mono_ns();
        Ok(counters)
    }
}

/// The reasons of the contract with what was lost between two looks.
fn since(before: Counters, now: Counters) -> impl Iterator<Item = (&'static str, u64)> {
    // A thread's stack of open calls that is full is a full map to whoever reads the stream.
    let map_full = |counters: Counters| counters.map_full + counters.too_deep;
    [
        (why::RING_FULL, now.ring_full.saturating_sub(before.ring_full)),
        (why::MAP_FULL, map_full(now).saturating_sub(map_full(before))),
        (why::UNMATCHED, now.unmatched.saturating_sub(before.unmatched)),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loss_has_a_reason_and_is_told_once() {
        let before = Counters { seen: 5, ring_full: 1, map_full: 0, unmatched: 2, too_deep: 0 };
        let now = Counters { seen: 20, ring_full: 4, map_full: 1, unmatched: 2, too_deep: 7 };
        assert_eq!(since(before, now).collect::<Vec<_>>(), [("ring_full", 3), ("map_full", 8)]);
        assert_eq!(since(before, now).map(|(_, count)| count).sum::<u64>(), now.lost() - before.lost());
        assert_eq!(since(now, now).count(), 0);
    }
}
