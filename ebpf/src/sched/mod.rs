//! The scheduler tracer, from user space.
//!
//! A process is watched in two steps: [`Tracer::request`] names it, [`Tracer::watch_new`] looks at every task that exists and
//! watches those that are named and their descendants. Children that are born later are watched by the kernel side itself, from
//! their birth.
//!
//! There are two kernel sides with the same events: `bpf/sched.bpf.c` for kernels that have type information, and
//! `bpf/sched_raw.bpf.c`, which knows less, for those that have not ([`Source`]).

mod btf;
mod cu_init;
pub mod event;
mod points;
mod raw;
pub mod stack;

use std::fs::File;
use std::io;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use ingero_common::clock::mono_ns;

use crate::guard::Kept;
use crate::hold::Hold;
use crate::load::{self, Kernel, StartError};
use crate::ring::{Ring, wakeup_bytes};
use btf::Btf;
use event::{Event, Why, decode};
pub use raw::Formats;
use raw::Raw;
use stack::Python;

/// What `trace_until` holds before tracing begins.
const NOT_BEGUN: u64 = 0;
/// What it holds while no end is in sight.
const NO_END: u64 = u64::MAX;
/// How far ahead the end of tracing is set: the kernel side looks at it when an event happens, so it has to know it before.
const AHEAD: Duration = Duration::from_millis(5);
/// What `lost_since` holds while nothing is lost.
const NOTHING_LOST: u64 = u64::MAX;

/// Where the kernel side knows the kernel's structures from.
#[derive(Debug)]
pub enum Source {
    /// Its type information: BTF tracepoints, fields by CO-RE.
    Btf(Kernel),
    /// The format files of its trace events, which is all that they tell.
    Raw(Formats),
}

/// Which [`Source`] to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMode {
    /// Type information, or format files where there is none.
    Auto,
    /// Type information.
    Btf,
    /// Format files.
    Raw,
}

impl Source {
    /// Checks that this machine can be traced, and how.
    ///
    /// # Errors
    /// A [`StartError`] that names what is missing.
    pub fn find(mode: ProbeMode) -> Result<Self, StartError> {
        let raw = || Formats::of_this_kernel().map(Self::Raw);
        match mode {
            ProbeMode::Raw => load::check_machine().and_then(|_| raw()),
            ProbeMode::Btf => Kernel::check().map(Self::Btf),
            ProbeMode::Auto => match Kernel::check() {
                // Without both, the first is what is missing.
                Err(no_btf @ StartError::NoBtf { .. }) => raw().map_err(|_| no_btf),
                kernel => kernel.map(Self::Btf),
            },
        }
    }

    /// The name, in `start` records.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Btf(_) => "tp_btf",
            Self::Raw(_) => "raw",
        }
    }
}

/// How page allocations are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Not at all.
    Off,
    /// Summed for each thread until it leaves the CPU, 10 ms at most.
    Summed,
    /// One event each.
    Raw,
}

/// How to trace.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Watch every process.
    pub all: bool,
    /// Page allocations.
    pub pages: Pages,
    /// Requests to block devices, and what TCP sends again.
    pub io: bool,
    /// Be ready for [`Tracer::probe_cu_init`].
    pub cu_init: bool,
    /// How often a second it is told where watched threads are in their code, while they run; 0: never, nor when they go to sleep.
    pub stacks_hz: u32,
    /// Size of the ring buffer in bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
}

impl Config {
    /// Size of the ring, and how many new bytes in it wake the reader.
    fn ring(&self) -> (u32, u64) {
        let bytes = self.ring_bytes.max(4096).checked_next_power_of_two().unwrap_or(1 << 31);
        (bytes, wakeup_bytes(bytes))
    }

    fn raw_pages(&self) -> u8 {
        u8::from(self.pages == Pages::Raw)
    }
}

/// What the kernel side has counted since it was loaded. `seen` = records in the ring + all losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Records that there ought to be.
    pub seen: u64,
    /// Lost because the ring had no room.
    pub ring_full: u64,
    /// Threads that could not be watched, and requests to devices that could not be followed, for want of memory.
    pub map_full: u64,
}

/// Maps that both kernel sides have.
struct Shared {
    counters: PerCpuArray<MapData, [u64; 3]>,
    lost_since: Array<MapData, u64>,
    trace_until: Array<MapData, u64>,
}

