//! How much a statement may write into temporary files.
//!
//! What a sort, a DISTINCT, a materialised subquery or a window needs beyond the page cache goes into files without a name, and
//! no limit of SQLite's bounds them: a cross join fills gigabytes within the time that a statement has. Keeping them in memory would only move that into memory. So while a statement runs, the files are measured
//! where they can still be found, in `/proc/self/fd`, and the statement is stopped.
//!
//! The files that were open when it began are not counted: the tables of the recordings are such files. Two statements on two
//! recordings may count each other's; then one of them is stopped a little early.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// So much may be written before a statement is stopped. A sort of two million rows needs about half of it.
pub(super) const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// How often it is measured: what is written meanwhile comes on top.
const EVERY: Duration = Duration::from_millis(10);

/// Measures the files of one statement.
#[derive(Debug)]
pub(super) struct Meter {
    most_bytes: u64,
    known: HashSet<(u64, u64)>,
    next: Instant,
}

impl Meter {
    /// Begins: what there is now does not count.
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { most_bytes, known: open_files().map(|file| file.id).collect(), next: Instant::now() }
    }

    /// Whether more has been written than may be, as far as it is time to look.
    pub(super) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        let bytes: u64 = open_files().filter(|file| self.counts(file)).map(|file| file.bytes).sum();
        // With a thousand open connections a look takes some milliseconds: at most a tenth of the time goes into it.
        self.next = now + EVERY.max(now.elapsed() * 10);
        bytes > self.most_bytes
    }

    /// Whether it is one that was made since, and has no name.
    fn counts(&self, file: &OpenFile) -> bool {
        file.unnamed && !self.known.contains(&file.id)
    }
}

/// A regular file that this process has open.
struct OpenFile {
    /// Device and inode.
    id: (u64, u64),
    /// It has no name any more, or never had one.
    unnamed: bool,
    /// On disk: files that are written backwards have holes.
    bytes: u64,
}

fn open_files() -> impl Iterator<Item = OpenFile> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let metadata = std::fs::metadata(entry.path()).ok().filter(std::fs::Metadata::is_file)?;
        let id = (metadata.dev(), metadata.ino());
        Some(OpenFile { id, unnamed: metadata.nlink() == 0, bytes: metadata.blocks() * 512 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_that_were_there_before_do_not_count() {
        // As SQLite makes them: without a name.
        let write = || {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&vec![1; 1 << 20]).unwrap();
            file
        };
        let old = write();
        let mut named = tempfile::NamedTempFile::new().unwrap();
        let meter = Meter::new(1 << 19);
        named.write_all(&vec![1; 1 << 20]).unwrap();
        let new = write();
        let counts = |file: &std::fs::File| {
            let id = file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).unwrap();
            open_files().any(|file| file.id == id && meter.counts(&file) && file.bytes >= 1 << 20)
        };
        assert_eq!([counts(&old), counts(named.as_file()), counts(&new)], [false, false, true]);
    }
}
