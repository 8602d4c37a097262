//! All traced functions, by library.

mod cuda;
mod cudart;
mod nccl;

use ingero_common::discover::LibraryKind;

use super::op::Op;

/// The traced functions of one library.
#[must_use]
pub fn ops(kind: LibraryKind) -> &'static [Op] {
    match kind {
        LibraryKind::Cudart => cudart::OPS,
        LibraryKind::Cuda => cuda::OPS,
        LibraryKind::Nccl => nccl::OPS,
    }
}
