//! Ctrl-C and its kin.
//!
//! A terminal sends Ctrl-C to every program of a pipeline at once. The tracers then stop, write what is
//! still open, and close their streams; the filters must read on to that end and print their report.
//! A second Ctrl-C ends whichever is still there. One that follows within a second is an impatient or a bouncing
//! first one: it does not cost the report of a filter.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// A filter's second interrupt counts as one only so long after the first.
const ONE_INTERRUPT: Duration = Duration::from_secs(1);

/// Set once the user asked to stop.
#[derive(Clone, Debug)]
pub struct Stop {
    flag: Arc<AtomicBool>,
    wake: Arc<UnixStream>,
}

impl Stop {
    /// For a tracer: SIGINT, SIGTERM and SIGHUP ask it to stop; a second one has its default effect.
    pub fn tracer() -> io::Result<Self> {
        Self::on(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// For a filter: the first SIGINT, and others within a second of it, only set the flag, since the end of its
    /// input follows; a later one has its default effect, as other signals have from the first.
    pub fn filter() -> io::Result<Self> {
        // A thread counts the second, since a signal handler can't and the filter may be busy or blocked meanwhile.
        let armed = Arc::new(AtomicBool::new(false));
        let (mut first, write_end) = UnixStream::pair()?;
        write_end.set_nonblocking(true)?;
        let stop = Self::registered(&[SIGINT], &armed, &Arc::new(AtomicBool::new(false)))?;
        low_level::pipe::register(SIGINT, write_end)?;
        thread::Builder::new().name("interrupt".into()).spawn(move || {
            // An error can't come from a socket pair whose other end the handler holds; then a second one just ends us.
            let _ = first.read(&mut [0]);
            thread::sleep(ONE_INTERRUPT);
            armed.store(true, Ordering::Relaxed);
        })?;
        Ok(stop)
    }

    /// The second of these signals has its default effect.
    pub(crate) fn on(signals: &[i32]) -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        Self::registered(signals, &flag, &flag)
    }

    /// Signals set `flag`, and have their default effect once `armed` is set.
    fn registered(signals: &[i32], armed: &Arc<AtomicBool>, flag: &Arc<AtomicBool>) -> io::Result<Self> {
        let (wake, write_end) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        write_end.set_nonblocking(true)?;
        for &signal in signals {
            // The order matters: where both are one, the conditional default looks before this delivery sets it.
            flag::register_conditional_default(signal, Arc::clone(armed))?;
            flag::register(signal, Arc::clone(flag))?;
            low_level::pipe::register(signal, write_end.try_clone()?)?;
        }
        Ok(Self { flag: Arc::clone(flag), wake: Arc::new(wake) })
    }

    /// Whether a stop was asked for.
    pub fn requested(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Asks for a stop from inside, as a signal would.
    pub fn request(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// Becomes readable when a signal arrives: for `poll` beside other descriptors.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    #[test]
    fn a_signal_sets_the_flag_and_wakes_poll() {
        let stop = Stop::on(&[signal_hook::consts::SIGUSR2]).unwrap();
        assert!(!stop.requested());
        low_level::raise(signal_hook::consts::SIGUSR2).unwrap();
        let fd = stop.fd();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        assert!(stop.requested());
    }
}
