//! The task table as a whole.

use super::*;

fn thread(pid: u32, tid: u32) -> Thread {
    Thread { pid, tid, name: Name::default() }
}

fn off(start_ns: u64, end_ns: u64) -> OffCpu {
    OffCpu {
        start_ns,
        wake_ns: end_ns,
        end_ns,
        waker: Thread::default(),
        had_cpu: [Task::default(); 2],
        state: State::Sleep,
        cpu_was_free: false,
        waited_on: None,
        wait: Wait::default(),
        gil: None,
    }
}

const MS: u64 = 1_000_000;

#[test]
fn a_reused_pid_inherits_nothing() {
    let mut tasks = TaskTable::default();
    let first = tasks.process(100, 1000 * MS).id;
    assert!(tasks.add_off(100, 100, off(1100 * MS, 1200 * MS), None).is_some());
    assert_eq!(tasks.exit_process(100, 2000 * MS), Some(first));
    tasks.fork(thread(1, 1), 100, 5000 * MS);
    assert!(tasks.add_off(100, 100, off(1900 * MS, 5150 * MS), None).is_none());
    assert!(tasks.add_off(100, 100, off(5001 * MS, 5100 * MS), None).is_some());
    assert!(tasks.add_off(100, 100, off(1800 * MS, 1850 * MS), None).is_some(), "late, but of the first");
    assert_eq!(tasks.process(100, 1500 * MS).id, first);
    assert_eq!(tasks.find_process(100, 3000 * MS).map(|l| l.id), None);
    assert_ne!(tasks.process(100, 5500 * MS).id, first);
    // What reached over the exit was off until then.
    let ends_ns: Vec<_> =
        tasks.thread(100, 100, 1500 * MS).unwrap().off_cpu(0, u64::MAX).map(|off| off.end_ns).collect();
    assert_eq!(ends_ns, [1200 * MS, 1850 * MS, 2000 * MS]);
    assert_eq!(tasks.thread(100, 100, 5050 * MS).unwrap().off_cpu(0, u64::MAX).count(), 1);
}

#[test]
fn a_second_instance_without_a_birth_begins_after_the_first() {
    let mut tasks = TaskTable::default();
    tasks.process(7, MS);
    assert!(tasks.add_off(7, 7, off(2 * MS, 3 * MS), None).is_some());
    tasks.exit_process(7, 10 * MS);
    assert!(tasks.add_off(7, 7, off(20 * MS, 30 * MS), None).is_some());
    let offs = |at_ns| tasks.thread(7, 7, at_ns).map(|life| life.off_cpu(0, u64::MAX).count());
    assert_eq!((offs(5 * MS), offs(25 * MS)), (Some(1), Some(1)));
    assert_eq!(tasks.thread(7, 7, 5 * MS).unwrap().off_cpu(0, u64::MAX).next().unwrap().end_ns, 3 * MS);
}

#[test]
fn an_instance_without_a_birth_is_none_of_those_before() {
    let mut tasks = TaskTable::default();
    let mut ids = Vec::new();
    for at_ns in [10 * MS, 30 * MS] {
        tasks.fork(thread(1, 1), 7, at_ns);
        ids.push(tasks.process(7, at_ns).id);
        tasks.exit_process(7, at_ns + 10 * MS);
    }
    // The third fork was lost, and the exit.
    ids.push(tasks.process(7, 60 * MS).id);
    tasks.fork(thread(1, 1), 7, 90 * MS);
    ids.push(tasks.process(7, 90 * MS).id);
    let at = |ms| tasks.find_process(7, ms * MS).and_then(|life| ids.iter().position(|&id| id == life.id));
    assert_eq!([5, 15, 25, 35, 50, 60, 95].map(at), [None, Some(0), None, Some(1), Some(2), Some(2), Some(3)]);
}

#[test]
fn threads_end_with_their_process() {
    let mut tasks = TaskTable::default();
    tasks.process(7, MS);
    tasks.create_thread(thread(7, 8), thread(7, 7), 2 * MS);
    tasks.exit_process(7, 9 * MS);
    assert!(tasks.thread(7, 8, 8 * MS).is_some() && tasks.thread_is_dead(7, 8));
    assert!(tasks.thread(7, 8, 10 * MS).is_none());
}

#[test]
fn memory_is_bounded_and_what_is_dropped_is_known_to_be_unknown() {
    let mut tasks = TaskTable::default();
    let n = Limits::default().entries as u64 + 1;
    for i in 0..n {
        tasks.add_off(7, 7, off(i * 10, i * 10 + 5), None);
    }
    tasks.forget_before(50, n * 10);
    assert!(tasks.entries() <= Limits::default().entries / 4 * 3);
    let life = tasks.thread(7, 7, n * 10).unwrap();
    assert!(life.unknown_before_ns > 50);
    assert!(life.off_cpu(0, u64::MAX).all(|o| o.end_ns > life.unknown_before_ns));
}

