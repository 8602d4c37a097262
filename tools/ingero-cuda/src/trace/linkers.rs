//! The dynamic linkers through which a command of ours gets its libraries.

use std::fs::File;
use std::io;
use std::path::Path;

use ingero_common::discover::elf::ElfFile;

use super::Trace;

impl Trace<'_> {
    /// Makes the command's threads wait for us when they load libraries. Where that is not possible, libraries are found by
    /// looking often, and the first calls may be missed.
    pub(super) fn hook_linkers(&mut self) {
        for linker in linkers() {
            let hooked = linker.1.and_then(|offset| self.tracer.hook_linker(linker.0, offset));
            if let Err(error) = hooked {
                self.log.detail(format!("{}: libraries are found by looking: {error}", linker.0.display()));
            }
        }
    }
}

/// The dynamic linkers that programs of this machine name, each with the offset of the function that it calls when it has
/// mapped libraries.
fn linkers() -> Vec<(&'static Path, io::Result<u64>)> {
    const LINKERS: [&str; 4] = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ];
    const HOOK: &[u8] = b"_dl_debug_state";
    let offset = |path: &Path| {
        let file = File::open(path)?;
        let functions =
            ElfFile::new(&file).and_then(|elf| elf.functions(|name| name == HOOK)).map_err(io::Error::other)?;
        functions.list.first().map(|function| function.probe_offset).ok_or_else(|| io::ErrorKind::NotFound.into())
    };
    LINKERS.iter().map(Path::new).filter(|path| path.exists()).map(|path| (path, offset(path))).collect()
}
