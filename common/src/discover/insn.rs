//! How a function begins, which decides what a uprobe on it costs and where it must sit.
//!
//! The kernel runs the replaced instruction after the probe. It emulates a few (on x86-64 `push`, `nop`, relative
//! jumps: `arch/x86/kernel/uprobes.c`) and single-steps the rest out of line, which costs several times as much.
//! Behind `endbr64` the stack is still untouched, so the probe can sit on the instruction that follows.
//!
//! ```text
//! f3 0f 1e fa   endbr64           single-stepped here
//! 55            push %rbp         emulated: put the probe 4 bytes later
//! ```

use std::fmt;

/// Bytes worth reading at a function's start: `endbr64`, a whole empty frame and a jump.
pub const PROLOGUE_BYTES: usize = 20;

/// The machine whose code is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    X86_64,
    /// 64-bit Arm, little endian.
    Aarch64,
}

impl Arch {
    /// The machine this program was built for; probes can only be placed in its code.
    #[must_use]
    pub fn native() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::X86_64),
            "aarch64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// Classes of first instructions (after `endbr64` or `bti c`, where there is one).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// x86 `push %rbp`; Arm `stp x29, x30, [sp, #-n]!`: the usual frame.
    Frame,
    /// x86 `push` of another register.
    Push,
    /// The 5-byte `nop` that compilers leave for patching; kernel 6.18 rewrites it to a call.
    Nop5,
    /// Any other `nop`.
    Nop,
    /// `sub` on the stack pointer.
    Sub,
    /// A move between registers, of an immediate or of memory.
    Mov,
    /// `xor`/`eor`.
    Xor,
    /// Arm `paciasp`/`pacibsp`: signs the return address, so a probe may never sit behind it.
    Pac,
    /// An unconditional jump, possibly behind an empty frame (`push %rbp; mov %rsp,%rbp; pop %rbp; jmp`).
    Jump,
    /// `ret`: an empty function.
    Ret,
    /// Anything else, or code that could not be read.
    Other,
}

impl Class {
    /// The short name used in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Frame => "frame",
            Self::Push => "push",
            Self::Nop5 => "nop5",
            Self::Nop => "nop",
            Self::Sub => "sub",
            Self::Mov => "mov",
            Self::Xor => "xor",
            Self::Pac => "pac",
            Self::Jump => "jump",
            Self::Ret => "ret",
            Self::Other => "other",
        }
    }
}

/// How one function begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstInsn {
    /// Class of the first instruction, a landing pad not counted.
    pub class: Class,
    /// Begins with a landing pad: `endbr64` or `bti`.
    pub landing_pad: bool,
    /// Where a [`Class::Jump`] with an immediate target goes, bytes from the function's start.
    pub jump: Option<i64>,
}

impl FirstInsn {
    /// Bytes from the function's start to where the probe belongs.
    #[must_use]
    pub fn probe_skip(&self, arch: Arch) -> u64 {
        match arch {
            Arch::X86_64 if self.landing_pad => 4,
            // A `bti` is stepped at the same cost as its successor, and behind `paciasp` the return address is
            // already signed: replacing it there would crash the target. Both stay where they are.
            _ => 0,
        }
    }
}

impl fmt::Display for FirstInsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pad = if self.landing_pad { "landing pad + " } else { "" };
        write!(f, "{pad}{}", self.class.name())
    }
}

/// Looks at the first bytes of a function; `code` may be shorter than [`PROLOGUE_BYTES`].
#[must_use]
pub fn classify(arch: Arch, code: &[u8]) -> FirstInsn {
    match arch {
        Arch::X86_64 => x86_64(code),
        Arch::Aarch64 => aarch64(code),
    }
}

