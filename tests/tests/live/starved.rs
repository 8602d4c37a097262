//! A training loop that waits for its data, and one that does not.
//!
//! What the chain says is held against the kernel's own account of each thread (schedstat), so that it may be as busy on the
//! machine as it likes: a worker that others kept from its CPU is then reported as that, and the account shows it too.

use std::time::Duration;

use ingero_tests::{Background, Machine, Output, Records, Tracers, Workload, cuda, plan, report, sched, watching};
use ingero_workload::plan::{Loader, Plan};
use ingero_workload::stats::{Stats, Thread};
use serde_json::Value;

/// One step of training: a copy, some kernels, and the GPU at work for as long as `gpu` says.
fn training(items: u64, gpu: &str, loader: Loader) -> Plan {
    let synchronise = format!("cudaStreamSynchronize,sleep={gpu}");
    Plan { loops: items, loader: Some(loader), ..plan(&["cudaMemcpyAsync*2", "cudaLaunchKernel*20", &synchronise]) }
}

/// One worker that has its items ready before they are asked for.
fn quick() -> Loader {
    Loader {
        workers: 1,
        cpus: Vec::new(),
        item_cpu: Duration::from_micros(100),
        item_sleep: Duration::ZERO,
        prefetch: 4,
        feeder: false,
        pin: false,
    }
}

/// What came of a run under both tracers.
struct Run {
    pid: u32,
    stats: Stats,
    said: Output,
    records: Records,
}

impl Run {
    #[track_caller]
    fn of(plan: &Plan, arguments: &[&str]) -> Self {
        let workload = Workload::at_its_gate(plan);
        let pid = workload.pid();
        let tracers = Tracers::on(pid);
        let stats = workload.run();
        let (said, records) = report(&tracers.stop(), arguments);
        Self { pid, stats, said, records }
    }

    /// The gap chain of the process, a severe one whose shares add up.
    #[track_caller]
    fn gap(&self) -> Gap<'_> {
        let Self { pid, said, records, .. } = self;
        let chain = records.chains().find(|c| c["op"] == "gap" && c["pid"] == *pid);
        let chain = chain.unwrap_or_else(|| panic!("no gap chain of {pid}\n{said}"));
        assert_eq!(chain["severity"], "high", "{chain}");
        let gap = Gap(chain);
        let named: u64 = gap.causes().iter().map(|cause| cause["ns"].as_u64().unwrap()).sum();
        assert_eq!(named + chain["unexplained_ns"].as_u64().unwrap(), gap.lost_ns(), "{chain}");
        // Each step ends by synchronising. On a busy machine some gaps are elsewhere.
        assert!(chain["proven_ns"].as_u64().unwrap() * 10 >= gap.lost_ns() * 8, "{chain}");
        gap
    }

    /// The kernel's account of the workers.
    fn workers(&self, of: impl Fn(&Thread) -> u64) -> u64 {
        self.stats.in_role("worker").map(of).sum()
    }
}

/// A gap chain.
struct Gap<'a>(&'a Value);

impl Gap<'_> {
    fn causes(&self) -> &[Value] {
        self.0["causes"].as_array().unwrap()
    }

    fn lost_ns(&self) -> u64 {
        self.0["lost_ns"].as_u64().unwrap()
    }

    /// Time charged to a cause, 0 where it is not named.
    fn ns(&self, cause: &str) -> u64 {
        self.causes().iter().find(|c| c["cause"] == cause).map_or(0, |c| c["ns"].as_u64().unwrap())
    }

    /// Names of those to whom a cause is charged.
    fn who(&self, cause: &str) -> Vec<&str> {
        let cause = self.causes().iter().find(|c| c["cause"] == cause);
        let who = cause.and_then(|c| c["who"].as_array()).into_iter().flatten();
        who.map(|w| w["comm"].as_str().unwrap()).collect()
    }

    /// Fails unless the time charged to a cause is what the kernel counted, within a tenth of the whole loss. The kernel may
    /// count what the hypervisor stole as time on a CPU.
    #[track_caller]
    fn agrees(&self, cause: &str, counted_ns: u64) {
        let stolen = if cause.ends_with("_cpu") { self.ns("steal") } else { 0 };
        let (claimed, slack) = (self.ns(cause), self.lost_ns() / 10);
        let may_be = claimed.saturating_sub(slack)..=claimed + stolen + slack;
        assert!(may_be.contains(&counted_ns), "{cause}: {claimed} ns, counted {counted_ns} ns\n{}", self.0);
    }

    /// Fails unless these causes are nearly the whole of it, but for what the hypervisor stole from them.
    #[track_caller]
    fn is_due_to(&self, causes: &[&str]) {
        let ns: u64 = causes.iter().chain(&["steal"]).map(|cause| self.ns(cause)).sum();
        assert!(ns * 10 >= self.lost_ns() * 9, "{causes:?} are {ns} ns of {}\n{}", self.lost_ns(), self.0);
    }
}

/// Four workers on one CPU: each waits for it three quarters of its time.
fn contending(feeder: bool, pin: bool) -> Loader {
    Loader { workers: 4, cpus: vec![0], item_cpu: Duration::from_millis(15), feeder, pin, prefetch: 2, ..quick() }
}

