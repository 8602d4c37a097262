//! What must hold for any streams: the result does not depend on how the same records arrive.

use crate::support::{BEGIN_NS, Stream, joined};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Records of the two tracers, each with its end in milliseconds after the beginning.
#[derive(Clone, Debug)]
struct Streams {
    cuda: Vec<(u64, String)>,
    sched: Vec<(u64, String)>,
    shift_ns: u64,
}

const MS: u64 = 1_000_000;

fn streams() -> impl Strategy<Value = Streams> {
    let call = (1..2000u64, 1..40u64, 0..3u32);
    let switch = (1..2000u64, 1..60u64, 0..3u32, prop_oneof![Just("R"), Just("S"), Just("D")], 0..3u32);
    (prop::collection::vec(call, 0..25), prop::collection::vec(switch, 0..40)).prop_map(|(calls, switches)| {
        let begin = BEGIN_NS;
        let cuda = calls.into_iter().map(|(end, dur, tid)| {
            let start = (end * MS).saturating_sub(dur * MS);
            (end, Stream::default().call(begin + start, end * MS - start, 100, 100 + tid).0.concat())
        });
        let sched = switches.into_iter().map(|(end, dur, tid, state, by)| {
            let start = (end * MS).saturating_sub(dur * MS);
            let rest = format!(
                r#""dur_ns":{},"pid":100,"tid":{},"state":"{state}","runq_ns":{},"by":{{"pid":{by},"tid":{by},"comm":"c"}}"#,
                end * MS - start, 100 + tid, dur * MS / 3
            );
            (end, Stream::default().put("sched", "sched_switch", begin + start, &rest).0.concat())
        });
        Streams { cuda: by_end(cuda), sched: by_end(sched), shift_ns: 0 }
    })
}

/// In order, and with ends that are all different: equal ones would come out in the order of arrival.
fn by_end(records: impl Iterator<Item = (u64, String)>) -> Vec<(u64, String)> {
    let mut records: Vec<_> = records.collect();
    records.sort();
    records.dedup_by_key(|r| r.0);
    records
}

impl Streams {
    fn begin_ns(&self) -> u64 {
        BEGIN_NS + self.shift_ns
    }

    fn cuda(&self) -> Stream {
        self.stream("ingero-cuda", &self.cuda)
    }

    fn sched(&self) -> Stream {
        let mut stream = self.stream("ingero-sched", &self.sched);
        stream.0.insert(1, Stream::default().watch(self.begin_ns(), 100).0.concat());
        stream
    }

    fn stream(&self, tool: &str, records: &[(u64, String)]) -> Stream {
        let mut stream = Stream::on("box", "boot-1", tool, self.begin_ns());
        stream.0.extend(records.iter().map(|r| r.1.clone()));
        stream.end(self.begin_ns() + 3000 * MS)
    }
}

/// All lines but our own first one, which names the inputs.
fn body(inputs: &[&Stream]) -> Result<Vec<String>, TestCaseError> {
    let mut lines = joined(inputs.iter().copied(), &[]).map_err(|e| TestCaseError::fail(format!("{e:#}")))?.lines;
    lines.remove(0);
    Ok(lines)
}

/// Of different streams some records may end at the same instant and then come in the order of the inputs.
fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn disorder_within_the_window_changes_nothing(s in streams(), keys in prop::collection::vec(0..240u64, 80)) {
        // Sorting by (end + something below the window) displaces no record by more than the window.
        let disturb = |records: &[(u64, String)]| {
            let mut keyed: Vec<_> = records.iter().zip(&keys).map(|(r, key)| (r.0 + key, r.clone())).collect();
            keyed.sort();
            keyed.into_iter().map(|(_, r)| r).collect::<Vec<_>>()
        };
        let disturbed = Streams { cuda: disturb(&s.cuda), sched: disturb(&s.sched), ..s.clone() };
        prop_assert_eq!(body(&[&disturbed.cuda(), &disturbed.sched()])?, body(&[&s.cuda(), &s.sched()])?);
    }

    #[test]
    fn a_stream_cut_in_two_is_the_same_stream(s in streams(), cut in 0..1000usize, which in any::<bool>()) {
        let (cuda, sched) = (s.cuda(), s.sched());
        let mut first = if which { cuda.clone() } else { sched.clone() };
        let second = Stream(first.0.split_off(1 + cut % first.0.len()));
        let whole = body(&[&cuda, &sched])?;
        let inputs: [&Stream; 3] = if which { [&first, &second, &sched] } else { [&cuda, &first, &second] };
        prop_assert_eq!(body(&inputs)?, whole);
    }

    #[test]
    fn the_order_of_the_inputs_only_orders_equal_ends(s in streams()) {
        prop_assert_eq!(sorted(body(&[&s.sched(), &s.cuda()])?), sorted(body(&[&s.cuda(), &s.sched()])?));
    }

    #[test]
    fn shifting_all_times_shifts_the_times_only(s in streams(), shift_ns in 1..1u64 << 55) {
        let shift = |line: &String| {
            let (head, rest) = line.split_once(r#""mono_ns":"#).unwrap();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
            let ns: u64 = rest[..digits].parse().unwrap();
            format!(r#"{head}"mono_ns":{}{}"#, ns + shift_ns, &rest[digits..])
        };
        let moved = |records: &[(u64, String)]| records.iter().map(|(end, line)| (*end, shift(line))).collect();
        let shifted = Streams { cuda: moved(&s.cuda), sched: moved(&s.sched), shift_ns };
        // Our own records also carry the wall clock.
        let without_ts = |lines: Vec<String>| lines.into_iter().map(|l| match l.split_once(r#""ts":""#) {
            Some((head, rest)) => format!("{head}{}", &rest[rest.find("\",").unwrap() + 2..]),
            None => l,
        }).collect::<Vec<_>>();
        let expected: Vec<String> = body(&[&s.cuda(), &s.sched()])?.iter().map(shift).collect();
        prop_assert_eq!(without_ts(body(&[&shifted.cuda(), &shifted.sched()])?), without_ts(expected));
    }
}
