//! Lines of `/proc/PID/maps`.
//!
//! ```text
//! 7f0a4c000000-7f0a4c0b2000 r-xp 0000e000 fd:01 1835042                    /opt/my libs/libcudart.so.12
//! start        end          perm offset   dev   inode                      path
//! ```
//!
//! The path is whatever the file's owner called it. The kernel (`show_map_vma`, `fs/proc/task_mmu.c`) escapes
//! exactly one byte, newline as `\012`, and not the backslash, so `\012` may also be four literal bytes. It appends
//! ` (deleted)` to unlinked files, which is also a legal end of a file name. Both doubts are settled by looking at the
//! file (see `resolve`), not here: [`Mapping::path`] is the line's own bytes.

use std::borrow::Cow;

use memchr::memmem;

/// What the kernel appends to the path of an unlinked file.
pub(super) const DELETED: &[u8] = b" (deleted)";

/// One line of a maps file that could be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// First address.
    pub start: u64,
    /// First address behind the mapping.
    pub end: u64,
    /// Mapped executable.
    pub exec: bool,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Device, major number.
    pub dev_major: u32,
    /// Device, minor number.
    pub dev_minor: u32,
    /// Inode number; 0 for anonymous memory.
    pub inode: u64,
    /// The path as the kernel wrote it; empty for anonymous memory.
    pub path: &'a [u8],
}

impl Mapping<'_> {
    /// Maps a file (rather than anonymous memory, a heap or the vdso).
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.first() == Some(&b'/')
    }
}

/// The lines of `text`; those that cannot be understood are left out.
pub fn parse(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<Mapping<'_>> {
    // The path is the last field and may hold spaces, so fields are taken from the front, five of them.
    let (range, rest) = field(line)?;
    let (perms, rest) = field(rest)?;
    let (offset, rest) = field(rest)?;
    let (dev, rest) = field(rest)?;
    let (inode, rest) = field(rest).or(Some((rest, b"")))?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let colon = dev.iter().position(|&byte| byte == b':')?;
    let path_start = rest.iter().position(|&byte| byte != b' ').unwrap_or(rest.len());
    Some(Mapping {
        start: hex(&range[..dash])?,
        end: hex(&range[dash + 1..])?,
        exec: *perms.get(2)? == b'x',
        offset: hex(offset)?,
        dev_major: u32::try_from(hex(&dev[..colon])?).ok()?,
        dev_minor: u32::try_from(hex(&dev[colon + 1..])?).ok()?,
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        path: &rest[path_start..],
    })
}

/// Splits at the first space; `None` where there is none.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = memchr::memchr(b' ', line)?;
    Some((&line[..space], &line[space + 1..]))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The path with the kernel's `\012` read as a newline.
pub(super) fn unescape(path: &[u8]) -> Cow<'_, [u8]> {
    const ESCAPED: &[u8] = b"\\012";
    if memmem::find(path, ESCAPED).is_none() {
        return Cow::Borrowed(path);
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = memmem::find(rest, ESCAPED) {
        out.extend_from_slice(&rest[..at]);
        out.push(b'\n');
        rest = &rest[at + ESCAPED.len()..];
    }
    out.extend_from_slice(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_usual_line() {
        let text = b"7f00-7f10 r-xp 0000e000 fd:01 1835042                    /usr/lib/libcuda.so.1\n";
        let maps: Vec<_> = parse(text).collect();
        assert_eq!(
            maps,
            [Mapping {
                start: 0x7f00,
                end: 0x7f10,
                exec: true,
                offset: 0xe000,
                dev_major: 0xfd,
                dev_minor: 1,
                inode: 1_835_042,
                path: b"/usr/lib/libcuda.so.1",
            }]
        );
    }

    #[test]
    fn keeps_spaces_and_the_deleted_mark_in_the_path() {
        let text = b"1-2 r-xp 0 0:1 7   /a b  c (deleted)\n3-4 rw-p 0 00:00 0 \n5-6 rw-p 0 00:00 0 [heap]";
        let maps: Vec<_> = parse(text).collect();
        assert_eq!(maps[0].path, b"/a b  c (deleted)");
        assert!(maps[0].is_file());
        assert_eq!(maps[1].path, b"");
        assert!(!maps[1].is_file() && !maps[2].is_file());
        assert_eq!(maps.len(), 3);
    }

    #[test]
    fn leaves_out_what_it_cannot_read() {
        let text =
            b"\n\nnonsense\n1-zz r-xp 0 0:1 7 /a\n1-2 r- 0 0:1 7 /a\n1-2 r-xp 0 0:1 99999999999999999999999 /a\n\
            1-2 r-xp 0 01 7 /a\n12 r-xp 0 0:1 7 /a\n\xff\xfe-2 r-xp 0 0:1 7 /a\n";
        assert_eq!(parse(text).count(), 0);
    }

    #[test]
    fn turns_only_the_escaped_newline_back() {
        assert_eq!(&*unescape(b"/a\\012b\\040\\012"), b"/a\nb\\040\n");
        assert!(matches!(unescape(b"/plain"), Cow::Borrowed(_)));
    }
}
