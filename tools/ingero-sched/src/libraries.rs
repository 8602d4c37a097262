//! Which copies of libcuda have their `cuInit` probed.
//!
//! A copy is probed once, however many processes map it: the kernel puts the breakpoint into each of them, now or later. So
//! processes that share a copy with an installed or an earlier one are noticed when they call cuInit, and not by a scan.

use std::collections::HashSet;

use ingero_common::discover::elf::ElfFile;
use ingero_common::discover::{FileId, Library, LibraryKind};
use ingero_common::text::{Log, Printable};
use ingero_ebpf::sched::Tracer;

/// The files that were probed, or tried: nothing about a file changes.
#[derive(Debug, Default)]
pub(crate) struct CudaLibraries(HashSet<FileId>);

impl CudaLibraries {
    /// Probes those of `libraries` that are new, where the kernel side can. One that cannot be is said once; its processes are found by the scans.
    pub(crate) fn probe(&mut self, tracer: &mut Tracer, libraries: &[Library], log: &Log) {
        if !tracer.has_cu_init() {
            return;
        }
        for library in libraries.iter().filter(|library| library.kind == LibraryKind::Cuda) {
            if self.0.contains(&library.id) {
                continue;
            }
            // What cannot be opened now, its process having ended, may be opened through the next one that maps it.
            let Ok(file) = library.open() else { continue };
            self.0.insert(library.id);
            let name = Printable(&library.path);
            match cu_init(&file).and_then(|offset| tracer.probe_cu_init(&file, offset).map_err(|e| e.to_string())) {
                Ok(()) => log.detail(format!("cuInit in {name} is probed")),
                Err(why) => log.warn(format!(
                    "cuInit in {name} is not probed ({why}): processes that use it are found a little later, by looking"
                )),
            }
        }
    }
}

/// Where the probe on `cuInit` belongs, as an offset in the file.
fn cu_init(file: &std::fs::File) -> Result<u64, String> {
    let functions = ElfFile::new(file)
        .and_then(|elf| elf.functions(|name| name == b"cuInit"))
        .map_err(|e| format!("reading its symbols: {e}"))?;
    let function = functions.list.first().ok_or("it has no such function")?;
    Ok(function.probe_offset)
}
