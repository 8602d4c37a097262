//! CUDA library files: what they are, told from what they export.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::makedev;

use super::ElfError;
use super::elf::ElfFile;
use super::maps::Mapping;
use super::resolve::{Resolved, open_regular};

/// Which API a library implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LibraryKind {
    /// The runtime, `libcudart`: `cuda…` functions.
    Cudart,
    /// The driver, `libcuda`: `cu…` functions.
    Cuda,
    /// Collectives, `libnccl`: `nccl…` functions.
    Nccl,
}

impl LibraryKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Cudart, Self::Cuda, Self::Nccl];

    /// The `src` of this library's records.
    #[must_use]
    pub fn src(self) -> &'static str {
        match self {
            Self::Cudart => "cudart",
            Self::Cuda => "cuda",
            Self::Nccl => "nccl",
        }
    }

    /// Functions of which a library of this kind defines at least one.
    fn markers(self) -> &'static [&'static [u8]] {
        match self {
            Self::Cudart => &[b"cudaLaunchKernel", b"cudaMalloc"],
            Self::Cuda => &[b"cuLaunchKernel", b"cuInit"],
            Self::Nccl => &[b"ncclAllReduce"],
        }
    }
}

/// A file, as the kernel tells files apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Device (`st_dev`).
    pub dev: u64,
    /// Inode number (`st_ino`).
    pub inode: u64,
}

impl FileId {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        Self { dev: metadata.dev(), inode: metadata.ino() }
    }

    /// The file that maps shows. On btrfs its device is another one than `st_dev`.
    pub fn mapped(mapping: &Mapping<'_>) -> Self {
        Self { dev: makedev(mapping.dev_major, mapping.dev_minor), inode: mapping.inode }
    }
}

/// One library file in one process (or, from the linker's cache, in none).
///
/// A file that implements two APIs (a program with everything linked in) is listed once for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Which API it implements.
    pub kind: LibraryKind,
    /// The file as a uprobe sees it: the files that overlay mounts (containers of one image) make of one file below
    /// have one id, and are to be probed once.
    pub id: FileId,
    /// The file that `open_path` opens; differs from `id` only on overlays.
    pub opened: FileId,
    /// The path as the process sees it: bytes, whatever they are, without ` (deleted)`.
    pub path: Vec<u8>,
    /// A path that opens the file from here, as long as the process lives: through `/proc/PID/root`, or through
    /// `/proc/PID/map_files` where that leads elsewhere.
    pub open_path: PathBuf,
    /// Unlinked while mapped (an upgrade under a running process).
    pub deleted: bool,
    /// `DT_SONAME`.
    pub soname: Option<Vec<u8>>,
    /// Version digits behind `.so.`, from the file's name or its soname, whichever says more: `12`, `580.82.07`.
    pub version: Option<String>,
    /// The linker's build id: equal for copies of one build.
    pub build_id: Option<Vec<u8>>,
    /// Its functions are in the full symbol table only: linked into the program.
    pub is_static: bool,
}

impl Library {
    /// Opens the file and makes sure that it is still the one that was found.
    ///
    /// # Errors
    /// When it is gone (with its process) or another file has taken its place.
    pub fn open(&self) -> io::Result<File> {
        let (file, metadata) = open_regular(&self.open_path)?;
        if FileId::of(&metadata) != self.opened {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{} is no longer the library that was found there", self.open_path.display()),
            ));
        }
        Ok(file)
    }

    /// What this file is now, of which `file` is open: as it was found, but for what its contents say.
    ///
    /// # Errors
    /// When it is malformed. A sound file that is no CUDA library any more gives an empty list.
    pub fn look_again(&self, file: &File) -> Result<Vec<Self>, ElfError> {
        let facts = facts(file)?;
        let library = |&(kind, is_static): &(LibraryKind, bool)| Self {
            kind,
            is_static,
            soname: facts.soname.clone(),
            version: version(&self.path, facts.soname.as_deref()),
            build_id: facts.build_id.clone(),
            ..self.clone()
        };
        Ok(facts.kinds.iter().map(library).collect())
    }
}

