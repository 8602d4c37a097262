//! Starts `stub-app` on a plan and reads what it counted.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;

use crate::plan::Plan;
use crate::stats::Stats;
use crate::stub_dir;

/// A running `stub-app`. Dropped before its end, it is killed: a workload outlives nobody.
#[derive(Debug)]
pub struct App {
    child: Child,
    counts: File,
}

impl App {
    /// Starts it; stdin is what its gates read.
    pub fn start(plan: &Plan, stdin: Stdio) -> anyhow::Result<Self> {
        let program = stub_dir().join(if plan.static_runtime { "stub-app-static" } else { "stub-app" });
        // A file without a name in shared memory: it goes when the last of both does, however they end.
        let shared = Path::new("/dev/shm");
        let directory = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let counts = tempfile::tempfile_in(&directory)
            .with_context(|| format!("creating the file for the counts in {}", directory.display()))?;
        let argument = format!("stats=/proc/{}/fd/{}", std::process::id(), counts.as_raw_fd());
        let child = Command::new(&program)
            .args(plan.arguments())
            .arg(argument)
            .stdin(stdin)
            .spawn()
            .with_context(|| format!("starting {}; build it with `make build`", program.display()))?;
        Ok(Self { child, counts })
    }

    /// Process id of the main process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The writing end of its gates, where stdin was [`Stdio::piped`].
    pub fn stdin(&mut self) -> Option<&mut std::process::ChildStdin> {
        self.child.stdin.as_mut()
    }

    /// What it has counted so far.
    pub fn stats(&self) -> anyhow::Result<Option<Stats>> {
        Stats::read(&self.counts)
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("asking whether stub-app has ended")
    }

    /// Waits for its end.
    pub fn wait(mut self) -> anyhow::Result<(ExitStatus, Stats)> {
        let status = self.child.wait().context("waiting for stub-app")?;
        let stats = self.stats()?.with_context(|| format!("stub-app counted nothing and ended with {status}"))?;
        Ok((status, stats))
    }

    /// Waits until a thread has begun its work (or the process has ended, which the caller will see).
    pub fn wait_for_calls(&mut self) -> anyhow::Result<()> {
        while self.ended()?.is_none() && self.stats()?.is_none_or(|s| s.threads.is_empty()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // Both fail only where it ended in this very moment.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
