//! The one table of CUDA functions that are traced, and how their arguments are read.
//!
//! ```text
//! exported name            cudaMemcpyAsync_ptsz
//! base operation           cudaMemcpyAsync        (suffixes _v2..v4, _ptsz, _ptds taken off)   -> `op`, and `sym`
//! signature                dst, src, size, kind, stream
//! calling convention       rdi, rsi, rdx,  rcx,  r8        (System V x86-64)
//! decoder                  word 2 -> bytes, word 3 -> dir, word 4 -> stream
//! ```
//!
//! The table gives signatures, `abi` turns a signature into places, and a [`Decoder`], made once for each attached
//! symbol, reads a call's words without allocating. What was not read is absent, never 0.
//!
//! Signatures are those of the public headers of CUDA 12.9 and 13.5 (`cuda_runtime_api.h`, `cuda.h`) and of NCCL 2.32
//! (`nccl.h`). Where the same exported name has different parameters in the two, what follows the difference is left
//! unread.

mod abi;
mod args;
mod decode;
mod list;
mod memory;
mod op;
mod select;
mod table;

pub use args::{Args, Decoded, Dir};
pub use decode::{Decoder, MAX_WORDS, Spec};
pub use list::{LibraryListing, write_listing};
pub use op::{Drain, Op, OpClass};
pub use select::{Selection, Symbol, lookup, symbols_in};
pub use table::ops;
