//! The trace-viewer format, held against its description ("Trace Event Format", Google, 2016; Perfetto's
//! documentation of what it imports of it), for all recordings of `tests/cases`.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::support::{BEGIN_NS, Stream};
use clap::Parser;
use ingero_common::input::Input;
use ingero_common::text::Log;
use ingero_join::{Options, Source, join};
use serde_json::Value;

/// The events of a trace made of the inputs.
fn trace(inputs: &[PathBuf]) -> Vec<Value> {
    let options = Options::parse_from(["ingero-join", "--quiet", "--format", "chrome"]);
    let sources = inputs.iter().map(|p| Source::named(Input::new(p)).unwrap()).collect();
    let mut out = Vec::new();
    join(&options, sources, &mut out, &Log::new("ingero-join", true, false)).unwrap();
    let trace: Value = serde_json::from_slice(&out).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Microseconds with three decimals, exactly; 0 for what is none.
fn ns(value: &Value) -> u64 {
    let text = value.to_string();
    let (whole, part) = text.split_once('.').unwrap_or((&text, "0"));
    whole.parse::<u64>().unwrap_or(0) * 1000 + format!("{part:0<3}").parse::<u64>().unwrap_or(0)
}

/// Process and thread.
type Track = (u64, u64);
/// Start, end, name.
type Slice = (u64, u64, String);
/// Phase, track, instant.
type ArrowEnd = (String, Track, u64);

/// What is wrong with a trace.
fn problems(events: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut slices: HashMap<Track, Vec<Slice>> = HashMap::new();
    let mut arrows: HashMap<u64, Vec<ArrowEnd>> = HashMap::new();
    for event in events {
        let keys: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        let ph = event["ph"].as_str().unwrap_or("none");
        let needs: &[&str] = match ph {
            "X" => &["name", "ts", "dur", "pid", "tid"],
            "M" => &["name", "pid", "tid", "args"],
            "s" | "f" => &["name", "cat", "ts", "pid", "tid", "id"],
            "i" => &["name", "ts", "pid", "tid", "s"],
            "C" => &["name", "ts", "pid", "args"],
            _ => {
                wrong.push(format!("no such phase: {event}"));
                continue;
            }
        };
        wrong.extend(needs.iter().filter(|key| !keys.contains(key)).map(|key| format!("{key} is missing: {event}")));
        for key in ["ts", "dur", "pid", "tid", "id"] {
            if event.get(key).is_some_and(|v| v.as_f64().is_none_or(|n| n < 0.0)) {
                wrong.push(format!("{key} is no number: {event}"));
            }
        }
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        match ph {
            "X" => {
                let start = ns(&event["ts"]);
                slices.entry(track).or_default().push((start, start + ns(&event["dur"]), event["name"].to_string()));
            }
            "s" | "f" => {
                arrows.entry(event["id"].as_u64().unwrap()).or_default().push((ph.into(), track, ns(&event["ts"])));
            }
            "i" if !["g", "p", "t"].contains(&event["s"].as_str().unwrap()) => {
                wrong.push(format!("an instant of no scope: {event}"));
            }
            "C" if event["args"].as_object().unwrap().values().any(|v| !v.is_number()) => {
                wrong.push(format!("a counter that is no number: {event}"));
            }
            _ => {}
        }
    }
    // An arrow that binds to no slice isn't drawn.
    let bound = |track, at| slices.get(track).is_some_and(|s| s.iter().any(|(a, b, _)| (*a..=*b).contains(&at)));
    for (id, ends) in &arrows {
        let phases: Vec<_> = ends.iter().map(|e| e.0.as_str()).collect();
        if phases != ["s", "f"] || !ends.iter().all(|(_, track, at)| bound(track, *at)) {
            wrong.push(format!("arrow {id}: {ends:?}"));
        }
    }
    // Slices of one track must nest.
    for (track, all) in &mut slices {
        all.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let mut open: Vec<(u64, String)> = Vec::new();
        for (start, end, name) in all {
            open.retain(|(until, _)| *until > *start);
            if let Some((until, around)) = open.last().filter(|(until, _)| until < end) {
                wrong.push(format!("{track:?}: {name} {start}..{end} crosses the end of {around} at {until}"));
            }
            open.push((*end, name.clone()));
        }
    }
    wrong
}

#[test]
fn every_recording_makes_a_valid_trace() {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let (mut traces, mut arrows) = (0, 0);
    for case in std::fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let files = std::fs::read_dir(&case).unwrap().map(|entry| entry.unwrap().path());
        let mut inputs: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "ndjson")).collect();
        inputs.sort();
        // What is wrong with a recording may show: the same thread twice at once, a life over another.
        let crossing = ["14-", "15-", "02-"].iter().any(|n| case.file_name().unwrap().to_string_lossy().starts_with(n));
        let events = trace(&inputs);
        let wrong: Vec<_> = problems(&events).into_iter().filter(|w| !crossing || !w.contains("crosses")).collect();
        assert_eq!(wrong, [] as [String; 0], "{}", case.display());
        traces += 1;
        arrows += events.iter().filter(|event| event["ph"] == "s").count();
    }
    assert!(traces >= 40 && arrows > 10, "{traces} traces with {arrows} arrows");
}

#[test]
fn hostile_names_are_text_and_calls_without_an_end_are_instants() {
    let name = r#"\"}]\u0000\u001b]0;x\u0007</script>\u2028\u202e"#;
    let stream = Stream::of("ingero-cuda")
        .put("cudart", "cudaMalloc", BEGIN_NS, &format!(r#""dur_ns":5,"pid":7,"tid":7,"comm":"{name}","depth":0"#))
        .put(
            "sched",
            "sched_switch",
            BEGIN_NS,
            &format!(
                r#""dur_ns":9,"pid":7,"tid":7,"comm":"{name}","state":"R","by":{{"pid":8,"tid":8,"comm":"{name}"}}"#
            ),
        )
        .put("cudart", "cudaFree", BEGIN_NS + 50, &format!(r#""pid":7,"tid":7,"comm":"{name}""#))
        .end(BEGIN_NS + 100);
    let files = crate::support::Files::new([&stream]);
    let events = trace(&files.paths);
    assert_eq!(problems(&events), [] as [String; 0]);
    let comm: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
    assert!(events.iter().any(|e| e["args"]["name"] == format!("{comm} 7")), "{events:#?}");
    assert_eq!(events.iter().find(|e| e["name"] == "cudaFree").unwrap()["ph"], "i");
}

#[test]
fn the_check_finds_what_is_wrong() {
    let one = |text: &str| problems(&[serde_json::from_str(text).unwrap()]).len();
    assert_eq!(one(r#"{"ph":"X","name":"a","ts":1.5,"dur":1,"pid":1,"tid":1}"#), 0);
    assert_eq!(one(r#"{"ph":"X","name":"a","ts":1.5,"pid":1,"tid":1,"dur":-1}"#), 1);
    assert_eq!(one(r#"{"ph":"s","name":"a","cat":"c","ts":1,"pid":1,"tid":1,"id":1}"#), 1);
    assert_eq!(one(r#"{"ph":"?","name":"a","ts":1,"pid":1,"tid":1}"#), 1);
    let slice = |ts: u64, dur: u64| serde_json::json!({"ph":"X","name":"a","ts":ts,"dur":dur,"pid":1,"tid":1});
    assert_eq!(problems(&[slice(1, 5), slice(2, 2), slice(6, 1)]).len(), 0);
    assert_eq!(problems(&[slice(1, 5), slice(4, 5)]).len(), 1);
}
