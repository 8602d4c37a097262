//! The phases of a process: starting up, its loop, shutting down.
//!
//! The first calls create the context and load code: milliseconds to seconds for what later takes microseconds. It isn't only
//! the very first one: code is loaded kernel by kernel, and on a real trace the second launch took 3.06 s and allocations 12
//! to 15 took 0.26 to 0.76 s each. Cold is therefore
//!
//! - the first call of each group, the first launch of each kernel function, and whatever loads code;
//! - before two synchronising calls have followed the first launch, or 256 launches: allocations and frees of 5 ms and more,
//!   and other calls of 100 ms and more, unless the call mainly waited for a CPU, or waits for the GPU by its nature.
//!
//! The loop can begin with the first warm launch, one of a function that was launched before and which returns within a
//! millisecond, or, where the last cold one was waited for, when that wait ended. A process that never launches anything
//! begins with the end of its second call.
//!
//! ```text
//!   malloc  launch A (cold)   launch B (cold)  sync | waits for data  launch A  launch B  sync …    the loop: from | on
//!   ██      ██████            ███████          ██   |                 █         █         ██
//! ```
//!
//! A few warm launches are no loop yet: a program may try a kernel, import its model code for a second and compile it for half
//! a minute. The process is in steady state from its third *step* on, a warm launch that is waited for, or from 256 warm
//! launches, once there have been many more. A pause before that belongs to the start-up if none after it lasts even a tenth
//! as long; a loop that is starved from its first step has such pauses later, too.
//!
//! ```text
//!   A A sync         imports, compiles         A sync  A sync  A sync  A sync …    start-up: nothing like it comes again
//!   A A sync   waits for data   A sync   waits for data   A sync   waits for da…   starved:  both pauses count
//! ```
//!
//! That is so only where the start was seen: the program began under watch, or the first call on record is one that
//! initialises CUDA and takes as long as that takes. A process that was running when the tracer came has a first call too, but
//! no start-up.

use ingero_common::cuda_api::Class;
use ingero_common::record::{Record, src};

use crate::gpu::outstanding::Known;
use crate::limits::{
    COLD_ALLOC_NS, COLD_CALL_NS, COPIES_ONLY, INIT_NS, LASTING_LAUNCHES, LASTING_STEPS, MAX_FUNCS, REPEATED_WORK,
    START_UP_FACTOR, START_UP_PAUSES, STEADY_LAUNCHES, STEADY_STEPS, WARM_LAUNCH_NS, WARM_SYNCS,
};
use ingero_common::host::HashSet;

/// Whether a process's first call on record is really its first one: it sets CUDA up. By its name, and by its duration, as
/// libraries call the same functions again at any time. The runtime sets itself up in whatever is called first.
pub(crate) fn initialises(record: &Record<'_>, function: Known, dur_ns: u64) -> bool {
    const CHOOSING: [&str; 1] = ["cudaSetDevice"];
    let class = function.map(|function| function.class);
    let by_name = class == Some(Class::Init) || CHOOSING.contains(&&*record.op);
    let implicit = record.src.0 != src::NCCL && !matches!(class, Some(Class::Sync | Class::Query | Class::Copy));
    by_name && dur_ns >= INIT_NS || implicit && dur_ns >= COLD_CALL_NS
}

/// Whether a call gives the GPU something to do or looks whether that is done.
pub(crate) fn is_work(function: Known) -> bool {
    function.is_some_and(|function| function.enqueues() || matches!(function.class, Class::Sync | Class::Query))
}

/// One call as the phases see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) function: Known,
    pub(crate) func: Option<&'a str>,
    /// It is the first of its group.
    pub(crate) first: bool,
    pub(crate) end_ns: u64,
    pub(crate) dur_ns: u64,
}

impl Call<'_> {
    fn is(&self, classes: &[Class]) -> bool {
        self.function.is_some_and(|function| classes.contains(&function.class))
    }

    /// It waits for the GPU by its nature: a synchronise or a blocking copy.
    fn waits(&self) -> bool {
        self.function.is_some_and(|function| function.waits() && function.class != Class::Free)
    }
}

const LAUNCHES: [Class; 3] = [Class::Launch, Class::GraphLaunch, Class::Collective];

