//! Names, offsets and first instructions.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ingero_common::discover::elf::{ElfFile, Function, Functions};
use ingero_common::discover::insn::Class;
use ingero_common::discover::{ElfError, LibraryKind, inspect_file};

use crate::support::{DRIVER, gcc, library, run};

fn functions(path: &Path) -> Functions {
    let file = File::open(path).unwrap();
    ElfFile::new(&file).unwrap().functions(|name| name.starts_with(b"cu")).unwrap()
}

fn find<'a>(functions: &'a Functions, name: &str) -> &'a Function {
    functions.list.iter().find(|function| function.names.iter().any(|n| n == name.as_bytes())).unwrap_or_else(|| {
        panic!("{name} is not in {functions:#?}");
    })
}

/// Assembly for a function with exactly these lines.
fn function(name: &str, lines: &str) -> String {
    format!(".globl {name}\\n.type {name},@function\\n{name}:\\n{lines}\\n.size {name}, .-{name}\\n")
}

fn assembly(functions: &[String]) -> String {
    format!("__asm__(\".text\\n{}\");", functions.concat())
}

/// The function's code is where we say that it is.
#[cfg(target_arch = "x86_64")]
fn assert_returns(path: &Path, function: &Function, value: u32) {
    let mut code = [0; 5];
    File::open(path).unwrap().read_exact_at(&mut code, function.offset).unwrap();
    assert_eq!((code[0], u32::from_le_bytes(code[1..].try_into().unwrap())), (0xb8, value), "mov ${value:#x}, %eax");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn offsets_in_libraries_and_programs() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("libx.so");
    library(DRIVER, &lib, &["-fcf-protection=none"]);
    let found = functions(&lib);
    assert_returns(&lib, find(&found, "cuInit"), 0x1001);
    assert_returns(&lib, find(&found, "cuLaunchKernel"), 0x1002);
    assert_eq!((found.list.len(), found.from_symtab), (2, 0));

    // A program at a fixed address: virtual addresses are far from file offsets.
    let program = dir.path().join("program");
    gcc(&format!("{DRIVER} int main(void) {{ return 0; }}"), &program, &["-O1", "-no-pie", "-fcf-protection=none"]);
    let found = functions(&program);
    let init = find(&found, "cuInit");
    assert_ne!(init.address, init.offset);
    assert_returns(&program, init, 0x1001);
    assert_eq!(found.from_symtab, 2);
}

#[test]
fn versions_are_stripped_and_one_address_is_one_function() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("versions");
    std::fs::write(&script, "libcudart.so.12 { global: *; };").unwrap();
    let lib = dir.path().join("libx.so");
    let source = "
        int cudaMalloc(void) { return 1; }
        int cudaSame(void) __attribute__((alias(\"cudaMalloc\")));
        int cudaImported(void);
        int cudaUser(void) { return cudaImported() + 1; }
    ";
    library(source, &lib, &[&format!("-Wl,--version-script={}", script.display()), "-Wl,-soname,libcudart.so.12"]);
    let found = functions(&lib);
    let mut names = find(&found, "cudaMalloc").names.clone();
    names.sort();
    assert_eq!(names, [b"cudaMalloc".to_vec(), b"cudaSame".to_vec()]);
    assert_eq!(found.list.len(), 2, "what is only imported is no function of the file");
    let file = File::open(&lib).unwrap();
    let elf = ElfFile::new(&file).unwrap();
    assert!(elf.defines_any(&[b"cudaNever", b"cudaMalloc"]).unwrap());
    assert!(!elf.defines_any(&[b"cudaImported"]).unwrap());
    assert_eq!(elf.soname().unwrap().as_deref(), Some(&b"libcudart.so.12"[..]));
    let [library] = &inspect_file(&lib).unwrap()[..] else { panic!("one library") };
    assert_eq!((library.kind, library.is_static), (LibraryKind::Cudart, false));
    assert_eq!(library.version.as_deref(), Some("12"));
    library.open().unwrap();
}

#[test]
fn the_older_hash_table_is_understood_too() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("libx.so");
    library(DRIVER, &lib, &["-Wl,--hash-style=sysv"]);
    assert_eq!(inspect_file(&lib).unwrap()[0].kind, LibraryKind::Cuda);
    let other = dir.path().join("liby.so");
    library("int foo(void) { return 1; }", &other, &["-Wl,--hash-style=sysv"]);
    assert!(inspect_file(&other).unwrap().is_empty());
}

#[cfg(target_arch = "x86_64")]
#[test]
fn probes_sit_behind_landing_pads_and_jumps_are_followed() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("libx.so");
    let source = assembly(&[
        function("cuPad", "endbr64\\npush %rbp\\npop %rbp\\nret"),
        function("cuFrame", "push %rbp\\nmov %rsp,%rbp\\npop %rbp\\nret"),
        function("cuSub", "sub $8,%rsp\\nadd $8,%rsp\\nret"),
        function("cuDirect", ".byte 0xe9\\n.long cuHidden - . - 4"),
        function("cuEmptyFrame", "push %rbp\\nmov %rsp,%rbp\\npop %rbp\\n.byte 0xe9\\n.long cuHidden - . - 4"),
        function("cuInternal", ".byte 0xe9\\n.long helper - . - 4"),
        function("cuRingA", ".byte 0xe9\\n.long cuRingB_local - . - 4"),
        ".set cuHidden, cuSub\\n.set cuRingB_local, cuRingB\\n".to_owned(),
        function("cuRingB", ".byte 0xe9\\n.long cuRingA_local - . - 4"),
        ".set cuRingA_local, cuRingA\\n".to_owned(),
        "helper: xor %eax,%eax\\nret\\n".to_owned(),
    ]);
    // The references above are to local names, so that the linker needs no relocation for them.
    library(&source, &lib, &["-Wl,-Bsymbolic", "-Wl,-z,notext"]);
    let found = functions(&lib);
    let pad = find(&found, "cuPad");
    assert_eq!((pad.first.class, pad.probe_offset - pad.offset), (Class::Frame, 4));
    let frame = find(&found, "cuFrame");
    assert_eq!((frame.first.class, frame.probe_offset), (Class::Frame, frame.offset));
    assert_eq!(find(&found, "cuSub").first.class, Class::Sub);
    let target = |name| find(&found, name).alias_of.map(|index| &found.list[index].names);
    let sub = Some(&find(&found, "cuSub").names);
    assert_eq!(target("cuDirect"), sub);
    assert_eq!(target("cuEmptyFrame"), sub);
    // What it jumps to is not among the functions asked for, so it is probed itself.
    assert_eq!((find(&found, "cuInternal").first.class, target("cuInternal")), (Class::Jump, None));
    // Of two that jump into each other one stays.
    let ring = [target("cuRingA"), target("cuRingB")];
    assert_eq!(ring.iter().flatten().count(), 1, "{ring:?}");
}

