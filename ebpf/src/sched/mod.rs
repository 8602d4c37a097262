//! The scheduler tracer: `bpf/sched.bpf.c` from user space.
//!
//! A process is watched in two steps: [`Tracer::request`] names it, [`Tracer::watch_new`] lets the kernel look at every
//! task that exists and watch those that are named and their descendants. Children that are born later are watched by
//! the kernel itself, from their birth.

mod cu_init;
pub mod event;
mod points;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::Iter;

use ingero_common::clock::mono_ns;

use crate::load::{Kernel, StartError};
use crate::ring::{Ring, wakeup_bytes};
use cu_init::CuInit;
use event::{Event, IO_BYTES, Io, Why, decode};
use points::Points;

static OBJECT: &[u8] = crate::object!("sched");

/// The first kernel whose sched_switch tells the state that the thread leaves with.
const PREV_STATE_SINCE: (u32, u32) = (5, 18);

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
    /// Size of the ring buffer in bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
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

/// The loaded tracer.
pub struct Tracer {
    ebpf: Ebpf,
    ring: Ring,
    requests: HashMap<MapData, u32, u32>,
    requested: Vec<u32>,
    counters: PerCpuArray<MapData, [u64; 3]>,
    lost_since: Array<MapData, u64>,
    stop_at: Array<MapData, u64>,
    tasks: Array<MapData, u64>,
    /// Tasks that exist and could not be watched.
    unwatchable: u64,
    in_flight: HashMap<MapData, u64, [u8; IO_BYTES]>,
    asked: Array<MapData, u64>,
    cu_init: Option<CuInit>,
    points: Points,
}

impl Tracer {
    /// Loads and attaches everything; no process is watched yet.
    ///
    /// # Errors
    /// A [`StartError`] that names what this machine lacks.
    pub fn new(kernel: &Kernel, config: Config) -> Result<Self, StartError> {
        let ring_bytes = config.ring_bytes.max(4096).checked_next_power_of_two().unwrap_or(1 << 31);
        let wakeup = wakeup_bytes(ring_bytes);
        let page_bytes = rustix::param::page_size() as u64;
        let watch_all = u8::from(config.all);
        let raw_pages = u8::from(config.pages == Pages::Raw);
        let has_prev_state = u8::from(kernel.version() >= PREV_STATE_SINCE);
        let mut ebpf = {
            // The loader borrows what it overrides.
            let (wakeup, page_bytes) = (&wakeup, &page_bytes);
            let (watch_all, raw_pages, has_prev_state) = (&watch_all, &raw_pages, &has_prev_state);
            kernel.load(OBJECT, |loader| {
                loader
                    .override_global("ring_wakeup_bytes", wakeup, true)
                    .override_global("page_bytes", page_bytes, true)
                    .override_global("watch_all", watch_all, true)
                    .override_global("raw_pages", raw_pages, true)
                    .override_global("has_prev_state", has_prev_state, true)
                    .map_max_entries("events", ring_bytes);
            })?
        };
        for iterator in ["watch_tasks", "open_tasks"] {
            load_iterator(kernel, &mut ebpf, iterator)?;
        }
        // While all maps are still in place.
        let cu_init = if config.cu_init { Some(CuInit::load(kernel, OBJECT, &mut ebpf)?) } else { None };
        let mut lost_since = take(&mut ebpf, "lost_since", Array::try_from)?;
        lost_since.set(0, NOTHING_LOST, 0).map_err(|e| StartError::refused("map lost_since", &e))?;
        let mut stop_at = take(&mut ebpf, "stop_at", Array::try_from)?;
        stop_at.set(0, NOT_STOPPED, 0).map_err(|e| StartError::refused("map stop_at", &e))?;
        let points = Points::attach(kernel, &mut ebpf, &config)?;
        let requests = take(&mut ebpf, "requests", HashMap::try_from)?;
        let counters = take(&mut ebpf, "counters", PerCpuArray::try_from)?;
        let tasks = take(&mut ebpf, "tasks", Array::try_from)?;
        let in_flight = take(&mut ebpf, "in_flight", HashMap::try_from)?;
        let asked = take(&mut ebpf, "asked", Array::try_from)?;
        let ring = Ring::take(&mut ebpf, "events")?;
        Ok(Self {
            ebpf,
            ring,
            requests,
            requested: Vec::new(),
            counters,
            lost_since,
            stop_at,
            tasks,
            unwatchable: 0,
            in_flight,
            asked,
            cu_init,
            points,
        })
    }

