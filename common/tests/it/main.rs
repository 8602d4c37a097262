//! Discovery against real ELF files and real processes, both made here with gcc.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod containers;
mod elf;
mod hostile;
mod scan;
mod support;
