//! The recordings from a GPU machine tell their story.

use std::process::Command;

use ingero_tests::{Output, bin, repository};
use serde_json::Value;

/// What ingero-chain finds in a sample: its chains, and the last line.
fn found(sample: &str) -> (Vec<Value>, Value) {
    let path = repository().join("tests/samples").join(sample);
    let out = Output::of(Command::new(bin("ingero-chain")).args(["--format", "ndjson"]).arg(path)).exits(0);
    let mut records: Vec<Value> =
        serde_json::Deserializer::from_slice(&out.stdout).into_iter().map(Result::unwrap).collect();
    let summary = records.pop().unwrap();
    (records, summary)
}

/// The script's own timer said that it waited 14.66 s for data; there are some pauses more outside its loop.
#[test]
fn the_starved_loader_waits_for_its_workers_to_compute() {
    let (chains, summary) = found("dataloader-starved.ndjson.zst");
    assert_eq!(chains[0]["op"], "gap");
    assert_eq!(chains[0]["severity"], "high");
    assert_eq!(chains[0]["causes"][0]["cause"], "worker_cpu");
    assert_eq!(chains[0]["proven"], true);
    let total = &summary["gaps"][0];
    let lost_ns = total["lost_ns"].as_u64().unwrap();
    assert!((14_660_000_000..15_400_000_000).contains(&lost_ns), "{total}");
    assert_eq!(total["causes"][0]["cause"], "worker_cpu", "{total}");
    assert!(total["causes"][0]["share"].as_f64().unwrap() > 0.6, "{total}");
    assert_eq!(summary["lost"], 0);
}

#[test]
fn the_same_loop_fed_by_slices_loses_nothing() {
    let (chains, summary) = found("dataloader-fixed.ndjson.zst");
    assert!(chains.is_empty(), "{chains:?}");
    assert_eq!(summary["chains"]["low"], 0);
}
