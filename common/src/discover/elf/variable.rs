//! Where a file's variable lies in a process that maps the file.

use object::elf;
use object::read::elf::{ProgramHeader, Sym};

use super::super::ElfError;
use super::file::{ElfFile, LE};

/// The unit of mappings that linkers align segments to, at least.
const PAGE_BYTES: u64 = 4096;

/// A variable of an ELF file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variable {
    /// Where the mapping of the file's first loaded segment begins in the file: it is told apart by that.
    pub first_offset: u64,
    /// How far behind the beginning of that mapping the variable lies, in bytes.
    pub distance: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
}

impl ElfFile<'_> {
    /// A variable that the file defines in its dynamic symbol table.
    ///
    /// # Errors
    /// When the file is malformed or too large.
    pub fn variable(&self, name: &[u8]) -> Result<Option<Variable>, ElfError> {
        let tables = self.tables()?;
        let Some(first) = tables.segments.iter().find(|segment| segment.p_type(LE) == elf::PT_LOAD) else {
            return Ok(None);
        };
        let within = |number: u64| number - number % PAGE_BYTES;
        let (first_offset, first_address) = (within(first.p_offset(LE)), within(first.p_vaddr(LE)));
        let mut found = None;
        self.each_symbol(
            &tables,
            elf::SHT_DYNSYM,
            |kind| kind == elf::STT_OBJECT,
            |symbol_name, symbol| {
                let (address, size_bytes) = (symbol.st_value(LE), symbol.st_size(LE));
                if symbol_name == name && size_bytes > 0 {
                    found = address.checked_sub(first_address).map(|distance| Variable {
                        first_offset,
                        distance,
                        size_bytes,
                    });
                }
            },
        )?;
        Ok(found)
    }
}
