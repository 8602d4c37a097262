//! Inputs that are not what they should be: cut short, empty, or about something else.

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{self, MS, chain, class_ns, lines, parsed, text};

/// A process that is starved: four launches and a synchronise each 60 ms, and 50 ms on a CPU between them.
fn starved(steps: u64) -> String {
    let mut stream = support::watched(1000);
    for step in 0..steps {
        let at = 1001 * MS + step * 60 * MS;
        let launches = (0..4).map(|i| ("cudaLaunchKernel", at + i * 20_000, 10_000));
        for (op, mono_ns, dur_ns) in launches.chain([("cudaDeviceSynchronize", at + 80_000, 10 * MS - 80_000)]) {
            let mut call = support::call(op, 100, mono_ns, dur_ns);
            call["bytes"] = json!(4096 + step * 4096);
            stream.push(call);
        }
    }
    stream.push(support::end(1001 * MS + steps * 60 * MS));
    lines(&stream)
}

fn lost_ms(stdout: &[u8]) -> u64 {
    support::gaps_ns(&parsed(stdout)) / MS
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

/// What an input that breaks off still had lies before what comes next: no gap is seen there, whatever the first call after
/// it tells of the GPU.
#[test]
fn nothing_is_concluded_from_what_could_not_be_read() {
    let all = starved(2000);
    let dir = tempfile::tempdir().unwrap();
    // Two of watching come first; a step has five calls, the last of which waits for the GPU.
    for records in [2 + 5000, 2 + 5000 + 4] {
        let (first, second) = all.split_at(all.match_indices('\n').nth(records - 1).unwrap().0 + 1);
        let packed = zstd::encode_all(first.as_bytes(), 1).unwrap();
        let [cut, whole, rest] = ["cut.zst", "whole.zst", "rest"].map(|name| dir.path().join(name));
        std::fs::write(&cut, &packed[..packed.len() * 3 / 4]).unwrap();
        std::fs::write(&whole, packed).unwrap();
        std::fs::write(&rest, second).unwrap();
        let report = |paths: [&std::path::Path; 2]| -> Vec<Value> {
            parsed(&chain(&paths.map(|path| path.to_str().unwrap()), "").stdout)
        };
        let (all, part) = (report([&whole, &rest]), report([&cut, &rest]));
        assert_eq!(class_ns(&all, "not_judged"), 0);
        let calls = |records: &[Value]| records.last().unwrap()["calls"].as_u64().unwrap();
        // Five calls each 60 ms: what is missing is as long.
        let missing = (calls(&all) - calls(&part)) * 12 * MS;
        let not_judged = class_ns(&part, "not_judged");
        assert!(missing > 1000 * MS && not_judged.abs_diff(missing) < 100 * MS, "{records}: {missing} {part:?}");
        let lost = support::gaps_ns(&all) - support::gaps_ns(&part);
        assert!(lost.abs_diff(missing / 6 * 5) < 100 * MS, "{records}: {lost} {part:?}");
    }
}

#[test]
fn nothing_is_no_healthy_process() {
    let code = |args: &[&str], input: &str| chain(args, input).status.code();
    for args in [&[][..], &["--fail-on", "low"]] {
        let out = chain(args, "");
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stdout).contains("nothing_seen"), "{}", text(&out.stdout));
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
    let table: Vec<&str> = report.lines().skip_while(|line| line.split_whitespace().next() != Some("calls")).collect();
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
fn a_page_says_what_it_is_about() {
    let start = json!({"src":"ingero","op":"start","tool":"ingero-cuda","mono_ns":1000 * MS,"host":"node<7>","wall_offset_ns":"1780000000000000000"});
    let page = chain(&["--format", "html"], &format!("{start}\n{}", starved(100))).stdout;
    let page = text(&page);
    assert!(page.contains("2026-05-28 20:26:41 UTC \u{b7} node&lt;7&gt; \u{b7} stdin"), "{page}");
}

/// Between its last call and its exit a process may take its time: that is told, too.
#[test]
fn silence_before_the_exit_is_winding_down() {
    let exit =
        json!({"src":"sched","op":"sched_process_exit","mono_ns":27_000 * MS,"pid":100,"tid":100,"comm":"train"});
    let records = parsed(&chain(&[], &(starved(100) + &exit.to_string())).stdout);
    // The last call ended 50 ms before 7.001 s.
    assert_eq!(class_ns(&records, "wind_down"), 27_000 * MS - 6_951 * MS, "{records:?}");
    assert_eq!(support::found(&records, "account")[0]["observed_ns"], json!(26_000 * MS), "{records:?}");
}

#[test]
fn recordings_of_different_boots_are_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    let recording = |boot: &str| {
        let path = dir.path().join(boot);
        let start = format!(
            r#"{{"src":"ingero","op":"start","mono_ns":1,"schema":1,"tool":"ingero-cuda","boot_id":"{boot}"}}"#
        );
        std::fs::write(&path, start + "\n").unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (a, b) = (recording("a"), recording("b"));
    let other = chain(&[&a, &b], "");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("judge them one at a time"), "{}", text(&other.stderr));
    assert!(!text(&chain(&[&a, &a], "").stderr).contains("one at a time"));
}
