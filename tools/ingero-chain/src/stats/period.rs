//! Whether something recurs regularly, judged by the time that it took.
//!
//! ```text
//!   starts at 100, 200, 301, 400, 500, 601 ms, 60 ms each: distances 100 +- 1 ms -> period 100 ms
//!   ten more of 1 ms between them, 3 % of the time: the same period
//!   starts at 100, 130, 400, 410, 900 ms: no period
//! ```

use crate::limits::{MIN_OCCURRENCES, PERIOD_SHARE};
use crate::report::model::Period;

/// One occurrence: its place among all calls, its start, its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Occurrence {
    pub(crate) seq: u64,
    pub(crate) start_ns: u64,
    pub(crate) len_ns: u64,
}

/// The period of occurrences, in any order; none may be missing between them.
pub(crate) fn of(occurrences: impl Iterator<Item = Occurrence>) -> Option<Period> {
    let mut main: Vec<Occurrence> = occurrences.collect();
    let least_ns = main_length_ns(&main) / 2;
    main.retain(|one| one.len_ns >= least_ns);
    if main.len() < MIN_OCCURRENCES {
        return None;
    }
    main.sort_unstable_by_key(|one| one.start_ns);
    let mut distances: Vec<u64> = main.windows(2).map(|w| w[1].start_ns - w[0].start_ns).collect();
    distances.sort_unstable();
    let ns = distances[distances.len() / 2];
    let all_ns: f64 = main[1..].iter().map(|one| one.len_ns as f64).sum();
    let regular = main.windows(2).filter(|w| (w[1].start_ns - w[0].start_ns).abs_diff(ns) <= ns / 10);
    let regular_ns: f64 = regular.map(|w| w[1].len_ns as f64).sum();
    if ns == 0 || regular_ns < all_ns * PERIOD_SHARE {
        return None;
    }
    let calls = main[main.len() - 1].seq.saturating_sub(main[0].seq);
    let every = (calls as f64 / distances.len() as f64).round() as u64;
    Some(Period { every, ns })
}

/// The length from which on occurrences add up to nearly all of the time.
fn main_length_ns(all: &[Occurrence]) -> u64 {
    let mut lengths: Vec<u64> = all.iter().map(|one| one.len_ns).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let whole: f64 = lengths.iter().map(|&len_ns| len_ns as f64).sum();
    let mut sum = 0.0;
    for len_ns in lengths {
        sum += len_ns as f64;
        if sum >= whole * PERIOD_SHARE {
            return len_ns;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(starts: &[u64]) -> Vec<Occurrence> {
        let one = |(i, &start_ns): (usize, &u64)| Occurrence { seq: i as u64 * 20, start_ns, len_ns: 60 };
        starts.iter().enumerate().map(one).collect()
    }

    #[test]
    fn regular_or_not() {
        let of = |starts: &[u64]| of(at(starts).into_iter());
        assert_eq!(of(&[100, 200, 301, 400, 500, 601]), Some(Period { every: 20, ns: 100 }));
        assert_eq!(of(&[100, 130, 400, 410, 900]), None);
        assert_eq!(of(&[100, 200, 300, 400]), None);
        assert_eq!(of(&[100, 200, 300, 400, 500, 555]), None, "one of five is not");
        assert!(of(&[100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1055]).is_some(), "one of ten may be not");
        assert_eq!(of(&[7; 9]), None);
    }

    #[test]
    fn what_takes_little_time_hides_no_period() {
        let mut all = at(&[100, 200, 301, 400, 500, 601]);
        let noise = [110, 130, 240, 333, 410, 570].map(|start_ns| Occurrence { seq: 1, start_ns, len_ns: 1 });
        all.extend(noise);
        assert_eq!(of(all.into_iter()).map(|period| period.ns), Some(100));
    }
}
