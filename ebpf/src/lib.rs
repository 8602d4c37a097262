//! The BPF programs of the suite, their loader, and the ways to attach them.
//!
//! - [`load`]: start-up checks and loading, with errors that name the missing thing and its cure.
//! - [`ring`]: the consumer of a BPF ring buffer.
//! - [`attach`]: user space probes on many functions at once, by the best means that the kernel has.
//! - [`guard`]: probes that are gone before the file under them changes, and [`hold`], by which that is known.
//! - [`cuda`]: the CUDA call tracer: its programs, events and counters.
//! - [`sched`]: the scheduler tracer: its programs, events and counters.
//!
//! This is the only crate with `unsafe` in it, and all of that is in the private module `sys`.
//!
//! Minimum kernel: 5.15 (attach cookies), with BTF.

/// One compiled BPF object, built from `bpf/NAME.bpf.c` by the build script and aligned as an ELF file has to be.
macro_rules! object {
    ($name:literal) => {
        aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o"))
    };
}
pub(crate) use object;

pub mod attach;
pub mod cuda;
pub mod guard;
pub mod hold;
pub mod load;
mod program;
pub mod ring;
pub mod sched;
mod sys;
