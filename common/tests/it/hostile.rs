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

/// An ELF file of nothing but these sections: type, linked section, contents. Section 0 is added.
fn sections(list: &[(u32, u32, &[u8])]) -> File {
    let mut body = vec![0_u8; 64];
    let mut headers = vec![0_u8; 64];
    let mut offsets = std::collections::HashMap::new();
    for (kind, link, contents) in list {
        // The same contents are stored once, so that many sections can share them.
        let offset = *offsets.entry(contents.as_ptr()).or_insert_with(|| {
            let offset = body.len() as u64;
            body.extend_from_slice(contents);
            offset
        });
        let mut header = [0_u8; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&offset.to_le_bytes());
        header[32..40].copy_from_slice(&(contents.len() as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        headers.extend_from_slice(&header);
    }
    // e_ident; a shared object for x86-64, version 1; where the section headers are, and how many of which size.
    body[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let machine: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    body[16..18].copy_from_slice(&3_u16.to_le_bytes());
    body[18..20].copy_from_slice(&machine.to_le_bytes());
    body[20..24].copy_from_slice(&1_u32.to_le_bytes());
    let at = body.len() as u64;
    body[40..48].copy_from_slice(&at.to_le_bytes());
    body[52..54].copy_from_slice(&64_u16.to_le_bytes());
    body[58..60].copy_from_slice(&64_u16.to_le_bytes());
    // More than 65,279 sections are counted in the size field of section 0.
    match u16::try_from(list.len() + 1) {
        Ok(count) if count < 0xff00 => body[60..62].copy_from_slice(&count.to_le_bytes()),
        _ => headers[32..40].copy_from_slice(&(list.len() as u64 + 1).to_le_bytes()),
    }
    body.extend_from_slice(&headers);
    temporary(&body)
}

const STRTAB: u32 = 3;
const DYNSYM: u32 = 11;

/// Defined functions whose names begin at the given offsets, at addresses 1, 2, 3…
fn symbols(names: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut table = Vec::new();
    for (index, name) in names.enumerate() {
        table.extend_from_slice(&name.to_le_bytes());
        // A global function in section 1.
        table.extend_from_slice(&[0x12, 0, 1, 0]);
        table.extend_from_slice(&(index as u64 + 1).to_le_bytes());
        table.extend_from_slice(&16_u64.to_le_bytes());
    }
    table
}

/// Would take hours if each name were searched for its end.
#[test]
fn a_hundred_thousand_names_without_end() {
    let strings = vec![b'c'; 16 << 20];
    let table = symbols((0..100_000).map(|index| index * 8));
    let file = sections(&[(STRTAB, 0, &strings), (DYNSYM, 1, &table)]);
    let elf = ElfFile::new(&file).unwrap();
    assert!(!elf.defines_any(&[b"cuInit"]).unwrap());
    assert!(elf.functions(|_| true).unwrap().list.is_empty());
}

/// Would take hours if each of the tables were looked through.
#[test]
fn a_hundred_thousand_symbol_tables_over_one() {
    let table = symbols(std::iter::repeat_n(1, 100_000));
    let mut list: Vec<(u32, u32, &[u8])> = vec![(STRTAB, 0, b"\0cuInit\0")];
    list.extend(std::iter::repeat_n((DYNSYM, 1, &table[..]), 100_000));
    let file = sections(&list);
    let elf = ElfFile::new(&file).unwrap();
    assert!(elf.defines_any(&[b"cuInit"]).unwrap());
    // No executable segment holds any of them.
    let found = elf.functions(|name| name == b"cuInit").unwrap();
    assert_eq!((found.list.len(), found.misplaced), (0, 100_000));
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
