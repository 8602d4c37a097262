//! A process that starts after the tracer and opens its library later still.

use std::fs;
use std::time::Duration;

use ingero_tests::{Background, Machine, Workload, plan, tool};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;

#[test]
fn is_traced_from_its_first_call_on() {
    let _machine = Machine::take();
    // A library that the tracer has never seen: a directory, and inodes, of its own.
    let own = tempfile::tempdir().unwrap();
    for name in ["libcudart.so.12", "libcuda.so.1"] {
        fs::copy(stub_dir().join(name), own.path().join(name)).unwrap();
    }
    let mut tracer = Background::start_piped(tool("ingero-cuda").args(["--scan-interval", "200ms"]));
    tracer.wait_for("the start record", |r| r["op"] == "start");

    // Two seconds without a library, then one with it (several scans), then the calls.
    let library = Some(own.path().join("libcudart.so.12"));
    let workload =
        Workload::start(&Plan { library, wait: Duration::from_secs(2), ..plan(&["host,sleep=1s", "cudaMalloc*100"]) });
    let pid = workload.pid();
    let stats = workload.finish();
    let out = tracer.interrupt().exits(0);
    let records = out.records();

    assert_eq!(records.outermost(pid).count(), 100, "{out}");
    records.balance();
    let watch = records.of("ingero", "watch").find(|r| r["pid"] == pid && r["stream"] == "cuda");
    let watch = watch.unwrap_or_else(|| panic!("no watch record of {pid}\n{out}"));
    assert_eq!(watch["why"], "cuda", "{watch}");
    let libraries = watch["lib"].to_string();
    assert!(libraries.contains(own.path().to_str().unwrap()), "{watch} does not name the library");
    // It says since when: not before there was a library, and before the first call.
    let since = watch["mono_ns"].as_u64().unwrap();
    let first = records.outermost(pid).map(|r| r["mono_ns"].as_u64().unwrap()).min().unwrap();
    let opened = stats.opened_ns.unwrap();
    // The file is mapped a moment before the program knows that it is open.
    assert!(
        since + 50_000_000 > opened && since <= first,
        "watched since {since}, opened {opened}, first call {first}"
    );
}
