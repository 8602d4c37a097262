use super::*;
use crate::testing::{MS, US};
use ingero_common::record::{Parsed, parse};

/// Calls of so many microseconds, on a CPU all the time.
fn group(durations_us: impl Iterator<Item = u64>) -> Group {
    let line = r#"{"src":"cudart","op":"cudaFreeAsync","host":{"off_ns":0,"watched":true}}"#;
    let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
    let (samples, losses, mut names) = (Samples::default(), Losses::default(), Interner::default());
    let facts = Facts { samples: &samples, losses: &losses };
    let mut group = Group::new(None, 100);
    for (n, dur_us) in durations_us.enumerate() {
        let call = Call { start_ns: n as u64 * MS, dur_ns: dur_us * US, may_wait: false, is_idle: false };
        group.add(&record, call, &mut names, facts);
    }
    group
}

fn slow(group: &Group) -> Slow {
    group.slow(&Samples::default(), &LostRanges::default()).unwrap()
}

/// The example at the head of this file.
#[test]
fn what_slow_calls_lost_is_what_they_took_beyond_the_median() {
    let slow = slow(&group((0..400).map(|n| if n % 20 == 7 { 3_000 } else { 30 })));
    assert_eq!((slow.n, slow.lost_ns, slow.breakdown.of(Cause::DriverCpu)), (20, 20 * 2_970 * US, 20 * 2_970 * US));
}

#[test]
fn whatever_is_folded_slow_calls_keep_their_sums() {
    let durations = |slow: usize| std::iter::repeat_n(10, 9_000).chain(std::iter::repeat_n(1_000, slow));
    for n in [1_024, 1_025, 5_000] {
        let group = group(durations(n));
        let slow = slow(&group);
        assert_eq!((slow.n as usize, slow.lost_ns), (n, n as u64 * 990 * US));
        assert_eq!(slow.breakdown.total_ns(), slow.lost_ns);
        assert_eq!(slow.occurrences.is_empty(), n > 1_024, "a period needs all of them");
    }
    let kept = |n| group(durations(n)).candidates.len();
    assert_eq!((kept(1_024), kept(1_025)), (1_024, 256));
}

#[test]
fn groups_beyond_the_bound_are_by_operation_only() {
    let (mut groups, mut names) = (Groups::default(), Interner::default());
    let mut open = |n: u32| {
        let key =
            GroupKey { op: names.id(&format!("cudaMemcpy{n}")), dir: names.id("h2d"), size: 5, ..GroupKey::default() };
        groups.open(key, None, 100).size
    };
    assert!((0..512).all(|n| open(n) == 5));
    assert_eq!(open(512), 0);
}
