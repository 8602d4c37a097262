//! Which files are one and the same to a uprobe.
//!
//! A uprobe sits on an inode, and for a file in an overlay that is the inode *below*, in the image layer. Two containers
//! of one image show the same library under two devices, yet a probe placed through either fires for both; probing both
//! would count every call twice (seen on 6.18: 3 calls, 3 hits through each of two mounts). Overlays do not tell which
//! file lies below, but they pass on its inode number, size and times. All of them equal, the change time (which no
//! program can set) included, means the same file: a copy made in a container's own layer has a change time of its own.
//!
//! ```text
//! container A   dev 40  inode 11  size 741088  mtime M  ctime C    -> first seen: itself
//! container B   dev 42  inode 11  size 741088  mtime M  ctime C    -> the one of container A
//! container C   dev 44  inode 11  size 741088  mtime M  ctime C'   -> itself: copied up by a chown
//! ```

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use super::library::FileId;

/// `f_type` of overlayfs (`include/uapi/linux/magic.h`).
const OVERLAYFS_SUPER_MAGIC: u64 = 0x794c_7630;

/// Inode number, size, modification and change time (s, ns).
type Below = (u64, u64, (i64, i64), (i64, i64));

/// Remembers the files of overlays that were seen.
#[derive(Debug, Default)]
pub(super) struct Identities {
    first_seen: HashMap<Below, FileId>,
}

impl Identities {
    /// The file by which all that share its inode below are known.
    pub(super) fn of(&mut self, file: &File, metadata: &Metadata) -> FileId {
        let id = FileId::of(metadata);
        let on_overlay = rustix::fs::fstatfs(file).is_ok_and(|fs| fs.f_type.cast_unsigned() == OVERLAYFS_SUPER_MAGIC);
        if on_overlay { self.below(id, metadata) } else { id }
    }

    fn below(&mut self, id: FileId, metadata: &Metadata) -> FileId {
        let key = (
            metadata.ino(),
            metadata.size(),
            (metadata.mtime(), metadata.mtime_nsec()),
            (metadata.ctime(), metadata.ctime_nsec()),
        );
        *self.first_seen.entry(key).or_insert(id)
    }
}
