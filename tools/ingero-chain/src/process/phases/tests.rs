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
fn so_much_warm_work_is_more_than_first_steps() {
    let mut phases = Phases::default();
    // The first of its kind is cold.
    (0..16).for_each(|n| _ = add(&mut phases, "cudaMemcpyAsync", None, n == 0, 10 * n, 5));
    assert!(!phases.has_repeated());
    add(&mut phases, "cudaMalloc", None, false, 200, 5);
    assert!(!phases.has_repeated(), "that is no work");
    add(&mut phases, "cudaMemcpyAsync", None, false, 210, 5);
    assert!(phases.has_repeated());
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
