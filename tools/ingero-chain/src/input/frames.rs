//! What the stream says about itself: who traced what, from when to when, and what was lost.

use ingero_common::host::{Loss, Side, Tracers};
use ingero_common::record::{Record, why};

use crate::input::ingest::Engine;

impl Engine {
    /// Why no CUDA call was seen, as far as the stream tells.
    pub(crate) fn nothing_seen(&self) -> &'static str {
        if self.coverage.known == 0 {
            return "none of its lines is a record of ingero";
        }
        if self.tracers.started(Side::Cuda) == 0 {
            return "no stream of ingero-cuda is in it";
        }
        if !self.tasks.processes().iter().any(|instance| instance.watch(Side::Cuda).since_ns().is_some()) {
            return "ingero-cuda watched no process";
        }
        "the processes that ingero-cuda watched made no CUDA call"
    }

    pub(super) fn frame(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        match &*record.op {
            "start" => {
                self.clock.start(record);
                self.tracers.start(record);
                if self.tracers.started(Side::Sched) > 1 {
                    self.stacks.has_two_tracers();
                }
                if let Some(boot_id) = record.boot_id.as_deref() {
                    self.coverage.boot(boot_id);
                }
                self.coverage.schema(record.schema);
                let host = record.host.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
                if let Some(host) = host {
                    self.coverage.host(host.into());
                }
            }
            "watch" => {
                let Some(pid) = record.pid else { return };
                let life = self.tasks.process(pid, start_ns);
                let Some(side) = Tracers::side(record) else { return };
                let again = life.watch_mut(side).begin(start_ns);
                if again && side == Side::Cuda {
                    let program = life.program_at(start_ns);
                    self.cuda.entry(program).and_modify(|process| process.watched_again(start_ns));
                }
                if record.why.as_deref() == Some("child") {
                    life.is_child = true;
                }
                if !record.comm.is_empty() {
                    life.name = self.names.id(&record.comm);
                }
                life.parent_pid = record.ppid.unwrap_or(life.parent_pid);
                if let Some(script) = record.script.as_deref() {
                    life.script = self.names.id(script.rsplit('/').next().unwrap_or(script));
                }
                self.clock.seen_from(start_ns);
            }
            "lost" => self.lost(record, start_ns, end_ns),
            "clock" => self.clock.step(record),
            "end" => {
                self.tracers.stop(record, end_ns);
                if let Some(side) = Tracers::side(record) {
                    self.tasks.tracers_stopped(|watcher| watcher == side.into(), end_ns);
                }
            }
            _ => {}
        }
    }

    fn lost(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let count = record.count;
        match record.why.as_deref() {
            // Dropped by ingero-join, so not among the lines that are read here.
            Some(why::BAD_LINE) => {
                self.coverage.bad_lines = self.coverage.bad_lines.saturating_add(count.unwrap_or(1));
            }
            // These records are there, flagged, only out of order.
            Some(why::LATE) => {
                self.coverage.late = self.coverage.late.saturating_add(count.unwrap_or(1));
                return;
            }
            _ => self.coverage.lost = self.coverage.lost.saturating_add(count.unwrap_or(1)),
        }
        let sampled = record.why.as_deref() == Some(why::SAMPLED);
        let loss = Loss { start_ns, end_ns, pid: record.pid, count, sampled };
        match record.stream.as_deref() {
            Some("sched") => self.sched_losses.add(loss),
            Some("cuda") => self.cuda_losses.add(loss),
            // A tool that stores a part of what it sees says what that was: neither calls nor switches here.
            _ if sampled => {}
            // It isn't said whose records they were.
            _ => {
                self.sched_losses.add(loss);
                self.cuda_losses.add(loss);
            }
        }
    }
}
