//! What `--list` shows.

use std::collections::BTreeMap;
use std::io::{self, Write};

use ingero_common::discover::insn::Class;
use ingero_common::discover::{ElfError, Library};
use ingero_common::text::Printable;

use super::select::{Selection, symbols_in};

/// One library and what would be probed in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryListing {
    /// The file.
    pub library: Library,
    /// Processes that have it mapped: id and name.
    pub processes: Vec<(u32, Vec<u8>)>,
    /// Distinct operations of the table that it has.
    pub operations: usize,
    /// Operations of the table that it has not.
    pub missing: usize,
    /// What would be probed.
    pub selection: Selection,
    /// First instructions, counted: class, behind a landing pad or not.
    pub first_instructions: BTreeMap<(Class, bool), usize>,
}

impl LibraryListing {
    /// Reads a library's symbols.
    ///
    /// # Errors
    /// When the file is gone, malformed, or a Go program.
    pub fn new(library: Library, processes: Vec<(u32, Vec<u8>)>) -> Result<Self, ElfError> {
        let file = library.open()?;
        let selection = symbols_in(library.kind, &file)?;
        let mut operations: Vec<&str> = selection.symbols.iter().map(|symbol| symbol.function.name).collect();
        operations.sort_unstable();
        operations.dedup();
        let mut first_instructions = BTreeMap::new();
        for symbol in &selection.symbols {
            *first_instructions.entry((symbol.first.class, symbol.first.landing_pad)).or_default() += 1;
        }
        Ok(Self {
            missing: super::table::functions(library.kind).count() - operations.len(),
            operations: operations.len(),
            library,
            processes,
            selection,
            first_instructions,
        })
    }
}

/// What stands above and below a listing.
const HEADER: &str = "LAYER   LIBRARY";
const LEGEND: &str = "
operations   API calls by their base name. Each exported variant of one (_v2, _ptsz) is a function with a probe of its own;
             an alias only jumps to another function.
begin with   first instructions, by which the cost of a probe goes. On x86-64 the kernel emulates frame (push %rbp), push, nop
             and jump; it single-steps the others, which takes several times as long.
";

/// Writes the listings as text for people; nothing where there are none.
///
/// # Errors
/// When `out` fails.
pub fn write_listing(out: &mut impl Write, listings: &[LibraryListing]) -> io::Result<()> {
    if listings.is_empty() {
        return Ok(());
    }
    writeln!(out, "{HEADER}")?;
    for listing in listings {
        write_one(out, listing)?;
    }
    out.write_all(LEGEND.as_bytes())
}

fn write_one(out: &mut impl Write, listing: &LibraryListing) -> io::Result<()> {
    let library = &listing.library;
    write!(out, "{:<7} {}", library.kind.src(), Printable(&library.path))?;
    if let Some(version) = &library.version {
        write!(out, "  version {version}")?;
    }
    if library.is_static {
        write!(out, "  (linked statically)")?;
    }
    if library.deleted {
        write!(out, "  (deleted)")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "        {} operations as {} functions, {} not in this version, {} aliases skipped",
        listing.operations,
        listing.selection.symbols.len(),
        listing.missing,
        listing.selection.aliases,
    )?;
    if !listing.first_instructions.is_empty() {
        write!(out, "        begin with")?;
        for (at, ((class, landing_pad), count)) in listing.first_instructions.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let pad = if *landing_pad { "landing pad + " } else { "" };
            write!(out, "{comma} {pad}{} {count}", class.name())?;
        }
        writeln!(out)?;
    }
    if listing.processes.is_empty() {
        writeln!(out, "        in no process")
    } else {
        write!(out, "        in")?;
        for (at, (pid, comm)) in listing.processes.iter().enumerate() {
            write!(out, "{} {pid} ({})", if at == 0 { "" } else { "," }, Printable(comm))?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use ingero_common::discover::{FileId, LibraryKind};

    use super::*;

    #[test]
    fn text_for_people() {
        let id = FileId { dev: 1, inode: 2 };
        let listing = LibraryListing {
            library: Library {
                kind: LibraryKind::Cudart,
                id,
                opened: id,
                path: b"/opt/my libs\x1b[2J/libcudart.so.12".to_vec(),
                open_path: PathBuf::from("/proc/7/root/opt"),
                deleted: true,
                soname: None,
                version: Some("12".into()),
                build_id: None,
                is_static: false,
            },
            processes: vec![(7, b"python3".to_vec()), (8, b"\xff\n".to_vec())],
            operations: 85,
            missing: 6,
            selection: Selection { symbols: Vec::new(), aliases: 2 },
            first_instructions: BTreeMap::from([((Class::Frame, false), 138), ((Class::Frame, true), 2)]),
        };
        let mut text = Vec::new();
        write_listing(&mut text, &[listing]).unwrap();
        let expected = "\
LAYER   LIBRARY
cudart  /opt/my libs\\u{1b}[2J/libcudart.so.12  version 12  (deleted)
        85 operations as 0 functions, 6 not in this version, 2 aliases skipped
        begin with frame 138, landing pad + frame 2
        in 7 (python3), 8 (\\xff\\u{a})
";
        assert_eq!(String::from_utf8(text).unwrap(), format!("{expected}{LEGEND}"));
        assert!(LEGEND.contains(Class::Frame.name()));
        let mut nothing = Vec::new();
        write_listing(&mut nothing, &[]).unwrap();
        assert!(nothing.is_empty());
    }
}
