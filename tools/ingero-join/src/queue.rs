//! Bounded queues between the readers' threads and the merge, which waits on all of them at once.
//!
//! One mutex serves all inputs: what goes through it is batches of many lines, a few thousand a second.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::item::Batch;

/// A reader waits while this many bytes of its input lie unread.
const LANE_BYTES: usize = 2 * 1024 * 1024;

/// What an input's queue has.
#[derive(Debug)]
pub(crate) enum Taken {
    Batch(Box<Batch>),
    /// Nothing at the moment.
    Empty,
    /// The input ended; why, where it was not its own end.
    Ended(Option<anyhow::Error>),
}

/// All queues.
#[derive(Debug)]
pub(crate) struct Hub {
    lanes: Mutex<Vec<Lane>>,
    /// Something was put into a queue, or an input ended.
    filled: Condvar,
    /// Something was taken.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct Lane {
    batches: VecDeque<Box<Batch>>,
    bytes: usize,
    ended: bool,
    error: Option<anyhow::Error>,
    /// Since when it is known to be empty.
    silent_since: Option<Instant>,
}

impl Hub {
    pub(crate) fn new(lanes: usize) -> Self {
        Self {
            lanes: Mutex::new((0..lanes).map(|_| Lane::default()).collect()),
            filled: Condvar::new(),
            taken: Condvar::new(),
        }
    }

    /// Nothing that holds the lock can panic half way through a change.
    fn lock(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reader's side: hands a batch over, waiting for room.
    pub(crate) fn put(&self, lane: usize, batch: Box<Batch>) {
        let mut lanes = self.lock();
        while lanes[lane].bytes >= LANE_BYTES {
            lanes = self.taken.wait(lanes).unwrap_or_else(PoisonError::into_inner);
        }
        lanes[lane].bytes += batch.cost_bytes();
        lanes[lane].batches.push_back(batch);
        lanes[lane].silent_since = None;
        self.filled.notify_one();
    }

    /// Reader's side: no more comes.
    pub(crate) fn end(&self, lane: usize, error: Option<anyhow::Error>) {
        let mut lanes = self.lock();
        lanes[lane].ended = true;
        lanes[lane].error = error;
        self.filled.notify_one();
    }

    /// The next batch of one input.
    pub(crate) fn take(&self, lane: usize) -> Taken {
        let mut lanes = self.lock();
        let lane = &mut lanes[lane];
        match lane.batches.pop_front() {
            Some(batch) => {
                lane.bytes -= batch.cost_bytes();
                self.taken.notify_all();
                Taken::Batch(batch)
            }
            None if lane.ended => Taken::Ended(lane.error.take()),
            None => {
                // Silence counts from the moment it is noticed, not from the last arrival: a merge that
                // was held up by a slow reader downstream has not been waiting.
                lane.silent_since.get_or_insert_with(Instant::now);
                Taken::Empty
            }
        }
    }

    /// Whether an input has something to take (its end included).
    pub(crate) fn has_any(&self, lane: usize) -> bool {
        let lanes = self.lock();
        !lanes[lane].batches.is_empty() || lanes[lane].ended
    }

    /// For how long each input has had nothing.
    pub(crate) fn silences(&self) -> Vec<Duration> {
        let mut lanes = self.lock();
        let now = Instant::now();
        let silence = |lane: &mut Lane| {
            if !lane.batches.is_empty() || lane.ended {
                return Duration::ZERO;
            }
            now - *lane.silent_since.get_or_insert(now)
        };
        lanes.iter_mut().map(silence).collect()
    }

    /// Waits until one of `wanted` has something to take, at most for `limit`.
    pub(crate) fn wait(&self, wanted: &[usize], limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut lanes = self.lock();
        loop {
            if wanted.iter().any(|&lane| !lanes[lane].batches.is_empty() || lanes[lane].ended) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            lanes = self.filled.wait_timeout(lanes, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
