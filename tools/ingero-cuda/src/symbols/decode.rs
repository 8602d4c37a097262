//! From a symbol's signature to a decoder, made once for each attached symbol.

use ingero_common::discover::insn::Arch;

use super::abi::{Place, places, register_words};
use super::args::{Args, Decoded, Dir};
use super::memory::{Memory, high, low};
use super::op::{Op, Param};

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
    /// A decoder for `op` in its version `version` (`""` or `"_v2"`…) on machine `arch`.
    pub(super) fn new(op: &Op, version: &str, arch: Arch) -> Self {
        let mut fields = Vec::new();
        let mut memory = None;
        let mut spec = Spec::default();
        for (param, place) in places(arch, op.params(version)) {
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
        Self { fields: fields.into(), memory, dir: op.dir, has_size, spec }
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
                Field::Kind => out.dir = word.and_then(|kind| Dir::from_kind(low(kind))),
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
