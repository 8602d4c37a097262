//! The CUDA call tracer: `bpf/cuda.bpf.c` from user space.

pub mod record;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use aya::Ebpf;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::uprobe::{UProbeAttachLocation, UProbeLink, UProbeScope};
use aya::programs::{BtfTracePoint, Iter, UProbe};

use self::record::{Call, Record};
use crate::attach::{AttachError, Attacher, Attachment, Ends, Mode, Point, ProgramNames};
use crate::load::{Kernel, StartError};
use crate::ring::{Ring, wakeup_bytes_of_cpu};

static OBJECT: &[u8] = crate::object!("cuda");

const PROGRAMS: ProgramNames = ProgramNames {
    session: "cuda_session",
    entry: "cuda_entry",
    entry_bucket: "cuda_entry_bucket",
    returns: "cuda_return",
    instant: "cuda_instant",
    instant_bucket: "cuda_instant_bucket",
    bucket_map: "buckets",
};

/// The programs that look at all threads.
const OPEN_CALLS: &str = "cuda_open_calls";
const STUCK_CALLS: &str = "cuda_stuck_calls";

/// The words of `struct counters` of `bpf/cuda.h`.
const COUNTERS: usize = 6;

/// Distinct symbols that can be described at most (`MAX_SYMBOLS` of `bpf/cuda.h`).
pub const MAX_SYMBOLS: u32 = 8192;

/// How to trace.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Write calls inside other traced calls too.
    pub nested: bool,
    /// Trace only processes given to [`Tracer::watch_process`], else all.
    pub only_watched: bool,
    /// Watch children of watched processes from their fork on.
    pub follow_children: bool,
    /// Set no return probe in processes under seccomp. Works in [`Mode::Session`] alone, where an entry can decline its
    /// return; elsewhere libraries that such processes map are to be attached with [`Ends::Entries`].
    pub spare_seccomp: bool,
    /// Set no return probe at all, in [`Mode::Session`].
    pub entry_only: bool,
    /// How long a call has to be open for [`Tracer::stuck_calls`], ns.
    pub stuck_ns: u64,
    /// Size of the ring buffer, bytes; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
    /// The tier to use; `None` for the best there is.
    pub mode: Option<Mode>,
}

/// What is kept of a call of one symbol beside its times and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SymbolSpec {
    /// Argument words, at most [`record::MAX_WORDS`].
    pub words: u8,
    /// Memory behind an argument, read at the entry.
    pub input: Option<Input>,
    /// An out-parameter, read after a return of 0.
    pub output: Option<Output>,
}

/// Memory to read at the entry of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input {
    /// The argument word that points to it.
    pub word: u8,
    /// Where to begin behind the pointer, bytes.
    pub offset_bytes: u16,
    /// 8-byte words to read, at most [`record::MAX_IN_WORDS`].
    pub words: u8,
}

/// Memory to read at the return of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The argument word that points to it, among the kept ones.
    pub word: u8,
    /// 4 or 8.
    pub bytes: u8,
}

impl SymbolSpec {
    /// `struct symbol_spec` of `bpf/cuda.h`.
    fn to_bytes(self) -> [u8; 8] {
        let input = self.input.unwrap_or(Input { word: 0, offset_bytes: 0, words: 0 });
        let output = self.output.unwrap_or(Output { word: 0, bytes: 0 });
        let [low, high] = input.offset_bytes.to_le_bytes();
        [self.words, input.word, input.words, output.bytes, output.word, 0, low, high]
    }
}

/// What the BPF side has counted since it was loaded. `seen` = records in the ring + everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Calls that ended and ought to be a record.
    pub seen: u64,
    /// Lost because the ring had no room.
    pub ring_full: u64,
    /// Lost because the thread's open calls could not be stored.
    pub map_full: u64,
    /// Lost because entry and return do not belong together.
    pub unmatched: u64,
    /// Lost because too many calls were open in one thread.
    pub too_deep: u64,
}

impl Counters {
    /// All that is lost.
    pub fn lost(&self) -> u64 {
        self.ring_full + self.map_full + self.unmatched + self.too_deep
    }
}

