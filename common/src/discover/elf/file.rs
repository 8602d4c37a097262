//! Reading the headers and tables of an ELF file, none of them larger than it may be.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use super::super::ElfError;
use super::super::insn::Arch;

/// Most bytes of tables read from one file: several times what the largest libraries of the field have.
pub const READ_LIMIT_BYTES: u64 = 128 << 20;

/// Longest name looked at. Those that are traced are far shorter; a table without ends must not be searched for one
/// from each of a million beginnings.
const NAME_LIMIT_BYTES: usize = 256;

type Header = elf::FileHeader64<Endianness>;
pub(super) type Section = elf::SectionHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;
pub(super) type Symbol = elf::Sym64<Endianness>;

pub(super) const LE: Endianness = Endianness::Little;

/// An ELF file, read piece by piece.
pub struct ElfFile<'f> {
    pub(super) file: &'f File,
    cache: ReadCache<&'f File>,
    /// Stretches that were read, and their total.
    read: RefCell<HashSet<(u64, u64)>>,
    spent_bytes: Cell<u64>,
    /// The first time that the limit was hit, what was wanted.
    refused_bytes: Cell<Option<u64>>,
    pub(super) arch: Arch,
}

impl std::fmt::Debug for ElfFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ElfFile").field("arch", &self.arch).finish_non_exhaustive()
    }
}

/// A view of the file that counts what it hands out.
#[derive(Clone, Copy)]
struct Limited<'a, 'f>(&'a ElfFile<'f>);

impl<'a> ReadRef<'a> for Limited<'a, '_> {
    fn len(self) -> Result<u64, ()> {
        (&self.0.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if self.0.read.borrow().contains(&(offset, size)) {
            return (&self.0.cache).read_bytes_at(offset, size);
        }
        let spent = self.0.spent_bytes.get().saturating_add(size);
        if spent > READ_LIMIT_BYTES {
            self.0.refused_bytes.set(self.0.refused_bytes.get().or(Some(spent)));
            return Err(());
        }
        self.0.spent_bytes.set(spent);
        self.0.read.borrow_mut().insert((offset, size));
        (&self.0.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        (&self.0.cache).read_bytes_at_until(range, delimiter)
    }
}

/// The headers of the file, borrowed from its cache.
pub(super) struct Tables<'a> {
    pub(super) segments: &'a [Segment],
    pub(super) sections: &'a [Section],
    section_names: &'a [u8],
}

impl<'f> ElfFile<'f> {
    /// Reads the file header.
    ///
    /// # Errors
    /// [`ElfError::NotOurs`] for anything but a 64-bit little-endian file for a known machine.
    pub fn new(file: &'f File) -> Result<Self, ElfError> {
        let mut start = [0_u8; 20];
        if let Err(error) = file.read_exact_at(&mut start, 0) {
            return Err(if error.kind() == std::io::ErrorKind::UnexpectedEof {
                ElfError::NotOurs
            } else {
                ElfError::Io(error)
            });
        }
        // e_ident: magic, class 64, little endian; e_machine is at 18.
        let arch = match (&start[..6], u16::from_le_bytes([start[18], start[19]])) {
            (b"\x7fELF\x02\x01", 62) => Arch::X86_64,
            (b"\x7fELF\x02\x01", 183) => Arch::Aarch64,
            _ => return Err(ElfError::NotOurs),
        };
        Ok(Self {
            file,
            cache: ReadCache::new(file),
            read: RefCell::default(),
            spent_bytes: Cell::new(0),
            refused_bytes: Cell::new(None),
            arch,
        })
    }

    /// The machine the file is for.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The name the library gives itself (`DT_SONAME`).
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn soname(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let tables = self.tables()?;
        let Some(dynamic) = tables.sections.iter().find(|section| section.sh_type(LE) == elf::SHT_DYNAMIC) else {
            return Ok(None);
        };
        let entries: &[elf::Dyn64<Endianness>] = self.array(dynamic, "dynamic section")?;
        let Some(entry) = entries.iter().find(|entry| entry.d_tag.get(LE) == elf::DT_SONAME) else {
            return Ok(None);
        };
        let strings = self.bytes(tables.linked_strings(dynamic)?, "dynamic strings")?;
        Ok(u32::try_from(entry.d_val.get(LE)).ok().and_then(|at| name_at(strings, at)).map(<[u8]>::to_vec))
    }

    /// The linker's build id (`.note.gnu.build-id`), where there is one.
    ///
    /// # Errors
    /// When the file is malformed.
    pub fn build_id(&self) -> Result<Option<Vec<u8>>, ElfError> {
        let tables = self.tables()?;
        let Some(section) = tables.section_named(b".note.gnu.build-id") else { return Ok(None) };
        let note = self.bytes(section, "build id")?;
        // Elf64_Nhdr: name size 4 ("GNU\0"), descriptor size, type 3; then the name, then the descriptor.
        let size = note.get(4..8).and_then(|size| size.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
        Ok(note.get(16..).and_then(|rest| rest.get(..size)).filter(|id| !id.is_empty()).map(<[u8]>::to_vec))
    }

    /// Calls `each` with every defined function symbol of the table of one type, names without version.
    pub(super) fn each_function<'a>(
        &'a self,
        tables: &Tables<'a>,
        kind: elf::SectionType,
        each: impl FnMut(&'a [u8], &'a Symbol),
    ) -> Result<(), ElfError> {
        self.each_symbol(tables, kind, |kind| matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC), each)
    }

