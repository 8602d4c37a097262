//! The tracer on kernels without type information: `bpf/sched_raw.bpf.c`, whose head says what it lacks.
//!
//! Whom to watch is found in `/proc`, where the other tracer has the kernel look. A thread that ends or is born while we look is
//! no trouble:
//!
//! 1. `tgids` says which process a thread is of. The kernel side notes births and deaths from the moment it is attached; what
//!    existed before is added after that, without overwriting. So a number that changed hands meanwhile is right.
//! 2. `threads` has those that are watched. A thread is added, and then looked for once more: if it is gone, so is its element.
//!    A process's threads are listed again until there is none that is new.

mod format;
mod lives;
mod thread;

use std::io;

use aya::maps::{HashMap, MapData, MapError};
use aya::programs::{Program, TracePoint};
use aya::{Ebpf, EbpfLoader};
use ingero_common::clock::mono_ns;
use ingero_common::discover::ProcFs;

use super::event::{COMM_BYTES, Event, Head, Who, Why};
use super::{Config, Pages, Shared, take};
use crate::load::StartError;
use crate::ring::Ring;
pub use format::Formats;
use lives::Lives;
use thread::{Existing, THREAD_BYTES};

static OBJECT: &[u8] = crate::object!("sched_raw");

/// Program, category and name of each trace event; interrupts first, see `points.rs`.
const EVENTS: [(&str, &str, &str); 13] = [
    ("interrupt_entry", "irq", "irq_handler_entry"),
    ("interrupt_exit", "irq", "irq_handler_exit"),
    ("interrupt_entry", "irq", "softirq_entry"),
    ("interrupt_exit", "irq", "softirq_exit"),
    ("interrupt_entry", "timer", "hrtimer_expire_entry"),
    ("interrupt_exit", "timer", "hrtimer_expire_exit"),
    ("task_newtask", "task", "task_newtask"),
    ("sched_process_exec", "sched", "sched_process_exec"),
    ("sched_process_exit", "sched", "sched_process_exit"),
    ("sched_waking", "sched", "sched_waking"),
    ("sched_wakeup", "sched", "sched_wakeup"),
    ("sched_wakeup_new", "sched", "sched_wakeup_new"),
    ("sched_switch", "sched", "sched_switch"),
];
const RARE_INTERRUPTS: [(&str, &str, &str); 6] = [
    ("interrupt_entry", "irq_vectors", "call_function_entry"),
    ("interrupt_exit", "irq_vectors", "call_function_exit"),
    ("interrupt_entry", "irq_vectors", "call_function_single_entry"),
    ("interrupt_exit", "irq_vectors", "call_function_single_exit"),
    ("interrupt_entry", "irq_vectors", "irq_work_entry"),
    ("interrupt_exit", "irq_vectors", "irq_work_exit"),
];
const PAGES: (&str, &str, &str) = ("mm_page_alloc", "kmem", "mm_page_alloc");
/// What only type information makes possible.
const LACKING: [&str; 5] = ["cuInit", "block_rq_complete", "tcp_retransmit_skb", "sock_send_length", "mark_victim"];

/// Fails with `EEXIST` where there is an element already.
const NO_EXIST: u64 = 1;
/// How often a process's threads are listed before it is given up that they stop changing.
const PASSES: usize = 100;

/// The programs and what only they need.
pub(super) struct Raw {
    ebpf: Ebpf,
    threads: HashMap<MapData, u32, [u8; THREAD_BYTES]>,
    proc: ProcFs,
    lives: Lives,
    requested: Vec<(u32, Why)>,
    all: bool,
    attached: Vec<&'static str>,
    missing: Vec<&'static str>,
}