/// How far a process is.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    launches: u64,
    syncs_after_launch: u64,
    calls: u64,
    funcs: HashSet<Box<str>>,
    cold_launch_end_ns: u64,
    /// The end of the first wait after the last cold launch.
    warmed_up_ns: Option<u64>,
    at_work_ns: Option<u64>,
    second_call_end_ns: Option<u64>,
    warm_launches: u64,
    steps: u64,
    /// A warm launch has not been waited for.
    in_step: bool,
    steady_ns: Option<u64>,
    /// Calls that gave the GPU work or looked whether it was done, without cold ones.
    warm_work: u64,
    work_end_ns: u64,
    /// A context or code was given back since the last work.
    unloads: bool,
    /// Calls that were cold, and their time in nanoseconds.
    pub(crate) cold: (u64, u64),
    /// It was traced from its beginning on: only then can there be pauses of a start-up.
    pub(crate) start_seen: bool,
}

impl Phases {
    /// Takes note of a call and says whether it is cold. `mostly_waiting` says whether it mainly waited for a CPU.
    pub(crate) fn add(&mut self, call: Call<'_>, mostly_waiting: impl FnOnce() -> bool) -> bool {
        let mut cold = call.first || call.is(&[Class::Load, Class::Instantiate, Class::Init]);
        if call.is(&[Class::Launch])
            && let Some(func) = call.func
            && !self.funcs.contains(func)
        {
            if self.funcs.len() < MAX_FUNCS {
                self.funcs.insert(func.into());
            }
            cold = true;
        }
        let warm_by_now = self.launches >= STEADY_LAUNCHES || self.syncs_after_launch >= WARM_SYNCS;
        cold |= !warm_by_now && is_cold_while_warming_up(&call) && !mostly_waiting();
        self.note(&call, cold);
        if cold {
            self.cold.0 += 1;
            self.cold.1 += call.dur_ns;
        }
        cold
    }

    /// Before which instant everything is start-up, whatever comes.
    pub(crate) fn start_up_until_ns(&self) -> u64 {
        self.cold_launch_end_ns
    }

    /// From when on time may be the loop's; `None` while that isn't known. `at_end`: no more calls will come.
    pub(crate) fn at_work_ns(&self, at_end: bool) -> Option<u64> {
        let never_launches = self.launches == 0 && (at_end || self.calls > COPIES_ONLY);
        // All of its launches are slow, which is how it works.
        let never_warm = self.launches > STEADY_LAUNCHES;
        self.at_work_ns.or(if never_launches || never_warm { self.second_call_end_ns } else { None })
    }

    /// When it began to do the same over and over, once it has done so for long.
    fn steady_ns(&self) -> Option<u64> {
        let lasting = self.steps >= LASTING_STEPS || self.warm_launches >= LASTING_LAUNCHES;
        self.steady_ns.filter(|_| lasting)
    }

    /// Where its loop begins, at `at_work_ns` or behind a pause of its start-up; `None` while that may still turn out.
    /// `pauses`: lost intervals since then, start and length; `settled_ns`: all up to there are among them.
    pub(crate) fn loop_start_ns(
        &self,
        pauses: &[(u64, u64)],
        at_work_ns: u64,
        settled_ns: u64,
        at_end: bool,
    ) -> Option<u64> {
        if !self.start_seen {
            return Some(at_work_ns);
        }
        let Some(steady_ns) = self.steady_ns() else { return at_end.then_some(at_work_ns) };
        if settled_ns <= steady_ns && !at_end {
            return None;
        }
        let longest =
            |pauses: &mut dyn Iterator<Item = &(u64, u64)>| pauses.map(|(_, len_ns)| *len_ns).max().unwrap_or(0);
        let before = || pauses.iter().filter(|(start_ns, _)| *start_ns < steady_ns);
        let longest_ns = longest(&mut before());
        let later_ns = longest(&mut pauses.iter().filter(|(start_ns, _)| *start_ns >= steady_ns));
        if before().filter(|(_, len_ns)| len_ns.saturating_mul(START_UP_FACTOR) >= longest_ns).count() > START_UP_PAUSES
        {
            return Some(at_work_ns);
        }
        let odd = before().filter(|(_, len_ns)| *len_ns > later_ns.saturating_mul(START_UP_FACTOR));
        Some(odd.map(|(start_ns, len_ns)| start_ns + len_ns).max().unwrap_or(at_work_ns))
    }

    /// Whether it ever did the same again and again, be it for a short time. A launcher that asks how many devices there are,
    /// allocates a little and then waits for its children has not.
    pub(crate) fn has_repeated(&self) -> bool {
        self.steady_ns.is_some() || self.warm_work >= REPEATED_WORK
    }

    /// Whether there was any work.
    pub(crate) fn has_worked(&self) -> bool {
        self.work_end_ns > 0
    }