fn x86_64(code: &[u8]) -> FirstInsn {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    // push %rbp; mov %rsp,%rbp; pop %rbp (both encodings of the move): a frame made and undone.
    const EMPTY_FRAMES: [&[u8]; 2] = [&[0x55, 0x48, 0x89, 0xe5, 0x5d], &[0x55, 0x48, 0x8b, 0xec, 0x5d]];

    let landing_pad = code.starts_with(ENDBR64);
    let body_at = if landing_pad { ENDBR64.len() } else { 0 };
    let body = &code[body_at..];
    let frame = EMPTY_FRAMES.iter().find(|frame| body.starts_with(frame)).map_or(0, |frame| frame.len());
    if let Some((_, jump)) = x86_64_jump(&body[frame..]) {
        let jump = jump.map(|distance| distance + (body_at + frame) as i64);
        return FirstInsn { class: Class::Jump, landing_pad, jump };
    }
    // A REX prefix (0x40-0x4f) changes operands, not the class of these instructions.
    let plain = match body {
        [0x40..=0x4f, rest @ ..] => rest,
        all => all,
    };
    let class = match (body, plain) {
        ([0x55, ..], _) => Class::Frame,
        ([0x0f, 0x1f, 0x44, 0x00, 0x00, ..], _) => Class::Nop5,
        ([0x90, ..] | [0x0f, 0x1f, ..] | [0x66, 0x90, ..] | [0x66, 0x0f, 0x1f, ..], _) => Class::Nop,
        ([0xc3, ..] | [0xf3, 0xc3, ..] | [0xc2, ..], _) => Class::Ret,
        (_, [0x50..=0x57, ..]) => Class::Push,
        // Group 1 with /5 on rsp.
        (_, [0x83 | 0x81, 0xec, ..]) => Class::Sub,
        (_, [0x88..=0x8b | 0xb8..=0xbf | 0xc6 | 0xc7, ..]) => Class::Mov,
        (_, [0x30..=0x35, ..]) => Class::Xor,
        _ => Class::Other,
    };
    FirstInsn { class, landing_pad, jump: None }
}

/// A jump at the start of `code`: its length, and its target relative to the start of `code` where that is immediate.
pub(super) fn x86_64_jump(code: &[u8]) -> Option<(usize, Option<i64>)> {
    match *code {
        [0xe9, a, b, c, d, ..] => Some((5, Some(5 + i64::from(i32::from_le_bytes([a, b, c, d]))))),
        [0xeb, short, ..] => Some((2, Some(2 + i64::from(short.cast_signed())))),
        // Through memory: a PLT slot or a dispatch table.
        [0xff, 0x25, ..] => Some((6, None)),
        [0xf2, 0xff, 0x25, ..] => Some((7, None)),
        _ => None,
    }
}

