//! Where records go: stdout or a file, buffered in blocks, flushed when idle and at least every 100 ms.
//!
//! A file is opened as whoever called sudo ([`Invoker`]), if anybody did: it is theirs, and can only be where they may write.
//! `place.rs` has what is not written to at all.

mod place;

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;

use crate::fifo::{self, Patience};
use crate::invoker::Invoker;

pub(crate) use place::Place;
use place::printable;

/// A record must be visible downstream within this time.
pub const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

const BUFFER_BYTES: usize = 256 * 1024;

/// Names of what is open already. What sudo passed on to us need not be a file that the user may open.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// A block-buffered sink that knows when it was flushed last.
#[derive(Debug)]
pub struct Output {
    file: File,
    buffer: Vec<u8>,
    flushed: Instant,
    terminal: bool,
    /// A pipe or a socket.
    live: bool,
    path: Option<PathBuf>,
}

impl Output {
    /// Opens `path`, or stdout for `None` and `-`. A FIFO is waited for as long as `patience` lasts; `None` when a stop was
    /// asked for meanwhile.
    ///
    /// # Errors
    /// What keeps the file from being made, and a FIFO that nobody came to read.
    pub fn open(path: Option<&Path>, patience: &Patience<'_>) -> anyhow::Result<Option<Self>> {
        Self::made_with(Mode::from_raw_mode(0o666), path, patience)
    }

    /// The same for what a tracer has seen of everybody: a file that is made is its owner's alone to read.
    ///
    /// # Errors
    /// Those of [`Output::open`].
    pub fn recording(path: Option<&Path>, patience: &Patience<'_>) -> anyhow::Result<Option<Self>> {
        Self::made_with(Mode::RUSR | Mode::WUSR, path, patience)
    }

    fn made_with(mode: Mode, path: Option<&Path>, patience: &Patience<'_>) -> anyhow::Result<Option<Self>> {
        let path = path.filter(|path| !STDOUT.iter().any(|stdout| *path == Path::new(stdout)));
        let file = match path {
            Some(path) => {
                let invoker = Invoker::of_this_process();
                let make = || make(path, mode, patience, invoker);
                match invoker.map_or_else(|| Ok(make()), |invoker| invoker.with_their_files(make)) {
                    Ok(made) => made?,
                    Err(error) => return Err(error).context("accessing files as the user who called sudo"),
                }
            }
            // A duplicate of descriptor 1 instead of `io::stdout()`, whose line buffering splits our blocks.
            None => Some(File::from(rustix::stdio::stdout().try_clone_to_owned().context("opening stdout")?)),
        };
        let Some(file) = file else { return Ok(None) };
        let terminal = file.is_terminal();
        let kind = file.metadata().context("looking at the output")?.file_type();
        let live = kind.is_fifo() || kind.is_socket();
        Ok(Some(Self {
            file,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            flushed: Instant::now(),
            terminal,
            live,
            path: path.map(Path::to_path_buf),
        }))
    }

    /// Opens `path` like [`Output::open`], unless it is one of the files in `inputs`, which opening would empty.
    ///
    /// # Errors
    /// Those of [`Output::open`], and that it is an input.
    pub fn beside<I: AsRef<Path>>(
        path: Option<&Path>,
        inputs: impl IntoIterator<Item = I>,
        patience: &Patience<'_>,
    ) -> anyhow::Result<Option<Self>> {
        let identity = |path: &Path| std::fs::metadata(path).ok().filter(|m| m.is_file()).map(|m| (m.dev(), m.ino()));
        if let Some(path) = path.filter(|p| *p != Path::new("-"))
            && let Some(target) = identity(path)
            && inputs.into_iter().any(|input| identity(input.as_ref()) == Some(target))
        {
            let name = printable(path);
            bail!("cannot write to {name}: it is an input, and would be emptied before it is read; name another file");
        }
        Self::open(path, patience)
    }

