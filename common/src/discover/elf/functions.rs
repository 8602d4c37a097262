//! The functions themselves, and which of them only jump into another.

use std::collections::{HashMap, HashSet};

use object::Endianness;
use object::elf;
use object::read::elf::{SectionHeader, Sym};

use super::super::ElfError;
use super::super::insn::{self, Arch, Class, FirstInsn};
use super::file::{ElfFile, LE, Symbol, Tables, read_up_to};

/// Most functions listed of one file. Thousands are real (all of CUDA's have below a thousand names).
pub const FUNCTION_LIMIT: usize = 16 << 10;

/// Relocation sections looked through for PLT slots; linkers make two.
const RELOCATION_SECTIONS: usize = 4;

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

impl ElfFile<'_> {
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
        let mut too_many = false;
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
                if found.list.len() == FUNCTION_LIMIT {
                    too_many = true;
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
        if too_many {
            return Err(ElfError::Malformed("more functions than any real library has"));
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
            if function.first.class == Class::Jump {
                // Without a distance it jumps through the GOT itself, like a PLT entry.
                let distance = function.first.jump.unwrap_or(0);
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
        break_rings(list);
        Ok(())
    }

    /// Where the code at `address` is (like) an x86-64 PLT entry: the address of the GOT slot it jumps through.
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
        let relocations = tables.sections.iter().filter(|section| section.sh_type(LE) == elf::SHT_RELA);
        for section in relocations.take(RELOCATION_SECTIONS) {
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
}

/// Two functions that jump into each other would both be skipped; one of each such ring is no alias.
fn break_rings(list: &mut [Function]) {
    // Who was reached from which start (plus one); 0 = not yet. Each function is passed once.
    let mut reached_from = vec![0; list.len()];
    for start in 0..list.len() {
        let mut at = start;
        while reached_from[at] == 0 {
            reached_from[at] = start + 1;
            let Some(next) = list[at].alias_of else { break };
            if reached_from[next] == start + 1 {
                list[at].alias_of = None;
                break;
            }
            at = next;
        }
    }
}
