//! Single properties of the merge and the stream around it, each on streams small enough to read.

use crate::support::{BEGIN_NS, Stream, joined};
use ingero_common::exit::Exit;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> u64 {
    BEGIN_NS + ms * MS
}

fn switch(stream: Stream, start_ms: u64, dur_ms: u64, pid: u32) -> Stream {
    let rest = format!(r#""dur_ns":{},"pid":{pid},"tid":{pid},"state":"S","runq_ns":0"#, dur_ms * MS);
    stream.put("sched", "sched_switch", at(start_ms), &rest)
}

#[test]
fn own_first_and_last_line_and_those_of_the_inputs_between() {
    let (a, b) = (Stream::of("ingero-cuda").end(at(9)), Stream::of("ingero-sched").end(at(8)));
    let records = joined([&a, &b], &[]).unwrap().records();
    let told: Vec<_> = records.iter().map(|r| (r["op"].as_str().unwrap(), r["tool"].as_str().unwrap_or(""))).collect();
    let want = [
        ("start", "ingero-join"),
        ("start", "ingero-cuda"),
        ("start", "ingero-sched"),
        ("end", ""),
        ("end", ""),
        ("end", ""),
    ];
    assert_eq!(told, want);
    assert_eq!((records[0]["host"].as_str(), records[0]["boot_id"].as_str()), (Some("box"), Some("boot-1")));
    assert_eq!(records[0]["mono_ns"], BEGIN_NS);
    assert!(records[5].get("user_ns").is_none(), "CPU times differ from run to run");
}

#[test]
fn no_input_at_all_gives_a_frame() {
    let joined = joined([&Stream::default()], &[]).unwrap();
    assert_eq!(joined.records().iter().map(|r| r["op"].clone()).collect::<Vec<_>>(), ["start", "end"]);
    assert_eq!(joined.exit, Exit::Ok);
}

#[test]
fn a_call_is_not_annotated_twice() {
    let cuda = Stream::of("ingero-cuda").call(at(1), MS, 100, 100).end(at(9));
    let sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 1, 1, 100).end(at(9));
    let once = joined([&cuda, &sched], &[]).unwrap();
    let again = joined([&Stream(once.lines.clone())], &[]).unwrap();
    let calls =
        |j: &crate::support::Joined| j.lines.iter().filter(|l| l.contains("cudaMalloc")).cloned().collect::<Vec<_>>();
    assert_eq!(calls(&again), calls(&once));
    assert_eq!(once.with_op("cudaMalloc")[0]["host"]["sleep_ns"], MS);
}

