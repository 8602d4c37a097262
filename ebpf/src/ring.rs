//! The consumer of a BPF ring buffer.
//!
//! The BPF side wakes us only after [`wakeup_bytes`] of new data (`bpf/ring.h`), so at high rates there is one wake-up for
//! hundreds of records. A lone record wakes nobody: [`Ring::wait`] returns after at most [`MAX_WAIT`], and the caller
//! drains whatever ended the wait. Together with a writer that flushes when idle, a lone event is downstream within 100 ms.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use aya::Ebpf;
use aya::maps::{MapData, RingBuf};
use rustix::event::{Timespec, epoll};

use crate::load::StartError;

/// The longest that [`Ring::wait`] sleeps while records may be pending.
pub const MAX_WAIT: Duration = Duration::from_millis(50);
/// Never let more than this go unread before waking the reader.
const MAX_WAKEUP_BYTES: u32 = 64 * 1024;

/// For a ring of `ring_bytes`: how many new bytes wake the reader. A power of two, at most an eighth of the ring.
///
/// The loader stores it in the BPF global `ring_wakeup_bytes`.
pub fn wakeup_bytes(ring_bytes: u32) -> u64 {
    let eighth = (ring_bytes / 8).clamp(1, MAX_WAKEUP_BYTES);
    // Round down to a power of two: the BPF side finds crossings with a mask.
    u64::from(1u32 << eighth.ilog2())
}

/// The same where each of `cpus` counts for itself: all of them together leave an eighth of the ring at most unread.
pub fn wakeup_bytes_of_cpu(ring_bytes: u32, cpus: usize) -> u64 {
    wakeup_bytes(ring_bytes / u32::try_from(cpus).unwrap_or(u32::MAX).max(1))
}

/// A ring buffer's reading end.
pub struct Ring {
    inner: RingBuf<MapData>,
    /// Edge-triggered on the ring: a level-triggered wait returns as long as *any* record is unread, which at a steady
    /// rate means one system call for each record; an edge is only what the BPF side's wake-ups make.
    epoll: OwnedFd,
}

impl Ring {
    /// Takes the ring buffer map `name` out of `ebpf`. Do so after every program that refers to it is loaded.
    ///
    /// # Errors
    /// [`StartError::Refused`] when there is no such map, or it cannot be mapped into memory.
    pub fn take(ebpf: &mut Ebpf, name: &str) -> Result<Self, StartError> {
        let refused = |error: &(dyn std::error::Error + 'static)| StartError::refused(format!("map {name}"), error);
        let map = ebpf.take_map(name).ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?;
        let inner = RingBuf::try_from(map).map_err(|e| refused(&e))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| refused(&io::Error::from(e)))?;
        epoll::add(&epoll, &inner, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)
            .map_err(|e| refused(&io::Error::from(e)))?;
        Ok(Self { inner, epoll })
    }

    /// Lets [`Ring::wait`] end early when `fd` becomes readable too (a signal's self-pipe). `fd` must outlive the ring.
    ///
    /// # Errors
    /// What `epoll_ctl(2)` reports.
    pub fn wake_on(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?)
    }

    /// Calls `each` with every record that is complete now, at most `limit` of them, oldest first; returns how many it was.
    ///
    /// The limit lets the caller look at signals and timers under a load that never lets the ring run empty.
    pub fn drain(&mut self, limit: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut count = 0;
        while count < limit {
            let Some(record) = self.inner.next() else {
                break;
            };
            each(&record);
            count += 1;
        }
        count
    }

    /// Sleeps until the BPF side wakes us, a file of [`Ring::wake_on`] is readable, or `timeout` has passed ([`MAX_WAIT`]
    /// at most).
    ///
    /// Returns in any case; whether there are records is seen by draining. A signal ends the sleep early.
    ///
    /// # Errors
    /// What `epoll_wait(2)` reports, `EINTR` apart.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout = timeout.min(MAX_WAIT);
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        let mut ready = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 2];
        match epoll::wait(&self.epoll, &mut ready[..], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_come_before_an_eighth_of_the_ring_is_unread() {
        for (ring, wake) in
            [(4096, 512), (64 << 10, 8192), (512 << 10, 64 << 10), (64 << 20, 64 << 10), (1 << 31, 64 << 10)]
        {
            assert_eq!(wakeup_bytes(ring), wake);
        }
        assert_eq!(wakeup_bytes(0), 1);
        for (ring, cpus, wake) in [(32 << 20, 2, 64 << 10), (32 << 20, 128, 32 << 10), (4096, 256, 2), (4096, 0, 512)] {
            assert_eq!(wakeup_bytes_of_cpu(ring, cpus), wake);
        }
    }
}
