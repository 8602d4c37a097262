//! How much is told, and from when on.

use super::head::{Head, whys};
use super::model::{
    AccountLine, Advice, CallPart, Evidence, Extra, Finding, GpuLine, Kind, LostPart, OpLine, Report, Story,
};
use super::sentences;
use super::text::{self, Look, Parts};
use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, CauseLine, WhoNs};
use crate::findings::severity::Severity;
use crate::process::class::{Class, Classes};
use crate::report::machine::Machine;
use crate::testing::{Stream, found};
use ingero_common::host::TaskTable;

/// Lost nanoseconds of the findings here, so that a share in thousandths is a number of nanoseconds.
const LOST_NS: u64 = 1_000;

fn cause(cause: Cause, ns: u64, who: &[(&str, u32, u64)]) -> CauseLine {
    let who = who.iter().map(|&(comm, pid, ns)| WhoNs { pid, comm: comm.into(), ns }).collect();
    CauseLine {
        cause,
        ns,
        share: ns as f64 / LOST_NS as f64,
        who,
        ops: Vec::new(),
        waits: Vec::new(),
        places: Vec::new(),
    }
}

/// Gaps with these causes; the rest is unexplained.
fn gap(causes: Vec<CauseLine>) -> Finding {
    let explained_ns: u64 = causes.iter().map(|line| line.ns).sum();
    Finding {
        src: "chain",
        op: Kind::Gap,
        id: "gap-1".into(),
        severity: Severity::High,
        lost: LostPart {
            lost_ns: LOST_NS,
            n: 1,
            causes,
            unexplained_ns: LOST_NS - explained_ns,
            ..LostPart::default()
        },
        pid: 1,
        comm: "train".into(),
        call: CallPart::default(),
        times: None,
        extra: Extra::default(),
        story: Story::default(),
        evidence: Evidence { watched_share: 1.0, ..Evidence::default() },
        occurrences: Vec::new(),
        so_far: false,
    }
}

/// What it says of itself.
fn told(mut finding: Finding) -> Story {
    let tasks = TaskTable::default();
    sentences::tell(&mut finding, &ProcessTree::of(&tasks, 1, 0, 1), &Machine::default());
    finding.story
}

fn account(lost_ns: u64, classes: &[(Class, u64)]) -> AccountLine {
    let mut all = Classes::default();
    classes.iter().for_each(|&(class, ns)| all.add(class, ns));
    AccountLine {
        src: "chain",
        op: "account",
        mono_ns: 0,
        ts: None,
        pid: 1,
        comm: "train".into(),
        script: "".into(),
        observed_ns: LOST_NS,
        end_ts: None,
        loop_mono_ns: 0,
        loop_ns: LOST_NS,
        lost_ns,
        lost_share: lost_ns as f64 / LOST_NS as f64,
        classes: all,
        gpu: GpuLine::default(),
        steps: None,
        so_far: false,
    }
}

#[test]
fn a_cause_is_named_from_a_tenth_on() {
    let summary = |ns| told(gap(vec![cause(Cause::HostCpu, ns, &[]), cause(Cause::IoWait, 20, &[])])).summary;
    assert!(summary(100).contains("10 % on the CPU in its own code"), "{}", summary(100));
    assert!(!summary(99).contains("its own code"), "{}", summary(99));
    assert!(!summary(980).contains("device"), "{}", summary(980));
}

#[test]
fn causes_are_told_one_by_one_down_to_a_hundredth() {
    let told = |ns: &[u64]| {
        let (whys, rest) = whys(&gap(ns.iter().map(|&ns| cause(Cause::HostCpu, ns, &[])).collect()));
        (whys.len(), rest)
    };
    assert_eq!(told(&[980, 10, 10]), (3, None));
    assert_eq!(told(&[991, 9]), (1, None), "the rest is too small as well");
    assert_eq!(told(&[982, 9, 9]), (1, Some((2, 18))));
    assert_eq!(told(&[900, 20, 20, 20, 20, 20]), (5, Some((1, 20))));
}

#[test]
fn silence_that_rounds_to_nothing_makes_nothing_uncertain() {
    let line = |silence_ns| {
        let account = account(1_000, &[(Class::Idle, 1_000 - silence_ns), (Class::Silence, silence_ns)]);
        let gap = gap(Vec::new());
        Head { account: &account, lead: Some(&gap), also: Vec::new(), all: vec![&gap] }.line()
    };
    assert!(!line(5).contains("at most"), "{}", line(5));
    assert!(line(6).contains("at most"), "{}", line(6));
}

