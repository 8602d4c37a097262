//! Inputs that are not what they should be: cut short, empty, or about something else.

use std::io::Write;

use crate::support::{chain, text};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;

/// A process that is starved: four launches and a synchronise each 60 ms, and 50 ms on a CPU between them.
fn starved(steps: u64) -> String {
    let mut lines = Vec::new();
    for stream in ["cuda", "sched"] {
        lines.push(
            json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":"train","stream":stream}),
        );
    }
    for step in 0..steps {
        let at = 1001 * MS + step * 60 * MS;
        let launches = (0..4).map(|i| ("cudaLaunchKernel", at + i * 20_000, 10_000));
        for (op, mono_ns, dur_ns) in launches.chain([("cudaDeviceSynchronize", at + 80_000, 10 * MS - 80_000)]) {
            lines.push(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":100,"comm":"train","ret":0,"depth":0,"bytes":4096 + step * 4096}));
        }
    }
    lines.push(json!({"src":"ingero","op":"end","mono_ns":1001 * MS + steps * 60 * MS}));
    lines.iter().map(|record| format!("{record}\n")).collect()
}

fn lost_ms(stdout: &[u8]) -> u64 {
    let records = text(stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|r| r["op"] == "gap").map(|r| r["lost_ns"].as_u64().unwrap()).sum::<u64>() / MS
}

#[test]
fn a_recording_that_was_cut_is_reported_as_far_as_it_goes() {
    let lines = starved(2000);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(lines.as_bytes()).unwrap();
    let packed = [("zst", zstd::encode_all(lines.as_bytes(), 1).unwrap()), ("gz", gzip.finish().unwrap())];
    let dir = tempfile::tempdir().unwrap();
    for (kind, bytes) in packed {
        let path = dir.path().join(format!("cut.ndjson.{kind}"));
        std::fs::write(&path, &bytes[..bytes.len() * 3 / 4]).unwrap();
        let name = path.to_str().unwrap();
        let out = chain(&[name], "");
        assert_eq!(out.status.code(), Some(2), "{kind}");
        let said = text(&out.stderr);
        assert!(said.contains("cut.ndjson") && said.contains("what follows is missing in the report"), "{said}");
        let lost = lost_ms(&out.stdout);
        assert!((20_000..90_000).contains(&lost), "{kind}: {lost} ms");
        let strict = chain(&["--strict", name], "");
        assert_eq!((strict.status.code(), text(&strict.stdout)), (Some(2), ""), "{kind}");
    }
}

/// What an input that breaks off still had lies before what comes next: no gap is seen there.
#[test]
fn nothing_is_concluded_from_what_could_not_be_read() {
    let lines = starved(2000);
    let (first, second) = lines.split_at(lines.match_indices('\n').nth(5000).unwrap().0 + 1);
    let dir = tempfile::tempdir().unwrap();
    let packed = zstd::encode_all(first.as_bytes(), 1).unwrap();
    let [cut, whole, rest] = ["cut.zst", "whole.zst", "rest"].map(|name| dir.path().join(name));
    std::fs::write(&cut, &packed[..packed.len() * 3 / 4]).unwrap();
    std::fs::write(&whole, packed).unwrap();
    std::fs::write(&rest, second).unwrap();
    let summary = |paths: [&std::path::Path; 2]| -> Value {
        let out = chain(&paths.map(|path| path.to_str().unwrap()), "");
        serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap()
    };
    let (all, part) = (summary([&whole, &rest]), summary([&cut, &rest]));
    assert_eq!(all["not_judged_ns"], 0);
    // The records are a minute's, of which a part is missing.
    let missing = (all["calls"].as_u64().unwrap() - part["calls"].as_u64().unwrap()) * 12 * MS;
    let not_judged = part["not_judged_ns"].as_u64().unwrap();
    assert!(missing > 1000 * MS && not_judged.abs_diff(missing) < 100 * MS, "{missing} {part}");
}

#[test]
fn nothing_is_no_healthy_process() {
    let code = |args: &[&str], input: &str| chain(args, input).status.code();
    for args in [&[][..], &["--fail-on", "low"]] {
        let out = chain(args, "");
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(2), ""));
        assert!(text(&out.stderr).contains("no record in stdin: see what the programs before it"));
    }
    // A recording without any call, of a process that was not there or not watched.
    let frame = json!({"src":"ingero","op":"end","mono_ns":5,"stream":"cuda"}).to_string();
    assert_eq!((code(&[], &frame), code(&["--fail-on", "low"], &frame)), (Some(0), Some(2)));
    assert!(text(&chain(&["--fail-on", "low"], &frame).stderr).contains("no CUDA call in the input"));
    assert_eq!(code(&["--fail-on", "high"], &starved(100)), Some(1));
}

#[test]
fn sizes_tell_calls_of_one_name_apart() {
    let out = chain(&["--format", "text", "--per-process"], &starved(30));
    let report = text(&out.stdout);
    let table: Vec<&str> = report.lines().skip_while(|line| !line.contains("p50       p99")).collect();
    let (size, n): (Vec<&str>, Vec<&str>) = table[1..]
        .iter()
        .take_while(|line| line.contains("cuda"))
        .filter(|line| line.contains("cudaLaunchKernel"))
        .map(|line| (line.split(',').nth(1).unwrap().split("  ").next().unwrap(), line))
        .unzip();
    assert_eq!(
        size,
        [
            " 4.00 KiB to 8.00 KiB",
            " 8.00 KiB to 16.0 KiB",
            " 16.0 KiB to 32.0 KiB",
            " 32.0 KiB to 64.0 KiB",
            " 64.0 KiB to 128 KiB"
        ]
    );
    let widths: std::collections::HashSet<usize> = n.iter().map(|line| line.len()).collect();
    assert_eq!(widths.len(), 1, "{report}");
}

#[test]
fn a_page_says_what_it_is_about_and_what_it_does_not_count() {
    let start = json!({"src":"ingero","op":"start","tool":"ingero-cuda","mono_ns":1000 * MS,"host":"node<7>","wall_offset_ns":"1780000000000000000"});
    let mut lines = format!("{start}\n{}", starved(100));
    let exit =
        json!({"src":"sched","op":"sched_process_exit","mono_ns":27_000 * MS,"pid":100,"tid":100,"comm":"train"});
    lines += &exit.to_string();
    let page = chain(&["--format", "html"], &lines).stdout;
    let page = text(&page);
    assert!(page.contains("2026-05-28 20:26:41 UTC \u{b7} node&lt;7&gt; \u{b7} stdin"), "{page}");
    assert!(page.contains("train (100) starting up and winding down") && page.contains("20.0 s: wind-down"), "{page}");
}

/// Between its last call and its exit a process may take its time: that is told, too.
#[test]
fn silence_before_the_exit_is_winding_down() {
    let lines = starved(100)
        + &json!({"src":"sched","op":"sched_process_exit","mono_ns":27_000 * MS,"pid":100,"tid":100,"comm":"train"})
            .to_string();
    let out = chain(&[], &lines);
    let summary: Value = serde_json::from_str(text(&out.stdout).lines().last().unwrap()).unwrap();
    // The last call ended 50 ms before 7.001 s.
    assert_eq!(summary["wind_down_ns"], 27_000 * MS - 6_951 * MS, "{summary}");
}
