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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ingero_common::discover::insn::Arch;

    use super::*;
    use crate::symbols::{Drain, MAX_WORDS, OpClass, lookup};

    #[test]
    fn every_name_is_found_under_itself() {
        for kind in LibraryKind::ALL {
            let mut names = HashSet::new();
            for op in ops(kind) {
                assert!(names.insert(op.name), "{} is there twice", op.name);
                assert_eq!(op.layer, kind, "{}", op.name);
                let (found, _) = lookup(kind, op.name, Arch::X86_64).unwrap();
                assert_eq!(found.name, op.name, "its name ends like a variant of another");
            }
        }
    }

    #[test]
    fn names_belong_to_their_library() {
        for op in ops(LibraryKind::Cudart) {
            assert!(op.name.starts_with("cuda"), "{}", op.name);
        }
        for op in ops(LibraryKind::Cuda) {
            assert!(op.name.starts_with("cu") && op.name.as_bytes()[2].is_ascii_uppercase(), "{}", op.name);
        }
        for op in ops(LibraryKind::Nccl) {
            assert!(op.name.starts_with("nccl"), "{}", op.name);
        }
    }

    #[test]
    fn only_synchronisation_drains() {
        let drains = |kind| {
            let all = ops(kind).iter().filter(|op| op.drain != Drain::No);
            all.inspect(|op| assert_eq!(op.class, OpClass::Sync, "{}", op.name)).map(|op| op.name).collect::<Vec<_>>()
        };
        assert_eq!(
            drains(LibraryKind::Cudart),
            ["cudaDeviceSynchronize", "cudaThreadSynchronize", "cudaStreamSynchronize"]
        );
        assert_eq!(drains(LibraryKind::Cuda), ["cuCtxSynchronize", "cuStreamSynchronize"]);
        assert!(drains(LibraryKind::Nccl).is_empty());
    }

    #[test]
    fn every_signature_fits_into_what_is_kept() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            for kind in LibraryKind::ALL {
                for op in ops(kind) {
                    for version in ["", "_v2", "_v3", "_v4"] {
                        let (_, decoder) = lookup(kind, &format!("{}{version}", op.name), arch).unwrap();
                        let spec = decoder.spec();
                        assert!(spec.words <= MAX_WORDS && spec.in_words <= 16, "{}{version}: {spec:?}", op.name);
                        assert!(spec.in_words == 0 || spec.in_word < spec.words, "{}{version}: {spec:?}", op.name);
                        assert!(spec.out_bytes == 0 || spec.out_word < spec.words, "{}{version}: {spec:?}", op.name);
                    }
                }
            }
        }
    }
}
