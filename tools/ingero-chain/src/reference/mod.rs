//! Tests of the whole analysis on random streams, against references that are slow and obviously right.

mod account;
mod causes;
mod chaos;

use proptest::prelude::ProptestConfig;

/// A small generator: proptest gives the seed, and may shrink what is asked for, not how it is made.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }

    fn roll_one_of(&mut self, sides: &[usize]) -> usize {
        let sides = sides[self.roll(sides.len())];
        self.roll(sides)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len())]
    }
}

/// Few cases by default, since each is a whole machine; `PROPTEST_CASES` asks for more. A seed gets no simpler by halving.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() }
}
