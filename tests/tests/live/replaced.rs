//! A library that is overwritten in place (`cp new.so old.so`) while it is probed: nobody who maps it afterwards is harmed, and
//! its calls are seen again.

use std::path::{Path, PathBuf};
use std::process::Command;

use ingero_tests::{Background, Machine, Output, Records, Workload, cuda, in_tier, plan, tiers, tool, watching};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;

/// A place with the stub's CUDA 12 runtime, that of CUDA 13 under another name, and the driver. In the two runtimes the same
/// functions lie at different offsets.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        for (from, to) in
            [("libcudart.so.12", "old.so"), ("libcudart.so.13", "new.so"), ("libcuda.so.1", "libcuda.so.1")]
        {
            std::fs::copy(stub_dir().join(from), place.path().join(to)).unwrap();
        }
        Self(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn plan(&self, steps: &[&str]) -> Plan {
        Plan { library: Some(self.path("old.so")), ..plan(steps) }
    }

    /// `stub-app` on this plan.
    fn app(&self, plan: &Plan) -> Command {
        let mut command = Command::new(stub_dir().join("stub-app"));
        command.args(plan.arguments()).arg(format!("stats={}", self.path("stats").display()));
        command
    }

    /// `cp FROM old.so`
    fn overwrite(&self, from: &Path) {
        Output::of(Command::new("cp").arg(from).arg(self.path("old.so"))).exits(0);
    }
}

/// Functions that every tier probes. All of them are called, so that one with a breakpoint in the wrong place is among them.
const STEPS: [&str; 5] = [
    "cudaMalloc*7",
    "cudaLaunchKernel*11",
    "cudaMemcpyAsync*5,dir=h2d",
    "cudaStreamSynchronize*3",
    "cudaDeviceSynchronize*3",
];
const CALLS: usize = 7 + 11 + 5 + 3 + 3;

/// The calls of the steps, without what the runtime does by itself.
fn calls(records: &Records) -> usize {
    records.calls().filter(|call| call["depth"] == 0 && call["src"] == "cudart").count()
}

#[test]
fn a_program_that_maps_the_new_one_lives_and_is_traced() {
    let _machine = Machine::take();
    for tier in tiers() {
        let place = Place::new();
        let app = place.app(&place.plan(&STEPS));
        let script = "new=$1 old=$2; shift 2; \"$@\" && cp \"$new\" \"$old\" && \"$@\" && exec \"$@\"";
        let mut command = tool("ingero-cuda");
        command.args(["--probe-mode", tier, "--", "sh", "-c", script, "sh"]);
        command.arg(place.path("new.so")).arg(place.path("old.so")).arg(app.get_program()).args(app.get_args());
        let out = Output::of(&mut ingero_tests::with_tracefs(&command)).exits(0);
        let records = out.records();
        records.balance();
        assert_eq!((calls(&records), records.lost_in_all()), (3 * CALLS, 0), "{tier}\n{out}");
        assert!(out.stderr.contains("old.so is being written to"), "{tier}\n{out}");
    }
}

/// Programs that nobody looks at are as much in danger: the kernel places breakpoints by file.
#[test]
fn nobody_else_is_harmed_though_the_output_is_not_read() {
    let _machine = Machine::take();
    for tier in tiers() {
        let place = Place::new();
        let workload = Workload::at_its_gate(&place.plan(&["cudaMalloc*5000"]));
        let pid = workload.pid();
        let mut tracer = Background::start_stalled(&mut in_tier(tier, &mut cuda(pid)));
        tracer.wait_until("the word that it watches", |_, stderr| stderr.contains(&format!("watching process {pid}")));
        // More than a pipe holds, and nobody reads it: the tracer waits in its write.
        workload.run();
        place.overwrite(&place.path("new.so"));
        let status = place.app(&place.plan(&STEPS)).status().unwrap();
        assert!(status.success(), "{tier}: {status}");
        tracer.read_on();
        tracer.wait().exits(0).records().balance();
    }
}

/// The time without probes is said, and since when calls are seen again. The file gets the same contents, so that the program
/// that runs can go on.
#[test]
fn a_program_that_runs_is_told_of_and_seen_again() {
    let _machine = Machine::take();
    for tier in tiers() {
        let place = Place::new();
        let workload = Workload::at_its_gate(&place.plan(&STEPS));
        let pid = workload.pid();
        let mut tracer = Background::start(&mut in_tier(tier, &mut cuda(pid)));
        let first = std::cell::Cell::new(None);
        tracer.wait_for("the watch record", |r| {
            first.set(r["mono_ns"].as_u64());
            watching(r, "cuda", pid)
        });
        // Not with `cp`, which empties the file first and takes a running program's data away, traced or not.
        let (from, to) = (stub_dir().join("libcudart.so.12"), place.path("old.so"));
        let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
        Output::of(Command::new("dd").args([&from, &to, "conv=notrunc"])).exits(0);
        tracer.wait_for("another watch record", |r| watching(r, "cuda", pid) && r["mono_ns"].as_u64() > first.get());
        let stats = workload.run();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        assert_eq!(
            records.outermost(pid).filter(|r| r["op"] != "cuInit").count() as u64,
            stats.all_calls(),
            "{tier}\n{out}"
        );
        let lost = records.only("ingero", "lost");
        assert_eq!((&lost["why"], &lost["pid"], &lost["stream"]), (&"replaced".into(), &pid.into(), &"cuda".into()));
        assert!(lost["count"].is_null() && lost["dur_ns"].as_u64() > Some(0), "{lost}");
        let watches: Vec<_> = records.0.iter().filter(|r| watching(r, "cuda", pid)).collect();
        let end = lost["mono_ns"].as_u64().unwrap() + lost["dur_ns"].as_u64().unwrap();
        assert!(watches.len() == 2 && watches[1]["mono_ns"].as_u64() >= Some(end), "{out}");
    }
}

/// A file that somebody is writing to is not probed before that is over.
#[test]
fn a_library_that_is_open_for_writing_is_probed_when_it_is_closed() {
    let _machine = Machine::take();
    let place = Place::new();
    let writer = std::fs::File::options().append(true).open(place.path("old.so")).unwrap();
    let workload = Workload::at_its_gate(&place.plan(&STEPS));
    let pid = workload.pid();
    let mut tracer = Background::start(&mut cuda(pid));
    tracer.wait_for("the start record", |r| r["op"] == "start");
    drop(writer);
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid) && r["layers"].to_string().contains("cudart"));
    let stats = workload.run();
    let out = tracer.interrupt().exits(0);
    assert_eq!(calls(&out.records()) as u64, stats.all_calls(), "{out}");
}
