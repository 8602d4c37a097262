//! `ingero-workload`: the command line of the workload driver.

mod options;

use std::io::Write;
use std::process::{ExitCode, Stdio};

use anyhow::Context;
use ingero_workload::plan::{Plan, Step};
use ingero_workload::run::App;
use options::Task;

fn main() -> ExitCode {
    let task = options::task().run();
    match run(&task) {
        Ok(code) => code,
        Err(why) => {
            // Where stderr is gone there is nobody to tell.
            let _ = writeln!(std::io::stderr(), "ingero-workload: {why:#}");
            ExitCode::from(2)
        }
    }
}

fn run(task: &Task) -> anyhow::Result<ExitCode> {
    // Started first, so that it has the CPU when the calls begin; ended by its going out of scope.
    let _rival = match task.rival() {
        None => None,
        Some((name, cpus)) => {
            let mut spin = Step::new("host", 1);
            spin.spin = std::time::Duration::from_millis(1);
            let plan = Plan { name: Some(name), cpus, steps: vec![spin], loops: u64::MAX, ..Plan::default() };
            let mut rival = App::start(&plan, Stdio::null())?;
            rival.wait_for_calls()?;
            Some(rival)
        }
    };
    let mut out = std::io::stdout();
    let app = App::start(&task.plan()?, Stdio::inherit())?;
    let pid = app.pid();
    let mut say =
        |line: serde_json::Value| writeln!(out, "{line}").and_then(|()| out.flush()).context("writing to stdout");
    say(serde_json::json!({ "workload": "started", "pid": pid }))?;
    let (status, stats) = app.wait()?;
    say(serde_json::json!({
        "workload": "ended",
        "pid": pid,
        "calls": stats.all_calls(),
        "status": status.to_string(),
        "opened_ns": stats.opened_ns,
        "threads": stats.threads,
    }))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
