//! The stub library looks to a probe as NVIDIA's does: without that, the other tests would show nothing.

use std::collections::BTreeMap;
use std::path::Path;

use ingero_tests::{Output, wheels};
use ingero_workload::stub_dir;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSymbol};

/// Exported functions, `name -> (version, address)`.
fn exported(path: &Path) -> BTreeMap<String, (Option<String>, u64)> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file: ElfFile64<'_, Endianness> = ElfFile64::parse(&*bytes).unwrap();
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*bytes).unwrap();
    let versions = sections.versions(endian, &*bytes).unwrap();
    let version = |index| {
        let versions = versions.as_ref()?;
        let found = versions.version(versions.version_index(endian, index).into()).ok()??;
        Some(String::from_utf8_lossy(found.name()).into_owned())
    };
    let functions = file.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text);
    functions.map(|s| (s.name().unwrap().to_owned(), (version(s.index()), s.address()))).collect()
}

/// The first bytes of each function of an object.
#[cfg(target_arch = "x86_64")]
fn beginnings(path: &Path, functions: &BTreeMap<String, (Option<String>, u64)>) -> Vec<(String, u8)> {
    use object::ObjectSection;
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let first = |address| text.data_range(address, 1).unwrap().unwrap()[0];
    functions.iter().map(|(name, (_, address))| (name.clone(), first(*address))).collect()
}

#[test]
fn the_runtimes_export_what_the_real_ones_do_under_the_same_versions() {
    for major in [12, 13] {
        let real = exported(&wheels::cudart(major));
        let stub = exported(&stub_dir().join(format!("libcudart.so.{major}")));
        assert!(stub.len() > 60, "{} functions", stub.len());
        for (name, (version, _)) in &stub {
            let (real_version, _) = real.get(name).unwrap_or_else(|| panic!("CUDA {major} has no {name}"));
            assert_eq!(version.as_deref(), Some(format!("libcudart.so.{major}").as_str()), "{name}");
            assert_eq!(version, real_version, "{name}");
        }
    }
}

#[test]
fn the_driver_is_unversioned_and_every_function_has_an_address_of_its_own() {
    let mut stub = exported(&stub_dir().join("libcuda.so.1"));
    stub.retain(|name, _| name.starts_with("cu"));
    assert!(stub.len() > 80, "{} functions", stub.len());
    let addresses: std::collections::BTreeSet<_> = stub.values().map(|(_, address)| address).collect();
    assert_eq!(addresses.len(), stub.len());
    for (name, (version, _)) in stub {
        assert_eq!(version, None, "{name}");
    }
}

/// `push %rbp` is what the kernel emulates at a probe; another beginning costs several times as much.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_function_begins_as_the_real_ones_do() {
    const PUSH_RBP: u8 = 0x55;
    let mut libraries = vec![wheels::cudart(12), wheels::cudart(13)];
    libraries.extend(["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"].map(|name| stub_dir().join(name)));
    for library in libraries {
        let mut functions = exported(&library);
        // Not the internal ones: `__cudaGetProcAddress` of CUDA 13 begins with `xor`, and nobody traces it.
        functions.retain(|name, _| name.starts_with("cu"));
        let others: Vec<_> =
            beginnings(&library, &functions).into_iter().filter(|(_, byte)| *byte != PUSH_RBP).collect();
        assert!(others.is_empty(), "{}: {others:?}", library.display());
    }
}

#[test]
fn a_library_has_the_real_soname() {
    for name in ["libcuda.so.1", "libcudart.so.12", "libcudart.so.13"] {
        let mut readelf = std::process::Command::new("readelf");
        let said = Output::of(readelf.arg("--dynamic").arg(stub_dir().join(name))).exits(0).text();
        assert!(said.contains(&format!("soname: [{name}]")), "{said}");
    }
}
