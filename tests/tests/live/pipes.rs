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
