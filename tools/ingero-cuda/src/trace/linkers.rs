//! The dynamic linkers through which a command of ours gets its libraries.

use std::fs::File;
use std::io;
use std::path::Path;

use ingero_common::discover::elf::ElfFile;
use ingero_ebpf::hold::Hold;

use super::Trace;

impl Trace<'_> {
    /// Makes the command's threads wait for us when they load libraries. Where that is not possible, libraries are found by
    /// looking often, and the first calls may be missed.
    pub(super) fn hook_linkers(&mut self) {
        for path in linkers() {
            if let Err(error) = self.hook_linker(path) {
                self.log.detail(format!("{}: libraries are found by looking: {error}", path.display()));
            }
        }
    }

    fn hook_linker(&mut self, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let hold = Hold::take(&file)?.ok_or(io::ErrorKind::ResourceBusy)?;
        let link = self.tracer.hook_linker(&file, hook_in(&file)?)?;
        self.hooks.push(self.probes.guard().keep(link, hold));
        Ok(())
    }
}

/// The dynamic linkers that programs of this machine name.
fn linkers() -> impl Iterator<Item = &'static Path> {
    const LINKERS: [&str; 4] = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib/ld-musl-x86_64.so.1",
        "/lib/ld-musl-aarch64.so.1",
    ];
    LINKERS.iter().map(Path::new).filter(|path| path.exists())
}

/// The offset of the function that a dynamic linker calls when it has mapped libraries.
fn hook_in(file: &File) -> io::Result<u64> {
    const HOOK: &[u8] = b"_dl_debug_state";
    let functions = ElfFile::new(file).and_then(|elf| elf.functions(|name| name == HOOK)).map_err(io::Error::other)?;
    functions.list.first().map(|function| function.probe_offset).ok_or_else(|| io::ErrorKind::NotFound.into())
}
