//! ingero-chain's analysis, fed while the recording is read, and its report whenever somebody asks.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

use ingero_chain::model::Report;
use ingero_chain::{Engine, Wanted};
use ingero_common::record::{Parsed, parse};

use super::feed::Batch;

/// What the analysis is told.
pub(crate) enum Task {
    /// Some lines.
    Batch(Arc<Batch>),
    /// No more will come.
    End,
    /// Say what has been found so far.
    Report(Sender<Arc<Report>>),
}

/// The way to the analysis. Clones lead to the same one.
#[derive(Clone, Debug)]
pub(crate) struct Analyst {
    tasks: SyncSender<Task>,
}

impl Analyst {
    /// The way, and where tasks arrive.
    pub(crate) fn new() -> (Self, Receiver<Task>) {
        let (tasks, queue) = sync_channel(super::QUEUE);
        (Self { tasks }, queue)
    }

    pub(super) fn batch(&self, batch: Arc<Batch>) {
        // It lives as long as somebody can send; without it, there would be no report, which is told there.
        let _ = self.tasks.send(Task::Batch(batch));
    }

    pub(super) fn end(&self) {
        let _ = self.tasks.send(Task::End);
    }

    /// What has been found so far; `None` when that takes longer than `limit`.
    pub(crate) fn report(&self, limit: Duration) -> Option<Arc<Report>> {
        let (to, from) = channel();
        let mut task = Task::Report(to);
        let deadline = std::time::Instant::now() + limit;
        loop {
            match self.tasks.try_send(task) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return None,
                Err(TrySendError::Full(back)) => task = back,
            }
            if std::time::Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        from.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())).ok()
    }
}

/// Analyses until nobody can ask any more.
pub(super) fn run(queue: Receiver<Task>) {
    let mut engine = Engine::default();
    let mut ended = false;
    // The last report, until something comes that may change it.
    let mut last: Option<Arc<Report>> = None;
    for task in queue {
        match task {
            Task::Batch(batch) => {
                last = None;
                for line in batch.lines() {
                    match line.map(|bytes| (bytes, parse(bytes))) {
                        Some((bytes, Parsed::Record(record))) => engine.record(&record, bytes),
                        Some((_, Parsed::Unknown)) => engine.unknown_record(),
                        Some((_, Parsed::Bad(_))) | None => engine.bad_line(),
                    }
                }
            }
            Task::End => {
                last = None;
                engine.end();
                ended = true;
            }
            Task::Report(to) => {
                let report = last.get_or_insert_with(|| {
                    if !ended {
                        // Settles what is old enough to be judged; the report with all occurrences follows.
                        engine.report_so_far();
                    }
                    Arc::new(engine.report(Wanted { details: true, so_far: !ended }))
                });
                // Whoever asked may have given up.
                let _ = to.send(Arc::clone(report));
            }
        }
    }
}
