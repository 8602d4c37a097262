//! Structures that a call receives by pointer and that hold what its parameters otherwise would.
//!
//! For each: which stretch is read at the entry (as words of 8 bytes), and what is in it. At most 16 words fit.

use super::args::{Decoded, dir_of_kind, dir_of_memory_types};

/// A structure read at the entry of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// `cudaLaunchConfig_t`: two `dim3`, `size_t` shared memory, stream.
    RuntimeLaunch,
    /// `CUlaunchConfig`: six dimensions, `unsigned int` shared memory, padding, stream.
    DriverLaunch,
    /// `cudaMemcpy3DParms`, read from its source pointer (byte 32) to its end.
    RuntimeCopy3d,
    /// `CUDA_MEMCPY2D_v2`, the whole of it.
    DriverCopy2d,
    /// `CUDA_MEMCPY3D_v2` or `CUDA_MEMCPY3D_PEER_v1`, read from its extent (byte 176) to its end.
    DriverCopy3d,
}

impl Memory {
    /// First byte and number of words read.
    pub(super) fn stretch(self) -> (u16, u8) {
        match self {
            Self::RuntimeLaunch | Self::DriverLaunch => (0, 5),
            Self::RuntimeCopy3d => (32, 16),
            Self::DriverCopy2d => (0, 16),
            Self::DriverCopy3d => (176, 3),
        }
    }

    /// Puts what the words say into `out`; nothing unless all were read.
    pub(super) fn decode(self, words: &[u64], out: &mut Decoded) {
        let Some(words) = words.get(..usize::from(self.stretch().1)) else { return };
        match self {
            Self::RuntimeLaunch | Self::DriverLaunch => {
                out.grid = Some([low(words[0]), high(words[0]), low(words[1])]);
                out.block = Some([high(words[1]), low(words[2]), high(words[2])]);
                let shmem = if self == Self::RuntimeLaunch { words[3] } else { low(words[3]).into() };
                out.shmem = Some(shmem);
                out.stream = Some(words[4]);
            }
            Self::RuntimeCopy3d => {
                // 32 srcPtr{ptr, pitch, xsize, ysize}, 64 dstArray, 72 dstPos, 96 dstPtr{…}, 128 extent, 152 kind.
                let (source, destination) = (words[0], words[8]);
                // With an array on either side the extent counts its elements, whose size is not here.
                if source != 0 && destination != 0 {
                    out.bytes = product(&words[12..15]);
                }
                out.dir = dir_of_kind(low(words[15]));
            }
            Self::DriverCopy2d => {
                // 16 srcMemoryType, 72 dstMemoryType, 112 WidthInBytes, 120 Height.
                out.bytes = product(&words[14..16]);
                out.dir = dir_of_memory_types(low(words[2]), low(words[9]));
            }
            // WidthInBytes, Height, Depth.
            Self::DriverCopy3d => out.bytes = product(words),
        }
    }
}

/// The product; `None` where it does not fit, as nothing real is that large.
pub(super) fn product(factors: &[u64]) -> Option<u64> {
    factors.iter().try_fold(1_u64, |bytes, &factor| bytes.checked_mul(factor))
}

/// The lower half of a word: the first of two 32-bit values on these little-endian machines.
pub(super) fn low(word: u64) -> u32 {
    (word & 0xffff_ffff) as u32
}

pub(super) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}
