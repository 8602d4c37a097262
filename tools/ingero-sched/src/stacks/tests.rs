//! Real interpreters, as many versions as this machine has.

use std::path::PathBuf;
use std::process::Command;

/// One interpreter of each minor version from 3.9 on, by its number: those on the PATH and those that pyenv keeps.
pub(super) fn interpreters() -> Vec<(u32, PathBuf)> {
    let mut found = std::collections::BTreeMap::new();
    let kept = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    let versions = kept.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten().flatten();
    let pyenv = versions.map(|version| version.path().join("bin/python3"));
    for path in ["python3".into()].into_iter().chain(pyenv) {
        let script = "import sys; print(*sys.version_info[:2]); print(sys.executable)";
        let Ok(out) = Command::new(&path).args(["-c", script]).output() else { continue };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let mut lines = text.lines();
        let Some((3, minor)) = lines.next().and_then(|line| {
            let (major, minor) = line.split_once(' ')?;
            Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
        }) else {
            continue;
        };
        if (9..=13).contains(&minor) {
            found.entry(minor).or_insert_with(|| lines.next().map_or(path.clone(), PathBuf::from));
        }
    }
    assert!(!found.is_empty(), "the tests need a python3");
    found.into_iter().collect()
}
