//! The same tests on the kernel side that does without type information. It knows less, but what it says must be as right.

use std::cell::Cell;

use ingero_tests::in_mounts;

use super::*;

thread_local! {
    static ON: Cell<bool> = const { Cell::new(false) };
}

/// Whether this test is about that side.
pub(crate) fn is_on() -> bool {
    ON.get()
}

/// The tool as on a kernel without BTF, with tracefs, which is not mounted everywhere.
pub(crate) fn without_type_information(mut tool: Command) -> Command {
    tool.args(["--probe-mode", "raw"]);
    in_mounts("{ test -d /sys/kernel/tracing/events || mount -t tracefs none /sys/kernel/tracing; }", &tool)
}

/// Runs a test of the other side on this one.
fn raw(test: fn()) {
    ON.set(true);
    test();
}

#[test]
fn switches_and_times() {
    raw(switches::switches_and_times_agree_with_the_kernels_own_counters);
}

#[test]
fn wakers() {
    raw(switches::the_one_who_writes_to_the_pipe_is_the_waker);
    raw(switches::a_timer_is_no_thread);
}

#[test]
fn what_is_open_at_the_end() {
    raw(switches::what_never_comes_back_is_open);
}

#[test]
fn births_and_deaths() {
    raw(lives::children_are_watched_from_their_first_instruction);
    raw(lives::the_end_of_a_thread_is_not_the_end_of_the_process);
    raw(lives::many_short_lives_are_all_told_of);
}

#[test]
fn who_is_there_already() {
    raw(lives::descendants_that_are_there_already_are_watched_too);
    raw(lives::a_process_that_comes_to_use_cuda_is_watched);
}

#[test]
fn losses() {
    raw(stream::what_a_full_ring_loses_is_counted);
}

#[test]
fn pages() {
    raw(system::touched_memory_is_page_allocations);
}

#[test]
fn it_is_taken_where_there_is_no_type_information() {
    let _machine = Machine::take();
    let prepare = "mount -t tmpfs none /sys/kernel/btf && \
                   { test -d /sys/kernel/tracing/events || mount -t tracefs none /sys/kernel/tracing; }";
    let mut command = tool();
    command.args(["--all", "-d", "300ms"]);
    let records = check(Output::of(&mut in_mounts(prepare, &command)).exits(0));
    let start = records.only("ingero", "start");
    assert_eq!(start["probes"]["mode"], "raw");
    assert!(start["probes"]["missing"].as_array().unwrap().contains(&"block_rq_complete".into()));
    assert!(records.of("sched", "sched_switch").count() > 10);
    // Forced, and not to be had.
    command.args(["--probe-mode", "raw"]);
    Output::of(&mut in_mounts(
        "mount -t tmpfs none /sys/kernel/debug; umount /sys/kernel/tracing 2>/dev/null; true",
        &command,
    ))
    .exits(2)
    .says_in_one_line(&["tracefs is not mounted", "mount -t tracefs"]);
}
