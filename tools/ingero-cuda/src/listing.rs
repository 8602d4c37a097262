//! `--list`: what would be probed, in which libraries of which processes. Needs no privilege for one's own processes.

use std::io::{self, Write};

use anyhow::Context;
use ingero_common::discover::{Library, Scanner, ldcache};
use ingero_common::exit::Exit;
use ingero_common::text::{Log, Printable};

use crate::symbols::{LibraryListing, write_listing};

/// A library with the processes that map it, each with its name.
type InUse = (Library, Vec<(u32, Vec<u8>)>);

/// Prints the listing.
///
/// # Errors
/// When `/proc` cannot be read, or the output not be written.
pub fn run(log: &Log) -> anyhow::Result<Exit> {
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
        if !all.iter().any(|(known, _)| (known.id, known.kind) == (library.id, library.kind)) {
            all.push((library, Vec::new()));
        }
    }
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
    if listings.is_empty() {
        log.note("no CUDA library found: none is installed in the usual places, and no process has one open");
    }
    if scan.cost.denied > 0 && !rustix::process::geteuid().is_root() {
        log.note(format!("{} processes of other users could not be looked at; run it with sudo", scan.cost.denied));
    }
    Ok(Exit::Ok)
}
