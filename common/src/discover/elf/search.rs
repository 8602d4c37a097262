//! Asking a file for a few names without reading its tables.

use std::os::unix::fs::FileExt;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use super::super::ElfError;
use super::file::{ElfFile, LE, READ_LIMIT_BYTES, Section, read_up_to};

impl ElfFile<'_> {
    /// Whether the file *defines* (not merely imports) any of `names` in its dynamic symbol table.
    ///
    /// Cheap enough to ask of every library of a machine: where the file has a GNU hash table, its Bloom filter
    /// (8 bytes read for each name) says no for nearly all files, and the symbol table is never touched.
    ///
    /// # Errors
    /// When the file is malformed or too large to tell.
    pub fn defines_any(&self, names: &[&[u8]]) -> Result<bool, ElfError> {
        let tables = self.tables()?;
        if let Some(section) = tables.sections.iter().find(|section| section.sh_type(LE) == elf::SHT_GNU_HASH)
            && !self.bloom_may_contain(section, names)?
        {
            return Ok(false);
        }
        let mut found = false;
        self.each_function(&tables, elf::SHT_DYNSYM, |name, _| found |= names.contains(&name))?;
        Ok(found)
    }

    /// Whether the file is a program that carries `name` in its full symbol table: a statically linked library in an
    /// unstripped executable. The names are searched first, in pieces,
    /// which costs no memory and ends it for nearly every program.
    ///
    /// # Errors
    /// When the file is malformed or too large to tell.
    pub fn program_contains(&self, name: &[u8]) -> Result<bool, ElfError> {
        let tables = self.tables()?;
        if !tables.segments.iter().any(|segment| segment.p_type(LE) == elf::PT_INTERP) && !self.is_fixed_address()? {
            return Ok(false);
        }
        let Some(symtab) = tables.sections.iter().find(|section| section.sh_type(LE) == elf::SHT_SYMTAB) else {
            return Ok(false);
        };
        let strings = tables.linked_strings(symtab)?;
        // The linker stores a name inside a longer one that ends with it (`__cudaLaunchKernel`), so nothing can be said
        // of the byte before it, and the symbols themselves have the last word.
        if !self.search_file(strings.sh_offset(LE), strings.sh_size(LE), &[name, b"\0"].concat())? {
            return Ok(false);
        }
        let mut found = false;
        self.each_function(&tables, elf::SHT_SYMTAB, |symbol, _| found |= symbol == name)?;
        Ok(found)
    }

    /// Asks the Bloom filter of a `.gnu.hash` section. Layout: bucket count, first symbol, filter words, filter shift
    /// (four 32-bit words), then the filter's 64-bit words.
    fn bloom_may_contain(&self, section: &Section, names: &[&[u8]]) -> Result<bool, ElfError> {
        let start = section.sh_offset(LE);
        let mut header = [0_u8; 16];
        self.file.read_exact_at(&mut header, start)?;
        let words = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        let shift = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        if words == 0 || shift >= 32 {
            return Err(ElfError::Malformed("impossible GNU hash table"));
        }
        for name in names {
            let hash = gnu_hash(name);
            let mut word = [0_u8; 8];
            let at = u64::from((hash / 64) % words) * 8;
            let at = start.checked_add(16 + at).ok_or(ElfError::Malformed("GNU hash table beyond the file"))?;
            self.file.read_exact_at(&mut word, at)?;
            let mask = 1_u64 << (hash % 64) | 1_u64 << ((hash >> shift) % 64);
            if u64::from_le_bytes(word) & mask == mask {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Searches a stretch of the file, at most [`READ_LIMIT_BYTES`] of it, without keeping it.
    fn search_file(&self, mut at: u64, size: u64, needle: &[u8]) -> Result<bool, ElfError> {
        if size > READ_LIMIT_BYTES {
            return Err(ElfError::TooLarge { wanted_bytes: size, limit_bytes: READ_LIMIT_BYTES });
        }
        let end = at.checked_add(size).ok_or(ElfError::Malformed("symbol names beyond the file"))?;
        let finder = memchr::memmem::Finder::new(needle);
        let mut buffer = vec![0_u8; 64 << 10];
        // The end of one piece is looked at again with the next, so that no match is cut in two.
        let mut kept = 0;
        while at < end {
            let want = (buffer.len() - kept).min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let read = read_up_to(self.file, &mut buffer[kept..kept + want], at);
            if read == 0 {
                break;
            }
            at += read as u64;
            let filled = kept + read;
            if finder.find(&buffer[..filled]).is_some() {
                return Ok(true);
            }
            kept = filled.min(needle.len() - 1);
            buffer.copy_within(filled - kept..filled, 0);
        }
        Ok(false)
    }

    /// A position-dependent program; a static one has no interpreter.
    fn is_fixed_address(&self) -> Result<bool, ElfError> {
        Ok(self.header()?.e_type(LE) == elf::ET_EXEC)
    }
}

/// The hash of the `.gnu.hash` section: 33 h + c, from 5381.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}
