//! Births, deaths and names of processes and threads.

use std::collections::BTreeSet;

use super::*;

fn position(records: &Records, what: &str, holds: impl Fn(&Value) -> bool) -> usize {
    records.0.iter().position(holds).unwrap_or_else(|| panic!("no {what}"))
}

#[test]
pub(crate) fn children_are_watched_from_their_first_instruction() {
    let _machine = Machine::take();
    let (workload, records) = watched(&["family"], &["--no-sys"]);
    let (parent, child) = (workload.pid(), workload.id("child"));

    let fork = position(&records, "fork", |r| r["op"] == "sched_process_fork" && r["child_pid"] == child);
    let watch = position(&records, "watch", |r| is_watch(r, child));
    let first = position(&records, "record of the child", |r| r["src"] == "sched" && r["tid"] == child);
    assert_eq!((&records.0[fork]["pid"], &records.0[watch]["why"]), (&parent.into(), &"child".into()));
    assert!(fork < watch && watch < first);
    // Its wait for its first turn on a CPU: runnable since its parent made it, and nobody took a CPU from it.
    let first = &records.0[first];
    assert_eq!(
        (&first["op"], &first["state"], &first["waker"]["pid"]),
        (&"sched_switch".into(), &"R".into(), &parent.into())
    );
    assert!(first["by"].is_null() && first["mono_ns"].as_u64() >= records.0[fork]["mono_ns"].as_u64(), "{first}");

    let grandchild =
        records.of("sched", "sched_process_fork").find(|r| r["pid"] == child).unwrap()["child_pid"].clone();
    let exit_of = |pid: &Value| {
        let exits: Vec<_> = records.of("sched", "sched_process_exit").filter(|r| r["pid"] == *pid).collect();
        assert_eq!(exits.len(), 1, "{exits:?}");
        assert_eq!(exits[0]["tid"], *pid);
        exits[0]
    };
    // What trace events do not tell is absent without type information.
    let code = |code: u32| if raw::is_on() { Value::Null } else { code.into() };
    assert_eq!(exit_of(&grandchild)["code"], code(5));
    assert_eq!(exit_of(&child.into())["code"], code(3));
    assert_eq!(exit_of(&workload.id("killed").into())["code"], code(128 + 9));

    let exec = records.of("sched", "sched_process_exec").find(|r| r["pid"] == child).unwrap();
    assert_eq!(exec["exe"], workload::executable().to_str().unwrap());
    // No interval of the child goes beyond its end.
    let end = exit_of(&child.into())["mono_ns"].as_u64().unwrap();
    assert!(records.of("sched", "sched_switch").filter(|r| r["tid"] == child).all(|r| end_ns(r) <= end));
}

#[test]
pub(crate) fn the_end_of_a_thread_is_not_the_end_of_the_process() {
    let _machine = Machine::take();
    let mut workload = Workload::start(&["threads"]);
    let pid = workload.pid();
    let mut sched = sched_on(pid, &["--no-sys"]);
    workload.go();
    sched.wait_for("the end of the main thread", |r| r["op"] == "thread_exit" && r["tid"] == pid);
    workload.wait_for("renamed");
    workload.end();
    sched.wait_for("the end of the process", |r| r["op"] == "sched_process_exit" && r["pid"] == pid);
    let records = stop(sched);

    let (short, renamed) = (workload.id("thread"), workload.id("renamed"));
    for tid in [short, renamed] {
        let made = records.of("sched", "thread_create").filter(|r| r["child_tid"] == tid && r["child_pid"] == pid);
        let ended = records.of("sched", "thread_exit").filter(|r| r["tid"] == tid && r["pid"] == pid);
        assert_eq!((made.count(), ended.count()), (1, 1));
    }
    // The last thread to go ends the process, with what it gave to exit().
    let end = records.only("sched", "sched_process_exit");
    assert_eq!((&end["pid"], &end["tid"]), (&pid.into(), &pid.into()));
    assert_eq!(end["code"], if raw::is_on() { Value::Null } else { 7.into() });
    assert!(records.of("sched", "sched_process_fork").next().is_none());

    // A thread is called what it is called at that moment.
    let names: Vec<_> = records
        .of("sched", "sched_switch")
        .filter(|r| r["tid"] == renamed && r["state"] == "S")
        .map(|r| r["comm"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["before", "after"]);
}

#[test]
pub(crate) fn many_short_lives_are_all_told_of() {
    let _machine = Machine::take();
    let (workload, records) = watched(&["births", "47"], &["--no-sys"]);
    let parent = workload.pid();
    let children: BTreeSet<u64> = records
        .of("sched", "sched_process_fork")
        .filter(|r| r["pid"] == parent)
        .map(|r| r["child_pid"].as_u64().unwrap())
        .collect();
    assert_eq!(children.len(), 47);
    let of_children = |r: &&Value| r["pid"].as_u64().is_some_and(|pid| children.contains(&pid));
    let count = |op| records.of("sched", op).filter(of_children).count() as u64;
    assert_eq!(
        (count("thread_create"), count("sched_process_exec")),
        (workload.said("threads"), workload.said("programs"))
    );
    // Each thread ends once: as one of several, or as the last with its process. Where a thread executes a program, it has
    // taken the place of the first.
    assert_eq!(count("thread_exit"), workload.said("threads"));
    for child in &children {
        let ends: Vec<_> = records.of("sched", "sched_process_exit").filter(|r| r["pid"] == *child).collect();
        assert_eq!(ends.len(), 1, "{ends:?}");
        let end = ends[0]["mono_ns"].as_u64().unwrap();
        let late = records
            .0
            .iter()
            .filter(|r| r["pid"] == *child && (r["src"] == "sched" || r["src"] == "mem") && end_ns(r) > end);
        assert_eq!(late.count(), 0, "something after the end of {child}");
        assert_eq!(records.0.iter().filter(|r| is_watch(r, u32::try_from(*child).unwrap())).count(), 1);
    }
}

#[test]
pub(crate) fn descendants_that_are_there_already_are_watched_too() {
    let _machine = Machine::take();
    // The shell waits for the workload, and is what --pid names.
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; exit $?"]).arg(workload::executable());
    let mut workload = Workload::start_as(&mut shell, &["ping-pong", "101"]);
    let child = workload.pid();
    let parent = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    let parent: u32 = parent.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    let mut sched = sched_on(parent, &[]);
    sched.wait_for("the child's watch record", |r| is_watch(r, child) && r["why"] == "child");
    workload.go();
    workload.wait_for("done");
    let records = stop(sched);
    assert!(!switches(&records, &workload, child).is_empty());
    let why = records.0.iter().find(|r| is_watch(r, parent)).unwrap()["why"].clone();
    assert_eq!(why, "asked");
    workload.end();
}

#[test]
pub(crate) fn a_process_that_comes_to_use_cuda_is_watched() {
    let _machine = Machine::take();
    let mut sched = Background::start(&mut tool());
    sched.wait_for("the start record", |r| r["op"] == "start");
    // It opens the stub's libcudart only now.
    let workload = ingero_tests::Workload::at_its_gate(&ingero_tests::plan(&["cudaMalloc*3"]));
    let pid = workload.pid();
    sched.wait_for("its watch record", |r| is_watch(r, pid) && r["why"] == "cuda");
    workload.run();
    sched.wait_for("its end", |r| r["op"] == "sched_process_exit" && r["pid"] == pid);
    let records = stop(sched);
    assert!(records.of("sched", "sched_switch").any(|r| r["tid"] == pid && r["state"] == "S"), "its wait at the gate");
}
