//! The running tracer: records out of the ring, libraries into it, and the account of both.

mod crowd;
mod files;
mod first_calls;
mod libraries;
mod linkers;

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::Context;
use ingero_common::clock::mono_ns;
use ingero_common::discover::{FileId, Found, Numbered, ProcFs, Scanner, may_look_at_others};
use ingero_common::exit::is_broken_pipe;
use ingero_common::output::{FLUSH_INTERVAL, Output};
use ingero_common::privileges::{self, Work};
use ingero_common::record::write::{self, Text};
use ingero_common::signal::Stop;
use ingero_common::stream::Stream;
use ingero_common::text::{Log, Nanos, Printable, counted};
use ingero_ebpf::cuda::record::{Record, parse};
use ingero_ebpf::cuda::{Config, Tracer};
use ingero_ebpf::guard::Kept;
use ingero_ebpf::load::{Kernel, allow_many_files, open_files};
use ingero_ebpf::ring::MAX_WAIT;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::TOOL;
use crate::command::Running;
use crate::losses::Losses;
use crate::options::Options;
use crate::probes::Probes;
use crate::processes::Processes;
use crate::render::write_call;
use crate::seccomp::Spared;
use first_calls::Sighting;

/// Records taken from the ring before signals and timers are looked at again.
const BATCH: usize = 1024;
/// Batches that may have to be taken to come to the end of a ring that is being filled.
const MAX_BATCHES: usize = 64;
/// A program that was just executed has its libraries mapped after about this time.
const AFTER_EXEC: Duration = Duration::from_millis(20);
/// Where the processes are known, looking is cheap and can be done this often.
const TREE_SCAN_INTERVAL: Duration = Duration::from_millis(50);
/// How often all threads are looked at for calls that hang: at least and at most.
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How often it is tried to probe a file that somebody writes to: two system calls, and a program that maps it when the
/// writer is done ought to be seen.
const WRITTEN_INTERVAL: Duration = Duration::from_millis(2);
/// Looking takes this part of the time at most.
const SCAN_SHARE: u32 = 20;

/// Why tracing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Stopped,
    /// The time was over, or the reader of the output is gone.
    Done,
    /// What was to be traced has ended.
    NothingLeft,
}

/// A running tracer.
pub struct Trace<'o> {
    options: &'o Options,
    log: &'o Log,
    stop: &'o Stop,
    tracer: Tracer,
    probes: Probes,
    processes: Processes,
    scanner: Scanner,
    stream: Stream<Output>,
    losses: Losses,
    /// Who must not get return probes.
    spared: Spared,
    /// Files of which it was said that they cannot be probed.
    complained: HashSet<FileId>,
    /// Processes with libraries that somebody writes to.
    not_yet: Vec<Found>,
    /// Processes of which it was said that some of their libraries are not probed.
    crowds: HashSet<u32>,
    /// The probes on dynamic linkers.
    hooks: Vec<Kept>,
    next_scan: Instant,
    /// A scan before the next regular one.
    early_scan: Option<Instant>,
    last_pid: u32,
    /// Threads that wait in their dynamic linker for us, and since when.
    waiting: Vec<(u32, u64)>,
    /// Whether placing probes needs CAP_SYS_ADMIN.
    needs_admin: bool,
    /// When tracing stopped, CLOCK_MONOTONIC; 0 before.
    stopped_ns: u64,
}

/// The `filter` of the `start` record.
#[derive(Serialize)]
struct Filter<'a> {
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    pid: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<Text<'a>>,
    nested: bool,
    ring_bytes: u32,
    scan_interval_ns: u64,
    stuck_ns: u64,
}

