//! What ended a sleep, or what the thread slept in where nobody is known to have ended it.
//!
//! A wait that runs into its time-out and that the thread takes up again at once is one wait, for whoever ends it at last:
//!
//! ```text
//!   |-- 5 ms, a timer --|█|-- 5 ms, a timer --|█|--- 2 ms, woken by 200 ---|█      all three waited for 200
//! ```
//!
//! It has to be the same kind of thing that it waits for. A pause (`nanosleep`) is nobody's to end.

use ingero_common::host::{OffCpu, OffCpuPart, State, Thread, WaitKind};

use crate::blame::breakdown::Cause;
use crate::limits::STRAIGHT_BACK_NS;

/// Why a thread was off the CPU before it was runnable again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It could have run all the time.
    Runnable,
    /// This thread ended it, and what it did meanwhile is the reason.
    By(Thread),
    /// The path ends here.
    Cause(Cause),
}

/// The last one of the wait that each time off the CPU is part of.
pub(super) fn last_of_each<'a>(offs: &[OffCpuPart<'a>]) -> Vec<&'a OffCpu> {
    let mut last: Vec<&OffCpu> = offs.iter().map(|off| off.whole).collect();
    for at in (0..offs.len()).rev().filter(|&at| offs[at].whole.state == State::Sleep) {
        if let Some(next) = next_wait(offs, at).filter(|&next| is_renewed(offs[at].whole, offs[next].whole)) {
            last[at] = last[next];
        }
    }
    last
}

