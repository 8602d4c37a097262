//! Disks, the network, memory that runs out, GPUs.

use super::groups::Group;
use super::*;

fn sum(records: &[&Value], key: &str) -> u64 {
    records.iter().map(|r| r[key].as_u64().unwrap()).sum()
}

#[test]
fn direct_io_is_told_to_the_byte() {
    let _machine = Machine::take();
    // Where the build lies is a disk, unless somebody knows better (tests/kernels); /tmp may be memory.
    let disk = std::env::var_os("INGERO_TEST_DISK").unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    let dir = tempfile::tempdir_in(disk).unwrap();
    let path = dir.path().join("blocks");
    let (workload, records) = watched(&["disk", "53", path.to_str().unwrap()], &[]);
    let (from, to) = (workload.said("from_ns"), workload.said("to_ns"));
    let of = |op| -> Vec<&Value> {
        let mine = |r: &&Value| r["pid"] == workload.pid() && r["mono_ns"].as_u64().unwrap() >= from && end_ns(r) <= to;
        records.of("block", op).filter(mine).collect()
    };
    // As the workload did it, and as the kernel has counted it for the process. An interrupt that comes in the midst of a
    // process which the kernel hides from tracing (some sandboxes do) is not seen; what it completed is lost then, and said
    // to be.
    let (written, read) = (of("write"), of("read"));
    assert_eq!((workload.said("written"), workload.said("read")), (53 << 16, 53 << 16));
    let lost =
        records.of("ingero", "lost").filter(|r| r["pid"] == workload.pid() && r["why"] == "unmatched").count() as u64;
    let (writes, reads) = (written.len() as u64, read.len() as u64);
    assert!(writes <= 53 && reads <= 53 && writes + reads + lost >= 106, "{writes} {reads} {lost}");
    assert_eq!((sum(&written, "bytes"), sum(&read, "bytes")), (writes << 16, reads << 16), "{written:?} {read:?}");
    assert!(writes + reads > 0);
    // Each block took its time, and no two of one thread's overlap, since it waits for each.
    let mut all: Vec<_> = written.into_iter().chain(read).collect();
    all.sort_by_key(|r| r["mono_ns"].as_u64());
    for r in &all {
        assert!(r["dur_ns"].as_u64().unwrap() > 0 && r["tid"] == workload.pid(), "{r}");
        let disk = r["dev"].as_str().unwrap();
        assert!(std::path::Path::new("/sys/block").join(disk).exists(), "{disk}");
    }
}

#[test]
fn what_is_sent_again_is_the_senders() {
    let _machine = Machine::take();
    // While somebody else runs, so that the timer strikes in the midst of him.
    let bystander = Workload::start(&["spin", "1000"]);
    let (workload, records) = watched(&["lossy"], &[]);
    drop(bystander);
    let again: Vec<_> = records.of("net", "tcp_retransmit").collect();
    assert_eq!(sum(&again, "count"), workload.said("sent_again"), "{again:?}");
    assert!(again.iter().all(|r| r["pid"] == workload.pid() && r["comm"] == "workload"), "{again:?}");
}

#[test]
fn a_victim_of_the_oom_killer_is_named() {
    let _machine = Machine::take();
    let group = Group::of_memory(32 << 20);
    let mut workload = Workload::start(&["hungry", "256"]);
    let victim = workload.pid();
    group.admit(victim);
    // Nobody watches it: what runs out of memory concerns everybody.
    let bystander = Workload::start(&["spin", "1"]);
    let mut sched = sched_on(bystander.pid(), &[]);
    workload.go();
    sched.wait_for("the victim's record", |r| r["src"] == "mem" && r["op"] == "oom_kill");
    let records = stop(sched);
    workload.end();

    let record = records.only("mem", "oom_kill");
    assert_eq!((&record["tid"], &record["by"]["pid"]), (&victim.into(), &victim.into()), "{record}");
    assert_eq!((&record["pid"], &record["by"]["comm"]), (&victim.into(), &"workload".into()), "{record}");
    // Since 6.9 with what it had. The kernel's counts may lag by some pages for each CPU, and what it had before it came into the
    // group is not charged to that.
    if let Some(resident) = record["anon_rss_bytes"].as_u64() {
        assert!((16 << 20..=40 << 20).contains(&resident), "{record}");
        assert!(record["total_vm_bytes"].as_u64().unwrap() >= 256 << 20, "{record}");
        assert_eq!((&record["comm"], &record["oom_score_adj"]), (&"workload".into(), &0.into()), "{record}");
    }
}

#[test]
fn gpus_are_in_the_samples_where_the_library_answers() {
    let _machine = Machine::take();
    let stub = ingero_workload::stub_dir();
    let gpu_of = |how: &str| {
        let mut command = tool();
        command.args(["--all", "-d", "1500ms", "--no-mem", "--no-io"]);
        let output = Output::of(command.env("LD_LIBRARY_PATH", &stub).env("INGERO_STUB_NVML", how));
        let records = check(output.exits(0));
        records.of("sys", "sample").map(|sample| sample["gpu"].clone()).collect::<Vec<_>>()
    };
    let want = serde_json::json!([
        {"index": 0, "util_pct": 37.0, "mem_used_bytes": 5_u64 << 30},
        {"index": 1, "mem_used_bytes": 3 << 20},
    ]);
    let answered = gpu_of("");
    assert!(answered.len() >= 2 && answered.iter().all(|gpu| *gpu == want), "{answered:?}");
    // A driver that hangs: samples go on without, and nobody waits for it at the end.
    let hung = gpu_of("hang");
    assert!(hung.len() >= 2 && hung.iter().all(Value::is_null), "{hung:?}");
}