fn parts(tasks: &TaskTable, pid: u32, tid: u32, at_ns: u64) -> Vec<(u64, u64)> {
    let thread = tasks.find_thread_from(pid, tid, at_ns);
    thread.into_iter().flat_map(|thread| thread.off_cpu(0, u64::MAX)).map(|off| (off.start_ns, off.end_ns)).collect()
}

#[test]
fn a_thread_is_off_the_cpu_once_at_a_time() {
    let mut tasks = TaskTable::default();
    let mut add = |start_ns, end_ns| tasks.add_off(7, 8, off(start_ns, end_ns), None).is_some();
    // Told of while it lasted, then as a whole; the whole once more; and what overlaps it on both sides.
    assert_eq!([add(10, 20), add(10, 30), add(10, 30), add(5, 12), add(25, 40)], [true, true, false, true, true]);
    // What holds others is the whole of them; what lies in another one is nothing new.
    assert_eq!([add(50, 55), add(60, 70), add(45, 80), add(47, 75)], [true, true, true, false]);
    assert_eq!(parts(&tasks, 7, 8, 0), [(5, 10), (10, 30), (30, 40), (45, 80)]);
    assert_eq!(tasks.entries(), 4);
}

#[test]
fn a_part_is_asleep_first_and_waits_for_a_cpu_at_its_end() {
    let mut tasks = TaskTable::default();
    tasks.add_off(7, 7, OffCpu { wake_ns: 30, ..off(10, 40) }, None);
    let thread = tasks.thread(7, 7, 100).unwrap();
    let part = |from_ns, to_ns| thread.off_cpu(from_ns, to_ns).next().map(|p| (p.start_ns, p.wake_ns, p.end_ns));
    assert_eq!([part(0, 20), part(20, 99)], [Some((10, 20, 20)), Some((20, 30, 40))]);
    assert_eq!([part(35, 99), part(0, 10), part(40, 99)], [Some((35, 35, 40)), None, None]);
}

#[test]
fn what_began_in_another_program_ends_with_it() {
    let mut tasks = TaskTable::default();
    tasks.process(7, 0).exec(50);
    assert!(tasks.add_off(7, 8, off(40, 60), None).is_none());
    assert!(tasks.add_off(7, 8, off(60, 70), None).is_some());
    assert_eq!(parts(&tasks, 7, 8, 0), [(40, 50), (60, 70)]);
}

#[test]
fn what_begins_at_an_exit_is_not_of_the_one_that_ends() {
    let mut tasks = TaskTable::default();
    tasks.exit_process(7, 20);
    assert!(tasks.add_off(7, 7, off(20, 30), None).is_some());
    assert!(tasks.add_off(7, 7, off(10, 30), None).is_none());
    assert_eq!((parts(&tasks, 7, 7, 5), parts(&tasks, 7, 7, 20)), (vec![(10, 20)], vec![(20, 30)]));
    assert_eq!(
        tasks.find_process(7, 20).map(|process| process.died_ns),
        tasks.find_process_from(7, 20).map(|p| p.died_ns)
    );
}

#[test]
fn a_birth_may_be_told_of_late_and_twice() {
    let mut tasks = TaskTable::default();
    let seen = tasks.process(7, 30).id;
    tasks.fork(thread(1, 1), 7, 20);
    tasks.fork(thread(1, 1), 7, 20);
    assert_eq!(tasks.instances(7).map(|p| (p.id, p.birth.map(|b| b.at_ns))).collect::<Vec<_>>(), [(seen, Some(20))]);
    // Seen before it is born: that was another one, of which the exit was lost.
    tasks.process(9, 10);
    tasks.fork(thread(1, 1), 9, 20);
    assert_eq!(tasks.instances(9).map(|p| p.died_ns).collect::<Vec<_>>(), [Some(20), None]);
}

#[test]
fn a_number_passes_on_to_another_process_although_the_exit_was_lost() {
    let mut tasks = TaskTable::default();
    assert!(tasks.add_off(1, 5, off(10, 20), None).is_some());
    assert!(tasks.add_off(2, 5, off(15, 25), None).is_none(), "the first has it until 20");
    assert!(tasks.add_off(2, 5, off(30, 40), None).is_some());
    assert_eq!((parts(&tasks, 1, 5, 12), parts(&tasks, 2, 5, 30)), (vec![(10, 20)], vec![(30, 40)]));
    assert!(tasks.thread_is_dead(1, 5) && !tasks.thread_is_dead(2, 5));
}

