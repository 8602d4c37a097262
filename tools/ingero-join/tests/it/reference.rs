//! `host` against a reference that is slow and obviously right: it looks at every nanosecond of a call.
//!
//! The timelines are made of whole nanoseconds below [`SPAN_NS`]: a process with two threads that are off the
//! CPU now and then, exits, execs, births, a watch that begins somewhere, losses; and stale records that
//! reach from one life into the next.

use crate::support::{BEGIN_NS, Stream, joined};
use proptest::prelude::*;
use serde_json::{Value, json};

const SPAN_NS: u64 = 400;
const PID: u32 = 100;
const TIDS: [u32; 2] = [100, 101];

/// A thread off the CPU in [start, end).
#[derive(Clone, Debug)]
struct Off {
    tid: u32,
    start: u64,
    end: u64,
    state: Option<char>,
    runq: u64,
    /// Who had the CPU: `by` of a preemption, `prev` otherwise; 0 is the idle task.
    holder: u32,
}

#[derive(Clone, Debug)]
enum Event {
    Exec(u64),
    /// The process ends and, later, another one gets its PID; `true`: born from a watched process.
    Reuse(u64, u64, bool),
    ThreadReuse(u32, u64),
}

#[derive(Clone, Debug)]
struct Timeline {
    offs: Vec<Off>,
    events: Vec<Event>,
    watch: u64,
    /// [start, end), of all processes or of another one.
    losses: Vec<(u64, u64, bool)>,
    calls: Vec<(u32, u64, u64)>,
    pages: Vec<(u32, u64, u64, u64)>,
}

/// Disjoint intervals of one thread, from pairs of (gap, length).
fn offs(tid: u32) -> impl Strategy<Value = Vec<Off>> {
    let state =
        prop_oneof![Just(None), Just(Some('R')), Just(Some('S')), Just(Some('D')), Just(Some('I')), Just(Some('T'))];
    let one = (0..40u64, 1..60u64, state, 0..80u64, 0..4u32);
    prop::collection::vec(one, 0..10).prop_map(move |parts| {
        let mut at = 0;
        let off = |(gap, len, state, runq, holder): (u64, u64, Option<char>, u64, u32)| {
            let start = at + gap;
            at = start + len;
            Off { tid, start, end: at, state, runq: runq.min(len), holder }
        };
        parts.into_iter().map(off).filter(|o| o.end <= SPAN_NS).collect()
    })
}

