//! The binaries under test, built from this very tree.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Where the binaries lie: beside this test, in cargo's target directory, brought up to date once in each test program; or
/// `INGERO_BIN_DIR`, taken as it is.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os("INGERO_BIN_DIR") {
        Some(dir) => dir.into(),
        None => build(),
    })
}

/// The path of one of them.
pub fn bin(name: &str) -> PathBuf {
    let path = bin_dir().join(name);
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

/// A test runs from `target/PROFILE/deps`; the binaries of the same profile belong one level up.
fn build() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.ancestors().nth(2).unwrap().to_owned();
    let profile = match dir.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        other => other,
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(repository()).args(["build", "--quiet", "--workspace", "--bins", "--profile", profile]);
    cargo.arg("--target-dir").arg(dir.parent().unwrap());
    assert!(cargo.status().unwrap().success(), "{cargo:?} failed");
    dir
}