    /// Calls `each` with the symbols of one table that the file defines and that are of a kind which `keep` accepts.
    pub(super) fn each_symbol<'a>(
        &'a self,
        tables: &Tables<'a>,
        kind: elf::SectionType,
        keep: impl Fn(elf::SymbolType) -> bool,
        mut each: impl FnMut(&'a [u8], &'a Symbol),
    ) -> Result<(), ElfError> {
        // A file has one of each (System V ABI, sections); a million of them over one table are not looked through.
        let Some(section) = tables.sections.iter().find(|section| section.sh_type(LE) == kind) else { return Ok(()) };
        let symbols: &[Symbol] = self.array(section, "symbol table")?;
        let strings = self.bytes(tables.linked_strings(section)?, "symbol names")?;
        for symbol in symbols {
            if !keep(symbol.st_type()) || symbol.is_undefined(LE) || symbol.st_value(LE) == 0 {
                continue;
            }
            if let Some(name) = name_at(strings, symbol.st_name(LE)) {
                // `.symtab` writes versions into the name (`memcpy@GLIBC_2.14`), `.dynsym` keeps them apart.
                let end = memchr::memchr(b'@', name).unwrap_or(name.len());
                each(&name[..end], symbol);
            }
        }
        Ok(())
    }

    pub(super) fn header(&self) -> Result<&Header, ElfError> {
        Header::parse(Limited(self)).map_err(|_| ElfError::NotOurs)
    }

    pub(super) fn tables(&self) -> Result<Tables<'_>, ElfError> {
        let data = Limited(self);
        let header = self.header()?;
        let segments = header.program_headers(LE, data).map_err(|_| self.bad("program headers"))?;
        let sections = header.section_headers(LE, data).map_err(|_| self.bad("section headers"))?;
        let section_names = match header.shstrndx(LE, data) {
            Ok(index) => match sections.get(index as usize) {
                Some(section) => self.bytes(section, "section names")?,
                None => &[],
            },
            Err(_) => &[],
        };
        Ok(Tables { segments, sections, section_names })
    }

    pub(super) fn bytes(&self, section: &Section, what: &'static str) -> Result<&[u8], ElfError> {
        section.data(LE, Limited(self)).map_err(|_| self.bad(what))
    }

    pub(super) fn array<T: object::Pod>(&self, section: &Section, what: &'static str) -> Result<&[T], ElfError> {
        let bytes = self.bytes(section, what)?;
        let whole = bytes.len() / size_of::<T>();
        object::slice_from_bytes(bytes, whole).map(|(items, _)| items).map_err(|()| self.bad(what))
    }

    /// The error for a piece that could not be read: too large, or simply wrong.
    fn bad(&self, what: &'static str) -> ElfError {
        match self.refused_bytes.get() {
            Some(wanted_bytes) => ElfError::TooLarge { wanted_bytes, limit_bytes: READ_LIMIT_BYTES },
            None => ElfError::Malformed(what),
        }
    }
}

impl<'a> Tables<'a> {
    /// The string table a section names in `sh_link`.
    pub(super) fn linked_strings(&self, section: &Section) -> Result<&'a Section, ElfError> {
        let strings = self.sections.get(section.sh_link(LE) as usize);
        strings
            .filter(|strings| strings.sh_type(LE) == elf::SHT_STRTAB)
            .ok_or(ElfError::Malformed("a symbol table without names"))
    }

    fn section_named(&self, name: &[u8]) -> Option<&'a Section> {
        self.sections.iter().find(|section| name_at(self.section_names, section.sh_name(LE)) == Some(name))
    }

    pub(super) fn is_go(&self) -> bool {
        [&b".go.buildinfo"[..], b".gopclntab", b".note.go.buildid"]
            .iter()
            .any(|name| self.section_named(name).is_some())
    }

    /// The file offset of an address, where it lies in an executable segment's part of the file.
    pub(super) fn code_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let executable = segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).0 & elf::PF_X.0 != 0;
            let within = address.checked_sub(segment.p_vaddr(LE))?;
            (executable && within < segment.p_filesz(LE)).then(|| segment.p_offset(LE).checked_add(within)).flatten()
        })
    }
}

/// The zero-terminated name at `offset`; `None` where it is empty, outside, too long or unterminated.
fn name_at(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let rest = &rest[..rest.len().min(NAME_LIMIT_BYTES)];
    let end = memchr::memchr(0, rest)?;
    (end > 0).then(|| &rest[..end])
}

/// Fills as much of `buffer` as the file has at `offset`; unreadable counts as absent.
pub(super) fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    filled
}
