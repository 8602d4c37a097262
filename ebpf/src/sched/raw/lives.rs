//! Which threads each watched process has, so that the end of the last one is told as the end of the process, on kernels
//! whose trace event does not say so.
//!
//! ```text
//! events in the order of the ring          threads of process 7       told as
//! (seeded from /proc)                      7, 8
//! thread 9 is born                         7, 8, 9
//! 7 ends                                   8, 9                       thread_exit
//! 9 ends                                   8                          thread_exit
//! 8 ends                                   none, and none in /proc    sched_process_exit
//! ```
//!
//! A birth may be missing where events were lost. So before a process is told to have ended, `/proc` is asked whether it has a
//! thread yet.

use std::collections::{BTreeMap, BTreeSet};

use super::super::event::{Event, Who};

/// The threads of the watched processes.
#[derive(Debug, Default)]
pub(super) struct Lives(BTreeMap<u32, BTreeSet<u32>>);

impl Lives {
    /// Whether this process is watched.
    pub(super) fn knows(&self, pid: u32) -> bool {
        self.0.contains_key(&pid)
    }

    /// Whether this thread is known.
    pub(super) fn has(&self, pid: u32, tid: u32) -> bool {
        self.0.get(&pid).is_some_and(|threads| threads.contains(&tid))
    }

    /// A thread of a watched process.
    pub(super) fn add(&mut self, pid: u32, tid: u32) {
        self.0.entry(pid).or_default().insert(tid);
    }

    /// Follows an event, and makes the end of a thread that of its process where it is. `living` lists the threads that a
    /// process has now.
    pub(super) fn follow<'a>(&mut self, event: Event<'a>, living: impl Fn(u32) -> Vec<u32>) -> Event<'a> {
        match event {
            Event::Fork { child_pid, watched: true, .. } => self.add(child_pid, child_pid),
            Event::Thread { child_pid, child_tid, .. } => self.add(child_pid, child_tid),
            // It has ended the others, and has its process's number now.
            Event::Exec { head, .. } => {
                self.0.insert(head.who.pid, BTreeSet::from([head.who.pid]));
            }
            Event::ProcessExit { head, .. } => {
                self.0.remove(&head.who.pid);
            }
            Event::ThreadExit { mut head, code } => {
                let pid = head.who.pid;
                let threads = self.0.entry(pid).or_default();
                threads.remove(&head.who.tid);
                if threads.is_empty() {
                    threads.extend(living(pid).into_iter().filter(|tid| *tid != head.who.tid));
                }
                if threads.is_empty() {
                    self.0.remove(&pid);
                    head.who = Who { tid: pid, ..head.who };
                    return Event::ProcessExit { head, code };
                }
            }
            _ => {}
        }
        event
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::event::Head;
    use super::*;

    fn head(pid: u32, tid: u32) -> Head<'static> {
        Head { mono_ns: 1, dur_ns: 0, ns_pid: None, who: Who { pid, tid, comm: b"x" } }
    }

    /// What the end of a thread is told as: the process's end?
    fn ends(lives: &mut Lives, pid: u32, tid: u32, living: &[u32]) -> bool {
        let event = lives.follow(Event::ThreadExit { head: head(pid, tid), code: None }, |_| living.to_vec());
        match event {
            Event::ProcessExit { head, .. } => {
                assert_eq!((head.who.pid, head.who.tid), (pid, pid));
                true
            }
            Event::ThreadExit { head, .. } => {
                assert_eq!((head.who.pid, head.who.tid), (pid, tid));
                false
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_example_at_the_top() {
        let mut lives = Lives::default();
        lives.add(7, 7);
        lives.add(7, 8);
        lives.follow(Event::Thread { head: head(7, 7), child_pid: 7, child_tid: 9 }, |_| panic!());
        assert!(!ends(&mut lives, 7, 7, &[]) && !ends(&mut lives, 7, 9, &[]));
        assert!(lives.knows(7) && ends(&mut lives, 7, 8, &[8]) && !lives.knows(7));
    }

    #[test]
    fn a_thread_whose_birth_was_lost_keeps_its_process_alive() {
        let mut lives = Lives::default();
        lives.add(7, 7);
        assert!(!ends(&mut lives, 7, 7, &[7, 12]));
        assert!(lives.has(7, 12) && ends(&mut lives, 7, 12, &[]));
        // One of which nothing is known at all.
        assert!(ends(&mut lives, 30, 30, &[]));
    }

    #[test]
    fn children_and_what_they_execute() {
        let mut lives = Lives::default();
        let fork = Event::Fork { head: head(7, 7), child_pid: 20, child_ns_pid: None, watched: true };
        lives.follow(fork, |_| panic!());
        lives.add(20, 21);
        // 21 has executed something: 20, its number now, is all there is.
        lives.follow(Event::Exec { head: head(20, 20), exe: b"" }, |_| panic!());
        assert!(!lives.has(20, 21) && ends(&mut lives, 20, 20, &[]));
        let unwatched = Event::Fork { head: head(7, 7), child_pid: 22, child_ns_pid: None, watched: false };
        lives.follow(unwatched, |_| panic!());
        assert!(!lives.knows(22));
    }
}
