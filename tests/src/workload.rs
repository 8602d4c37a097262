//! The workload beside a tracer: started, held at its gate until the tracer watches it, let go, compared.

use std::io::Write;
use std::process::Stdio;

use ingero_workload::plan::Plan;
use ingero_workload::run::App;
use ingero_workload::stats::Stats;
use ingero_workload::stub_dir;

/// A plan of these steps, on the stub's CUDA 12 runtime.
#[track_caller]
pub fn plan(steps: &[&str]) -> Plan {
    let steps = steps.iter().map(|step| step.parse().unwrap()).collect();
    Plan { library: Some(stub_dir().join("libcudart.so.12")), steps, ..Plan::default() }
}

/// A workload that waits at its gate.
#[derive(Debug)]
pub struct Workload(App);

impl Workload {
    /// Starts it; returns when the library is open and the gate is reached.
    #[track_caller]
    pub fn at_its_gate(plan: &Plan) -> Self {
        let mut app = App::start(&Plan { gate: true, ..plan.clone() }, Stdio::piped()).unwrap();
        app.wait_for_calls().unwrap();
        assert!(app.ended().unwrap().is_none(), "the workload ended before its gate");
        Self(app)
    }

    /// Starts it without a gate.
    #[track_caller]
    pub fn start(plan: &Plan) -> Self {
        Self(App::start(plan, Stdio::null()).unwrap())
    }

    /// Process id of its main process.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Opens the gate.
    #[track_caller]
    pub fn go(&mut self) {
        self.0.stdin().unwrap().write_all(b".").unwrap();
    }

    /// Waits for its end, which must be a good one.
    #[track_caller]
    pub fn finish(self) -> Stats {
        let (status, stats) = self.0.wait().unwrap();
        assert!(status.success(), "the workload ended with {status}: {stats:?}");
        stats
    }

    /// Opens the gate and waits for its end.
    #[track_caller]
    pub fn run(mut self) -> Stats {
        self.go();
        self.finish()
    }
}