/// The probe on a dynamic linker, see [`Tracer::hook_linker`].
#[derive(Debug)]
pub struct LinkerHook {
    _link: UProbeLink,
}

/// The loaded tracer.
pub struct Tracer {
    ebpf: Ebpf,
    attacher: Attacher,
    ring: Ring,
    symbols: Array<MapData, [u8; 8]>,
    tgids: HashMap<MapData, u32, u8>,
    linking: HashMap<MapData, u32, u64>,
    linker_hook_loaded: bool,
    counters: PerCpuArray<MapData, [u64; COUNTERS]>,
    lost_since: Array<MapData, u64>,
    stop_at: Array<MapData, u64>,
}

impl Tracer {
    /// Loads the programs; no library is probed yet.
    ///
    /// # Errors
    /// A [`StartError`] that names what this machine lacks.
    pub fn new(kernel: &Kernel, config: Config) -> Result<Self, StartError> {
        let ring_bytes = config.ring_bytes.max(4096).checked_next_power_of_two().unwrap_or(1 << 31);
        let cpus = aya::util::nr_cpus().map_err(|(what, error)| StartError::refused(what, &error))?;
        let globals = Globals {
            nested: config.nested.into(),
            only_watched: config.only_watched.into(),
            follow_children: config.follow_children.into(),
            spare_seccomp: config.spare_seccomp.into(),
            entry_only: config.entry_only.into(),
            stuck_ns: config.stuck_ns,
            wakeup_bytes: wakeup_bytes_of_cpu(ring_bytes, cpus),
        };
        // The loader borrows what it overrides for as long as the kernel's types.
        let mut ebpf = {
            let globals = &globals;
            kernel.load(OBJECT, |loader| {
                loader
                    .override_global("nested", &globals.nested, true)
                    .override_global("filter_tgids", &globals.only_watched, true)
                    .override_global("follow_children", &globals.follow_children, true)
                    .override_global("spare_seccomp", &globals.spare_seccomp, true)
                    .override_global("entry_only", &globals.entry_only, true)
                    .override_global("stuck_ns", &globals.stuck_ns, true)
                    .override_global("ring_wakeup_bytes", &globals.wakeup_bytes, true)
                    .map_max_entries("events", ring_bytes);
            })?
        };
        let attacher = Attacher::new(kernel, OBJECT, &mut ebpf, PROGRAMS, config.mode)?;
        for (program, event) in [
            ("cuda_fork", "sched_process_fork"),
            ("cuda_exec", "sched_process_exec"),
            ("cuda_exit", "sched_process_exit"),
        ] {
            attach_tracepoint(kernel, &mut ebpf, program, event)?;
        }
        let symbols = take(&mut ebpf, "symbols", Array::try_from)?;
        let tgids = take(&mut ebpf, "tgids", HashMap::try_from)?;
        let linking = take(&mut ebpf, "linking", HashMap::try_from)?;
        let counters = take(&mut ebpf, "counters", PerCpuArray::try_from)?;
        let lost_since = take(&mut ebpf, "lost_since", Array::try_from)?;
        let stop_at = take(&mut ebpf, "stop_at", Array::try_from)?;
        for program in [OPEN_CALLS, STUCK_CALLS] {
            load_iterator(kernel, &mut ebpf, program)?;
        }
        let ring = Ring::take(&mut ebpf, "events")?;
        let mut tracer = Self {
            ebpf,
            attacher,
            ring,
            symbols,
            tgids,
            linking,
            linker_hook_loaded: false,
            counters,
            lost_since,
            stop_at,
        };
        tracer.take_lost_since().map_err(|e| StartError::refused("map lost_since", &e))?;
        Ok(tracer)
    }

    /// The tier in use.
    pub fn mode(&self) -> Mode {
        self.attacher.mode()
    }

