//! A process's end: what lies after its last work is no lost time.
//!
//! A program that has finished takes its time to leave: the interpreter tears down its objects, then
//! libraries are unloaded and contexts released. On real runs of PyTorch on an H200 that was 0.5 to 0.8 s
//! without a call, in healthy runs too:
//!
//! ```text
//!   train   ██ ██ ██ sync                            unload  release   exit
//!           work        |------- wind-down: 0.8 s ------------------|
//! ```
//!
//! Work is what gives the GPU something to do or looks whether it is done. The process winds down from the
//! end of its last work on, if after it a context or code is given back, or the process is seen to end. More
//! work after that, and it was no end: a program may unload a library at any time. One that lives on in
//! silence has not ended either, it stalls.
//!
//! A stream may stop in the middle of that. Where nothing but memory, streams and events was given back after the last
//! work, the time before each of these calls is no lost time either: no work came late, since none came.

use crate::ops::Class;

/// How far a process is with ending.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindDown {
    work_end_ns: u64,
    unloads: bool,
    /// Since the last work things were given back…
    gives_back: bool,
    /// …and something else was called.
    does_more: bool,
}

impl WindDown {
    /// Takes note of a call that ended at `end_ns`.
    pub fn add(&mut self, class: Class, end_ns: u64) {
        if class.is_work() {
            let old = end_ns < self.work_end_ns;
            self.unloads &= old;
            self.gives_back &= old;
            self.does_more &= old;
            self.work_end_ns = self.work_end_ns.max(end_ns);
        } else if end_ns >= self.work_end_ns && self.work_end_ns > 0 {
            match class {
                Class::Unload => self.unloads = true,
                Class::Free | Class::Destroy => self.gives_back = true,
                _ => self.does_more = true,
            }
        }
    }

    /// Whether there was any work.
    pub fn has_worked(self) -> bool {
        self.work_end_ns > 0
    }

    /// From when on time between calls is not lost: its work has ended, or nothing shows that it has not.
    pub fn gaps_until_ns(self, over: bool) -> Option<u64> {
        let only_gives_back = self.gives_back && !self.does_more && self.work_end_ns > 0;
        self.from_ns(over).or(only_gives_back.then_some(self.work_end_ns))
    }

    /// When its work ended, if it did. `over`: the process was seen to end.
    pub fn from_ns(self, over: bool) -> Option<u64> {
        ((over || self.unloads) && self.work_end_ns > 0).then_some(self.work_end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &[(Class, u64)]) -> WindDown {
        let mut w = WindDown::default();
        calls.iter().for_each(|&(class, end_ns)| w.add(class, end_ns));
        w
    }

    #[test]
    fn what_follows_the_last_work_is_the_end_once_something_is_given_back() {
        let w = after(&[(Class::Load, 1), (Class::Launch, 10), (Class::Sync, 20), (Class::Free, 25)]);
        assert_eq!((w.from_ns(false), w.from_ns(true)), (None, Some(20)));
        let w = after(&[(Class::Launch, 10), (Class::Sync, 20), (Class::Free, 25), (Class::Unload, 900)]);
        assert_eq!(w.from_ns(false), Some(20));
    }

    #[test]
    fn a_stream_may_stop_before_the_context_is_given_back() {
        let w = after(&[(Class::Launch, 10), (Class::Sync, 20), (Class::Free, 600), (Class::Destroy, 900)]);
        assert_eq!((w.from_ns(false), w.gaps_until_ns(false)), (None, Some(20)));
        let w = after(&[(Class::Launch, 10), (Class::Free, 600), (Class::Alloc, 610)]);
        assert_eq!(w.gaps_until_ns(false), None);
        let w = after(&[(Class::Launch, 10), (Class::Free, 600), (Class::Launch, 610)]);
        assert_eq!(w.gaps_until_ns(false), None);
    }

    #[test]
    fn work_after_an_unload_takes_it_back() {
        let w = after(&[(Class::Launch, 10), (Class::Unload, 20), (Class::Launch, 30)]);
        assert_eq!((w.from_ns(false), w.from_ns(true)), (None, Some(30)));
        // A record out of order is no new work.
        let w = after(&[(Class::Launch, 10), (Class::Unload, 20), (Class::Sync, 9)]);
        assert_eq!(w.from_ns(false), Some(10));
    }

    #[test]
    fn without_work_there_is_no_end_of_it() {
        assert_eq!(after(&[(Class::Load, 5), (Class::Unload, 20)]).from_ns(true), None);
    }
}
