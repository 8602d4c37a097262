//! Probes that are gone before the file under them changes.
//!
//! The kernel keeps breakpoints by inode and offset, and places them into every process that maps the file, later ones too.
//! If the file is overwritten in place (`cp new.so old.so`, `rsync --inplace`), they lie where the new contents have
//! something else, for instance in the middle of an instruction, and every process that maps the file dies. So each probed
//! file is held ([`Hold`]), and a thread waits for somebody who wants to write:
//!
//! ```text
//! cp        open("old.so", O_WRONLY | O_TRUNC)          waits: the file is leased to us
//! kernel       SIGIO
//! guard           takes the probes off, gives up the lease
//! cp                 goes on; writes; closes
//! tracer                 can hold the file again: nobody writes any more. It is a new library now
//! ```
//!
//! A thread of its own, because the tracer may be stuck where its output is read too slowly. It has no more rights than that
//! takes: CAP_LEASE, which older kernels ask for to give up a lease too.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use ingero_common::clock::mono_ns;
use ingero_common::privileges::{Work, confine};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CapabilitySet;
use signal_hook::consts::SIGIO;
use signal_hook::{SigId, low_level};

use crate::hold::Hold;

/// How often files are looked at that could not be leased.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Takes probes off files that are about to change.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    /// Readable when probes have been taken off.
    word: UnixStream,
    signal: SigId,
    thread: Option<JoinHandle<()>>,
}

/// Probes in the care of a [`Guard`]. Dropping it takes them off.
#[derive(Debug)]
pub struct Kept {
    token: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    /// Wakes the thread.
    wake: UnixStream,
}

#[derive(Debug, Default)]
struct Table {
    next_token: u64,
    entries: HashMap<u64, Place>,
    stopping: bool,
}

/// Where probes are.
#[derive(Debug)]
enum Place {
    There(Entry),
    /// The thread takes them off.
    Leaving,
    /// They were there until this instant, CLOCK_MONOTONIC.
    Gone(u64),
}

/// Fields are dropped in this order: the probes go before a writer may go on.
struct Entry {
    _probes: Box<dyn Send>,
    hold: Hold,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl Guard {
    /// Starts the thread. From now on SIGIO, by which the kernel tells of a writer, ends this process no more.
    ///
    /// # Errors
    /// Those of making the thread and its sockets.
    pub fn new() -> io::Result<Self> {
        let pair = || {
            let (reading, writing) = UnixStream::pair()?;
            reading.set_nonblocking(true)?;
            writing.set_nonblocking(true)?;
            io::Result::Ok((reading, writing))
        };
        let (woken, wake) = pair()?;
        let (word, tell) = pair()?;
        let signal = low_level::pipe::register(SIGIO, wake.try_clone()?)?;
        let shared = Arc::new(Shared { table: Mutex::default(), wake });
        let (confined, result) = mpsc::channel();
        let thread = std::thread::Builder::new().name("file guard".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                // Nobody waits any more if we have failed elsewhere.
                let _ = confined.send(confine(CapabilitySet::LEASE, &Work::of_tracer()));
                shared.watch(&woken, &tell);
            }
        })?;
        result.recv().map_err(io::Error::other)??;
        Ok(Self { shared, word, signal, thread: Some(thread) })
    }

    /// Takes care of `probes`, which are on the file that `hold` is about.
    pub fn keep(&self, probes: impl Send + 'static, hold: Hold) -> Kept {
        let mut table = self.shared.lock();
        let token = table.next_token;
        table.next_token += 1;
        table.entries.insert(token, Place::There(Entry { _probes: Box::new(probes), hold }));
        drop(table);
        // A writer may have come before this.
        self.shared.wake_up();
        Kept { token, shared: Arc::clone(&self.shared) }
    }

    /// Takes all probes off.
    pub fn clear(&self) {
        let entries = std::mem::take(&mut self.shared.lock().entries);
        drop(entries);
    }

    /// Becomes readable when probes have been taken off, until [`Guard::took_off_probes`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.word.as_fd()
    }

    /// Whether probes have been taken off since this was asked last.
    pub fn took_off_probes(&self) -> bool {
        empty(&self.word)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.wake_up();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did there would be nothing left to do.
            let _ = thread.join();
        }
        low_level::unregister(self.signal);
    }
}

