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

#[cfg(test)]
mod tests {
    use crate::process::class::Class;
    use crate::report::model::{Kind, Report};
    use crate::testing::{Stream, US, found};

    const S_US: u64 = 1_000_000;

    /// A loop of 10 s that launches a kernel of 10 us each 20 us, and asks each ms; samples of the GPU's use: start, length in
    /// milliseconds, per cent.
    fn launching(samples: &[(u64, u64, &[u32])]) -> Report {
        let mut stream = Stream::watched();
        stream.call("cudaLaunchKernel", 0, 10);
        // Of a loop of 10 s it is enough to have one launch in a millisecond.
        (0..10_000).for_each(|ms| stream.call("cudaLaunchKernel", 1_000 + ms * 1_000, 500));
        for &(at_ms, len_ms, gpus) in samples {
            let gpus: Vec<String> = gpus.iter().map(|pct| format!(r#"{{"util_pct":{pct}}}"#)).collect();
            stream.put(
                at_ms * 1_000,
                len_ms * 1_000,
                &format!(r#""src":"sys","op":"sample","gpu":[{}]"#, gpus.join(",")),
            );
        }
        stream.end(10_001_000);
        stream.report()
    }

    fn each_second(pct: &[u32]) -> Vec<(u64, u64, &[u32])> {
        (0..10).map(|second| (1 + second * 1_000, 1_000, pct)).collect()
    }

    #[test]
    fn what_the_counter_says_beyond_the_account_is_launch_bound() {
        let report = launching(&each_second(&[40]));
        let account = &report.accounts[0];
        assert_eq!((account.gpu.gpu_busy_pct, account.loop_ns / US), (Some(40.0), 10 * S_US - 500));
        assert_eq!((account.classes.get(Class::Between) + account.classes.get(Class::Enqueue)) / US, 10 * S_US - 500);
        // 60 % of the loop, and 5 % of it more or less.
        let near = |ns: Option<u64>, us: u64| ns.is_some_and(|ns| (ns / US).abs_diff(us) <= 1_000);
        assert!(near(account.gpu.launch_bound_ns, 6 * S_US), "{:?}", account.gpu);
        assert!(near(account.gpu.launch_bound_err_ns, S_US / 2), "{:?}", account.gpu);
        let bound = found(&report, Kind::LaunchBound);
        assert_eq!((bound.len(), bound[0].severity.name()), (1, "high"));
        // What is certain of it decides how bad that is.
        assert_eq!(found(&launching(&each_second(&[77])), Kind::LaunchBound)[0].severity.name(), "medium");
        assert_eq!(found(&launching(&each_second(&[91])), Kind::LaunchBound)[0].severity.name(), "low");
        assert_eq!(found(&launching(&each_second(&[95])), Kind::LaunchBound).len(), 0);
        // The one that is used most is the process's.
        assert_eq!(launching(&each_second(&[0, 40, 7])).accounts[0].gpu.gpu_busy_pct, Some(40.0));
    }

    #[test]
    fn the_counter_speaks_of_the_second_before() {
        let busy = |samples: &[(u64, u64, &[u32])]| launching(samples).accounts[0].gpu.gpu_busy_pct;
        let mut samples = each_second(&[90]);
        samples[0].2 = &[1];
        assert_eq!(busy(&samples), Some(90.0), "read within the first second of the loop");
        samples[0].0 = 990;
        assert_eq!(busy(&samples), Some(90.0), "about time within it");
        samples[1].2 = &[1];
        assert!(busy(&samples) < Some(90.0));
    }

    #[test]
    fn few_samples_say_nothing() {
        let busy = |samples: &[(u64, u64, &[u32])]| launching(samples).accounts[0].gpu.gpu_busy_pct;
        assert_eq!(busy(&[(2_000, 4_000, &[40])]), None, "one may be odd");
        assert_eq!(busy(&[(2_000, 1_250, &[40]), (4_000, 1_250, &[40])]), Some(40.0));
        assert_eq!(busy(&[(2_000, 1_200, &[40]), (4_000, 1_200, &[40])]), None, "less than a quarter of the loop");
        assert_eq!(busy(&[(2_000, 4_000, &[]), (6_000, 4_000, &[])]), None, "there is no GPU in them");
    }
}
