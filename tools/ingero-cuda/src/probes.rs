//! Which library files are probed, and which symbol each event comes from.
//!
//! A file is probed once, however many processes map it: the kernel puts the breakpoints into every process that maps the
//! file, now or later. So a file stays probed when its last process ends, and the next one is traced from its first call.
//! Before a file is written to, its probes go (`ingero_ebpf::guard`); when that is over it is looked at as a new one.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ingero_common::clock::mono_ns;
use ingero_common::cuda_api::Function;
use ingero_common::discover::{FileId, Library, LibraryKind, inspect_file, is_gone};
use ingero_ebpf::attach::{Attachment, Ends, Mode, Point};
use ingero_ebpf::cuda::{Input, MAX_SYMBOLS, Output, SymbolSpec, Tracer};
use ingero_ebpf::guard::{Guard, Kept};
use ingero_ebpf::hold::{Hold, Stamp};

use crate::symbols::{self, Decoder, Selection, Spec};

/// What the events of one symbol are written as.
#[derive(Debug)]
pub struct SymbolInfo {
    /// The function.
    pub function: &'static Function,
    /// The exported name where it differs.
    pub sym: Option<Box<str>>,
    /// Reads the arguments.
    pub decoder: Decoder,
}

/// One library file.
#[derive(Debug)]
enum State {
    Probed {
        ends: Ends,
        kept: Kept,
        file: fs::File,
        libraries: Vec<Library>,
    },
    /// Somebody has it open for writing. It is tried again and again.
    Written {
        ends: Ends,
        file: fs::File,
        libraries: Vec<Library>,
        /// Since when a file that was probed is not any more, CLOCK_MONOTONIC; `None` if it never was.
        since_ns: Option<u64>,
    },
    /// Tried, and why it is not. It is not tried again as long as nothing about the file changes.
    Refused {
        why: String,
        stamp: Option<Stamp>,
        path: Vec<u8>,
    },
}

/// Why a file is not probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProbed {
    /// Its process ended before the file was opened.
    Gone,
    /// Somebody has it open for writing; [`Probes::follow_files`] says when that is over.
    Written,
    /// In words, what is against it.
    Refused(String),
}

/// What has become of a file that is, or was to be, probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Its probes are gone, because somebody writes to it.
    TakenOff(FileId),
    /// It is probed, as a new file. It had probes until `since_ns`, CLOCK_MONOTONIC, if it ever had.
    Probed {
        /// The file.
        id: FileId,
        /// When its probes were missed first.
        since_ns: Option<u64>,
    },
    /// It is not probed any more.
    Refused {
        /// The file.
        id: FileId,
        /// In words, what is against it.
        why: String,
    },
}

/// All probed files and all symbols.
#[derive(Debug)]
pub struct Probes {
    guard: Guard,
    files: HashMap<FileId, State>,
    symbols: Vec<SymbolInfo>,
    indices: HashMap<(LibraryKind, String), u32>,
    kinds: BTreeSet<LibraryKind>,
    attached: BTreeSet<String>,
    /// How many files may be probed.
    limit: usize,
    /// From when to when the probes of a file were being placed, CLOCK_MONOTONIC, of late.
    placing: Vec<(u64, u64)>,
}