/// What a file's own bytes say, whoever maps it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileFacts {
    /// Kinds, each with whether it is only in the full symbol table.
    pub(super) kinds: Vec<(LibraryKind, bool)>,
    pub(super) soname: Option<Vec<u8>>,
    pub(super) build_id: Option<Vec<u8>>,
}

/// Reads what kinds of library a file is. No CUDA library is no error.
pub(super) fn facts(file: &File) -> Result<FileFacts, ElfError> {
    let elf = match ElfFile::new(file) {
        Ok(elf) => elf,
        Err(ElfError::NotOurs) => return Ok(FileFacts::default()),
        Err(error) => return Err(error),
    };
    let mut kinds = Vec::new();
    for kind in LibraryKind::ALL {
        if elf.defines_any(kind.markers())? {
            kinds.push((kind, false));
        } else if elf.program_contains(kind.markers()[0])? {
            kinds.push((kind, true));
        }
    }
    if kinds.is_empty() {
        return Ok(FileFacts::default());
    }
    Ok(FileFacts { kinds, soname: elf.soname()?, build_id: elf.build_id()? })
}

/// Looks at one file by its path, as one found in the linker's cache or named by the user.
///
/// # Errors
/// When it cannot be opened or is malformed. A sound file that is no CUDA library gives an empty list.
pub fn inspect_file(path: &Path) -> Result<Vec<Library>, ElfError> {
    let (file, metadata) = open_regular(path)?;
    // The real name carries the full version: libcuda.so.1 -> libcuda.so.580.82.07.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let facts = facts(&file)?;
    let id = FileId::of(&metadata);
    let found =
        Resolved { file, metadata, path: real.as_os_str().as_bytes().to_vec(), open_path: real, deleted: false };
    Ok(libraries(&facts, id, &found))
}

/// The libraries in one opened file, which is known as `id`.
pub(super) fn libraries(facts: &FileFacts, id: FileId, found: &Resolved) -> Vec<Library> {
    let library = |&(kind, is_static): &(LibraryKind, bool)| Library {
        kind,
        id,
        opened: FileId::of(&found.metadata),
        path: found.path.clone(),
        open_path: found.open_path.clone(),
        deleted: found.deleted,
        soname: facts.soname.clone(),
        version: version(&found.path, facts.soname.as_deref()),
        build_id: facts.build_id.clone(),
        is_static,
    };
    facts.kinds.iter().map(library).collect()
}

/// The longer of the version in the file's name and the one in its soname.
fn version(path: &[u8], soname: Option<&[u8]>) -> Option<String> {
    let name = Path::new(OsStr::from_bytes(path)).file_name()?.as_bytes();
    [Some(name), soname].into_iter().flatten().filter_map(version_in_name).max_by_key(String::len)
}

/// `libcuda.so.580.82.07` -> `580.82.07`; `None` for anything but digits and dots.
fn version_in_name(name: &[u8]) -> Option<String> {
    let at = memchr::memmem::rfind(name, b".so.")?;
    let digits = std::str::from_utf8(&name[at + 4..]).ok()?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')).then(|| digits.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_version_that_says_more() {
        assert_eq!(version(b"/lib/libcuda.so.580.82.07", Some(b"libcuda.so.1")).as_deref(), Some("580.82.07"));
        assert_eq!(version(b"/x/libcudart-cafe.so", Some(b"libcudart.so.12")).as_deref(), Some("12"));
        assert_eq!(version(b"/x/libcudart.so.12", None).as_deref(), Some("12"));
        assert_eq!(version(b"/x/libcudart.so.\xff", Some(b"libcudart.so.evil\n")), None);
        assert_eq!(version(b"/", None), None);
    }
}
