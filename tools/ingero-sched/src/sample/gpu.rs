//! What the GPUs did, as NVIDIA's management library (NVML) says.
//!
//! The library is loaded at run time, where there is one. It is asked on a thread of its own, which nothing waits for: a driver
//! that hangs, and with it every call into the library, must not stop the records about what else goes on. It is read often,
//! and a sample has the mean of what was read since the one before. Then the last reading grows old, and samples are without
//! GPUs:
//!
//! ```text
//! NVML thread   0.1 0.2 0.3 … 1.0   1.1 1.2 … 1.7   hangs ..................
//! sampler       at 1.0: mean of 10  at 2.0: of 7    at 3.0: none
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ingero_common::privileges::{Work, confine};
use ingero_common::record::write::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use rustix::thread::CapabilitySet;

/// The name without a version is part of development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// The library's own sample period is 1/6 s to 1 s (nvml.h, `nvmlUtilization_t`).
const READ_EVERY: Duration = Duration::from_millis(100);

/// What was read since the last sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gpus(Arc<Mutex<BTreeMap<u32, Readings>>>);

/// Of one GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Readings {
    util_sum_pct: u64,
    utils: u32,
    mem_used_bytes: Option<u64>,
}

impl Gpus {
    /// Starts reading, if there is something to read. The thread ends with the process.
    pub(crate) fn start() -> Self {
        let gpus = Self::default();
        let shared = gpus.clone();
        // Without a thread there are no GPU samples, as without the library.
        let _ = thread::Builder::new().name("nvml".to_owned()).spawn(move || {
            let Ok(nvml) = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init() else { return };
            // Not before: to make missing device files the library runs a program of the driver's (nvidia-modprobe).
            if confine(CapabilitySet::empty(), &Work::of_device_reader()).is_err() {
                return;
            }
            loop {
                // An error may pass: a driver that is being reset.
                if let Ok(read) = read(&nvml) {
                    read.into_iter().for_each(|(index, util_pct, mem)| shared.put(index, util_pct, mem));
                }
                thread::sleep(READ_EVERY);
            }
        });
        gpus
    }

    fn put(&self, index: u32, util_pct: Option<u32>, mem_used_bytes: Option<u64>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = all.entry(index).or_default();
        if let Some(pct) = util_pct {
            one.util_sum_pct += u64::from(pct);
            one.utils += 1;
        }
        one.mem_used_bytes = mem_used_bytes.or(one.mem_used_bytes);
    }

    /// The means since this was last asked; `None` where nothing was read.
    pub(crate) fn take(&self) -> Option<Vec<Gpu>> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let gpu = |(index, one): (u32, Readings)| Gpu {
            index,
            util_pct: (one.utils > 0).then(|| (one.util_sum_pct as f64 / f64::from(one.utils) * 10.0).round() / 10.0),
            mem_used_bytes: one.mem_used_bytes,
        };
        (!all.is_empty()).then(|| all.into_iter().map(gpu).collect())
    }
}

/// What is known of one GPU: number, use in percent, bytes of memory in use.
type Reading = (u32, Option<u32>, Option<u64>);

/// All GPUs of which something is known. One that is split (MIG) has no utilisation of its own.
fn read(nvml: &Nvml) -> Result<Vec<Reading>, NvmlError> {
    let mut gpus = Vec::new();
    for index in 0..nvml.device_count()? {
        let Ok(device) = nvml.device_by_index(index) else { continue };
        let util_pct = device.utilization_rates().ok().map(|rates| rates.gpu);
        let mem_used_bytes = device.memory_info().ok().map(|memory| memory.used);
        if util_pct.is_some() || mem_used_bytes.is_some() {
            gpus.push((index, util_pct, mem_used_bytes));
        }
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_mean_of_what_was_read_since_the_one_before() {
        let gpus = Gpus::default();
        assert_eq!(gpus.take(), None);
        for pct in [90, 95, 96] {
            gpus.put(0, Some(pct), Some(u64::from(pct)));
        }
        gpus.put(1, None, Some(7));
        let want = [
            Gpu { index: 0, util_pct: Some(93.7), mem_used_bytes: Some(96) },
            Gpu { index: 1, util_pct: None, mem_used_bytes: Some(7) },
        ];
        assert_eq!(gpus.take(), Some(want.to_vec()));
        assert_eq!(gpus.take(), None, "a driver that hangs");
    }
}
