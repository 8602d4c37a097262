//! What threads waited on: from what the kernel side has read to the `in` and `on` of a record.
//!
//! What a descriptor is (a pipe, a socket to whom) comes with the event, as it was in that very wait. Only names of files, and what an
//! epoll set holds, have to be asked of `/proc`, a little later; they are remembered by process, descriptor and inode. A name counts
//! only if the file that `/proc` shows by then is the one that was waited on.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use ingero_common::discover::{ProcFs, python};
use ingero_common::record::write::{Hex, On, Text};
use ingero_ebpf::sched::event::{File, In, Socket, Timeout, Wait};
use procfs::net::TcpState;
use procfs::process::Process;
use syscalls::Sysno;

/// Files whose names are remembered; beyond, all are forgotten.
const MAX_FILES: usize = 16_384;
/// Processes of which it is remembered where their Python is; beyond, all are forgotten.
const MAX_PYTHONS: usize = 4_096;
/// What may change behind a descriptor (an epoll set, a file that all anonymous ones share) is asked again after this time, and so is
/// whether a process has loaded Python.
const RECHECK: Duration = Duration::from_secs(5);
/// Descriptors of an epoll set that are looked at.
const MAX_IN_SET: usize = 256;

/// System calls that wait on the descriptor in their first argument.
const ON_FD: &[Sysno] = &[
    Sysno::read,
    Sysno::write,
    Sysno::pread64,
    Sysno::pwrite64,
    Sysno::readv,
    Sysno::writev,
    Sysno::preadv,
    Sysno::pwritev,
    Sysno::preadv2,
    Sysno::pwritev2,
    Sysno::recvfrom,
    Sysno::recvmsg,
    Sysno::recvmmsg,
    Sysno::sendto,
    Sysno::sendmsg,
    Sysno::sendmmsg,
    Sysno::sendfile,
    Sysno::splice,
    Sysno::accept,
    Sysno::accept4,
    Sysno::connect,
    Sysno::epoll_pwait,
    Sysno::epoll_pwait2,
    Sysno::ppoll,
    Sysno::fsync,
    Sysno::fdatasync,
    Sysno::sync_file_range,
    Sysno::syncfs,
    Sysno::fallocate,
    Sysno::ftruncate,
    Sysno::flock,
    Sysno::fcntl,
    Sysno::ioctl,
    Sysno::getdents64,
    Sysno::copy_file_range,
    Sysno::io_uring_enter,
    #[cfg(target_arch = "x86_64")]
    Sysno::epoll_wait,
    #[cfg(target_arch = "x86_64")]
    Sysno::poll,
];

/// linux/tcp_states.h; listening sockets of all families are in this state.
const TCP_LISTEN: u8 = 10;
const SOCK_STREAM: u8 = 1;
const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// What is known of the files and interpreters of traced processes.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    proc: ProcFs,
    files: HashMap<(u32, u64, u64), Known>,
    pythons: HashMap<u32, (Option<Range<u64>>, Instant)>,
}

#[derive(Debug)]
struct Known {
    kind: &'static str,
    name: Option<Vec<u8>>,
    listens: bool,
    /// To be asked again from then on.
    until: Option<Instant>,
}

/// The keys of a record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Keys<'a> {
    pub(crate) within: Option<&'static str>,
    pub(crate) on: Option<On<'a>>,
    pub(crate) timeout_ns: Option<u64>,
    pub(crate) io: Option<bool>,
}

