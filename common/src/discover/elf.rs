//! Functions of an ELF file: names, file offsets, and how each begins.
//!
//! A uprobe is placed at an offset in a *file*, a symbol has a virtual *address*. The program headers translate:
//!
//! ```text
//! LOAD  offset 0xe000  vaddr 0x40e000  filesz 0x8c000  R E
//! symbol cudaMalloc = 0x45d6b0         offset = 0x45d6b0 - 0x40e000 + 0xe000 = 0x5d6b0
//! ```
//!
//! The file belongs to somebody else. Every length in it is checked before anything is allocated, no table beyond
//! [`READ_LIMIT_BYTES`] is read, and a file that contradicts itself is an [`ElfError`], never a panic.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{Endianness, ReadCache, ReadRef};

use super::ElfError;
use super::insn::{self, Arch, Class, FirstInsn};

/// Most bytes of tables read from one file: several times what the largest libraries of the field have.
pub const READ_LIMIT_BYTES: u64 = 128 << 20;

type Header = elf::FileHeader64<Endianness>;
type Section = elf::SectionHeader64<Endianness>;
type Segment = elf::ProgramHeader64<Endianness>;
type Symbol = elf::Sym64<Endianness>;

const LE: Endianness = Endianness::Little;

/// One function: one address, however many names it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Names without their versions, in the order of the symbol table, `.dynsym` first; never empty.
    pub names: Vec<Vec<u8>>,
    /// Virtual address in the file's own terms.
    pub address: u64,
    /// Offset of the first instruction in the file, bytes.
    pub offset: u64,
    /// Size as the symbol table gives it, bytes; 0 where it does not.
    pub size_bytes: u64,
    /// How it begins.
    pub first: FirstInsn,
    /// Offset in the file at which a probe belongs, bytes: `offset`, or behind an `endbr64`.
    pub probe_offset: u64,
    /// Index in [`Functions::list`] of the function into which this one only jumps. Probing both would count each
    /// call twice.
    pub alias_of: Option<usize>,
}

/// What [`ElfFile::functions`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Functions {
    /// By address, ascending; each address once.
    pub list: Vec<Function>,
    /// The machine of the file.
    pub arch: Arch,
    /// Addresses that were asked for and are of indirect functions: the address is that of a resolver.
    pub ifuncs: usize,
    /// Addresses that were asked for and lie outside the executable parts of the file.
    pub misplaced: usize,
    /// Names that came from `.symtab` alone: a statically linked library.
    pub from_symtab: usize,
}

