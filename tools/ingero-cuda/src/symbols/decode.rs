//! From a symbol's signature to a decoder, made once for each attached symbol.

use ingero_common::cuda_api::Dir;
use ingero_common::discover::insn::Arch;

use super::abi::{Place, places, register_words};
use super::args::{Args, Decoded, dir_of_kind};
use super::memory::{Memory, high, low};
use super::signature::{Param, Signature};

/// Argument words that are kept of a call at most: all registers and a few of the stack.
pub const MAX_WORDS: u8 = 12;

/// What has to be kept of a call for its [`Decoder`]; the kernel side is told this for each symbol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Argument words (registers, then stack), 0 to [`MAX_WORDS`].
    pub words: u8,
    /// Stack words among them.
    pub stack_words: u8,
    /// The argument word that points to what is read at the entry.
    pub in_word: u8,
    /// Words of 8 bytes read there; 0 = nothing.
    pub in_words: u8,
    /// Bytes behind that pointer at which the reading begins.
    pub in_offset: u16,
    /// The argument word that points to what is read after a return of 0.
    pub out_word: u8,
    /// Bytes read there, 4 or 8; 0 = nothing.
    pub out_bytes: u8,
}

/// Reads the arguments of one symbol's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoder {
    fields: Box<[(Field, u8)]>,
    memory: Option<Memory>,
    dir: Option<Dir>,
    has_size: bool,
    spec: Spec,
}

/// What one argument word holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    /// A factor of `bytes`: how many bytes one of it is, and whether only the lower half counts.
    Factor {
        unit_bytes: u8,
        narrow: bool,
    },
    Kind,
    Stream,
    Func,
    Ptr,
    /// x and y in this word, z in the lower half of the next.
    Grid,
    Block,
    GridDim(u8),
    BlockDim(u8),
    Shmem {
        narrow: bool,
    },
    Count,
    Dtype,
    Rank,
    Ranks,
    Event,
    Device,
}

impl Field {
    /// A plain number of bytes.
    const SIZE: Self = Self::Factor { unit_bytes: 1, narrow: false };

    /// The field for a parameter that lies in the argument words themselves.
    fn of(param: Param) -> Option<Self> {
        Some(match param {
            Param::Size => Self::SIZE,
            Param::Size32 => Self::Factor { unit_bytes: 1, narrow: true },
            Param::Elements(unit_bytes) => Self::Factor { unit_bytes, narrow: false },
            Param::Elements32(unit_bytes) => Self::Factor { unit_bytes, narrow: true },
            Param::Kind => Self::Kind,
            Param::Stream => Self::Stream,
            Param::Func => Self::Func,
            Param::Ptr => Self::Ptr,
            Param::Grid => Self::Grid,
            Param::Block => Self::Block,
            Param::GridDim(dimension) => Self::GridDim(dimension),
            Param::BlockDim(dimension) => Self::BlockDim(dimension),
            Param::Shmem => Self::Shmem { narrow: false },
            Param::Shmem32 => Self::Shmem { narrow: true },
            Param::Count => Self::Count,
            Param::Dtype => Self::Dtype,
            Param::Rank => Self::Rank,
            Param::Ranks => Self::Ranks,
            Param::Event => Self::Event,
            Param::Device => Self::Device,
            Param::Skip | Param::SkipBytes(_) | Param::Extent | Param::Out | Param::Out32 | Param::Inside(_) => {
                return None;
            }
        })
    }

    /// Argument words it lies in.
    fn words(self) -> u8 {
        match self {
            Self::Grid | Self::Block => 2,
            _ => 1,
        }
    }
}

