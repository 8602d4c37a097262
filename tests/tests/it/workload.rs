//! The workload does what it is asked for and counts it, without any tracer: what the other tests measure against.

use std::time::Duration;

use ingero_tests::{Workload, plan};
use ingero_workload::plan::{Loader, Plan, Seccomp, Step};

#[test]
fn threads_generations_and_children_all_count() {
    let stats = Workload::start(&Plan { threads: 4, generations: 5, loops: 7, ..plan(&["cudaMalloc*11", "cudaFree"]) })
        .finish();
    assert_eq!(stats.calls("cudaMalloc"), 4 * 5 * 7 * 11);
    assert_eq!(stats.calls("cudaFree"), 4 * 5 * 7);
    assert_eq!(stats.in_role("thread").count(), 4 * 5);
    let stats = Workload::start(&Plan { forks: 3, ..plan(&["cuLaunchKernel*5"]) }).finish();
    assert_eq!((stats.all_calls(), stats.in_role("child").count()), (20, 3));
}

#[test]
fn a_call_takes_and_returns_what_was_asked() {
    let stats =
        Workload::start(&plan(&["cudaMemcpyAsync_ptsz*5,sleep=2ms", "cudaMalloc*4,ret=2", "cudaFree*3,spin=2ms,flat"]))
            .finish();
    let calls = &stats.threads[0].calls;
    // At least: how much more depends on the machine.
    assert!(calls["cudaMemcpyAsync_ptsz"].total_ns >= 5 * 2_000_000, "{calls:?}");
    assert!(calls["cudaFree"].total_ns >= 3 * 2_000_000, "{calls:?}");
    assert_eq!((calls["cudaMalloc"].n, calls["cudaMalloc"].failed), (4, 4));
}

#[test]
fn the_runtime_can_be_part_of_the_executable() {
    let plan = Plan { library: None, static_runtime: true, ..plan(&["cudaMalloc*4", "cudaLaunchKernel*9,sleep=10us"]) };
    assert_eq!(Workload::start(&plan).finish().all_calls(), 13);
}

#[test]
fn the_sandbox_kills_at_a_call_that_is_not_allowed_and_the_counts_survive() {
    for when in [Seccomp::Early, Seccomp::Late] {
        assert_eq!(
            Workload::at_its_gate(&Plan { seccomp: when, ..plan(&["cudaMalloc*6,sleep=1ms"]) }).run().all_calls(),
            6
        );
    }
    // Forking is not among what it allows.
    let killed = Plan { seccomp: Seccomp::Early, forks: 1, ..plan(&["cudaMalloc"]) };
    let (status, stats) =
        ingero_workload::run::App::start(&killed, std::process::Stdio::null()).unwrap().wait().unwrap();
    assert!(!status.success(), "{status}");
    assert_eq!((stats.threads.len(), stats.threads[0].finished_ns), (1, None));
}

#[test]
fn every_item_of_the_loader_is_used_once() {
    for (feeder, pin) in [(false, false), (true, false), (false, true), (true, true)] {
        let item_cpu = Duration::from_millis(1);
        let loader =
            Loader { workers: 3, cpus: vec![], item_cpu, item_sleep: Duration::ZERO, prefetch: 2, feeder, pin };
        let stats =
            Workload::start(&Plan { loader: Some(loader), loops: 17, ..plan(&["cudaLaunchKernel*2"]) }).finish();
        assert_eq!(stats.calls("cudaLaunchKernel"), 34);
        assert_eq!(stats.in_role("worker").count(), 3);
        assert_eq!(stats.in_role("feeder").count(), if feeder { 3 } else { 0 });
        assert_eq!(stats.in_role("pin").count(), usize::from(pin));
        // By time, it goes on after the first item, and its workers and threads end with it.
        let loader =
            Loader { workers: 3, cpus: vec![], item_cpu, item_sleep: Duration::ZERO, prefetch: 2, feeder, pin };
        let lasting = Duration::from_secs(1);
        let stats = Workload::start(&Plan { loader: Some(loader), lasting, ..plan(&["cudaLaunchKernel*2"]) }).finish();
        assert!(stats.calls("cudaLaunchKernel") > 2 && stats.in_role("worker").count() == 3, "{stats:?}");
    }
}

#[test]
fn the_host_works_between_calls() {
    let mut host = Step::new("host", 3);
    host.spin = Duration::from_millis(2);
    let mut plan = plan(&["cudaMalloc"]);
    plan.steps.push(host);
    let stats = Workload::start(&plan).finish();
    assert_eq!(stats.all_calls(), 1);
    assert!(stats.threads[0].calls["host"].total_ns >= 6_000_000);
}
