//! Makes exactly known CUDA calls through the stub library of `tests/stub`, and counts them.
//!
//! The calls are made by `stub-app`, a C program, after a [`plan::Plan`]; it counts in a file that it maps shared, which
//! [`stats`] reads. What is counted there does not depend on how the process ends, nor on any tracer.

pub mod plan;
pub mod run;
pub mod stats;

/// Where the stub libraries and `stub-app` were built: `libcuda.so.1`, `libcudart.so.12`, `libcudart.so.13`, `stub-app` and
/// `stub-app-static`, which holds the runtime itself. `INGERO_STUB_DIR` in the environment names another place.
pub fn stub_dir() -> std::path::PathBuf {
    std::env::var_os("INGERO_STUB_DIR").map_or_else(|| env!("INGERO_STUB_DIR").into(), Into::into)
}
