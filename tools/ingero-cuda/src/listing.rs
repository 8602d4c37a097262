//! `--list`: what would be probed, in which libraries of which processes. Needs no privilege for one's own processes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use ingero_common::discover::{Library, Scanner, inspect_file, ldcache, may_look_at_others};
use ingero_common::exit::Exit;
use ingero_common::text::{Log, Printable, counted};

use crate::symbols::{LibraryListing, write_listing};

/// A library with the processes that map it, each with its name.
type InUse = (Library, Vec<(u32, Vec<u8>)>);

/// Prints the listing of `paths`, or of all that is found where there are none.
///
/// # Errors
/// When a path cannot be read or holds no CUDA library, `/proc` cannot be read, or the output not be written.
pub fn run(log: &Log, paths: &[PathBuf]) -> anyhow::Result<Exit> {
    let all = if paths.is_empty() { find(log)? } else { look_into(log, paths)? };
    let mut listings = Vec::new();
    for (library, users) in all {
        let path = library.path.clone();
        match LibraryListing::new(library, users) {
            Ok(listing) => listings.push(listing),
            Err(error) => log.warn(format!("{}: {error}", Printable(&path))),
        }
    }
    let mut out = io::stdout().lock();
    write_listing(&mut out, &listings)?;
    out.flush()?;
    Ok(Exit::Ok)
}

/// The libraries in these files, and in the files of these directories.
fn look_into(log: &Log, paths: &[PathBuf]) -> anyhow::Result<Vec<InUse>> {
    let mut all: Vec<InUse> = Vec::new();
    for path in paths {
        let name = Printable(path.as_os_str().as_encoded_bytes());
        let mut libraries = Vec::new();
        if path.is_dir() {
            for file in files_in(path).with_context(|| format!("cannot list {name}"))? {
                match inspect_file(&file) {
                    Ok(found) => libraries.extend(found),
                    Err(error) => log.detail(format!("{}: {error}", file.display())),
                }
            }
        } else {
            libraries = inspect_file(path).map_err(|error| anyhow!("cannot read {name}: {error}"))?;
        }
        if libraries.is_empty() {
            bail!(
                "no CUDA library in {name}: nothing there exports its functions; name the file or its very directory"
            );
        }
        for library in libraries {
            if !is_among(&all, &library) {
                all.push((library, Vec::new()));
            }
        }
    }
    Ok(all)
}

fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// The libraries that processes have mapped, and those that are installed.
fn find(log: &Log) -> anyhow::Result<Vec<InUse>> {
    let scan = Scanner::new().scan().context("cannot look at processes")?;
    let mut all: Vec<InUse> = Vec::new();
    for found in &scan.appeared {
        for library in &found.libraries {
            let user = (found.process.pid, found.process.comm.clone());
            match all.iter_mut().find(|(known, _)| (known.id, known.kind) == (library.id, library.kind)) {
                Some((_, users)) => users.push(user),
                None => all.push((library.clone(), vec![user])),
            }
        }
    }
    for library in ldcache::installed() {
        if !is_among(&all, &library) {
            all.push((library, Vec::new()));
        }
    }
    if all.is_empty() {
        log.note("no CUDA library found: none is installed in the usual places, and no process has one open");
    }
    if scan.cost.denied > 0 && !may_look_at_others() {
        let processes = counted(scan.cost.denied as u64, "process of another user", "processes of other users");
        log.note(format!("{processes} could not be looked at; run it with sudo"));
    }
    Ok(all)
}

fn is_among(all: &[InUse], library: &Library) -> bool {
    all.iter().any(|(known, _)| (known.id, known.kind) == (library.id, library.kind))
}
