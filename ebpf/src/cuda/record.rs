//! Records of the CUDA tracer as they come out of the ring buffer.
//!
//! The layouts are those of `bpf/cuda.h`. Parsing borrows and never allocates; a record that is shorter than its own
//! counts say gives `None`.

/// Argument words kept of a call at most.
pub const MAX_WORDS: usize = 12;
/// Words kept of the memory that an argument points to at most.
pub const MAX_IN_WORDS: usize = 16;

/// The size of `struct call_record` without what follows it.
const CALL_BYTES: usize = 72;
/// A call with all the words that there may be, bytes.
pub(super) const LONGEST_CALL_BYTES: usize = CALL_BYTES + 8 * (MAX_WORDS + MAX_IN_WORDS);
const CALL_OUT: u8 = 1;
const CALL_OPEN: u8 = 2;
const CALL_STUCK: u8 = 4;
const CALL_INSTANT: u8 = 8;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record<'a> {
    /// A call has returned, is open, or was entered.
    Call(Call<'a>),
    /// A watched process has forked `pid`.
    Fork {
        /// The child.
        pid: u32,
        /// The watched process.
        parent_pid: u32,
    },
    /// Process `pid` has executed a program: what is mapped in it is new.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A watched process has mapped or unmapped libraries, see [`super::Tracer::hook_linker`].
    Linked {
        /// The process.
        pid: u32,
        /// Its thread that waits for [`super::Tracer::resume`].
        tid: u32,
        /// Since when it waits, CLOCK_MONOTONIC ns.
        at_ns: u64,
    },
    /// A process enters its first call. Told twice where two of its threads did so at once.
    FirstCall(FirstCall<'a>),
    /// A watched process has ended.
    Exit {
        /// The process.
        pid: u32,
    },
}

/// What the kernel knows of a process that has just begun to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstCall<'a> {
    /// The process.
    pub pid: u32,
    /// As in [`Call::ns_pid`].
    pub ns_pid: Option<u32>,
    /// As in [`Call::symbol`].
    pub symbol: u32,
    /// When it began to, CLOCK_MONOTONIC ns.
    pub at_ns: u64,
    /// The name of its first thread, NUL-padded.
    pub comm: &'a [u8; 16],
}

/// What is known of the end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has returned.
    Returned,
    /// It has not, and this is its last record: its thread has ended, or tracing has.
    Open,
    /// It has not for long, and goes on: its own record is still to come.
    Stuck,
    /// Nothing: its return is not probed.
    Unknown,
}

impl End {
    fn of(flags: u8) -> Self {
        match flags & (CALL_OPEN | CALL_STUCK | CALL_INSTANT) {
            0 => Self::Returned,
            CALL_OPEN => Self::Open,
            CALL_INSTANT => Self::Unknown,
            _ => Self::Stuck,
        }
    }
}

/// A call as the kernel saw it: registers and memory, to be read with the symbol's signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Index of the symbol, as given with its [`crate::attach::Point`].
    pub symbol: u32,
    /// Start of the call, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// Its return, or the moment at which an open call was recorded, CLOCK_MONOTONIC ns; of an instant, its start.
    pub end_ns: u64,
    /// What is known of its end.
    pub end: End,
    /// Process, in the initial PID namespace.
    pub pid: u32,
    /// Thread, in the initial PID namespace.
    pub tid: u32,
    /// Process in its own PID namespace, where that is another one.
    pub ns_pid: Option<u32>,
    /// Traced calls of the thread around this one.
    pub depth: u8,
    /// What it returned; `None` where that is not known.
    pub ret: Option<i32>,
    /// What lay behind the out-parameter that the symbol's spec asks for, after a return of 0.
    pub out: Option<u64>,
    /// The thread's name, NUL-padded.
    pub comm: &'a [u8; 16],
    words: &'a [u8],
    input: &'a [u8],
}

impl<'a> Call<'a> {
    /// Argument word `index`. Integer argument number n is word n as long as every argument before it takes one word:
    /// words are the argument registers in order, then the stack.
    pub fn word(&self, index: usize) -> Option<u64> {
        word(self.words, index)
    }

