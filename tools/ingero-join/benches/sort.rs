//! Joins two large files and merges them with GNU `sort -m`, and prints how many times longer the join takes.
//!
//! `cargo bench -p ingero-join`; `INGERO_BENCH_MB=50` makes the files smaller than the default of 300 MB each.
//! The join does more than the merge: it looks into every record and gives each call its `host`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark prints, and may stop at the first surprise")]

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ingero_common::clock::WallClock;

/// Stream time from one record of a file to the next.
const STEP_NS: u64 = 20_000;
const RUNS: usize = 3;

fn main() {
    let megabytes: u64 = std::env::var("INGERO_BENCH_MB").ok().and_then(|mb| mb.parse().ok()).unwrap_or(300);
    let dir = tempfile::tempdir().unwrap();
    let (cuda, sched, out) = (dir.path().join("cuda"), dir.path().join("sched"), dir.path().join("out"));
    write(&cuda, "ingero-cuda", megabytes * 1_000_000);
    write(&sched, "ingero-sched", megabytes * 1_000_000);

    let join = best(|| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-join"));
        command.arg(&cuda).arg(&sched).arg("-o").arg(&out);
        command
    });
    // The fourth field is `ts`.
    let sort = best(|| {
        let mut command = Command::new("sort");
        command.env("LC_ALL", "C").args(["-m", "-t,", "-k4,4", "-o"]).args([&out, &cuda, &sched]);
        command
    });
    println!(
        "two files of {megabytes} MB, best of {RUNS}: ingero-join {:.2} s, sort -m {:.2} s, ratio {:.2}",
        join.as_secs_f64(),
        sort.as_secs_f64(),
        join.as_secs_f64() / sort.as_secs_f64()
    );
}

fn best(command: impl Fn() -> Command) -> Duration {
    let run = || {
        let begun = Instant::now();
        assert!(command().stdin(Stdio::null()).status().unwrap().success());
        begun.elapsed()
    };
    (0..RUNS).map(|_| run()).min().unwrap()
}

fn write(path: &Path, tool: &str, bytes: u64) {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let mut wall = WallClock::with_offset(1_796_040_000_000_000_000);
    let (mut written, mut end_ns, mut random) = (0, 1_000_000_000, 7u64);
    let mut line =
        format!(r#"{{"src":"ingero","op":"start","mono_ns":{end_ns},"tool":"{tool}","host":"h","boot_id":"b"}}"#);
    line.push('\n');
    while written < bytes {
        file.write_all(line.as_bytes()).unwrap();
        written += line.len() as u64;
        end_ns += STEP_NS;
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (dur_ns, pid) = (2_000 + (random >> 40) % 18_000, 100 + (random >> 33) % 4);
        let ts = wall.ts(end_ns - dur_ns);
        line.clear();
        let (op, rest) = if tool == "ingero-cuda" {
            (
                r#""src":"cudart","op":"cudaLaunchKernel""#,
                r#""ret":0,"depth":0,"stream":"0x7f3a40001000","func":"0x7f3a4c0123f8","grid":[128,1,1],"block":[256,1,1],"shmem":0"#,
            )
        } else {
            (
                r#""src":"sched","op":"sched_switch""#,
                r#""state":"S","runq_ns":900,"cpu":3,"by":{"pid":0,"tid":0,"comm":"swapper/3"},"prev":{"pid":800,"tid":800,"comm":"pt_data_worker"},"waker":{"pid":9,"tid":9,"comm":"rcu_sched"}"#,
            )
        };
        let _ = writeln!(
            line,
            r#"{{{op},"mono_ns":{},"ts":"{}","dur_ns":{dur_ns},"pid":{pid},"tid":{pid},"comm":"python3",{rest}}}"#,
            end_ns - dur_ns,
            ts.as_str()
        );
    }
    file.flush().unwrap();
}
