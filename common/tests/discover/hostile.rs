//! Files that lie. Whatever they say, looking into them ends, with an answer or an error, and takes bounded memory.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use ingero_common::discover::elf::{ElfFile, READ_LIMIT_BYTES};
use ingero_common::discover::{ElfError, inspect_file};

use crate::support::{DRIVER, gcc, library};

/// Everything that can be asked of a file.
fn ask_everything(file: &File) {
    let Ok(elf) = ElfFile::new(file) else { return };
    let _ = elf.defines_any(&[b"cuInit"]);
    let _ = elf.program_contains(b"cudaLaunchKernel");
    let _ = elf.soname();
    let _ = elf.build_id();
    if let Ok(found) = elf.functions(|_| true) {
        for function in &found.list {
            assert!(function.alias_of.is_none_or(|target| target < found.list.len()));
            assert!(!function.names.is_empty());
        }
    }
}

fn temporary(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

#[test]
fn cut_off_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libx.so");
    library(DRIVER, &path, &["-Wl,-z,noseparate-code"]);
    let whole = std::fs::read(&path).unwrap();
    let file = temporary(&whole);
    for length in (0..whole.len()).rev().step_by(7) {
        file.set_len(length as u64).unwrap();
        ask_everything(&file);
    }
}

/// Numbers that look random and are the same each time (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn changed_anywhere() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    let source = format!("{DRIVER} int cudaMalloc(void) {{ return 3; }} int main(void) {{ return cuInit(0); }}");
    gcc(&source, &path, &["-O1", "-rdynamic"]);
    let whole = std::fs::read(&path).unwrap();
    let headers = u64::from_le_bytes(whole[40..48].try_into().unwrap()) as usize;
    let mut random = Random(0x1234_5678_9abc_def1);
    let file = temporary(&whole);
    for _ in 0..4000 {
        let mut changed = Vec::new();
        for _ in 0..=random.below(3) {
            // Mostly where it hurts: file header, program headers, section headers at the end.
            let at = match random.below(4) {
                0 => random.below(64),
                1 => 64 + random.below(56 * 13),
                2 => headers + random.below(whole.len() - headers),
                _ => random.below(whole.len()),
            };
            let value = match random.below(3) {
                0 => 0xff,
                1 => 0,
                _ => random.below(256) as u8,
            };
            file.write_all_at(&[value], at as u64).unwrap();
            changed.push(at);
        }
        ask_everything(&file);
        for at in changed {
            file.write_all_at(&whole[at..=at], at as u64).unwrap();
        }
    }
    // Nothing was left changed, and the whole file still has its functions.
    let found = ElfFile::new(&file).unwrap().functions(|name| name.starts_with(b"cu")).unwrap();
    assert_eq!(found.list.len(), 3);
}

#[test]
fn a_symbol_table_of_a_terabyte() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libx.so");
    library(DRIVER, &path, &["-Wl,--hash-style=sysv"]);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let headers = u64::from_le_bytes(whole[40..48].try_into().unwrap());
    // Section headers have 64 bytes: type at 4, size at 32. Type 11 is the dynamic symbol table.
    let dynsym = (0..64).map(|index| headers + index * 64).find(|&at| whole[at as usize + 4] == 11).unwrap();
    let terabyte = 1_u64 << 40;
    file.write_all_at(&terabyte.to_le_bytes(), dynsym + 32).unwrap();
    // The file really is that long, in holes.
    file.set_len(2 * terabyte).unwrap();
    let error = inspect_file(&path).unwrap_err();
    assert!(
        matches!(error, ElfError::TooLarge { wanted_bytes, limit_bytes: READ_LIMIT_BYTES } if wanted_bytes >= terabyte),
        "{error:?}"
    );
}

#[test]
fn things_that_are_no_elf_files() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("libcuda.so.1");
    std::fs::write(&script, "INPUT(-lcuda)").unwrap();
    assert!(inspect_file(&script).unwrap().is_empty());
    assert!(matches!(inspect_file(dir.path()), Err(ElfError::Io(_))), "a directory");
    let fifo = dir.path().join("libnccl.so");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(matches!(inspect_file(&fifo), Err(ElfError::Io(_))), "a FIFO, whose opening would wait for a writer");
}