impl<'o> Trace<'o> {
    /// Loads the programs; nothing is probed yet.
    ///
    /// # Errors
    /// What the machine lacks.
    pub fn new(
        options: &'o Options,
        log: &'o Log,
        kernel: &Kernel,
        stop: &'o Stop,
        mut processes: Processes,
        output: Output,
    ) -> anyhow::Result<Self> {
        let spared = Spared::new(options.entry_only, kernel.release());
        let config = Config {
            nested: options.nested,
            only_watched: !options.pids.is_empty() || !options.command.is_empty(),
            follow_children: true,
            spare_seccomp: spared == Spared::Filtered,
            entry_only: spared == Spared::Everybody,
            stuck_ns: nanos(options.stuck),
            ring_bytes: options.ring_size,
            mode: options.probe_mode.mode(),
        };
        let started = Instant::now();
        let mut tracer = Tracer::new(kernel, config)?;
        log.detail(format!("{} probes, loaded in {}", tracer.mode(), Nanos(elapsed_ns(started))));
        // Before anybody waits for us: taking off what is tried can take a second.
        let needs_admin = tracer.needs_admin().context("cannot try which capabilities probes need")?;
        // The kernel side follows the forks of those that it knows. Children that were born since the processes were listed
        // are found by listing them again, until there are none that it does not know.
        let mut new: Vec<u32> = processes.members().collect();
        while !new.is_empty() {
            for pid in new {
                tracer.watch_process(pid)?;
            }
            new = processes.add_descendants(&ProcFs::default()).context("cannot list processes")?;
        }
        let mut probes = Probes::new().context("cannot guard library files")?;
        probes.limit_by(open_files(), tracer.mode());
        tracer.ring().wake_on(stop.fd()).context("cannot wait for signals")?;
        tracer.ring().wake_on(probes.guard().fd()).context("cannot wait for changes of files")?;
        Ok(Self {
            options,
            log,
            stop,
            tracer,
            probes,
            processes,
            scanner: Scanner::new(),
            stream: Stream::new(output, "cuda", TOOL, env!("CARGO_PKG_VERSION")),
            losses: Losses::default(),
            spared,
            complained: HashSet::new(),
            not_yet: Vec::new(),
            crowds: HashSet::new(),
            hooks: Vec::new(),
            next_scan: Instant::now(),
            early_scan: None,
            last_pid: 0,
            waiting: Vec::new(),
            needs_admin,
            stopped_ns: 0,
        })
    }

    /// Probes what is installed and what is running, and writes the first records.
    ///
    /// # Errors
    /// Those of the output.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let started = Instant::now();
        let scan = self.processes.scan(&mut self.scanner).context("cannot look at processes")?;
        self.probe_all(&scan.appeared);
        if scan.cost.denied > 0 && !may_look_at_others() {
            self.log.warn(format!(
                "processes that cannot be looked at: {}; libraries that only they have are not found, for want of \
                 CAP_SYS_PTRACE; run it as root on the host",
                scan.cost.denied
            ));
        }
        let mut announcements = Vec::new();
        for found in scan.appeared {
            let notes = self.probe(&found);
            announcements.push((found, notes));
        }
        let (files, took) = (self.probes.files(), Nanos(elapsed_ns(started)));
        self.log.detail(format!("{files} library files probed in {took}"));

