//! Real interpreters, as many versions as this machine has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One interpreter of each minor version of Python from 3.9 to 3.13, by its number: the one on the PATH, and those that pyenv keeps.
///
/// # Panics
/// When there is none.
pub fn interpreters() -> Vec<(u32, PathBuf)> {
    let kept = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    let versions = kept.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let mut found = BTreeMap::new();
    for path in versions.map(|version| version.path().join("bin/python3")).chain([PathBuf::from("python3")]) {
        if let Some((minor, program)) = version(&path) {
            found.insert(minor, program);
        }
    }
    assert!(!found.is_empty(), "the tests need a python3");
    found.into_iter().filter(|(minor, _)| (9..=13).contains(minor)).collect()
}

/// The minor version of a Python 3, and its real path: what a name stands for may depend on the folder.
fn version(python: &Path) -> Option<(u32, PathBuf)> {
    let script = "import sys; print(sys.version_info[0], sys.version_info[1], sys.executable)";
    let out = Command::new(python).args(["-c", script]).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?;
    let mut words = text.trim().splitn(3, ' ');
    let (major, minor) = (words.next()?, words.next()?);
    (major == "3").then_some((minor.parse().ok()?, PathBuf::from(words.next()?)))
}
