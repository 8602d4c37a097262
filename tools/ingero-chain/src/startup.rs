//! A process's cold start: calls whose time says nothing about its working rhythm.
//!
//! The first calls create the context and load code: milliseconds to seconds for what later takes
//! microseconds. It isn't only the very first one: code is loaded kernel by kernel, and on a real trace the
//! second launch took 3.06 s and allocations 12 to 15 took 0.26 to 0.76 s each. Cold is therefore
//!
//! - the first call of each group, the first launch of each kernel function, and whatever loads code;
//! - before the process has its rhythm (two synchronising calls after its first launch, or 256 launches):
//!   allocations and frees of 5 ms and more, and other calls of 100 ms and more, unless the call mainly
//!   waited for a CPU, or waits for the GPU by its nature, or copies, which may take long at any time.
//!
//! Gaps count from the end of the last cold launch before the first warm one: a launch of a function that was
//! launched before, which returns within a millisecond.
//!
//! ```text
//!   malloc  launch A (cold)      launch B (cold)  launch A  …      counts from the end of launch B, so that the
//!   ██      ██████           ██  ███████        ██ █ █ █    …      wait between the cold ones is not a gap
//! ```
//!
//! A process that never launches anything counts from the end of its second call.
//!
//! A few warm launches are no rhythm yet: a program may try a kernel, import its model code for a second and compile it for
//! half a minute before it does the same thing over and over. The rhythm begins with the third *step*, a warm launch that is
//! waited for, or with 256 warm launches, where there are many more to come. A gap before it belongs to the start if none after it lasts even a tenth as
//! long; a loop that is starved from its first step has such gaps later, too.
//!
//! ```text
//!   A A sync         imports, compiles         A sync  A sync  A sync  A sync …    start-up: nothing like it comes again
//!   A A sync   waits for data   A sync   waits for data   A sync   waits for da…   starved:  both gaps count
//! ```
//!
//! That is so only where the start was seen: the program began under watch (its fork or exec is on record, later than the
//! tracer's start), or the first call on record is one that initialises CUDA and takes as long as that takes. A process that
//! was running when the tracer came, or a recording that was cut, has a first call too, but no start-up.

use ingero_common::host::HashSet;
use ingero_common::record::Record;

use crate::ops::Class;

/// Launches after which a process has its rhythm at the latest.
const RHYTHM_LAUNCHES: u64 = 256;
/// Synchronising calls after the first launch that make a rhythm.
const RHYTHM_SYNCS: u64 = 2;
/// Warm launches that were waited for, after which a process does the same over and over…
const RHYTHM_STEPS: u64 = 3;
/// …if it does: so many of them in all, or so many warm launches. Seven batches that all had to be waited for first are no
/// rhythm, and the wait for them is no start.
const LASTING_STEPS: u64 = 32;
const LASTING_LAUNCHES: u64 = 1024;
/// So many warm copies, launches and synchronises are more than a program's first steps.
const REPEATED_WORK: u64 = 16;
/// Before the rhythm: an allocation or free so long is cold.
const COLD_ALLOC_NS: u64 = 5_000_000;
/// Before the rhythm: another call so long is cold.
const COLD_CALL_NS: u64 = 100_000_000;
/// The first `cuInit`, or the first context, of a process takes milliseconds; again, microseconds.
const INIT_NS: u64 = 1_000_000;
/// A launch so short loaded nothing.
const WARM_LAUNCH_NS: u64 = 1_000_000;
/// Kernel functions that are told apart.
const MAX_FUNCS: usize = 65_536;

/// Whether a process's first call on record is really its first one: it sets CUDA up. By its name, and by its duration, as
/// libraries call the same functions again at any time. The runtime sets itself up in whatever is called first.
pub fn initialises(record: &Record<'_>, dur_ns: u64) -> bool {
    const OPS: [&str; 5] =
        ["cuInit", "cuDevicePrimaryCtxRetain", "cudaSetDevice", "cudaInitDevice", "cuGreenCtxCreate"];
    let op = &*record.op;
    let by_name = OPS.contains(&op) || op.starts_with("cuCtxCreate");
    let implicit = matches!(Class::of(&record.src, op), Class::Alloc | Class::Other) && record.src.starts_with("cuda");
    by_name && dur_ns >= INIT_NS || implicit && dur_ns >= COLD_CALL_NS
}

