//! Processes that call cuInit are watched from that instant.

use std::path::Path;

use rustix::process::Signal;

use super::*;

/// The tool, which looks for processes only at its start: what it notices later, it notices by the probe.
fn sched_that_never_looks() -> Background {
    let mut sched = Background::start(tool().args(["--no-sys", "--scan-interval", "24h"]));
    sched.wait_for("the start record", |r| r["op"] == "start");
    sched
}

/// A workload that has a library open, with so many threads beside the main one.
fn user_of(library: &Path, what: &str, n: &str) -> Workload {
    let mut workload = Workload::start(&[what, n, library.to_str().unwrap()]);
    workload.go();
    workload.wait_for("open");
    workload
}

#[test]
fn a_process_is_watched_from_its_call_of_cu_init_on() {
    let _machine = Machine::take();
    let library = ingero_workload::stub_dir().join("libcuda.so.1");
    // By this one the tool gets to know the library.
    let known = user_of(&library, "cuda", "0");
    let mut sched = sched_that_never_looks();
    sched.wait_for("the watch on the first", |r| is_watch(r, known.pid()) && r["why"] == "cuda");

    let mut alone = user_of(&library, "cuda", "0");
    let mut crowd = user_of(&library, "cuda", "3");
    for workload in [&mut alone, &mut crowd] {
        workload.go();
        workload.wait_for("to_ns");
        let pid = workload.pid();
        sched.wait_for("its watch record", |r| is_watch(r, pid) && r["why"] == "cuda");
        let child = workload.id("child");
        sched.wait_for("its child's watch record", |r| is_watch(r, child) && r["why"] == "child");
    }
    let records = stop(sched);

    let watch_ns = |pid| records.0.iter().find(|r| is_watch(r, pid)).unwrap()["mono_ns"].as_u64().unwrap();
    let (pid, before, after) = (alone.pid(), alone.said("before_ns"), alone.said("after_ns"));
    assert!((before..after).contains(&watch_ns(pid)), "{before} {} {after}", watch_ns(pid));
    for workload in [&alone, &crowd] {
        let pid = workload.pid();
        let own: Vec<_> = records.of("sched", "sched_switch").filter(|r| r["tid"] == pid).collect();
        assert!(own.iter().all(|r| r["mono_ns"].as_u64().unwrap() >= workload.said("before_ns")));
        // The sleep that comes after the call, however soon.
        let (after, to) = (workload.said("after_ns"), workload.said("to_ns"));
        let slept =
            own.iter().filter(|r| r["state"] == "S" && r["mono_ns"].as_u64().unwrap() >= after && end_ns(r) <= to);
        assert_eq!(slept.count(), 1, "{own:?}");
        assert_eq!(records.0.iter().filter(|r| is_watch(r, pid)).count(), 1);
    }
    // The others of a crowd are watched when the record says so.
    let (crowd_watch_ns, sleeper) = (watch_ns(crowd.pid()), crowd.id("sleeper"));
    let first = records.of("sched", "sched_switch").find(|r| r["tid"] == sleeper).unwrap();
    assert!(first["mono_ns"].as_u64().unwrap() <= crowd_watch_ns + 2_000_000, "{first} {crowd_watch_ns}");
    for mut workload in [known, alone, crowd] {
        workload.end();
    }
}

#[test]
fn a_sandboxed_process_survives_the_probe() {
    let _machine = Machine::take();
    for library in [ingero_workload::stub_dir().join("libcuda.so.1"), workload::odd_libcuda().to_owned()] {
        let known = user_of(&library, "cuda", "0");
        let mut sched = sched_that_never_looks();
        sched.wait_for("the watch on the first", |r| is_watch(r, known.pid()));
        let mut sandboxed = user_of(&library, "cuda-sandboxed", "101");
        let pid = sandboxed.pid();
        sandboxed.go();
        sandboxed.wait_for("survived");
        sched.wait_for("its end", |r| r["op"] == "sched_process_exit" && r["pid"] == pid);
        let records = stop(sched);
        let end = records.of("sched", "sched_process_exit").find(|r| r["pid"] == pid).unwrap();
        assert_eq!(end["code"], 0, "{}: {end}", library.display());
        assert!(records.0.iter().any(|r| is_watch(r, pid) && r["why"] == "cuda"));
    }
}

#[test]
fn no_probe_stays() {
    let _machine = Machine::take();
    let library = ingero_workload::stub_dir().join("libcuda.so.1");
    let known = user_of(&library, "cuda", "0");
    let mut sched = sched_that_never_looks();
    sched.wait_for("the watch on the first", |r| is_watch(r, known.pid()));
    let held = ingero_tests::bpf::Held::by(sched.pid());
    sched.signal(Signal::KILL);
    drop(sched);
    held.must_be_gone();
}

/// In the copy that takes its place, the function lies elsewhere. The kernel keeps breakpoints by file and offset.
#[test]
fn a_library_that_is_overwritten_harms_nobody_and_is_probed_again() {
    let _machine = Machine::take();
    let place = tempfile::tempdir().unwrap();
    let library = place.path().join("libcuda.so.1");
    std::fs::copy(ingero_workload::stub_dir().join("libcuda.so.1"), &library).unwrap();
    let known = user_of(&library, "cuda", "0");
    let mut sched = Background::start(tool().args(["--no-sys", "--verbose", "--scan-interval", "50ms"]));
    sched.wait_for("the watch on the first", |r| is_watch(r, known.pid()));
    let probed = format!("cuInit in {} is probed", library.display());
    let copied = std::process::Command::new("cp").arg(workload::odd_libcuda()).arg(&library).status().unwrap();
    assert!(copied.success());
    sched.wait_until("the second probe", |_, stderr| stderr.matches(&probed).count() == 2);

    let mut next = user_of(&library, "cuda", "0");
    next.go();
    next.wait_for("to_ns");
    let pid = next.pid();
    sched.wait_for("its watch record", |r| is_watch(r, pid) && r["why"] == "cuda");
    let records = stop(sched);
    // At the instant of its call: by the probe, and not by a look.
    let watch_ns = records.0.iter().find(|r| is_watch(r, pid)).unwrap()["mono_ns"].as_u64().unwrap();
    assert!((next.said("before_ns")..next.said("after_ns")).contains(&watch_ns), "{watch_ns}");
    for mut workload in [known, next] {
        workload.end();
    }
}
