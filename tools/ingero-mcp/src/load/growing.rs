//! A file that is still being written: read on at its end, and notice when it is not that file any more.
//!
//! A stream that was truncated, replaced or deleted is another one from there on: other clocks, other processes, another
//! count of what was lost. It is not mixed into the tables of the first. Reading ends with an error that says what
//! happened, and everybody who asks is told that the recording ends before its end.
//!
//! ```text
//!   once the end was reached, before more is read        then
//!   the path has the file, not shorter, the same head    read on; nothing there: look again in 100 ms
//!   the file is shorter than it was                      the end: records may be gone unread
//!   its first bytes are others                           the end: it was written anew
//!   the path has another file, or none                   the rest of the old file, then the end
//! ```

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How often the end is looked at.
const POLL: Duration = Duration::from_millis(100);

/// First bytes that are compared: a stream begins with its start record, which has its time.
const HEAD_BYTES: u64 = 512;

/// The end of each message: what that means, and what to do.
const ADVICE: &str = "is not read on; start the server anew to read what is written now";

/// The bytes of a file that grows, until it is not that file any more.
pub(super) struct Growing {
    input: Box<dyn Read + Send>,
    watch: Watch,
    /// The last read found nothing more.
    at_end: bool,
    /// Why it has ended; each further read says so again.
    ended: Option<String>,
}

impl Growing {
    /// What `open` makes of the file at `path`.
    ///
    /// Errors: `open` fails, or there is nothing at `path`.
    pub(super) fn open(
        path: PathBuf,
        open: impl FnOnce() -> anyhow::Result<Box<dyn Read + Send>>,
    ) -> anyhow::Result<Self> {
        // Looked at first: a file that is put there meanwhile is taken for another one, never for the same.
        let watch = Watch::new(path)?;
        Ok(Self { input: open()?, watch, at_end: false, ended: None })
    }
}

impl Read for Growing {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(why) = &self.ended {
                return Err(io::Error::other(why.clone()));
            }
            // Before what was written since the end is read, it must be known to belong to the same stream.
            let state = if self.at_end { self.watch.look() } else { State::Same };
            if let State::Changed(how) = state {
                self.ended = Some(format!("{how}, and {ADVICE}"));
                continue;
            }
            match self.input.read(buf) {
                Ok(0) if !buf.is_empty() => {}
                result => {
                    self.at_end = false;
                    return result;
                }
            }
            if let State::Gone(how) = state {
                self.ended = Some(format!("{how}, and {ADVICE}"));
                continue;
            }
            self.at_end = true;
            thread::sleep(POLL);
        }
    }
}

/// What has become of a file.
enum State {
    /// It is there, and may have grown.
    Same,
    /// What was in it is not there any more.
    Changed(String),
    /// It is at its path no more, but can be read.
    Gone(String),
}

/// A file at a path.
struct Watch {
    path: PathBuf,
    last: Metadata,
    head: Vec<u8>,
}

impl Watch {
    fn new(path: PathBuf) -> io::Result<Self> {
        let last = std::fs::metadata(&path)?;
        let head = head(&path)?;
        Ok(Self { path, last, head })
    }

    fn look(&mut self) -> State {
        let now = match std::fs::metadata(&self.path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return State::Gone("the file was deleted or renamed while it was followed".into());
            }
            Err(error) => {
                return State::Gone(format!("the file that is followed can't be looked at any more ({error})"));
            }
        };
        if (now.dev(), now.ino()) != (self.last.dev(), self.last.ino()) {
            return State::Gone("the file was replaced by another one while it was followed".into());
        }
        if now.len() < self.last.len() {
            let (was, is) = (self.last.len(), now.len());
            return State::Changed(format!("the file was truncated from {was} to {is} bytes while it was followed"));
        }
        let written = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec());
        if written(&now) != written(&self.last) {
            self.last = now;
            // One that can't be read now is looked at again with the next change.
            if let Ok(head) = head(&self.path) {
                if !head.starts_with(&self.head) {
                    return State::Changed("the file was written anew while it was followed".into());
                }
                self.head = head;
            }
        }
        State::Same
    }
}

/// The first bytes, as far as they are there.
fn head(path: &std::path::Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file with some bytes, which have been read.
    fn followed(dir: &std::path::Path) -> (PathBuf, Growing) {
        let path = dir.join("stream");
        std::fs::write(&path, "first\nsecond\n").unwrap();
        let mut growing = Growing::open(path.clone(), || Ok(Box::new(File::open(&path)?))).unwrap();
        assert_eq!(next(&mut growing).unwrap(), "first\nsecond\n");
        (path, growing)
    }

    fn next(growing: &mut Growing) -> io::Result<String> {
        let mut buf = [0; 100];
        let n = growing.read(&mut buf)?;
        Ok(String::from_utf8_lossy(&buf[..n]).into_owned())
    }

    /// It has ended, for this reason and for good.
    fn ends(growing: &mut Growing, says: &str) {
        for _ in 0..2 {
            let error = next(growing).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains(ADVICE), "{error}");
        }
    }

    #[test]
    fn what_is_appended_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut growing) = followed(dir.path());
        let later = thread::spawn(move || {
            thread::sleep(2 * POLL);
            File::options().append(true).open(path).unwrap().write_all(b"third\n").unwrap();
        });
        assert_eq!(next(&mut growing).unwrap(), "third\n");
        later.join().unwrap();
    }

    #[test]
    fn a_truncated_file_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut growing) = followed(dir.path());
        File::options().write(true).open(&path).unwrap().set_len(6).unwrap();
        ends(&mut growing, "truncated from 13 to 6 bytes");
        // What comes later is not of the stream that was read.
        File::options().append(true).open(&path).unwrap().write_all(b"something longer than before\n").unwrap();
        ends(&mut growing, "truncated");
    }

    #[test]
    fn a_file_that_is_written_anew_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut growing) = followed(dir.path());
        // As long as before, in the same file.
        std::fs::write(&path, "other\nsecond\n").unwrap();
        ends(&mut growing, "written anew");
    }

    #[test]
    fn a_replaced_file_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut growing) = followed(dir.path());
        let mut writer = File::options().append(true).open(&path).unwrap();
        std::fs::write(dir.path().join("new"), "first\nsecond\nof another\n").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        writer.write_all(b"last\n").unwrap();
        assert_eq!(next(&mut growing).unwrap(), "last\n");
        ends(&mut growing, "replaced by another one");
    }

    #[test]
    fn a_deleted_file_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut growing) = followed(dir.path());
        std::fs::remove_file(&path).unwrap();
        ends(&mut growing, "deleted or renamed");
    }
}
