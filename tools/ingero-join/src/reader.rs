//! One thread for each input: opens it, splits it into lines, looks at each, hands them on in batches.
//!
//! A FIFO blocks its reader in `open` until somebody opens the other end; nobody else waits for that.

use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use ingero_common::ndjson::LineReader;

use crate::db;
use crate::item::Batch;
use crate::queue::Hub;
use crate::sources::Source;

/// Starts reading `source` as number `lane`.
pub(crate) fn spawn(hub: &Arc<Hub>, lane: usize, source: Source) -> anyhow::Result<()> {
    let name = source.input.name();
    let hub = Arc::clone(hub);
    // Never joined: one that waits in `open` or `read` ends with the process.
    thread::Builder::new()
        .name(format!("input {lane}"))
        .spawn(move || {
            let result = read(&hub, lane, &source);
            hub.end(lane, result.err());
        })
        .with_context(|| format!("starting a thread to read {name}"))?;
    Ok(())
}

fn read(hub: &Hub, lane: usize, source: &Source) -> anyhow::Result<()> {
    let input = &source.input;
    let path = Path::new(input.as_os_str());
    if source.patient && !input.is_stdin() && db::is_database(path) {
        return db::read(path, |batch| hub.put(lane, batch));
    }
    let mut lines = LineReader::new(input.open()?);
    let mut batch = Box::new(Batch::default());
    loop {
        match lines.next_line() {
            Ok(Some(line)) => batch.push(line),
            Ok(None) => break,
            Err(error) => {
                hub.put(lane, batch);
                let line = lines.line_number() + 1;
                return Err(error).with_context(|| format!("reading {}, line {line}", input.name()));
            }
        }
        // Nobody waits for a batch to fill while the next line is not there yet.
        if batch.is_full() || !lines.has_buffered_line() {
            let next = Batch::like(batch.items.len());
            hub.put(lane, std::mem::replace(&mut batch, next));
        }
    }
    if !batch.items.is_empty() {
        hub.put(lane, batch);
    }
    Ok(())
}
