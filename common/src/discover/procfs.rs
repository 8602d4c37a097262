//! What `/proc` says of processes. Every read may meet a process that has just ended: [`is_gone`] tells such an error
//! from a real one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::thread::CapabilitySet;

use super::resolve::link_target;

/// Whether an error only says that the process or thread has ended.
#[must_use]
pub fn is_gone(error: &io::Error) -> bool {
    // ENOENT from opening below /proc/PID, ESRCH from reading what was opened before.
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Whether we may look at processes of other users. What `/proc` refuses us all the same is hidden on purpose: some sandboxes
/// hide theirs from root.
#[must_use]
pub fn may_look_at_others() -> bool {
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_PTRACE))
}

/// The system-call filter a process is under (`Seccomp:` in its status).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seccomp {
    /// None.
    Off,
    /// The strict mode: read, write, exit, sigreturn.
    Strict,
    /// A filter program. On kernels from 6.11 a return probe makes a system call that it may refuse by killing.
    Filter,
}

/// One thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Thread id, in the initial PID namespace as `/proc` was mounted.
    pub tid: u32,
    /// Its name: any bytes.
    pub comm: Vec<u8>,
}

/// The fields of `/proc/PID/stat` that identify a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Name of its first thread: any bytes.
    pub comm: Vec<u8>,
    /// State letter (`Z` = ended, not yet waited for).
    pub state: u8,
    /// Parent; 0 for none.
    pub parent_pid: u32,
    /// Start, in clock ticks since boot (suspend included): together with the PID it names one life of a process.
    pub start_ticks: u64,
}

/// A process, as far as tracing it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Thread group id.
    pub pid: u32,
    /// The id it has in its own PID namespace, where that is another one.
    pub ns_pid: Option<u32>,
    /// Name of its first thread: any bytes.
    pub comm: Vec<u8>,
    /// Real user id.
    pub uid: u32,
    /// Effective user id: what it may do. Another one than the real one in a setuid program.
    pub effective_uid: u32,
    /// Its program's path as it sees it; `None` where it may not be read.
    pub exe: Option<Vec<u8>>,
    /// System-call filter.
    pub seccomp: Seccomp,
    /// Parent; 0 for none.
    pub parent_pid: u32,
    /// Start in clock ticks since boot, see [`Stat::start_ticks`].
    pub start_ticks: u64,
}

/// A mounted `/proc`.
#[derive(Debug, Clone)]
pub struct ProcFs {
    root: PathBuf,
}

impl Default for ProcFs {
    fn default() -> Self {
        Self::new("/proc")
    }
}

impl ProcFs {
    /// `root` is `/proc`, or where another one is mounted (`/host/proc` in a container).
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where it is mounted.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn path(&self, pid: u32, below: &str) -> PathBuf {
        self.root.join(format!("{pid}/{below}"))
    }

    /// All processes, in the order of `/proc`.
    ///
    /// # Errors
    /// When `/proc` itself cannot be listed.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        numeric_entries(&self.root)
    }

    /// Identity of a process.
    ///
    /// # Errors
    /// When it is gone or unreadable.
    pub fn stat(&self, pid: u32) -> io::Result<Stat> {
        let text = read_small(&self.path(pid, "stat"))?;
        parse_stat(&text).ok_or_else(|| unreadable(&self.path(pid, "stat")))
    }

    /// Everything that [`Process`] holds.
    ///
    /// # Errors
    /// When it is gone or unreadable.
    pub fn process(&self, pid: u32) -> io::Result<Process> {
        let stat = self.stat(pid)?;
        let text = read_small(&self.path(pid, "status"))?;
        let status = parse_status(&text).ok_or_else(|| unreadable(&self.path(pid, "status")))?;
        Ok(Process {
            pid,
            ns_pid: status.ns_pid.filter(|&inner| inner != pid),
            comm: stat.comm,
            uid: status.uid,
            effective_uid: status.effective_uid,
            exe: link_target(&self.path(pid, "exe")).ok(),
            seccomp: status.seccomp,
            parent_pid: stat.parent_pid,
            start_ticks: stat.start_ticks,
        })
    }

    /// The threads of a process, with their names. A thread that ends meanwhile is left out.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn threads(&self, pid: u32) -> io::Result<Vec<Thread>> {
        let tids = numeric_entries(&self.path(pid, "task"))?;
        let mut threads = Vec::with_capacity(tids.len());
        for tid in tids {
            match read_small(&self.path(pid, &format!("task/{tid}/comm"))) {
                Ok(mut comm) => {
                    if comm.last() == Some(&b'\n') {
                        comm.pop();
                    }
                    threads.push(Thread { tid, comm });
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(threads)
    }

    /// The process is there, and is the one that started at `start_ticks` (a zombie is not there any more).
    #[must_use]
    pub fn is_alive(&self, pid: u32, start_ticks: u64) -> bool {
        self.stat(pid).is_ok_and(|stat| stat.start_ticks == start_ticks && !matches!(stat.state, b'Z' | b'X'))
    }

    /// Children, grandchildren and so on of the given processes, without themselves; one pass over `/proc`.
    ///
    /// A process whose parent has ended belongs to whoever adopted it and is not found this way.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn descendants(&self, ancestors: &[u32]) -> io::Result<Vec<u32>> {
        let mut pairs = Vec::new();
        for pid in self.pids()? {
            match self.stat(pid) {
                Ok(stat) => pairs.push((pid, stat.parent_pid)),
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(descend(&pairs, ancestors))
    }
}

/// Closes `ancestors` under the (child, parent) pairs.
fn descend(pairs: &[(u32, u32)], ancestors: &[u32]) -> Vec<u32> {
    let mut children: std::collections::HashMap<u32, Vec<u32>> = std::collections::HashMap::new();
    for &(child, parent) in pairs {
        children.entry(parent).or_default().push(child);
    }
    let mut found: Vec<u32> = Vec::new();
    let mut seen: std::collections::HashSet<u32> = ancestors.iter().copied().collect();
    let mut open: Vec<u32> = ancestors.to_vec();
    while let Some(parent) = open.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child) {
                found.push(child);
                open.push(child);
            }
        }
    }
    found.sort_unstable();
    found
}

