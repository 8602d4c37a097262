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
