//! Which copies of libcuda have their `cuInit` probed.
//!
//! A copy is probed once, however many processes map it: the kernel puts the breakpoint into each of them, now or later. So
//! processes that share a copy with an installed or an earlier one are noticed when they call cuInit, and not by a scan. Before
//! a copy is overwritten in place its probe goes, and afterwards it is looked at as a new one.

use std::collections::HashMap;
use std::fs::File;

use ingero_common::discover::elf::ElfFile;
use ingero_common::discover::{FileId, Library, LibraryKind};
use ingero_common::text::{Log, Printable};
use ingero_ebpf::guard::Kept;
use ingero_ebpf::hold::Hold;
use ingero_ebpf::sched::Tracer;

/// The files that were probed, or tried.
#[derive(Debug, Default)]
pub(crate) struct CudaLibraries(HashMap<FileId, Copy>);

#[derive(Debug)]
struct Copy {
    library: Library,
    file: File,
    state: State,
}

#[derive(Debug)]
enum State {
    Probed(Kept),
    /// Somebody has it open for writing.
    WrittenTo,
    /// Not probed, for good.
    Refused,
}

impl CudaLibraries {
    /// Probes those of `libraries` that are new, where the kernel side can. One that cannot be is said once; its processes are
    /// found by the scans.
    pub(crate) fn probe(&mut self, tracer: &mut Tracer, libraries: &[Library], log: &Log) {
        if !tracer.has_cu_init() {
            return;
        }
        for library in libraries.iter().filter(|library| library.kind == LibraryKind::Cuda) {
            if self.0.contains_key(&library.id) {
                continue;
            }
            // What cannot be opened now, its process having ended, may be opened through the next one that maps it.
            let Ok(file) = library.open() else { continue };
            let state = probe(tracer, library, &file, log);
            self.0.insert(library.id, Copy { library: library.clone(), file, state });
        }
    }

    /// Probes again those that were written to and are not any more.
    pub(crate) fn follow_files(&mut self, tracer: &mut Tracer, log: &Log) {
        for copy in self.0.values_mut() {
            let again = match &copy.state {
                State::Probed(kept) => kept.gone_since_ns().is_some(),
                State::WrittenTo => true,
                State::Refused => false,
            };
            if again {
                copy.state = probe(tracer, &copy.library, &copy.file, log);
            }
        }
    }
}

fn probe(tracer: &mut Tracer, library: &Library, file: &File, log: &Log) -> State {
    let name = Printable(&library.path);
    // Held first, so that what is read of the file is what the probe lies on.
    let hold = match Hold::take(file) {
        Ok(Some(hold)) => Ok(hold),
        Ok(None) => return State::WrittenTo,
        Err(error) => Err(error.to_string()),
    };
    let probed = hold.and_then(|hold| {
        let offset = cu_init(file)?;
        tracer.probe_cu_init(file, hold, offset).map_err(|error| error.to_string())
    });
    let why = match probed {
        Ok(kept) => {
            log.detail(format!("cuInit in {name} is probed"));
            return State::Probed(kept);
        }
        Err(why) => why,
    };
    log.warn(format!(
        "cuInit in {name} is not probed ({why}): processes that use it are found a little later, by looking"
    ));
    State::Refused
}

/// Where the probe on `cuInit` belongs, as an offset in the file.
fn cu_init(file: &File) -> Result<u64, String> {
    let functions = ElfFile::new(file)
        .and_then(|elf| elf.functions(|name| name == b"cuInit"))
        .map_err(|e| format!("reading its symbols: {e}"))?;
    let function = functions.list.first().ok_or("it has no such function")?;
    Ok(function.probe_offset)
}
