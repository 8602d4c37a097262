//! The run states in which a thread leaves the CPU.

/// How a thread left the CPU: the letter of `state` in a `sched_switch` record, which is the kernel's
/// (`task_state_array` in fs/proc/array.c, `prev_state` of the tracepoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `R`: preempted while runnable.
    Preempted,
    /// `S`, `I`: asleep until something wakes it.
    Sleep,
    /// `D`: waiting in the kernel, mostly for a device; no signal ends it.
    Uninterruptible,
    /// `T`, `t`: stopped by a signal or a debugger.
    Stopped,
    /// `P`: a kernel thread that is parked.
    Parked,
    /// `X`, `Z`: it has ended.
    Dead,
    /// Not in the record, or a letter that no kernel uses.
    Unknown,
}

impl State {
    /// From the text in a record. The kernel's own texts may carry more behind the letter: `R+`, `D|K`.
    pub fn from_letter(letter: Option<&str>) -> Self {
        match letter.and_then(|text| text.bytes().next()) {
            Some(b'R') => State::Preempted,
            Some(b'S' | b'I') => State::Sleep,
            Some(b'D') => State::Uninterruptible,
            Some(b'T' | b't') => State::Stopped,
            Some(b'P') => State::Parked,
            Some(b'X' | b'Z') => State::Dead,
            _ => State::Unknown,
        }
    }

    /// How much of `len_ns` off the CPU, at its end, was spent waiting for a CPU: all of it where the thread was runnable
    /// when it left, what the record says otherwise.
    pub fn runq_ns(self, runq_ns: Option<u64>, len_ns: u64) -> u64 {
        if self == State::Preempted { len_ns } else { runq_ns.unwrap_or(0).min(len_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_letter_of_the_kernel_has_its_state() {
        let states = [
            ("R+", State::Preempted),
            ("S", State::Sleep),
            ("I", State::Sleep),
            ("D|K", State::Uninterruptible),
            ("T", State::Stopped),
            ("t", State::Stopped),
            ("P", State::Parked),
            ("X", State::Dead),
            ("Z", State::Dead),
            ("?", State::Unknown),
            ("", State::Unknown),
        ];
        for (letter, state) in states {
            assert_eq!(State::from_letter(Some(letter)), state, "{letter}");
        }
        assert_eq!(State::from_letter(None), State::Unknown);
    }

    #[test]
    fn who_is_preempted_waits_all_the_time() {
        assert_eq!(State::Preempted.runq_ns(Some(3), 10), 10);
        assert_eq!([None, Some(3), Some(30)].map(|runq_ns| State::Sleep.runq_ns(runq_ns, 10)), [0, 3, 10]);
    }
}
