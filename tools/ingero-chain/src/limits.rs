//! Every threshold of the analysis, once: its value, the reason for it, and the test that fails without it.
//!
//! A threshold of the *definitions* (how long is silence) is a matter of judgement, a *bound* keeps memory or time in check
//! and changes no sum.

// What is lost.

/// Time between calls in which the GPU may have had work is silence from here on. A host that keeps its GPU fed makes its
/// calls some microseconds apart, and what it has enqueued ahead of the GPU is rarely more than a millisecond's work for each
/// pause of that length. It is a constant, so that no verdict depends on how many calls a step has.
pub(crate) const SILENCE_NS: u64 = 1_000_000;
/// A counter of the GPU's use that is at least this high over a whole silence says that the GPU had work. Its readings agree
/// with CUPTI's within 5 points (docs/gpu.md).
pub(crate) const GPU_BUSY_PCT: f64 = 95.0;
/// An asynchronous copy from or to the host takes some microseconds to enqueue. A call that lasts so long has copied.
pub(crate) const BLOCKING_COPY_NS: u64 = 100_000;
/// The slowest that a copy between pageable memory and the GPU usually is, in bytes for each microsecond (4 GB/s): what a
/// blocking copy takes beyond that, with work outstanding when it began, was waiting for that work.
pub(crate) const COPY_BYTES_PER_US: u64 = 4_000;
/// A synchronise that returns so soon did not have to wait: on an H200 one without anything to wait for takes about 10 us.
pub(crate) const SHORT_WAIT_NS: u64 = 50_000;

// Bounds.

/// Pieces of the recent past of a process that are kept one by one.
pub(crate) const MAX_FINE: usize = 8_192;
/// Older ones: runs of pieces, and pieces in which time was lost.
pub(crate) const MAX_PIECES: usize = 65_536;
/// Calls in one run.
pub(crate) const MAX_RUN: u32 = 256;
/// Calls remembered of one idle interval: of more, the time counts as that of the thread's own code.
pub(crate) const MAX_CALLS_IN_IDLE: usize = 256;
/// Lost intervals that wait for the next work, which gives them their name.
pub(crate) const MAX_UNNAMED: usize = 4_096;
/// What is kept of the first minutes of a process until it is known when its loop began.
pub(crate) const MAX_EARLY: usize = 65_536;
/// The longest occurrences of a finding that are kept one by one, and the latest.
pub(crate) const MAX_LONGEST: usize = 256;
/// See [`MAX_LONGEST`].
pub(crate) const MAX_LATEST: usize = 256;
/// Slices of the recording in which lost time is summed up for each finding.
pub(crate) const MAX_SLICES: usize = 100;
/// Kinds of calls before which the lost time of one process is told apart.
pub(crate) const MAX_KINDS: usize = 512;
