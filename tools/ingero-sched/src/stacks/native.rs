//! The function that a thread was in, outside of Python: the innermost one. Where it was called from would have to be worked out from
//! frame pointers, which most libraries do not keep.
//!
//! Files of traced processes are read piece by piece and never mapped: who truncates one would end us by a signal.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ingero_common::discover::elf::{ElfFile, SymbolTable};
use ingero_common::discover::{FileId, ProcFs, maps, open_mapped, python};

use super::Place;

/// What a process maps is read anew after this time at the earliest, where an address is in none of its mappings.
const REREAD: Duration = Duration::from_secs(1);
/// Functions of all files together; files beyond have no names.
const MAX_SYMBOLS: usize = 2_000_000;
/// Addresses that are remembered, and mappings of a process; beyond, all are forgotten.
const MAX_PLACES: usize = 65_536;
const MAX_MAPPINGS: usize = 65_536;
/// A function of which only the file is known.
const UNKNOWN: &str = "[unknown]";

/// What is known of the code of processes.
#[derive(Debug, Default)]
pub(crate) struct Natives {
    proc: ProcFs,
    processes: HashMap<u32, Code>,
    files: HashMap<FileId, Rc<SymbolTable>>,
    symbols: usize,
    places: HashMap<(u32, u64), Option<Place>>,
}

/// What a process maps for running it, by address.
#[derive(Debug)]
struct Code {
    mappings: Vec<Mapped>,
    read: Instant,
}

#[derive(Clone, Debug)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    path: Rc<str>,
    symbols: Option<Rc<SymbolTable>>,
    /// The line of `/proc/PID/maps`.
    line: Rc<[u8]>,
}

impl Natives {
    /// The function at `ip` of process `pid`; `None` where that is in no file, or is the interpreter's own: then Python's line says
    /// more.
    pub(super) fn place(&mut self, pid: u32, ip: u64) -> Option<Place> {
        if self.places.len() >= MAX_PLACES {
            self.places.clear();
        }
        if let Some(known) = self.places.get(&(pid, ip)) {
            return known.clone();
        }
        let place = self.look(pid, ip);
        self.places.insert((pid, ip), place.clone());
        place
    }

    /// The process has ended, or is another program now.
    pub(super) fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.places.retain(|(of, _), _| *of != pid);
    }

    fn look(&mut self, pid: u32, ip: u64) -> Option<Place> {
        let at = self.mapped(pid, ip)?;
        let mapped = &self.processes.get(&pid)?.mappings[at];
        let (path, offset) = (mapped.path.clone(), ip - mapped.start + mapped.offset);
        if python::is_python(path.as_bytes()) {
            return None;
        }
        let symbols = match &mapped.symbols {
            Some(symbols) => symbols.clone(),
            None => {
                let line = mapped.line.clone();
                let symbols = self.symbols(pid, &line);
                self.processes.get_mut(&pid)?.mappings[at].symbols = Some(symbols.clone());
                symbols
            }
        };
        let function = symbols.at(offset).map_or_else(|| UNKNOWN.to_owned(), demangled);
        Some(Place { function: function.into(), file: path, line: 0, lang: "native" })
    }

    /// Which mapping of a process holds this address.
    fn mapped(&mut self, pid: u32, ip: u64) -> Option<usize> {
        let find = |code: &Code| {
            let behind = code.mappings.partition_point(|mapped| mapped.start <= ip);
            behind.checked_sub(1).filter(|&at| ip < code.mappings[at].end)
        };
        let known = self.processes.get(&pid);
        if let Some(at) = known.and_then(find) {
            return Some(at);
        }
        if known.is_some_and(|code| code.read.elapsed() < REREAD) {
            return None;
        }
        let text = std::fs::read(format!("/proc/{pid}/maps")).ok()?;
        let lines = text.split(|&byte| byte == b'\n');
        let mapped = |line: &[u8]| {
            let mapping = maps::parse(line).next().filter(|mapping| mapping.exec && mapping.is_file())?;
            Some(Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                path: String::from_utf8_lossy(mapping.path).into(),
                symbols: None,
                line: line.into(),
            })
        };
        let mappings = lines.filter_map(mapped).take(MAX_MAPPINGS).collect();
        let code = Code { mappings, read: Instant::now() };
        let at = find(&code);
        self.processes.insert(pid, code);
        at
    }

    fn symbols(&mut self, pid: u32, line: &[u8]) -> Rc<SymbolTable> {
        let Some(mapping) = maps::parse(line).next() else { return Rc::default() };
        let id = FileId::mapped(&mapping);
        if let Some(symbols) = self.files.get(&id) {
            return symbols.clone();
        }
        let read = || {
            let file = open_mapped(&self.proc, pid, &mapping).ok()?;
            ElfFile::new(&file).ok()?.symbols().ok()
        };
        let symbols = if self.symbols < MAX_SYMBOLS { read() } else { None };
        let symbols: Rc<SymbolTable> = symbols.unwrap_or_default().into();
        self.symbols += symbols.len();
        self.files.insert(id, symbols.clone());
        symbols
    }
}

/// A name as its source has it, without parameters.
fn demangled(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    if let Ok(rust) = rustc_demangle::try_demangle(&text) {
        return format!("{rust:#}");
    }
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    let cpp = cpp_demangle::Symbol::new(name).ok().filter(|_| text.starts_with("_Z"));
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_source() {
        assert_eq!(demangled(b"memcpy"), "memcpy");
        assert_eq!(demangled(b"_ZN2at6native7softmaxERKNS_6TensorElb"), "at::native::softmax");
        assert_eq!(demangled(b"_RNvCskwGfYPst2Cb_7mycrate3foo"), "mycrate::foo");
        assert_eq!(demangled(b"_Znot\xff"), "_Znot\u{fffd}");
    }

    #[test]
    fn a_place_in_this_process_is_known_and_one_in_no_file_is_not() {
        let mut natives = Natives::default();
        let own = names_are_those_of_the_source as fn() as usize as u64;
        let place = natives.place(std::process::id(), own + 1).unwrap();
        assert!(place.function.ends_with("native::tests::names_are_those_of_the_source"), "{place:?}");
        assert!(place.file.contains("ingero_sched") && place.lang == "native", "{place:?}");
        assert_eq!(natives.place(std::process::id(), 4096), None);
        natives.forget(std::process::id());
        assert!(natives.places.is_empty() && natives.processes.is_empty());
    }
}
