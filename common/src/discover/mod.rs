//! Which processes use CUDA, through which library files, and where in those files the functions lie.
//!
//! Three questions, three layers:
//!
//! * [`ProcFs`]: what does `/proc` say of a process (maps, threads, parents, seccomp)?
//! * [`elf::ElfFile`]: which functions does an ELF file define, at which *file* offset, and how does each begin?
//! * [`Scanner`]: which process-library pairs are new since the last look?
//!
//! ```no_run
//! use ingero_common::discover::{elf::ElfFile, Scanner};
//!
//! let mut scanner = Scanner::new();
//! for found in scanner.scan()?.appeared {
//!     for library in &found.libraries {
//!         let file = library.open()?;
//!         let functions = ElfFile::new(&file)?.functions(|name| name.starts_with(b"cu"))?;
//!         println!("{} {:?} {}", found.process.pid, library.kind, functions.list.len());
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Everything read here is written by others: paths are bytes, ELF headers may lie, and a process may be gone
//! between two reads. A vanished process is never an error; a lying file is an error of that file alone.

pub mod elf;
mod elf_error;
mod identity;
pub mod insn;
pub mod ldcache;
mod library;
pub mod maps;
mod namespaces;
mod procfs;
pub mod python;
mod resolve;
mod scanner;

pub use elf_error::ElfError;
pub use library::{FileId, Library, LibraryKind, inspect_file};
pub use namespaces::Numbered;
pub use procfs::{ProcFs, Process, Seccomp, Stat, Thread, is_gone, may_look_at_others};
pub use resolve::open_mapped;
pub use scanner::{Found, GoneProcess, SWEEP_BUDGET, Scan, ScanCost, Scanner};
