//! Bytes to batches of whole lines.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use anyhow::Context;
use ingero_common::exit::is_broken_pipe;
use ingero_common::input::Input;
use ingero_common::ndjson::LineReader;
use ingero_common::text::Log;

use super::growing::Growing;
use super::sources::{Plan, join_options};

/// A batch is handed on when it has this many bytes, or when the next line is not there yet.
const BATCH_BYTES: usize = 256 * 1024;

/// Or this many lines, of which a bad one may have no bytes at all.
const BATCH_LINES: usize = 16 * 1024;

/// Some whole lines.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends; one longer than the limit has no bytes and counts as bad.
    ends: Vec<(u32, bool)>,
}

impl Batch {
    /// The lines; `None` for one that was too long to be a record.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let mut from = 0;
        self.ends.iter().map(move |&(to, too_long)| {
            let line = &self.bytes[from..to as usize];
            from = to as usize;
            (!too_long).then_some(line)
        })
    }
}

/// One recording, batch by batch.
pub(crate) struct Feed {
    lines: LineReader<Box<dyn Read + Send>>,
    name: String,
    /// Of a join: how it ended.
    outcome: Option<Receiver<anyhow::Result<()>>>,
}

impl Feed {
    /// Opens the input, or starts a join of several.
    pub(crate) fn open(plan: &Plan, log: &Log) -> anyhow::Result<Self> {
        let name = plan.files_text();
        let (input, outcome): (Box<dyn Read + Send>, _) = match plan.inputs.as_slice() {
            [only] if !plan.join => {
                let input = only.clone();
                let follow = plan.follow;
                // A FIFO blocks in `open` until somebody writes: the reader waits for that, not the server.
                (Box::new(Late { open: Some(Box::new(move || open(&input, follow))), input: None }), None)
            }
            _ => {
                let (pipe, outcome) = join(plan, log)?;
                (Box::new(pipe), Some(outcome))
            }
        };
        Ok(Self { lines: LineReader::new(input), name, outcome })
    }

    /// The next lines; `None` at the end.
    ///
    /// Errors: reading fails, what compresses the file is damaged, a join fails. What was read before has been handed on.
    pub(crate) fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        let mut batch = Batch { bytes: Vec::with_capacity(BATCH_BYTES + 4096), ends: Vec::with_capacity(2048) };
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    if !line.too_long {
                        batch.bytes.extend_from_slice(line.bytes);
                    }
                    // At most one line of 16 MiB beyond BATCH_BYTES.
                    batch.ends.push((batch.bytes.len() as u32, line.too_long));
                }
                Ok(None) if batch.ends.is_empty() => return self.outcome().map(|()| None),
                Ok(None) => return Ok(Some(batch)),
                // What is in the batch goes first; the next call meets the same error again, or the end.
                Err(error) if batch.ends.is_empty() => {
                    let line = self.lines.line_number() + 1;
                    return Err(error).with_context(|| format!("reading {}, line {line}", self.name));
                }
                Err(_) => return Ok(Some(batch)),
            }
            let full = batch.bytes.len() >= BATCH_BYTES || batch.ends.len() >= BATCH_LINES;
            if full || !self.lines.has_buffered_line() {
                return Ok(Some(batch));
            }
        }
    }

    fn outcome(&mut self) -> anyhow::Result<()> {
        self.outcome.take().and_then(|outcome| outcome.recv().ok()).unwrap_or(Ok(()))
    }
}

fn open(input: &Input, follow: bool) -> anyhow::Result<Box<dyn Read + Send>> {
    let path = PathBuf::from(input.as_os_str());
    if follow && !input.is_stdin() && path.metadata().is_ok_and(|m| m.is_file()) {
        let growing = Growing::open(path, || input.open()).with_context(|| format!("following {}", input.name()))?;
        return Ok(Box::new(growing));
    }
    input.open()
}

type Open = Box<dyn FnOnce() -> anyhow::Result<Box<dyn Read + Send>> + Send>;