/// How far a process is with warming up.
#[derive(Debug, Default)]
pub struct Startup {
    launches: u64,
    syncs_after_launch: u64,
    calls: u64,
    funcs: HashSet<Box<str>>,
    cold_launch_end_ns: u64,
    at_work_ns: Option<u64>,
    second_call_end_ns: Option<u64>,
    warm_launches: u64,
    steps: u64,
    /// A warm launch has not been waited for.
    in_step: bool,
    rhythm_ns: Option<u64>,
    /// Calls that gave the GPU work or looked whether it was done, without cold ones.
    warm_work: u64,
    /// Calls that were cold, and their time in nanoseconds.
    pub cold: (u64, u64),
}

impl Startup {
    /// Takes note of a call and says whether it is cold. `mostly_waiting` says whether it mainly waited for a CPU.
    pub fn is_cold(
        &mut self,
        class: Class,
        func: Option<&str>,
        first_of_group: bool,
        end_ns: u64,
        dur_ns: u64,
        mostly_waiting: impl FnOnce() -> bool,
    ) -> bool {
        let mut cold = first_of_group || class == Class::Load;
        if class == Class::Launch
            && let Some(func) = func
            && !self.funcs.contains(func)
        {
            if self.funcs.len() < MAX_FUNCS {
                self.funcs.insert(func.into());
            }
            cold = true;
        }
        cold |= !self.has_rhythm() && is_cold_before_rhythm(class, dur_ns) && !mostly_waiting();
        self.note(class, end_ns, dur_ns, cold);
        if cold {
            self.cold.0 += 1;
            self.cold.1 += dur_ns;
        }
        cold
    }

    /// From when on gaps count; `None` while that isn't known. `at_end`: no more calls will come.
    pub fn gaps_from_ns(&self, at_end: bool) -> Option<u64> {
        const COPIES_ONLY: u64 = 1024;
        let never_launches = self.launches == 0 && (at_end || self.calls > COPIES_ONLY);
        // All of its launches are slow, which is how it works.
        let never_warm = self.launches > RHYTHM_LAUNCHES;
        self.at_work_ns.or(if never_launches || never_warm { self.second_call_end_ns } else { None })
    }

    /// When it began to do the same over and over; `None` where it never did for long.
    pub fn rhythm_ns(&self) -> Option<u64> {
        let lasting = self.steps >= LASTING_STEPS || self.warm_launches >= LASTING_LAUNCHES;
        self.rhythm_ns.filter(|_| lasting)
    }

    /// Whether it ever did the same again and again, be it for a short time. A launcher that asks how many devices there are,
    /// allocates a little and then waits for its children has not.
    pub fn has_repeated(&self) -> bool {
        self.rhythm_ns.is_some() || self.warm_work >= REPEATED_WORK
    }

    fn has_rhythm(&self) -> bool {
        self.launches >= RHYTHM_LAUNCHES || self.syncs_after_launch >= RHYTHM_SYNCS
    }

    fn note(&mut self, class: Class, end_ns: u64, dur_ns: u64, cold: bool) {
        self.calls += 1;
        self.warm_work += u64::from(class.is_work() && !cold);
        if self.calls == 2 {
            self.second_call_end_ns = Some(end_ns);
        }
        match class {
            Class::Launch | Class::Collective => {
                self.launches += 1;
                let warm = !cold && dur_ns < WARM_LAUNCH_NS;
                match (self.at_work_ns, warm) {
                    (None, false) => self.cold_launch_end_ns = end_ns,
                    (None, true) => self.at_work_ns = Some(self.cold_launch_end_ns),
                    _ => {}
                }
                self.warm_launches += u64::from(warm);
                self.in_step |= warm;
            }
            Class::Sync | Class::SyncCopy if self.in_step => {
                self.steps += 1;
                self.in_step = false;
            }
            _ => {}
        }
        if class == Class::Sync && self.launches > 0 {
            self.syncs_after_launch += 1;
        }
        if self.rhythm_ns.is_none() && (self.steps >= RHYTHM_STEPS || self.warm_launches >= RHYTHM_LAUNCHES) {
            self.rhythm_ns = Some(end_ns);
        }
    }
}

