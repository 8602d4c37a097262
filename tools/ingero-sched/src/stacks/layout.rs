//! Where CPython keeps what: offsets in bytes, by version, on 64-bit machines and in builds with a global lock.
//!
//! From 3.13 on the interpreter tells of its offsets itself (`_Py_DebugOffsets`, at the beginning of `_PyRuntime`). Those of earlier
//! versions are from their headers (Include/internal/pycore_*.h, Include/cpython/code.h), which do not change within a version.
//! A version that is not here is not read.

use std::io;

use ingero_common::discover::python::Runtime;
use ingero_ebpf::sched::stack::Python;

use super::lines::Form;
use super::memory::Memory;

/// How to read the code objects of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// In a code object.
    pub(crate) file: usize,
    pub(crate) name: usize,
    pub(crate) first_line: usize,
    pub(crate) table: usize,
    /// Where the instructions begin that `Python::instruction` points to; `None` where that is an index.
    pub(crate) instructions: Option<usize>,
    /// Bytes of each step of an index.
    pub(crate) step: i64,
    pub(crate) form: Form,
    /// The size of the head of a string, ASCII or another one.
    pub(crate) ascii: usize,
    pub(crate) compact: usize,
}

/// What is the same in all versions: in an object its type, in a type its name, in bytes their number and themselves, in a string
/// its length and kind.
pub(crate) const TYPE: usize = 8;
pub(crate) const TYPE_NAME: u64 = 24;
pub(crate) const BYTES_LEN: u64 = 16;
pub(crate) const BYTES: u64 = 32;
pub(crate) const TEXT_LEN: usize = 16;
pub(crate) const TEXT_STATE: usize = 32;
/// Of a code object so much is read at once: all that is looked at.
pub(crate) const CODE_BYTES: usize = 208;

const COOKIE: &[u8; 8] = b"xdebugpy";
/// In the lock: who had it last, and whether somebody has it.
const HOLDER: u16 = 8;
const LOCKED: u16 = 16;

/// What is found of an interpreter.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It can be read so.
    Known(Python, Layout),
    /// It has not begun yet.
    NotYet,
    /// It cannot be read; why.
    Unknown(String),
}

/// Looks at the interpreter of the process with this memory.
///
/// # Errors
/// When the memory cannot be read.
pub(crate) fn find(memory: &Memory, runtime: &Runtime) -> io::Result<Found> {
    let at = runtime.words.start;
    if memory.bytes::<8>(at)? == *COOKIE {
        return told(memory, at);
    }
    let Some((mut python, layout, places)) = runtime.version.and_then(by_version) else {
        return Ok(Found::Unknown(match runtime.version {
            Some((major, minor)) => format!("Python {major}.{minor} is not one of those that are known, 3.9 to 3.13"),
            None => "the version of its Python is not known".to_owned(),
        }));
    };
    python.interpreter = memory.word(at + places.main)?;
    if python.interpreter == 0 {
        return Ok(Found::NotYet);
    }
    python.gil = match places.gil {
        Gil::InRuntime(offset) => at + offset,
        Gil::Pointer(offset) => memory.word(python.interpreter + offset)?,
    };
    checked(memory, python, layout)
}

/// Where the runtime leads to its main interpreter, and to that one's lock.
struct Places {
    main: u64,
    gil: Gil,
}

enum Gil {
    InRuntime(u64),
    /// In the interpreter, a pointer to it.
    Pointer(u64),
}

fn by_version((major, minor): (u8, u8)) -> Option<(Python, Layout, Places)> {
    let python = Python { next: 8, holder: HOLDER, locked: LOCKED, ..Python::default() };
    let old = Layout {
        file: 104,
        name: 112,
        first_line: 40,
        table: 120,
        instructions: None,
        step: 1,
        form: Form::Lnotab,
        ascii: 48,
        compact: 72,
    };
    let old_python = Python {
        threads_head: 8,
        collecting: 816,
        thread_id: 176,
        frame: 24,
        current_frame: None,
        code: 32,
        previous: 24,
        instruction: 104,
        is_index: true,
        ..python
    };
    let old_places = Places { main: 40, gil: Gil::InRuntime(352) };
    // By qualified names since they are there.
    let new = Layout {
        file: 112,
        name: 128,
        first_line: 68,
        table: 136,
        instructions: Some(192),
        step: 1,
        form: Form::Locations,
        ascii: 40,
        compact: 56,
    };
    match (major, minor) {
        (3, 9) => Some((old_python, old, old_places)),
        (3, 10) => {
            Some((Python { instruction: 96, ..old_python }, Layout { form: Form::Pairs, step: 2, ..old }, old_places))
        }
        (3, 11) => Some((
            Python {
                threads_head: 16,
                collecting: 848,
                thread_id: 152,
                frame: 56,
                current_frame: Some(8),
                code: 32,
                previous: 48,
                instruction: 56,
                // All of its frames are Python's.
                owner: None,
                ..python
            },
            Layout { first_line: 72, instructions: Some(184), ascii: 48, compact: 72, ..new },
            Places { main: 48, gil: Gil::InRuntime(360) },
        )),
        (3, 12) => Some((
            Python {
                threads_head: 72,
                collecting: 312,
                thread_id: 136,
                frame: 56,
                current_frame: Some(0),
                code: 0,
                previous: 8,
                instruction: 56,
                owner: Some(70),
                ..python
            },
            new,
            Places { main: 48, gil: Gil::Pointer(384) },
        )),
        _ => None,
    }
}

