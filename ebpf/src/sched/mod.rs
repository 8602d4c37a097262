//! The scheduler tracer: `bpf/sched.bpf.c` from user space.
//!
//! A process is watched in two steps: [`Tracer::request`] names it, [`Tracer::watch_new`] lets the kernel look at every
//! task that exists and watch those that are named and their descendants. Children that are born later are watched by
//! the kernel itself, from their birth.

pub mod event;

use std::io::{self, ErrorKind, Read};

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{BtfTracePoint, Iter, Program};

use crate::load::{Kernel, StartError};
use crate::ring::{Ring, wakeup_bytes};
use event::{Event, Why, decode};

static OBJECT: &[u8] = crate::object!("sched");

/// Programs are named after their tracepoints. Interrupts first: a wake-up must find their depth counted.
const TRACEPOINTS: [&str; 13] = [
    "irq_handler_entry",
    "irq_handler_exit",
    "softirq_entry",
    "softirq_exit",
    "hrtimer_expire_entry",
    "hrtimer_expire_exit",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_switch",
];
/// Not on every architecture and in every kernel.
const OPTIONAL_TRACEPOINTS: [&str; 6] = [
    "call_function_entry",
    "call_function_exit",
    "call_function_single_entry",
    "call_function_single_exit",
    "irq_work_entry",
    "irq_work_exit",
];
const PAGES_TRACEPOINT: &str = "mm_page_alloc";

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
    /// Threads that could not be watched for want of memory.
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
    attached: Vec<&'static str>,
    missing: Vec<&'static str>,
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
        let (mut attached, mut missing) = (Vec::new(), Vec::new());
        for name in OPTIONAL_TRACEPOINTS {
            match attach(kernel, &mut ebpf, name) {
                Ok(()) => attached.push(name),
                Err(_) => missing.push(name),
            }
        }
        let mut lost_since = take(&mut ebpf, "lost_since", Array::try_from)?;
        lost_since.set(0, NOTHING_LOST, 0).map_err(|e| StartError::refused("map lost_since", &e))?;
        let pages = (config.pages != Pages::Off).then_some(PAGES_TRACEPOINT);
        for name in pages.into_iter().chain(TRACEPOINTS) {
            attach(kernel, &mut ebpf, name)?;
            attached.push(name);
        }
        let requests = take(&mut ebpf, "requests", HashMap::try_from)?;
        let counters = take(&mut ebpf, "counters", PerCpuArray::try_from)?;
        let stop_at = take(&mut ebpf, "stop_at", Array::try_from)?;
        let tasks = take(&mut ebpf, "tasks", Array::try_from)?;
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
            attached,
            missing,
        })
    }

    /// Names of the tracepoints in use.
    pub fn attached(&self) -> &[&'static str] {
        &self.attached
    }

    /// Names of tracepoints that this kernel does not have. All of them are about interrupts of rarer kinds: a thread that
    /// one of those wakes may show the interrupted thread as its waker.
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
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

    /// Detaches everything. The ring can still be drained.
    ///
    /// The last to be attached goes first: an interval must not end when the wake-up in it is seen no more.
    pub fn detach(&mut self) {
        for name in std::mem::take(&mut self.attached).into_iter().rev() {
            if let Some(Program::BtfTracePoint(program)) = self.ebpf.program_mut(name) {
                // Unloading drops the links; an error would mean that there is nothing to detach.
                let _ = program.unload();
            }
        }
    }

    /// Calls `each` with what was open at `at_ns`: an [`Event::Switch`] for each thread off the CPU, and page sums. To be
    /// called once, after [`Self::detach`]; `at_ns` is an instant just before it.
    ///
    /// # Errors
    /// What reading the iterator gives.
    pub fn open_at(&mut self, at_ns: u64, each: impl FnMut(Event<'_>)) -> io::Result<()> {
        self.stop_at.set(0, at_ns, 0).map_err(io::Error::other)?;
        let bytes = self.iterate("open_tasks")?;
        for_each_event(&bytes, each);
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

fn attach(kernel: &Kernel, ebpf: &mut Ebpf, name: &str) -> Result<(), StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("tracepoint {name}"), e);
    let program: &mut BtfTracePoint = ebpf
        .program_mut(name)
        .ok_or_else(|| refused(&io::Error::from(ErrorKind::NotFound)))?
        .try_into()
        .map_err(|e: aya::programs::ProgramError| refused(&e))?;
    program.load(name, kernel.btf()).map_err(|e| refused(&e))?;
    program.attach().map_err(|e| refused(&e))?;
    Ok(())
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
