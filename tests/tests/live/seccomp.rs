//! Where a return probe enters the kernel by a system call of its own, a strict sandbox may kill the traced process for it.

use ingero_tests::{Background, Machine, Records, Workload, cuda, has_tier, in_tier, plan, tiers, tool, watching};
use ingero_workload::plan::{Plan, Seccomp};
use ingero_workload::stub_dir;

/// The target is alive at the end and has made all of its calls; the tracer says what it did about it.
fn survives(seccomp: Seccomp) {
    let _machine = Machine::take();
    let workload =
        Workload::at_its_gate(&Plan { seccomp, ..plan(&["cudaMalloc*100", "cudaDeviceSynchronize,sleep=300ms"]) });
    let pid = workload.pid();
    // Nothing is asked for: it is found, as any CUDA process on the machine would be.
    let mut tracer = Background::start(tool("ingero-cuda").args(["--scan-interval", "100ms"]));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let stats = workload.run();
    assert_eq!(stats.all_calls(), 101);
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    // Where this kernel's return probes could kill it, its calls are instants, and driver calls are beside the others.
    let (with, without) = durations_and_instants(&records, pid);
    assert!((with, without) == (101, 0) || (with == 0 && without >= 101), "{with} calls, {without} instants\n{out}");
}

#[test]
fn a_target_that_was_sandboxed_before_survives() {
    survives(Seccomp::Early);
}

#[test]
fn a_target_that_is_sandboxed_later_survives() {
    survives(Seccomp::Late);
}

/// The calls of a process, sorted by whether their return was seen: with a duration, instants. The runtime's own first call
/// of the driver, which initialises it, is left out.
fn durations_and_instants(records: &Records, pid: u32) -> (usize, usize) {
    let (mut with, mut without) = (0, 0);
    for call in records.calls().filter(|r| r["pid"] == pid && r["op"] != "cuInit") {
        let known = ["dur_ns", "ret", "depth"].map(|key| call.get(key).is_some());
        match known {
            [true, true, true] => with += 1,
            [false, false, false] => without += 1,
            _ => panic!("neither a call nor an instant: {call}"),
        }
    }
    (with, without)
}

/// What the `watch` records of a process say of returns, in order.
fn said_of_returns(records: &Records, pid: u32) -> Vec<bool> {
    let watches = records.0.iter().filter(|r| watching(r, "cuda", pid));
    watches.map(|r| r.get("returns").is_none_or(|returns| *returns == true)).collect()
}

#[test]
fn entries_alone_in_each_tier() {
    let _machine = Machine::take();
    for mode in tiers().into_iter().filter(|mode| *mode != "perf") {
        let workload = Workload::at_its_gate(&plan(&["cudaMalloc*50,flat", "cudaMemcpyAsync*50,bytes=4k,dir=h2d"]));
        let pid = workload.pid();
        let mut tracer = Background::start(&mut in_tier(mode, cuda(pid).arg("--entry-only")));
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
        workload.run();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        // Nothing tells that the driver calls are inside the others: they are beside them.
        assert_eq!(durations_and_instants(&records, pid), (0, 150), "{mode}\n{out}");
        assert_eq!(said_of_returns(&records, pid), [false], "{mode}\n{out}");
        let copies: Vec<_> = records.of("cudart", "cudaMemcpyAsync").collect();
        assert_eq!(copies.len(), 50, "{mode}\n{out}");
        assert!(copies.iter().all(|r| r["bytes"] == 4096 && r["dir"] == "h2d"), "arguments are there\n{out}");
    }
}

#[test]
fn a_session_spares_the_sandboxed_process_alone() {
    if !has_tier("session") {
        return;
    }
    let _machine = Machine::take();
    let steps = plan(&["cudaMalloc*20,flat"]);
    let sandboxed = Workload::at_its_gate(&Plan { seccomp: Seccomp::Early, ..steps.clone() });
    let other = Workload::at_its_gate(&steps);
    let pids = [sandboxed.pid(), other.pid()];
    let mut command = cuda(pids[0]);
    command.arg("--pid").arg(pids[1].to_string()).args(["--entry-only=seccomp", "--probe-mode", "session"]);
    let mut tracer = Background::start(&mut command);
    for pid in pids {
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    }
    sandboxed.run();
    other.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(pids.map(|pid| durations_and_instants(&records, pid)), [(0, 20), (20, 0)], "{out}");
    assert_eq!(pids.map(|pid| said_of_returns(&records, pid)), [vec![false], vec![true]], "{out}");
}

/// Elsewhere a return probe is one of the file: whoever maps it meets it.
#[test]
fn other_tiers_spare_the_files_of_the_sandboxed_process() {
    let _machine = Machine::take();
    let own = tempfile::tempdir().unwrap();
    for name in ["libcudart.so.12", "libcuda.so.1"] {
        std::fs::copy(stub_dir().join(name), own.path().join(name)).unwrap();
    }
    let steps = plan(&["cudaMalloc*20,flat"]);
    let sandboxed = Workload::at_its_gate(&Plan { seccomp: Seccomp::Early, ..steps.clone() });
    let same_file = Workload::at_its_gate(&steps);
    let library = Some(own.path().join("libcudart.so.12"));
    let other_file = Workload::at_its_gate(&Plan { library, ..steps });
    let pids = [sandboxed.pid(), same_file.pid(), other_file.pid()];
    let mut command = cuda(pids[0]);
    command.arg("--pid").arg(format!("{},{}", pids[1], pids[2])).arg("--entry-only=seccomp");
    let mode = tiers().into_iter().find(|mode| *mode != "session").unwrap();
    let mut tracer = Background::start(&mut in_tier(mode, &mut command));
    for pid in pids {
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    }
    for workload in [sandboxed, same_file, other_file] {
        workload.run();
    }
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    let counts = pids.map(|pid| durations_and_instants(&records, pid));
    assert_eq!(counts, [(0, 20), (0, 20), (20, 0)], "{out}");
    assert_eq!(pids.map(|pid| said_of_returns(&records, pid)), [vec![false], vec![false], vec![true]], "{out}");
}

#[test]
fn a_process_that_is_sandboxed_while_it_is_traced() {
    // With tracefs a return probe takes its second or two to go, so the calls may come before that.
    if !has_tier("multi") {
        return;
    }
    let _machine = Machine::take();
    for mode in tiers().into_iter().filter(|mode| ["session", "multi"].contains(mode)) {
        // The sandbox comes behind the gate, then the calls.
        let steps = plan(&["host,sleep=1s", "cudaMalloc*20,flat"]);
        let workload = Workload::at_its_gate(&Plan { seccomp: Seccomp::Late, ..steps });
        let pid = workload.pid();
        let mut tracer = Background::start(cuda(pid).args(["--entry-only=seccomp", "--probe-mode", mode]));
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
        workload.run();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        assert_eq!(durations_and_instants(&records, pid), (0, 20), "{mode}\n{out}");
        assert_eq!(said_of_returns(&records, pid), [true, false], "{mode}\n{out}");
        assert!(out.stderr.contains("seccomp") && out.stderr.contains(&pid.to_string()), "{out}");
    }
}
