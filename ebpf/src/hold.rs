//! Files that stay as they are: a read lease on each, or else a look at its size and times now and then.
//!
//! A read lease (fcntl(2), `F_SETLEASE`) is the kernel's promise to tell us before anybody writes: whoever opens the file for
//! writing, or truncates it, waits in that very call until we give the lease up, for 45 s at most
//! (`/proc/sys/fs/lease-break-time`). It is to be had only while nobody has the file open for writing. Replacing a file by
//! another one (`rename`, `unlink`) needs no wait and causes none: that is another inode.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

use crate::sys;

/// File systems (`linux/magic.h` and the like) on which a lease is the server's to give, and refused as if the file were
/// open for writing: NFS, SMB 1, SMB 2.
const NETWORK: [u64; 3] = [0x6969, 0xff53_4d42, 0xfe53_4d42];
/// On overlays the lease is on the file as it is seen there, and does not tell of writes to the file below.
const OVERLAY: u64 = 0x794c_7630;

/// What changes when a file's contents do. No program can set the change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open file.
    ///
    /// # Errors
    /// What `fstat(2)` reports.
    pub fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }
}

impl From<&Metadata> for Stamp {
    fn from(metadata: &Metadata) -> Self {
        Self {
            size_bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file that does not change as long as this is held, or of which it is noticed. Dropping it lets a writer go on.
#[derive(Debug)]
pub struct Hold {
    file: File,
    stamp: Stamp,
    leased: bool,
    on_overlay: bool,
}

impl Hold {
    /// Holds a file that is open for reading; `None` if somebody has it open for writing.
    ///
    /// The process must have a handler for SIGIO ([`crate::guard::Guard`] has), which is how the kernel tells of a writer.
    ///
    /// # Errors
    /// What `fstat(2)` or `dup(2)` report. A lease that is refused for good is no error.
    pub fn take(file: &File) -> io::Result<Option<Self>> {
        let kind = rustix::fs::fstatfs(file).map_or(0, |fs| fs.f_type.cast_unsigned());
        // The lease goes when the last descriptor does, so it is given up by name.
        let file = file.try_clone()?;
        let leased = match sys::lease_for_reading(file.as_fd()) {
            Ok(()) => true,
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) && !NETWORK.contains(&kind) => {
                return Ok(None);
            }
            Err(_) => false,
        };
        // After the lease: what changes from here on is noticed.
        let stamp = Stamp::of(&file);
        let hold = |stamp| Self { file, stamp, leased, on_overlay: kind == OVERLAY };
        stamp.map(|stamp| Some(hold(stamp)))
    }

    /// Whether a writer waits for us to let go, or the file has changed already.
    pub fn is_broken(&self) -> bool {
        // A lease that is to go, or is gone because we were too slow.
        let lease_breaks = self.leased && !sys::is_leased_for_reading(self.file.as_fd());
        lease_breaks || (self.must_be_looked_at() && !Stamp::of(&self.file).is_ok_and(|stamp| stamp == self.stamp))
    }

    /// Whether a change shows only to whoever looks.
    pub fn must_be_looked_at(&self) -> bool {
        !self.leased || self.on_overlay
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.leased {
            // It may be gone already.
            let _ = sys::give_up_lease(self.file.as_fd());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::guard::Guard;

    #[test]
    fn a_file_that_is_open_for_writing_is_not_held() {
        let _handles_sigio = Guard::new().unwrap();
        let path = std::env::temp_dir().join(format!("ingero-hold-{}", std::process::id()));
        let mut writer = File::create(&path).unwrap();
        let file = File::open(&path).unwrap();
        assert!(Hold::take(&file).unwrap().is_none());
        writer.write_all(b"x").unwrap();
        drop(writer);
        let hold = Hold::take(&file).unwrap().unwrap();
        assert!(!hold.is_broken() && hold.leased);
        // Whoever does not want to wait is told so, and we are told of it.
        let error = rustix::fs::open(
            &path,
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK,
            rustix::fs::Mode::empty(),
        );
        assert_eq!(error.unwrap_err(), Errno::AGAIN);
        assert!(hold.is_broken());
        drop(hold);
        // With the lease gone though its file is still open here.
        drop(File::options().write(true).open(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn without_a_lease_a_change_shows_in_the_stamp() {
        let path = std::env::temp_dir().join(format!("ingero-stamp-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let stamp = Stamp::of(&file).unwrap();
        let hold = Hold { file, stamp, leased: false, on_overlay: false };
        assert!(hold.must_be_looked_at() && !hold.is_broken());
        std::fs::write(&path, "xy").unwrap();
        assert!(hold.is_broken());
        std::fs::remove_file(&path).unwrap();
    }
}