impl Decoder {
    /// A decoder for the function of `signature` in its version `version` (`""` or `"_v2"`…) on machine `arch`.
    pub(super) fn new(signature: &Signature, version: &str, arch: Arch) -> Self {
        let mut fields = Vec::new();
        let mut memory = None;
        let mut spec = Spec::default();
        for (param, place) in places(arch, signature.params(version)) {
            let Place::Word(word) = place else { continue };
            match param {
                Param::Out | Param::Out32 => {
                    spec.out_word = word;
                    spec.out_bytes = if param == Param::Out { 8 } else { 4 };
                    spec.words = spec.words.max(word + 1);
                }
                Param::Inside(inside) => {
                    memory = Some(inside);
                    spec.in_word = word;
                    (spec.in_offset, spec.in_words) = inside.stretch();
                    spec.words = spec.words.max(word + 1);
                }
                Param::Extent => fields.extend((word..word + 3).map(|word| (Field::SIZE, word))),
                other => fields.extend(Field::of(other).map(|field| (field, word))),
            }
        }
        let last = fields.iter().map(|&(field, word)| word + field.words()).max().unwrap_or(0);
        spec.words = spec.words.max(last).min(MAX_WORDS);
        spec.stack_words = spec.words.saturating_sub(register_words(arch));
        let has_size = fields.iter().any(|(field, _)| matches!(field, Field::Factor { .. }));
        Self { fields: fields.into(), memory, dir: signature.function.dir, has_size, spec }
    }

    /// What the kernel side has to keep.
    #[must_use]
    pub fn spec(&self) -> Spec {
        self.spec
    }

    /// What the words of one call say.
    #[must_use]
    pub fn decode(&self, args: &Args<'_>) -> Decoded {
        let mut out = Decoded { dir: self.dir, ptr: args.out, ..Decoded::default() };
        let mut bytes = self.has_size.then_some(1_u64);
        let mut grid = Dims::default();
        let mut block = Dims::default();
        for &(field, at) in &self.fields {
            let word = args.words.get(usize::from(at)).copied();
            match field {
                Field::Factor { unit_bytes, narrow } => {
                    let factor = word.map(|word| if narrow { low(word).into() } else { word });
                    bytes = factor
                        .zip(bytes)
                        .and_then(|(factor, bytes)| bytes.checked_mul(factor)?.checked_mul(unit_bytes.into()));
                }
                Field::Kind => out.dir = word.and_then(|kind| dir_of_kind(low(kind))),
                Field::Stream => out.stream = word,
                Field::Func => out.func = word,
                Field::Ptr => out.ptr = word,
                Field::Grid => grid.set_all(args.words, at),
                Field::Block => block.set_all(args.words, at),
                Field::GridDim(dimension) => grid.set(dimension, word),
                Field::BlockDim(dimension) => block.set(dimension, word),
                Field::Shmem { narrow } => {
                    out.shmem = word.map(|word| if narrow { low(word).into() } else { word });
                }
                Field::Count => out.count = word,
                Field::Rank => out.rank = word.map(low),
                Field::Ranks => out.nranks = word.map(low),
                Field::Event => out.event = word,
                Field::Device => out.device = word.map(low),
                Field::Dtype => {
                    let known = word.and_then(|code| dtype(low(code)));
                    out.dtype = known.map(|(name, _)| name);
                    bytes = known.zip(out.count).and_then(|((_, unit_bytes), count)| count.checked_mul(unit_bytes));
                }
            }
        }
        out.bytes = bytes;
        out.grid = grid.whole();
        out.block = block.whole();
        if let Some(memory) = self.memory {
            memory.decode(args.memory, &mut out);
        }
        out
    }
}

/// Three dimensions, of which all or none count.
#[derive(Default)]
struct Dims([Option<u32>; 3]);

impl Dims {
    fn set(&mut self, dimension: u8, word: Option<u64>) {
        if let Some(slot) = self.0.get_mut(usize::from(dimension)) {
            *slot = word.map(low);
        }
    }

    fn set_all(&mut self, words: &[u64], at: u8) {
        let at = usize::from(at);
        if let Some(&[xy, z]) = words.get(at..at + 2) {
            self.0 = [Some(low(xy)), Some(high(xy)), Some(low(z))];
        }
    }

    fn whole(&self) -> Option<[u32; 3]> {
        Some([self.0[0]?, self.0[1]?, self.0[2]?])
    }
}