impl Waits {
    /// What process `pid` was in. `asleep`: it did not leave the CPU runnable; `wall_ns`: the wall clock when it left.
    pub(crate) fn keys(&mut self, pid: u32, wait: Option<&Wait>, asleep: bool, wall_ns: u64) -> Keys<'_> {
        let Some(wait) = wait else { return Keys::default() };
        let timeout_ns = wait.timeout.map(|timeout| match timeout {
            Timeout::After(ns) => ns,
            Timeout::Until(then_ns) => then_ns.saturating_sub(wall_ns),
        });
        let call = match wait.within {
            In::Call(number) => Sysno::new(number as usize),
            In::OwnCode | In::Kernel => None,
        };
        let within = match wait.within {
            // Nothing else lets a thread sleep in its own code.
            In::OwnCode if asleep => Some("page_fault"),
            _ => call.map(|call| call.name()),
        };
        let on = call.filter(|_| asleep).and_then(|call| self.on(pid, call, wait));
        Keys { within, on, timeout_ns, io: Some(wait.io) }
    }

    fn on(&mut self, pid: u32, call: Sysno, wait: &Wait) -> Option<On<'_>> {
        if call == Sysno::futex {
            let kind = if self.in_python(pid, wait.arg) { "gil" } else { "futex" };
            return Some(On { kind, name: None, addr: Some(Hex(wait.arg)), listens: false });
        }
        let file = wait.file.filter(|_| ON_FD.contains(&call))?;
        let known = self.file(pid, wait.arg, file);
        // Nothing else is waited for so; the process may have ended before it could be asked.
        let kind = if known.kind == "anon_inode" && call.name().starts_with("epoll") { "epoll" } else { known.kind };
        Some(On { kind, name: known.name.as_deref().map(Text), addr: None, listens: known.listens })
    }

    /// Whether an address lies in the state of a process's Python interpreter.
    fn in_python(&mut self, pid: u32, address: u64) -> bool {
        let now = Instant::now();
        if self.pythons.len() >= MAX_PYTHONS {
            self.pythons.clear();
        }
        let known = self.pythons.get(&pid).filter(|(range, until)| range.is_some() || *until > now);
        let range = match known {
            Some((range, _)) => range.clone(),
            None => {
                let range = python::runtime_of(&self.proc, pid).ok().flatten().map(|python| python.words);
                self.pythons.insert(pid, (range.clone(), now + RECHECK));
                range
            }
        };
        range.is_some_and(|range| range.contains(&address))
    }

    /// The process has ended, or is another program now.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.pythons.remove(&pid);
        self.files.retain(|(of, ..), _| *of != pid);
    }

    fn file(&mut self, pid: u32, fd: u64, file: File) -> &Known {
        let key = (pid, fd, file.ino);
        let now = Instant::now();
        let stale = self.files.get(&key).is_none_or(|known| known.until.is_some_and(|until| until <= now));
        if stale {
            if self.files.len() >= MAX_FILES {
                self.files.clear();
            }
            let known = look(pid, fd, file, now);
            self.files.insert(key, known);
        }
        // It has just been put there.
        self.files.get(&key).unwrap_or(&NOTHING)
    }
}

static NOTHING: Known = Known { kind: "file", name: None, listens: false, until: None };

/// What a file is, by its type, and its name.
fn look(pid: u32, fd: u64, file: File, now: Instant) -> Known {
    let known = |kind, name| Known { kind, name, listens: false, until: None };
    match (file.socket, file.mode & 0o170_000) {
        (Some(socket), _) => {
            let listens = socket.state == TCP_LISTEN && (socket.kind == SOCK_STREAM || socket.family == AF_UNIX);
            Known { listens, ..known("socket", Some(socket_name(&socket).into_bytes())) }
        }
        (_, 0o140_000) => known("socket", None),
        (_, 0o010_000) => known("pipe", Some(format!("pipe:[{}]", file.ino).into_bytes())),
        (_, 0o100_000) => known("file", path(pid, fd, file)),
        (_, 0o040_000) => known("directory", path(pid, fd, file)),
        (_, 0o020_000 | 0o060_000) => known("device", path(pid, fd, file)),
        // Anonymous ones share one inode, so the descriptor may be another one soon.
        _ => {
            let name = path(pid, fd, file);
            let kind = match name.as_deref() {
                Some(b"anon_inode:[eventpoll]") => "epoll",
                Some(b"anon_inode:[eventfd]") => "eventfd",
                Some(b"anon_inode:[timerfd]") => "timerfd",
                Some(b"anon_inode:[io_uring]") => "io_uring",
                Some(b"anon_inode:[signalfd]") => "signalfd",
                _ => "anon_inode",
            };
            let listens = kind == "epoll" && set_listens(pid, fd).unwrap_or(false);
            Known { kind, name: None, listens, until: Some(now + RECHECK) }
        }
    }
}

fn socket_name(socket: &Socket) -> String {
    let protocol = if socket.kind == SOCK_STREAM { "tcp" } else { "udp" };
    let port = socket.port;
    let [a, b, c, d, ..] = socket.peer;
    match socket.family {
        AF_UNIX => "unix".to_owned(),
        AF_INET | AF_INET6 if socket.state == TCP_LISTEN => format!("{protocol} :{port}"),
        AF_INET => format!("{protocol} {}:{port}", Ipv4Addr::new(a, b, c, d)),
        AF_INET6 => match Ipv6Addr::from(socket.peer).to_ipv4_mapped() {
            Some(address) => format!("{protocol} {address}:{port}"),
            None => format!("{protocol} [{}]:{port}", Ipv6Addr::from(socket.peer)),
        },
        family => format!("family {family}"),
    }
}

/// The path that a descriptor shows, if it is still open on that file.
fn path(pid: u32, fd: u64, file: File) -> Option<Vec<u8>> {
    let link = format!("/proc/{pid}/fd/{fd}");
    let path = std::fs::read_link(&link).ok()?;
    // A look at the file itself opens nothing.
    let metadata = std::fs::metadata(&link).ok()?;
    (metadata.ino() == file.ino).then(|| path.as_os_str().as_bytes().to_vec())
}

