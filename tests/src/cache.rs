//! What the tests download once, into `tests/.cache`.

use std::fs::File;
use std::path::PathBuf;

use crate::repository;

/// Where something of this name is, or will be.
pub(crate) fn place(name: &str) -> PathBuf {
    repository().join("tests/.cache").join(name)
}

/// Holds the cache: tests that run at the same time may lack the same thing, and the second is to wait for the first.
#[track_caller]
pub(crate) fn hold() -> File {
    let path = place("lock");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lock = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    lock.lock().unwrap();
    lock
}
