//! Where an output file is to be, found so that nobody else decides it.
//!
//! Where everybody may write (`/tmp`), others may have left a file, a link or a FIFO under the very name that we are given,
//! and root would overwrite what a link leads to, or write into a file that its owner reads. Kernels can refuse that
//! (`fs.protected_symlinks` and its kin, off by default), for us it always is:
//!
//! ```text
//! -o /home/me/runs/today.ndjson      today.ndjson -> /data/1.ndjson      followed: only we may write to runs/
//! -o /tmp/today.ndjson               today.ndjson -> /etc/passwd         refused, unless the link is ours
//! -o /tmp/today.ndjson               a file or a FIFO of somebody else   refused
//! -o /tmp/today.ndjson               a second name of some file          refused
//! ```
//!
//! The path is followed name by name, each looked up in the directory that was opened before (openat(2)): what was looked at
//! is what is opened, whatever is renamed meanwhile.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fcntl_getfl, fcntl_setfl, fstat, fstatfs, ftruncate, openat,
    readlinkat,
};
use rustix::io::Errno;

use crate::text::Printable;

/// As many as the kernel follows in one path (path_resolution(7)).
const MAX_LINKS: u32 = 40;

/// A name in an open directory. What is there, if anything, is no symbolic link.
#[derive(Debug)]
pub(crate) struct Place {
    dir: OwnedFd,
    name: OsString,
    /// Links of procfs (`/proc/self/fd/1`) lead to files that need not have a path. The kernel follows them.
    in_procfs: bool,
    /// Who opens it: a user id.
    user: u32,
}

impl Place {
    /// Follows `path` for `user`, as whom this thread is to access files.
    ///
    /// # Errors
    /// The kernel's, and links that somebody else may have placed.
    pub(crate) fn find(path: &Path, user: u32) -> io::Result<Self> {
        let mut rest = VecDeque::new();
        let mut dir = follow(path.as_os_str(), &mut rest)?.map_or_else(|| directory(CWD, OsStr::new(".")), Ok)?;
        let mut links = 0..MAX_LINKS;
        while let Some(name) = rest.pop_front() {
            let is_last = rest.is_empty();
            let place = |dir, name, in_procfs| Ok(Self { dir, name, in_procfs, user });
            let there = match openat(&dir, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Ok(there) => there,
                Err(Errno::NOENT) if is_last => return place(dir, name, false),
                Err(error) => return Err(error.into()),
            };
            let link = fstat(&there)?;
            if FileType::from_raw_mode(link.st_mode) != FileType::Symlink {
                if is_last {
                    return place(dir, name, false);
                }
                dir = there;
            } else if fstatfs(&there)?.f_type == PROC_SUPER_MAGIC {
                if is_last {
                    return place(dir, name, true);
                }
                dir = directory(&dir, &name)?;
            } else {
                links.next().ok_or(Errno::LOOP)?;
                if is_foreign(&link, &fstat(&dir)?, user) {
                    return Err(foreign(&link, "symbolic link"));
                }
                let target = OsString::from_vec(readlinkat(&there, "", Vec::new())?.into_bytes());
                if let Some(root) = follow(&target, &mut rest)? {
                    dir = root;
                }
            }
        }
        Err(Errno::ISDIR.into())
    }

    /// Whether opening it for writing waits for a reader.
    pub(crate) fn is_fifo(&self) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC | self.no_follow();
        let there = openat(&self.dir, &self.name, flags, Mode::empty()).and_then(fstat);
        there.is_ok_and(|there| FileType::from_raw_mode(there.st_mode) == FileType::Fifo)
    }

    /// Opens it for writing, empty. A file that is not there is made with `mode`, as far as the umask lets it.
    ///
    /// # Errors
    /// The kernel's, `ENXIO` for a FIFO without a reader among them, and what belongs to somebody else.
    pub(crate) fn create(&self, mode: Mode) -> io::Result<File> {
        // Nothing happens to what is there before it was looked at: no wait for a FIFO, no truncation.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat(&self.dir, &self.name, flags | self.no_follow(), mode)?;
        let there = fstat(&file)?;
        if !self.in_procfs {
            let dir = fstat(&self.dir)?;
            if is_foreign(&there, &dir, self.user) {
                return Err(foreign(&there, "file"));
            }
            if is_public(&dir) && there.st_nlink > 1 {
                return Err(io::Error::other(
                    "it is a second name of some file, in a directory that everybody may write to",
                ));
            }
        }
        if FileType::from_raw_mode(there.st_mode) == FileType::RegularFile {
            ftruncate(&file, 0)?;
        }
        fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK))?;
        Ok(file.into())
    }

    fn no_follow(&self) -> OFlags {
        if self.in_procfs { OFlags::empty() } else { OFlags::NOFOLLOW }
    }
}

/// Puts the names of `path` in front of `rest`; the directory to begin with where that is not the one we are in.
fn follow(path: &OsStr, rest: &mut VecDeque<OsString>) -> io::Result<Option<OwnedFd>> {
    let bytes = path.as_bytes();
    if bytes.is_empty() {
        return Err(Errno::NOENT.into());
    }
    // What ends with a slash has to be a directory.
    let end = bytes.ends_with(b"/").then_some(&b"."[..]);
    let names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).chain(end);
    for name in names.collect::<Vec<_>>().into_iter().rev() {
        rest.push_front(OsStr::from_bytes(name).to_owned());
    }
    bytes.starts_with(b"/").then(|| directory(CWD, OsStr::new("/"))).transpose()
}

