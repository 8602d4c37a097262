//! Quantiles of durations in bounded memory: exact for the first 4,096 values, then a histogram that is
//! right to three significant digits, which takes some 80 KiB.

use hdrhistogram::Histogram;

use crate::limits::{MAX_EXACT, MIN_CALLS_P99};

/// A histogram with so many significant digits is off by at most 0.1 %.
const DIGITS: u8 = 3;

/// Counts saturate, and the histogram grows with its largest value; one of over 73 years counts as that.
fn record(histogram: &mut Histogram<u32>, ns: u64) {
    if histogram.record(ns.min(1 << 61)).is_err() {
        histogram.saturating_record(ns);
    }
}

/// A set of durations in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Quantiles {
    values: Values,
    max_ns: u64,
}

#[derive(Clone, Debug)]
enum Values {
    Exact(Vec<u64>),
    Rough(Histogram<u32>),
}

impl Default for Quantiles {
    fn default() -> Self {
        Self { values: Values::Exact(Vec::new()), max_ns: 0 }
    }
}

impl Quantiles {
    /// Adds one.
    pub(crate) fn add(&mut self, ns: u64) {
        self.max_ns = self.max_ns.max(ns);
        match &mut self.values {
            Values::Exact(values) if values.len() < MAX_EXACT => values.push(ns),
            Values::Exact(values) => {
                // Cannot fail: the digits are in the crate's range. If it did, exactness would just go on.
                let Ok(mut histogram) = Histogram::new(DIGITS) else { return values.push(ns) };
                for &value in values.iter().chain([&ns]) {
                    record(&mut histogram, value);
                }
                self.values = Values::Rough(histogram);
            }
            Values::Rough(histogram) => record(histogram, ns),
        }
    }

    /// How many.
    pub(crate) fn len(&self) -> u64 {
        match &self.values {
            Values::Exact(values) => values.len() as u64,
            Values::Rough(histogram) => histogram.len(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest; 0 where there are none.
    pub(crate) fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The 99th percentile, where there are enough for one.
    pub(crate) fn p99_ns(&self) -> Option<u64> {
        (self.len() >= MIN_CALLS_P99).then(|| self.quantile_ns(0.99))
    }

    /// The smallest value that at least `q` (0 to 1) of all values don't exceed; 0 where there are none.
    pub(crate) fn quantile_ns(&self, q: f64) -> u64 {
        match &self.values {
            Values::Exact(values) if values.is_empty() => 0,
            Values::Exact(values) => {
                let rank = (q * values.len() as f64).ceil() as usize;
                let mut values = values.clone();
                let at = rank.clamp(1, values.len()) - 1;
                *values.select_nth_unstable(at).1
            }
            Values::Rough(histogram) => histogram.lowest_equivalent(histogram.value_at_quantile(q)),
        }
    }

    /// The median.
    pub(crate) fn median_ns(&self) -> u64 {
        self.quantile_ns(0.5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_sets_are_exact() {
        let mut quantiles = Quantiles::default();
        assert_eq!((quantiles.median_ns(), quantiles.len()), (0, 0));
        for ns in [31_001, 5, 900, 31_001, 7_000_000_000] {
            quantiles.add(ns);
        }
        assert_eq!(
            (quantiles.median_ns(), quantiles.quantile_ns(0.99), quantiles.max_ns()),
            (31_001, 7_000_000_000, 7_000_000_000)
        );
    }

    #[test]
    fn of_more_than_4096_a_histogram_is_kept() {
        let mut quantiles = Quantiles::default();
        (0..4_096).for_each(|ns| quantiles.add(1_000_000 + ns));
        assert_eq!(quantiles.median_ns(), 1_002_047);
        quantiles.add(1);
        assert!(matches!(quantiles.values, Values::Rough(_)));
        assert_eq!(quantiles.len(), 4_097);
    }

    #[test]
    fn large_sets_are_right_to_three_digits() {
        let mut quantiles = Quantiles::default();
        for i in 0..100_001_u64 {
            quantiles.add(i * 7_919 % 100_001 * 1_000);
        }
        for (q, want) in [(0.5, 50_000_000.0), (0.99, 99_000_000.0)] {
            let got = quantiles.quantile_ns(q) as f64;
            assert!((got - want).abs() <= want * 0.001, "{q}: {got}");
        }
        assert_eq!(quantiles.len(), 100_001);
        quantiles.add(u64::MAX);
        assert_eq!(quantiles.max_ns(), u64::MAX);
    }
}