/// The four of them waited for the CPU, and had it from each other.
#[track_caller]
fn contended(gap: &Gap<'_>) {
    assert!(gap.ns("worker_cpu_wait") * 2 >= gap.lost_ns() - gap.ns("steal"), "{}", gap.0);
    gap.is_due_to(&["worker_cpu_wait", "worker_cpu"]);
    let who = gap.who("worker_cpu_wait");
    for worker in ["data_worker_0", "data_worker_1", "data_worker_2", "data_worker_3"] {
        assert!(who.contains(&worker), "{worker} is not among {who:?}");
    }
    let ours = |name: &&str| name.starts_with("data_worker_") || name.starts_with("QueueFeeder");
    assert!(gap.who("worker_cpu").iter().all(ours), "{}", gap.0);
}

#[test]
fn by_workers_that_contend_for_a_cpu() {
    let _machine = Machine::take();
    let mut run = Run::of(&training(100, "1ms", contending(false, false)), &["--fail-on", "high"]);
    run.said = run.said.exits(1);
    contended(&run.gap());
}

/// As Python does it: the worker hands over through a thread born in the middle of the first gap, and a thread of the main
/// process takes the item in. The cause is still the worker's.
#[test]
fn by_the_same_workers_through_helper_threads() {
    let _machine = Machine::take();
    contended(&Run::of(&training(100, "1ms", contending(true, true)), &[]).gap());
}

#[test]
fn by_one_worker_that_is_slow_by_itself() {
    let _machine = Machine::take();
    let run = Run::of(&training(50, "1ms", Loader { item_cpu: Duration::from_millis(30), ..quick() }), &[]);
    let gap = run.gap();
    gap.is_due_to(&["worker_cpu", "worker_cpu_wait"]);
    gap.agrees("worker_cpu", run.workers(|worker| worker.cpu_ns));
    gap.agrees("worker_cpu_wait", run.workers(|worker| worker.run_delay_ns));
    assert_eq!(gap.who("worker_cpu"), ["data_worker_0"], "{}", gap.0);
}

#[test]
fn by_one_worker_that_waits_for_something_else() {
    let _machine = Machine::take();
    let run = Run::of(&training(50, "1ms", Loader { item_sleep: Duration::from_millis(30), ..quick() }), &[]);
    let gap = run.gap();
    // Nobody's CPU was at fault, but for the time after the sleep until the worker got one.
    gap.is_due_to(&["pause", "worker_cpu_wait", "cpu_wait"]);
    gap.agrees("worker_cpu_wait", run.workers(|worker| worker.run_delay_ns));
    assert!(gap.ns("pause") >= 50 * 30_000_000 * 8 / 10, "{}", gap.0);
    assert_eq!(gap.who("pause"), ["data_worker_0"], "{}", gap.0);
}

#[test]
fn by_its_own_work_between_the_calls() {
    let _machine = Machine::take();
    let mut training = training(50, "1ms", quick());
    training.steps.push("host,spin=30ms".parse().unwrap());
    let run = Run::of(&training, &[]);
    let gap = run.gap();
    gap.is_due_to(&["host_cpu", "cpu_wait"]);
    let main = run.stats.in_role("main").next().unwrap();
    gap.agrees("host_cpu", main.cpu_ns);
    gap.agrees("cpu_wait", main.run_delay_ns);
}

/// One tracer of a pipeline may stop before the other. What nobody watched has no cause, and is not proven.
#[test]
fn without_a_word_where_the_scheduler_was_not_watched() {
    let _machine = Machine::take();
    let loader = Loader { item_sleep: Duration::from_millis(50), ..quick() };
    let mut workload = Workload::at_its_gate(&training(60, "1ms", loader));
    let pid = workload.pid();
    let mut cuda = Background::start(&mut cuda(pid));
    let mut sched = Background::start(sched(pid).args(["--duration", "1s"]));
    cuda.wait_for("the watch record of ingero-cuda", |r| watching(r, "cuda", pid));
    sched.wait_for("the watch record of ingero-sched", |r| watching(r, "sched", pid));
    workload.go();
    let sched = sched.wait().exits(0);
    let stats = workload.finish();
    let (said, records) = report(&[cuda.interrupt().exits(0), sched], &[]);
    let chain = records.chains().find(|c| c["op"] == "gap" && c["pid"] == pid);
    let chain = chain.unwrap_or_else(|| panic!("no gap chain of {pid}\n{said}"));
    let main = stats.in_role("main").next().unwrap();
    let claimed = Gap(chain).ns("host_cpu") + Gap(chain).ns("steal");
    assert!(claimed <= main.cpu_ns + 20_000_000, "{claimed} ns on a CPU, counted {}\n{chain}", main.cpu_ns);
    // Of 3 s, 1 s was watched.
    assert!(chain["unexplained_ns"].as_u64().unwrap() >= Gap(chain).lost_ns() / 4, "{chain}");
}

/// The same loop with a fast feeder: the GPU is at work nearly all of the time. A busy machine may still cost it
/// some short waits, which are proven, and low.
#[test]
fn not_at_all() {
    let _machine = Machine::take();
    let run = Run::of(&training(200, "10ms", quick()), &["--fail-on", "medium"]);
    let said = run.said.exits(0);
    assert!(run.records.chains().all(|found| found["severity"] == "low"), "{said}");
    // An empty report says what was looked for.
    let summary = run.records.only("chain", "summary");
    assert!(!summary["checked"].is_null(), "{summary}");
}