fn directory(dir: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    Ok(openat(dir, name, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether everybody may write to a directory.
fn is_public(dir: &Stat) -> bool {
    dir.st_mode & Mode::WOTH.bits() != 0
}

/// Whether somebody else may have put `there` into `dir` for `user` to fall over. The owner of the directory may do with it
/// what they like anyway.
fn is_foreign(there: &Stat, dir: &Stat, user: u32) -> bool {
    is_public(dir) && there.st_uid != user && there.st_uid != dir.st_uid
}

fn foreign(there: &Stat, what: &str) -> io::Error {
    io::Error::other(format!(
        "it is a {what} of the user with id {}, in a directory that everybody may write to",
        there.st_uid
    ))
}

/// A path as people read it.
pub(crate) fn printable(path: &Path) -> Printable<'_> {
    Printable(path.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let own = rustix::process::geteuid().as_raw();
        Place::find(path.as_ref(), own)?.create(Mode::RUSR | Mode::WUSR)
    }

    /// A directory of ours, in which everybody may write.
    fn public() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        dir
    }

    #[test]
    fn files_are_made_and_emptied_where_the_kernel_would() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("a")).unwrap();
        symlink("a", at("to a")).unwrap();
        symlink(at("to a/../a/file"), at("to file")).unwrap();
        symlink("/", at("root")).unwrap();
        let below_root = format!("root{}/a/file", dir.path().display());
        for path in ["a/file", "to a/file", "to file", "./a/.//../a/file", &below_root] {
            fs::write(at("a/file"), "what was there is longer").unwrap();
            create(at(path)).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read(at("a/file")).unwrap(), b"new", "{path}");
        }
        symlink("new", at("to new")).unwrap();
        create(at("to new")).unwrap();
        assert_eq!(fs::metadata(at("new")).unwrap().permissions().mode() & 0o777, 0o600);
        create("/dev/null").unwrap().write_all(b"x").unwrap();
    }

    #[test]
    fn errors_are_the_kernels() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        for (path, errno) in [
            ("none/file", Errno::NOENT),
            ("file/x", Errno::NOTDIR),
            ("file/", Errno::NOTDIR),
            ("none/", Errno::NOENT),
            (".", Errno::ISDIR),
            ("..", Errno::ISDIR),
            ("loop", Errno::LOOP),
        ] {
            let error = create(at(path)).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(errno), "{path}: {error}");
        }
        for (path, errno) in [("", Errno::NOENT), ("/", Errno::ISDIR)] {
            assert_eq!(Errno::from_io_error(&create(path).unwrap_err()), Some(errno), "{path}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_descriptor_of_ours_is_opened_whatever_it_is() {
        let (mut reader, writer) = io::pipe().unwrap();
        create(format!("/proc/self/fd/{}", writer.as_raw_fd())).unwrap().write_all(b"x").unwrap();
        create(format!("/dev/fd/{}", writer.as_raw_fd())).unwrap().write_all(b"y").unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "xy");
    }

    #[test]
    fn a_second_name_is_refused_where_everybody_may_have_made_it() {
        for (dir, refused) in [(tempfile::tempdir().unwrap(), false), (public(), true)] {
            let (first, second) = (dir.path().join("first"), dir.path().join("second"));
            fs::write(&first, "old").unwrap();
            fs::hard_link(&first, &second).unwrap();
            let result = create(&second);
            assert_eq!(result.is_err(), refused, "{result:?}");
            assert_eq!(fs::read(&first).unwrap().is_empty(), !refused);
        }
    }

    #[test]
    fn what_is_ours_in_a_public_directory_is_ours() {
        let dir = public();
        let target = dir.path().join("target");
        fs::write(&target, "old").unwrap();
        symlink("target", dir.path().join("link")).unwrap();
        create(dir.path().join("link")).unwrap();
        assert!(fs::read(&target).unwrap().is_empty());
    }

    /// The table of `fs.protected_symlinks` (sysctl/fs.rst): whose link or file, whose directory, who opens it.
    #[test]
    fn who_is_a_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let stat = |uid: u32, mode: u32| {
            let mut stat = rustix::fs::stat(dir.path()).unwrap();
            (stat.st_uid, stat.st_mode) = (uid, mode);
            stat
        };
        const STICKY: u32 = 0o41_777;
        for (there, dir, mode, user, foreign) in [
            (1000, 0, STICKY, 0, true),
            (1000, 0, 0o40_777, 0, true),
            (1000, 0, 0o40_775, 0, false),
            (1000, 0, STICKY, 1000, false),
            (0, 0, STICKY, 1000, false),
            (1001, 0, STICKY, 1000, true),
            (1001, 1001, STICKY, 1000, false),
        ] {
            assert_eq!(is_foreign(&stat(there, 0), &stat(dir, mode), user), foreign, "{there} {dir} {mode:o} {user}");
        }
    }
}
