//! Tools in pipes: one that closes ends the tracer quietly, one command is followed to its end.

use std::process::Command;

use ingero_tests::{Background, Machine, Output, Workload, bin, bin_dir, plan, tool};
use ingero_workload::plan::Plan;
use rustix::fs::{CWD, FileType, Mode, mknodat};

#[test]
fn a_closed_pipe_ends_the_tracer_quietly() {
    let _machine = Machine::take();
    let workload = Workload::start(&Plan { loops: 1_000_000, ..plan(&["cudaMalloc", "host,sleep=1ms"]) });
    let script = "ingero-cuda --pid \"$0\" | head -n 1; echo \"${PIPESTATUS[*]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, &workload.pid().to_string()]);
    bash.env("PATH", format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap()));
    let out = Output::of(&mut bash).exits(0);
    let text = out.text();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with('{') && lines[0].contains("\"start\""), "{out}");
    assert_eq!(lines[1], "0 0", "{out}");
    out.shows("nothing about the pipe on stderr", |out| !out.stderr.to_lowercase().contains("pipe"));
}

#[test]
fn a_command_is_traced_from_its_first_call_and_its_status_passed_on() {
    let _machine = Machine::take();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = tool("ingero-cuda");
    command.arg("-o").arg(file.path()).arg("--").arg(bin("ingero-workload"));
    command.args(["calls", "--forks", "2", "--step", "cudaMalloc*50"]);
    let out = Output::of(&mut command).exits(0);
    // The command's stdout is its own: records went to the file.
    out.shows("the workload's two lines on stdout", |out| out.text().lines().count() == 2);
    let records = ingero_tests::Records::parse(&*std::fs::read(file.path()).unwrap()).unwrap();
    assert_eq!(records.of("cudart", "cudaMalloc").count(), 150);
    records.balance();

    let mut command = tool("ingero-cuda");
    command.args(["-o", "/dev/null", "--", "sh", "-c", "exit 7"]);
    Output::of(&mut command).exits(7);
}

#[test]
fn a_fifo_that_nobody_reads_is_waited_for_no_longer_than_asked() {
    let _machine = Machine::take();
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("nobody");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    for name in ["ingero-cuda", "ingero-sched"] {
        let out = Output::of(tool(name).args(["--quiet", "--duration", "300ms", "--output"]).arg(&fifo)).exits(2);
        out.says_in_one_line(&[name, "FIFO", fifo.to_str().unwrap(), "300 ms", "cat"]);
    }
    // Whatever made this test's process ignore Ctrl-C, the tools must not.
    for name in ["ingero-cuda", "ingero-sched", "ingero-join", "ingero-chain"] {
        let mut command = tool(name);
        command.arg("--output").arg(&fifo);
        if ["ingero-join", "ingero-chain"].contains(&name) {
            command.arg("-");
        }
        let mut waiting = Background::start(&mut command);
        waiting.wait_until("a word that it waits", |_, said| said.contains("waiting") && said.contains("FIFO"));
        waiting.interrupt().exits(0);
    }
}

/// Whatever the scheduler tracer would go on with: the processes that the CUDA tracer was to trace have ended.
#[test]
fn a_pipeline_ends_with_what_it_traces() {
    let _machine = Machine::take();
    let path = format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap());
    let of_command = "ingero-cuda -q -- ingero-workload calls --loops 200 --step cudaLaunchKernel --step cudaStreamSynchronize \
                      --step host,sleep=20ms | ingero-join - <(ingero-sched -q) | ingero-chain --format ndjson";
    let workload = Workload::start(&Plan {
        loops: 400,
        ..plan(&["cudaLaunchKernel", "cudaStreamSynchronize", "host,sleep=20ms"])
    });
    let pid = workload.pid();
    let of_pid =
        format!("ingero-cuda -q -p {pid} | ingero-join - <(ingero-sched -q -p {pid}) | ingero-chain --format ndjson");
    for script in [of_command, &of_pid] {
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("set -o pipefail; {script}; echo ended ${{PIPESTATUS[*]}}")]).env("PATH", &path);
        let out = Output::of(&mut bash).exits(0);
        let text = out.text();
        assert!(text.ends_with("ended 0 0 0\n"), "{out}");
        let records: Vec<serde_json::Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let gap = records.iter().find(|r| r["op"] == "gap").unwrap_or_else(|| panic!("no gap\n{out}"));
        // All of it was watched until the end, and is explained.
        assert!(gap["evidence"]["watched_share"].as_f64().unwrap() > 0.6, "{gap}");
        let paused = gap["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == "pause");
        let ns = paused.map_or(0, |cause| cause["ns"].as_u64().unwrap());
        assert!(ns * 10 >= gap["lost_ns"].as_u64().unwrap() * 5, "{gap}");
        let tracer = format!("ingero-sched -q{}", if script == of_command { "".into() } else { format!(" -p {pid}") });
        let left = Command::new("pgrep").args(["-xf", &tracer]).output().unwrap();
        assert!(left.stdout.is_empty(), "{tracer} goes on: {}", String::from_utf8_lossy(&left.stdout));
    }
    workload.finish();
}