/// The next time that the thread left the CPU by itself, if it was hardly on one until then: it may have waited for one for long.
fn next_wait(offs: &[OffCpuPart<'_>], at: usize) -> Option<usize> {
    let mut awake_ns = 0;
    for next in at + 1..offs.len() {
        awake_ns += offs[next].whole.start_ns.saturating_sub(offs[next - 1].whole.end_ns);
        if awake_ns > STRAIGHT_BACK_NS {
            return None;
        }
        if offs[next].whole.state != State::Preempted {
            return Some(next);
        }
    }
    None
}

/// Who ended the wait of a thread of process `pid` that `last` is the end of. Nobody wakes a thread that has just given up waiting for
/// Python's GIL (it waits 5 ms at a time) and finds it free: then it is who is thought to have had it.
pub(super) fn ended_by(pid: u32, last: &OffCpu) -> Thread {
    match last.gil {
        Some((tid, name)) if last.waker.pid == 0 => Thread { pid, tid: tid.get(), name },
        _ => last.waker,
    }
}

/// Whether nobody was seen to end a sleep, and the next one is the same again.
fn is_renewed(off: &OffCpu, next: &OffCpu) -> bool {
    let kinds = [off.wait.kind, next.wait.kind];
    let same = kinds[0] == kinds[1] || kinds.contains(&WaitKind::Unknown);
    off.state == State::Sleep
        && next.state == State::Sleep
        && off.waker.pid == 0
        && same
        && !kinds.contains(&WaitKind::Pause)
}

/// Whether a thread gave its CPU up and asks over and over: it did the same within a moment.
pub(super) fn spins(off: &OffCpu, neighbours: [Option<&OffCpu>; 2]) -> bool {
    let near = |a: &OffCpu, b: &OffCpu| a.start_ns.max(b.start_ns) - a.end_ns.min(b.end_ns) <= STRAIGHT_BACK_NS;
    let yields = |off: &OffCpu| off.state == State::Preempted && off.wait.kind == WaitKind::Yield;
    yields(off) && neighbours.into_iter().flatten().any(|other| yields(other) && near(off, other))
}

/// What ended `off`, of whose wait `last` is the end, and `waker` ended it. `watched`: whether somebody watches that one's process;
/// `away`: the thread is not one of the process that lost the time.
pub(super) fn ending(off: &OffCpu, last: &OffCpu, waker: Thread, watched: bool, away: bool) -> Ending {
    let kind = off.wait.kind;
    let device = if away { Cause::WorkerIo } else { Cause::IoWait };
    Ending::Cause(match off.state {
        State::Preempted => return Ending::Runnable,
        State::Stopped | State::Parked | State::Dead | State::Unknown => Cause::OffCpu,
        State::Sleep | State::Uninterruptible if off.wait.io == Some(true) => device,
        State::Sleep | State::Uninterruptible if kind == WaitKind::Pause => Cause::Pause,
        // A thread that is known woke it: it held the lock.
        State::Uninterruptible if waker.pid != 0 && watched => return Ending::By(waker),
        State::Uninterruptible if off.wait.io == Some(false) => Cause::Lock,
        State::Uninterruptible => device,
        State::Sleep if waker.pid != 0 => return Ending::By(waker),
        State::Sleep => match kind {
            WaitKind::Socket | WaitKind::Listen => Cause::Network,
            WaitKind::Poll if !last.wait.timed_out => Cause::Network,
            WaitKind::Gil => Cause::Lock,
            WaitKind::Futex | WaitKind::FileLock if !last.wait.timed_out => Cause::Lock,
            _ => Cause::Sleep,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::{Task, Wait};

    const MS: u64 = 1_000_000;

    fn off(start_ms: u64, end_ms: u64, state: State, kind: WaitKind) -> OffCpu {
        OffCpu {
            start_ns: start_ms * MS,
            wake_ns: end_ms * MS,
            end_ns: end_ms * MS,
            waker: Thread::default(),
            had_cpu: [Task::default(); 2],
            state,
            cpu_was_free: false,
            waited_on: None,
            wait: Wait { kind, ..Wait::default() },
            gil: None,
        }
    }

    fn by(waker: u32, off: OffCpu) -> OffCpu {
        OffCpu { waker: Thread { pid: waker, tid: waker, ..Thread::default() }, ..off }
    }

    /// How many of these are part of the wait that the last one ends.
    fn in_one(all: &[OffCpu]) -> usize {
        let part = |whole| OffCpuPart { start_ns: 0, wake_ns: 0, end_ns: 0, whole };
        let parts: Vec<_> = all.iter().map(part).collect();
        last_of_each(&parts).into_iter().filter(|last| std::ptr::eq(*last, &raw const all[all.len() - 1])).count()
    }

    #[test]
    fn a_wait_that_is_taken_up_again_is_one() {
        use WaitKind::*;
        let three = |kinds: [WaitKind; 3]| {
            let [a, b, c] = kinds;
            let s = State::Sleep;
            in_one(&[off(0, 5, s, a), off(5, 10, s, b), by(200, off(11, 12, s, c))])
        };
        assert_eq!([three([Gil; 3]), three([Futex; 3]), three([Poll; 3]), three([Unknown; 3])], [3; 4]);
        assert_eq!(three([Poll, Futex, Futex]), 2, "for something else");
        assert_eq!(three([Pause; 3]), 1, "nobody ends a pause");
        assert_eq!(three([Pause, Unknown, Unknown]), 2);
        let s = State::Sleep;
        assert_eq!(in_one(&[off(0, 5, s, Gil), off(7, 9, s, Gil)]), 1, "it did something in between");
        let preempted = |start_ms, end_ms| off(start_ms, end_ms, State::Preempted, Unknown);
        let crowded =
            |from_ms| in_one(&[off(0, 5, s, Poll), preempted(5, 40), preempted(from_ms, 70), off(70, 75, s, Poll)]);
        assert_eq!((crowded(41), crowded(42)), (2, 1), "it waited for a CPU in between");
        assert_eq!(in_one(&[by(7, off(0, 5, s, Gil)), off(5, 9, s, Gil)]), 1, "it was ended");
        assert_eq!(in_one(&[off(0, 5, State::Uninterruptible, Gil), off(5, 9, s, Gil)]), 1);
    }

    #[test]
    fn giving_up_the_cpu_over_and_over_is_spinning() {
        let yields = |start_ms, end_ms| off(start_ms, end_ms, State::Preempted, WaitKind::Yield);
        let one = yields(10, 12);
        assert!(!spins(&one, [None, None]), "once is none");
        assert!(spins(&one, [Some(&yields(8, 9)), None]) && spins(&one, [None, Some(&yields(13, 14))]));
        assert!(!spins(&one, [Some(&yields(1, 8)), Some(&yields(14, 15))]), "too long ago");
        let preempted = off(12, 13, State::Preempted, WaitKind::Unknown);
        assert!(!spins(&preempted, [Some(&one), None]) && !spins(&one, [None, Some(&preempted)]));
    }

    #[test]
    fn what_ended_a_sleep_is_told_by_what_it_was_in() {
        use WaitKind::*;
        let cause = |state, kind, io, timed_out| {
            let mut off = off(0, 5, state, kind);
            (off.wait.io, off.wait.timed_out) = (io, timed_out);
            match ending(&off, &off, Thread::default(), false, false) {
                Ending::Cause(cause) => cause,
                other => panic!("{other:?}"),
            }
        };
        let (s, d) = (State::Sleep, State::Uninterruptible);
        for (state, kind, io, timed_out, want) in [
            (s, Unknown, None, false, Cause::Sleep),
            (s, Pause, Some(false), true, Cause::Pause),
            (s, Socket, Some(false), false, Cause::Network),
            (s, Listen, None, false, Cause::Network),
            (s, Poll, None, false, Cause::Network),
            (s, Poll, None, true, Cause::Sleep),
            (s, Gil, None, true, Cause::Lock),
            (s, Futex, None, false, Cause::Lock),
            (s, Futex, None, true, Cause::Sleep),
            (s, FileLock, None, false, Cause::Lock),
            (s, Other, None, false, Cause::Sleep),
            (s, Other, Some(true), false, Cause::IoWait),
            (d, Other, Some(true), false, Cause::IoWait),
            (d, Other, Some(false), false, Cause::Lock),
            (d, Unknown, None, false, Cause::IoWait),
            (State::Stopped, Futex, None, false, Cause::OffCpu),
        ] {
            assert_eq!(cause(state, kind, io, timed_out), want, "{state:?} {kind:?} {io:?} {timed_out}");
        }
    }

    #[test]
    fn who_ended_it_is_asked_where_somebody_did() {
        let waker = Thread { pid: 9, tid: 9, ..Thread::default() };
        let ended = |state, kind, io, watched| {
            let mut off = by(9, off(0, 5, state, kind));
            off.wait.io = io;
            ending(&off, &off, off.waker, watched, true)
        };
        let (s, d) = (State::Sleep, State::Uninterruptible);
        assert_eq!(ended(s, WaitKind::Socket, Some(false), false), Ending::By(waker), "somebody of this host");
        assert_eq!(ended(s, WaitKind::Pause, None, true), Ending::Cause(Cause::Pause), "a signal");
        assert_eq!(ended(d, WaitKind::Other, Some(false), true), Ending::By(waker), "a lock");
        assert_eq!(ended(d, WaitKind::Other, Some(false), false), Ending::Cause(Cause::Lock));
        assert_eq!(ended(d, WaitKind::Other, Some(true), true), Ending::Cause(Cause::WorkerIo));
        assert_eq!(ended(State::Preempted, WaitKind::Futex, None, true), Ending::Runnable);
    }
}