    /// 32 bits of argument word `index`, as an `int` or an enum is passed; the upper half of the register is undefined.
    pub fn word32(&self, index: usize) -> Option<u32> {
        self.word(index).map(|word| word as u32)
    }

    /// The memory that the symbol's spec asks for, as it was at the entry; empty where it could not be read.
    pub fn input(&self) -> &'a [u8] {
        self.input
    }

    /// Copies the argument words that were kept into `to`.
    pub fn copy_words<'t>(&self, to: &'t mut [u64; MAX_WORDS]) -> &'t [u64] {
        copy_words(self.words, to)
    }

    /// Copies [`Call::input`] into `to`, as words.
    pub fn copy_input<'t>(&self, to: &'t mut [u64; MAX_IN_WORDS]) -> &'t [u64] {
        copy_words(self.input, to)
    }

    /// A call made of parts, for tests of what reads calls. `words` and `input` are as they lie in memory.
    pub fn from_parts(symbol: u32, comm: &'a [u8; 16], words: &'a [u8], input: &'a [u8]) -> Self {
        Self {
            symbol,
            start_ns: 0,
            end_ns: 0,
            pid: 0,
            tid: 0,
            ns_pid: None,
            depth: 0,
            end: End::Returned,
            ret: Some(0),
            out: None,
            comm,
            words,
            input,
        }
    }
}

fn word(words: &[u8], index: usize) -> Option<u64> {
    words.get(index * 8..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes))
}

fn copy_words<'t>(from: &[u8], to: &'t mut [u64]) -> &'t [u64] {
    let mut count = 0;
    for (to, from) in to.iter_mut().zip(from.chunks_exact(8)) {
        *to = from.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        count += 1;
    }
    to.get(..count).unwrap_or_default()
}

/// Reads one record; `None` if it is none of ours.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    match bytes.first()? {
        1 => parse_call(bytes).map(Record::Call),
        kind => {
            let pid = u32_at(bytes, 4)?;
            match kind {
                2 => Some(Record::Fork { pid, parent_pid: u32_at(bytes, 8)? }),
                3 => Some(Record::Exec { pid }),
                4 => Some(Record::Exit { pid }),
                5 => Some(Record::Linked { pid, tid: u32_at(bytes, 8)?, at_ns: u64_at(bytes, 16)? }),
                6 => Some(Record::FirstCall(FirstCall {
                    pid,
                    ns_pid: Some(u32_at(bytes, 12)?).filter(|ns_pid| *ns_pid != 0),
                    symbol: u32_at(bytes, 8)?,
                    at_ns: u64_at(bytes, 16)?,
                    comm: bytes.get(24..)?.first_chunk()?,
                })),
                _ => None,
            }
        }
    }
}

