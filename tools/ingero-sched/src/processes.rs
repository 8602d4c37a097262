//! Which processes are watched, and which ought to be.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use anyhow::Context;
use ingero_common::clock::{Ts, mono_ns};
use ingero_common::discover::{Scanner, ldcache, may_look_at_others};
use ingero_common::record::src;
use ingero_common::record::write::{Identity as WhoItIs, Text, Watch};
use ingero_common::stream::Stream;
use ingero_common::text::{Log, counted};
use ingero_ebpf::sched::Tracer;
use ingero_ebpf::sched::event::{Event, Head, Why};

use crate::identity::Identity;
use crate::libraries::CudaLibraries;

/// The watched processes, by TGID.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    watched: BTreeMap<u32, Why>,
    scanner: Option<CudaScanner>,
}

#[derive(Debug)]
struct CudaScanner {
    scanner: Scanner,
    libraries: CudaLibraries,
    every: Duration,
    next: Instant,
    /// It has been said that there are processes which cannot be looked at.
    denied: bool,
}

impl Processes {
    /// Looks for processes that use CUDA `every` so often, if at all.
    pub(crate) fn new(every: Option<Duration>) -> Self {
        let scanner = every.map(|every| CudaScanner {
            scanner: Scanner::new(),
            libraries: CudaLibraries::default(),
            every,
            next: Instant::now(),
            denied: false,
        });
        Self { watched: BTreeMap::new(), scanner }
    }

    /// The TGIDs of those watched.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> + '_ {
        self.watched.keys().copied()
    }

    /// Whether this TGID is among them.
    pub(crate) fn is_watched(&self, pid: u32) -> bool {
        self.watched.contains_key(&pid)
    }

    /// How many are watched.
    pub(crate) fn len(&self) -> usize {
        self.watched.len()
    }

    /// Follows births and deaths: what the kernel has done by itself when it wrote this event.
    pub(crate) fn follow(&mut self, event: &Event<'_>) {
        match *event {
            Event::Fork { child_pid, watched: true, .. } => {
                self.watched.insert(child_pid, Why::Child);
            }
            Event::CudaInit { head, alone: true } => {
                self.watched.insert(head.who.pid, Why::Cuda);
            }
            Event::ProcessExit { head, .. } => {
                self.watched.remove(&head.who.pid);
            }
            _ => {}
        }
    }

    /// Has the kernel tell of calls of cuInit in the installed copies of libcuda.
    pub(crate) fn probe_installed(&mut self, tracer: &mut Tracer, log: &Log) {
        if let Some(scanner) = &mut self.scanner {
            scanner.libraries.probe(tracer, &ldcache::installed(), log);
        }
    }

    /// When it is time, looks for processes that have come to use CUDA and asks for them to be watched. Whether there are.
    /// The copies of libcuda that they have mapped are probed.
    pub(crate) fn scan(&mut self, tracer: &mut Tracer, log: &Log) -> anyhow::Result<bool> {
        let Some(scanner) = self.scanner.as_mut().filter(|scanner| scanner.next <= Instant::now()) else {
            return Ok(false);
        };
        scanner.libraries.follow_files(tracer, log);
        let scan = scanner.scanner.scan().context("looking for processes that use CUDA in /proc")?;
        scanner.next = Instant::now() + scanner.every;
        if scan.cost.denied > 0 && !std::mem::replace(&mut scanner.denied, true) {
            let processes = counted(scan.cost.denied as u64, "process", "processes");
            if may_look_at_others() {
                log.detail(format!("/proc hides {processes} from root too: those that use CUDA already are not found"));
            } else {
                log.warn(format!(
                    "{processes} may not be looked at by this user: those that use CUDA already are not found; run it with sudo"
                ));
            }
        }
        let mut any = false;
        for found in scan.appeared {
            let pid = found.process.pid;
            if pid == std::process::id() {
                // The library that tells of the GPUs' use maps libcuda into this very process.
                continue;
            }
            scanner.libraries.probe(tracer, &found.libraries, log);
            if !self.watched.contains_key(&pid) {
                tracer.request(pid, Why::Cuda).with_context(|| format!("asking to watch process {pid}"))?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Has the kernel watch what was asked for, and writes the `watch` records; whose these are.
    ///
    /// They carry the instant at which the last thread of the last process was watched: what a record claims must hold for
    /// all of the process.
    pub(crate) fn watch_new<W: io::Write>(
        &mut self,
        tracer: &mut Tracer,
        stream: &mut Stream<W>,
    ) -> anyhow::Result<Vec<u32>> {
        let mut new: Vec<(u32, Option<u32>, Vec<u8>, Why)> = Vec::new();
        tracer
            .watch_new(|event| {
                if let Event::Watched { head, why } = event {
                    new.push((head.who.pid, head.ns_pid, head.who.comm.to_vec(), why));
                }
            })
            .context("reading the kernel's list of tasks")?;
        let now_ns = mono_ns();
        let pids = new.iter().map(|(pid, ..)| *pid).collect();
        for (pid, ns_pid, comm, why) in new {
            self.watched.insert(pid, why);
            let ts = stream.ts(now_ns);
            let who = Identity::of(pid);
            stream.watch(Watch { who: keys(&who), ..watch(now_ns, ts, pid, ns_pid, &comm, why) })?;
        }
        Ok(pids)
    }
}

/// Who a process is, as keys of its `watch` record.
pub(crate) fn keys(who: &Identity) -> WhoItIs<'_> {
    WhoItIs {
        ppid: who.ppid,
        script: who.script.as_deref().map(Text),
        cpus_allowed: who.cpus_allowed.as_deref(),
        container: who.container.as_deref(),
        pod: who.pod.as_deref(),
        job: who.job.as_deref(),
        rank: who.rank,
    }
}

/// The `watch` record of a process that was born watched: its thread is its parent's until it is run, name and all.
pub(crate) fn child_watch<'a>(parent: Head<'a>, ts: Ts, child_pid: u32, child_ns_pid: Option<u32>) -> Watch<'a> {
    let who = WhoItIs { ppid: Some(parent.who.pid), ..WhoItIs::default() };
    Watch { who, ..watch(parent.mono_ns, ts, child_pid, child_ns_pid, parent.who.comm, Why::Child) }
}

/// The `watch` record of a process that was watched as a whole when it called cuInit.
pub(crate) fn cuda_watch(caller: Head<'_>, ts: Ts) -> Watch<'_> {
    watch(caller.mono_ns, ts, caller.who.pid, caller.ns_pid, caller.who.comm, Why::Cuda)
}

fn watch(mono_ns: u64, ts: Ts, pid: u32, ns_pid: Option<u32>, comm: &[u8], why: Why) -> Watch<'_> {
    Watch {
        src: src::INGERO,
        op: "watch",
        mono_ns,
        ts,
        pid,
        tid: pid,
        ns_pid,
        comm: Text::until_nul(comm),
        why: match why {
            Why::Asked => "asked",
            Why::Cuda => "cuda",
            Why::Child => "child",
        },
        // The stream puts its own name here.
        stream: "",
        lib: Vec::new(),
        layers: Vec::new(),
        returns: None,
        note: None,
        who: WhoItIs::default(),
    }
}