/// Where a library's own functions may be replaced from outside, it calls them through its PLT, and the jump says only
/// which slot of the GOT it goes through.
#[cfg(target_arch = "x86_64")]
#[test]
fn jumps_are_followed_through_the_plt() {
    let dir = tempfile::tempdir().unwrap();
    let source = "
        int cuOther(void) { return 1; }
        int cuReal(void) { return 2; }
        int cuElsewhere(void);
        int cuJumps(void) { return cuReal(); }
        int cuLeaves(void) { return cuElsewhere(); }
    ";
    for flags in [&["-fcf-protection=none"][..], &["-fcf-protection=full"], &["-fno-plt"], &["-Wl,-z,now"]] {
        let lib = dir.path().join("libx.so");
        library(source, &lib, &[&["-O2"], flags].concat());
        let found = functions(&lib);
        let target = |name| find(&found, name).alias_of.map(|index| &found.list[index].names[0][..]);
        assert_eq!(find(&found, "cuJumps").first.class, Class::Jump, "{flags:?}");
        assert_eq!(target("cuJumps"), Some(&b"cuReal"[..]), "{flags:?}");
        assert_eq!((target("cuLeaves"), target("cuReal"), target("cuOther")), (None, None, None), "{flags:?}");
    }
}

#[test]
fn indirect_functions_and_go_programs_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let lib = dir.path().join("libx.so");
    let source = "
        static int one(void) { return 1; }
        static void *pick(void) { return one; }
        int cuIndirect(void) __attribute__((ifunc(\"pick\")));
        int cuInit(void) { return 2; }
    ";
    library(source, &lib, &[]);
    let found = functions(&lib);
    assert_eq!((found.ifuncs, found.list.len()), (1, 1));

    let marker = dir.path().join("marker");
    std::fs::write(&marker, "go1.24").unwrap();
    let add = format!("--add-section=.go.buildinfo={}", marker.display());
    run("objcopy", &[add.as_ref(), lib.as_os_str()]);
    let file = File::open(&lib).unwrap();
    assert!(matches!(ElfFile::new(&file).unwrap().functions(|_| true), Err(ElfError::Go)));
}

#[test]
fn a_runtime_linked_into_a_program() {
    let dir = tempfile::tempdir().unwrap();
    let source = "
        __attribute__((visibility(\"hidden\"), noinline)) int cudaLaunchKernel(void) { __asm__(\"\"); return 3; }
        // As in the real one; linkers store the name above as the end of this one.
        int __cudaLaunchKernel(void) { return 4; }
        int main(void) { return cudaLaunchKernel(); }
    ";
    for (name, flags) in
        [("pie", &["-O1", "-pie"][..]), ("fixed", &["-O1", "-no-pie"]), ("static", &["-O1", "-static"])]
    {
        let program = dir.path().join(name);
        gcc(source, &program, flags);
        let found = inspect_file(&program).unwrap();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!((found[0].kind, found[0].is_static), (LibraryKind::Cudart, true), "{name}");
        let found = functions(&program);
        assert_eq!((found.list.len(), found.from_symtab), (1, 1), "{name}");
        run("strip", &[program.as_os_str()]);
        assert!(inspect_file(&program).unwrap().is_empty(), "{name}, stripped");
    }
    // The same in a library: its symbols are its own business unless it exports them.
    let lib = dir.path().join("libx.so");
    library(source, &lib, &[]);
    assert!(inspect_file(&lib).unwrap().is_empty());
}