    /// Whether people look at it directly.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether somebody may wait at the other end of it.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// How many columns the terminal has; `None` where it is none.
    pub fn columns(&self) -> Option<usize> {
        rustix::termios::tcgetwinsize(&self.file)
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|&columns| columns > 0)
    }

    /// Whether people want colours there: at a terminal that has them, unless `NO_COLOR` is set (or `CLICOLOR_FORCE`).
    pub fn wants_colour(&self) -> bool {
        anstream::AutoStream::choice(&self.file) != anstream::ColorChoice::Never
    }

    /// Flushes when the last flush is `FLUSH_INTERVAL` ago. Call it at least that often.
    pub fn flush_if_due(&mut self) -> io::Result<()> {
        if self.flushed.elapsed() >= FLUSH_INTERVAL { self.flush() } else { Ok(()) }
    }

    /// Whether the reader of a pipe has gone away: a tracer with nothing to write learns it only so.
    pub fn reader_gone(&self) -> bool {
        let fd = self.file.as_fd();
        let mut fds = [PollFd::new(&fd, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(poll(&mut fds, Some(&now)), Ok(1..)) && fds[0].revents().contains(PollFlags::ERR)
    }

    fn write_out(&mut self) -> io::Result<()> {
        let result = self.file.write_all(&self.buffer).map_err(|error| self.name_error(error));
        self.buffer.clear();
        self.flushed = Instant::now();
        result
    }

    /// A full disk should say on which file.
    fn name_error(&self, error: io::Error) -> io::Error {
        let name = self.path.as_deref().map_or("stdout".into(), Path::to_string_lossy);
        match error.kind() {
            io::ErrorKind::BrokenPipe => error,
            kind => io::Error::new(kind, format!("writing {name}: {error}")),
        }
    }
}

/// Makes or empties the file at `path`. This thread accesses files as `invoker`, if there is one.
fn make(path: &Path, mode: Mode, patience: &Patience<'_>, invoker: Option<Invoker>) -> anyhow::Result<Option<File>> {
    let refused = |error: &io::Error| cannot_create(path, error, invoker);
    let user = invoker.map_or_else(|| rustix::process::geteuid().as_raw(), Invoker::uid);
    let place = Place::find(path, user).map_err(|error| refused(&error))?;
    if place.is_fifo() {
        return fifo::open_for_writing(&place, path, mode, patience, refused);
    }
    place.create(mode).map(Some).map_err(|error| refused(&error))
}

/// What keeps a file from being made, and what to do about it.
fn cannot_create(path: &Path, error: &io::Error, invoker: Option<Invoker>) -> anyhow::Error {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = printable(directory);
    let cure = match (error.kind(), invoker) {
        (io::ErrorKind::NotFound, _) => format!("make the directory {directory} first"),
        (io::ErrorKind::PermissionDenied, None) => {
            format!("name one in a directory that you may write to, not {directory}")
        }
        (io::ErrorKind::PermissionDenied, Some(invoker)) => format!(
            "below sudo it is written as whoever called sudo (user id {}): name one in a directory that they may write \
             to, or call it from root's own shell",
            invoker.uid()
        ),
        (io::ErrorKind::IsADirectory, _) => "name a file in it".to_owned(),
        (io::ErrorKind::StorageFull, _) => "free some space, or name a file elsewhere".to_owned(),
        _ => "name another file".to_owned(),
    };
    anyhow!("cannot write to {}: {error}; {cure}", printable(path))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.write_out()?;
        }
        // A line longer than the buffer makes it grow for once; lines are capped by their writers.
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.flushed = Instant::now();
            return Ok(());
        }
        self.write_out()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // An error here has no one to go to; whoever cares flushed before.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::Stop;
    use crate::text::Log;

    fn over(file: impl Into<std::os::fd::OwnedFd>) -> Output {
        Output {
            file: File::from(file.into()),
            buffer: Vec::new(),
            flushed: Instant::now(),
            terminal: false,
            live: false,
            path: None,
        }
    }

    fn open(path: &Path) -> anyhow::Result<Output> {
        let (stop, log) = (Stop::on(&[]).unwrap(), Log::new("test", true, false));
        let patience = Patience { stop: &stop, limit: None, log: &log };
        Output::open(Some(path), &patience).map(Option::unwrap)
    }

    #[test]
    fn a_file_that_cannot_be_made_has_a_cure() {
        for (path, cure) in [("/nodir/x.ndjson", "make the directory /nodir"), ("/", "name a file in it")] {
            let error = open(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(cure), "{error}");
        }
    }

    #[test]
    fn a_closed_reader_is_noticed_without_writing() {
        let (reader, writer) = io::pipe().unwrap();
        let output = over(writer);
        assert!(!output.reader_gone());
        drop(reader);
        assert!(output.reader_gone());
    }

    #[test]
    fn blocks_keep_their_order_and_length() {
        let file = tempfile_like();
        let mut output = open(&file).unwrap();
        let line = vec![b'x'; 100_000];
        for _ in 0..7 {
            output.write_all(&line).unwrap();
        }
        output.write_all(b"end").unwrap();
        drop(output);
        let read = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(read.len(), 700_003);
        assert!(read.ends_with(b"xend"));
    }

    fn tempfile_like() -> PathBuf {
        std::env::temp_dir().join(format!("ingero-output-{}", std::process::id()))
    }
}
