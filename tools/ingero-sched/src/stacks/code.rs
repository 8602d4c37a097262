//! Code objects of CPython: the function, its file, its lines.
//!
//! They are read a moment after the stack that they are on, while their process runs on. One that has been freed meanwhile does not
//! look like one any more: its type, and those of its parts, are checked, and so is that the instruction lies in it.

use std::io::{self, ErrorKind};

use super::layout::{BYTES, BYTES_LEN, CODE_BYTES, Layout, TEXT_LEN, TEXT_STATE, TYPE, TYPE_NAME};
use super::lines::{self};
use super::memory::Memory;

/// Longer names and paths are taken for garbage: PATH_MAX.
const MAX_TEXT: usize = 4_096;
/// A function of a hundred thousand lines.
const MAX_TABLE: usize = 1 << 20;

/// A function of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) file: String,
    first_line: u32,
    table: Vec<u8>,
}

impl Function {
    /// Reads the code object at `address`.
    ///
    /// # Errors
    /// When the memory cannot be read, or holds no code object.
    pub(crate) fn read(memory: &Memory, layout: &Layout, address: u64) -> io::Result<Self> {
        let head: [u8; CODE_BYTES] = memory.bytes(address)?;
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
        if type_name(memory, word(TYPE))? != *b"code\0" {
            return Err(ErrorKind::InvalidData.into());
        }
        let first = u32::from_ne_bytes(head[layout.first_line..layout.first_line + 4].try_into().unwrap_or_default());
        Ok(Self {
            name: text(memory, layout, word(layout.name))?,
            file: text(memory, layout, word(layout.file))?,
            first_line: first,
            table: table(memory, word(layout.table))?,
        })
    }

    /// The line of an instruction of the code object at `address`; `None` where it has none.
    pub(crate) fn line(&self, layout: &Layout, address: u64, instruction: u64) -> Option<u32> {
        let at = match layout.instructions {
            Some(begin) => instruction.wrapping_sub(address.wrapping_add(begin as u64)).cast_signed(),
            None => i64::from((instruction as u32).cast_signed()) * layout.step,
        };
        lines::line(layout.form, &self.table, self.first_line, at)
    }
}

/// The first bytes of the name of a type.
fn type_name(memory: &Memory, address: u64) -> io::Result<[u8; 5]> {
    memory.bytes(memory.word(address.wrapping_add(TYPE_NAME))?)
}

/// A `str`.
fn text(memory: &Memory, layout: &Layout, address: u64) -> io::Result<String> {
    let garbage = || io::Error::from(ErrorKind::InvalidData);
    let head: [u8; TEXT_STATE + 4] = memory.bytes(address)?;
    let len = u64::from_ne_bytes(head[TEXT_LEN..TEXT_LEN + 8].try_into().unwrap_or_default());
    let state = u32::from_ne_bytes(head[TEXT_STATE..].try_into().unwrap_or_default());
    // Two bits of interning, three of the kind (bytes of each character), compact, ASCII.
    let (kind, is_compact, is_ascii) = ((state >> 2 & 7) as usize, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    let len = usize::try_from(len).ok().filter(|&len| len <= MAX_TEXT && is_compact).ok_or_else(garbage)?;
    let begin = address.wrapping_add(if is_ascii { layout.ascii } else { layout.compact } as u64);
    let bytes = memory.vec(begin, len * kind.min(4))?;
    let characters: Vec<u32> = match kind {
        1 => bytes.iter().map(|&byte| byte.into()).collect(),
        2 => bytes.as_chunks::<2>().0.iter().map(|bytes| u16::from_ne_bytes(*bytes).into()).collect(),
        4 => bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect(),
        _ => return Err(garbage()),
    };
    // A path that is no UTF-8 has surrogates in it.
    Ok(characters.into_iter().map(|number| char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// A `bytes`.
fn table(memory: &Memory, address: u64) -> io::Result<Vec<u8>> {
    if type_name(memory, memory.word(address.wrapping_add(TYPE as u64))?)? != *b"bytes" {
        return Err(ErrorKind::InvalidData.into());
    }
    let len = memory.word(address.wrapping_add(BYTES_LEN))?;
    let len = usize::try_from(len).ok().filter(|&len| len <= MAX_TABLE).ok_or(ErrorKind::InvalidData)?;
    memory.vec(address.wrapping_add(BYTES), len)
}
