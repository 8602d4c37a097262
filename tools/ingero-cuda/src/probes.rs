//! Which library files are probed, and which symbol each event comes from.
//!
//! A file is probed once, however many processes map it: the kernel puts the breakpoints into every process that maps the
//! file, now or later. So a file stays probed when its last process ends, and the next one is traced from its first call.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ingero_common::cuda_api::Function;
use ingero_common::discover::{FileId, Library, LibraryKind, inspect_file, is_gone};
use ingero_ebpf::attach::{Attachment, Ends, Mode, Point};
use ingero_ebpf::cuda::{Input, MAX_SYMBOLS, Output, SymbolSpec, Tracer};

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
enum File {
    Probed {
        ends: Ends,
        _attachment: Attachment,
    },
    /// Tried, and why it is not. It is not tried again: nothing about a file changes.
    Refused(String),
}

/// Why a file is not probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProbed {
    /// Its process ended before the file was opened.
    Gone,
    /// In words, what is against it.
    Refused(String),
}

/// All probed files and all symbols.
#[derive(Debug, Default)]
pub struct Probes {
    files: HashMap<FileId, File>,
    symbols: Vec<SymbolInfo>,
    indices: HashMap<(LibraryKind, String), u32>,
    kinds: BTreeSet<LibraryKind>,
    attached: BTreeSet<String>,
}

impl Probes {
    /// The symbol that a record names.
    pub fn symbol(&self, index: u32) -> Option<&SymbolInfo> {
        self.symbols.get(index as usize)
    }

    /// Library files that are probed.
    pub fn files(&self) -> usize {
        self.files.values().filter(|file| matches!(file, File::Probed { .. })).count()
    }

    /// Probes a file unless it is probed already. One that was probed at both ends and must not be any more is probed anew.
    ///
    /// `libraries` are all that is in that one file, one for each kind.
    ///
    /// # Errors
    /// Why this file is not probed; a refusal is final and comes again when asked again.
    pub fn probe(&mut self, tracer: &mut Tracer, libraries: &[&Library], ends: Ends) -> Result<(), NotProbed> {
        let Some(first) = libraries.first() else { return Ok(()) };
        let id = first.id;
        let fewer = ends == Ends::Entries && matches!(self.files.get(&id), Some(File::Probed { ends: Ends::Both, .. }));
        if fewer {
            // Before anything that may fail: what matters is that the return probes go.
            self.files.remove(&id);
        }
        if !self.files.contains_key(&id) {
            // What cannot be opened now may be opened through the next process that maps it.
            let file = open(first)?;
            let file = match self.attach(tracer, &file, libraries, ends) {
                Ok(_attachment) => File::Probed { ends, _attachment },
                Err(why) => File::Refused(why),
            };
            self.files.insert(id, file);
        }
        match self.files.get(&id) {
            Some(File::Refused(why)) => Err(NotProbed::Refused(why.clone())),
            _ => Ok(()),
        }
    }

    fn attach(
        &mut self,
        tracer: &mut Tracer,
        file: &fs::File,
        libraries: &[&Library],
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
        let attachment = tracer.attach(file, &points, ends).map_err(|e| format!("{:#}", anyhow::Error::from(e)))?;
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

    /// Whether a file is probed at its entries alone.
    pub fn has_entries_only(&self, id: FileId) -> bool {
        matches!(self.files.get(&id), Some(File::Probed { ends: Ends::Entries, .. }))
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
        self.files.clear();
    }
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