    /// Names of the tracepoints in use.
    pub fn attached(&self) -> &[&'static str] {
        &self.points.attached
    }

    /// Names of tracepoints that this kernel does not have. Those about interrupts of rarer kinds: a thread that one of them
    /// wakes may show the interrupted thread as its waker. Of `block_`, `tcp_`, `mark_victim`: there are no such records.
    pub fn missing(&self) -> &[&'static str] {
        &self.points.missing
    }

    /// The events.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Asks for a process to be watched by the next [`Self::watch_new`].
    ///
    /// # Errors
    /// When more than 16,384 are asked for at once.
    pub fn request(&mut self, pid: u32, why: Why) -> io::Result<()> {
        self.requests.insert(pid, why as u32, 0).map_err(io::Error::other)?;
        self.requested.push(pid);
        Ok(())
    }

    /// Watches what was asked for and its descendants. Calls `each` with an [`Event::Watched`] for each process that is
    /// watched and has not been told of. When this returns, all their threads are watched.
    ///
    /// # Errors
    /// What reading the iterator gives.
    pub fn watch_new(&mut self, mut each: impl FnMut(Event<'_>)) -> io::Result<()> {
        // A task that was born during a pass, of one that was not watched yet, is found by the next. One for which there
        // was no memory is tried again too: the kernel's allocator refills its stock in the background.
        let mut attempts = 0..ATTEMPTS;
        loop {
            let [added, failed] = self.tasks()?;
            let bytes = self.iterate("watch_tasks")?;
            for_each_event(&bytes, &mut each);
            let [added, failed] = [self.tasks()?[0] - added, self.tasks()?[1] - failed];
            if added == 0 && (failed == 0 || attempts.next().is_none()) {
                self.unwatchable += failed;
                break;
            }
        }
        // A request left behind would catch a later process of the same number.
        for pid in self.requested.drain(..) {
            let _ = self.requests.remove(&pid);
        }
        Ok(())
    }

    /// Tasks that the iterator has begun to watch, and has failed to, since it was loaded.
    fn tasks(&self) -> io::Result<[u64; 2]> {
        let get = |index| self.tasks.get(&index, 0).map_err(io::Error::other);
        Ok([get(0)?, get(1)?])
    }

    /// The counts so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Counters> {
        let mut sum = [0u64; 3];
        for cpu in self.counters.get(&0, 0).map_err(io::Error::other)?.iter() {
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
        let since = self.lost_since.get(&0, 0).map_err(io::Error::other)?;
        if since == NOTHING_LOST {
            return Ok(None);
        }
        self.lost_since.set(0, NOTHING_LOST, 0).map_err(io::Error::other)?;
        Ok(Some(since))
    }

    /// Has every process that calls cuInit watched from that instant. `library` is a copy of libcuda, `offset` where in the
    /// file the function's probe belongs, bytes. Also in processes that map it later.
    ///
    /// # Errors
    /// The kernel's, about this file.
    pub fn probe_cu_init(&mut self, library: &File, offset: u64) -> io::Result<()> {
        match &mut self.cu_init {
            Some(cu_init) => cu_init.probe(&mut self.ebpf, library, offset),
            None => Err(ErrorKind::Unsupported.into()),
        }
    }

    /// Ends tracing at one instant, which is returned (CLOCK_MONOTONIC ns), and detaches everything. What happens later is in
    /// no event; what goes on at that instant is given by [`Self::open`]. The ring can still be drained.
    ///
    /// # Errors
    /// The kernel's; everything is detached in any case.
    pub fn stop(&mut self) -> io::Result<u64> {
        // This may take some tenths of a second, during which the rest is still traced.
        if let Some(mut cu_init) = self.cu_init.take() {
            cu_init.detach(&mut self.ebpf);
        }
        let stopped = self.set_stop();
        self.points.detach(&mut self.ebpf);
        stopped
    }

    /// The programs look at the instant when they run, so it must lie ahead when they get to know it.
    fn set_stop(&mut self) -> io::Result<u64> {
        loop {
            let at_ns = mono_ns() + AHEAD.as_nanos() as u64;
            self.stop_at.set(0, at_ns, 0).map_err(io::Error::other)?;
            let now_ns = mono_ns();
            if now_ns < at_ns {
                std::thread::sleep(Duration::from_nanos(at_ns - now_ns));
                return Ok(at_ns);
            }
            self.stop_at.set(0, NOT_STOPPED, 0).map_err(io::Error::other)?;
        }
    }

    /// Calls `each` with what was going on when tracing was stopped at `at_ns`: an [`Event::Switch`] for each thread off the
    /// CPU, page sums, and an [`Event::Io`] for each request that is with its device. To be called once, after [`Self::stop`].
    ///
    /// # Errors
    /// What reading the iterator gives.
    pub fn open(&mut self, at_ns: u64, mut each: impl FnMut(Event<'_>)) -> io::Result<()> {
        let mut requests = Vec::new();
        for request in self.in_flight.iter() {
            requests.push(request.map_err(io::Error::other)?);
        }
        for (slot, (address, _)) in (0..self.asked.len()).zip(&requests) {
            self.asked.set(slot, *address, 0).map_err(io::Error::other)?;
        }
        let bytes = self.iterate("open_tasks")?;
        let mut in_flight = Vec::new();
        for_each_event(&bytes, |event| match event {
            Event::Io(io) => in_flight.push((io.head.mono_ns, io.head.who.tid)),
            other => each(other),
        });
        for (_, bytes) in &requests {
            let Some((Event::Io(mut io), _)) = decode(bytes) else { continue };
            io.head.dur_ns = at_ns.saturating_sub(io.head.mono_ns);
            if in_flight.contains(&(io.head.mono_ns, io.head.who.tid)) {
                each(Event::Io(Io { open: true, ..io }));
            } else {
                // Its end was not seen, or it waits for its turn.
                each(Event::Unmatched(io.head));
            }
        }
        Ok(())
    }

    /// Runs a task iterator once over all threads of the machine and returns what it wrote.
    fn iterate(&mut self, name: &str) -> io::Result<Vec<u8>> {
        let program: &mut Iter = self
            .ebpf
            .program_mut(name)
            .ok_or(ErrorKind::NotFound)?
            .try_into()
            .map_err(|e: aya::programs::ProgramError| io::Error::other(e))?;
        let id = program.attach().map_err(io::Error::other)?;
        let link = program.take_link(id).map_err(io::Error::other)?;
        let mut file = link.into_file().map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(ITERATOR_BUFFER_BYTES);
        loop {
            match file.read_to_end(&mut bytes) {
                Ok(_) => return Ok(bytes),
                // After a million threads without a word the kernel wants to be asked again.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// More than one event, so that reading does not begin with a few bytes to see whether there are any.
const ITERATOR_BUFFER_BYTES: usize = 64 * 1024;
/// How often to try again where memory for watching a task is short.
const ATTEMPTS: u32 = 100;
/// What `stop_at` holds before.
const NOT_STOPPED: u64 = u64::MAX;
/// How far ahead the end of tracing is set.
const AHEAD: Duration = Duration::from_millis(1);
/// What `lost_since` holds while nothing is lost.
const NOTHING_LOST: u64 = u64::MAX;

fn for_each_event(mut bytes: &[u8], mut each: impl FnMut(Event<'_>)) {
    while let Some((event, len)) = decode(bytes) {
        each(event);
        bytes = &bytes[len..];
    }
}

fn take<M>(ebpf: &mut Ebpf, name: &str, convert: impl FnOnce(Map) -> Result<M, MapError>) -> Result<M, StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("map {name}"), e);
    let map = ebpf.take_map(name).ok_or_else(|| refused(&io::Error::from(ErrorKind::NotFound)))?;
    convert(map).map_err(|e| refused(&e))
}

fn load_iterator(kernel: &Kernel, ebpf: &mut Ebpf, name: &str) -> Result<(), StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("iterator {name}"), e);
    let program: &mut Iter = ebpf
        .program_mut(name)
        .ok_or_else(|| refused(&io::Error::from(ErrorKind::NotFound)))?
        .try_into()
        .map_err(|e: aya::programs::ProgramError| refused(&e))?;
    program.load("task", kernel.btf()).map_err(|e| refused(&e))
}
