//! Which of a library's functions get a probe, and under which name.

use std::collections::HashMap;
use std::fs::File;

use ingero_common::cuda_api::Function as ApiFunction;
use ingero_common::discover::elf::{ElfFile, Function, Functions};
use ingero_common::discover::insn::{Arch, FirstInsn};
use ingero_common::discover::{ElfError, LibraryKind};

use super::decode::Decoder;
use super::signature::Signature;
use super::table::signatures;

/// One place to probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The traced function.
    pub function: &'static ApiFunction,
    /// The exported name by which it was found.
    pub name: String,
    /// Offset of the probe in the file, bytes.
    pub offset: u64,
    /// How it begins, counted in listings.
    pub first: FirstInsn,
    /// Reads its arguments.
    pub decoder: Decoder,
}

impl Symbol {
    /// The exported name where it is not the operation's own: the `sym` of its records.
    #[must_use]
    pub fn sym(&self) -> Option<&str> {
        (self.name != self.function.name).then_some(self.name.as_str())
    }
}

/// What is to be probed in one library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// One for each distinct address, by offset.
    pub symbols: Vec<Symbol>,
    /// Functions left out because all they do is jump into another one that is probed.
    pub aliases: usize,
}

/// An exported name taken apart.
struct Parsed<'a> {
    signature: &'static Signature,
    name: &'a str,
    version: &'a str,
}

/// Finds the operation behind an exported name: `cudaMemcpy_ptds` and `pncclSend` as well as the bare ones.
///
/// Returns it with a decoder for that very variant.
#[must_use]
pub fn lookup(kind: LibraryKind, name: &str, arch: Arch) -> Option<(&'static ApiFunction, Decoder)> {
    let parsed = parse(kind, name)?;
    Some((parsed.signature.function, Decoder::new(parsed.signature, parsed.version, arch)))
}

fn parse(kind: LibraryKind, name: &str) -> Option<Parsed<'_>> {
    // NCCL exports every function twice, the second time for profilers that replace the first.
    let bare = match kind {
        LibraryKind::Nccl => name.strip_prefix('p').filter(|bare| bare.starts_with("nccl")).unwrap_or(name),
        _ => name,
    };
    // Variants for the per-thread default stream come last: `cuMemcpyHtoD_v2_ptds`.
    let bare = bare.strip_suffix("_ptsz").or_else(|| bare.strip_suffix("_ptds")).unwrap_or(bare);
    let base_length =
        ["_v2", "_v3", "_v4"].iter().find_map(|version| bare.strip_suffix(version)).map_or(bare.len(), str::len);
    let (base, version) = bare.split_at(base_length);
    let signature = signatures(kind).iter().find(|signature| signature.function.name == base)?;
    Some(Parsed { signature, name, version })
}

/// Reads a library's functions and chooses the probes among them.
///
/// # Errors
/// When the file is malformed, or a Go program.
pub fn symbols_in(kind: LibraryKind, file: &File) -> Result<Selection, ElfError> {
    let traced = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| parse(kind, name).is_some());
    Ok(select(kind, &ElfFile::new(file)?.functions(traced)?))
}

/// Chooses the probes for one library of one kind.
#[must_use]
pub(super) fn select(kind: LibraryKind, functions: &Functions) -> Selection {
    let mut selection = Selection { symbols: Vec::new(), aliases: 0 };
    let parsed: HashMap<usize, Parsed<'_>> = functions
        .list
        .iter()
        .enumerate()
        .filter_map(|(index, function)| Some((index, best_name(kind, function)?)))
        .collect();
    for (index, function) in functions.list.iter().enumerate() {
        let Some(found) = parsed.get(&index) else { continue };
        if function.alias_of.is_some_and(|target| parsed.contains_key(&target)) {
            selection.aliases += 1;
            continue;
        }
        selection.symbols.push(Symbol {
            function: found.signature.function,
            name: found.name.to_owned(),
            offset: function.probe_offset,
            first: function.first,
            decoder: Decoder::new(found.signature, found.version, functions.arch),
        });
    }
    selection
}