impl Probes {
    /// Nothing is probed yet.
    ///
    /// # Errors
    /// What keeps the files' guard from starting.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            guard: Guard::new()?,
            files: HashMap::new(),
            symbols: Vec::new(),
            indices: HashMap::new(),
            kinds: BTreeSet::new(),
            attached: BTreeSet::new(),
            limit: MOST_FILES,
            placing: Vec::new(),
        })
    }

    /// The symbol that a record names.
    pub fn symbol(&self, index: u32) -> Option<&SymbolInfo> {
        self.symbols.get(index as usize)
    }

    /// Library files that are probed.
    pub fn files(&self) -> usize {
        self.files.values().filter(|file| matches!(file, State::Probed { .. })).count()
    }

    /// Sets how many files may be probed, by how many may be open.
    pub fn limit_by(&mut self, open_files: u64, mode: Mode) {
        let fit = open_files.saturating_sub(FILES_FOR_ALL_ELSE) / mode.files_of_library();
        self.limit = usize::try_from(fit).unwrap_or(usize::MAX).clamp(1, MOST_FILES);
    }

    /// Whether no more files may be probed.
    pub fn is_full(&self) -> bool {
        self.files() >= self.limit
    }

    /// Whether it is known what to do with a file: it is probed, or was tried.
    pub fn knows(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    /// Files that are probed.
    pub fn probed(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().filter(|(_, file)| matches!(file, State::Probed { .. })).map(|(id, _)| *id)
    }

    /// Takes the probes off a file, for another one's sake.
    pub fn give_up(&mut self, id: FileId) {
        self.files.remove(&id);
    }

    /// The guard of the files, which also takes the probes off others.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Probes a file unless it is probed already. One that was probed at both ends and must not be any more is probed anew.
    ///
    /// `libraries` are all that is in that one file, one for each kind.
    ///
    /// # Errors
    /// Why this file is not probed; a refusal comes again when asked again, until the file changes.
    pub fn probe(&mut self, tracer: &mut Tracer, libraries: &[&Library], ends: Ends) -> Result<(), NotProbed> {
        let Some(first) = libraries.first() else { return Ok(()) };
        let id = first.id;
        match self.files.get_mut(&id) {
            // Before anything that may fail: what matters is that the return probes go.
            Some(State::Probed { ends: Ends::Both, .. }) if ends == Ends::Entries => {
                self.files.remove(&id);
            }
            Some(State::Probed { .. }) => return Ok(()),
            Some(State::Written { ends: planned, .. }) => {
                if ends == Ends::Entries {
                    *planned = ends;
                }
                return Err(NotProbed::Written);
            }
            Some(State::Refused { .. }) | None => {}
        }
        // What cannot be opened now may be opened through the next process that maps it.
        let file = open(first)?;
        if let Some(State::Refused { why, stamp, .. }) = self.files.get(&id)
            && Stamp::of(&file).ok() == *stamp
        {
            return Err(NotProbed::Refused(why.clone()));
        }
        let libraries = libraries.iter().map(|library| (*library).clone()).collect();
        let state = self.try_file(tracer, file, libraries, ends);
        let result = match &state {
            State::Probed { .. } => Ok(()),
            State::Written { .. } => Err(NotProbed::Written),
            State::Refused { why, .. } => Err(NotProbed::Refused(why.clone())),
        };
        self.files.insert(id, state);
        result
    }

    /// Whether there are files that wait for whoever writes to them to be done.
    pub fn is_waiting(&self) -> bool {
        self.files.values().any(|file| matches!(file, State::Written { .. }))
    }

    /// Whether a file waits for whoever writes to it to be done.
    pub fn is_written_to(&self, id: FileId) -> bool {
        matches!(self.files.get(&id), Some(State::Written { .. }))
    }

    /// Looks which files have lost their probes to a writer, and probes those again to which nobody writes any more.
    pub fn follow_files(&mut self, tracer: &mut Tracer) -> Vec<Change> {
        let mut changes = Vec::new();
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        for id in ids {
            match self.files.remove(&id) {
                Some(State::Probed { ends, kept, file, libraries }) if kept.gone_since_ns().is_some() => {
                    changes.push(Change::TakenOff(id));
                    self.files.insert(id, State::Written { ends, file, libraries, since_ns: kept.gone_since_ns() });
                }
                Some(State::Written { ends, file, libraries, since_ns }) => {
                    let state = self.look_again(tracer, file, libraries, ends, since_ns);
                    match &state {
                        State::Probed { .. } => changes.push(Change::Probed { id, since_ns }),
                        State::Refused { why, .. } => changes.push(Change::Refused { id, why: why.clone() }),
                        State::Written { .. } => {}
                    }
                    self.files.insert(id, state);
                }
                Some(other) => {
                    self.files.insert(id, other);
                }
                None => {}
            }
        }
        changes
    }

    /// Probes an open file, as far as that can be done now.
    fn try_file(&mut self, tracer: &mut Tracer, file: fs::File, libraries: Vec<Library>, ends: Ends) -> State {
        match Hold::take(&file) {
            Ok(Some(hold)) => self.probe_held(tracer, file, libraries, ends, hold),
            Ok(None) => State::Written { ends, file, libraries, since_ns: None },
            Err(error) => refused(&file, &libraries, format!("cannot look at it: {error}")),
        }
    }

    /// The same for a file that was written to: it may be anything now.
    fn look_again(
        &mut self,
        tracer: &mut Tracer,
        file: fs::File,
        libraries: Vec<Library>,
        ends: Ends,
        since_ns: Option<u64>,
    ) -> State {
        // Held first, so that what is read of it now is what the probes lie on.
        let hold = match Hold::take(&file) {
            Ok(Some(hold)) => hold,
            Ok(None) => return State::Written { ends, file, libraries, since_ns },
            Err(error) => return refused(&file, &libraries, format!("cannot look at it: {error}")),
        };
        match libraries.first().map(|library| library.look_again(&file)) {
            Some(Ok(now)) if !now.is_empty() => self.probe_held(tracer, file, now, ends, hold),
            Some(Err(error)) => refused(&file, &libraries, format!("it was written to: {error}")),
            _ => refused(&file, &libraries, "it was written to, and is no CUDA library any more".to_owned()),
        }
    }

    fn probe_held(
        &mut self,
        tracer: &mut Tracer,
        file: fs::File,
        libraries: Vec<Library>,
        ends: Ends,
        hold: Hold,
    ) -> State {
        match self.attach(tracer, &file, &libraries, ends) {
            Ok(attachment) => State::Probed { ends, kept: self.guard.keep(attachment, hold), file, libraries },
            Err(why) => refused(&file, &libraries, why),
        }
    }

    fn attach(
        &mut self,
        tracer: &mut Tracer,
        file: &fs::File,
        libraries: &[Library],
        ends: Ends,
    ) -> Result<Attachment, String> {
        let mut points = Vec::new();
        for library in libraries {
            let selection =
                symbols::symbols_in(library.kind, file).map_err(|e| format!("cannot read its symbols: {e}"))?;
            self.add_points(tracer, library.kind, selection, &mut points)?;
        }
        if points.is_empty() {
            return Err("it has no function that is traced".to_owned());
        }
        let began_ns = mono_ns();
        let attachment = tracer.attach(file, &points, ends);
        let now = mono_ns();
        self.placing.retain(|(_, placed_ns)| placed_ns + PLACING_KEPT_NS > now);
        self.placing.push((began_ns, now));
        let attachment = attachment.map_err(|e| format!("{:#}", anyhow::Error::from(e)))?;
        let only_essential = tracer.mode() == Mode::Perf;
        self.kinds.extend(libraries.iter().map(|library| library.kind));
        for point in points.iter().filter(|point| point.essential || !only_essential) {
            if let Some(info) = self.symbols.get(point.symbol as usize) {
                self.attached.insert(info.sym.as_deref().unwrap_or(info.function.name).to_owned());
            }
        }
        Ok(attachment)
    }

    /// Gives each symbol its number and describes it to the kernel side.
    fn add_points(
        &mut self,
        tracer: &mut Tracer,
        kind: LibraryKind,
        selection: Selection,
        points: &mut Vec<Point>,
    ) -> Result<(), String> {
        for symbol in selection.symbols {
            let (offset, essential) = (symbol.offset, ESSENTIAL.contains(&symbol.name.as_str()));
            let key = (kind, symbol.name);
            let index = match self.indices.get(&key) {
                Some(index) => *index,
                None => {
                    let index = self.symbols.len() as u32;
                    if index >= MAX_SYMBOLS {
                        return Err(format!("more than {MAX_SYMBOLS} different symbols"));
                    }
                    tracer
                        .describe(index, kernel_spec(symbol.decoder.spec()))
                        .map_err(|e| format!("cannot describe {}: {e}", key.1))?;
                    let sym = (key.1 != symbol.function.name).then(|| key.1.as_str().into());
                    self.symbols.push(SymbolInfo { function: symbol.function, sym, decoder: symbol.decoder });
                    self.indices.insert(key, index);
                    index
                }
            };
            points.push(Point { offset, symbol: index, essential });
        }
        Ok(())
    }

    /// Files that had probes and wait for a writer to be done, each with when its probes went, CLOCK_MONOTONIC.
    pub fn missing_since(&self) -> Vec<(FileId, u64)> {
        let written = self.files.iter().filter_map(|(id, state)| match state {
            State::Written { since_ns: Some(since_ns), .. } => Some((*id, *since_ns)),
            _ => None,
        });
        written.collect()
    }

    /// Where a file was found.
    pub fn path(&self, id: FileId) -> Option<&[u8]> {
        match self.files.get(&id)? {
            State::Probed { libraries, .. } | State::Written { libraries, .. } => {
                libraries.first().map(|library| library.path.as_slice())
            }
            State::Refused { path, .. } => Some(path),
        }
    }

    /// From when on the calls of a process are all seen that was seen to call at `at_ns`: the probes of a file are placed one
    /// after the other, and the first ones see calls when the last are not there yet.
    pub fn all_seen_from(&self, at_ns: u64) -> u64 {
        let meanwhile = self.placing.iter().filter(|(began_ns, placed_ns)| (*began_ns..*placed_ns).contains(&at_ns));
        meanwhile.map(|(_, placed_ns)| *placed_ns).max().unwrap_or(at_ns)
    }

    /// Whether a file is probed at its entries alone.
    pub fn has_entries_only(&self, id: FileId) -> bool {
        matches!(
            self.files.get(&id),
            Some(State::Probed { ends: Ends::Entries, .. } | State::Written { ends: Ends::Entries, .. })
        )
    }

    /// Exported names that are probed.
    pub fn attached(&self) -> Vec<&str> {
        self.attached.iter().map(String::as_str).collect()
    }

    /// Functions of the table that no probed file has, of those kinds of library that are probed at all.
    pub fn missing(&self) -> Vec<&'static str> {
        let present: BTreeSet<&str> = self
            .symbols
            .iter()
            .filter(|info| self.attached.contains(info.sym.as_deref().unwrap_or(info.function.name)))
            .map(|info| info.function.name)
            .collect();
        let wanted = self.kinds.iter().flat_map(|kind| symbols::functions(*kind)).map(|function| function.name);
        wanted.filter(|name| !present.contains(name)).collect()
    }

    /// Detaches everything. Symbols stay known, for records that are still on their way.
    pub fn detach(&mut self) {
        self.files.retain(|_, state| !matches!(state, State::Probed { .. }));
    }
}

