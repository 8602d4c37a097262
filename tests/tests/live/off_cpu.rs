//! What `ingero-sched` says of a thread against what the kernel counted for it: nothing is missing and nothing is invented.

use std::collections::BTreeSet;
use std::time::Duration;

use ingero_tests::{Background, Machine, Output, Records, Workload, plan, sched, watching};
use ingero_workload::plan::{Loader, Plan};
use ingero_workload::stats::{Stats, Thread};

/// The counters of a running thread are as old as its last switch or timer tick, at both ends of the measurement.
const SLACK_NS: u64 = 10_000_000;

/// Contending workers with feeder threads, from their birth to their end.
fn traced() -> (u32, Stats, Output) {
    let loader = Loader {
        workers: 3,
        cpus: vec![0],
        item_cpu: Duration::from_millis(10),
        item_sleep: Duration::from_millis(5),
        prefetch: 2,
        feeder: true,
        pin: true,
    };
    let workload = Workload::at_its_gate(&Plan { loader: Some(loader), loops: 90, ..plan(&["cudaLaunchKernel*10"]) });
    let pid = workload.pid();
    let mut tracer = Background::start(&mut sched(pid));
    tracer.wait_for("the watch record", |r| watching(r, "sched", pid));
    let stats = workload.run();
    (pid, stats, tracer.interrupt().exits(0))
}

/// Sum over a thread's off-CPU records, clipped to the time in which the workload measured: all of it, and runnable.
fn off_cpu(records: &Records, thread: &Thread) -> (u64, u64) {
    let (from, to) = (thread.started_ns, thread.finished_ns.unwrap());
    let own = records.of("sched", "sched_switch").filter(|r| r["pid"] == thread.pid && r["tid"] == thread.tid);
    own.fold((0, 0), |(off, runnable), r| {
        let number = |key: &str| r[key].as_u64().unwrap_or_else(|| panic!("no {key} in {r}"));
        let (start, end) = (number("mono_ns"), number("mono_ns") + number("dur_ns"));
        // It waits for a CPU at the end of the interval: from its wake-up until it runs.
        let woken = end - number("runq_ns");
        let clipped = |start: u64| end.min(to).saturating_sub(start.max(from));
        (off + clipped(start), runnable + clipped(woken))
    })
}

#[test]
fn a_threads_life_is_its_time_on_a_cpu_and_off_it() {
    let _machine = Machine::take();
    let (_, stats, out) = traced();
    let records = out.records();
    records.balance();
    // A switch that the kernel hides from tracing (to or from a process in some sandbox) ends an interval unseen: that is
    // rare, and told of with the time that it may have taken.
    let lost: Vec<_> = records.of("ingero", "lost").collect();
    assert!(lost.iter().all(|r| r["why"] == "unmatched") && lost.len() * 100 <= records.0.len(), "{out}");
    let threads: Vec<_> = stats.threads.iter().filter(|t| t.role != "main").collect();
    assert_eq!(threads.len(), 3 + 3 + 1);
    for thread in threads {
        let (off, runnable) = off_cpu(&records, thread);
        let life = thread.finished_ns.unwrap() - thread.started_ns;
        let untold = lost.iter().filter(|r| r["pid"] == thread.pid).map(|r| r["dur_ns"].as_u64().unwrap());
        let slack = SLACK_NS + life / 50 + untold.sum::<u64>();
        assert!(life.abs_diff(thread.cpu_ns + off) <= slack, "off {off} ns of {life}: {thread:?}");
        assert!(runnable.abs_diff(thread.run_delay_ns) <= slack, "runnable {runnable} ns: {thread:?}");
    }
}

#[test]
fn births_and_ends_are_told_with_their_parents() {
    let _machine = Machine::take();
    let (pid, stats, out) = traced();
    let records = out.records();
    for worker in stats.in_role("worker") {
        let born =
            records.of("sched", "sched_process_fork").filter(|r| r["pid"] == pid && r["child_pid"] == worker.pid);
        assert_eq!(born.count(), 1, "fork of {worker:?}\n{out}");
        let ended =
            records.of("sched", "sched_process_exit").filter(|r| r["pid"] == worker.pid && r["tid"] == worker.pid);
        assert_eq!(ended.count(), 1, "end of {worker:?}\n{out}");
        let watch = records.of("ingero", "watch").filter(|r| r["pid"] == worker.pid && r["why"] == "child");
        assert_eq!(watch.count(), 1, "watch of {worker:?}\n{out}");
    }
    for thread in stats.in_role("feeder").chain(stats.in_role("pin")) {
        let born =
            records.of("sched", "thread_create").filter(|r| r["pid"] == thread.pid && r["child_tid"] == thread.tid);
        assert_eq!(born.count(), 1, "birth of {thread:?}\n{out}");
    }
    // All threads of a process end, the last one as the process; which one that is depends on who is quicker.
    for leader in stats.in_role("worker").map(|worker| worker.pid).chain([pid]) {
        let mut living: BTreeSet<u32> = stats.threads.iter().filter(|t| t.pid == leader).map(|t| t.tid).collect();
        living.insert(leader);
        for end in records.of("sched", "thread_exit").filter(|r| r["pid"] == leader) {
            let tid = u32::try_from(end["tid"].as_u64().unwrap()).unwrap();
            assert!(living.remove(&tid), "{end}\n{out}");
        }
        assert_eq!(living.len(), 1, "{living:?} of {leader}\n{out}");
    }
}

#[test]
fn the_idle_task_is_nobodys_rival_and_wakers_have_names() {
    let _machine = Machine::take();
    let (_, stats, out) = traced();
    let records = out.records();
    let switches: Vec<_> = records.of("sched", "sched_switch").collect();
    assert!(switches.iter().all(|r| r["pid"] != 0 && r["tid"] != 0), "{out}");
    // Each item is handed over by the feeder thread of a worker to the pin thread, which mostly sleeps until then.
    let pin = stats.in_role("pin").next().unwrap();
    let feeders: Vec<_> = stats.in_role("feeder").map(|t| t.tid).collect();
    let woken = |r: &&&serde_json::Value| {
        r["waker"]["tid"].as_u64().is_some_and(|tid| feeders.iter().any(|f| u64::from(*f) == tid))
    };
    let sleeps: Vec<_> = switches.iter().filter(|r| r["tid"] == pin.tid && r["state"] == "S").collect();
    assert!(sleeps.len() >= 30, "{} sleeps of the pin thread\n{out}", sleeps.len());
    assert!(sleeps.iter().filter(|r| woken(r)).count() * 10 >= sleeps.len() * 8, "{out}");
}
