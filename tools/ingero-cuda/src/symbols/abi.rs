//! Where the calling convention puts each parameter.
//!
//! Places are numbered as argument words: the integer registers first, then the stack. Only integers, pointers and
//! structures of integers occur in these APIs.
//!
//! System V AMD64 ABI 3.2.3: a structure of up to 16 bytes takes one integer register for each 8 bytes, and goes to the
//! stack whole when there are not enough left (later arguments may still use what is left); a larger one is copied to
//! the stack. Every stack argument takes a multiple of 8 bytes.
//!
//! ```text
//! cudaLaunchKernel(func, dim3 grid, dim3 block, args, size_t shmem, stream)
//!                  rdi   rsi rdx    rcx r8      r9    stack 0       stack 1
//!                        yx   z     yx  z                              (low half first)
//! ```
//!
//! AAPCS64 6.8.2: the same with eight registers; when a structure does not fit into those left, none of them is used
//! any more (C.12, C.13 of the argument rules: no split, next register number set to 8); a structure above 16 bytes is
//! passed by reference.

use ingero_common::discover::insn::Arch;

use super::signature::Param;

/// Integer argument registers.
pub(super) fn register_words(arch: Arch) -> u8 {
    match arch {
        Arch::X86_64 => 6,
        Arch::Aarch64 => 8,
    }
}

/// Where a parameter lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its value begins in this word.
    Word(u8),
    /// This word points to it.
    Reference(u8),
}

/// The place of each parameter, in order.
pub(super) fn places(arch: Arch, params: &[Param]) -> impl Iterator<Item = (Param, Place)> {
    let registers = usize::from(register_words(arch));
    let mut next_register = 0;
    let mut next_stack = registers;
    params.iter().map(move |&param| {
        let size_bytes = by_value_bytes(param);
        if size_bytes > 16 && arch == Arch::Aarch64 {
            return (param, Place::Reference(take(&mut next_register, &mut next_stack, registers, 1)));
        }
        let words = size_bytes.div_ceil(8);
        if size_bytes > 16 || next_register + words > registers {
            if arch == Arch::Aarch64 {
                next_register = registers;
            }
            let word = next_stack;
            next_stack += words;
            return (param, Place::Word(word as u8));
        }
        (param, Place::Word(take(&mut next_register, &mut next_stack, registers, words)))
    })
}

/// Takes `words` registers where they are left, else stack words.
fn take(next_register: &mut usize, next_stack: &mut usize, registers: usize, words: usize) -> u8 {
    let next = if *next_register + words <= registers { next_register } else { next_stack };
    let word = *next;
    *next += words;
    word as u8
}

/// Bytes passed by value.
fn by_value_bytes(param: Param) -> usize {
    match param {
        Param::SkipBytes(bytes) => usize::from(bytes),
        Param::Extent => 24,
        Param::Grid | Param::Block => 12,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arch: Arch, params: &[Param]) -> Vec<Place> {
        places(arch, params).map(|(_, place)| place).collect()
    }

    const W: fn(u8) -> Place = Place::Word;

    #[test]
    fn runtime_launch() {
        let params = [Param::Func, Param::Grid, Param::Block, Param::Skip, Param::Shmem, Param::Stream];
        assert_eq!(words(Arch::X86_64, &params), [W(0), W(1), W(3), W(5), W(6), W(7)]);
        assert_eq!(words(Arch::Aarch64, &params), [W(0), W(1), W(3), W(5), W(6), W(7)]);
    }

    #[test]
    fn a_structure_that_does_not_fit_goes_to_the_stack_whole() {
        let mut params = [Param::Skip; 7];
        params[5] = Param::Grid;
        // x86-64: one register is left, too few for 12 bytes; the next integer still takes it.
        assert_eq!(words(Arch::X86_64, &params)[5..], [W(6), W(5)]);
        let mut params = [Param::Skip; 9];
        params[7] = Param::Grid;
        // AAPCS64: the last register stays unused.
        assert_eq!(words(Arch::Aarch64, &params)[7..], [W(8), W(10)]);
    }

    #[test]
    fn a_unique_id_by_value() {
        // ncclCommInitRank(ncclComm_t *, int, ncclUniqueId (128 bytes), int)
        let params = [Param::Skip, Param::Ranks, Param::SkipBytes(128), Param::Rank];
        assert_eq!(words(Arch::X86_64, &params), [W(0), W(1), W(6), W(2)]);
        assert_eq!(words(Arch::Aarch64, &params), [W(0), W(1), Place::Reference(2), W(3)]);
    }

    #[test]
    fn large_structures() {
        // cudaMemset3DAsync(cudaPitchedPtr (32 bytes), int, cudaExtent, cudaStream_t)
        let params = [Param::SkipBytes(32), Param::Skip, Param::Extent, Param::Stream];
        assert_eq!(words(Arch::X86_64, &params), [W(6), W(0), W(10), W(1)]);
        assert_eq!(words(Arch::Aarch64, &params), [Place::Reference(0), W(1), Place::Reference(2), W(3)]);
    }
}
