//! A thread that loses its CPU inside calls to somebody who spins on it.

use std::process::Stdio;
use std::time::Duration;

use ingero_tests::{Machine, Tracers, Workload, plan, report};
use ingero_workload::plan::{Plan, Step};
use ingero_workload::run::App;

/// Time on a CPU of a process's main thread: the first number of its schedstat.
fn cpu_ns(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_chain_names_who_had_the_cpu_and_for_how_long() {
    let _machine = Machine::take();
    // The last CPU: whatever else the machine does prefers the first.
    let cpus = vec![u32::try_from(Machine::cpus() - 1).unwrap()];
    let spin = Step { spin: Duration::from_millis(1), ..Step::new("host", 1) };
    let rival = Plan {
        name: Some("cpu_hog".into()),
        cpus: cpus.clone(),
        steps: vec![spin],
        loops: u64::MAX,
        ..Plan::default()
    };
    let mut rival = App::start(&rival, Stdio::null()).unwrap();
    rival.wait_for_calls().unwrap();

    // Most calls fit between two preemptions, so the median call knows nothing of them.
    let workload = Workload::at_its_gate(&Plan { cpus, ..plan(&["cudaLaunchKernel*10000,spin=200us"]) });
    let pid = workload.pid();
    let tracers = Tracers::on(pid);
    let had_before = cpu_ns(rival.pid());
    let stats = workload.run();
    let had = cpu_ns(rival.pid()) - had_before;
    let streams = tracers.stop();
    let (said, records) = report(&streams, &[]);

    let chain = records.chains().find(|c| c["op"] == "slow_call" && c["pid"] == pid);
    let chain = chain.unwrap_or_else(|| panic!("no slow_call chain\n{said}"));
    assert_eq!(chain["call"], "cudaLaunchKernel", "{chain}");
    let first = &chain["causes"][0];
    assert_eq!(first["cause"], "cpu_wait", "{chain}");

    // The kernel's own account of the time that this thread waited for a CPU.
    let waited = stats.threads[0].run_delay_ns;
    let claimed = first["ns"].as_u64().unwrap();
    assert!(claimed.abs_diff(waited) <= waited / 10, "the chain says {claimed} ns, schedstat {waited} ns\n{chain}");
    // The thread wants the CPU all of the time: whenever the rival runs, it waits for the rival. A record names who took the
    // CPU and who had it last, so what others had in between may be charged to the rival, and the other way round.
    let named = first["who"].as_array().unwrap().iter().find(|w| w["pid"] == rival.pid());
    let named = named.unwrap_or_else(|| panic!("the rival {} is not named\n{chain}", rival.pid()));
    assert_eq!(named["comm"], "cpu_hog", "{chain}");
    let taken = named["ns"].as_u64().unwrap();
    let others = waited.saturating_sub(had);
    assert!(
        taken.abs_diff(had) <= had / 10 + others,
        "the chain says that it ran for {taken} ns, schedstat {had} ns\n{chain}"
    );

    // The calls did not take longer for any other reason, but for what the hypervisor took.
    let lost = chain["lost_ns"].as_u64().unwrap();
    let steal = chain["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == "steal");
    let stolen = steal.map_or(0, |steal| steal["ns"].as_u64().unwrap());
    assert!(claimed <= lost && (claimed + stolen) * 10 >= lost * 9, "{claimed} of {lost} ns lost\n{chain}");
}
