//! How the arguments of the traced CUDA functions are read. Which those are, and what they do, is in
//! [`ingero_common::cuda_api`].
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
mod select;
mod signature;
mod table;

pub use args::{Args, Decoded};
pub use decode::{Decoder, MAX_WORDS, Spec};
pub use list::{LibraryListing, write_listing};
pub use select::{Selection, Symbol, lookup, symbols_in};
pub use table::functions;
