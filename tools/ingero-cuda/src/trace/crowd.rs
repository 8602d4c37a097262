//! More libraries than can be probed: somebody's mistake, or their way to blind us. The places go to those that are used.

use std::io;

use ingero_common::discover::Found;
use ingero_common::text::Printable;
use rustix::io::Errno;

use super::Trace;

/// Whether an error says that too many files are open, here or on the machine.
pub(super) fn is_short_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

impl Trace<'_> {
    /// Makes room for a library file of a process, if there is none and another process's file has to yield.
    pub(super) fn make_room(&mut self, found: &Found) -> bool {
        if !self.probes.is_full() {
            return true;
        }
        // Before the first announcements nothing is known of who uses what.
        if self.processes.ever_watched() == 0 {
            return false;
        }
        // Its own files are in no `watch` record yet.
        let others = self.probes.probed().filter(|id| !found.libraries.iter().any(|library| library.id == *id));
        match self.processes.to_give_up(others, found.process.uid) {
            Some(id) => {
                self.log.detail(format!("{} has to yield its place", self.name_of(id)));
                self.probes.give_up(id);
                true
            }
            None => false,
        }
    }

    /// Says, once for each process, that not all of its libraries are probed.
    pub(super) fn tell_of_crowd(&mut self, found: &Found, left_out: u64) {
        if self.crowds.insert(found.process.pid) {
            let (pid, name) = (found.process.pid, Printable(&found.process.comm));
            self.log.warn(format!(
                "{left_out} of the CUDA libraries of process {pid} ({name}) are not probed, and calls through them are not \
                 seen: there are too many different ones; --pid leaves the others alone"
            ));
        }
    }

    /// Tries again what had no place.
    pub(super) fn try_left_out(&mut self) -> anyhow::Result<()> {
        if self.probes.is_full() && self.processes.ever_watched() == 0 {
            return Ok(());
        }
        self.forget_ended();
        for found in std::mem::take(&mut self.not_yet) {
            let before = self.probes.files();
            let notes = self.probe(&found);
            if self.probes.files() > before {
                self.announce(found, notes)?;
            }
        }
        Ok(())
    }
}
