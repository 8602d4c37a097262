//! The run states in which a thread leaves the CPU.

/// How a thread left the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `R`: preempted while runnable.
    Preempted,
    /// `S`, `I`, stopped, traced: asleep.
    Sleep,
    /// `D`: waiting in the kernel for a device.
    Uninterruptible,
    /// Not in the record.
    Unknown,
}

impl State {
    /// From the letter in a record.
    pub fn from_letter(letter: Option<&str>) -> Self {
        match letter.and_then(|s| s.bytes().next()) {
            Some(b'R') => State::Preempted,
            Some(b'D') => State::Uninterruptible,
            Some(b'?') | None => State::Unknown,
            Some(_) => State::Sleep,
        }
    }
}