fn numeric_entries(dir: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        match entry {
            Ok(entry) => numbers.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(numbers)
}

fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(1024);
    File::open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: not in the form the kernel writes", path.display()))
}

/// `4711 (a ) b) S 1 …`: the name may hold anything, so the fields are counted from the *last* `)`.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = memchr::memchr(b'(', text)?;
    let close = memchr::memrchr(b')', text)?;
    let comm = text.get(open + 1..close)?.to_vec();
    let mut fields = text.get(close + 2..)?.split(|&byte| byte == b' ');
    // proc(5): state is field 3, ppid 4, starttime 22.
    let state = *fields.next()?.first()?;
    let parent_pid = number(fields.next()?)?;
    let start_ticks = number(fields.nth(17)?)?;
    Some(Stat { comm, state, parent_pid, start_ticks })
}

struct Status {
    uid: u32,
    effective_uid: u32,
    ns_pid: Option<u32>,
    seccomp: Seccomp,
}

/// `Name:` may hold anything but a raw newline (the kernel escapes it), so keys are matched at line starts.
fn parse_status(text: &[u8]) -> Option<Status> {
    let mut status = Status { uid: 0, effective_uid: 0, ns_pid: None, seccomp: Seccomp::Off };
    let mut has_uid = false;
    for line in text.split(|&byte| byte == b'\n') {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let mut values = line[colon + 1..].split(|byte| byte.is_ascii_whitespace()).filter(|value| !value.is_empty());
        match &line[..colon] {
            b"Uid" => {
                status.uid = number(values.next()?)?;
                status.effective_uid = number(values.next()?)?;
                has_uid = true;
            }
            // From this /proc's namespace inwards; the last is its own.
            b"NSpid" => status.ns_pid = values.next_back().and_then(number),
            b"Seccomp" => {
                status.seccomp = match values.next()? {
                    b"0" => Seccomp::Off,
                    b"1" => Seccomp::Strict,
                    // What is not known is treated as the dangerous kind.
                    _ => Seccomp::Filter,
                }
            }
            _ => {}
        }
    }
    has_uid.then_some(status)
}

fn number<T: std::str::FromStr>(digits: &[u8]) -> Option<T> {
    std::str::from_utf8(digits).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_any_name() {
        let rest = "S 42 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        for name in ["cat", "a) S 1 (b", ") R 7", "", "x\ny"] {
            let stat = parse_stat(format!("7 ({name}) {rest}\n").as_bytes()).unwrap();
            assert_eq!(
                stat,
                Stat { comm: name.into(), state: b'S', parent_pid: 42, start_ticks: 987_654 },
                "name {name:?}"
            );
        }
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"7 (cut) S 4"), None);
        assert_eq!(parse_stat(b"7 )("), None);
    }

    #[test]
    fn status_of_a_container_process() {
        let text = b"Name:\tSeccomp:\\n2\nUid:\t1000\t0\t0\t0\nNSpid:\t4711\t12\t3\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let status = parse_status(text).unwrap();
        assert_eq!((status.uid, status.effective_uid), (1000, 0));
        assert_eq!((status.ns_pid, status.seccomp), (Some(3), Seccomp::Filter));
        assert!(parse_status(b"Name:\tx\n").is_none());
    }

    #[test]
    fn descendants_stop_at_cycles_and_leave_the_ancestors_out() {
        let pairs = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 6), (1, 4)];
        assert_eq!(descend(&pairs, &[2]), [1, 3, 4, 5]);
        assert_eq!(descend(&pairs, &[6]), [0_u32; 0]);
        assert_eq!(descend(&pairs, &[3, 4]), [1, 2, 5]);
    }

    #[test]
    fn knows_this_process() {
        let proc = ProcFs::default();
        let pid = std::process::id();
        let own = proc.process(pid).unwrap();
        assert_eq!(own.exe.as_deref(), Some(std::env::current_exe().unwrap().as_os_str().as_encoded_bytes()));
        assert!(proc.is_alive(pid, own.start_ticks));
        assert!(!proc.is_alive(pid, own.start_ticks + 1));
        assert!(proc.pids().unwrap().contains(&pid));
        assert!(proc.descendants(&[own.parent_pid]).unwrap().contains(&pid));
        let named = std::thread::Builder::new().name("named thread".into());
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (ready, go) = std::sync::mpsc::channel();
        let thread = named
            .spawn(move || {
                ready.send(()).unwrap();
                let _ = held.recv();
            })
            .unwrap();
        go.recv().unwrap();
        assert!(proc.threads(pid).unwrap().iter().any(|thread| thread.comm == b"named thread"));
        drop(hold);
        thread.join().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_told_apart() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let error = ProcFs::default().process(pid).unwrap_err();
        assert!(is_gone(&error), "{error}");
        assert!(!is_gone(&io::Error::from(io::ErrorKind::PermissionDenied)));
    }
}
