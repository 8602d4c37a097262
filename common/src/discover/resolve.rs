//! From a line of `/proc/PID/maps` to an open file: the very file that is mapped, whatever its path says by now.
//!
//! ```text
//! path of the line      /venv/lib/libcudart.so.12             (in the process's own mount namespace)
//! first try             /proc/4711/root/venv/lib/libcudart.so.12   right if device and inode agree
//! else                  /proc/4711/map_files/7f00-7f10        always right, needs CAP_CHECKPOINT_RESTORE
//! ```
//!
//! The path is under the control of the traced side: it may by now be another file, a FIFO that blocks whoever opens
//! it, or a symbolic link out of the container. So what is opened is the very inode that was seen to be a regular file, and
//! it is compared with the mapped one.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::library::FileId;
use super::maps::{DELETED, Mapping, unescape};
use super::procfs::ProcFs;

/// A mapped file, opened.
pub(super) struct Resolved {
    pub(super) file: File,
    pub(super) metadata: Metadata,
    pub(super) path: Vec<u8>,
    pub(super) open_path: PathBuf,
    pub(super) deleted: bool,
}

/// Opens a regular file, and nothing else: a device that is opened may act, a FIFO blocks. The look and the open are at one
/// file, however its name changes hands meanwhile.
pub(super) fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // A descriptor by which nothing is opened yet (open(2), O_PATH).
    let place = File::from(open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?);
    let metadata = place.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no regular file", path.display())));
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd()))?;
    Ok((file, metadata))
}

/// Opens the very file behind a mapping of process `pid`, whatever its path says by now.
///
/// # Errors
/// When it cannot be reached any more, or is no regular file.
pub fn open_mapped(proc: &ProcFs, pid: u32, mapping: &Mapping<'_>) -> io::Result<File> {
    resolve(proc, pid, mapping).map(|resolved| resolved.file)
}

/// What a mapping's file is, where its path plainly leads to it; nothing is opened.
pub(super) fn peek(proc: &ProcFs, pid: u32, mapping: &Mapping<'_>) -> Option<Metadata> {
    let metadata = std::fs::metadata(below(&proc.path(pid, "root"), mapping.path)).ok()?;
    (FileId::of(&metadata) == FileId::mapped(mapping)).then_some(metadata)
}

/// `path`, which begins with a slash, as it is found below `root`.
fn below(root: &Path, path: &[u8]) -> PathBuf {
    let mut joined = OsString::from(root.as_os_str());
    joined.push(OsStr::from_bytes(path));
    joined.into()
}

/// Opens the file behind `mapping` of process `pid`.
pub(super) fn resolve(proc: &ProcFs, pid: u32, mapping: &Mapping<'_>) -> io::Result<Resolved> {
    let wanted = FileId::mapped(mapping);
    let unescaped = unescape(mapping.path);
    // Both readings of an ambiguous path; the right one is the one whose file is the mapped one.
    let mut readings = vec![unescaped.as_ref()];
    if unescaped.as_ref() != mapping.path {
        readings.push(mapping.path);
    }
    let root = proc.path(pid, "root");
    let mut same_inode = None;
    for reading in readings {
        let open_path = below(&root, reading);
        let Ok((file, metadata)) = open_regular(&open_path) else { continue };
        let id = FileId::of(&metadata);
        let found = Resolved { file, metadata, path: reading.to_vec(), open_path, deleted: false };
        if id == wanted {
            return Ok(found);
        }
        // btrfs and overlayfs show one device in maps and another in stat.
        if id.inode == wanted.inode {
            same_inode = Some(found);
        }
    }
    let (path, deleted) = match unescaped.strip_suffix(DELETED) {
        Some(path) => (path.to_vec(), true),
        None => (unescaped.into_owned(), false),
    };
    let open_path = proc.path(pid, &format!("map_files/{:x}-{:x}", mapping.start, mapping.end));
    match (open_regular(&open_path), same_inode) {
        // Where both lead to one file, the readable path is the one that outlives an unmapping.
        (Ok((_, metadata)), Some(found)) if FileId::of(&metadata) == FileId::of(&found.metadata) => Ok(found),
        (Ok((file, metadata)), _) => Ok(Resolved { file, metadata, path, open_path, deleted }),
        // Not privileged: the inode agrees and only the device's number does not, so it is taken.
        (Err(_), Some(found)) => Ok(found),
        (Err(error), None) => Err(error),
    }
}

/// The path that a `/proc` link (`exe`, `root`) shows, without ` (deleted)`.
pub(super) fn link_target(path: &Path) -> io::Result<Vec<u8>> {
    let mut target = std::fs::read_link(path)?.into_os_string().into_vec();
    if target.ends_with(DELETED) {
        target.truncate(target.len() - DELETED.len());
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, fifo) = (dir.path().join("file"), dir.path().join("link"), dir.path().join("fifo"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&file, &link] {
            let mut text = String::new();
            open_regular(path).unwrap().0.read_to_string(&mut text).unwrap();
            assert_eq!(text, "x");
        }
        // Opening the FIFO would wait for a writer for ever.
        for path in [fifo.as_path(), Path::new("/dev/null"), dir.path()] {
            assert!(open_regular(path).is_err(), "{}", path.display());
        }
    }
}
