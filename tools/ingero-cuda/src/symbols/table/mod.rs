//! The signatures of all traced functions, by library.

mod cuda;
mod cudart;
mod nccl;

use ingero_common::cuda_api::Function;
use ingero_common::discover::LibraryKind;

use super::signature::Signature;

/// The signatures of one library's traced functions.
pub(super) fn signatures(kind: LibraryKind) -> &'static [Signature] {
    match kind {
        LibraryKind::Cudart => cudart::SIGNATURES,
        LibraryKind::Cuda => cuda::SIGNATURES,
        LibraryKind::Nccl => nccl::SIGNATURES,
    }
}

/// The traced functions of one library.
pub fn functions(kind: LibraryKind) -> impl Iterator<Item = &'static Function> {
    signatures(kind).iter().map(|signature| signature.function)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ingero_common::cuda_api;
    use ingero_common::discover::insn::Arch;

    use super::*;
    use crate::symbols::{MAX_WORDS, lookup};

    /// The other way round, a signature without a function does not compile.
    #[test]
    fn every_traced_function_has_one_signature() {
        let traced: BTreeSet<&str> =
            cuda_api::functions().filter(|function| function.traced).map(|function| function.name).collect();
        let with_signature: Vec<&str> =
            LibraryKind::ALL.into_iter().flat_map(functions).map(|function| function.name).collect();
        assert_eq!(with_signature.iter().copied().collect::<BTreeSet<_>>(), traced);
        assert_eq!(with_signature.len(), traced.len(), "a function has two signatures");
    }

    #[test]
    fn every_name_is_found_under_itself() {
        for kind in LibraryKind::ALL {
            for function in functions(kind) {
                let (found, _) = lookup(kind, function.name, Arch::X86_64).unwrap();
                assert_eq!(found, function, "its name ends like a variant of another");
            }
        }
    }

    #[test]
    fn every_signature_fits_into_what_is_kept() {
        for arch in [Arch::X86_64, Arch::Aarch64] {
            for kind in LibraryKind::ALL {
                for Function { name, .. } in functions(kind) {
                    for version in ["", "_v2", "_v3", "_v4"] {
                        let (_, decoder) = lookup(kind, &format!("{name}{version}"), arch).unwrap();
                        let spec = decoder.spec();
                        assert!(spec.words <= MAX_WORDS && spec.in_words <= 16, "{name}{version}: {spec:?}");
                        assert!(spec.in_words == 0 || spec.in_word < spec.words, "{name}{version}: {spec:?}");
                        assert!(spec.out_bytes == 0 || spec.out_word < spec.words, "{name}{version}: {spec:?}");
                    }
                }
            }
        }
    }
}