impl Raw {
    pub(super) fn new(formats: &Formats, config: &Config) -> Result<(Self, Ring, Shared), StartError> {
        let page_bytes = rustix::param::page_size() as u64;
        let (watch_all, raw_pages) = (u8::from(config.all), config.raw_pages());
        let (ring_bytes, wakeup) = config.ring();
        let mut loader = EbpfLoader::new();
        loader
            .btf(None)
            .override_global("ring_wakeup_bytes", &wakeup, true)
            .override_global("page_bytes", &page_bytes, true)
            .override_global("watch_all", &watch_all, true)
            .override_global("raw_pages", &raw_pages, true)
            .map_max_entries("events", ring_bytes);
        for (global, offset) in &formats.offsets {
            loader.override_global(global, offset, true);
        }
        let mut ebpf = loader.load(OBJECT).map_err(|e| StartError::refused("the BPF object", &e))?;
        let shared = Shared::take(&mut ebpf)?;
        let threads = take(&mut ebpf, "threads", HashMap::try_from)?;
        let mut tgids = take(&mut ebpf, "tgids", HashMap::try_from)?;
        let mut raw = Self {
            ebpf,
            threads,
            proc: ProcFs::default(),
            lives: Lives::default(),
            requested: Vec::new(),
            all: config.all,
            attached: Vec::new(),
            missing: LACKING.to_vec(),
        };
        for event in RARE_INTERRUPTS {
            if raw.attach(event).is_err() {
                raw.missing.push(event.2);
            }
        }
        for event in (config.pages != Pages::Off).then_some(PAGES).into_iter().chain(EVENTS) {
            raw.attach(event)?;
        }
        raw.learn_processes(&mut tgids).map_err(|e| StartError::refused("reading /proc", &e))?;
        let ring = Ring::take(&mut raw.ebpf, "events")?;
        Ok((raw, ring, shared))
    }