fn refused(file: &fs::File, libraries: &[Library], why: String) -> State {
    let path = libraries.first().map(|library| library.path.clone()).unwrap_or_default();
    State::Refused { why, stamp: Stamp::of(file).ok(), path }
}

/// Opens a library: through its process, or, where that has just ended, by the same path here if it leads to the same
/// file. A program that runs for some milliseconds is over before it is looked at, and the next one maps the same library.
fn open(library: &Library) -> Result<fs::File, NotProbed> {
    let error = match library.open() {
        Ok(file) => return Ok(file),
        Err(error) => error,
    };
    let here = inspect_file(Path::new(OsStr::from_bytes(&library.path))).unwrap_or_default();
    if let Some(file) = here.iter().find(|here| here.id == library.id).and_then(|here| here.open().ok()) {
        return Ok(file);
    }
    if is_gone(&error) { Err(NotProbed::Gone) } else { Err(NotProbed::Refused(format!("cannot open it: {error}"))) }
}

/// Library files that are probed at most. Machines have a few dozen; more are a mistake, or somebody's way to blind us, and
/// each one takes some hundredths of a second to probe, in which nothing else is done.
const MOST_FILES: usize = 256;
/// Open files beside those of the probed libraries: maps, programs, tracepoints, what is being read.
const FILES_FOR_ALL_ELSE: u64 = 128;

