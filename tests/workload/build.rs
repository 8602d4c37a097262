//! Builds the stub CUDA libraries and `stub-app` from `tests/stub` with the C compiler, beside this crate's other outputs.

use std::path::Path;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let env = |key| std::env::var(key).map_err(|_| format!("cargo did not set {key}"));
    let source = Path::new(&env("CARGO_MANIFEST_DIR")?).join("../stub");
    let out = Path::new(&env("OUT_DIR")?).join("stub");

    println!("cargo::rerun-if-changed={}", source.display());
    println!("cargo::rustc-env=INGERO_STUB_DIR={}", out.display());
    let made = Command::new("make")
        .arg("--silent")
        .arg("-C")
        .arg(&source)
        .arg(format!("OUT={}", out.display()))
        // The flags of a `make` that runs this build are not for that one.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        .output()
        .map_err(|e| format!("running make to build the stub CUDA library: {e}; install make and gcc"))?;
    if made.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&made.stderr).replace('\n', " ");
    Err(format!("building the stub CUDA library in {} failed: {said}", source.display()))
}
