//! The tracer on kernels with type information: `bpf/sched.bpf.c`.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::Iter;

use super::cu_init::CuInit;
use super::event::{Event, IO_BYTES, Io, Why, decode};
use super::points::{CLOCK, Points};
use super::stack::{PYTHON_BYTES, Python};
use super::{Config, Shared, take};
use crate::guard::Kept;
use crate::hold::Hold;
use crate::load::{Kernel, StartError};
use crate::ring::Ring;

static OBJECT: &[u8] = crate::object!("sched");

/// More than one event, so that reading does not begin with a few bytes to see whether there are any.
const ITERATOR_BUFFER_BYTES: usize = 64 * 1024;
/// How often to try again where memory for watching a task is short.
const ATTEMPTS: u32 = 100;

/// The programs and what only they need.
pub(super) struct Btf {
    ebpf: Ebpf,
    requests: HashMap<MapData, u32, u32>,
    requested: Vec<u32>,
    tasks: Array<MapData, u64>,
    in_flight: HashMap<MapData, u64, [u8; IO_BYTES]>,
    asked: Array<MapData, u64>,
    cu_init: Option<CuInit>,
    pythons: HashMap<MapData, u32, [u8; PYTHON_BYTES]>,
    points: Points,
}

impl Btf {
    pub(super) fn new(kernel: &Kernel, config: &Config) -> Result<(Self, Ring, Shared), StartError> {
        let page_bytes = rustix::param::page_size() as u64;
        let watch_all = u8::from(config.all);
        let raw_pages = config.raw_pages();
        let (ring_bytes, wakeup) = config.ring();
        let mut ebpf = {
            // The loader borrows what it overrides.
            let (wakeup, page_bytes) = (&wakeup, &page_bytes);
            let (watch_all, raw_pages, sleep_stacks) = (&watch_all, &raw_pages, &u8::from(config.stacks_hz > 0));
            kernel.load(OBJECT, |loader| {
                loader
                    .override_global("ring_wakeup_bytes", wakeup, true)
                    .override_global("page_bytes", page_bytes, true)
                    .override_global("watch_all", watch_all, true)
                    .override_global("raw_pages", raw_pages, true)
                    .override_global("sleep_stacks", sleep_stacks, true)
                    .map_max_entries("events", ring_bytes);
            })?
        };
        for iterator in ["watch_tasks", "open_tasks"] {
            load_iterator(kernel, &mut ebpf, iterator)?;
        }
        // While all maps are still in place. Processes can be found without it, by looking.
        let cu_init = config.cu_init.then(|| CuInit::load(kernel, OBJECT, &mut ebpf));
        let shared = Shared::take(&mut ebpf)?;
        let mut points = Points::attach(kernel, &mut ebpf, config)?;
        let cu_init = cu_init.and_then(|loaded| {
            let known = if loaded.is_ok() { &mut points.attached } else { &mut points.missing };
            known.push("cuInit");
            loaded.ok()
        });
        let ring = Ring::take(&mut ebpf, "events")?;
        let requests = take(&mut ebpf, "requests", HashMap::try_from)?;
        let tasks = take(&mut ebpf, "tasks", Array::try_from)?;
        let in_flight = take(&mut ebpf, "in_flight", HashMap::try_from)?;
        let asked = take(&mut ebpf, "asked", Array::try_from)?;
        let pythons = take(&mut ebpf, "pythons", HashMap::try_from)?;
        let requested = Vec::new();
        let btf = Self { ebpf, requests, requested, tasks, in_flight, asked, cu_init, pythons, points };
        Ok((btf, ring, shared))
    }

    /// Names of the tracepoints in use, and of those that this kernel does not have.
    pub(super) fn names(&self) -> (&[&'static str], &[&'static str]) {
        (&self.points.attached, &self.points.missing)
    }

    pub(super) fn request(&mut self, pid: u32, why: Why) -> io::Result<()> {
        self.requests.insert(pid, why as u32, 0).map_err(io::Error::other)?;
        self.requested.push(pid);
        Ok(())
    }

    /// Returns how many tasks there was no memory for.
    pub(super) fn watch_new(&mut self, mut each: impl FnMut(Event<'_>)) -> io::Result<u64> {
        // A task that was born during a pass, of one that was not watched yet, is found by the next. One for which there
        // was no memory is tried again too: the kernel's allocator refills its stock in the background.
        let mut attempts = 0..ATTEMPTS;
        let unwatchable = loop {
            let [added, failed] = self.tasks()?;
            let bytes = self.iterate("watch_tasks")?;
            for_each_event(&bytes, &mut each);
            let [added, failed] = [self.tasks()?[0] - added, self.tasks()?[1] - failed];
            if added == 0 && (failed == 0 || attempts.next().is_none()) {
                break failed;
            }
        };
        // A request left behind would catch a later process of the same number.
        for pid in self.requested.drain(..) {
            let _ = self.requests.remove(&pid);
        }
        Ok(unwatchable)
    }

    /// Tasks that the iterator has begun to watch, and has failed to, since it was loaded.
    fn tasks(&self) -> io::Result<[u64; 2]> {
        let get = |index| self.tasks.get(&index, 0).map_err(io::Error::other);
        Ok([get(0)?, get(1)?])
    }

    pub(super) fn has_stacks(&self) -> bool {
        self.points.attached.contains(&CLOCK)
    }

    pub(super) fn set_python(&mut self, pid: u32, python: Option<&Python>) -> io::Result<()> {
        match python {
            Some(python) => self.pythons.insert(pid, python.bytes(), 0).map_err(io::Error::other),
            None => {
                // It may have gone with its process.
                let _ = self.pythons.remove(&pid);
                Ok(())
            }
        }
    }

    pub(super) fn has_cu_init(&self) -> bool {
        self.cu_init.is_some()
    }

    pub(super) fn probe_cu_init(&mut self, library: &File, hold: Hold, offset: u64) -> io::Result<Kept> {
        match &mut self.cu_init {
            Some(cu_init) => cu_init.probe(&mut self.ebpf, library, hold, offset),
            None => Err(ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn needs_admin(&self) -> io::Result<bool> {
        self.cu_init.as_ref().map_or(Ok(false), CuInit::needs_admin)
    }

    pub(super) fn unprobe_cu_init(&mut self) {
        if let Some(cu_init) = self.cu_init.take() {
            cu_init.detach();
        }
    }

    pub(super) fn detach(&mut self) {
        self.points.detach(&mut self.ebpf);
    }

    pub(super) fn open(&mut self, at_ns: u64, mut each: impl FnMut(Event<'_>)) -> io::Result<()> {
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
            Event::Io(mut io) => {
                in_flight.push((io.head.mono_ns, io.head.who.tid));
                io.head.dur_ns = at_ns.saturating_sub(io.head.mono_ns);
                each(Event::Io(Io { open: true, ..io }));
            }
            other => each(other),
        });
        for (_, bytes) in &requests {
            if let Some((Event::Io(mut io), _)) = decode(bytes)
                && !in_flight.contains(&(io.head.mono_ns, io.head.who.tid))
            {
                // Its end was not seen, or it waits for its turn.
                io.head.dur_ns = at_ns.saturating_sub(io.head.mono_ns);
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

fn for_each_event(mut bytes: &[u8], mut each: impl FnMut(Event<'_>)) {
    while let Some((event, len)) = decode(bytes) {
        each(event);
        bytes = &bytes[len..];
    }
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