/// Whether an epoll set has a socket that takes connections. `None` where that cannot be read.
fn set_listens(pid: u32, fd: u64) -> Option<bool> {
    let info = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let targets = info.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next());
    let socket = |target: &str| {
        let link = std::fs::read_link(format!("/proc/{pid}/fd/{target}")).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    let sockets: Vec<u64> = targets.take(MAX_IN_SET).filter_map(socket).collect();
    if sockets.is_empty() {
        return Some(false);
    }
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let tables = [process.tcp().ok()?, process.tcp6().unwrap_or_default()];
    Some(tables.iter().flatten().any(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    fn socket(family: u16, state: u8, kind: u8, peer: &[u8]) -> Socket {
        let mut bytes = [0; 16];
        bytes[..peer.len()].copy_from_slice(peer);
        Socket { family, peer: bytes, port: 443, state, kind }
    }

    #[test]
    fn sockets_are_named_by_their_other_end() {
        let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets();
        let mapped = Ipv4Addr::new(10, 0, 0, 5).to_ipv6_mapped().octets();
        for (socket, name) in [
            (socket(AF_INET, 1, 1, &[10, 0, 0, 5]), "tcp 10.0.0.5:443"),
            (socket(AF_INET, 7, 2, &[10, 0, 0, 5]), "udp 10.0.0.5:443"),
            (socket(AF_INET, TCP_LISTEN, 1, &[]), "tcp :443"),
            (socket(AF_INET6, 1, 1, &v6), "tcp [2001:db8::1]:443"),
            (socket(AF_INET6, 1, 1, &mapped), "tcp 10.0.0.5:443"),
            (socket(AF_UNIX, 1, 1, &[]), "unix"),
            (socket(40, 1, 1, &[]), "family 40"),
        ] {
            assert_eq!(socket_name(&socket), name);
        }
    }

    #[test]
    fn names_are_those_of_the_file_that_was_waited_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = file.as_file().as_raw_fd() as u64;
        let ino = file.as_file().metadata().unwrap().ino();
        let of = |ino| path(std::process::id(), fd, File { ino, mode: 0o100_600, socket: None });
        assert_eq!(of(ino).as_deref(), Some(file.path().as_os_str().as_bytes()));
        assert_eq!(of(ino + 1), None, "the descriptor is another file by now");
    }

    #[test]
    fn a_set_that_takes_connections_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        let set = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
        let listens = || set_listens(std::process::id(), set.as_raw_fd() as u64);
        let add = |fd: std::os::fd::BorrowedFd<'_>| {
            use rustix::event::epoll::{EventData, EventFlags, add};
            add(&set, fd, EventData::new_u64(0), EventFlags::IN).unwrap();
        };
        use std::os::fd::AsFd;
        add(reader.as_fd());
        assert_eq!(listens(), Some(false));
        add(listener.as_fd());
        assert_eq!(listens(), Some(true));
    }

    #[test]
    fn times_and_calls_become_keys() {
        let mut waits = Waits::default();
        let wait = Wait {
            within: In::Call(Sysno::clock_nanosleep.id() as u32),
            timeout: Some(Timeout::Until(1_500)),
            ..Wait::default()
        };
        let keys = waits.keys(1, Some(&wait), true, 1_000);
        assert_eq!((keys.within, keys.timeout_ns, keys.io), (Some("clock_nanosleep"), Some(500), Some(false)));
        let fault = Wait { within: In::OwnCode, ..Wait::default() };
        assert_eq!(waits.keys(1, Some(&fault), true, 0).within, Some("page_fault"));
        assert_eq!(waits.keys(1, Some(&fault), false, 0).within, None, "preempted in its own code");
        let kernel = Wait { within: In::Kernel, ..Wait::default() };
        assert_eq!(waits.keys(1, Some(&kernel), true, 0).within, None, "a thread of the kernel");
        assert_eq!(waits.keys(1, None, true, 0), Keys::default());
        let futex = Wait { within: In::Call(Sysno::futex.id() as u32), arg: 0x1000, ..Wait::default() };
        let keys = waits.keys(std::process::id(), Some(&futex), true, 0);
        assert_eq!(keys.on.map(|on| (on.kind, on.addr)), Some(("futex", Some(Hex(0x1000)))));
        // A clock's number is no descriptor.
        let file = Some(File { ino: 1, mode: 0o010_600, socket: None });
        let sleep = Wait { within: In::Call(Sysno::clock_nanosleep.id() as u32), arg: 1, file, ..Wait::default() };
        assert_eq!(waits.keys(1, Some(&sleep), true, 0).on, None);
        let read = Wait { within: In::Call(Sysno::read.id() as u32), arg: 1, file, ..Wait::default() };
        let keys = waits.keys(1, Some(&read), true, 0);
        assert_eq!(keys.on, Some(On { kind: "pipe", name: Some(Text(b"pipe:[1]")), addr: None, listens: false }));
    }
}