/// An ELF file, read piece by piece.
pub struct ElfFile<'f> {
    file: &'f File,
    cache: ReadCache<&'f File>,
    /// Stretches that were read, and their total.
    read: RefCell<HashSet<(u64, u64)>>,
    spent_bytes: Cell<u64>,
    /// The first time that the limit was hit, what was wanted.
    refused_bytes: Cell<Option<u64>>,
    arch: Arch,
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
struct Tables<'a> {
    segments: &'a [Segment],
    sections: &'a [Section],
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
    /// unstripped executable. Only the names are searched, in pieces, so this costs no memory.
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

    /// All functions that the file defines and whose name `keep` accepts, from `.dynsym` and `.symtab`.
    ///
    /// # Errors
    /// When the file is malformed, too large, or a Go program.
    pub fn functions(&self, keep: impl Fn(&[u8]) -> bool) -> Result<Functions, ElfError> {
        let tables = self.tables()?;
        if tables.is_go() {
            return Err(ElfError::Go);
        }
        let mut found = Functions { list: Vec::new(), arch: self.arch, ifuncs: 0, misplaced: 0, from_symtab: 0 };
        let mut by_address: HashMap<u64, usize> = HashMap::new();
        // What `.dynsym` has, `.symtab` has again.
        let mut skipped: HashSet<u64> = HashSet::new();
        for table in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            self.each_function(&tables, table, |name, symbol| {
                if !keep(name) {
                    return;
                }
                let address = symbol.st_value(LE);
                if symbol.st_type() == elf::STT_GNU_IFUNC {
                    found.ifuncs += usize::from(skipped.insert(address));
                    return;
                }
                if let Some(&known) = by_address.get(&address) {
                    let names = &mut found.list[known].names;
                    if !names.iter().any(|known| known == name) {
                        names.push(name.to_vec());
                    }
                    return;
                }
                let Some(offset) = tables.code_offset(address) else {
                    found.misplaced += usize::from(skipped.insert(address));
                    return;
                };
                found.from_symtab += usize::from(table == elf::SHT_SYMTAB);
                by_address.insert(address, found.list.len());
                found.list.push(Function {
                    names: vec![name.to_vec()],
                    address,
                    offset,
                    size_bytes: symbol.st_size(LE),
                    first: FirstInsn { class: Class::Other, landing_pad: false, jump: None },
                    probe_offset: offset,
                    alias_of: None,
                });
            })?;
        }
        found.list.sort_unstable_by_key(|function| function.address);
        self.look_at_starts(&tables, &mut found.list)?;
        Ok(found)
    }

    /// Reads each function's first bytes and finds those that only jump into another of the list.
    fn look_at_starts(&self, tables: &Tables<'_>, list: &mut [Function]) -> Result<(), ElfError> {
        let mut jumps = Vec::new();
        for (index, function) in list.iter_mut().enumerate() {
            let mut code = [0_u8; insn::PROLOGUE_BYTES];
            let read = read_up_to(self.file, &mut code, function.offset);
            // Bytes of the next function are not this one's.
            let own = match usize::try_from(function.size_bytes) {
                Ok(size @ 1..) => read.min(size),
                _ => read,
            };
            function.first = insn::classify(self.arch, &code[..own]);
            function.probe_offset = function.offset + function.first.probe_skip(self.arch);
            if let Some(distance) = function.first.jump {
                jumps.push((index, function.address.wrapping_add_signed(distance)));
            }
        }
        if jumps.is_empty() {
            return Ok(());
        }
        let slots = self.plt_slots(tables)?;
        for (index, target) in jumps {
            let target = self.through_plt(tables, target).and_then(|slot| slots.get(&slot).copied()).unwrap_or(target);
            list[index].alias_of =
                list.binary_search_by_key(&target, |function| function.address).ok().filter(|&other| other != index);
        }
        break_cycles(list);
        Ok(())
    }

    /// Where the stub at `address` is an x86-64 PLT entry: the address of the GOT slot it jumps through.
    fn through_plt(&self, tables: &Tables<'_>, address: u64) -> Option<u64> {
        if self.arch != Arch::X86_64 {
            return None;
        }
        let mut code = [0_u8; 16];
        let read = read_up_to(self.file, &mut code, tables.code_offset(address)?);
        let code = &code[..read];
        let pad = if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
        let (length, None) = insn::x86_64_jump(code.get(pad..)?)? else { return None };
        let end = pad + length;
        let displacement = i32::from_le_bytes(code.get(end - 4..end)?.try_into().ok()?);
        Some(address.wrapping_add(end as u64).wrapping_add_signed(displacement.into()))
    }

    /// GOT slots of the PLT and the addresses of the file's own functions that belong into them.
    fn plt_slots(&self, tables: &Tables<'_>) -> Result<HashMap<u64, u64>, ElfError> {
        let mut slots = HashMap::new();
        for section in tables.sections {
            if section.sh_type(LE) != elf::SHT_RELA {
                continue;
            }
            let Some(symbols) = tables.sections.get(section.sh_link(LE) as usize) else { continue };
            if symbols.sh_type(LE) != elf::SHT_DYNSYM {
                continue;
            }
            let symbols: &[Symbol] = self.array(symbols, "dynamic symbols")?;
            let relocations: &[elf::Rela64<Endianness>] = self.array(section, "relocations")?;
            for relocation in relocations {
                // R_X86_64_GLOB_DAT and R_X86_64_JUMP_SLOT.
                if !matches!(relocation.r_type(LE, false).0, 6 | 7) {
                    continue;
                }
                let Some(symbol) = symbols.get(relocation.r_sym(LE, false) as usize) else { continue };
                if symbol.st_value(LE) != 0 {
                    slots.insert(relocation.r_offset.get(LE), symbol.st_value(LE));
                }
            }
        }
        Ok(slots)
    }

    /// Calls `each` with every defined function symbol of the tables of one type, names without version.
    fn each_function<'a>(
        &'a self,
        tables: &Tables<'a>,
        kind: elf::SectionType,
        mut each: impl FnMut(&'a [u8], &'a Symbol),
    ) -> Result<(), ElfError> {
        for section in tables.sections.iter().filter(|section| section.sh_type(LE) == kind) {
            let symbols: &[Symbol] = self.array(section, "symbol table")?;
            let strings = self.bytes(tables.linked_strings(section)?, "symbol names")?;
            for symbol in symbols {
                let function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
                if !function || symbol.is_undefined(LE) || symbol.st_value(LE) == 0 {
                    continue;
                }
                if let Some(name) = name_at(strings, symbol.st_name(LE)) {
                    // `.symtab` writes versions into the name (`memcpy@GLIBC_2.14`), `.dynsym` keeps them apart.
                    let end = memchr::memchr(b'@', name).unwrap_or(name.len());
                    each(&name[..end], symbol);
                }
            }
        }
        Ok(())
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

    fn header(&self) -> Result<&Header, ElfError> {
        Header::parse(Limited(self)).map_err(|_| ElfError::NotOurs)
    }

    /// A position-dependent program; a static one has no interpreter.
    fn is_fixed_address(&self) -> Result<bool, ElfError> {
        Ok(self.header()?.e_type(LE) == elf::ET_EXEC)
    }

    fn tables(&self) -> Result<Tables<'_>, ElfError> {
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

    fn bytes(&self, section: &Section, what: &'static str) -> Result<&[u8], ElfError> {
        section.data(LE, Limited(self)).map_err(|_| self.bad(what))
    }

    fn array<T: object::Pod>(&self, section: &Section, what: &'static str) -> Result<&[T], ElfError> {
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
    fn linked_strings(&self, section: &Section) -> Result<&'a Section, ElfError> {
        let strings = self.sections.get(section.sh_link(LE) as usize);
        strings
            .filter(|strings| strings.sh_type(LE) == elf::SHT_STRTAB)
            .ok_or(ElfError::Malformed("a symbol table without names"))
    }

    fn section_named(&self, name: &[u8]) -> Option<&'a Section> {
        self.sections.iter().find(|section| name_at(self.section_names, section.sh_name(LE)) == Some(name))
    }

    fn is_go(&self) -> bool {
        [&b".go.buildinfo"[..], b".gopclntab", b".note.go.buildid"]
            .iter()
            .any(|name| self.section_named(name).is_some())
    }

    /// The file offset of an address, where it lies in an executable segment's part of the file.
    fn code_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let executable = segment.p_type(LE) == elf::PT_LOAD && segment.p_flags(LE).0 & elf::PF_X.0 != 0;
            let within = address.checked_sub(segment.p_vaddr(LE))?;
            (executable && within < segment.p_filesz(LE)).then(|| segment.p_offset(LE).checked_add(within)).flatten()
        })
    }
}

/// Two functions that jump into each other would both be skipped; the first of such a ring is no alias.
fn break_cycles(list: &mut [Function]) {
    for start in 0..list.len() {
        let mut at = start;
        for _ in 0..list.len() {
            match list[at].alias_of {
                Some(next) if next == start => {
                    list[start].alias_of = None;
                    break;
                }
                Some(next) => at = next,
                None => break,
            }
        }
    }
}

/// The zero-terminated name at `offset`; `None` where it is empty, outside or unterminated.
fn name_at(strings: &[u8], offset: u32) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let end = memchr::memchr(0, rest)?;
    (end > 0).then(|| &rest[..end])
}

/// The hash of the `.gnu.hash` section: 33 h + c, from 5381.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

/// Fills as much of `buffer` as the file has at `offset`; unreadable counts as absent.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> usize {
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