fn is_cold_before_rhythm(class: Class, dur_ns: u64) -> bool {
    match class {
        Class::Alloc | Class::Free => dur_ns >= COLD_ALLOC_NS,
        Class::Sync | Class::SyncCopy | Class::Copy => false,
        _ => dur_ns >= COLD_CALL_NS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn call(s: &mut Startup, class: Class, func: Option<&str>, first: bool, end_ns: u64, dur_ns: u64) -> bool {
        s.is_cold(class, func, first, end_ns, dur_ns, || false)
    }

    #[test]
    fn slow_second_launch_and_late_allocations_are_cold_until_the_rhythm() {
        let mut s = Startup::default();
        assert!(call(&mut s, Class::Launch, Some("0x1"), true, 10, MS));
        assert!(call(&mut s, Class::Launch, Some("0x1"), false, 20, 3060 * MS));
        assert!(call(&mut s, Class::Launch, Some("0x2"), false, 25, 10));
        assert!(!call(&mut s, Class::Launch, Some("0x1"), false, 30, 6_000));
        assert!(call(&mut s, Class::Alloc, None, false, 40, 260 * MS));
        assert!(!call(&mut s, Class::Alloc, None, false, 40, 100_000));
        assert!(!s.is_cold(Class::Launch, Some("0x1"), false, 40, 200 * MS, || true), "it waited for a CPU");
        for end in [50, 60] {
            call(&mut s, Class::Sync, None, false, end, MS);
        }
        assert!(!call(&mut s, Class::Alloc, None, false, 70, 260 * MS));
        assert!(!call(&mut s, Class::Launch, Some("0x1"), false, 80, 200 * MS));
    }

    #[test]
    fn gaps_count_from_the_last_launch_before_the_first_warm_one() {
        let mut s = Startup::default();
        call(&mut s, Class::Alloc, None, true, 5 * MS, 4 * MS);
        call(&mut s, Class::Launch, Some("0x1"), true, 10 * MS, MS);
        call(&mut s, Class::Sync, None, true, 11 * MS, MS);
        assert_eq!(s.gaps_from_ns(true), None);
        call(&mut s, Class::Launch, Some("0x2"), false, 20 * MS, 9 * MS);
        call(&mut s, Class::Launch, Some("0x1"), false, 31 * MS, MS / 100);
        call(&mut s, Class::Launch, Some("0x3"), false, 50 * MS, 9 * MS);
        assert_eq!(s.gaps_from_ns(false), Some(20 * MS));
    }

    #[test]
    fn steps_make_a_rhythm_and_launches_that_nobody_waits_for_do_in_the_end() {
        let mut s = Startup::default();
        let launch = |s: &mut Startup, end_ns| call(s, Class::Launch, Some("0x1"), false, end_ns, 10);
        launch(&mut s, 10);
        for end_ns in [20, 30, 40] {
            call(&mut s, Class::Sync, None, false, end_ns, 5);
        }
        assert_eq!(s.rhythm_ns(), None, "nothing warm was waited for");
        let step = |s: &mut Startup, end_ns| {
            launch(s, end_ns);
            call(s, Class::Sync, None, false, end_ns + 5, 5);
        };
        (5..35).for_each(|n| step(&mut s, n * 10));
        assert_eq!(s.rhythm_ns(), None, "it may have been all that it did");
        (35..40).for_each(|n| step(&mut s, n * 10));
        assert_eq!(s.rhythm_ns(), Some(75));
        let mut s = Startup::default();
        (0..1025).for_each(|end_ns| _ = launch(&mut s, end_ns));
        assert_eq!(s.rhythm_ns(), Some(256));
    }

    #[test]
    fn a_process_that_only_copies_counts_from_its_second_call() {
        let mut s = Startup::default();
        for end in [10, 20, 30] {
            call(&mut s, Class::Copy, None, end == 10, end, 5);
        }
        assert_eq!((s.gaps_from_ns(false), s.gaps_from_ns(true)), (None, Some(20)));
    }
}