fn parse_call(bytes: &[u8]) -> Option<Call<'_>> {
    let (fixed, tail) = bytes.split_at_checked(CALL_BYTES)?;
    let &[_, flags, depth, words, in_words, ..] = fixed else { return None };
    let (words, rest) = tail.split_at_checked(usize::from(words) * 8)?;
    let input = rest.get(..usize::from(in_words) * 8)?;
    let ns_pid = u32_at(fixed, 32)?;
    let end = End::of(flags);
    Some(Call {
        symbol: u32_at(fixed, 36)?,
        start_ns: u64_at(fixed, 8)?,
        end_ns: u64_at(fixed, 16)?,
        pid: u32_at(fixed, 24)?,
        tid: u32_at(fixed, 28)?,
        ns_pid: (ns_pid != 0).then_some(ns_pid),
        depth,
        end,
        ret: (end == End::Returned).then_some(u32_at(fixed, 40)?.cast_signed()),
        out: (flags & CALL_OUT != 0).then_some(u64_at(fixed, 48)?),
        comm: fixed.get(56..)?.first_chunk()?,
        words,
        input,
    })
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record as the BPF program writes it, each byte placed by hand from `struct call_record`.
    fn bytes(words: &[u64], input: &[u64], flags: u8) -> Vec<u8> {
        let mut out = vec![1, flags, 2, words.len() as u8, input.len() as u8, 0, 0, 0];
        out.extend(1000u64.to_le_bytes());
        out.extend(1500u64.to_le_bytes());
        for field in [10u32, 11, 12, 13] {
            out.extend(field.to_le_bytes());
        }
        out.extend((-35i32).to_le_bytes());
        out.extend([0xff; 4]);
        out.extend(0xdead_beefu64.to_le_bytes());
        out.extend(b"python3\0\0\0\0\0\0\0\0\0");
        for word in words.iter().chain(input) {
            out.extend(word.to_le_bytes());
        }
        out
    }

    #[test]
    fn a_call_with_everything() {
        let bytes = bytes(&[5, 0xffff_ffff_0000_0007], &[9], CALL_OUT);
        let Some(Record::Call(call)) = parse(&bytes) else { panic!("no call") };
        assert_eq!((call.start_ns, call.end_ns), (1000, 1500));
        assert_eq!((call.pid, call.tid, call.ns_pid, call.symbol), (10, 11, Some(12), 13));
        assert_eq!((call.depth, call.ret, call.out), (2, Some(-35), Some(0xdead_beef)));
        assert_eq!(call.comm, b"python3\0\0\0\0\0\0\0\0\0");
        assert_eq!((call.word(0), call.word(1), call.word(2)), (Some(5), Some(0xffff_ffff_0000_0007), None));
        assert_eq!(call.word32(1), Some(7));
        assert_eq!(call.input(), 9u64.to_le_bytes());
        assert_eq!(call.copy_words(&mut [0; MAX_WORDS]), [5, 0xffff_ffff_0000_0007]);
        assert_eq!(call.copy_input(&mut [0; MAX_IN_WORDS]), [9]);
    }

    #[test]
    fn a_call_that_has_not_returned_has_no_result() {
        for (flags, end) in [(CALL_OPEN, End::Open), (CALL_OPEN | CALL_STUCK, End::Stuck), (CALL_INSTANT, End::Unknown)]
        {
            let bytes = bytes(&[], &[], flags);
            let Some(Record::Call(call)) = parse(&bytes) else { panic!("no call") };
            assert_eq!((call.end, call.ret, call.out, call.word(0)), (end, None, None, None));
            assert!(call.input().is_empty());
        }
    }

    #[test]
    fn whatever_is_cut_off_is_no_call() {
        let bytes = bytes(&[1, 2, 3], &[4], 0);
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), None, "{len}");
        }
        assert!(parse(&bytes).is_some());
    }

    #[test]
    fn process_records() {
        let mut bytes = vec![2, 0, 0, 0];
        bytes.extend(7u32.to_le_bytes());
        bytes.extend(6u32.to_le_bytes());
        bytes.extend(3u32.to_le_bytes());
        bytes.extend(8u64.to_le_bytes());
        bytes.extend(b"python3\0\0\0\0\0\0\0\0\0");
        assert_eq!(parse(&bytes), Some(Record::Fork { pid: 7, parent_pid: 6 }));
        bytes[0] = 3;
        assert_eq!(parse(&bytes), Some(Record::Exec { pid: 7 }));
        bytes[0] = 4;
        assert_eq!(parse(&bytes), Some(Record::Exit { pid: 7 }));
        bytes[0] = 5;
        assert_eq!(parse(&bytes), Some(Record::Linked { pid: 7, tid: 6, at_ns: 8 }));
        bytes[0] = 6;
        let first = |ns_pid| FirstCall { pid: 7, ns_pid, symbol: 6, at_ns: 8, comm: b"python3\0\0\0\0\0\0\0\0\0" };
        assert_eq!(parse(&bytes), Some(Record::FirstCall(first(Some(3)))));
        bytes[12] = 0;
        assert_eq!(parse(&bytes), Some(Record::FirstCall(first(None))));
        bytes[0] = 7;
        assert_eq!(parse(&bytes), None);
    }
}