#[test]
fn the_past_of_those_who_make_no_calls_goes_first() {
    let limits = Limits { entries: 1000, callers_last: true, ..Limits::default() };
    let mut tasks = TaskTable::with_limits(limits);
    tasks.process(1, 0).watch_mut(Side::Cuda).heard(1);
    for i in 0..501 {
        tasks.add_off(1, 1, off(i * 10, i * 10 + 5), None);
        tasks.add_off(2, 2, off(i * 10, i * 10 + 5), None);
    }
    assert!(tasks.is_full());
    tasks.make_room(0, 5010);
    assert!(!tasks.is_full() && tasks.entries() > 500);
    assert_eq!((parts(&tasks, 1, 1, 0).len(), tasks.thread(1, 1, 0).unwrap().unknown_before_ns), (501, 0));
    assert!(parts(&tasks, 2, 2, 0).len() < 250 && tasks.thread(2, 2, 0).unwrap().unknown_before_ns > 2500);
}

#[test]
fn processes_without_an_exit_are_forgotten_and_counted_but_for_those_that_make_calls() {
    let limits = Limits { threads: 1000, processes: 1000, ..Limits::default() };
    let mut tasks = TaskTable::with_limits(limits);
    tasks.process(1, 0).watch_mut(Side::Cuda).heard(1);
    for i in 0..100_000 {
        tasks.fork(thread(1, 1), 10 + i, u64::from(i) * 10);
        let (processes, threads) = (tasks.processes.values(), tasks.threads.values());
        if i % 100 == 0 {
            assert!(processes.map(|all| all.0.len()).sum::<usize>() <= 1000);
            assert!(threads.map(|all| all.0.len()).sum::<usize>() <= 1000);
        }
    }
    assert!(tasks.instances(1).next().is_some() && tasks.instances(100_009).next().is_some());
    assert_eq!(tasks.forgotten() as usize + tasks.processes().len(), 100_001);
}

#[test]
fn many_instances_of_one_number_are_found_by_their_time() {
    let limits = Limits { threads: 1000, processes: 1000, ..Limits::default() };
    let mut tasks = TaskTable::with_limits(limits);
    for i in 0..20_000_u64 {
        let at_ns = i * 100;
        tasks.fork(thread(1, 1), 7, at_ns);
        assert!(tasks.add_off(7, 7, off(at_ns + 10, at_ns + 40), None).is_some());
        assert!(tasks.exit_process(7, at_ns + 80).is_some());
        if i % 100 == 0 {
            tasks.forget_before(at_ns.saturating_sub(10_000), at_ns);
        }
    }
    assert!(tasks.instances(7).count() <= 1000);
    let last = |back: u64| parts(&tasks, 7, 7, (19_999 - back) * 100 + 5).len();
    assert_eq!([last(0), last(50), last(99)], [1, 1, 1]);
    assert_eq!(tasks.forgotten(), 0);
}

#[test]
fn names_are_given_new_numbers_where_they_are_kept() {
    let (mut old, mut new) = (Interner::default(), Interner::default());
    old.id("gone");
    let holder = Task { pid: 3, name: old.id("holder") };
    let mut tasks = TaskTable::default();
    tasks.add_off(7, 7, OffCpu { had_cpu: [holder; 2], ..off(10, 20) }, None);
    tasks.rename(|name| new.id(old.text(name).raw()));
    let name = tasks.thread(7, 7, 20).unwrap().off_cpu(0, 99).next().unwrap().whole.had_cpu[0].name;
    assert_eq!((new.text(name).raw(), name == holder.name), ("holder", false));
}

#[test]
fn who_ended_the_last_wait_for_the_gil_is_thought_to_have_had_it() {
    let mut tasks = TaskTable::default();
    let gil = |start_ns, end_ns, waker: Thread| OffCpu {
        waker,
        wait: Wait { kind: WaitKind::Gil, ..Wait::default() },
        ..off(start_ns, end_ns)
    };
    let nobody = Thread::default();
    tasks.process(7, 0);
    let waits = [
        gil(0, 10, nobody),
        gil(20, 30, thread(7, 9)),
        gil(40, 50, nobody),
        gil(60, 70, thread(8, 8)),
        off(80, 90),
        gil(95, 99, nobody),
    ];
    waits.into_iter().for_each(|off| assert!(tasks.add_off(7, 7, off, None).is_some()));
    let thread = tasks.thread(7, 7, 100).unwrap();
    let had: Vec<_> = thread.off_cpu(0, 100).map(|part| part.whole.gil.map(|(tid, _)| tid.get())).collect();
    assert_eq!(had, [None, None, Some(9), None, None, Some(9)]);
}
