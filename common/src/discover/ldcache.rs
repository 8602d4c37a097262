//! CUDA libraries that the machine offers, whether or not a process has them open: the dynamic linker's cache and the
//! places where installers put them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{Library, inspect_file};

/// The cache that `ldconfig` writes.
const CACHE: &str = "/etc/ld.so.cache";

/// Directories that hold CUDA libraries on common installations, beside those in the linker's cache: the toolkit, WSL,
/// the volume that container platforms mount, and the driver container of Kubernetes.
const PLACES: [&str; 9] = [
    "/usr/local/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/opt/cuda/lib64",
];

/// Beginnings of the names under which these libraries are installed.
const STEMS: [&[u8]; 3] = [b"libcudart.so", b"libcuda.so", b"libnccl.so"];

/// Looks up installed CUDA libraries; each file once, in the order of the linker. What cannot be read is left out.
#[must_use]
pub fn installed() -> Vec<Library> {
    let cached = std::fs::read(CACHE).map(|cache| cached_paths(&cache)).unwrap_or_default();
    installed_in(cached.into_iter().chain(PLACES.iter().flat_map(|place| listing(Path::new(place)))))
}

fn installed_in(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Library> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for path in paths {
        let named = path.file_name().is_some_and(|name| STEMS.iter().any(|stem| name.as_bytes().starts_with(stem)));
        if !named {
            continue;
        }
        for library in inspect_file(&path).unwrap_or_default() {
            if seen.insert((library.id, library.kind)) {
                found.push(library);
            }
        }
    }
    found
}

fn listing(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

/// The paths in a linker cache of the format glibc writes since 2.2.
///
/// Layout (`sysdeps/generic/dl-cache.h`): 20 bytes magic and version, count (u32), length of strings (u32), 20 bytes
/// of flags and reserve; then entries of 24 bytes: flags, key, value (u32 each, the latter two offsets of strings from
/// the magic), OS version (u32), hardware capabilities (u64). Older files carry it behind a first, older table.
fn cached_paths(file: &[u8]) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER: usize = 48;
    const ENTRY: usize = 24;
    let Some(start) = memchr::memmem::find(file, MAGIC) else { return Vec::new() };
    let cache = &file[start..];
    let u32_at = |at: usize| {
        cache.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(|bytes| u32::from_ne_bytes(bytes) as usize)
    };
    let count = u32_at(MAGIC.len()).unwrap_or(0).min(cache.len() / ENTRY);
    let mut paths = Vec::new();
    for index in 0..count {
        let Some(value) = u32_at(HEADER + index * ENTRY + 8) else { break };
        let Some(rest) = cache.get(value..) else { continue };
        let Some(end) = memchr::memchr(0, rest) else { continue };
        if rest.first() == Some(&b'/') {
            paths.push(PathBuf::from(OsStr::from_bytes(&rest[..end])));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(paths: &[&[u8]]) -> Vec<u8> {
        let strings_at = 48 + 24 * paths.len();
        let mut file = b"glibc-ld.so.cache1.1".to_vec();
        file.extend((paths.len() as u32).to_ne_bytes());
        file.extend([0; 24]);
        let mut strings = Vec::new();
        for path in paths {
            file.extend(3_u32.to_ne_bytes());
            file.extend(0_u32.to_ne_bytes());
            file.extend(((strings_at + strings.len()) as u32).to_ne_bytes());
            file.extend([0; 12]);
            strings.extend_from_slice(path);
            strings.push(0);
        }
        file.extend(strings);
        file
    }

    #[test]
    fn reads_the_linkers_cache() {
        let file = cache(&[b"/usr/lib/libcuda.so.1", b"relative", b"/o \xff/libnccl.so.2"]);
        let expected = [PathBuf::from("/usr/lib/libcuda.so.1"), OsStr::from_bytes(b"/o \xff/libnccl.so.2").into()];
        assert_eq!(cached_paths(&file), expected);
        let mut old = b"ld.so-1.7.0\0\x01\0\0\0old table".to_vec();
        old.extend(&file);
        assert_eq!(cached_paths(&old), expected);
    }

    #[test]
    fn a_broken_cache_gives_less_and_never_panics() {
        let file = cache(&[b"/usr/lib/libcuda.so.1", b"/usr/lib/libnccl.so.2"]);
        for end in 0..file.len() {
            assert!(cached_paths(&file[..end]).len() <= 2);
        }
        let mut huge = file;
        huge[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert!(cached_paths(&huge).len() <= 3);
        assert!(cached_paths(b"").is_empty());
    }
}
