//! Inputs as they come: many of them, pipes opened in any order, files that break off, times out of this world.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{BEGIN_NS, Files, Stream, joined};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> u64 {
    BEGIN_NS + ms * MS
}

fn run(inputs: &[PathBuf]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ingero-join")).args(inputs).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn two_hundred_inputs_are_one_stream() {
    let streams: Vec<Stream> = (0..200)
        .map(|i| (0..20).fold(Stream::of("ingero-cuda"), |s, step| s.call(at(step * 200 + i), MS, 100 + i as u32, 100)))
        .collect();
    let out = joined(&streams, &[]).unwrap();
    let calls = out.with_op("cudaMalloc");
    let ends: Vec<u64> = calls.iter().map(|call| call["mono_ns"].as_u64().unwrap()).collect();
    assert_eq!(ends.len(), 4000);
    assert!(ends.is_sorted());
}

#[test]
fn pipes_may_be_opened_in_any_order() {
    let files = Files::new([]);
    let fifos: Vec<PathBuf> = (0..4).map(|i| files.dir().join(format!("fifo{i}"))).collect();
    assert!(Command::new("mkfifo").args(&fifos).status().unwrap().success());
    let child = Command::new(env!("CARGO_BIN_EXE_ingero-join"))
        .args(["--stall", "60s"])
        .args(&fifos)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The last one first, each in one piece before the next is opened.
    for (i, fifo) in fifos.iter().enumerate().rev() {
        let stream =
            (0..50).fold(Stream::of("ingero-cuda"), |s, step| s.call(at(step * 4 + i as u64), MS, 100 + i as u32, 100));
        std::fs::write(fifo, stream.text()).unwrap();
    }
    let out = child.wait_with_output().unwrap();
    let pids: Vec<u64> = text(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|r| r["op"] == "cudaMalloc")
        .map(|r| r["pid"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (0..200).map(|i| 100 + i % 4).collect();
    assert_eq!((out.status.code(), pids), (Some(0), expected));
}

#[test]
fn a_compressed_file_that_breaks_off_is_kept_as_far_as_it_goes() {
    let stream = (0..5000).fold(Stream::of("ingero-cuda"), |s, i| s.call(at(i), MS / 2, 100, 100));
    let files = Files::new([]);
    let whole = zstd::encode_all(stream.text().as_bytes(), 1).unwrap();
    let path = files.dir().join("cut.zst");
    std::fs::write(&path, &whole[..whole.len() * 3 / 4]).unwrap();
    let out = run(&[path]);
    let calls = text(&out.stdout).lines().filter(|line| line.contains("cudaMalloc")).count();
    assert_eq!(out.status.code(), Some(2));
    assert!((1000..5000).contains(&calls), "{calls}");
    assert!(text(&out.stdout).contains(r#""why":"bad_line""#));
    let said = text(&out.stderr);
    assert!(said.contains("cut.zst") && said.contains("what follows there is missing"), "{said}");
}

#[test]
fn a_time_out_of_this_world_does_not_make_everything_lost() {
    let call = |s: Stream, ms| s.call(at(ms), MS / 2, 100, 100);
    for hostile in [u64::MAX, 1 << 60, 0] {
        let mut stream = Stream::of("ingero-sched");
        for ms in 0..50 {
            stream = call(stream, ms);
        }
        stream = stream.line("garbage").put("sched", "sched_switch", hostile, r#""pid":7,"tid":7"#).line("garbage");
        for ms in 50..100 {
            stream = call(stream, ms);
        }
        let out = joined([&stream.end(at(101))], &[]).unwrap();
        let lost = out.with_op("lost");
        let bad: Vec<_> = lost.iter().filter(|r| r["why"] == "bad_line").collect();
        assert_eq!(bad.len(), 2, "{hostile}: {lost:?}");
        for record in bad {
            let (start, dur) = (record["mono_ns"].as_u64().unwrap(), record["dur_ns"].as_u64().unwrap());
            assert!(start >= at(49) && start + dur <= at(51), "{hostile}: {record}");
        }
    }
}

/// Joins `inputs` with no more than so much address space, of which an idle join takes a fifth.
fn run_within_kib(kib: u64, inputs: &[&Path]) -> Output {
    Command::new("sh")
        .args(["-c", "ulimit -v $0 && exec \"$@\"", &kib.to_string(), env!("CARGO_BIN_EXE_ingero-join")])
        .args(inputs)
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// `line` so many times, compressed: a few KB.
fn bomb(dir: &Path, line: &str, times: usize) -> PathBuf {
    let path = dir.join("bomb.gz");
    let mut gz = flate2::write::GzEncoder::new(std::fs::File::create(&path).unwrap(), flate2::Compression::fast());
    gz.write_all(format!("{line}\n").repeat(times).as_bytes()).unwrap();
    gz.finish().unwrap();
    path
}

#[test]
fn a_flood_of_bad_lines_is_counted_without_being_kept() {
    let files = Files::new([&Stream::of("ingero-cuda").call(at(1), MS, 100, 100)]);
    let bomb = bomb(files.dir(), "x", 2_000_000);
    let out = run_within_kib(200_000, &[&bomb, &files.paths[0]]);
    let records: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts: Vec<u64> =
        records.iter().filter(|r| r["why"] == "bad_line").map(|r| r["count"].as_u64().unwrap()).collect();
    assert_eq!((out.status.code(), counts.len()), (Some(2), 1001), "{}", text(&out.stderr));
    assert!(counts[..1000].iter().all(|&count| count == 1) && counts[1000] == 1_999_000, "{}", counts[1000]);
    let end = records.last().unwrap();
    assert_eq!(
        (&end["seen"], &end["written"], &end["lost"]["bad_line"]),
        (&2_000_001.into(), &1.into(), &2_000_000.into())
    );
}

#[test]
fn what_an_input_makes_wait_costs_no_more_than_there_is_room_for() {
    let files = Files::new([&Stream::of("ingero-cuda").call(at(1), MS, 100, 100)]);
    // A stream that is nothing but beginnings, and one line of each batch from the far future.
    let ahead = format!(r#"{{"mono_ns":{}}}"#, at(1 << 40));
    let near = format!("{{\"mono_ns\":{},\"x\":\"{}\"}}\n", at(2), "x".repeat(9_000)).repeat(4);
    for (line, times, records) in
        [(r#"{"src":"ingero","op":"start"}"#, 600_000, 600_000), (&*format!("{ahead}\n{near}{ahead}"), 6_000, 36_000)]
    {
        let bomb = bomb(files.dir(), line, times);
        let out = run_within_kib(200_000, &[&bomb, &files.paths[0]]);
        let lines = text(&out.stdout).lines().filter(|line| !line.contains(r#""op":"lost""#)).count();
        // Beside them our own first and last, and the other input's two.
        assert_eq!((out.status.code(), lines), (Some(0), records + 4), "{}", text(&out.stderr));
    }
}
