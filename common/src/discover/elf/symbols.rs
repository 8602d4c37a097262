//! Which function an offset in a file belongs to.

use object::elf;
use object::read::elf::Sym;

use super::super::ElfError;
use super::file::{ElfFile, LE};

/// Most functions kept of one file: the largest libraries of the field have some hundred thousand.
const MAX_FUNCTIONS: usize = 500_000;

/// The functions of a file by place.
#[derive(Debug, Default)]
pub struct SymbolTable(Vec<Symbol>);

#[derive(Debug)]
struct Symbol {
    offset: u64,
    /// 0 where the table does not say.
    size_bytes: u64,
    name: Box<[u8]>,
}

impl SymbolTable {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name, as it is in the file, of the function that the byte at `offset` belongs to; `None` where that is not known.
    pub fn at(&self, offset: u64) -> Option<&[u8]> {
        let behind = self.0.partition_point(|symbol| symbol.offset <= offset);
        let symbol = &self.0[behind.checked_sub(1)?];
        // Assembly has symbols without a size, which go on until the next one.
        let inside = symbol.size_bytes == 0 || offset - symbol.offset < symbol.size_bytes;
        inside.then_some(&symbol.name)
    }
}

impl ElfFile<'_> {
    /// All functions of `.dynsym` and `.symtab` by place, each place once.
    ///
    /// # Errors
    /// When the file is malformed or too large.
    pub fn symbols(&self) -> Result<SymbolTable, ElfError> {
        let tables = self.tables()?;
        let mut all = Vec::new();
        for table in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            self.each_function(&tables, table, |name, symbol| {
                if let Some(offset) = tables.code_offset(symbol.st_value(LE))
                    && all.len() < MAX_FUNCTIONS
                {
                    all.push(Symbol { offset, size_bytes: symbol.st_size(LE), name: name.into() });
                }
            })?;
        }
        // Of several names the first with a size: one without would reach too far.
        all.sort_by_key(|symbol| (symbol.offset, symbol.size_bytes == 0));
        all.dedup_by_key(|symbol| symbol.offset);
        Ok(SymbolTable(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_belongs_to_the_function_around_it() {
        let symbol = |offset, size_bytes, name: &[u8]| Symbol { offset, size_bytes, name: name.into() };
        let table = SymbolTable(vec![symbol(100, 10, b"f"), symbol(120, 0, b"asm"), symbol(130, 5, b"g")]);
        let at = |offset| table.at(offset).map(|name| std::str::from_utf8(name).unwrap());
        let found = [99, 100, 109, 110, 119, 120, 129, 130, 135].map(at);
        assert_eq!(found, [None, Some("f"), Some("f"), None, None, Some("asm"), Some("asm"), Some("g"), None]);
    }

    #[test]
    fn the_functions_of_this_program_are_where_they_run() {
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        let table = ElfFile::new(&program).unwrap().symbols().unwrap();
        assert!(table.len() > 1_000 && !table.is_empty());
        let address = a_place_belongs_to_the_function_around_it as fn() as usize as u64;
        let text = std::fs::read("/proc/self/maps").unwrap();
        let mapping = super::super::super::maps::parse(&text)
            .find(|m| (m.start..m.end).contains(&address))
            .expect("it is mapped");
        let name = table.at(address + 1 - mapping.start + mapping.offset).expect("it is known");
        assert!(String::from_utf8_lossy(name).contains("a_place_belongs"), "{name:?}");
    }
}