    /// The records.
    pub fn ring(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Describes symbol `index` to the BPF side, before it is attached. Undescribed symbols keep no arguments.
    ///
    /// # Errors
    /// When `index` is beyond [`MAX_SYMBOLS`].
    pub fn describe(&mut self, index: u32, spec: SymbolSpec) -> io::Result<()> {
        self.symbols.set(index, spec.to_bytes(), 0).map_err(io::Error::other)
    }

    /// Probes `points` of `library`, see [`Attacher::attach`].
    ///
    /// # Errors
    /// The kernel's words on this library.
    pub fn attach(&mut self, library: &File, points: &[Point], ends: Ends) -> Result<Attachment, AttachError> {
        self.attacher.attach(&mut self.ebpf, library, points, ends)
    }

    /// Whether attaching to libraries that appear later needs CAP_SYS_ADMIN, see [`Attacher::needs_admin`].
    ///
    /// # Errors
    /// What keeps it from being tried.
    pub fn needs_admin(&mut self) -> io::Result<bool> {
        self.attacher.needs_admin(&mut self.ebpf)
    }

    /// Watches a process: its forks and its end are told, and with [`Config::only_watched`] its calls are traced.
    ///
    /// # Errors
    /// When 65,536 processes are watched.
    pub fn watch_process(&mut self, pid: u32) -> io::Result<()> {
        self.tgids.insert(pid, 1, 0).map_err(io::Error::other)
    }

    /// Ends watching a process; threads of it that have called stay traced until they end. One that is not watched is no error.
    pub fn unwatch_process(&mut self, pid: u32) {
        let _ = self.tgids.remove(&pid);
    }

    /// The counts so far.
    ///
    /// # Errors
    /// The kernel's.
    pub fn counters(&self) -> io::Result<Counters> {
        let mut sum = [0u64; COUNTERS];
        let per_cpu = self.counters.get(&0, 0).map_err(io::Error::other)?;
        for cpu in per_cpu.iter() {
            for (sum, count) in sum.iter_mut().zip(cpu) {
                *sum += count;
            }
        }
        let [seen, ring_full, map_full, unmatched, too_deep, _unwoken_bytes] = sum;
        Ok(Counters { seen, ring_full, map_full, unmatched, too_deep })
    }

    /// The start of the earliest call that was lost since this was asked last, CLOCK_MONOTONIC ns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_lost_since(&mut self) -> io::Result<Option<u64>> {
        const NOTHING: u64 = u64::MAX;
        let since = self.lost_since.get(&0, 0).map_err(io::Error::other)?;
        if since != NOTHING {
            self.lost_since.set(0, NOTHING, 0).map_err(io::Error::other)?;
        }
        // Zero is what the map is created with.
        Ok((since != NOTHING && since != 0).then_some(since))
    }

    /// Makes watched processes wait, when their dynamic linker has mapped libraries, until [`Tracer::resume`] is called for
    /// the thread that a [`record::Record::Linked`] names, or a second has passed. For processes that we have
    /// started ourselves.
    ///
    /// `linker` is the dynamic linker's file, `offset` that of its function `_dl_debug_state`, bytes. Dropping the result takes
    /// the hook off.
    ///
    /// # Errors
    /// Before Linux 6.1, which has no programs that may be used so; and the kernel's words on the file.
    pub fn hook_linker(&mut self, linker: &File, offset: u64) -> io::Result<LinkerHook> {
        let program: &mut UProbe = self
            .ebpf
            .program_mut("cuda_linked")
            .ok_or(io::ErrorKind::NotFound)?
            .try_into()
            .map_err(io::Error::other)?;
        if !self.linker_hook_loaded {
            program.load().map_err(io::Error::other)?;
            self.linker_hook_loaded = true;
        }
        let path = format!("/proc/self/fd/{}", linker.as_raw_fd());
        let at = UProbeAttachLocation::AbsoluteOffset(offset);
        let id = program.attach(at, path, UProbeScope::AllProcesses).map_err(io::Error::other)?;
        Ok(LinkerHook { _link: program.take_link(id).map_err(io::Error::other)? })
    }

    /// Lets a thread go on that waits in its dynamic linker since `at_ns`. Returns whether it still did.
    pub fn resume(&mut self, tid: u32, at_ns: u64) -> bool {
        // It may have waited long enough already, and wait again by now, for another library.
        self.linking.get(&tid, 0).is_ok_and(|since| since == at_ns) && self.linking.remove(&tid).is_ok()
    }

