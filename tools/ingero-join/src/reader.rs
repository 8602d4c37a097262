//! One thread for each input: opens it, splits it into lines, looks at each, hands them on in batches.
//!
//! A FIFO blocks its reader in `open` until somebody opens the other end; nobody else waits for that.

use std::sync::Arc;
use std::thread;

use anyhow::Context;
use ingero_common::input::Input;
use ingero_common::ndjson::LineReader;

use crate::item::Batch;
use crate::queue::Hub;

/// A batch goes out when it has this many bytes, or when the next line is not there yet.
const BATCH_BYTES: usize = 64 * 1024;

/// Starts reading `input` as number `lane`.
pub(crate) fn spawn(hub: &Arc<Hub>, lane: usize, input: Input) -> anyhow::Result<()> {
    let name = input.name();
    let hub = Arc::clone(hub);
    // Never joined: one that waits in `open` or `read` ends with the process.
    thread::Builder::new()
        .name(format!("input {lane}"))
        .spawn(move || {
            let result = read(&hub, lane, &input);
            hub.end(lane, result.err());
        })
        .with_context(|| format!("starting a thread to read {name}"))?;
    Ok(())
}

fn read(hub: &Hub, lane: usize, input: &Input) -> anyhow::Result<()> {
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
        if batch.bytes.len() >= BATCH_BYTES || !lines.has_buffered_line() {
            let capacity = batch.bytes.capacity().min(2 * BATCH_BYTES);
            hub.put(lane, batch);
            batch = Box::new(Batch { bytes: Vec::with_capacity(capacity), items: Vec::new() });
        }
    }
    if !batch.items.is_empty() {
        hub.put(lane, batch);
    }
    Ok(())
}
