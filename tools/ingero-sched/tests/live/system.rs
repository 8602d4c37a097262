//! Page allocations, samples of the system, quotas.

use super::groups::Group;
use super::*;

#[test]
pub(crate) fn touched_memory_is_page_allocations() {
    let _machine = Machine::take();
    for raw in [false, true] {
        let (workload, records) = watched(&["pages", "5003"], if raw { &["--raw"] } else { &[] });
        let (from, to) = (workload.said("from_ns"), workload.said("to_ns"));
        let inside: Vec<_> = records
            .of("mem", "mm_page_alloc")
            .filter(|r| r["tid"] == workload.pid() && end_ns(r) >= from && r["mono_ns"].as_u64().unwrap() <= to)
            .collect();
        let bytes: u64 = inside.iter().map(|r| r["bytes"].as_u64().unwrap()).sum();
        let count: u64 = inside.iter().map(|r| r["count"].as_u64().unwrap()).sum();
        // Where the kernel hands out huge pages, one allocation serves many of the touched ones: bytes hold in any case.
        assert!((5003 * 4096..2 * 5003 * 4096 + (4 << 20)).contains(&bytes), "{bytes}");
        assert!(count <= inside.len() as u64 || !raw, "raw: one record each");
        if !raw {
            assert!(inside.iter().all(|r| r["dur_ns"].as_u64().unwrap_or(0) < 10_000_000), "{inside:?}");
        }
    }
}

#[test]
pub(crate) fn samples_come_each_second_and_once_at_stop() {
    let _machine = Machine::take();
    let workload = Workload::start(&["spin", "1"]);
    let sched = sched_on(workload.pid(), &["-d", "2500ms"]);
    let records = check(sched.wait().exits(0));
    let samples: Vec<_> = records.of("sys", "sample").collect();
    assert!((2..=3).contains(&samples.len()), "{samples:?}");
    for pair in samples.windows(2) {
        assert_eq!(end_ns(pair[0]), pair[1]["mono_ns"].as_u64().unwrap(), "no gap between two samples");
    }
    let online = std::thread::available_parallelism().unwrap().get() as u64;
    for sample in samples {
        let number = |key: &str| sample[key].as_f64().unwrap_or_else(|| panic!("{key} in {sample}"));
        for key in ["cpu_pct", "cpu_max_pct", "iowait_pct", "steal_pct"] {
            assert!((0.0..=100.0).contains(&number(key)), "{key} in {sample}");
        }
        assert!(number("cpu_max_pct") >= number("cpu_pct"));
        assert!(sample["cpus"].as_u64().unwrap() >= online);
        assert!(sample["mem_avail_bytes"].as_u64().unwrap() > 1 << 20);
        assert!(sample["quota"].is_array());
        // Where the kernel keeps it, and not only its files.
        let has_pressure = std::fs::read("/proc/pressure/cpu").is_ok();
        assert_eq!(sample["psi"].is_object(), has_pressure, "{sample}");
        for kind in ["cpu", "memory", "io"].into_iter().filter(|_| has_pressure) {
            assert!((0.0..=100.0).contains(&sample["psi"][kind].as_f64().unwrap()), "{sample}");
        }
    }
}

#[test]
pub(crate) fn a_quota_shows_in_the_samples_and_as_a_free_cpu() {
    let _machine = Machine::take();
    let group = Group::of_cpu(5);
    let mut workload = Workload::start(&["spin", "200"]);
    group.admit(workload.pid());
    let sched = sched_on(workload.pid(), &[]);
    workload.go();
    workload.wait_for("done");
    let records = stop(sched);

    let pid = workload.pid();
    let mine = records
        .of("sys", "sample")
        .flat_map(|sample| sample["quota"].as_array().unwrap())
        .filter(|quota| quota["cgroup"].as_str().unwrap().ends_with(&group.name));
    let (mut periods, mut throttled, mut throttled_ns) = (0, 0, 0);
    for quota in mine {
        assert_eq!(quota["pids"].as_array().unwrap(), &[Value::from(pid)]);
        periods += quota["periods"].as_u64().unwrap();
        throttled += quota["throttled"].as_u64().unwrap();
        throttled_ns += quota["throttled_ns"].as_u64().unwrap();
    }
    // 200 ms of CPU at 5 ms in each 100 ms, and up to three ticks more before the kernel looks: a dozen periods at least.
    assert!(periods >= 8 && throttled >= 8 && throttled <= periods, "{periods} {throttled}");
    // It was runnable all that time.
    let stopped = records.of("sched", "sched_switch").filter(|r| r["tid"] == pid && r["state"] == "R");
    let waited: u64 = stopped.map(|r| r["runq_ns"].as_u64().unwrap()).sum();
    assert!(throttled_ns > 0 && waited * 10 > throttled_ns * 9, "{waited} {throttled_ns}");
    workload.end();
}