/// The word of a call in the meantime may be in the ring for so long before it is read.
const PLACING_KEPT_NS: u64 = 60_000_000_000;

/// Exported names to probe where each probe takes 0.1 s to remove: what starts work, moves data, and waits for it.
const ESSENTIAL: [&str; 31] = [
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cudaGraphLaunch",
    "cudaMemcpy",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaMalloc",
    "cudaMallocAsync",
    "cudaFree",
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuGraphLaunch",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclBroadcast",
    "ncclSend",
    "ncclRecv",
    "ncclGroupEnd",
];

/// The same in the words of the kernel side.
fn kernel_spec(spec: Spec) -> SymbolSpec {
    SymbolSpec {
        words: spec.words,
        input: (spec.in_words > 0).then_some(Input {
            word: spec.in_word,
            offset_bytes: spec.in_offset,
            words: spec.in_words,
        }),
        output: (spec.out_bytes > 0).then_some(Output { word: spec.out_word, bytes: spec.out_bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The perf tier probes 16 functions of a library at most; beyond that, which ones would be left to chance.
    #[test]
    fn the_essential_functions_exist_and_are_few() {
        use ingero_common::discover::insn::Arch;
        let mut of_kind = std::collections::HashMap::<LibraryKind, usize>::new();
        for name in ESSENTIAL {
            let kind = LibraryKind::ALL.into_iter().find(|kind| symbols::lookup(*kind, name, Arch::X86_64).is_some());
            *of_kind.entry(kind.unwrap_or_else(|| panic!("{name} is in no table"))).or_default() += 1;
        }
        assert!(of_kind.len() == 3 && of_kind.values().all(|count| *count <= 16), "{of_kind:?}");
    }

    #[test]
    fn all_is_seen_when_the_last_probe_is_placed() {
        let mut probes = Probes::new().unwrap();
        probes.placing = vec![(100, 200), (200, 350)];
        // Before, in, between and after: a process that calls before its library is touched calls through another one.
        for (at_ns, from_ns) in [(99, 99), (100, 200), (199, 200), (200, 350), (350, 350), (900, 900)] {
            assert_eq!(probes.all_seen_from(at_ns), from_ns, "{at_ns}");
        }
    }

    #[test]
    fn every_signature_fits_what_the_kernel_side_keeps() {
        use ingero_common::discover::insn::Arch;
        use ingero_ebpf::cuda::record::{MAX_IN_WORDS, MAX_WORDS};
        for kind in LibraryKind::ALL {
            for function in symbols::functions(kind) {
                for arch in [Arch::X86_64, Arch::Aarch64] {
                    let spec = symbols::lookup(kind, function.name, arch).unwrap().1.spec();
                    assert!(usize::from(spec.words) <= MAX_WORDS, "{}", function.name);
                    assert!(usize::from(spec.in_words) <= MAX_IN_WORDS, "{}", function.name);
                    assert!(matches!(spec.out_bytes, 0 | 4 | 8), "{}", function.name);
                    // A pointer that is followed has to be among the words that are kept.
                    assert!(spec.in_words == 0 || spec.in_word < spec.words, "{}", function.name);
                    assert!(spec.out_bytes == 0 || spec.out_word < spec.words, "{}", function.name);
                }
            }
        }
    }
}