/// Words of `_Py_DebugOffsets` as 3.13 has it (Include/internal/pycore_runtime.h), by their place.
mod offsets_3_13 {
    pub(super) const VERSION: usize = 1;
    pub(super) const FREE_THREADED: usize = 2;
    pub(super) const INTERPRETERS_HEAD: usize = 5;
    pub(super) const INTERPRETER_NEXT: usize = 8;
    pub(super) const THREADS_HEAD: usize = 9;
    pub(super) const GC: usize = 10;
    pub(super) const CEVAL_GIL: usize = 14;
    pub(super) const THREAD_NEXT: usize = 21;
    pub(super) const CURRENT_FRAME: usize = 23;
    pub(super) const THREAD_ID: usize = 24;
    pub(super) const PREVIOUS: usize = 29;
    pub(super) const EXECUTABLE: usize = 30;
    pub(super) const INSTR_PTR: usize = 31;
    pub(super) const OWNER: usize = 33;
    pub(super) const FILENAME: usize = 35;
    pub(super) const QUALNAME: usize = 37;
    pub(super) const LINETABLE: usize = 38;
    pub(super) const FIRSTLINENO: usize = 39;
    pub(super) const CO_CODE_ADAPTIVE: usize = 43;
    pub(super) const ASCIIOBJECT_SIZE: usize = 70;
    pub(super) const COLLECTING: usize = 72;
    pub(super) const WORDS: usize = 73;
}

/// The interpreter says itself.
fn told(memory: &Memory, at: u64) -> io::Result<Found> {
    use offsets_3_13::*;
    let bytes = memory.vec(at, WORDS * 8)?;
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
    let (major, minor) = (words[VERSION] >> 24, words[VERSION] >> 16 & 0xff);
    if words[FREE_THREADED] != 0 {
        return Ok(Found::Unknown(format!("its Python {major}.{minor} is a free-threaded build")));
    }
    if (major, minor) != (3, 13) {
        return Ok(Found::Unknown(format!("Python {major}.{minor} is not one of those that are known, 3.9 to 3.13")));
    }
    let offset = |at: usize| u16::try_from(words[at]).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
    // The main one is the last of the list: each new one comes in front.
    let mut interpreter = memory.word(at + words[INTERPRETERS_HEAD])?;
    for _ in 0..64 {
        match interpreter {
            0 => return Ok(Found::NotYet),
            found => match memory.word(found + words[INTERPRETER_NEXT])? {
                0 => break,
                next => interpreter = next,
            },
        }
    }
    let python = Python {
        interpreter,
        gil: memory.word(interpreter + words[CEVAL_GIL])?,
        threads_head: offset(THREADS_HEAD)?,
        collecting: offset(GC)?.saturating_add(offset(COLLECTING)?),
        next: offset(THREAD_NEXT)?,
        thread_id: offset(THREAD_ID)?,
        frame: offset(CURRENT_FRAME)?,
        current_frame: None,
        code: offset(EXECUTABLE)?,
        previous: offset(PREVIOUS)?,
        instruction: offset(INSTR_PTR)?,
        owner: Some(offset(OWNER)?),
        holder: HOLDER,
        locked: LOCKED,
        is_index: false,
    };
    let layout = Layout {
        file: offset(FILENAME)?.into(),
        name: offset(QUALNAME)?.into(),
        first_line: offset(FIRSTLINENO)?.into(),
        table: offset(LINETABLE)?.into(),
        instructions: Some(offset(CO_CODE_ADAPTIVE)?.into()),
        step: 1,
        form: Form::Locations,
        ascii: offset(ASCIIOBJECT_SIZE)?.into(),
        compact: usize::from(offset(ASCIIOBJECT_SIZE)?) + 16,
    };
    let largest = [layout.file, layout.name, layout.first_line, layout.table].into_iter().max().unwrap_or(0);
    if largest + 8 > CODE_BYTES {
        return Ok(Found::Unknown("the offsets that its Python tells of are none of a code object".to_owned()));
    }
    checked(memory, python, layout)
}

/// Takes it only if its first thread belongs to the interpreter: no offset is that wrong then.
fn checked(memory: &Memory, python: Python, layout: Layout) -> io::Result<Found> {
    let thread = memory.word(python.interpreter + u64::from(python.threads_head))?;
    if thread == 0 {
        return Ok(Found::NotYet);
    }
    // In all versions the interpreter stands behind the next thread.
    let of_thread = memory.word(thread + u64::from(python.next) + 8)?;
    Ok(match of_thread == python.interpreter {
        true => Found::Known(python, layout),
        false => Found::Unknown("its Python keeps its threads otherwise than its version does".to_owned()),
    })
}