        let mode = self.tracer.mode().name();
        let probes = write::Probes { attached: self.probes.attached(), missing: self.probes.missing(), mode };
        let command = self.options.command.first().map(|name| Text(name.as_encoded_bytes()));
        let filter = Filter {
            pid: &self.options.pids,
            command,
            nested: self.options.nested,
            ring_bytes: self.options.ring_size,
            scan_interval_ns: nanos(self.options.scan_interval),
            stuck_ns: nanos(self.options.stuck),
        };
        self.stream.start(filter, probes)?;
        for (found, notes) in announcements {
            self.announce(found, notes)?;
        }
        self.next_scan = Instant::now() + self.scan_interval();
        if self.processes.ever_watched() == 0 && self.options.command.is_empty() {
            self.log.note(match self.options.pids.as_slice() {
                [] => "no process uses CUDA yet; waiting for one".to_owned(),
                pids => format!("no CUDA library in process {} yet; waiting for it", join(pids)),
            });
            // What `ps` shows in a container may be the number of somebody else here.
            for &pid in &self.options.pids {
                if let Some(inside) = Numbered::find(self.scanner.proc(), pid).context("cannot list processes")? {
                    self.log.note(format!(
                        "in a container, {pid} is the number of {inside}; --pid takes the numbers of here"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Starts something whose process has to be traced from its first instruction on: the kernel side adds children of
    /// ours by itself meanwhile.
    ///
    /// # Errors
    /// Those of `start`.
    pub fn starting<T>(
        &mut self,
        start: impl FnOnce() -> anyhow::Result<T>,
        pid: impl Fn(&T) -> u32,
    ) -> anyhow::Result<T> {
        self.hook_linkers();
        let own = std::process::id();
        self.tracer.watch_process(own)?;
        let result = start();
        self.tracer.unwatch_process(own);
        let started = result?;
        self.processes.add_root(pid(&started));
        Ok(started)
    }

    /// Lifts the limit of open files, and with it that of probed libraries. A command that is started after this inherits it.
    pub fn allow_many_files(&mut self) {
        self.probes.limit_by(allow_many_files(), self.tracer.mode());
    }

    /// Gives up, for good, all rights that tracing does not go on needing. `command` is what was started, and is stopped with us.
    ///
    /// # Errors
    /// What the kernel has against it: with all of them nothing is traced.
    pub fn confine(&mut self, command: Option<&Running>) -> anyhow::Result<()> {
        let mut keep = privileges::TRACING;
        keep.set(CapabilitySet::SYS_ADMIN, self.needs_admin);
        keep.set(CapabilitySet::KILL, command.is_some_and(Running::is_of_another_user));
        let loads = self.tracer.mode().loads_programs();
        let work = Work::of_tracer().ending(command.map(Running::pid)).loading_programs(loads);
        let confined = privileges::confine(keep, &work).context("cannot give up privileges")?;
        self.log.detail(format!("privileges kept: {confined}"));
        Ok(())
    }

    /// Traces until there is a reason to end. `has_ended` tells whether the command has, if there is one.
    ///
    /// # Errors
    /// Those of the output; a broken pipe is [`Ended::Done`].
    pub fn run(&mut self, mut has_ended: impl FnMut() -> io::Result<bool>) -> anyhow::Result<Ended> {
        let end = self.options.duration.map(|duration| Instant::now() + duration);
        match self.run_until(end, &mut has_ended) {
            Err(error) if is_broken_pipe(&error) => Ok(Ended::Done),
            other => other,
        }
    }

    fn run_until(
        &mut self,
        end: Option<Instant>,
        has_ended: &mut impl FnMut() -> io::Result<bool>,
    ) -> anyhow::Result<Ended> {
        let mut next_check = Instant::now();
        // A call that hangs is told of at most this long after the time that the user gave.
        let look_interval = (self.options.stuck / 10).clamp(LOOK_INTERVAL.0, LOOK_INTERVAL.1);
        let mut next_look = Instant::now() + self.options.stuck;
        let live = self.stream.out().is_live();
        loop {
            let read_ns = mono_ns();
            let count = self.drain()?;
            if live && count < BATCH {
                self.stream.alive(read_ns)?;
            }
            let now = Instant::now();
            if self.stop.requested() {
                return Ok(Ended::Stopped);
            }
            if end.is_some_and(|end| now >= end) {
                return Ok(Ended::Done);
            }
            if self.probes.guard().took_off_probes() || self.probes.is_waiting() {
                self.follow_files()?;
            }
            if !self.waiting.is_empty() || now >= self.next_scan || self.early_scan.is_some_and(|at| now >= at) {
                self.scan()?;
            }
            if now >= next_check {
                next_check = now + FLUSH_INTERVAL;
                self.losses.look(&mut self.tracer, &mut self.stream)?;
                self.stream.check_clock()?;
                self.stream.out().flush_if_due()?;
                if self.stream.out().reader_gone() {
                    return Ok(Ended::Done);
                }
                if has_ended().context("cannot wait for the command")? || self.processes.all_gone() {
                    return Ok(Ended::NothingLeft);
                }
            }
            if now >= next_look {
                next_look = now + look_interval;
                self.tell_of_stuck_calls()?;
            }
            if count < BATCH {
                // Nothing is pending: whoever reads gets what there is, and we sleep.
                self.stream.out().flush()?;
                let retry = self.probes.is_waiting().then(|| Instant::now() + WRITTEN_INTERVAL);
                let due = [Some(next_check), Some(next_look), Some(self.next_scan), self.early_scan, retry, end]
                    .into_iter()
                    .flatten()
                    .min();
                let timeout = due.map_or(MAX_WAIT, |due| due.saturating_duration_since(Instant::now()));
                self.tracer.ring().wait(timeout)?;
            }
        }
    }

    /// Writes, and says to people, which calls have come to hang since the last look.
    fn tell_of_stuck_calls(&mut self) -> anyhow::Result<()> {
        let Self { log, tracer, probes, stream, .. } = self;
        let mut result = Ok(());
        let looked = tracer.stuck_calls(|call| {
            let (Some(info), Ok(())) = (probes.symbol(call.symbol), &result) else { return };
            let comm = call.comm.split(|byte| *byte == 0).next().unwrap_or_default();
            let (name, comm, pid, tid) = (info.function.name, Printable(comm), call.pid, call.tid);
            let open = Nanos(call.end_ns.saturating_sub(call.start_ns));
            log.note(format!("{name} of thread {tid} ({comm}) of process {pid} has not returned for {open}"));
            result = write_call(stream, call, info);
        });
        looked.context("cannot look for calls that hang")?;
        Ok(result?)
    }

    /// Writes what is in the ring now.
    fn drain_what_is_there(&mut self) -> anyhow::Result<()> {
        for _ in 0..MAX_BATCHES {
            if self.drain()? < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Writes what is in the ring, up to [`BATCH`] records; returns how many it was.
    fn drain(&mut self) -> anyhow::Result<usize> {
        let Self { tracer, probes, processes, stream, spared, early_scan, last_pid, waiting, .. } = self;
        let mut result = Ok(());
        let count = tracer.ring().drain(BATCH, |bytes| match parse(bytes) {
            Some(Record::Call(call)) => {
                if call.pid != *last_pid {
                    *last_pid = call.pid;
                    processes.note_call(call.pid);
                    if !processes.is_announced(call.pid) {
                        early_scan.get_or_insert_with(Instant::now);
                        result = Sighting::from(&call).write(stream, processes, probes, *spared);
                    }
                }
                if let (Some(info), Ok(())) = (probes.symbol(call.symbol), &result) {
                    result = write_call(stream, &call, info);
                }
            }
            Some(Record::Fork { pid, parent_pid }) => processes.forked(pid, parent_pid),
            Some(Record::Exec { pid }) if processes.is_of_interest(pid) => {
                early_scan.get_or_insert_with(|| Instant::now() + AFTER_EXEC);
            }
            Some(Record::Linked { pid, tid, at_ns }) => {
                processes.note(pid);
                waiting.push((tid, at_ns));
            }
            Some(Record::FirstCall(first)) => {
                processes.note_call(first.pid);
                if !processes.is_announced(first.pid) {
                    early_scan.get_or_insert_with(Instant::now);
                    if result.is_ok() {
                        result = Sighting::from(&first).write(stream, processes, probes, *spared);
                    }
                }
            }
            Some(Record::Exit { pid }) => processes.ended(pid),
            Some(Record::Exec { .. }) | None => {}
        });
        result?;
        Ok(count)
    }

    fn scan_interval(&self) -> Duration {
        match self.processes.members().next() {
            Some(_) => self.options.scan_interval.min(TREE_SCAN_INTERVAL),
            None => self.options.scan_interval,
        }
    }

    /// Detaches, and takes what has arrived until then. To be called in any case.
    pub fn detach(&mut self) {
        let started = Instant::now();
        self.stopped_ns = mono_ns();
        if let Err(error) = self.tracer.stop(self.stopped_ns) {
            self.log.warn(format!("calls of the next moment may be wrong: cannot tell the kernel to stop: {error}"));
        }
        self.hooks.clear();
        self.probes.detach();
        self.log.detail(format!("detached in {}", Nanos(elapsed_ns(started))));
    }

    /// After [`Trace::detach`]: writes what is left, what was still open, and the last line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(&mut self) -> anyhow::Result<()> {
        while self.drain()? > 0 {}
        self.tracer.record_open_calls().context("cannot look for open calls")?;
        while self.drain()? > 0 {}
        self.tell_of_open_gaps()?;
        let counters = self.losses.look(&mut self.tracer, &mut self.stream)?;
        let (written, lost) = (self.stream.written(), self.stream.lost_total());
        self.stream.end(counters.seen, self.stopped_ns)?;
        if written + lost != counters.seen {
            self.log
                .warn(format!("the account does not balance: {} seen, {written} written, {lost} lost", counters.seen));
        }
        let calls = counted(written, "call", "calls");
        let processes = counted(self.processes.ever_watched(), "process", "processes");
        self.log.note(format!("{calls} written, {lost} lost; {processes} watched"));
        Ok(())
    }
}

fn join(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn elapsed_ns(since: Instant) -> u64 {
    nanos(since.elapsed())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
