//! Ctrl-C at a terminal: the whole pipeline gets it, the report comes all the same, and nothing stays behind.

use std::path::Path;
use std::time::{Duration, Instant};

use ingero_tests::bpf::{Held, trace_events_of};
use ingero_tests::pty::Terminal;
use ingero_tests::{Background, Machine, Workload, bin_dir, cuda, has_tier, plan, watching, with_tracefs};
use ingero_workload::plan::{Loader, Plan};
use rustix::process::Signal;

/// A starved loop that goes on for longer than any test.
fn starved() -> Workload {
    let loader = Loader {
        workers: 4,
        cpus: vec![0],
        item_cpu: Duration::from_millis(15),
        item_sleep: Duration::ZERO,
        prefetch: 2,
        feeder: false,
        pin: false,
    };
    let steps = ["cudaMemcpyAsync*2", "cudaLaunchKernel*20", "cudaStreamSynchronize,sleep=1ms"];
    Workload::start(&Plan { loader: Some(loader), loops: 100_000, ..plan(&steps) })
}

#[test]
fn ends_the_pipeline_with_its_report_and_leaves_no_probe() {
    let _machine = Machine::take();
    let workload = starved();
    let script = format!(
        "export PATH={}:$PATH; ingero-cuda | ingero-join <(ingero-sched) | ingero-chain; echo ended ${{PIPESTATUS[*]}}",
        bin_dir().display()
    );
    let mut terminal = Terminal::bash(&script);
    let pids = ["ingero-cuda", "ingero-sched"].map(|name| terminal.wait_for(name));
    let held = pids.map(attached);
    // Long enough for some of the gaps that it is to report.
    std::thread::sleep(Duration::from_secs(4));
    terminal.ctrl_c();
    let (_, screen) = terminal.wait();
    drop(workload);

    assert!(screen.contains("[HIGH]"), "no report on the screen\n{screen}");
    assert!(screen.contains("data_worker_"), "the report does not name the workers\n{screen}");
    assert!(screen.contains("ended 0 0 0"), "the pipeline did not end well\n{screen}");
    for held in held {
        held.must_be_gone();
    }
}

/// Waits until a tracer has links in the kernel: what it holds.
fn attached(pid: u32) -> Held {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let held = Held::by(pid);
        if !held.links.is_empty() {
            return held;
        }
        assert!(Instant::now() < patience, "process {pid} attaches nothing");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How long a tracer takes from Ctrl-C to its end: the shortest of three, as a busy machine only adds to it.
fn detaching(mode: &str) -> Duration {
    if !has_tier(mode) {
        return Duration::ZERO;
    }
    let _machine = Machine::take();
    let one = || {
        let workload = Workload::at_its_gate(&plan(&["cudaMalloc*10"]));
        let mut command = cuda(workload.pid());
        command.args(["--probe-mode", mode]);
        let mut tracer = Background::start(&mut with_tracefs(&command));
        tracer.wait_for("the watch record", |r| watching(r, "cuda", workload.pid()));
        let (pid, held) = (tracer.pid(), Held::by(tracer.pid()));
        let asked = Instant::now();
        tracer.interrupt().exits(0);
        let took = asked.elapsed();
        held.must_be_gone();
        assert_eq!(trace_events_of(pid), Vec::<String>::new());
        took
    };
    (0..3).map(|_| one()).min().unwrap()
}

/// The limits are the specification's; serial detaching would take a hundred times as long.
#[test]
fn detaches_a_session_within_a_second() {
    let took = detaching("session");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn detaches_a_multi_link_within_a_second() {
    let took = detaching("multi");
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[test]
fn detaches_tracefs_events_within_three_seconds() {
    let took = detaching("tracefs");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_killed_tracer_leaves_no_probe_and_a_living_target() {
    let _machine = Machine::take();
    let mut workload = Workload::at_its_gate(&plan(&["cudaMalloc*100"]));
    let pid = workload.pid();
    let mut tracer = Background::start(&mut cuda(pid));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let held = Held::by(tracer.pid());
    tracer.signal(Signal::KILL);
    tracer.wait();
    held.must_be_gone();
    workload.go();
    assert_eq!(workload.finish().all_calls(), 100);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}
