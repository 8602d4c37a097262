//! From files to a [`Recording`]: one thread reads and splits, one stores, one runs ingero-chain's analysis.
//!
//! ```text
//!   file or join -> reader -> batches of whole lines -+-> store:    tables, totals, slices of time
//!                                                     +-> analysis: ingero_chain::Engine -> Report
//! ```
//!
//! Both consumers read the same bytes; each parses for itself, which on two CPUs is faster than handing over what one
//! of them parsed. Batches wait in short queues, so that a slow consumer slows the reader down and memory stays small.
//!
//! | module     | question it answers                                       |
//! |------------|-----------------------------------------------------------|
//! | `sources`  | which files are one recording, and do they need a join?   |
//! | `feed`     | how do bytes become batches of lines?                     |
//! | `growing`  | is a file that is followed still the same one?            |
//! | `analysis` | what does ingero-chain say of what has come so far?       |

mod analysis;
mod feed;
mod growing;
mod sources;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use ingero_common::text::Log;

pub(crate) use analysis::Analyst;
pub use sources::{Plan, plan};

use crate::recording::Recording;
use crate::store::Inserter;
use feed::{Batch, Feed};

/// Batches that wait for a consumer: about 2 MB.
const QUEUE: usize = 8;

/// How often people are told how far a load is.
const PROGRESS: Duration = Duration::from_secs(2);

/// What has been stored becomes visible at least this often.
const COMMIT: Duration = Duration::from_millis(200);

/// Records between two commits of a load.
const COMMIT_RECORDS: u64 = 100_000;

/// What consumers get.
enum Message {
    /// Some lines.
    Batch(Arc<Batch>),
    /// No more will come; why, where that is not the end of the recording.
    End(Option<String>),
}

/// Starts loading `plan` in the background.
///
/// Errors: an input that can't be opened, no room for the temporary database, no more threads.
pub fn start(plan: Plan, log: &Log) -> anyhow::Result<Arc<Recording>> {
    let feed = Feed::open(&plan, log)?;
    let (to_store, store_queue) = sync_channel(QUEUE);
    let (analyst, analysis_queue) = Analyst::new();
    let recording = Arc::new(Recording::new(plan, analyst)?);

    let to_analysis = recording.analyst.clone();
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(name.into()).spawn(work).with_context(|| format!("starting the {name} thread"))
    };
    spawn("reader", Box::new(move || read(feed, &to_store, &to_analysis)))?;
    spawn("analysis", Box::new(move || analysis::run(analysis_queue)))?;
    let (loaded, log) = (Arc::clone(&recording), log.clone());
    spawn(
        "store",
        Box::new(move || {
            if let Err(error) = store(&loaded, &store_queue, &log) {
                let problem = format!("{error:#}");
                log.warn(format!("{}: {problem}", loaded.name));
                loaded.fail(problem);
            }
        }),
    )?;
    Ok(recording)
}

fn read(mut feed: Feed, to_store: &SyncSender<Message>, to_analysis: &Analyst) {
    let problem = loop {
        match feed.next_batch() {
            Ok(Some(batch)) => {
                let batch = Arc::new(batch);
                // A consumer that is gone has said why.
                if to_store.send(Message::Batch(Arc::clone(&batch))).is_err() {
                    return;
                }
                to_analysis.batch(batch);
            }
            Ok(None) => break None,
            Err(error) => break Some(format!("{error:#}")),
        }
    };
    to_analysis.end();
    let _ = to_store.send(Message::End(problem));
}

/// Stores what comes; at the end, makes the indexes and takes over what the analysis found.
fn store(recording: &Recording, queue: &Receiver<Message>, log: &Log) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut told = began;
    if recording.follows {
        // Readers come while it grows, so they need the indexes from the start.
        recording.store.index()?;
    }
    let problem = loop {
        if let Some(problem) = commit(recording, queue)? {
            break problem;
        }
        if told.elapsed() >= PROGRESS && !recording.follows {
            told = Instant::now();
            log.note(format!("{}: {} records read", recording.name, recording.seen().records));
        }
    };
    if let Some(problem) = &problem {
        log.warn(format!("{}: {problem}; what was read before is served", recording.name));
    }
    if !recording.follows {
        recording.store.index()?;
    }
    recording.finish(problem)?;
    let seconds = began.elapsed().as_secs_f64();
    let (records, bad_lines) = {
        let seen = recording.seen();
        (seen.records, seen.bad_lines)
    };
    log.note(format!(
        "{}: {records} records in {seconds:.1} s ({:.0} a second), {bad_lines} lines that are no records",
        recording.name,
        records as f64 / seconds,
    ));
    Ok(())
}

/// Stores until the next commit is due; at the end of the recording, what stopped it.
fn commit(recording: &Recording, queue: &Receiver<Message>) -> anyhow::Result<Option<Option<String>>> {
    // Nothing is locked while nothing comes.
    let Ok(mut message) = queue.recv() else { return Ok(Some(None)) };
    let mut seen = recording.seen();
    let (began, until) = (Instant::now(), seen.records + COMMIT_RECORDS);
    recording.store.write(|connection| {
        let transaction = connection.transaction()?;
        let mut inserter = Inserter::new(&transaction)?;
        let end = loop {
            match message {
                Message::Batch(batch) => {
                    for line in batch.lines() {
                        match line {
                            Some(line) => inserter.line(line, &mut seen)?,
                            None => seen.bad_lines += 1,
                        }
                    }
                }
                Message::End(problem) => break Some(problem),
            }
            if seen.records >= until || began.elapsed() >= COMMIT {
                break None;
            }
            // A tool that waits for this lock should not wait for a slow input.
            match queue.recv_timeout(Duration::from_millis(20)) {
                Ok(next) => message = next,
                Err(_) => break None,
            }
        };
        drop(inserter);
        transaction.commit()?;
        Ok(end)
    })
}
