//! What a call's record says: which call, of whom, at which depth, with which arguments and result.

use ingero_tests::{Background, Machine, Output, Workload, cuda, plan, watching};
use ingero_workload::plan::Plan;
use ingero_workload::stats::Stats;
use ingero_workload::stub_dir;
use serde_json::{Value, json};

/// Runs a plan under `ingero-cuda` with these arguments.
fn traced(plan: &Plan, arguments: &[&str]) -> (u32, Stats, Output) {
    let workload = Workload::at_its_gate(plan);
    let pid = workload.pid();
    let mut tracer = Background::start_piped(cuda(pid).args(arguments));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let stats = workload.run();
    let out = tracer.interrupt().exits(0);
    out.records().balance();
    (pid, stats, out)
}

/// Whether a record has all of these keys with these values.
fn has(record: &Value, wanted: &Value) -> bool {
    wanted.as_object().unwrap().iter().all(|(key, value)| record.get(key) == Some(value))
}

#[test]
fn a_runtime_call_and_its_driver_call_are_one_record() {
    let _machine = Machine::take();
    let (pid, stats, out) = traced(&plan(&["cudaMemcpyAsync*101,dir=h2d", "cudaDeviceSynchronize*7"]), &[]);
    let records = out.records();
    assert_eq!(records.outermost(pid).count() as u64, stats.all_calls(), "{out}");
    assert_eq!(records.of("cudart", "cudaMemcpyAsync").count(), 101, "{out}");
    assert_eq!(records.of("cudart", "cudaDeviceSynchronize").count(), 7, "{out}");
    assert_eq!(records.calls().filter(|r| r["src"] == "cuda").count(), 0, "no nested call without --nested\n{out}");
    assert!(records.calls().all(|r| r["depth"] == 0), "{out}");
}

#[test]
fn nested_calls_are_shown_where_asked_for() {
    let _machine = Machine::take();
    let (pid, _, out) = traced(&plan(&["cudaMemcpyAsync*101,dir=h2d", "cudaLaunchKernel*53"]), &["--nested"]);
    let records = out.records();
    let outer: Vec<_> = records.outermost(pid).collect();
    assert_eq!(outer.len(), 154, "{out}");
    for (runtime, driver, n) in
        [("cudaMemcpyAsync", "cuMemcpyHtoDAsync", 101), ("cudaLaunchKernel", "cuLaunchKernel", 53)]
    {
        let nested: Vec<_> = records.of("cuda", driver).collect();
        assert_eq!((records.of("cudart", runtime).count(), nested.len()), (n, n), "{out}");
        for inner in nested {
            assert_eq!(inner["depth"], 1, "{inner}");
            // It lies within one call of the same thread.
            let (start, end) = span(inner);
            let around = outer.iter().filter(|r| r["tid"] == inner["tid"] && span(r).0 <= start && end <= span(r).1);
            assert_eq!(around.count(), 1, "{inner}\n{out}");
        }
    }
}

fn span(record: &Value) -> (u64, u64) {
    let start = record["mono_ns"].as_u64().unwrap();
    (start, start + record["dur_ns"].as_u64().unwrap())
}

#[test]
fn a_driver_call_without_a_runtime_call_is_an_outermost_one() {
    let _machine = Machine::take();
    let (pid, _, out) = traced(&plan(&["cuLaunchKernel*13", "cuMemcpyHtoD_v2*11", "cudaMalloc*3,flat"]), &[]);
    let records = out.records();
    assert_eq!(records.outermost(pid).count(), 27, "{out}");
    assert_eq!(records.of("cuda", "cuLaunchKernel").count(), 13, "{out}");
    assert_eq!(records.of("cuda", "cuMemcpyHtoD").count(), 11, "{out}");
    assert!(records.of("cuda", "cuMemcpyHtoD").all(|r| r["sym"] == "cuMemcpyHtoD_v2"), "{out}");
    assert_eq!(records.of("cudart", "cudaMalloc").count(), 3, "{out}");
}

#[test]
fn arguments_and_results_are_those_of_the_call() {
    let _machine = Machine::take();
    let steps = [
        "cudaLaunchKernel*3,stream=7",
        "cudaMemcpyAsync_ptsz*5,bytes=12345,dir=d2h,stream=9",
        "cudaMemcpy*2,bytes=64k,dir=h2d",
        "cudaMalloc*4,bytes=1m,ret=2",
        "cudaMemsetAsync*2,bytes=77,stream=3",
        "cudaStreamSynchronize*2,stream=5",
    ];
    let (_, _, out) = traced(&plan(&steps), &[]);
    let records = out.records();
    for (n, wanted) in [
        (
            3,
            json!({"src": "cudart", "op": "cudaLaunchKernel", "ret": 0, "grid": [64, 2, 1], "block": [256, 1, 1], "shmem": 1024, "stream": "0x7", "func": "0x4000"}),
        ),
        (
            5,
            json!({"src": "cudart", "op": "cudaMemcpyAsync", "sym": "cudaMemcpyAsync_ptsz", "bytes": 12345, "dir": "d2h", "stream": "0x9"}),
        ),
        (2, json!({"src": "cudart", "op": "cudaMemcpy", "bytes": 65536, "dir": "h2d"})),
        (4, json!({"src": "cudart", "op": "cudaMalloc", "bytes": 1_048_576, "ret": 2})),
        (2, json!({"src": "cudart", "op": "cudaMemsetAsync", "bytes": 77, "stream": "0x3"})),
        (2, json!({"src": "cudart", "op": "cudaStreamSynchronize", "stream": "0x5"})),
    ] {
        let found = records.calls().filter(|r| has(r, &wanted)).count();
        assert_eq!(found, n, "{wanted}\n{out}");
    }
}

