//! The real CUDA runtime, from NVIDIA's wheels on the Python package index: the library itself, which needs no GPU to be called
//! and to answer that there is none.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Output, cache};

/// A real `libcudart.so.MAJOR`, downloaded once into `tests/.cache`.
///
/// Fails the test where pip or the network is missing.
#[track_caller]
pub fn cudart(major: u32) -> PathBuf {
    let (wheel, library) = match major {
        12 => ("nvidia-cuda-runtime-cu12==12.9.79", "nvidia/cuda_runtime/lib/libcudart.so.12"),
        13 => ("nvidia-cuda-runtime==13.0.96", "nvidia/cu13/lib/libcudart.so.13"),
        other => panic!("no wheel known for CUDA {other}"),
    };
    let directory = cache::place(&wheel.replace("==", "-"));
    let library = directory.join(library);
    let _held = cache::hold();
    if !library.exists() {
        fetch(wheel, &directory);
    }
    assert!(library.exists(), "{wheel} has no {}", library.display());
    library
}

#[track_caller]
fn fetch(wheel: &str, directory: &Path) {
    std::fs::create_dir_all(directory).unwrap();
    let download = tempfile::tempdir().unwrap();
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"])
        .arg(download.path())
        .arg(wheel);
    Output::of(&mut pip).exits(0);
    let file = std::fs::read_dir(download.path()).unwrap().next().unwrap().unwrap().path();
    Output::of(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(directory)).exits(0);
}