    /// Calls that begin at or after `at_ns` (CLOCK_MONOTONIC, now) are none of ours any more: to be said before the
    /// first probe goes, since they cannot all go at once.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stop(&mut self, at_ns: u64) -> io::Result<()> {
        self.stop_at.set(0, at_ns, 0).map_err(io::Error::other)
    }

    /// Puts a record for each call that has not returned into the ring. To be called once, with everything detached.
    ///
    /// # Errors
    /// The kernel's.
    pub fn record_open_calls(&mut self) -> io::Result<()> {
        // They are in the ring; the program prints nothing.
        self.look_at_threads(OPEN_CALLS)?;
        Ok(())
    }

    /// Tells of each thread whose outermost call has been open for [`Config::stuck_ns`], once for each such call. The call's
    /// own record follows when it returns.
    ///
    /// # Errors
    /// The kernel's.
    pub fn stuck_calls(&mut self, mut each: impl FnMut(&Call<'_>)) -> io::Result<()> {
        for bytes in self.look_at_threads(STUCK_CALLS)?.chunks(record::LONGEST_CALL_BYTES) {
            if let Some(Record::Call(call)) = record::parse(bytes) {
                each(&call);
            }
        }
        Ok(())
    }

    /// Runs an iterator over all threads of the machine and returns what it prints.
    fn look_at_threads(&mut self, program: &str) -> io::Result<Vec<u8>> {
        let program: &mut Iter =
            self.ebpf.program_mut(program).ok_or(io::ErrorKind::NotFound)?.try_into().map_err(io::Error::other)?;
        let id = program.attach().map_err(io::Error::other)?;
        let link = program.take_link(id).map_err(io::Error::other)?;
        // Reading runs the program for each thread.
        let mut file = link.into_file().map_err(io::Error::other)?;
        let mut printed = Vec::new();
        file.read_to_end(&mut printed)?;
        Ok(printed)
    }
}

/// Globals of the object, kept until it is loaded.
struct Globals {
    nested: u8,
    only_watched: u8,
    follow_children: u8,
    spare_seccomp: u8,
    entry_only: u8,
    stuck_ns: u64,
    wakeup_bytes: u64,
}

fn take<M>(ebpf: &mut Ebpf, name: &str, convert: impl FnOnce(Map) -> Result<M, MapError>) -> Result<M, StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("map {name}"), e);
    let map = ebpf.take_map(name).ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?;
    convert(map).map_err(|e| refused(&e))
}

fn attach_tracepoint(kernel: &Kernel, ebpf: &mut Ebpf, name: &str, event: &str) -> Result<(), StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("program {name}"), e);
    let program: &mut BtfTracePoint = ebpf
        .program_mut(name)
        .ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?
        .try_into()
        .map_err(|e: aya::programs::ProgramError| refused(&e))?;
    program.load(event, kernel.btf()).map_err(|e| refused(&e))?;
    program.attach().map_err(|e| refused(&e))?;
    Ok(())
}

fn load_iterator(kernel: &Kernel, ebpf: &mut Ebpf, name: &str) -> Result<(), StartError> {
    let refused = |e: &(dyn std::error::Error + 'static)| StartError::refused(format!("program {name}"), e);
    let program: &mut Iter = ebpf
        .program_mut(name)
        .ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?
        .try_into()
        .map_err(|e: aya::programs::ProgramError| refused(&e))?;
    program.load("task", kernel.btf()).map_err(|e| refused(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_laid_out_as_the_program_reads_it() {
        let spec = SymbolSpec {
            words: 8,
            input: Some(Input { word: 1, offset_bytes: 0x0102, words: 5 }),
            output: Some(Output { word: 3, bytes: 8 }),
        };
        assert_eq!(spec.to_bytes(), [8, 1, 5, 8, 3, 0, 0x02, 0x01]);
        assert_eq!(SymbolSpec::default().to_bytes(), [0; 8]);
    }

    #[test]
    fn losses_add_up() {
        let counters = Counters { seen: 10, ring_full: 1, map_full: 2, unmatched: 3, too_deep: 4 };
        assert_eq!(counters.lost(), 10);
    }
}