#[test]
fn a_call_takes_as_long_as_its_caller_measured() {
    let _machine = Machine::take();
    let (pid, stats, out) = traced(&plan(&["cudaDeviceSynchronize*20,sleep=5ms", "cudaLaunchKernel*20,spin=3ms"]), &[]);
    let records = out.records();
    for (op, asked_ns) in [("cudaDeviceSynchronize", 5_000_000), ("cudaLaunchKernel", 3_000_000)] {
        let total: u64 = records.outermost(pid).filter(|r| r["op"] == op).map(|r| r["dur_ns"].as_u64().unwrap()).sum();
        // Between what the call did and what its caller measured around it, the probes included.
        let caller = stats.threads[0].calls[op].total_ns;
        assert!((20 * asked_ns..=caller).contains(&total), "{op}: {total} of {caller}\n{out}");
    }
}

#[test]
fn threads_that_come_and_go_and_children_are_all_traced() {
    let _machine = Machine::take();
    let churn = Plan { threads: 8, generations: 40, forks: 3, ..plan(&["cudaMalloc*13"]) };
    let (_, stats, out) = traced(&churn, &[]);
    let records = out.records();
    assert_eq!(records.calls().count() as u64, stats.all_calls(), "{out}");
    for thread in stats.threads.iter().filter(|t| !t.calls.is_empty()) {
        let own = records.calls().filter(|r| r["pid"] == thread.pid && r["tid"] == thread.tid).count();
        // A thread id may come back within this many threads.
        assert!(own >= 13 && own % 13 == 0, "{own} records of {thread:?}");
    }
}

#[test]
fn a_runtime_inside_the_executable_is_traced_at_one_layer_or_the_other() {
    let _machine = Machine::take();
    let (pid, stats, out) =
        traced(&Plan { library: None, static_runtime: true, ..plan(&["cudaLaunchKernel*31"]) }, &[]);
    let records = out.records();
    // Where the runtime is not seen, its own first call of the driver is an outermost one.
    let mut launches = records.outermost(pid).filter(|r| r["op"] != "cuInit");
    assert_eq!(launches.clone().count() as u64, stats.all_calls(), "{out}");
    assert!(launches.all(|r| r["op"] == "cudaLaunchKernel" || r["op"] == "cuLaunchKernel"), "{out}");
}

#[test]
fn both_runtimes_in_two_processes_are_told_apart() {
    let _machine = Machine::take();
    let runtime =
        |major| Plan { library: Some(stub_dir().join(format!("libcudart.so.{major}"))), ..plan(&["cudaMalloc*17"]) };
    let (old, new) = (Workload::at_its_gate(&runtime(12)), Workload::at_its_gate(&runtime(13)));
    let pids = [old.pid(), new.pid()];
    let mut tracer = Background::start_piped(cuda(pids[0]).args(["--pid", &pids[1].to_string()]));
    for pid in pids {
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    }
    old.run();
    new.run();
    let out = tracer.interrupt().exits(0);
    for pid in pids {
        assert_eq!(out.records().outermost(pid).count(), 17, "{out}");
    }
}

/// A deadlocked collective or a hung synchronise looks like this: it must be visible, not absent.
#[test]
fn a_call_that_has_not_returned_is_written_as_open() {
    let _machine = Machine::take();
    let mut workload = Workload::at_its_gate(&plan(&["cudaMalloc", "cudaDeviceSynchronize,sleep=1000s"]));
    let pid = workload.pid();
    let mut tracer = Background::start_piped(&mut cuda(pid));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    workload.go();
    tracer.wait_for("the call before it", |r| r["op"] == "cudaMalloc");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    let open = records.only("cudart", "cudaDeviceSynchronize");
    assert_eq!((&open["open"], &open["pid"], &open["depth"]), (&true.into(), &pid.into(), &0.into()), "{open}");
    assert!(open["dur_ns"].as_u64().unwrap() >= 200_000_000, "{open}");
    assert!(open.get("ret").is_none(), "it has returned nothing: {open}");
}

#[test]
fn two_tracers_see_the_same_calls() {
    let _machine = Machine::take();
    let workload = Workload::at_its_gate(&plan(&["cudaMalloc*503", "cudaLaunchKernel*211"]));
    let pid = workload.pid();
    let mut tracers = [(); 2].map(|()| Background::start_piped(&mut cuda(pid)));
    for tracer in &mut tracers {
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    }
    workload.run();
    for tracer in tracers {
        let out = tracer.interrupt().exits(0);
        assert_eq!(out.records().outermost(pid).count(), 714, "{out}");
        out.records().balance();
    }
}