#[test]
fn a_verdict_needs_half_of_the_loop() {
    let verdict = |not_judged_ns| {
        let account = account(0, &[(Class::NotJudged, not_judged_ns), (Class::Between, LOST_NS - not_judged_ns)]);
        Head { account: &account, lead: None, also: Vec::new(), all: Vec::new() }.verdict()
    };
    assert_eq!((verdict(500), verdict(501)), ("OK", "?"));
}

#[test]
fn what_nobody_watched_has_no_cause() {
    let summary = |watched_share| {
        let mut finding = gap(Vec::new());
        finding.evidence.watched_share = watched_share;
        told(finding).summary
    };
    assert!(summary(0.5).contains("the records do not show the cause"), "{}", summary(0.5));
    assert!(summary(0.49).contains("did not watch"), "{}", summary(0.49));
}

#[test]
fn so_much_is_told_and_no_more() {
    let who: Vec<_> = ["a", "b", "c", "d", "e"].into_iter().zip(11..).map(|(comm, pid)| (comm, pid, 200)).collect();
    let mut finding = gap(vec![cause(Cause::WorkerCpu, 1_000, &who)]);
    finding.story = told(finding.clone());
    assert!(
        finding.story.summary.ends_with("waiting for a (11), b (12) and 3 more to compute"),
        "{}",
        finding.story.summary
    );
    let advice = |i: u32| Advice { text: format!("advice {i}"), because: "of it".to_owned(), up_to_ns: 0 };
    finding.story.advice = (1..=6).map(advice).collect();
    let mut report = Stream::watched().report();
    report.accounts = vec![account(1_000, &[(Class::Idle, 1_000)])];
    report.findings = vec![finding.clone()];
    let page = |parts| {
        let mut page = Vec::new();
        text::write(&mut page, &report, parts, Look { columns: 120, colour: false, unicode: false }).unwrap();
        String::from_utf8(page).unwrap()
    };
    let overview = page(Parts::default());
    assert!(overview.contains("advice 5") && !overview.contains("advice 6"), "{overview}");
    let details = page(Parts { explained: true, ..Parts::default() });
    assert!(details.contains("d (14) 200 ns, 1 more"), "{details}");
    // Operations of calls in which the GPU waited.
    let op = |op: &str| OpLine { op: op.into(), dir: None, n: 1, ns: 10 };
    finding.op = Kind::HostCalls;
    finding.extra.ops = ["one", "two", "three", "four"].map(op).to_vec();
    let claim = sentences::claim(&finding);
    assert!(claim.ends_with(": 1 call of one, 1 call of two, 1 call of three"), "{claim}");
}