    fn attach(&mut self, (program, category, name): (&str, &'static str, &'static str)) -> Result<(), StartError> {
        let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("trace event {name}"), e);
        let program = tracepoint(&mut self.ebpf, program).map_err(|e| refused(&e))?;
        // Some programs serve several events.
        if program.fd().is_err() {
            program.load().map_err(|e| refused(&e))?;
        }
        program.attach(category, name).map_err(|e| refused(&e))?;
        self.attached.push(name);
        Ok(())
    }

    /// Step 1 of the head. A map that is full leaves threads without a process: they are named nowhere then.
    fn learn_processes(&self, tgids: &mut HashMap<MapData, u32, u32>) -> io::Result<()> {
        for pid in self.proc.pids()? {
            for tid in self.living(pid) {
                let _ = tgids.insert(tid, pid, NO_EXIST);
            }
        }
        Ok(())
    }

    pub(super) fn names(&self) -> (&[&'static str], &[&'static str]) {
        (&self.attached, &self.missing)
    }

    /// Makes of the end of a thread that of its process, where it is.
    pub(super) fn complete<'a>(&mut self, event: Event<'a>) -> Event<'a> {
        let proc = &self.proc;
        self.lives.follow(event, |pid| living(proc, pid))
    }

    pub(super) fn request(&mut self, pid: u32, why: Why) {
        self.requested.push((pid, why));
    }

    /// Returns how many threads there was no memory for.
    pub(super) fn watch_new(&mut self, mut each: impl FnMut(Event<'_>)) -> io::Result<u64> {
        let mut unwatchable = 0;
        let mut next = std::mem::take(&mut self.requested);
        if self.all {
            next.extend(self.proc.pids()?.into_iter().map(|pid| (pid, Why::Asked)));
        }
        let mut found = Vec::new();
        while !next.is_empty() {
            for (pid, why) in next {
                if !self.lives.knows(pid) {
                    unwatchable += self.watch(pid);
                    if self.lives.knows(pid) {
                        found.push((pid, why));
                    }
                }
            }
            next = self.unwatched_children()?;
        }
        for (pid, why) in found {
            // Of one that has ended already, its end follows.
            let comm = look(&self.proc, pid, pid).map_or([0; COMM_BYTES], |(comm, _)| comm);
            let who = Who { pid, tid: pid, comm: &comm };
            each(Event::Watched { head: Head { mono_ns: 0, dur_ns: 0, ns_pid: None, who }, why });
        }
        Ok(unwatchable)
    }

    /// Processes whose parent is watched and that are not.
    fn unwatched_children(&self) -> io::Result<Vec<(u32, Why)>> {
        let pids = self.proc.pids()?;
        let unwatched = pids.into_iter().filter(|pid| !self.lives.knows(*pid));
        let is_child = |pid: &u32| self.proc.stat(*pid).is_ok_and(|stat| self.lives.knows(stat.parent_pid));
        Ok(unwatched.filter(is_child).map(|pid| (pid, Why::Child)).collect())
    }

    /// Step 2 of the head. How many of the process's threads there was no memory for.
    fn watch(&mut self, pid: u32) -> u64 {
        let mut unwatchable = 0;
        for _ in 0..PASSES {
            let mut is_new = false;
            unwatchable = 0;
            for tid in self.living(pid) {
                if self.lives.has(pid, tid) {
                    continue;
                }
                let Some((comm, state)) = look(&self.proc, pid, tid) else { continue };
                let existing = Existing { pid, tid, comm, state, now_ns: mono_ns() };
                match self.threads.insert(tid, existing.bytes(), NO_EXIST) {
                    Ok(()) => {}
                    // Born watched.
                    Err(error) if is_exists(&error) => {}
                    Err(_) => {
                        unwatchable += 1;
                        continue;
                    }
                }
                if look(&self.proc, pid, tid).is_none() {
                    // If it ended after it was added, the kernel side has removed it itself.
                    let _ = self.threads.remove(&tid);
                    continue;
                }
                self.lives.add(pid, tid);
                is_new = true;
            }
            if !is_new {
                break;
            }
        }
        unwatchable
    }

    fn living(&self, pid: u32) -> Vec<u32> {
        living(&self.proc, pid)
    }

    /// Detaches everything, the last to be attached first.
    pub(super) fn detach(&mut self) {
        let programs = EVENTS.iter().rev().chain([&PAGES]).chain(&RARE_INTERRUPTS);
        for (program, _, _) in programs {
            // An error means that it is unloaded already.
            if let Ok(program) = tracepoint(&mut self.ebpf, program) {
                let _ = program.unload();
            }
        }
    }

    pub(super) fn open(&mut self, at_ns: u64, mut each: impl FnMut(Event<'_>)) -> io::Result<()> {
        for thread in self.threads.iter() {
            let (_, bytes) = thread.map_err(io::Error::other)?;
            thread::open(&bytes, at_ns, &mut each);
        }
        Ok(())
    }
}

fn tracepoint<'a>(ebpf: &'a mut Ebpf, name: &str) -> io::Result<&'a mut TracePoint> {
    match ebpf.program_mut(name) {
        Some(Program::TracePoint(program)) => Ok(program),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn is_exists(error: &MapError) -> bool {
    matches!(error, MapError::SyscallError(error) if error.io_error.kind() == io::ErrorKind::AlreadyExists)
}

/// The threads of a process that have not ended.
fn living(proc: &ProcFs, pid: u32) -> Vec<u32> {
    let listed = std::fs::read_dir(proc.root().join(pid.to_string()).join("task")).into_iter().flatten().flatten();
    let tids = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    tids.filter(|tid| look(proc, pid, *tid).is_some()).collect()
}

/// The name and the state of a thread that has not ended.
fn look(proc: &ProcFs, pid: u32, tid: u32) -> Option<([u8; COMM_BYTES], u8)> {
    let text = std::fs::read(proc.root().join(format!("{pid}/task/{tid}/stat"))).ok()?;
    parse_stat(&text)
}

/// proc(5): `tid (name) state …`; the name may hold anything, so its end is the last parenthesis.
fn parse_stat(text: &[u8]) -> Option<([u8; COMM_BYTES], u8)> {
    let start = text.iter().position(|byte| *byte == b'(')? + 1;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let state = *text.get(end + 2)?;
    let mut comm = [0; COMM_BYTES];
    for (to, from) in comm.iter_mut().take(COMM_BYTES - 1).zip(text.get(start..end)?) {
        *to = *from;
    }
    (!matches!(state, b'Z' | b'X')).then_some((comm, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_the_dead() {
        let (comm, state) = parse_stat(b"7 (a) S) b) D 1 7 7 0").unwrap();
        assert_eq!((&comm[..], state), (&b"a) S) b\0\0\0\0\0\0\0\0\0"[..], b'D'));
        // Kernel workers show more than the fifteen bytes that a name has.
        let (comm, _) = parse_stat(b"7 (kworker/0:1-events_power) I 2").unwrap();
        assert_eq!(&comm, b"kworker/0:1-eve\0");
        for gone in [&b"7 (x) Z 1"[..], b"7 (x) X 1", b"", b"7 x", b"7 (x)", b"7 )x( S"] {
            assert!(parse_stat(gone).is_none(), "{}", String::from_utf8_lossy(gone));
        }
    }
}