#[test]
fn bytes_of_a_line_survive_annotation() {
    let line = format!(
        r#"{{ "z" : 1.50, "src":"cudart","op":"cudaMalloc","mono_ns":{}, "dur_ns":1,"pid":1,"tid":1,"n":{{"a":1}} }}  "#,
        at(1)
    );
    let out = joined([&Stream::of("ingero-cuda").line(&line)], &[]).unwrap();
    let got = out.lines.iter().find(|l| l.contains("cudaMalloc")).unwrap();
    assert!(got.starts_with(line[..line.rfind('}').unwrap()].trim_end()), "{got}");
    assert!(got.trim_end().ends_with(r#""watched":false}}"#), "{got}");
}

#[test]
fn late_records_are_written_flagged_and_counted() {
    let mut sched = Stream::of("ingero-sched").watch(at(0), 100);
    sched = switch(sched, 1990, 10, 100);
    sched = switch(sched, 1000, 5, 100);
    sched = switch(sched, 1001, 5, 100);
    let cuda = (0..30).fold(Stream::of("ingero-cuda"), |s, i| s.call(at(100 * i), MS, 100, 100));
    let joined = joined([&cuda.end(at(3000)), &sched.end(at(3000))], &[]).unwrap();
    let late: Vec<_> = joined.with_op("sched_switch").iter().map(|r| r.get("late").is_some()).collect();
    assert_eq!(late, [true, true, false], "{:#?}", joined.lines);
    let lost = joined.with_op("lost");
    assert_eq!(lost.len(), 1);
    assert_eq!((lost[0]["why"].as_str(), lost[0]["stream"].as_str()), (Some("late"), Some("sched")));
    assert_eq!((lost[0]["count"].as_u64(), lost[0]["mono_ns"].as_u64()), (Some(2), Some(at(1000))));
    assert_eq!(lost[0]["dur_ns"], 6 * MS);
    let end = joined.records().pop().unwrap();
    assert_eq!((end["late"].as_u64(), end["seen"].as_u64(), end["written"].as_u64()), (Some(2), Some(33), Some(33)));
    assert_eq!(joined.exit, Exit::Ok);
}

#[test]
fn an_interval_that_ends_a_window_after_the_call_still_counts() {
    let cuda = Stream::of("ingero-cuda").call(at(100), 10 * MS, 100, 100).call(at(2000), MS, 100, 100).end(at(3000));
    let ends_at = |end_ms: u64| {
        let sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 105, end_ms - 105, 100).end(at(3000));
        joined([&cuda, &sched], &[]).unwrap().with_op("cudaMalloc")[0]["host"]["off_ns"].as_u64().unwrap()
    };
    assert_eq!((ends_at(111), ends_at(360)), (5 * MS, 5 * MS));
}

#[test]
fn records_without_time_stay_behind_their_line() {
    let sched = Stream::of("ingero-sched").put("a", "x", at(5), "").line(r#"{"n":1}"#).line(r#"{"n":2}"#).put(
        "a",
        "y",
        at(3),
        "",
    );
    let cuda = Stream::of("ingero-cuda").put("b", "x", at(4), "").put("b", "y", at(6), "");
    let joined = joined([&cuda, &sched], &[]).unwrap();
    let order: Vec<_> =
        joined.records()[3..8].iter().map(|r| format!("{}{}{}", r["src"], r["op"], r["n"]).replace('"', "")).collect();
    assert_eq!(order, ["aynull", "bxnull", "axnull", "nullnull1", "nullnull2"]);
}

#[test]
fn bad_lines_are_counted_where_they_were_and_poison_only_that_place() {
    let sched =
        switch(switch(Stream::of("ingero-sched").watch(at(0), 100), 10, 1, 100).line("{oops"), 20, 1, 100).end(at(50));
    let cuda = [5, 15, 30].iter().fold(Stream::of("ingero-cuda"), |s, &ms| s.call(at(ms), MS, 100, 100)).end(at(50));
    let out = joined([&cuda, &sched], &[]).unwrap();
    let watched: Vec<_> = out.with_op("cudaMalloc").iter().map(|r| r["host"]["watched"].as_bool().unwrap()).collect();
    assert_eq!(watched, [true, false, true]);
    let lost = &out.with_op("lost")[0];
    assert_eq!(
        (lost["why"].as_str(), lost["stream"].as_str(), lost["input"].as_str()),
        (Some("bad_line"), Some("sched"), Some("DIR/1.ndjson"))
    );
    assert_eq!((lost["mono_ns"].as_u64(), lost["dur_ns"].as_u64()), (Some(at(11)), Some(10 * MS)));
    assert_eq!(out.exit, Exit::Error);
    let error = joined([&cuda, &sched], &["--strict"]).unwrap_err().to_string();
    assert!(error.contains("1.ndjson, line 4: not valid JSON"), "{error}");
}

#[test]
fn a_flood_of_bad_lines_is_counted_whole() {
    let stream = (0..5000).fold(Stream::of("ingero-sched"), |s, _| s.line("garbage")).end(at(1));
    let out = joined([&stream], &[]).unwrap();
    let counts: Vec<_> = out.with_op("lost").iter().map(|r| r["count"].as_u64().unwrap()).collect();
    assert_eq!((counts.len(), counts.iter().sum::<u64>()), (1001, 5000));
}

#[test]
fn other_boots_are_refused_unless_asked_for() {
    let a = Stream::on("box", "boot-1", "ingero-cuda", BEGIN_NS).call(at(1), MS, 100, 100);
    let b = switch(Stream::on("other", "boot-2", "ingero-sched", BEGIN_NS).watch(at(0), 100), 1, 1, 100);
    let error = joined([&a, &b], &[]).unwrap_err().to_string();
    assert!(error.contains("box (boot boot-1)") && error.contains("other (boot boot-2)"), "{error}");
    let mixed = joined([&a, &b], &["--allow-mixed-clocks"]).unwrap();
    let host = &mixed.with_op("cudaMalloc")[0]["host"];
    assert_eq!(
        (host["off_ns"].as_u64(), host["watched"].as_bool()),
        (Some(0), Some(false)),
        "another machine's thread"
    );
}

#[test]
fn a_stream_by_another_clock_is_refused_by_name() {
    let mut a = Stream::on("box", "boot-1", "ingero-cuda", BEGIN_NS).call(at(1), MS, 100, 100);
    a.0[0] = a.0[0].replace(r#""clock":"monotonic""#, r#""clock":"boottime""#);
    let error = joined([&a], &[]).unwrap_err().to_string();
    assert!(error.contains("boottime") && !error.contains('\n'), "{error}");
}

#[test]
fn only_what_was_asked_for_is_written_but_all_is_attributed() {
    let cuda = Stream::of("ingero-cuda")
        .call(at(10), MS, 100, 100)
        .call(at(20), MS, 200, 200)
        .call(at(30), MS, 101, 101)
        .end(at(50));
    let sched = Stream::of("ingero-sched")
        .watch(at(0), 100)
        .put("sched", "sched_process_fork", at(5), r#""pid":100,"tid":100,"child_pid":101"#)
        .put("sys", "sample", at(25), "");
    let sched = switch(sched, 30, 1, 101).end(at(50));
    let pids = |flags: &[&str]| {
        let joined = joined([&cuda, &sched], flags).unwrap();
        let pids: Vec<_> = joined.with_op("cudaMalloc").iter().map(|r| r["pid"].as_u64().unwrap()).collect();
        (pids, joined)
    };
    let (all, _) = pids(&[]);
    assert_eq!(all, [100, 200, 101]);
    let (some, out) = pids(&["--pid", "100"]);
    assert_eq!(some, [100, 101], "children too");
    assert_eq!(out.with_op("sample").len(), 1);
    let end = out.records().pop().unwrap();
    assert_eq!((end["seen"].as_u64(), end["written"].as_u64(), end["filtered"].as_u64()), (Some(6), Some(5), Some(1)));
    let (late, out) = pids(&["--since", "25ms", "--until", "31ms"]);
    assert_eq!(late, [101]);
    assert_eq!(out.with_op("cudaMalloc")[0]["host"]["watched"], true);
    assert_eq!(out.with_op("sched_switch").len(), 1);
    let (by_clock, _) = pids(&["--until", "2026-11-30T12:00:01.015Z"]);
    assert_eq!(by_clock, [100]);
}

#[test]
fn a_cut_out_stretch_says_that_it_was_watched_from_bound_to_bound() {
    let cuda = Stream::of("ingero-cuda")
        .put("ingero", "watch", at(1), r#""ts":"then","stream":"cuda","pid":100,"why":"asked""#)
        .put("ingero", "lost", at(2), r#""stream":"cuda","count":7,"why":"ring_full""#)
        .call(at(10), MS, 100, 100)
        .call(at(30), MS, 100, 100)
        .end(at(50));
    let sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 20, 1, 100).end(at(60));
    let out = joined([&cuda, &sched], &["--since", "15ms", "--until", "40ms"]).unwrap();
    let times = |op| out.with_op(op).iter().map(|r| r["mono_ns"].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(times("cudaMalloc"), [at(30)]);
    assert_eq!(times("watch"), [at(15), at(15)]);
    assert_eq!(times("end"), [at(40), at(40), at(40)]);
    assert!(times("lost").is_empty(), "what was lost before is not missing here");
    assert_eq!(out.with_op("cudaMalloc")[0]["host"]["watched"], true);
    let backwards = joined([&cuda, &sched], &["--since", "5s", "--until", "2s"]).unwrap_err().to_string();
    assert!(backwards.contains("--since lies behind --until"), "{backwards}");
    let watches = out.with_op("watch");
    let watch = watches.iter().find(|watch| watch["stream"] == "cuda").unwrap();
    assert!(watch["ts"].as_str().unwrap().ends_with(".015000000Z"), "{watch}");
    assert_eq!(watch["why"], "asked", "{watch}");
}

#[test]
fn a_recording_without_its_end_is_watched_up_to_its_last_record() {
    let cuda = Stream::of("ingero-cuda").call(at(10), MS, 100, 100).call(at(30), MS, 100, 100).end(at(50));
    let sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 20, 1, 100);
    let watched = |sched: &Stream| {
        let calls = joined([&cuda, sched], &[]).unwrap().with_op("cudaMalloc");
        calls.iter().map(|r| r["host"]["watched"].as_bool().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(watched(&sched), [true, false]);
    assert_eq!(watched(&sched.clone().end(at(25))), [true, false]);
    assert_eq!(watched(&sched.end(at(31))), [true, true]);
}

#[test]
fn an_end_that_names_its_stream_ends_only_that_one() {
    // One input that carries both, as a joined stream does, beside the calls.
    let both = |ends: &str| {
        let end = format!(r#""stream":"{ends}","seen":0,"written":0,"lost":{{}}"#);
        let sched = Stream::of("ingero-sched").watch(at(0), 100).put("ingero", "end", at(5), &end);
        switch(sched, 20, 1, 100).put("sys", "sample", at(50), "")
    };
    let cuda = Stream::of("ingero-cuda").call(at(20), 2 * MS, 100, 100).end(at(50));
    let watched = |ends| joined([&cuda, &both(ends)], &[]).unwrap().with_op("cudaMalloc")[0]["host"]["watched"].clone();
    assert_eq!((watched("cuda"), watched("sched")), (true.into(), false.into()));
}

#[test]
fn the_same_records_twice_count_once() {
    let cuda = Stream::of("ingero-cuda").call(at(10), 10 * MS, 100, 100).end(at(50));
    let sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 12, 4, 100).end(at(50));
    let host = joined([&cuda, &sched, &sched], &[]).unwrap().with_op("cudaMalloc")[0]["host"].clone();
    assert_eq!((host["off_ns"].as_u64(), host["switches"].as_u64()), (Some(4 * MS), Some(1)));
}

#[test]
fn an_open_interval_and_its_continuation_are_one_switch() {
    let cuda = Stream::of("ingero-cuda").call(at(10), 10 * MS, 100, 100).end(at(50));
    let open = r#""dur_ns":3000000,"pid":100,"tid":100,"state":"S","runq_ns":0,"open":true"#;
    let whole = r#""dur_ns":6000000,"pid":100,"tid":100,"state":"S","runq_ns":1000000"#;
    let sched = Stream::of("ingero-sched")
        .watch(at(0), 100)
        .put("sched", "sched_switch", at(12), open)
        .put("sched", "sched_switch", at(12), whole)
        .end(at(50));
    let host = joined([&cuda, &sched], &[]).unwrap().with_op("cudaMalloc")[0]["host"].clone();
    assert_eq!(
        (host["off_ns"].as_u64(), host["switches"].as_u64(), host["runq_ns"].as_u64()),
        (Some(6 * MS), Some(1), Some(MS))
    );
}

#[test]
fn memory_is_bounded_even_if_the_window_is_not() {
    // 60,000 records within one window: more than may be held, so the window is cut short; nothing is lost.
    let cuda = (0..60_000u64).fold(Stream::of("ingero-cuda"), |s, i| s.call(at(1) + i, 10, 100, 100));
    let joined = joined([&cuda.end(at(9))], &[]).unwrap();
    let ends: Vec<_> = joined.with_op("cudaMalloc").iter().map(|r| r["mono_ns"].as_u64().unwrap()).collect();
    assert_eq!(ends.len(), 60_000);
    assert!(ends.is_sorted());
}

#[test]
fn one_wrong_time_does_not_send_the_input_into_the_future() {
    let mut sched = switch(Stream::of("ingero-sched").watch(at(0), 100), 5, 1, 100);
    // A duration that wrapped around.
    let rest = format!(r#""dur_ns":{},"pid":100,"tid":100,"state":"S","runq_ns":0"#, u64::MAX - 7);
    sched = sched.put("sched", "sched_switch", at(6), &rest);
    sched = (1..20).fold(sched, |s, i| switch(s, 100 * i, 1, 100)).end(at(3000));
    let cuda = (1..20).fold(Stream::of("ingero-cuda"), |s, i| s.call(at(100 * i), 2 * MS, 100, 100)).end(at(3000));
    let joined = joined([&cuda, &sched], &[]).unwrap();
    for call in joined.with_op("cudaMalloc") {
        assert_eq!(
            (call["host"]["off_ns"].as_u64(), call["host"]["watched"].as_bool()),
            (Some(MS), Some(true)),
            "{call}"
        );
    }
    assert!(joined.records().iter().all(|r| r.get("late").is_none()), "{:#?}", joined.lines);
    assert_eq!(joined.with_op("sched_switch").len(), 21);
}

#[test]
fn a_long_silence_is_no_wrong_time() {
    let hour = 3_600_000;
    let cuda =
        Stream::of("ingero-cuda").call(at(1), MS, 100, 100).call(at(hour + 10), 2 * MS, 100, 100).end(at(hour + 50));
    let sched =
        switch(switch(Stream::of("ingero-sched").watch(at(0), 100), 1, 1, 100), hour + 10, 1, 100).end(at(hour + 50));
    let hosts: Vec<_> = joined([&cuda, &sched], &[])
        .unwrap()
        .with_op("cudaMalloc")
        .iter()
        .map(|c| (c["host"]["off_ns"].as_u64().unwrap(), c["host"]["watched"].as_bool().unwrap()))
        .collect();
    assert_eq!(hosts, [(MS, true), (MS, true)]);
}

fn watch_cuda(stream: Stream, ms: u64, pid: u32) -> Stream {
    let rest = format!(r#""pid":{pid},"tid":{pid},"why":"cuda","stream":"cuda""#);
    stream.put("ingero", "watch", at(ms), &rest)
}

fn end_of(stream: Stream, ms: u64, name: &str) -> Stream {
    stream.put("ingero", "end", at(ms), &format!(r#""stream":"{name}","seen":0,"written":0,"lost":{{}}"#))
}

/// Of each call, whether it is marked.
fn marked(joined: &crate::support::Joined, pid: u32) -> Vec<bool> {
    let calls = joined.with_op("cudaMalloc");
    calls.iter().filter(|r| r["pid"] == pid).map(|r| r.get("double").is_some()).collect()
}

#[test]
fn two_tracers_on_one_process_tell_of_each_call_once() {
    // Both see 100; each one sees another process that the other doesn't.
    let first = watch_cuda(Stream::of("ingero-cuda"), 0, 100).call(at(10), MS, 100, 100);
    let first = watch_cuda(first, 12, 200).call(at(20), MS, 100, 100).call(at(21), MS, 200, 200);
    let first = end_of(first, 30, "cuda");
    let second = watch_cuda(Stream::of("ingero-cuda"), 15, 100).call(at(20) + 900, MS, 100, 100);
    let second = watch_cuda(second, 22, 300).call(at(23), MS, 300, 300).call(at(40), MS, 100, 100);
    let second = end_of(second, 50, "cuda");
    let joined = joined([&second, &first], &[]).unwrap();
    assert_eq!(marked(&joined, 100), [false, false, true, false], "{:#?}", joined.lines);
    assert_eq!((marked(&joined, 200), marked(&joined, 300)), (vec![false], vec![false]));
    let calls = joined.with_op("cudaMalloc");
    assert!(calls.iter().all(|r| r.get("host").is_some() != r.get("double").is_some()), "{calls:#?}");
    assert_eq!(joined.with_op("end").last().unwrap()["double"], 1);
    // A table and a trace have each call once.
    for format in ["csv", "chrome"] {
        let other = crate::support::joined([&second, &first], &["--format", format]).unwrap();
        assert_eq!(other.lines.concat().matches("cudaMalloc").count(), 5, "{format}: {:#?}", other.lines);
    }
    // Joined again, it is as it was.
    let again = crate::support::joined([&Stream(joined.lines.clone())], &[]).unwrap();
    assert_eq!(again.with_op("cudaMalloc"), calls);
}

#[test]
fn a_tracer_that_was_killed_hands_over_to_the_next() {
    let first = watch_cuda(Stream::of("ingero-cuda"), 0, 100).call(at(10), MS, 100, 100);
    let second = watch_cuda(Stream::of("ingero-cuda"), 500, 100).call(at(600), MS, 100, 100);
    let joined = joined([&first, &end_of(second, 700, "cuda")], &[]).unwrap();
    assert_eq!(marked(&joined, 100), [false, false], "{:#?}", joined.lines);
}

#[test]
fn a_thread_that_two_tracers_saw_asleep_slept_once() {
    let cuda = Stream::of("ingero-cuda").call(at(10), 10 * MS, 100, 100).end(at(90));
    let sched = |skew_ns: u64| {
        let rest = format!(r#""dur_ns":{},"pid":100,"tid":100,"state":"S","runq_ns":0"#, 5 * MS);
        let stream = Stream::of("ingero-sched").watch(at(0) + skew_ns, 100);
        end_of(stream.put("sched", "sched_switch", at(12) + skew_ns, &rest), 90, "sched")
    };
    let joined = joined([&cuda, &sched(0), &sched(700)], &[]).unwrap();
    assert_eq!(joined.with_op("cudaMalloc")[0]["host"]["sleep_ns"], 5 * MS, "{:#?}", joined.lines);
    let switches = joined.with_op("sched_switch");
    assert_eq!(
        switches.iter().map(|r| r["double"].clone()).collect::<Vec<_>>(),
        [serde_json::Value::Null, true.into()]
    );
}

#[test]
fn a_number_that_is_used_again_is_watched_anew() {
    let exit = |stream: Stream, ns: u64| stream.put("sched", "sched_process_exit", ns, r#""pid":100,"tid":100"#);
    let off = |stream: Stream, ns: u64| {
        stream.put("sched", "sched_switch", ns, r#""dur_ns":1000,"pid":100,"tid":100,"state":"S","runq_ns":0"#)
    };
    let first = end_of(exit(off(Stream::of("ingero-sched").watch(at(0), 100), at(10)), at(20)), 90, "sched");
    let second = exit(off(Stream::of("ingero-sched").watch(at(1), 100), at(10) + 700), at(20) + 700);
    // The first tracer is not asked to watch the next process of that number.
    let second = end_of(off(second.watch(at(30), 100), at(40)), 90, "sched");
    let joined = joined([&first, &second], &[]).unwrap();
    let double = |op: &str| joined.with_op(op).iter().map(|r| r.get("double").is_some()).collect::<Vec<_>>();
    assert_eq!((double("sched_switch"), double("sched_process_exit")), (vec![false, true, false], vec![false, true]));
}
