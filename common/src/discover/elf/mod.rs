//! Functions of an ELF file: names, file offsets, and how each begins.
//!
//! A uprobe is placed at an offset in a *file*, a symbol has a virtual *address*. The program headers translate:
//!
//! ```text
//! LOAD  offset 0xe000  vaddr 0x40e000  filesz 0x8c000  R E
//! symbol cudaMalloc = 0x45d6b0         offset = 0x45d6b0 - 0x40e000 + 0xe000 = 0x5d6b0
//! ```
//!
//! The file belongs to somebody else. Every length in it is checked before anything is allocated, no table beyond
//! [`READ_LIMIT_BYTES`] is read, and a file that contradicts itself is an [`ElfError`](super::ElfError), never a panic.

mod file;
mod functions;
mod search;
mod symbols;
mod variable;

pub use file::{ElfFile, READ_LIMIT_BYTES};
pub use functions::{FUNCTION_LIMIT, Function, Functions};
pub use symbols::SymbolTable;
pub use variable::Variable;