impl Shared {
    /// Takes them out of the object and sets them up, before anything is attached.
    fn take(ebpf: &mut Ebpf) -> Result<Self, StartError> {
        let counters = take(ebpf, "counters", PerCpuArray::try_from)?;
        let mut lost_since = take(ebpf, "lost_since", Array::try_from)?;
        lost_since.set(0, NOTHING_LOST, 0).map_err(|e| StartError::refused("map lost_since", &e))?;
        let mut trace_until = take(ebpf, "trace_until", Array::try_from)?;
        trace_until.set(0, NOT_BEGUN, 0).map_err(|e| StartError::refused("map trace_until", &e))?;
        Ok(Self { counters, lost_since, trace_until })
    }
}

/// The loaded tracer.
pub struct Tracer {
    side: Side,
    ring: Ring,
    shared: Shared,
    /// Tasks that exist and could not be watched.
    unwatchable: u64,
    begun: bool,
}

/// The kernel side.
enum Side {
    Btf(Box<Btf>),
    Raw(Box<Raw>),
}

impl Tracer {
    /// Loads and attaches everything; no process is watched yet.
    ///
    /// # Errors
    /// A [`StartError`] that names what this machine lacks.
    pub fn new(source: &Source, config: Config) -> Result<Self, StartError> {
        let (side, ring, shared) = match source {
            Source::Btf(kernel) => {
                let (btf, ring, shared) = Btf::new(kernel, &config)?;
                (Side::Btf(Box::new(btf)), ring, shared)
            }
            Source::Raw(formats) => {
                let (raw, ring, shared) = Raw::new(formats, &config)?;
                (Side::Raw(Box::new(raw)), ring, shared)
            }
        };
        Ok(Self { side, ring, shared, unwatchable: 0, begun: false })
    }

    /// Names of the tracepoints in use, and of those that this kernel does not have or this kernel side does not use.
    ///
    /// Those missing about interrupts of rarer kinds: a thread that one of them wakes may show the interrupted thread as its
    /// waker. Of `block_`, `tcp_`, `mark_victim`: there are no such records.
    pub fn names(&self) -> (&[&'static str], &[&'static str]) {
        match &self.side {
            Side::Btf(btf) => btf.names(),
            Side::Raw(raw) => raw.names(),
        }
    }

