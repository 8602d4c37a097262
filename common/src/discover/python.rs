//! Where the Python interpreter of a process keeps its state.
//!
//! CPython exports the variable `_PyRuntime` since 3.7, from `libpython3.X.so` or, where that is linked into it, from the program.
//! The words of its global lock (GIL) lie inside it, in all versions up to 3.14: in `_PyRuntime.ceval.gil` up to 3.11, since then in the
//! main interpreter, which is a part of it (`_PyRuntime._main_interpreter`). Other interpreters of the process have locks elsewhere.

use std::io;
use std::ops::Range;

use super::elf::{ElfFile, Variable};
use super::library::FileId;
use super::maps::{self, Mapping};
use super::procfs::ProcFs;
use super::resolve::{link_target, resolve};

/// Files of one process that are looked into: a process can map very many with such names.
const MAX_FILES: usize = 8;

/// An interpreter in a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Where `_PyRuntime` lies in the process's memory.
    pub words: Range<u64>,
    /// Major and minor version by the file's name (`libpython3.12.so.1.0`, `python3.11`), where that has one.
    pub version: Option<(u8, u8)>,
}

/// The interpreter of process `pid`; `None` where it is no Python, or one that does not export its state.
///
/// # Errors
/// When the process cannot be looked at, or has ended.
pub fn runtime_of(proc: &ProcFs, pid: u32) -> io::Result<Option<Runtime>> {
    let text = std::fs::read(proc.path(pid, "maps"))?;
    let mut looked_at: Vec<FileId> = Vec::new();
    let program = link_target(&proc.path(pid, "exe")).unwrap_or_default();
    let is_candidate = |mapping: &Mapping<'_>| mapping.path == program || is_python(mapping.path);
    for mapping in maps::parse(&text).filter(Mapping::is_file).filter(is_candidate) {
        let id = FileId::mapped(&mapping);
        if looked_at.contains(&id) {
            continue;
        }
        if looked_at.len() == MAX_FILES {
            break;
        }
        looked_at.push(id);
        let Ok(resolved) = resolve(proc, pid, &mapping) else { continue };
        let variable = ElfFile::new(&resolved.file).and_then(|elf| elf.variable(b"_PyRuntime"));
        let Ok(Some(variable)) = variable else { continue };
        let version = version(mapping.path);
        return Ok(place(&text, id, variable).map(|words| Runtime { words, version }));
    }
    Ok(None)
}

/// Whether a file of this path is, by its name, an interpreter: `python3.11`, `libpython3.12.so.1.0`, but no `_struct.cpython-312.so`, of which there are many.
pub fn is_python(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    name.starts_with(b"python") || name.starts_with(b"libpython")
}

/// `3.11` behind the last `python` of the file's name.
fn version(path: &[u8]) -> Option<(u8, u8)> {
    let name = std::str::from_utf8(path.rsplit(|&byte| byte == b'/').next()?).ok()?;
    let (_, version) = name.rsplit_once("python")?;
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where a variable of the file `id` lies.
fn place(text: &[u8], id: FileId, variable: Variable) -> Option<Range<u64>> {
    let mut all = maps::parse(text).filter(Mapping::is_file);
    let first = all.find(|mapping| FileId::mapped(mapping) == id && mapping.offset == variable.first_offset)?;
    let start = first.start.checked_add(variable.distance)?;
    Some(start..start.checked_add(variable.size_bytes)?)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_runtime_of_a_real_python_is_where_python_says() {
        let script = "import ctypes, sys; print(ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, '_PyRuntime')), flush=True); sys.stdin.read()";
        let mut python = Command::new("python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tests need python3");
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(python.stdout.as_mut().unwrap()), &mut line).unwrap();
        let found = runtime_of(&ProcFs::new("/proc"), python.id());
        drop(python.stdin.take());
        python.wait().unwrap();
        let runtime = found.unwrap().expect("this python exports _PyRuntime");
        assert_eq!(runtime.words.start, line.trim().parse::<u64>().unwrap());
        assert!(runtime.words.end - runtime.words.start > 10_000, "{runtime:?}");
        assert!(runtime.version.is_some_and(|version| version >= (3, 7)), "{runtime:?}");
    }

    #[test]
    fn a_version_is_in_the_name_of_the_file() {
        for (path, want) in [
            ("/usr/lib/libpython3.12.so.1.0", Some((3, 12))),
            ("/opt/python3.8/bin/python3.11", Some((3, 11))),
            ("/usr/bin/python3.13t", Some((3, 13))),
            ("/usr/bin/python3", None),
            ("/usr/bin/python", None),
            ("/app/server", None),
        ] {
            assert_eq!(version(path.as_bytes()), want, "{path}");
        }
    }

    #[test]
    fn other_processes_have_none() {
        assert_eq!(runtime_of(&ProcFs::new("/proc"), std::process::id()).unwrap(), None);
        assert!(runtime_of(&ProcFs::new("/proc"), u32::MAX).is_err());
    }
}