    /// Whether it has given a context or code back since its last work: what a program does when it ends.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.unloads && self.has_worked()
    }

    fn note(&mut self, call: &Call<'_>, cold: bool) {
        self.calls += 1;
        self.warm_work += u64::from(is_work(call.function) && !cold);
        if self.calls == 2 {
            self.second_call_end_ns = Some(call.end_ns);
        }
        if call.is(&LAUNCHES) {
            self.launches += 1;
            let warm = !cold && call.dur_ns < WARM_LAUNCH_NS;
            match (self.at_work_ns, warm) {
                (None, false) => (self.cold_launch_end_ns, self.warmed_up_ns) = (call.end_ns, None),
                (None, true) => self.at_work_ns = self.warmed_up_ns.or(Some(call.end_ns - call.dur_ns)),
                _ => {}
            }
            self.warm_launches += u64::from(warm);
            self.in_step |= warm;
        } else if self.in_step && call.waits() {
            self.steps += 1;
            self.in_step = false;
        }
        if call.waits() && self.launches > 0 {
            self.warmed_up_ns.get_or_insert(call.end_ns);
        }
        self.syncs_after_launch += u64::from(call.is(&[Class::Sync]) && self.launches > 0);
        if self.steady_ns.is_none() && (self.steps >= STEADY_STEPS || self.warm_launches >= STEADY_LAUNCHES) {
            self.steady_ns = Some(call.end_ns);
        }
        if is_work(call.function) {
            self.unloads &= call.end_ns < self.work_end_ns;
            self.work_end_ns = self.work_end_ns.max(call.end_ns);
        } else if call.is(&[Class::Unload]) && call.end_ns >= self.work_end_ns {
            self.unloads = true;
        }
    }
}

