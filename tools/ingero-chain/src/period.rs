//! Whether something recurs regularly.
//!
//! ```text
//!   starts at 100, 200, 301, 400, 500, 601 ms: distances 100 +- 1 ms -> period 100 ms
//!   starts at 100, 130, 400, 410, 900 ms: no period
//! ```

use crate::chain::Period;

/// Fewer occurrences make no rhythm.
const MIN_OCCURRENCES: usize = 5;
/// So many of ten distances must lie close to the median.
const TENTHS: usize = 9;

/// The period of occurrences, each with its place among all calls and its start, in any order.
pub fn of(occurrences: &[(u64, u64)]) -> Option<Period> {
    if occurrences.len() < MIN_OCCURRENCES {
        return None;
    }
    let mut sorted = occurrences.to_vec();
    sorted.sort_unstable_by_key(|&(_, start_ns)| start_ns);
    let mut distances: Vec<u64> = sorted.windows(2).map(|w| w[1].1 - w[0].1).collect();
    distances.sort_unstable();
    let ns = distances[distances.len() / 2];
    let close = distances.iter().filter(|&&d| d.abs_diff(ns) <= ns / 10).count();
    if ns == 0 || close * 10 < distances.len() * TENTHS {
        return None;
    }
    let calls = sorted[sorted.len() - 1].0.saturating_sub(sorted[0].0);
    let every = (calls as f64 / distances.len() as f64).round() as u64;
    Some(Period { every, ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regular_or_not() {
        let at = |starts: &[u64]| starts.iter().enumerate().map(|(i, &s)| (i as u64 * 20, s)).collect::<Vec<_>>();
        assert_eq!(of(&at(&[100, 200, 301, 400, 500, 601])), Some(Period { every: 20, ns: 100 }));
        assert_eq!(of(&at(&[100, 130, 400, 410, 900])), None);
        assert_eq!(of(&at(&[100, 200, 300, 400])), None);
        assert_eq!(of(&at(&[7; 9])), None);
    }
}
