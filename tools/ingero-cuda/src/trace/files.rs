//! Library files that change while they are traced: their probes go, and come back when they may.

use std::collections::HashSet;
use std::io;

use ingero_common::clock::mono_ns;
use ingero_common::discover::{FileId, Found};
use ingero_common::text::{Nanos, Printable};

use super::Trace;
use crate::probes::Change;

/// The `why` of a `lost` record over the time in which a file had no probes.
const REPLACED: &str = "replaced";

/// Processes that wait for a file to be probed, above which it is worth a look which of them have ended.
const MANY: usize = 256;

impl Trace<'_> {
    /// Looks what has become of files that somebody writes to, and says it.
    pub(super) fn follow_files(&mut self) -> anyhow::Result<()> {
        let mut back = HashSet::new();
        for change in self.probes.follow_files(&mut self.tracer) {
            match change {
                Change::TakenOff(id) => {
                    let name = self.name_of(id);
                    self.log.note(format!("{name} is being written to: its calls are not seen until that is over"));
                }
                Change::Probed { id, since_ns } => {
                    back.insert(id);
                    if let Some(since_ns) = since_ns {
                        self.tell_of_gap(id, since_ns)?;
                    }
                }
                Change::Refused { id, why } => {
                    self.log.warn(format!("{} is not probed any more: {why}", self.name_of(id)))
                }
            }
        }
        if back.is_empty() {
            return Ok(());
        }
        // Since when calls are seen: the newest `watch` record of a process holds.
        let again: Vec<u32> = self.processes.with_library(|id| back.contains(&id)).collect();
        for pid in again {
            self.write_watch(pid, mono_ns())?;
        }
        self.forget_ended();
        for found in std::mem::take(&mut self.not_yet) {
            let notes = self.probe(&found);
            self.announce(found, notes)?;
        }
        Ok(())
    }

    /// Says of the processes that map a file that calls are missing up to now.
    fn tell_of_gap(&mut self, id: FileId, since_ns: u64) -> io::Result<()> {
        let now = mono_ns();
        let gap = Nanos(now.saturating_sub(since_ns));
        self.log.note(format!("{} was written to, and is probed as a new file: {gap} are missing", self.name_of(id)));
        for pid in self.processes.with_library(|library| library == id) {
            self.stream.lost_unknown(REPLACED, since_ns, now, Some(pid))?;
        }
        Ok(())
    }

    /// Keeps a process whose libraries cannot all be probed yet.
    pub(super) fn probe_later(&mut self, found: &Found) {
        let known = |other: &Found| {
            (other.process.pid, other.process.start_ticks) == (found.process.pid, found.process.start_ticks)
        };
        if self.not_yet.iter().any(known) {
            return;
        }
        // A file may be open for writing for long, and be mapped by one process after the other.
        if self.not_yet.len() >= MANY {
            self.forget_ended();
        }
        self.not_yet.push(found.clone());
    }

    pub(super) fn forget_ended(&mut self) {
        let proc = self.scanner.proc();
        self.not_yet.retain(|found| proc.is_alive(found.process.pid, found.process.start_ticks));
    }

    /// The end of tracing: says up to when calls of files are missing that are still being written to.
    pub(super) fn tell_of_open_gaps(&mut self) -> io::Result<()> {
        for (id, since_ns) in self.probes.missing_since() {
            for pid in self.processes.with_library(|library| library == id) {
                self.stream.lost_unknown(REPLACED, since_ns, self.stopped_ns, Some(pid))?;
            }
        }
        Ok(())
    }

    pub(super) fn name_of(&self, id: FileId) -> String {
        self.probes.path(id).map_or_else(|| "a library".to_owned(), |path| Printable(path).to_string())
    }
}