/// Name and size in bytes of an `ncclDataType_t` (`nccl.h`).
fn dtype(code: u32) -> Option<(&'static str, u64)> {
    Some(match code {
        0 => ("int8", 1),
        1 => ("uint8", 1),
        2 => ("int32", 4),
        3 => ("uint32", 4),
        4 => ("int64", 8),
        5 => ("uint64", 8),
        6 => ("float16", 2),
        7 => ("float32", 4),
        8 => ("float64", 8),
        9 => ("bfloat16", 2),
        10 => ("float8e4m3", 1),
        11 => ("float8e5m2", 1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ingero_common::discover::LibraryKind::{self, Cuda, Cudart, Nccl};

    use super::*;
    use crate::symbols::lookup;

    /// An upper half as a compiler may leave it behind a 32-bit value.
    const GARBAGE: u64 = 0xdead_beef_0000_0000;

    fn decode(kind: LibraryKind, name: &str, arch: Arch, words: &[u64]) -> Decoded {
        lookup(kind, name, arch).unwrap().1.decode(&Args { words, ..Args::default() })
    }

    fn spec(kind: LibraryKind, name: &str, arch: Arch) -> Spec {
        lookup(kind, name, arch).unwrap().1.spec()
    }

    #[test]
    fn what_was_not_read_is_absent() {
        let words = [1, 11 | 12 << 32, 13 | GARBAGE, 21 | 22 << 32, 23, 5, 4096, 0x57];
        let whole = decode(Cudart, "cudaLaunchKernel", Arch::X86_64, &words);
        assert_eq!((whole.grid, whole.block), (Some([11, 12, 13]), Some([21, 22, 23])));
        assert_eq!((whole.shmem, whole.stream), (Some(4096), Some(0x57)));
        // The stack could not be read.
        let registers = decode(Cudart, "cudaLaunchKernel", Arch::X86_64, &words[..6]);
        assert_eq!(registers, Decoded { shmem: None, stream: None, ..whole });
        assert_eq!(decode(Cudart, "cudaLaunchKernel", Arch::X86_64, &[]), Decoded::default());
        // Half a dimension is none.
        assert_eq!(decode(Cudart, "cudaLaunchKernel", Arch::X86_64, &words[..4]).block, None);
        let driver = decode(Cuda, "cuLaunchKernel", Arch::X86_64, &[1, 2, 3, 4, 5, 6]);
        assert_eq!((driver.grid, driver.block), (Some([2, 3, 4]), None));
    }

    #[test]
    fn zero_is_a_value() {
        let zero = decode(Cudart, "cudaMemcpyAsync", Arch::X86_64, &[0; 5]);
        assert_eq!((zero.bytes, zero.dir, zero.stream), (Some(0), Some(Dir::H2h), Some(0)));
    }

    #[test]
    fn upper_halves_of_narrow_arguments_do_not_count() {
        let words = [0, 0, 64, 1 | GARBAGE];
        assert_eq!(decode(Cudart, "cudaMemcpy", Arch::X86_64, &words).dir, Some(Dir::H2d));
        let words = [0, 0, 64 | GARBAGE];
        assert_eq!(decode(Cuda, "cuMemcpyHtoD", Arch::X86_64, &words).bytes, Some(64), "unsigned int before _v2");
        assert_eq!(decode(Cuda, "cuMemcpyHtoD_v2", Arch::X86_64, &words).bytes, Some(64 | GARBAGE));
        let mut words = [7 | GARBAGE; 12];
        words[7] = 4096 | GARBAGE;
        let launch = decode(Cuda, "cuLaunchKernel", Arch::X86_64, &words);
        assert_eq!((launch.grid, launch.block), (Some([7; 3]), Some([7; 3])));
        assert_eq!(launch.shmem, Some(4096));
    }

    #[test]
    fn directions() {
        let dir = |kind| decode(Cudart, "cudaMemcpy", Arch::X86_64, &[0, 0, 1, kind]).dir;
        assert_eq!(
            [0, 1, 2, 3, 4, 77].map(dir),
            [Some(Dir::H2h), Some(Dir::H2d), Some(Dir::D2h), Some(Dir::D2d), None, None]
        );
        assert_eq!(decode(Cuda, "cuMemcpyDtoHAsync_v2", Arch::X86_64, &[]).dir, Some(Dir::D2h), "its name says it");
        assert_eq!(decode(Cuda, "cuMemcpyAsync", Arch::X86_64, &[0; 4]).dir, None);
    }

    #[test]
    fn products_that_cannot_be_are_absent() {
        let words = [0, 0, 0, 0, u64::MAX, 2, 1];
        let copy = decode(Cudart, "cudaMemcpy2D", Arch::X86_64, &words);
        assert_eq!((copy.bytes, copy.dir), (None, Some(Dir::H2d)));
        assert_eq!(decode(Cuda, "cuMemsetD32_v2", Arch::X86_64, &[0, 0, u64::MAX / 2]).bytes, None);
        assert_eq!(decode(Nccl, "ncclAllReduce", Arch::X86_64, &[0, 0, u64::MAX, 8]).bytes, None);
    }

    #[test]
    fn an_unknown_element_type_leaves_only_the_count() {
        let words = [0, 0, 1000, 99, 0, 0, 0x57];
        let reduced = decode(Nccl, "ncclAllReduce", Arch::X86_64, &words);
        assert_eq!((reduced.bytes, reduced.dtype), (None, None));
        assert_eq!((reduced.count, reduced.stream), (Some(1000), Some(0x57)));
    }

    #[test]
    fn pointers_that_a_call_gives_back() {
        let (_, decoder) = lookup(Cudart, "cudaMalloc", Arch::X86_64).unwrap();
        assert_eq!((decoder.spec().out_word, decoder.spec().out_bytes), (0, 8));
        let args = Args { words: &[0x7fff, 256], memory: &[], out: Some(0x7f00) };
        assert_eq!(decoder.decode(&args), Decoded { bytes: Some(256), ptr: Some(0x7f00), ..Decoded::default() });
        let failed = decoder.decode(&Args { out: None, ..args });
        assert_eq!(failed.ptr, None, "never the address of the variable");
        assert_eq!(spec(Cuda, "cuMemAlloc", Arch::X86_64).out_bytes, 4, "32-bit device pointers before _v2");
        assert_eq!(spec(Cuda, "cuMemAlloc_v2", Arch::X86_64).out_bytes, 8);
        assert_eq!(spec(Cudart, "cudaFree", Arch::X86_64).out_bytes, 0);
    }

    #[test]
    fn structures_behind_a_pointer() {
        let (_, decoder) = lookup(Cuda, "cuLaunchKernelEx_ptsz", Arch::X86_64).unwrap();
        let spec = decoder.spec();
        assert_eq!((spec.in_word, spec.in_offset, spec.in_words), (0, 0, 5));
        let memory = [11 | 12 << 32, 13 | 21 << 32, 22 | 23 << 32, 4096 | GARBAGE, 0x57];
        let launch = decoder.decode(&Args { words: &[0x7fff, 0xf], memory: &memory, out: None });
        assert_eq!((launch.grid, launch.block), (Some([11, 12, 13]), Some([21, 22, 23])));
        assert_eq!((launch.shmem, launch.stream, launch.func), (Some(4096), Some(0x57), Some(0xf)));
        let unread = decoder.decode(&Args { words: &[0x7fff, 0xf], memory: &memory[..4], out: None });
        assert_eq!(unread, Decoded { func: Some(0xf), ..Decoded::default() });

        // With an array on one side, the extent counts elements of unknown size.
        let (_, decoder) = lookup(Cudart, "cudaMemcpy3D", Arch::X86_64).unwrap();
        let mut memory = [0; 16];
        (memory[0], memory[12], memory[13], memory[14], memory[15]) = (0x1000, 300, 7, 5, 1);
        let copy = |memory: &[u64]| decoder.decode(&Args { words: &[0x7fff], memory, out: None });
        assert_eq!((copy(&memory).bytes, copy(&memory).dir), (None, Some(Dir::H2d)));
        memory[8] = 0x2000;
        assert_eq!(copy(&memory).bytes, Some(300 * 7 * 5));

        let (_, decoder) = lookup(Cuda, "cuMemcpy2D_v2", Arch::X86_64).unwrap();
        let mut memory = [0; 16];
        (memory[2], memory[9], memory[14], memory[15]) = (3, 1, 300, 7);
        let copy = |memory: &[u64]| decoder.decode(&Args { words: &[0x7fff], memory, out: None });
        assert_eq!((copy(&memory).bytes, copy(&memory).dir), (Some(2100), Some(Dir::D2h)));
        memory[9] = 4;
        assert_eq!(copy(&memory).dir, None, "unified memory is on no known side");
        // The first version has another layout and is not read.
        assert_eq!(spec_words(Cuda, "cuMemcpy2D"), (0, 0));
    }

    fn spec_words(kind: LibraryKind, name: &str) -> (u8, u8) {
        let spec = spec(kind, name, Arch::X86_64);
        (spec.words, spec.in_words)
    }

    #[test]
    fn only_what_is_needed_is_kept() {
        assert_eq!(spec_words(Cudart, "cudaDeviceSynchronize"), (0, 0));
        assert_eq!(spec_words(Cudart, "cudaStreamSynchronize"), (1, 0));
        let launch = spec(Cudart, "cudaLaunchKernel", Arch::X86_64);
        assert_eq!((launch.words, launch.stack_words), (8, 2));
        let launch = spec(Cudart, "cudaLaunchKernel", Arch::Aarch64);
        assert_eq!((launch.words, launch.stack_words), (8, 0));
        let launch = spec(Cuda, "cuLaunchKernel", Arch::Aarch64);
        assert_eq!((launch.words, launch.stack_words), (9, 1));
    }

    #[test]
    fn the_same_call_on_arm() {
        let words = [1, 2, 3, 4, 5, 6, 7, 4096, 0x57];
        let launch = decode(Cuda, "cuLaunchKernel", Arch::Aarch64, &words);
        assert_eq!((launch.grid, launch.block), (Some([2, 3, 4]), Some([5, 6, 7])));
        assert_eq!((launch.shmem, launch.stream), (Some(4096), Some(0x57)));
        let words = [0, 0, 0, 0, 300, 7, 2, 0x57];
        let copy = decode(Cudart, "cudaMemcpy2DAsync", Arch::Aarch64, &words);
        assert_eq!((copy.bytes, copy.dir, copy.stream), (Some(2100), Some(Dir::D2h), Some(0x57)));
        // Structures above 16 bytes are passed by reference: the stream is the fourth register.
        let words = [0x7fff_0000, 0, 0x7fff_1000, 0x57];
        let set = decode(Cudart, "cudaMemset3DAsync", Arch::Aarch64, &words);
        assert_eq!((set.bytes, set.stream), (None, Some(0x57)));
        // And the rank is in x3, where x86-64 has it in rdx: there the id is on the stack.
        let words = [0x7fff_0000, 0xffff_ffff_0000_0008, 0x7fff_1000, 0xffff_ffff_0000_0003];
        let joins = decode(Nccl, "ncclCommInitRank", Arch::Aarch64, &words);
        assert_eq!((joins.rank, joins.nranks), (Some(3), Some(8)));
        let joins = decode(Nccl, "ncclCommInitRankConfig", Arch::X86_64, &[0x7fff_0000, 8, 5, 0x7fff_2000]);
        assert_eq!((joins.rank, joins.nranks), (Some(5), Some(8)));
        let joins = decode(Nccl, "ncclCommInitRankScalable", Arch::X86_64, &[0x7fff_0000, 8, 5, 2]);
        assert_eq!((joins.rank, joins.nranks), (Some(5), Some(8)));
    }
}
