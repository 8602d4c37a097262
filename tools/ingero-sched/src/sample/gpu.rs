//! What the GPUs did, as NVIDIA's management library (NVML) says.
//!
//! The library is loaded at run time, where there is one. It is asked on a thread of its own, which nothing waits for: a driver
//! that hangs, and with it every call into the library, must not stop the records about what else goes on. Then the last
//! reading grows old, and samples are without GPUs:
//!
//! ```text
//! NVML thread   read at 0.1      read at 1.1      hangs .............................
//! sampler       at 1.0: of 0.1   at 2.0: of 1.1   at 3.0: of 1.1   at 4.0: none (of 1.1)
//! ```

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ingero_common::record::write::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

/// The name without a version is part of development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";
const READ_EVERY: Duration = Duration::from_secs(1);
/// What was read longer ago says nothing of the interval that a sample is about.
const MAX_AGE: Duration = Duration::from_millis(2500);

/// The newest reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gpus(Arc<Mutex<Option<Reading>>>);

#[derive(Debug)]
struct Reading {
    at: Instant,
    gpus: Vec<Gpu>,
}

impl Gpus {
    /// Starts reading, if there is something to read. The thread ends with the process.
    pub(crate) fn start() -> Self {
        let gpus = Self::default();
        let shared = gpus.clone();
        // Without a thread there are no GPU samples, as without the library.
        let _ = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            let Ok(nvml) = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init() else { return };
            loop {
                // An error may pass: a driver that is being reset.
                if let Ok(read) = read(&nvml) {
                    shared.put(Reading { at: Instant::now(), gpus: read });
                }
                thread::sleep(READ_EVERY);
            }
        });
        gpus
    }

    fn put(&self, reading: Reading) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    /// What was read last, unless that is too long ago.
    pub(crate) fn latest(&self, now: Instant) -> Option<Vec<Gpu>> {
        let reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = reading.as_ref().filter(|reading| now.saturating_duration_since(reading.at) <= MAX_AGE)?;
        Some(fresh.gpus.clone())
    }
}

/// All GPUs of which something is known. One that is split (MIG) has no utilisation of its own.
fn read(nvml: &Nvml) -> Result<Vec<Gpu>, NvmlError> {
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        let util_pct = device.utilization_rates().ok().map(|rates| rates.gpu);
        let mem_used_bytes = device.memory_info().ok().map(|memory| memory.used);
        if util_pct.is_some() || mem_used_bytes.is_some() {
            gpus.push(Gpu { index, util_pct, mem_used_bytes });
        }
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_reading_is_none() {
        let gpus = Gpus::default();
        let at = Instant::now();
        assert_eq!(gpus.latest(at), None);
        let gpu = Gpu { index: 0, util_pct: Some(93), mem_used_bytes: Some(7) };
        gpus.put(Reading { at, gpus: vec![gpu] });
        assert_eq!(gpus.latest(at + MAX_AGE), Some(vec![gpu]));
        assert_eq!(gpus.latest(at + MAX_AGE + Duration::from_nanos(1)), None);
    }
}