/// Opens with the first read.
struct Late {
    open: Option<Open>,
    input: Option<Box<dyn Read + Send>>,
}

impl Read for Late {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(open) = self.open.take() {
            self.input = Some(open().map_err(|error| io::Error::other(format!("{error:#}")))?);
        }
        self.input.as_mut().map_or(Ok(0), |input| input.read(buf))
    }
}

/// Runs ingero-join over the inputs; its output, and how it ended.
fn join(plan: &Plan, log: &Log) -> anyhow::Result<(Pipe, Receiver<anyhow::Result<()>>)> {
    let options = join_options(&plan.inputs)?;
    let sources = plan
        .inputs
        .iter()
        .map(|input| ingero_join::Source::named(input.clone()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let (to_pipe, blocks) = sync_channel(4);
    let (to_outcome, outcome) = sync_channel(1);
    let log = log.clone();
    thread::Builder::new()
        .name("join".into())
        .spawn(move || {
            let out = Blocks { to: to_pipe, block: Vec::with_capacity(BATCH_BYTES) };
            let result = match ingero_join::join(&options, sources, out, &log) {
                Err(error) if !is_broken_pipe(&error) => Err(error),
                // Lines that are no records are in the stream, as `lost` records.
                _ => Ok(()),
            };
            let _ = to_outcome.send(result);
        })
        .context("starting a thread to join the recording")?;
    Ok((Pipe { from: blocks, block: Vec::new(), at: 0 }, outcome))
}

/// The writing end of a pipe inside the process.
struct Blocks {
    to: SyncSender<Vec<u8>>,
    block: Vec<u8>,
}

impl Write for Blocks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.len() + bytes.len() > BATCH_BYTES {
            self.flush()?;
        }
        self.block.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = std::mem::replace(&mut self.block, Vec::with_capacity(BATCH_BYTES));
        self.to.send(block).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl ingero_join::Sink for Blocks {}

impl Drop for Blocks {
    fn drop(&mut self) {
        // The reader may be gone, which is no matter then.
        let _ = self.flush();
    }
}

/// The reading end.
struct Pipe {
    from: Receiver<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl Read for Pipe {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            match self.from.recv() {
                Ok(block) => (self.block, self.at) = (block, 0),
                Err(_) => return Ok(0),
            }
        }
        let n = buf.len().min(self.block.len() - self.at);
        buf[..n].copy_from_slice(&self.block[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gives_back_its_lines() {
        let input: Box<dyn Read + Send> = Box::new(io::Cursor::new(b"{\"a\":1}\n\n{}\nlast".to_vec()));
        let mut feed = Feed { lines: LineReader::new(input), name: "x".into(), outcome: None };
        let batch = feed.next_batch().unwrap().unwrap();
        let lines: Vec<_> = batch.lines().map(|l| l.unwrap().to_vec()).collect();
        // The last line has no end yet, so it comes with the end of the input.
        assert_eq!(lines, [b"{\"a\":1}".to_vec(), b"{}".to_vec()]);
        assert_eq!(feed.next_batch().unwrap().unwrap().lines().count(), 1);
        assert!(feed.next_batch().unwrap().is_none());
    }

    #[test]
    fn a_damaged_file_hands_on_what_came_before() {
        let mut bytes = zstd::encode_all(b"{\"a\":1}\n".repeat(100_000).as_slice(), 1).unwrap();
        bytes.truncate(bytes.len() - 5);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &bytes).unwrap();
        let plan = Plan::of(file.path());
        let mut feed = Feed::open(&plan, &Log::new("t", true, false)).unwrap();
        let mut lines = 0;
        let error = loop {
            match feed.next_batch() {
                Ok(Some(batch)) => lines += batch.lines().count(),
                Ok(None) => panic!("no error after {lines} lines"),
                Err(error) => break format!("{error:#}"),
            }
        };
        assert!(lines > 0 && error.contains("line"), "{lines} {error}");
    }
}
