//! What is missing is named in one line, with the cure, and the exit status is 2.

use std::process::Command;

use ingero_tests::{Background, Machine, Output, in_mounts, tool, without_btf, without_root};

#[test]
fn not_root() {
    for name in ["ingero-cuda", "ingero-sched"] {
        let mut command = without_root(&tool(name));
        Output::of(command.args(["--duration", "1s"])).exits(2).says_in_one_line(&[name, "root", "sudo"]);
    }
}

/// The same command as root with these capabilities only (`setpriv`'s words).
fn with_capabilities(which: &str, command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.arg(format!("--bounding-set={which}")).args(["--inh-caps=-all", "--"]).arg(command.get_program());
    wrapped.args(command.get_args());
    wrapped
}

#[test]
fn root_without_its_capabilities() {
    let _machine = Machine::take();
    for (which, missing) in [
        ("-bpf,-perfmon,-sys_admin", "CAP_BPF and CAP_PERFMON"),
        ("-all,+bpf", "CAP_PERFMON"),
        ("-all,+perfmon", "CAP_BPF"),
    ] {
        for name in ["ingero-cuda", "ingero-sched"] {
            let mut command = tool(name);
            let mut command = with_capabilities(which, command.args(["--duration", "1s"]));
            Output::of(&mut command).exits(2).says_in_one_line(&[name, missing, "host"]);
        }
    }
}

#[test]
fn too_few_open_files() {
    let _machine = Machine::take();
    for name in ["ingero-cuda", "ingero-sched"] {
        let limited = |limits: &str| {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={limits}")).arg("--").arg(tool(name).get_program()).args([
                "-q",
                "--duration",
                "200ms",
            ]);
            Output::of(&mut command)
        };
        limited("16:16").exits(2).says_in_one_line(&[name, "16", "ulimit -n"]);
        // A limit that may be raised is raised.
        limited("16:1024").exits(0);
    }
}

#[test]
fn an_output_that_cannot_be_made() {
    let _machine = Machine::take();
    for name in ["ingero-cuda", "ingero-sched", "ingero-join"] {
        let mut command = tool(name);
        command.args(["--output", "/nonexistent/t.ndjson"]);
        let said = ["/nonexistent/t.ndjson", "No such file", "make the directory"];
        Output::of(&mut command).exits(2).says_in_one_line(&[&[name], &said[..]].concat());
    }
}

#[test]
fn no_btf() {
    let _machine = Machine::take();
    for name in ["ingero-cuda", "ingero-sched"] {
        let mut command = without_btf(&tool(name));
        Output::of(command.args(["--duration", "1s"])).exits(2).says_in_one_line(&[name, "BTF"]);
    }
}

#[test]
fn no_tracefs() {
    let _machine = Machine::take();
    let prepare = "{ umount /sys/kernel/tracing /sys/kernel/debug/tracing 2>/dev/null || true; }";
    let mut tracer = tool("ingero-cuda");
    tracer.args(["--probe-mode", "tracefs", "--duration", "1s"]);
    Output::of(&mut in_mounts(prepare, &tracer)).exits(2).says_in_one_line(&["tracefs", "mount"]);
}

#[test]
fn no_such_process() {
    let _machine = Machine::take();
    // Above the largest that the kernel gives out (PID_MAX_LIMIT).
    for name in ["ingero-cuda", "ingero-sched"] {
        let mut command = tool(name);
        command.args(["--pid", "4194305", "--duration", "1s"]);
        Output::of(&mut command).exits(2).says_in_one_line(&[name, "4194305"]);
    }
}

#[test]
fn no_cuda_process() {
    let _machine = Machine::take();
    let sleep = Background::start(Command::new("sleep").arg("60"));
    let mut command = tool("ingero-cuda");
    command.args(["--pid", &sleep.pid().to_string(), "--duration", "1s"]);
    // It may still open the library: the tracer waits for that, and says so at once.
    let out = Output::of(&mut command);
    out.shows("a word about the missing CUDA library", |out| out.stderr.contains("CUDA"));
}

#[test]
fn a_file_that_is_not_there() {
    Output::of(tool("ingero-join").arg("/nonexistent/cuda.ndjson"))
        .exits(2)
        .says_in_one_line(&["ingero-join", "/nonexistent/cuda.ndjson"]);
    Output::of(tool("ingero-chain").arg("/nonexistent/joined.ndjson"))
        .exits(2)
        .says_in_one_line(&["ingero-chain", "/nonexistent/joined.ndjson"]);
}

#[test]
fn a_list_needs_no_root() {
    Output::of(&mut without_root(tool("ingero-cuda").arg("--list"))).exits(0);
}
