//! The recordings from a GPU machine tell their story.

use std::process::Command;

use ingero_tests::{Output, bin, repository};
use serde_json::Value;

/// What ingero-chain says of a sample: its account, its findings, and the last line.
fn found(sample: &str) -> (Value, Vec<Value>, Value) {
    let path = repository().join("tests/samples").join(sample);
    let out = Output::of(Command::new(bin("ingero-chain")).args(["--format", "ndjson"]).arg(path)).exits(0);
    let mut records: Vec<Value> =
        serde_json::Deserializer::from_slice(&out.stdout).into_iter().map(Result::unwrap).collect();
    let summary = records.pop().unwrap();
    let account = records.remove(0);
    assert_eq!(account["op"], "account");
    let classes: u64 = account["classes"].as_object().unwrap().values().map(|ns| ns.as_u64().unwrap()).sum();
    assert_eq!(classes, account["observed_ns"].as_u64().unwrap(), "{account}");
    (account, records, summary)
}

/// The script's own timer said that it waited 14.66 s for data in 15.63 s; the rest of what the GPU waited is the host's own work.
#[test]
fn the_starved_loader_waits_for_its_workers_to_compute() {
    let (account, findings, summary) = found("dataloader-starved.ndjson.zst");
    let gap = &findings[0];
    assert_eq!((gap["op"].as_str(), gap["severity"].as_str()), (Some("gap"), Some("high")), "{gap}");
    assert_eq!(gap["causes"][0]["cause"], "worker_cpu", "{gap}");
    assert!(gap["causes"][0]["share"].as_f64().unwrap() > 0.6, "{gap}");
    let lost_ns = account["lost_ns"].as_u64().unwrap();
    assert!((14_660_000_000..15_630_000_000).contains(&lost_ns), "{account}");
    assert!(gap["proven_ns"].as_u64().unwrap() > 14_660_000_000, "{gap}");
    assert_eq!(summary["lost"], 0);
}

/// Waiting took 20 ms of its 9.88 s; what there is to say is that it copies from memory that is not pinned.
#[test]
fn the_same_loop_fed_by_slices_loses_next_to_nothing() {
    let (account, findings, summary) = found("dataloader-fixed.ndjson.zst");
    assert!(account["lost_share"].as_f64().unwrap() < 0.01, "{account}");
    let remarks: Vec<_> =
        findings.iter().map(|finding| (finding["op"].as_str(), finding["lost_ns"].as_u64())).collect();
    assert_eq!(remarks, [(Some("host_calls"), Some(0))], "{findings:?}");
    assert_eq!((&summary["chains"]["high"], &summary["chains"]["medium"]), (&0.into(), &0.into()));
}