impl Kept {
    /// Until when the probes were there, CLOCK_MONOTONIC ns; `None` as long as one of them may be.
    pub fn gone_since_ns(&self) -> Option<u64> {
        match self.shared.lock().entries.get(&self.token) {
            Some(Place::Gone(since_ns)) => Some(*since_ns),
            _ => None,
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let entry = self.shared.lock().entries.remove(&self.token);
        // Without the lock: it may take seconds.
        drop(entry);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_up(&self) {
        // A full socket wakes as well.
        let _ = (&self.wake).write(&[0]);
    }

    /// The thread.
    fn watch(&self, woken: &UnixStream, tell: &UnixStream) {
        loop {
            let mut table = self.lock();
            if table.stopping {
                return;
            }
            let mut broken = Vec::new();
            let mut looks = false;
            for (token, place) in &mut table.entries {
                let Place::There(entry) = place else { continue };
                looks |= entry.hold.must_be_looked_at();
                if entry.hold.is_broken()
                    && let Place::There(entry) = std::mem::replace(place, Place::Leaving)
                {
                    broken.push((*token, entry));
                }
            }
            drop(table);
            if broken.is_empty() {
                // A signal that comes before this has left its byte.
                let _ = poll(&mut [PollFd::new(woken, PollFlags::IN)], looks.then_some(&LOOK_INTERVAL));
                empty(woken);
                continue;
            }
            for (token, entry) in broken {
                let since_ns = mono_ns();
                // Without the lock, as below.
                drop(entry);
                if let Some(place) = self.lock().entries.get_mut(&token) {
                    *place = Place::Gone(since_ns);
                }
            }
            let _ = (&*tell).write(&[0]);
        }
    }
}

/// Reads all that is there. Whether there was anything.
fn empty(mut socket: &UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut any = false;
    while let Ok(1..) = socket.read(&mut bytes) {
        any = true;
    }
    any
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Says when it is dropped, and how the file was then.
    struct Probe(std::path::PathBuf, Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>);

    impl Drop for Probe {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = std::fs::read(&self.0).unwrap();
            self.2.store(true, Ordering::SeqCst);
        }
    }

    fn kept(name: &str, guard: &Guard) -> (std::path::PathBuf, Kept, Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>) {
        let path = std::env::temp_dir().join(format!("ingero-guard-{name}-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let (seen, gone) = (Arc::default(), Arc::<AtomicBool>::default());
        let probe = Probe(path.clone(), Arc::clone(&seen), Arc::clone(&gone));
        let hold = Hold::take(&File::open(&path).unwrap()).unwrap().unwrap();
        let kept = guard.keep(probe, hold);
        (path, kept, seen, gone)
    }

    #[test]
    fn probes_are_gone_before_the_first_byte_changes() {
        let guard = Guard::new().unwrap();
        let (path, kept, seen, gone) = kept("write", &guard);
        assert!(kept.gone_since_ns().is_none() && !guard.took_off_probes());
        // Waits for the guard, in its open.
        std::fs::write(&path, "new").unwrap();
        assert!(gone.load(Ordering::SeqCst));
        assert_eq!(*seen.lock().unwrap(), b"old");
        let fd = guard.fd();
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).unwrap();
        assert!(guard.took_off_probes() && kept.gone_since_ns().is_some() && !guard.took_off_probes());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_dropped_is_taken_off_and_frees_the_file() {
        let guard = Guard::new().unwrap();
        let (path, kept, _, gone) = kept("drop", &guard);
        // Other ways to get at the file do not matter.
        std::fs::read(&path).unwrap();
        std::fs::rename(&path, path.with_extension("renamed")).unwrap();
        std::fs::rename(path.with_extension("renamed"), &path).unwrap();
        assert!(kept.gone_since_ns().is_none());
        drop(kept);
        assert!(gone.load(Ordering::SeqCst));
        std::fs::write(&path, "new").unwrap();
        assert!(!guard.took_off_probes());
        std::fs::remove_file(&path).unwrap();
    }
}