fn is_cold_while_warming_up(call: &Call<'_>) -> bool {
    if call.is(&[Class::Alloc, Class::Free, Class::Register]) {
        return call.dur_ns >= COLD_ALLOC_NS;
    }
    !call.is(&[Class::Sync, Class::Copy]) && call.dur_ns >= COLD_CALL_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::cuda_api::find;
    use ingero_common::record::{Parsed, parse};

    const MS: u64 = 1_000_000;
    /// All of it happens after this.
    const SOME_NS: u64 = 100_000 * MS;

    fn known(op: &str) -> Known {
        find(if op.starts_with("cuda") { "cudart" } else { "cuda" }, op)
    }

    /// A call that ends at `end_ns`, which is the first of its group where `first` is given; says whether it is cold.
    fn add(phases: &mut Phases, op: &str, func: Option<&str>, first: bool, end_ns: u64, dur_ns: u64) -> bool {
        phases.add(Call { function: known(op), func, first, end_ns: SOME_NS + end_ns, dur_ns }, || false)
    }

    const LAUNCH: &str = "cudaLaunchKernel";
    const SYNC: &str = "cudaStreamSynchronize";

    fn launch(phases: &mut Phases, end_ns: u64) -> bool {
        add(phases, LAUNCH, Some("0x1"), false, end_ns, 10)
    }

    fn step(phases: &mut Phases, end_ns: u64) {
        launch(phases, end_ns);
        add(phases, SYNC, None, false, end_ns + 5, 5);
    }

    #[test]
    fn slow_second_launch_and_late_allocations_are_cold_until_it_is_warm() {
        let warming_up = || {
            let mut phases = Phases::default();
            assert!(add(&mut phases, LAUNCH, Some("0x1"), true, 10, MS));
            assert!(add(&mut phases, LAUNCH, Some("0x1"), false, 20, 3060 * MS));
            assert!(add(&mut phases, LAUNCH, Some("0x2"), false, 25, 10));
            assert!(!add(&mut phases, LAUNCH, Some("0x1"), false, 30, 6_000));
            phases
        };
        let is_cold = |phases: &mut Phases, op, dur_ns| add(phases, op, None, false, 40, dur_ns);
        let mut phases = warming_up();
        assert!(is_cold(&mut phases, "cudaMalloc", 5 * MS) && !is_cold(&mut phases, "cudaMalloc", 5 * MS - 1));
        assert!(
            is_cold(&mut phases, "cudaEventCreate", 100 * MS) && !is_cold(&mut phases, "cudaEventCreate", 100 * MS - 1)
        );
        assert!(!is_cold(&mut phases, "cudaMemcpy", 900 * MS), "copies may take long at any time");
        let call = Call { function: known(LAUNCH), func: Some("0x1"), first: false, end_ns: 40, dur_ns: 200 * MS };
        assert!(!phases.add(call, || true), "it waited for a CPU");
        assert_eq!(phases.cold, (5, 3061 * MS + 10 + 105 * MS));
        // One synchronise may be part of the warm-up, two are not.
        add(&mut phases, SYNC, None, false, 50, MS);
        assert!(is_cold(&mut phases, "cudaMalloc", 260 * MS));
        add(&mut phases, SYNC, None, false, 60, MS);
        assert!(!is_cold(&mut phases, "cudaMalloc", 260 * MS));
        assert!(!add(&mut phases, LAUNCH, Some("0x1"), false, 80, 200 * MS));
        assert!(is_cold(&mut phases, "cudaLibraryLoadData", 5), "it loads code, whenever");
        // So are 256 launches.
        let mut phases = warming_up();
        (4..255).for_each(|n| _ = launch(&mut phases, 100 + n));
        assert!(is_cold(&mut phases, "cudaMalloc", 260 * MS));
        launch(&mut phases, 400);
        assert!(!is_cold(&mut phases, "cudaMalloc", 260 * MS));
    }

    #[test]
    fn the_loop_begins_behind_the_last_cold_launch() {
        let mut phases = Phases::default();
        add(&mut phases, "cudaMalloc", None, true, 5 * MS, 4 * MS);
        add(&mut phases, LAUNCH, Some("0x1"), true, 10 * MS, MS);
        assert_eq!((phases.at_work_ns(true), phases.start_up_until_ns()), (None, SOME_NS + 10 * MS));
        // It loads code for a millisecond.
        add(&mut phases, LAUNCH, Some("0x1"), false, 20 * MS, MS);
        assert_eq!((phases.at_work_ns(true), phases.start_up_until_ns()), (None, SOME_NS + 20 * MS));
        let mut waited = Phases { ..Phases::default() };
        add(&mut waited, LAUNCH, Some("0x1"), true, 10 * MS, MS);
        add(&mut waited, SYNC, None, true, 15 * MS, MS);
        add(&mut waited, SYNC, None, false, 16 * MS, MS);
        launch(&mut waited, 30 * MS);
        assert_eq!(waited.at_work_ns(false), Some(SOME_NS + 15 * MS), "when the last cold one had been waited for");
        add(&mut phases, LAUNCH, Some("0x1"), false, 31 * MS, MS - 1);
        assert_eq!(
            phases.at_work_ns(false),
            Some(SOME_NS + 30 * MS + 1),
            "with the first warm one, which nobody waited for"
        );
        add(&mut phases, LAUNCH, Some("0x3"), false, 50 * MS, 9 * MS);
        assert_eq!(phases.at_work_ns(false), Some(SOME_NS + 30 * MS + 1), "what is loaded later is part of it");
    }

    /// All of its launches are slow, which is how it works.
    #[test]
    fn a_process_whose_launches_are_all_slow_begins_in_the_end() {
        let mut phases = Phases::default();
        (0..256).for_each(|n| _ = add(&mut phases, LAUNCH, Some("0x1"), n == 0, (n + 1) * 3 * MS, 2 * MS));
        assert_eq!(phases.at_work_ns(true), None);
        add(&mut phases, LAUNCH, Some("0x1"), false, 1000 * MS, 2 * MS);
        assert_eq!(phases.at_work_ns(false), Some(SOME_NS + 6 * MS));
    }

    #[test]
    fn steps_make_a_steady_state() {
        let mut phases = Phases { start_seen: true, ..Phases::default() };
        launch(&mut phases, 10);
        for end_ns in [20, 30, 40] {
            add(&mut phases, SYNC, None, false, end_ns, 5);
        }
        assert!(!phases.has_repeated(), "nothing warm was waited for");
        (5..36).for_each(|n| step(&mut phases, n * 10));
        assert_eq!(phases.steady_ns(), None, "it may have been all that it did");
        step(&mut phases, 360);
        assert_eq!(phases.steady_ns(), Some(SOME_NS + 75), "with the third step, once there have been 32");
    }

    #[test]
    fn launches_that_nobody_waits_for_are_a_steady_state_in_the_end() {
        let mut phases = Phases::default();
        (0..1023).for_each(|end_ns| _ = launch(&mut phases, end_ns + 10));
        // The first one of its function was cold.
        assert_eq!(phases.steady_ns(), None);
        launch(&mut phases, 1033);
        assert_eq!(phases.steady_ns(), None);
        launch(&mut phases, 1034);
        assert_eq!(phases.steady_ns(), Some(SOME_NS + 266), "with the 256th warm one, once there have been 1,024");
    }

    #[test]
    fn a_process_that_only_copies_begins_with_its_second_call() {
        let mut phases = Phases::default();
        for n in 1..=1024 {
            add(&mut phases, "cudaMemcpyAsync", None, n == 1, 10 * n, 5);
        }
        assert_eq!((phases.at_work_ns(false), phases.at_work_ns(true)), (None, Some(SOME_NS + 20)));
        add(&mut phases, "cudaMemcpyAsync", None, false, 20_000, 5);
        assert_eq!(phases.at_work_ns(false), Some(SOME_NS + 20));
    }

    #[test]
    fn a_pause_unlike_any_later_one_is_part_of_the_start_up() {
        let mut phases = Phases { start_seen: true, ..Phases::default() };
        (0..33).for_each(|n| step(&mut phases, 1000 + n * 10));
        let steady_ns = phases.steady_ns().unwrap();
        let begins = |phases: &Phases, pauses: &[(u64, u64)]| phases.loop_start_ns(pauses, 7, u64::MAX, false);
        let (early, late) = (steady_ns - 900, steady_ns + 50);
        assert_eq!(begins(&phases, &[(early, 501), (late, 50)]), Some(early + 501));
        assert_eq!(begins(&phases, &[(early, 500), (late, 50)]), Some(7), "a tenth of it comes again");
        assert_eq!(begins(&phases, &[(early, 501)]), Some(early + 501));
        // An import and a compilation; three are a loop.
        let pauses = [(early, 501), (early + 510, 100), (early + 620, 51), (late, 5)];
        assert_eq!(begins(&phases, &pauses[1..]), Some(early + 620 + 51));
        assert_eq!(begins(&phases, &pauses), Some(7));
        let unlike = [(early, 501), (early + 510, 50), (early + 620, 49), (late, 1)];
        assert_eq!(begins(&phases, &unlike), Some(early + 669), "a tenth of the longest is not its like");
        // What came before the tracer has no start, and what has not gone on is not known to have one.
        phases.start_seen = false;
        assert_eq!(begins(&phases, &[(early, 501)]), Some(7));
        let young = Phases { start_seen: true, ..Phases::default() };
        assert_eq!((begins(&young, &[]), young.loop_start_ns(&[], 7, 0, true)), (None, Some(7)));
    }

    #[test]
    fn a_call_that_takes_as_long_as_initialising_is_the_first() {
        let initialises = |src: &str, op: &str, dur_ns: u64| {
            let line = format!(r#"{{"src":"{src}","op":"{op}"}}"#);
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            initialises(&record, find(src, op), dur_ns)
        };
        for (src, op) in [("cuda", "cuInit"), ("cudart", "cudaSetDevice"), ("cuda", "cuCtxCreate")] {
            assert!(initialises(src, op, MS) && !initialises(src, op, MS - 1), "{op}");
        }
        // The runtime sets itself up in whatever is called first.
        assert!(initialises("cudart", "cudaMalloc", 100 * MS) && !initialises("cudart", "cudaMalloc", 100 * MS - 1));
        assert!(!initialises("cudart", SYNC, 900 * MS) && !initialises("nccl", "ncclAllReduce", 900 * MS));
    }

    #[test]
    fn kernel_functions_beyond_the_bound_are_warm() {
        let mut phases = Phases::default();
        let cold = (0..65_537).filter(|n| add(&mut phases, LAUNCH, Some(&format!("0x{n}")), false, 10 + n, 5)).count();
        assert_eq!((phases.funcs.len(), cold), (65_536, 65_537));
        assert!(!launch(&mut phases, 100_000), "the first ones are known");
    }

    fn after(calls: &[(&str, u64)]) -> Phases {
        let mut phases = Phases::default();
        calls.iter().for_each(|&(op, end_ns)| _ = add(&mut phases, op, None, false, end_ns, 1));
        phases
    }

    #[test]
    fn who_gives_code_or_a_context_back_after_its_work_is_shutting_down() {
        assert!(!after(&[(LAUNCH, 10), (SYNC, 20), ("cudaFree", 25)]).is_shutting_down());
        assert!(after(&[(LAUNCH, 10), (SYNC, 20), ("cuModuleUnload", 900)]).is_shutting_down());
        assert!(!after(&[(LAUNCH, 10), ("cuModuleUnload", 20), (LAUNCH, 30)]).is_shutting_down(), "it went on");
        // A record out of order is no new work.
        assert!(after(&[(LAUNCH, 10), ("cuModuleUnload", 20), (SYNC, 9)]).is_shutting_down());
        assert!(!after(&[("cuModuleLoad", 5), ("cuModuleUnload", 20)]).is_shutting_down(), "there was no work");
    }
}
