//! What is to be probed: libraries of processes as they are found, and which processes must not meet return probes.

use std::collections::HashSet;
use std::time::Instant;

use anyhow::Context;
use ingero_common::clock::mono_ns;
use ingero_common::discover::{FileId, Found, Library, LibraryKind, Seccomp, ldcache};
use ingero_common::record::write::{Identity, Text, Watch};
use ingero_common::text::{Nanos, Printable, counted};
use ingero_ebpf::attach::{Ends, Mode};

use super::crowd::is_short_of_files;
use super::{SCAN_SHARE, Trace};
use crate::probes::NotProbed;

impl Trace<'_> {
    /// Probes what is installed and what the processes `found` have mapped.
    pub(super) fn probe_all(&mut self, found: &[Found]) {
        // Each probe of the perf tier is dear, so there only what is in use is probed.
        let installed = if self.tracer.mode() == Mode::Perf { Vec::new() } else { ldcache::installed() };
        // What has to be spared return probes never gets any.
        let entries_only = |found: &&Found| self.ends(found.process.seccomp) == Ends::Entries;
        let spared: HashSet<FileId> =
            found.iter().filter(entries_only).flat_map(|found| &found.libraries).map(|library| library.id).collect();
        let usual = self.ends(Seccomp::Off);
        // All files together, so that the runtimes of all processes are probed before any driver.
        let mapped = found.iter().flat_map(|found| &found.libraries);
        for file in by_file(installed.iter().chain(mapped)) {
            let ends = if spared.contains(&file[0].id) { Ends::Entries } else { usual };
            if self.probes.is_full() {
                break;
            }
            // Of those that somebody writes to, the processes that map them tell.
            if let Err(NotProbed::Refused(why)) = self.probes.probe(&mut self.tracer, &file, ends) {
                self.log.detail(format!("{}: {why}", Printable(&file[0].path)));
            }
        }
    }

    /// Looks for new processes and libraries, and probes them.
    pub(super) fn scan(&mut self) -> anyhow::Result<()> {
        self.early_scan = None;
        let started = Instant::now();
        let scan = match self.processes.scan(&mut self.scanner) {
            Ok(scan) => scan,
            // It passes: others have them open.
            Err(error) if is_short_of_files(&error) => {
                self.log.detail(format!("cannot look at processes now: {error}"));
                self.next_scan = Instant::now() + self.scan_interval();
                return Ok(());
            }
            Err(error) => return Err(error).context("cannot look at processes"),
        };
        for found in scan.appeared {
            let notes = self.probe(&found);
            self.announce(found, notes)?;
        }
        for (found, notes) in self.processes.called_at_last() {
            self.announce_now(&found, notes)?;
        }
        self.look_for_sandboxes()?;
        self.try_left_out()?;
        for (tid, at_ns) in self.waiting.drain(..) {
            let waited = Nanos(mono_ns().saturating_sub(at_ns));
            if self.tracer.resume(tid, at_ns) {
                self.log.detail(format!("thread {tid} waited {waited} for its libraries to be probed"));
            } else {
                self.log.detail(format!("thread {tid} went on before its libraries were probed, {waited} ago"));
            }
        }
        // A machine with very many processes is looked at less often.
        self.next_scan = Instant::now() + self.scan_interval().max(started.elapsed() * SCAN_SHARE);
        Ok(())
    }

    /// Which ends of the calls of a process under this filter may be probed. In a session the kernel side decides for each
    /// call, so that one process is spared and others that map the same library are not.
    fn ends(&self, seccomp: Seccomp) -> Ends {
        if self.tracer.mode() != Mode::Session && self.spared.includes(seccomp) { Ends::Entries } else { Ends::Both }
    }

    /// Probes the libraries of a process. Returns what stands in the way of seeing all its calls; `None` if nothing can
    /// be seen of it.
    pub(super) fn probe(&mut self, found: &Found) -> Option<Vec<String>> {
        let mut notes = Vec::new();
        let mut probed = 0;
        let pid = found.process.pid;
        let ends = self.ends(found.process.seccomp);
        let mut room = FILES_OF_PROCESS.saturating_sub(self.processes.library_files(pid));
        let mut left_out = 0;
        for file in by_file(&found.libraries) {
            if !self.probes.knows(file[0].id) && (room == 0 || !self.make_room(found)) {
                left_out += 1;
                continue;
            }
            room = room.saturating_sub(1);
            match self.probes.probe(&mut self.tracer, &file, ends) {
                Ok(()) => probed += 1,
                Err(NotProbed::Gone) => {}
                Err(NotProbed::Written) => self.probe_later(found),
                Err(NotProbed::Refused(why)) => {
                    let note = format!("{}: {why}", Printable(&file[0].path));
                    if self.complained.insert(file[0].id) {
                        self.log.warn(format!("process {pid}: {note}"));
                    }
                    notes.push(note);
                }
            }
        }
        if left_out > 0 {
            let files = counted(left_out, "library", "libraries");
            notes.push(format!("{files} not probed: there are too many"));
            self.tell_of_crowd(found, left_out);
            self.probe_later(found);
        }
        if probed == 0 {
            return None;
        }
        if self.tracer.mode() == Mode::Perf {
            notes.push("only the essential functions are probed".to_owned());
        }
        Some(notes)
    }

    /// Looks whether processes have come under a filter since they were found, and writes a new `watch` record for each
    /// whose returns are not probed any more: its own doing, or that of another process with the same library.
    fn look_for_sandboxes(&mut self) -> anyhow::Result<()> {
        if self.spared.can_grow() {
            let proc = self.scanner.proc();
            let caught: Vec<u32> = self.processes.announced_with_returns().map(|(pid, _)| pid).collect();
            for pid in caught {
                let Ok(process) = proc.process(pid) else { continue };
                if !self.spared.includes(process.seccomp) {
                    continue;
                }
                let libraries = self.processes.set_seccomp(pid, process.seccomp);
                for file in by_file(&libraries) {
                    let ends = if self.tracer.mode() == Mode::Session { Ends::Both } else { Ends::Entries };
                    // A file that cannot be opened any more has lost its return probes all the same.
                    let _ = self.probes.probe(&mut self.tracer, &file, ends);
                }
            }
        }
        let changed: Vec<u32> = self
            .processes
            .announced_with_returns()
            .filter(|(_, announced)| !self.has_returns(announced.process.seccomp, &announced.libraries))
            .map(|(pid, _)| pid)
            .collect();
        for pid in changed {
            self.write_watch(pid, mono_ns())?;
        }
        Ok(())
    }

    /// Whether the returns of calls of a process are probed.
    fn has_returns(&self, seccomp: Seccomp, libraries: &[Library]) -> bool {
        match self.tracer.mode() {
            Mode::Session => !self.spared.includes(seccomp),
            _ => !libraries.iter().any(|library| self.probes.has_entries_only(library.id)),
        }
    }

    /// Writes the `watch` record of a process whose libraries are probed.
    pub(super) fn announce(&mut self, mut found: Found, notes: Option<Vec<String>>) -> anyhow::Result<()> {
        let Some(notes) = notes else { return Ok(()) };
        // Those come later, see `follow_files`.
        found.libraries.retain(|library| self.probes.knows(library.id) && !self.probes.is_written_to(library.id));
        // It may have ended meanwhile, or the table be full: then its end is not told, and nothing else is amiss.
        let _ = self.tracer.watch_process(found.process.pid);
        match self.processes.keep_back(found, notes) {
            Some((found, notes)) => self.announce_now(&found, notes),
            None => Ok(()),
        }
    }

    fn announce_now(&mut self, found: &Found, notes: Vec<String>) -> anyhow::Result<()> {
        let at_ns = mono_ns();
        if !self.processes.is_announced(found.process.pid) {
            // Its libraries may have been probed for others before it came, and it may have called since: then it is watched
            // from that call on, as the word of it in the ring says.
            self.drain_what_is_there()?;
        }
        self.processes.announce(found, notes);
        self.write_watch(found.process.pid, at_ns)
    }

    /// Writes what is known of an announced process, at `mono_ns`.
    pub(super) fn write_watch(&mut self, pid: u32, mono_ns: u64) -> anyhow::Result<()> {
        let Some(announced) = self.processes.announced(pid) else { return Ok(()) };
        let returns = self.has_returns(announced.process.seccomp, &announced.libraries);
        let lost_returns = announced.returns && !returns;
        self.processes.set_returns(pid, returns);
        let Some(announced) = self.processes.announced(pid) else { return Ok(()) };
        let process = &announced.process;
        let mut notes = announced.notes.clone();
        if !announced.layers.contains("cudart") && announced.layers.contains("cuda") {
            notes.push("no runtime library in sight: driver calls are the outermost".to_owned());
        }
        if !returns {
            notes.push("only entries are probed: its calls have no duration".to_owned());
        }
        let note = notes.join("; ");
        let layers: Vec<&str> = announced.layers.iter().copied().collect();
        let name = Printable(&process.comm);
        if lost_returns && self.spared.includes(process.seccomp) && process.seccomp != Seccomp::Off {
            self.log.warn(format!(
                "process {pid} ({name}) is under seccomp, where a return probe may kill it: only the entries of its calls \
                 are probed, and they have no duration; Linux 6.14 has the fix"
            ));
        }
        self.log.note(format!("watching process {pid} ({name}): {}", layers.join(", ")));
        let mut libraries: Vec<&[u8]> = Vec::new();
        for library in &announced.libraries {
            if !libraries.contains(&library.path.as_slice()) {
                libraries.push(&library.path);
            }
        }
        let watch = Watch {
            src: "",
            op: "",
            mono_ns,
            ts: self.stream.ts(mono_ns),
            pid,
            tid: pid,
            ns_pid: process.ns_pid,
            comm: Text(&process.comm),
            why: announced.why.name(),
            stream: "",
            lib: libraries.into_iter().map(Text).collect(),
            layers,
            returns: (!returns).then_some(false),
            note: (!note.is_empty()).then_some(note.as_str()),
            who: Identity::default(),
        };
        self.stream.watch(watch)?;
        Ok(())
    }
}

/// Library files of one process that are probed at most. Programs have three or four; Python environments with several
/// frameworks have been seen with a dozen.
const FILES_OF_PROCESS: usize = 32;

/// Libraries by the file they are in, drivers last: a driver that is probed before the runtime that calls it shows calls as
/// outermost that are not.
fn by_file<'l>(libraries: impl IntoIterator<Item = &'l Library>) -> Vec<Vec<&'l Library>> {
    let mut files: Vec<Vec<&Library>> = Vec::new();
    for library in libraries {
        match files.iter_mut().find(|file| file[0].id == library.id) {
            Some(file) => file.push(library),
            None => files.push(vec![library]),
        }
    }
    files.sort_by_key(|file| file.iter().all(|library| library.kind == LibraryKind::Cuda));
    files
}
