//! Compiles every `bpf/*.bpf.c` into `$OUT_DIR/NAME.bpf.o` with clang.
//!
//! The programs are C rather than Rust because CO-RE (field offsets patched at load time to the running
//! kernel's) needs a compiler that emits BTF relocations, and that is clang. `CLANG` chooses another one.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The header by which libbpf's presence is told.
const LIBBPF_HEADER: &str = "bpf/bpf_helpers.h";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // Cargo prints each of these as an error of its own, so the message stays one line.
            println!("cargo::error={}", message.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").map_err(|e| format!("CARGO_CFG_TARGET_ARCH: {e}"))?;
    // What bpf_tracing.h calls the architecture, to name the registers of `struct pt_regs`.
    let (bpf_arch, endian) = match arch.as_str() {
        "x86_64" => ("x86", "bpfel"),
        "aarch64" => ("arm64", "bpfel"),
        other => {
            return Err(format!("the probes know the calling conventions of x86_64 and aarch64, not of {other}"));
        }
    };
    let clang = env::var_os("CLANG").unwrap_or_else(|| OsString::from("clang"));
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let system_include = system_include(&arch)?;

    for source in sources(Path::new("bpf"))? {
        let name = source.file_stem().ok_or("a source without a name")?;
        let object = out_dir.join(name).with_extension("bpf.o");
        let output = Command::new(&clang)
            .args(["-target", endian, "-mcpu=v3", "-O2", "-g", "-std=gnu11"])
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            // libbpf 1.1's own headers shift negative values and compare signs in macros.
            .arg("-Wno-sign-compare")
            .arg(format!("-D__TARGET_ARCH_{bpf_arch}"))
            .arg("-Ibpf")
            .args(system_include.iter().flat_map(|dir| [OsString::from("-idirafter"), dir.into()]))
            // Paths of the build machine have no place in a shipped binary.
            .arg("-fdebug-prefix-map=bpf=ebpf")
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .output()
            .map_err(|e| {
                format!(
                    "cannot run {:?} to compile {}: {e}; install clang 12 or newer (Debian, Ubuntu: apt install clang \
                     libbpf-dev; Fedora: dnf install clang libbpf-devel) or name one in CLANG",
                    clang,
                    source.display()
                )
            })?;
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            if said.contains(LIBBPF_HEADER) && said.contains("not found") {
                return Err(format!(
                    "{} needs libbpf's headers and {LIBBPF_HEADER} was not found; install them (Debian, Ubuntu: apt install \
                     libbpf-dev; Fedora: dnf install libbpf-devel)",
                    source.display()
                ));
            }
            // The whole of clang's report goes to stderr, which cargo shows below the error.
            let _ = std::io::stderr().write_all(said.as_bytes());
            return Err(format!("{:?} could not compile {} ({})", clang, source.display(), output.status));
        }
    }
    Ok(())
}

/// The `*.bpf.c` files of `dir`, in a stable order.
fn sources(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("cannot list {}: {e}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| format!("cannot list {}: {e}", dir.display()))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(".bpf.c")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Where `asm/types.h` lives: on multiarch distributions it is outside the paths that clang searches for the bpf target.
fn system_include(arch: &str) -> Result<Vec<PathBuf>, String> {
    let host = env::var("HOST").map_err(|e| format!("HOST: {e}"))?;
    let host_arch = host.split('-').next().unwrap_or_default();
    // The integer types in these headers are the same on both, so the host's serve a cross build too.
    Ok([arch, host_arch]
        .iter()
        .flat_map(|arch| [format!("/usr/include/{arch}-linux-gnu"), format!("/usr/{arch}-linux-gnu/include")])
        .map(PathBuf::from)
        .filter(|dir| dir.join("asm/types.h").is_file())
        .take(1)
        .collect())
}