#[test]
fn the_cpus_that_a_process_may_run_on_are_advice_where_they_are_known() {
    let advice = |affinity: &str, rival: u64| {
        let mut stream = Stream::watched();
        stream.put(0, 0, r#""src":"ingero","op":"watch","pid":100,"tid":100,"comm":"python3","script":"/app/train.py","stream":"sched""#);
        stream.launches(0);
        idle(&mut stream, 100);
        let had = format!(
            r#""by":{{"pid":{rival},"tid":{rival},"comm":"x"}},"prev":{{"pid":{rival},"tid":{rival},"comm":"x"}}"#
        );
        stream.put(
            150,
            9_000,
            &format!(r#""src":"sched","op":"sched_switch","pid":100,"tid":100,"comm":"python3","state":"R",{had}"#),
        );
        stream.put(
            0,
            1_000_000,
            &format!(r#""src":"sys","op":"sample","cpus":16,"cpu_pct":20.0,"affinity":[{affinity}]"#),
        );
        stream.end(11_000_000);
        let report = stream.report();
        assert_eq!(report.accounts[0].script.raw(), "train.py");
        found(&report, Kind::Gap)[0].story.advice[0].clone()
    };
    let narrow = advice(r#"{"cpus_allowed":"0-3","pids":[7,100]}"#, 900);
    assert_eq!(narrow.text, "let it run on more CPUs than 0-3 (taskset, cpuset), or keep x (900) off them");
    assert!(narrow.because.contains("may run on CPUs 0-3 only"), "{}", narrow.because);
    assert!(!advice(r#"{"cpus_allowed":"0-3","pids":[7]}"#, 900).text.contains("0-3"), "of another process");
    assert!(!advice("", 900).text.contains("more CPUs than"), "on one CPU, and free to leave it");
}

/// A step of 10 ms in which the GPU is idle, from `at_us` on.
fn idle(stream: &mut Stream, at_us: u64) {
    stream.call("cudaLaunchKernel", at_us, 10);
    stream.call("cudaDeviceSynchronize", at_us + 10, 10);
    stream.call("cudaLaunchKernel", at_us + 10_000, 10);
}

fn system(report: &Report, kind: Kind) -> String {
    let story = &found(report, kind)[0].story;
    story
        .timeline
        .iter()
        .filter(|line| line.layer == "SYSTEM")
        .map(|line| line.text.clone())
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_machine_is_told_of_as_it_was() {
    let of = |steal_pct: f64, kills: u32| {
        let mut stream = Stream::watched();
        stream.launches(0);
        idle(&mut stream, 100);
        for i in 0..kills {
            stream.put(
                5_000 + u64::from(i),
                0,
                &format!(r#""src":"mem","op":"oom_kill","pid":{},"comm":"w{i}""#, 500 + i),
            );
        }
        stream.put(
            0,
            1_000_000,
            &format!(r#""src":"sys","op":"sample","cpus":4,"cpu_pct":50.0,"steal_pct":{steal_pct}"#),
        );
        stream.end(11_000_000);
        stream.report()
    };
    let text = system(&of(1.0, 5), Kind::Gap);
    assert!(text.contains("up to 1 % stolen") && text.contains("w3 (503)") && !text.contains("w4"), "{text}");
    assert!(!system(&of(0.9, 0), Kind::Gap).contains("stolen"));
    // The machine before a kill: 2 s.
    let before = |end_us: u64| {
        let mut stream = Stream::watched();
        stream.put(end_us - 1_000_000, 1_000_000, r#""src":"sys","op":"sample","cpus":4,"cpu_pct":50.0"#);
        stream.launches(4_000_000);
        stream.put(5_000_000, 0, r#""src":"mem","op":"oom_kill","pid":100,"comm":"train""#);
        stream.end(9_000_000);
        system(&stream.report(), Kind::Oom)
    };
    assert!(before(3_000_001).contains("4 CPUs"), "{}", before(3_000_001));
    assert!(!before(3_000_000).contains("4 CPUs"), "{}", before(3_000_000));
}

#[test]
fn so_many_workers_requests_are_told_of() {
    let mut stream = Stream::watched();
    stream.launches(0);
    // Three workers in turn wait for a device, each wakes the process, which goes to sleep at once.
    stream.call("cudaDeviceSynchronize", 110, 10);
    for i in 0..3_u64 {
        let (pid, from) = (200 + i, 120 + i * 10_000);
        stream.put(
            100,
            0,
            &format!(
                r#""src":"proc","op":"fork","pid":100,"tid":100,"comm":"train","child_pid":{pid},"child_tid":{pid}"#
            ),
        );
        stream.put(
            from,
            10_000,
            &format!(r#""src":"sched","op":"sched_switch","pid":{pid},"tid":{pid},"comm":"w{i}","state":"D""#),
        );
        stream.put(from, 10_000, &format!(r#""src":"sched","op":"sched_switch","pid":100,"tid":100,"comm":"train","state":"S","waker":{{"pid":{pid},"tid":{pid},"comm":"w{i}"}}"#));
        stream.put(
            from,
            9_000,
            &format!(r#""src":"block","op":"read","pid":{pid},"tid":{pid},"comm":"w{i}","bytes":4096,"dev":"d""#),
        );
    }
    stream.call("cudaLaunchKernel", 30_130, 10);
    stream.end(40_000);
    let text = system(&stream.report(), Kind::Gap);
    assert_eq!(text.matches("block devices, by").count(), 2, "{text}");
}

/// The process sleeps for 20 ms until its worker has computed, which is sampled once a millisecond: 12 times in `decode`, below
/// which a library works, 4 times in `augment`, twice in each of two more; `gc` of those in `decode` in the collector.
fn sampled(gc: u64) -> Report {
    sampled_in(gc, "")
}

/// The same, in some system call.
fn sampled_in(gc: u64, within: &str) -> Report {
    let mut stream = Stream::watched();
    stream.put(
        0,
        0,
        r#""src":"sched","op":"sched_process_fork","pid":100,"tid":100,"comm":"train","child_pid":200,"child_tid":200"#,
    );
    stream.put(0, 0, r#""src":"ingero","op":"watch","pid":200,"tid":200,"comm":"w","stream":"sched""#);
    stream.launches(0);
    stream.call("cudaDeviceSynchronize", 110, 10);
    let own =
        |name: &str, line: u32| format!(r#"{{"fn":"{name}","file":"/app/train.py","line":{line},"lang":"python"}}"#);
    let pil = r#"{"fn":"_load","file":"/v/site-packages/PIL/Image.py","line":9,"lang":"python"},"#;
    for (id, inner, name, line) in
        [(1, pil, "decode", 84), (2, "", "augment;", 90), (3, "", "collate", 95), (4, "", "log\u{1b}[2J", 99)]
    {
        let name = serde_json::to_string(name).unwrap();
        let frames = format!("{inner}{},{}", own(name.trim_matches('"'), line), own("run", 7));
        stream.put(110, 0, &format!(r#""src":"stack","op":"frames","id":{id},"pid":200,"frames":[{frames}]"#));
    }
    for i in 0..20_u64 {
        let id = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4][i as usize];
        let rest = format!(
            r#""src":"stack","op":"sample","pid":200,"tid":200,"id":{id},"weight_ns":1000000,"on_cpu":true,"gc":{},"in":"{within}""#,
            i < gc
        );
        stream.put(500 + i * 1_000, 0, &rest);
    }
    stream.put(120, 20_000, r#""src":"sched","op":"sched_switch","pid":100,"tid":100,"comm":"train","state":"S","waker":{"pid":200,"tid":200,"comm":"w"}"#);
    stream.call("cudaLaunchKernel", 20_130, 10);
    stream.end(30_000);
    stream.report()
}

#[test]
fn where_it_was_is_told_with_its_share() {
    let report = sampled(0);
    let gap = found(&report, Kind::Gap)[0];
    let cause = &gap.lost.causes[0];
    let told: Vec<_> = cause.places.iter().map(|place| (place.function.raw(), place.share)).collect();
    assert_eq!(cause.cause, Cause::WorkerCpu);
    assert_eq!(
        told,
        [("decode", Some(0.6)), ("augment;", Some(0.2)), ("collate", Some(0.1)), ("log\u{1b}[2J", Some(0.1))]
    );
    let mut page = Vec::new();
    text::write(&mut page, &report, Parts::default(), Look { columns: 120, colour: false, unicode: false }).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("60 % decode (train.py:84) > PIL/Image.py:_load\n"), "{page}");
    assert!(page.contains("10 % collate") && !page.contains("log\\u"), "the first three: {page}");
    assert!(page.contains("first of all decode (train.py:84), 60 % of it"), "{page}");
    // Function names are hostile, and no nanosecond counts twice.
    let mut folded = Vec::new();
    super::folded::write(&mut folded, &report).unwrap();
    let folded = String::from_utf8(folded).unwrap();
    let ns = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(folded.lines().map(ns).sum::<u64>(), gap.lost.lost_ns, "{folded}");
    let stack = ";worker_cpu;w (200);run (train.py:7);decode (train.py:84);_load (Image.py:9) ";
    assert!(folded.lines().any(|line| line.contains(stack) && ns(line) == cause.ns * 6 / 10), "{folded}");
    assert!(folded.contains("augment: (train.py:90)") && folded.contains("log\\u{1b}[2J"), "{folded}");
}

#[test]
fn who_asks_without_pause_does_not_compute_and_is_not_late() {
    let report = sampled_in(0, "accept4");
    let gap = found(&report, Kind::Gap)[0];
    let cause = &gap.lost.causes[0];
    assert_eq!((cause.cause, cause.who[0].pid, cause.places[0].function.raw()), (Cause::Spin, 200, "decode"));
    assert_eq!(gap.severity, Severity::Low, "nobody knows how long what it asked for had been there");
    assert_eq!(found(&sampled_in(0, "read"), Kind::Gap)[0].severity, Severity::High);
}

#[test]
fn garbage_collection_is_a_cause_of_its_own() {
    let report = sampled(5);
    let gap = found(&report, Kind::Gap)[0];
    let of =
        |cause| gap.lost.causes.iter().find(|line| line.cause == cause).map(|line| (line.ns, line.places[0].samples));
    let (gc, rest) = (of(Cause::WorkerGc).unwrap(), of(Cause::WorkerCpu).unwrap());
    assert_eq!((gc.1, rest.1, gc.0), (5, 7, (gc.0 + rest.0) / 4));
    assert_eq!(gap.lost.causes.iter().map(|line| line.ns).sum::<u64>() + gap.lost.unexplained_ns, gap.lost.lost_ns);
    assert!(gap.story.advice.iter().any(|advice| advice.text.contains("gc.freeze()")), "{:?}", gap.story.advice);
}