fn calls(tid: u32) -> impl Strategy<Value = Vec<(u32, u64, u64)>> {
    prop::collection::vec((0..60u64, 1..90u64), 0..6).prop_map(move |parts| {
        let mut at = 0;
        let call = |(gap, len): (u64, u64)| {
            let start = at + gap;
            at = start + len;
            (tid, start, at)
        };
        parts.into_iter().map(call).filter(|c| c.2 <= SPAN_NS).collect()
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (1..SPAN_NS).prop_map(Event::Exec),
        (1..SPAN_NS, 0..50u64, any::<bool>()).prop_map(|(at, gap, watched)| Event::Reuse(at, at + gap, watched)),
        (0..2usize, 1..SPAN_NS).prop_map(|(tid, at)| Event::ThreadReuse(TIDS[tid], at)),
    ]
}

fn timeline() -> impl Strategy<Value = Timeline> {
    let pages = prop::collection::vec((0..2usize, 0..SPAN_NS, 0..20u64, 1..5u64), 0..8).prop_map(|all| {
        all.into_iter().map(|(tid, start, len, n)| (TIDS[tid], start, (start + len).min(SPAN_NS), n)).collect()
    });
    let losses = prop::collection::vec((0..SPAN_NS, 0..30u64, any::<bool>()), 0..3)
        .prop_map(|all| all.into_iter().map(|(start, len, ours)| (start, start + len, ours)).collect());
    (
        (offs(TIDS[0]), offs(TIDS[1])),
        prop::collection::vec(event(), 0..3),
        0..SPAN_NS / 2,
        losses,
        (calls(TIDS[0]), calls(TIDS[1])),
        pages,
    )
        .prop_map(|(offs, events, watch, losses, calls, pages)| Timeline {
            offs: [offs.0, offs.1].concat(),
            events,
            watch,
            losses,
            calls: [calls.0, calls.1].concat(),
            pages,
        })
}

impl Timeline {
    /// How many lives of the thread (or of its process) have begun or ended by `at`.
    fn life(&self, tid: u32, at: u64) -> Vec<bool> {
        let passed = |event: &Event| match *event {
            Event::Exec(t) => vec![t <= at],
            Event::Reuse(exit, fork, _) => vec![exit <= at, fork <= at],
            Event::ThreadReuse(other, t) => vec![other == tid && t <= at],
        };
        self.events.iter().flat_map(passed).collect()
    }

    /// Whether the tracer watches the process at `at`, and the how manieth watch that is.
    fn watch_at(&self, at: u64) -> (bool, usize) {
        // What happens at one instant happens in the order in which it is written below.
        let mut steps: Vec<(u64, usize, bool)> = vec![(self.watch, 0, true)];
        for event in &self.events {
            if let Event::Reuse(exit, fork, watched) = *event {
                steps.push((exit, 1, false));
                steps.push((fork, 2, watched));
            }
        }
        steps.sort();
        let mut state = (false, 0);
        for (t, kind, on) in steps.into_iter().filter(|s| s.0 <= at) {
            match kind {
                // A watch of what is watched changes nothing.
                0 if state.0 => {}
                0 => state = (on, state.1 + 1),
                _ => state = (on, state.1 + 1),
            }
            let _ = t;
        }
        state
    }

    /// The slow answer.
    fn host(&self, tid: u32, start: u64, end: u64) -> Value {
        let life = self.life(tid, start);
        let (mut preempted, mut sleep, mut io, mut unknown, mut runq) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let mut switches = std::collections::BTreeSet::new();
        let mut by = std::collections::BTreeMap::new();
        for at in start..end {
            if self.life(tid, at) != life {
                break;
            }
            let Some(off) = self
                .offs
                .iter()
                .find(|o| o.tid == tid && (o.start..o.end).contains(&at) && self.life(tid, o.start) == life)
            else {
                continue;
            };
            switches.insert(off.start);
            match off.state {
                Some('R') => preempted += 1,
                Some('S' | 'I') => sleep += 1,
                Some('D') => io += 1,
                _ => unknown += 1,
            }
            if off.state == Some('R') || at >= off.end - off.runq {
                runq += 1;
                if off.holder != 0 {
                    *by.entry(off.holder).or_insert(0u64) += 1;
                }
            }
        }
        let life_end = (start..end).find(|&at| self.life(tid, at) != life).unwrap_or(end);
        let inside =
            |p: &&(u32, u64, u64, u64)| p.0 == tid && p.1 >= start && p.2 <= life_end && self.life(tid, p.1) == life;
        let pages: u64 = self.pages.iter().filter(inside).map(|p| p.3).sum();
        let mut by: Vec<(u32, u64)> = by.into_iter().collect();
        by.sort_by_key(|&(pid, ns)| (std::cmp::Reverse(ns), pid));
        let by: Vec<Value> =
            by.into_iter().map(|(pid, ns)| json!({"pid": pid, "comm": format!("c{pid}"), "ns": ns})).collect();
        let first_watch = self.watch_at(start);
        let lost = self
            .losses
            .iter()
            .any(|&(a, b, ours)| ours && if a == b { (start..=end).contains(&a) } else { a < end && b > start });
        json!({
            "off_ns": preempted + sleep + io + unknown,
            "preempted_ns": preempted,
            "runq_ns": runq,
            "sleep_ns": sleep,
            "io_ns": io,
            "unknown_ns": unknown,
            "switches": switches.len(),
            "pages": pages,
            "page_bytes": pages * 4096,
            "by": by,
            "watched": first_watch.0 && (start..end).all(|at| self.watch_at(at) == first_watch) && !lost,
        })
    }

    fn streams(&self) -> (Stream, Stream) {
        let at = |ns: u64| BEGIN_NS + ns;
        // (end, line)
        let mut sched: Vec<(u64, usize, String)> = Vec::new();
        let mut put = |end: u64, rank: usize, stream: Stream| sched.push((end, rank, stream.0.concat()));
        let one = Stream::default;
        put(self.watch, 0, one().watch(at(self.watch), PID));
        for event in &self.events {
            match *event {
                Event::Exec(t) => {
                    put(t, 4, one().put("sched", "sched_process_exec", at(t), &format!(r#""pid":{PID},"tid":{PID}"#)));
                }
                Event::Reuse(exit, fork, watched) => {
                    put(
                        exit,
                        1,
                        one().put("sched", "sched_process_exit", at(exit), &format!(r#""pid":{PID},"tid":{PID}"#)),
                    );
                    let parent = if watched { 50 } else { 51 };
                    let rest = format!(r#""pid":{parent},"tid":{parent},"child_pid":{PID}"#);
                    put(fork, 2 + usize::from(watched), one().put("sched", "sched_process_fork", at(fork), &rest));
                }
                Event::ThreadReuse(tid, t) => {
                    put(t, 5, one().put("sched", "thread_exit", at(t), &format!(r#""pid":{PID},"tid":{tid}"#)));
                    let rest = format!(r#""pid":{PID},"tid":{PID},"child_tid":{tid}"#);
                    put(t, 6, one().put("sched", "thread_create", at(t), &rest));
                }
            }
        }
        for off in &self.offs {
            let state = off.state.map_or(String::new(), |s| format!(r#","state":"{s}""#));
            let who = if off.state == Some('R') { "by" } else { "prev" };
            let rest = format!(
                r#""dur_ns":{},"pid":{PID},"tid":{},"runq_ns":{},"{who}":{{"pid":{},"tid":{},"comm":"c{}"}}{state}"#,
                off.end - off.start,
                off.tid,
                off.runq,
                off.holder,
                off.holder,
                off.holder
            );
            put(off.end, 7, one().put("sched", "sched_switch", at(off.start), &rest));
        }
        for &(tid, start, end, n) in &self.pages {
            let rest = format!(r#""dur_ns":{},"pid":{PID},"tid":{tid},"count":{n},"bytes":{}"#, end - start, n * 4096);
            put(end, 8, one().put("mem", "mm_page_alloc", at(start), &rest));
        }
        for &(start, end, ours) in &self.losses {
            let pid = if ours { PID } else { 77 };
            let rest = format!(r#""dur_ns":{},"stream":"sched","pid":{pid},"why":"ring_full","count":1"#, end - start);
            put(end, 9, one().put("ingero", "lost", at(start), &rest));
        }
        sched.sort_by_key(|&(end, rank, _)| (end, rank));
        let mut stream = Stream::of("ingero-sched").watch(BEGIN_NS, 50);
        stream.0.extend(sched.into_iter().map(|(_, _, line)| line));
        let mut calls = self.calls.clone();
        calls.sort_by_key(|c| c.2);
        let cuda = calls
            .iter()
            .fold(Stream::of("ingero-cuda"), |s, &(tid, start, end)| s.call(at(start), end - start, PID, tid));
        (cuda.end(at(2 * SPAN_NS)), stream.end(at(2 * SPAN_NS)))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn host_is_what_each_nanosecond_says(timeline in timeline()) {
        let (cuda, sched) = timeline.streams();
        let joined = joined([&cuda, &sched], &[]).unwrap();
        let calls = joined.with_op("cudaMalloc");
        prop_assert_eq!(calls.len(), timeline.calls.len());
        for call in calls {
            let start = call["mono_ns"].as_u64().unwrap() - BEGIN_NS;
            let end = start + call["dur_ns"].as_u64().unwrap();
            let tid = call["tid"].as_u64().unwrap() as u32;
            prop_assert_eq!(&call["host"], &timeline.host(tid, start, end), "call {}-{} of {}", start, end, tid);
        }
    }
}
