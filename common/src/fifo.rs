//! A FIFO as output: the kernel lets nobody write into it before somebody has it open for reading.
//!
//! An ordinary `open(2)` sleeps until then, and a signal whose handler only sets a flag does not end that sleep. So the
//! FIFO is tried without waiting (`O_NONBLOCK`, which fails with `ENXIO` as long as there is no reader), again and again,
//! and between two tries the wait is for a signal:
//!
//! ```text
//! t=0 ms    open: ENXIO                 poll the signals' descriptor for 20 ms
//! t=20 ms   open: ENXIO                 ...
//! t=250 ms  open: ENXIO                 say whom we wait for, once
//! t=1.3 s   somebody: cat FIFO          (sleeps in its own open until there is a writer)
//! t=1.3 s   open: a descriptor          writes on it wait again, as those into any pipe
//! ```

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::output::Place;
use crate::signal::Stop;
use crate::text::{Log, Nanos, Printable};

/// Between two tries.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// A reader that comes up beside us needs no word about it.
const SILENT: Duration = Duration::from_millis(250);

/// What ends the wait for a reader that does not come.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    /// Ctrl-C.
    pub stop: &'a Stop,
    /// The longest wait: what the user allowed for the whole of it (`--duration`).
    pub limit: Option<Duration>,
    /// Where it is said that we wait.
    pub log: &'a Log,
}

/// Opens the FIFO at `place` for writing as soon as it has a reader; `None` when a stop was asked for before that. `path` is
/// what people call it, `refused` makes the message for an error of `open(2)`.
pub(crate) fn open_for_writing(
    place: &Place,
    path: &Path,
    mode: Mode,
    patience: &Patience<'_>,
    refused: impl Fn(&io::Error) -> anyhow::Error,
) -> anyhow::Result<Option<File>> {
    let (began, mut said) = (Instant::now(), false);
    let name = Printable(path.as_os_str().as_encoded_bytes());
    loop {
        match place.create(mode) {
            Ok(fifo) => return Ok(Some(fifo)),
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NXIO | Errno::INTR)) => {}
            Err(error) => return Err(refused(&error)),
        }
        let waited = began.elapsed();
        if let Some(limit) = patience.limit.filter(|limit| waited >= *limit) {
            let limit = Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
            bail!(
                "nobody has opened the FIFO {name} for reading in {limit}, so nothing was written; start its reader first, \
                 for instance: cat {name}"
            );
        }
        if waited >= SILENT && !std::mem::replace(&mut said, true) {
            patience.log.note(format!("waiting for somebody to read the FIFO {name}; nothing is done before that"));
        }
        let fd = patience.stop.fd();
        // Whatever ends it, a signal or the time, is looked for next.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&RETRY));
        if patience.stop.requested() {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::output::Output;

    fn fifo() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        (dir, path)
    }

    /// A stop that no signal of this process asks for.
    fn stop() -> Stop {
        Stop::on(&[]).unwrap()
    }

    fn quiet() -> Log {
        Log::new("test", true, false)
    }

    #[test]
    fn a_reader_that_comes_late_gets_everything() {
        let (_dir, path) = fifo();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || {
                std::thread::sleep(Duration::from_millis(60));
                let mut all = Vec::new();
                File::open(path).unwrap().read_to_end(&mut all).unwrap();
                all.len()
            }
        });
        let (stop, log) = (stop(), quiet());
        let patience = Patience { stop: &stop, limit: None, log: &log };
        let mut output = Output::open(Some(&path), &patience).unwrap().unwrap();
        // More than a pipe holds: writing waits for the reader instead of failing.
        std::io::Write::write_all(&mut output, &vec![b'x'; 1 << 20]).unwrap();
        drop(output);
        assert_eq!(reader.join().unwrap(), 1 << 20);
    }

    #[test]
    fn nobody_waits_longer_than_was_allowed() {
        let (_dir, path) = fifo();
        let (stop, log) = (stop(), quiet());
        let patience = Patience { stop: &stop, limit: Some(Duration::from_millis(30)), log: &log };
        let error = Output::open(Some(&path), &patience).unwrap_err().to_string();
        assert!(error.contains("30.0 ms") && error.contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_stop_ends_the_wait() {
        let (_dir, path) = fifo();
        let (stop, log) = (stop(), quiet());
        let asking = std::thread::spawn({
            let stop = stop.clone();
            move || {
                std::thread::sleep(Duration::from_millis(30));
                stop.request();
            }
        });
        let patience = Patience { stop: &stop, limit: None, log: &log };
        assert!(Output::open(Some(&path), &patience).unwrap().is_none());
        asking.join().unwrap();
    }
}