fn aarch64(code: &[u8]) -> FirstInsn {
    let word = |index: usize| {
        let at = index * 4;
        code.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
    };
    // HINT #32..#38 in steps of two: bti, bti c, bti j, bti jc.
    let landing_pad = word(0).is_some_and(|insn| insn & 0xffff_ff3f == 0xd503_241f);
    let index = usize::from(landing_pad);
    let mut jump = None;
    let class = match word(index) {
        Some(0xd503_233f | 0xd503_237f) => Class::Pac,
        Some(0xd503_201f) => Class::Nop,
        Some(0xd65f_03c0) => Class::Ret,
        // b imm26
        Some(insn) if insn >> 26 == 0b00_0101 => {
            let words = i64::from((insn << 6).cast_signed() >> 6);
            jump = Some(words * 4 + (index * 4) as i64);
            Class::Jump
        }
        // br xN
        Some(insn) if insn & 0xffff_fc1f == 0xd61f_0000 => Class::Jump,
        // stp x29, x30, [sp, #imm]!
        Some(insn) if insn & 0xffc0_7fff == 0xa980_7bfd => Class::Frame,
        // sub sp, sp, #imm
        Some(insn) if insn & 0xff80_03ff == 0xd100_03ff => Class::Sub,
        // eor (shifted register), 32 and 64 bits
        Some(insn) if insn & 0x7f20_0000 == 0x4a00_0000 => Class::Xor,
        // mov xD, xM (= orr xD, xzr, xM), movz, movn
        Some(insn) if insn & 0x7fe0_ffe0 == 0x2a00_03e0 => Class::Mov,
        Some(insn) if insn & 0x7f80_0000 == 0x5280_0000 || insn & 0x7f80_0000 == 0x1280_0000 => Class::Mov,
        _ => Class::Other,
    };
    FirstInsn { class, landing_pad, jump }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x86(code: &[u8]) -> (Class, bool, Option<i64>) {
        let first = classify(Arch::X86_64, code);
        (first.class, first.landing_pad, first.jump)
    }

    fn arm(words: &[u32]) -> (Class, bool, Option<i64>) {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let first = classify(Arch::Aarch64, &code);
        (first.class, first.landing_pad, first.jump)
    }

    #[test]
    fn x86_prologues() {
        assert_eq!(x86(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57]), (Class::Frame, false, None));
        assert_eq!(x86(&[0x41, 0x57]), (Class::Push, false, None)); // push %r15
        assert_eq!(x86(&[0x53]), (Class::Push, false, None)); // push %rbx
        assert_eq!(x86(&[0x48, 0x83, 0xec, 0x08]), (Class::Sub, false, None));
        assert_eq!(x86(&[0x48, 0x81, 0xec, 0, 1, 0, 0]), (Class::Sub, false, None));
        assert_eq!(x86(&[0x48, 0x89, 0xf8]), (Class::Mov, false, None));
        assert_eq!(x86(&[0xb8, 1, 0, 0, 0]), (Class::Mov, false, None));
        assert_eq!(x86(&[0x31, 0xc0]), (Class::Xor, false, None));
        assert_eq!(x86(&[0x45, 0x31, 0xc0]), (Class::Xor, false, None));
        assert_eq!(x86(&[0x0f, 0x1f, 0x44, 0, 0]), (Class::Nop5, false, None));
        assert_eq!(x86(&[0xc3]), (Class::Ret, false, None));
        assert_eq!(x86(&[0xe8, 0, 0, 0, 0]), (Class::Other, false, None));
        assert_eq!(x86(&[]), (Class::Other, false, None));
    }

    #[test]
    fn x86_landing_pads_move_the_probe() {
        let first = classify(Arch::X86_64, &[0xf3, 0x0f, 0x1e, 0xfa, 0x55]);
        assert_eq!((first.class, first.landing_pad, first.probe_skip(Arch::X86_64)), (Class::Frame, true, 4));
        assert_eq!(classify(Arch::X86_64, &[0x55]).probe_skip(Arch::X86_64), 0);
    }

    #[test]
    fn x86_tail_jumps_also_behind_an_empty_frame() {
        assert_eq!(x86(&[0xe9, 0x10, 0, 0, 0]), (Class::Jump, false, Some(0x15)));
        assert_eq!(x86(&[0xeb, 0xfe]), (Class::Jump, false, Some(0)));
        // __cudaLaunchKernel of libcudart.so.12: at 23d30, the jump at 23d35 goes to 7ce80.
        let rel = 0x7ce80 - 0x23d3a_i32;
        let mut code = vec![0x55, 0x48, 0x89, 0xe5, 0x5d, 0xe9];
        code.extend_from_slice(&rel.to_le_bytes());
        assert_eq!(x86(&code), (Class::Jump, false, Some(0x7ce80 - 0x23d30)));
        let mut code = vec![0xf3, 0x0f, 0x1e, 0xfa, 0xe9];
        code.extend_from_slice(&(-9_i32).to_le_bytes());
        assert_eq!(x86(&code), (Class::Jump, true, Some(0)));
        assert_eq!(x86(&[0xff, 0x25, 0, 0, 0, 0]), (Class::Jump, false, None));
        // Cut off in the middle of the displacement.
        assert_eq!(x86(&[0xe9, 0x10]), (Class::Other, false, None));
    }

    #[test]
    fn arm_prologues() {
        assert_eq!(arm(&[0xa9bf_7bfd]), (Class::Frame, false, None)); // stp x29, x30, [sp, #-16]!
        assert_eq!(arm(&[0xd503_245f, 0xa9be_7bfd]), (Class::Frame, true, None)); // bti c
        assert_eq!(arm(&[0xd503_233f]), (Class::Pac, false, None)); // paciasp
        assert_eq!(arm(&[0xd100_83ff]), (Class::Sub, false, None)); // sub sp, sp, #32
        assert_eq!(arm(&[0xaa00_03e1]), (Class::Mov, false, None)); // mov x1, x0
        assert_eq!(arm(&[0x5280_0020]), (Class::Mov, false, None)); // mov w0, #1
        assert_eq!(arm(&[0x1400_0002]), (Class::Jump, false, Some(8)));
        assert_eq!(arm(&[0xd503_245f, 0x17ff_ffff]), (Class::Jump, true, Some(0)));
        assert_eq!(arm(&[0xd61f_0220]), (Class::Jump, false, None)); // br x17
        assert_eq!(arm(&[0xd65f_03c0]), (Class::Ret, false, None));
        assert_eq!(arm(&[0xd503_201f]), (Class::Nop, false, None));
        let first = classify(Arch::Aarch64, &[0x5f, 0x24, 0x03, 0xd5, 0x3f, 0x23, 0x03, 0xd5]);
        assert_eq!((first.class, first.probe_skip(Arch::Aarch64)), (Class::Pac, 0));
    }
}