/// One address may have several names (an alias, or two equal functions folded into one by the linker): the operation's
/// own name if it is among them, else the shortest, else the first by alphabet.
fn best_name(kind: LibraryKind, function: &Function) -> Option<Parsed<'_>> {
    function
        .names
        .iter()
        .filter_map(|name| parse(kind, std::str::from_utf8(name).ok()?))
        .min_by_key(|parsed| (parsed.name != parsed.signature.function.name, parsed.name.len(), parsed.name))
}

#[cfg(test)]
mod tests {
    use ingero_common::discover::insn::Class;

    use super::*;

    fn base(kind: LibraryKind, name: &str) -> Option<&'static str> {
        parse(kind, name).map(|parsed| parsed.signature.function.name)
    }

    #[test]
    fn variants_of_a_name() {
        use LibraryKind::{Cuda, Cudart, Nccl};
        assert_eq!(base(Cudart, "cudaMemcpy_ptds"), Some("cudaMemcpy"));
        assert_eq!(base(Cudart, "cudaLaunchKernelExC_ptsz"), Some("cudaLaunchKernelExC"));
        assert_eq!(base(Cudart, "cudaMemPrefetchAsync_v2_ptsz"), Some("cudaMemPrefetchAsync"));
        assert_eq!(base(Cuda, "cuMemcpyHtoD_v2_ptds"), Some("cuMemcpyHtoD"));
        assert_eq!(base(Cuda, "cuCtxCreate_v4"), Some("cuCtxCreate"));
        assert_eq!(base(Nccl, "pncclAllReduce"), Some("ncclAllReduce"));
        for (kind, name) in [
            (Cudart, "__cudaLaunchKernel"),
            (Cudart, "cudaMemcpy_v"),
            (Cudart, "cudaMemcpy_ptsz_v2"),
            (Cudart, "cudaGetLastError"),
            (Cudart, "cuInit"),
            (Cuda, "cudaMalloc"),
            (Cuda, "pcuInit"),
            (Cuda, "cuInit_v5"),
            (Nccl, "ppncclAllReduce"),
            (Nccl, ""),
        ] {
            assert_eq!(base(kind, name), None, "{name}");
        }
    }

    fn function(names: &[&str], offset: u64, alias_of: Option<usize>) -> Function {
        Function {
            names: names.iter().map(|name| name.as_bytes().to_vec()).collect(),
            address: 0x1000 + offset,
            offset,
            size_bytes: 16,
            first: FirstInsn { class: Class::Frame, landing_pad: false, jump: None },
            probe_offset: offset + 4,
            alias_of,
        }
    }

    #[test]
    fn one_probe_for_each_function() {
        let list = vec![
            function(&["cuMemAlloc"], 0, None),
            function(&["cuMemAlloc_v2"], 16, None),
            function(&["cuMemAlloc_v2_ptsz"], 32, Some(1)),
            // What this one jumps to is not traced, so it is probed itself.
            function(&["cuInit"], 48, Some(4)),
            function(&["cuHidden"], 64, None),
            function(&["cuLaunchKernel_ptsz", "cuLaunchKernel", "a"], 80, None),
            function(&["cuEventQuery_v3", "cuEventQuery_v2"], 96, None),
        ];
        let functions = Functions { list, arch: Arch::X86_64, ifuncs: 0, misplaced: 0, from_symtab: 0 };
        let selection = select(LibraryKind::Cuda, &functions);
        let got: Vec<_> =
            selection.symbols.iter().map(|symbol| (symbol.function.name, symbol.sym(), symbol.offset)).collect();
        assert_eq!(
            got,
            [
                ("cuMemAlloc", None, 4),
                ("cuMemAlloc", Some("cuMemAlloc_v2"), 20),
                ("cuInit", None, 52),
                ("cuLaunchKernel", None, 84),
                ("cuEventQuery", Some("cuEventQuery_v2"), 100),
            ]
        );
        assert_eq!(selection.aliases, 1);
        assert_ne!(selection.symbols[0].decoder, selection.symbols[1].decoder, "32 and 64 bits");
    }
}
