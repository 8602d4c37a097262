//! What the driver's own counter says of the GPU's use, and the part of a loop that it explains beyond what the calls do.
//!
//! The counter agrees with CUPTI's kernel times within 5 points (docs/gpu.md). It does not count copies, so time in which a
//! copy may have run is never called idle by it. What it says is about a second that is over: read 1.0 s after a loop that keeps
//! an H200 busy had begun, it still said 1 %, and 94 % a second later. So samples count from a second after the loop's beginning.
//!
//! ```text
//!   loop       |=====================================|          busy all the time
//!   samples   ...| 1 % | 94 % | 94 % | 95 % |  94 % |...
//!                        ^------ these -----^                   those after it tell of the loop as well, and of what follows
//! ```

use crate::input::samples::{Sample, Samples};
use crate::limits::{COUNTER_ERROR, COUNTER_LAG_NS, MIN_COVERED, MIN_SAMPLES};
use crate::process::Account;
use crate::process::class::Class;

/// The GPU's use over a loop, and what of the loop was bound by its launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) busy_pct: f64,
    pub(crate) launch_bound_ns: u64,
    pub(crate) err_ns: u64,
}

/// What the counter says of a process's loop; `None` where it was not sampled. Of several GPUs the one that was used most
/// is taken for the process's: a loop is not said to leave its GPU idle because others are.
pub(crate) fn of(samples: &Samples, account: &Account) -> Option<Counted> {
    let (from_ns, to_ns) = account.loop_ns;
    let (mut busy_ns, mut covered_ns, mut n) = (Vec::<f64>::new(), 0.0, 0);
    let inside = |sample: &&Sample| sample.start_ns >= from_ns.saturating_add(COUNTER_LAG_NS) && sample.end_ns <= to_ns;
    for sample in samples.over(from_ns, to_ns).filter(inside).filter(|sample| !sample.gpus_pct.is_empty()) {
        let overlap_ns = (sample.end_ns - sample.start_ns) as f64;
        covered_ns += overlap_ns;
        n += 1;
        busy_ns.resize(busy_ns.len().max(sample.gpus_pct.len()), 0.0);
        for (busy_ns, pct) in busy_ns.iter_mut().zip(&sample.gpus_pct) {
            *busy_ns += overlap_ns * pct / 100.0;
        }
    }
    let loop_ns = account.loop_len_ns() as f64;
    if n < MIN_SAMPLES || covered_ns < loop_ns * MIN_COVERED {
        return None;
    }
    let busy = busy_ns.into_iter().fold(0.0, f64::max) / covered_ns;
    let known = [Class::Idle, Class::Silence, Class::Copy].iter().map(|&class| account.classes.get(class)).sum::<u64>();
    let open = [Class::Enqueue, Class::Between, Class::OtherCall].iter().map(|&class| account.classes.get(class));
    let beyond_ns = (loop_ns * (1.0 - busy)) as u64;
    Some(Counted {
        busy_pct: busy * 100.0,
        launch_bound_ns: beyond_ns.saturating_sub(known).min(open.sum()),
        err_ns: (loop_ns * COUNTER_ERROR) as u64,
    })
}
