//! Several tracers of one kind in one stream, one after another or side by side: the evidence on a process ends with the
//! tracer that watched it.

use serde_json::{Value, json};

use crate::support::{self, MS, cause_ns, class_ns};

/// Records, put in the order of their ends.
#[derive(Default)]
struct Stream(Vec<Value>);

impl Stream {
    /// A tracer that watches `pid` from `from_ms` on and stops in order at `to_ms`.
    fn tracer(mut self, side: &str, pid: u32, from_ms: u64, to_ms: u64) -> Self {
        self.0.push(json!({"src":"ingero","op":"start","mono_ns":from_ms * MS,"tool":format!("ingero-{side}")}));
        self.0.push(json!({"src":"ingero","op":"watch","mono_ns":from_ms * MS,"pid":pid,"tid":pid,"comm":"train","stream":side}));
        self.0.push(json!({"src":"ingero","op":"end","mono_ns":to_ms * MS,"stream":side}));
        self
    }

    /// One that watches it and is killed.
    fn killed(mut self, side: &str, pid: u32, from_ms: u64) -> Self {
        self = self.tracer(side, pid, from_ms, 0);
        self.0.pop();
        self
    }

    /// `pid` launches and synchronises, 1 ms apart; the GPU always has something to do.
    fn works(mut self, pid: u32, from_ms: u64, to_ms: u64) -> Self {
        for t in from_ms..to_ms {
            let (op, ns) = [("cudaLaunchKernel", 10_000), ("cudaDeviceSynchronize", MS)][t as usize % 2];
            self.0.push(json!({"src":"cudart","op":op,"mono_ns":t * MS,"dur_ns":ns,"pid":pid,"tid":pid,"comm":"train","ret":0,"depth":0}));
        }
        self
    }

    /// `pid` was in a call that had not returned.
    fn open(mut self, pid: u32, from_ms: u64, to_ms: u64) -> Self {
        self.0.push(json!({"src":"cudart","op":"cudaStreamSynchronize","mono_ns":from_ms * MS,"dur_ns":(to_ms - from_ms) * MS,"pid":pid,"tid":pid,"comm":"train","depth":0,"open":true}));
        self
    }

    fn report(mut self) -> Vec<Value> {
        let end_ns = |r: &Value| r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap_or(0);
        // A joined stream begins with the starts.
        self.0.sort_by_key(|r| (r["op"] != "start", end_ns(r)));
        support::report(&[], &self.0)
    }

    fn found(self, op: &str) -> Vec<Value> {
        support::found(&self.report(), op)
    }
}

#[test]
fn what_no_scheduler_tracer_watched_stays_unexplained() {
    // One watched until 5 s and one from 10 s on; the process made no calls from 4 to 8 and from 9 to 11 s.
    let calls = || Stream::default().tracer("cuda", 100, 1000, 13_000);
    let calls = || calls().works(100, 1000, 4000).works(100, 8000, 9000).works(100, 11_000, 12_990);
    let gap = calls().tracer("sched", 100, 1000, 5000).tracer("sched", 100, 10_000, 13_000).found("gap").remove(0);
    let unexplained_ns = gap["unexplained_ns"].as_u64().unwrap();
    assert_eq!((&gap["n"], unexplained_ns / MS), (&json!(2), 3000 + 1000), "{gap}");
    // The calls tell that the GPU was idle, whoever looked at the scheduler.
    assert_eq!((&gap["proven"], cause_ns(&gap, "host_cpu") / MS), (&json!(true), 1000 + 1000), "{gap}");
    assert_eq!(gap["evidence"]["watched_share"], 0.333333, "{gap}");
    // Where one watched throughout and another one ended, what the first one tells says so.
    let one = calls().tracer("sched", 100, 1000, 13_000).found("gap").remove(0);
    assert_eq!((&one["unexplained_ns"], &one["evidence"]["watched_share"]), (&json!(0), &json!(1.0)));
    let mut two = calls().tracer("sched", 100, 1000, 13_000).tracer("sched", 200, 1000, 4500);
    two.0.push(json!({"src":"sched","op":"sched_switch","mono_ns":4400 * MS,"dur_ns":500 * MS,"pid":100,"tid":100,"comm":"train","state":"D","runq_ns":0}));
    let two = two.found("gap").remove(0);
    assert_eq!((&two["unexplained_ns"], &two["evidence"]["watched_share"]), (&json!(0), &json!(1.0)), "{two}");
}

