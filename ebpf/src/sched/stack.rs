//! Where in its code a thread was: the events of `bpf/sched_stack.h`, and what its programs have to be told of interpreters.

use super::event::{Fields, Head, In, in_of};

const ON_CPU: u32 = 1;
const GC: u32 = 2;
const PYTHON: u32 = 4;
const TORN: u32 = 8;
const CUT: u32 = 16;

/// Two 64-bit words.
const FRAME_BYTES: usize = 16;

/// A thread at one instant, which is `head.mono_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The thread.
    pub head: Head<'a>,
    /// It ran; otherwise it went to sleep.
    pub on_cpu: bool,
    /// It collected garbage.
    pub gc: bool,
    /// It belongs to a process with an interpreter that was told of by [`Python`].
    pub has_python: bool,
    /// Its frames could not be read to the end.
    pub torn: bool,
    /// It has more frames.
    pub cut: bool,
    /// Where it had left user space, or where it was in it.
    pub ip: u64,
    /// What it was in.
    pub within: In,
    frames: &'a [u8],
}

/// A frame of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of its code object.
    pub code: u64,
    /// The instruction that it was at: an address or an index, as the version has it.
    pub instruction: u64,
}

impl Stack<'_> {
    /// The frames of Python, innermost first.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = PythonFrame> {
        self.frames.as_chunks::<FRAME_BYTES>().0.iter().map(|bytes| {
            let (code, instruction) = bytes.split_at(8);
            let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
            PythonFrame { code: word(code), instruction: word(instruction) }
        })
    }
}

/// Decodes what follows the head.
pub(super) fn decode<'a>(head: Head<'a>, fields: &mut Fields<'a>) -> Option<Stack<'a>> {
    let ip = fields.u64()?;
    let (call, flags) = (fields.u32()?.cast_signed(), fields.u32()?);
    let (count, _unused) = (fields.u32()? as usize, fields.u32()?);
    let has = |flag| flags & flag != 0;
    let frames = fields.bytes(count.checked_mul(FRAME_BYTES)?)?;
    Some(Stack {
        head,
        on_cpu: has(ON_CPU),
        gc: has(GC),
        has_python: has(PYTHON),
        torn: has(TORN),
        cut: has(CUT),
        ip,
        within: in_of(call),
        frames,
    })
}

/// The interpreter of a process, as `struct python` of `bpf/sched_stack.h` has it: addresses, and offsets in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as there")]
pub struct Python {
    pub interpreter: u64,
    pub gil: u64,
    pub threads_head: u16,
    pub collecting: u16,
    pub next: u16,
    pub thread_id: u16,
    pub frame: u16,
    pub current_frame: Option<u16>,
    pub code: u16,
    pub previous: u16,
    pub instruction: u16,
    pub owner: Option<u16>,
    pub holder: u16,
    pub locked: u16,
    /// `instruction` is a 32-bit index instead of an address.
    pub is_index: bool,
}

/// The size of `struct python`.
pub(super) const PYTHON_BYTES: usize = 48;
const NO_OFFSET: u16 = 0xffff;

impl Python {
    pub(super) fn bytes(&self) -> [u8; PYTHON_BYTES] {
        let offsets = [
            self.threads_head,
            self.collecting,
            self.next,
            self.thread_id,
            self.frame,
            self.current_frame.unwrap_or(NO_OFFSET),
            self.code,
            self.previous,
            self.instruction,
            self.owner.unwrap_or(NO_OFFSET),
            self.holder,
            self.locked,
            if self.is_index { 4 } else { 8 },
        ];
        let mut bytes = [0; PYTHON_BYTES];
        bytes[..8].copy_from_slice(&self.interpreter.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.gil.to_ne_bytes());
        for (place, offset) in bytes[16..].chunks_exact_mut(2).zip(offsets) {
            place.copy_from_slice(&offset.to_ne_bytes());
        }
        bytes
    }
}