    /// The buffer between kernel and tool, to wait at.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Calls `each` with the events that are complete now, at most `limit` of them, oldest first; returns how many it was.
    ///
    /// # Errors
    /// When the kernel side has written something else than an event: it is of another version.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(Event<'_>)) -> io::Result<usize> {
        let mut result = Ok(());
        let side = &mut self.side;
        let count = self.ring.drain(limit, |bytes| match (decode(bytes), &mut *side) {
            (Some((event, _)), Side::Btf(_)) => each(event),
            (Some((event, _)), Side::Raw(raw)) => each(raw.complete(event)),
            (None, _) => result = Err(io::Error::other("the kernel side wrote an event of unknown form")),
        });
        result.map(|()| count)
    }

    /// Asks for a process to be watched by the next [`Self::watch_new`].
    ///
    /// # Errors
    /// When more than 16,384 are asked for at once.
    pub fn request(&mut self, pid: u32, why: Why) -> io::Result<()> {
        match &mut self.side {
            Side::Btf(btf) => btf.request(pid, why),
            Side::Raw(raw) => {
                raw.request(pid, why);
                Ok(())
            }
        }
    }

    /// Watches what was asked for and its descendants. Calls `each` with an [`Event::Watched`] for each process that is
    /// watched and has not been told of. When this returns, all their threads are watched. The first call begins tracing:
    /// nothing earlier is in any event.
    ///
    /// # Errors
    /// What reading the kernel's list of tasks gives.
    pub fn watch_new(&mut self, each: impl FnMut(Event<'_>)) -> io::Result<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.shared.trace_until.set(0, NO_END, 0).map_err(io::Error::other)?;
        }
        self.unwatchable += match &mut self.side {
            Side::Btf(btf) => btf.watch_new(each)?,
            Side::Raw(raw) => raw.watch_new(each)?,
        };
        Ok(())
    }

    /// The counts so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Counters> {
        let mut sum = [0u64; 3];
        for cpu in self.shared.counters.get(&0, 0).map_err(io::Error::other)?.iter() {
            for (sum, count) in sum.iter_mut().zip(cpu) {
                *sum += count;
            }
        }
        let [seen, ring_full, map_full] = sum;
        let unwatchable = self.unwatchable;
        Ok(Counters { seen: seen + unwatchable, ring_full, map_full: map_full + unwatchable })
    }

    /// The start of the earliest interval that was lost since this was asked last, CLOCK_MONOTONIC ns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_lost_since(&mut self) -> io::Result<Option<u64>> {
        let since = self.shared.lost_since.get(&0, 0).map_err(io::Error::other)?;
        if since == NOTHING_LOST {
            return Ok(None);
        }
        self.shared.lost_since.set(0, NOTHING_LOST, 0).map_err(io::Error::other)?;
        Ok(Some(since))
    }

    /// Whether it is told where threads are in their code.
    pub fn has_stacks(&self) -> bool {
        matches!(&self.side, Side::Btf(btf) if btf.has_stacks())
    }

    /// Process `pid` has this interpreter, and so have the children that it makes from now on; `None`: it has none any more.
    ///
    /// # Errors
    /// The kernel's; when there are more than 4,096.
    pub fn set_python(&mut self, pid: u32, python: Option<&Python>) -> io::Result<()> {
        match &mut self.side {
            Side::Btf(btf) => btf.set_python(pid, python),
            Side::Raw(_) => Ok(()),
        }
    }

    /// Whether there is [`Self::probe_cu_init`].
    pub fn has_cu_init(&self) -> bool {
        matches!(&self.side, Side::Btf(btf) if btf.has_cu_init())
    }

    /// Whether [`Self::probe_cu_init`] needs CAP_SYS_ADMIN besides CAP_BPF and CAP_PERFMON.
    ///
    /// # Errors
    /// What keeps it from being tried.
    pub fn needs_admin(&self) -> io::Result<bool> {
        match &self.side {
            Side::Btf(btf) => btf.needs_admin(),
            Side::Raw(_) => Ok(false),
        }
    }

    /// Has every process that calls cuInit watched from that instant. `library` is a copy of libcuda, held by `hold`, `offset` where in the
    /// file the function's probe belongs, bytes. Also in processes that map it later. The probe goes when the result is dropped,
    /// or before somebody writes to the file.
    ///
    /// # Errors
    /// The kernel's, about this file; `Unsupported` where the kernel side has no such probe.
    pub fn probe_cu_init(&mut self, library: &File, hold: Hold, offset: u64) -> io::Result<Kept> {
        match &mut self.side {
            Side::Btf(btf) => btf.probe_cu_init(library, hold, offset),
            Side::Raw(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Ends tracing at one instant, which is returned (CLOCK_MONOTONIC ns), and detaches everything. What happens later is in
    /// no event; what goes on at that instant is given by [`Self::open`]. The ring can still be drained.
    ///
    /// # Errors
    /// The kernel's; everything is detached in any case.
    pub fn stop(&mut self) -> io::Result<u64> {
        if let Side::Btf(btf) = &mut self.side {
            // This may take some tenths of a second, during which the rest is still traced.
            btf.unprobe_cu_init();
        }
        let at_ns = mono_ns() + AHEAD.as_nanos() as u64;
        let stopped = self.shared.trace_until.set(0, at_ns, 0).map_err(io::Error::other);
        std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(mono_ns())));
        match &mut self.side {
            Side::Btf(btf) => btf.detach(),
            Side::Raw(raw) => raw.detach(),
        }
        stopped.map(|()| at_ns)
    }

    /// Calls `each` with what was going on when tracing was stopped at `at_ns`: an [`Event::Switch`] for each thread off the
    /// CPU, page sums, and an [`Event::Io`] for each request that is with its device. To be called once, after [`Self::stop`].
    ///
    /// # Errors
    /// What reading the kernel's list of tasks gives.
    pub fn open(&mut self, at_ns: u64, each: impl FnMut(Event<'_>)) -> io::Result<()> {
        match &mut self.side {
            Side::Btf(btf) => btf.open(at_ns, each),
            Side::Raw(raw) => raw.open(at_ns, each),
        }
    }
}

fn take<M>(ebpf: &mut Ebpf, name: &str, convert: impl FnOnce(Map) -> Result<M, MapError>) -> Result<M, StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("map {name}"), e);
    let map = ebpf.take_map(name).ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?;
    convert(map).map_err(|e| refused(&e))
}