#[test]
fn behind_the_end_of_its_tracer_nobody_stalls() {
    let other = || Stream::default().tracer("sched", 100, 1000, 13_000).tracer("cuda", 200, 1000, 13_000);
    let other = || other().works(200, 1000, 12_990);
    // The tracer that watched it ended, with a call open.
    let both = |s: Stream| s.tracer("cuda", 100, 1000, 3100);
    assert_eq!(both(other().works(100, 1000, 3000)).found("stall"), [] as [Value; 0]);
    let hung = both(other().works(100, 1000, 3000).open(100, 3000, 3100)).found("stall");
    assert_eq!((hung.len(), &hung[0]["severity"], &hung[0]["lost_ns"]), (1, &json!("low"), &json!(100 * MS)));
    // It was killed.
    let killed = other().killed("cuda", 100, 1000).works(100, 1000, 3000).found("stall");
    assert_eq!(killed, [] as [Value; 0]);
    // It watched to the end: a stall.
    let watched = other().tracer("cuda", 100, 1000, 13_000).works(100, 1000, 3000).found("stall");
    assert_eq!((watched.len(), &watched[0]["severity"]), (1, &json!("high")), "{watched:?}");
    // Another one ended before, and the one that watches it went on to tell of it.
    let heard = Stream::default().tracer("sched", 100, 1000, 13_000).tracer("cuda", 200, 1000, 2000);
    let heard = heard.tracer("cuda", 100, 1000, 13_000).works(100, 1000, 3000).found("stall");
    assert_eq!((heard.len(), &heard[0]["severity"]), (1, &json!("high")), "{heard:?}");
}

#[test]
fn between_two_tracers_of_calls_nothing_is_judged() {
    let tracers = || {
        let s = Stream::default().tracer("sched", 100, 1000, 13_000);
        s.tracer("cuda", 100, 1000, 3000).tracer("cuda", 100, 8000, 13_000)
    };
    let report = tracers().works(100, 1000, 3000).works(100, 8001, 12_990).report();
    assert_eq!(support::found(&report, "gap"), [] as [Value; 0]);
    assert_eq!(class_ns(&report, "not_judged"), 5001 * MS, "{report:?}");
    // What was enqueued in between may keep the GPU busy.
    let gap = tracers().works(100, 1000, 3000).works(100, 8001, 8002).works(100, 8502, 12_990).found("gap").remove(0);
    assert_eq!((&gap["n"], &gap["proven"]), (&json!(1), &json!(true)), "it has synchronised once more");
    let gap = tracers().works(100, 1000, 3000).works(100, 8000, 8001).works(100, 8500, 12_990).found("gap").remove(0);
    assert_eq!((&gap["n"], &gap["proven"]), (&json!(1), &json!(false)));
    // A call that was open when the first one stopped has returned at some time, or not.
    let open = tracers().works(100, 1000, 2900).open(100, 2900, 3000).works(100, 8001, 12_990);
    assert_eq!(open.found("stall"), [] as [Value; 0]);
}

#[test]
fn a_call_that_is_not_open_when_the_tracer_stops_hangs_no_more() {
    // The process was killed, and nobody watched that: the call is told of until then.
    let s = || Stream::default().tracer("cuda", 100, 1000, 13_000).works(100, 1000, 3000);
    assert_eq!(s().open(100, 3000, 5000).found("stall"), [] as [Value; 0]);
    // A tracer that stops takes a while to take its probes away.
    assert_eq!(s().open(100, 3000, 10_999).found("stall"), [] as [Value; 0]);
    assert_eq!(s().open(100, 3000, 11_000).found("stall").len(), 1);
    let hangs = s().open(100, 3000, 12_980).found("stall");
    assert_eq!((hangs.len(), &hangs[0]["lost_ns"]), (1, &json!(10_000 * MS)));
}
