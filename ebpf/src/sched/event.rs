//! The events of `bpf/sched.bpf.c`, decoded from the bytes of the ring and of the iterators.
//!
//! The layout is that of `bpf/sched.h`: little- or big-endian as the machine is, without padding between the fields. An
//! event borrows the bytes it was decoded from; nothing is allocated.

use super::stack::{self, Stack};

/// Length of a thread's name, NUL-padded (`TASK_COMM_LEN`).
pub const COMM_BYTES: usize = 16;
/// Space for the path of an executable, NUL-terminated (`EXE_BYTES`).
const EXE_BYTES: usize = 256;
/// Space for the name of a disk, NUL-terminated (`DISK_BYTES`).
const DISK_BYTES: usize = 32;

pub(super) const KIND_SWITCH: u32 = 1;
const KIND_FORK: u32 = 2;
const KIND_THREAD: u32 = 3;
const KIND_EXEC: u32 = 4;
const KIND_THREAD_EXIT: u32 = 5;
const KIND_PROCESS_EXIT: u32 = 6;
const KIND_PAGES: u32 = 7;
const KIND_WATCHED: u32 = 8;
const KIND_UNMATCHED: u32 = 9;
const KIND_CUDA: u32 = 10;
const KIND_IO: u32 = 11;
const KIND_RETRANSMIT: u32 = 12;
const KIND_OOM: u32 = 13;
const KIND_WAIT: u32 = 14;
const KIND_STACK: u32 = 15;

const HAS_BY: u32 = 1;
const HAS_PREV: u32 = 2;
const HAS_WAKER: u32 = 4;
const WAKER_IRQ: u32 = 8;
const OPEN: u32 = 16;
const WAIT_IO: u32 = 1;
const WAIT_WALL: u32 = 2;
const KERNEL_THREAD: i32 = -2;
const OOM_HAS_MEMORY: u32 = 1;

/// No status of wait(2) is negative.
const CODE_UNKNOWN: i32 = -1;

/// The length of an I/O event (`struct io_event`).
pub(super) const IO_BYTES: usize = 48 + 8 + 8 + DISK_BYTES;

/// A thread at the moment of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who<'a> {
    /// The process (TGID), as the initial PID namespace sees it.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// Its name, NUL-padded.
    pub comm: &'a [u8],
}

/// What every event begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// Start of the interval, CLOCK_MONOTONIC ns.
    pub mono_ns: u64,
    /// Its length; 0 for an instant.
    pub dur_ns: u64,
    /// The process as its own PID namespace numbers it, where that is not the initial one.
    pub ns_pid: Option<u32>,
    /// Whom it is about.
    pub who: Who<'a>,
}

/// A thread was off the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch<'a> {
    /// The thread and its interval.
    pub head: Head<'a>,
    /// The part of the interval spent on a run queue, ns.
    pub runq_ns: u64,
    /// The letter of the state it left with, as `ps` prints it; `R` when it was preempted.
    pub state: u8,
    /// The CPU it came back on, or left where it has not come back.
    pub cpu: u32,
    /// Who took the CPU when it left.
    pub by: Option<Who<'a>>,
    /// Who ran on the CPU before it came back.
    pub prev: Option<Who<'a>>,
    /// The thread that woke it.
    pub waker: Option<Who<'a>>,
    /// An interrupt woke it.
    pub waker_irq: bool,
    /// It has not come back by the end of the interval.
    pub open: bool,
    /// What it was in, where that was looked at: of short waits it is not, nor on kernels without type information.
    pub wait: Option<Wait>,
}

/// What a thread was in while it was off the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Where it was.
    pub within: In,
    /// Its first argument: a descriptor, the address of a futex. Of poll, its only descriptor; else all ones.
    pub arg: u64,
    /// How long it was to wait at most, ns.
    pub timeout: Option<Timeout>,
    /// What the descriptor is, where `arg` is one in use.
    pub file: Option<File>,
    /// It waited for a device.
    pub io: bool,
}

/// Where a thread was when it left the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum In {
    /// In its own code.
    #[default]
    OwnCode,
    /// In the system call of this number.
    Call(u32),
    /// It is a thread of the kernel.
    Kernel,
}

/// How long a wait was to last at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// So many ns.
    After(u64),
    /// Until this instant, ns of the wall clock.
    Until(u64),
}

/// A file as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// The number of its inode.
    pub ino: u64,
    /// Type and permissions, as stat(2) tells them.
    pub mode: u32,
    /// Of a socket: what it is.
    pub socket: Option<Socket>,
}

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// AF_…
    pub family: u16,
    /// The other end's address: the first 4 bytes of IPv4, all of IPv6.
    pub peer: [u8; 16],
    /// The other end's port.
    pub port: u16,
    /// TCP's state (linux/tcp_states.h), which is used of other families, too.
    pub state: u8,
    /// SOCK_…
    pub kind: u8,
}

/// Why a process is watched (`enum why`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// By its PID, or with everything else.
    Asked = 1,
    /// It uses CUDA.
    Cuda = 2,
    /// It descends from a watched one.
    Child = 3,
}

/// What a request asks of a block device (`enum io_op`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Data from it.
    Read = 0,
    /// Data to it, zeroes among them.
    Write = 1,
    /// That it forget data.
    Discard = 2,
}

/// A request to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io<'a> {
    /// The thread that asked, from the making of the request to its completion.
    pub head: Head<'a>,
    /// Read, written or discarded.
    pub bytes: u64,
    /// Which of these.
    pub op: IoOp,
    /// The name of the disk, NUL-terminated: `nvme0n1`.
    pub disk: &'a [u8],
    /// The device has not completed it by the end of the interval.
    pub open: bool,
}

/// The OOM killer chose a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oom<'a> {
    /// The victim. Before Linux 6.9 only its `tid` is known, `pid` is 0 and `comm` empty.
    pub head: Head<'a>,
    /// Whose allocation found no memory.
    pub by: Who<'a>,
    /// What the victim had, where that is known.
    pub memory: Option<OomMemory>,
}

/// The memory of a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomMemory {
    /// Size of its address space.
    pub total_vm_bytes: u64,
    /// Resident anonymous memory.
    pub anon_rss_bytes: u64,
    /// Resident pages of files.
    pub file_rss_bytes: u64,
    /// Resident shared memory.
    pub shmem_rss_bytes: u64,
    /// The adjustment of its badness, -1000 to 1000.
    pub oom_score_adj: i32,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A thread is back on a CPU, or still off it when tracing stops.
    Switch(Switch<'a>),
    /// A watched process has a new child.
    Fork {
        /// The thread that forked.
        head: Head<'a>,
        /// The child.
        child_pid: u32,
        /// The child as its own PID namespace numbers it.
        child_ns_pid: Option<u32>,
        /// Whether the child is watched from here on; it is not only where memory ran out.
        watched: bool,
    },
    /// A watched process has a new thread.
    Thread {
        /// The thread that made it.
        head: Head<'a>,
        /// The process of the new thread.
        child_pid: u32,
        /// The new thread.
        child_tid: u32,
    },
    /// A process runs another executable from now on.
    Exec {
        /// The process, under its new name.
        head: Head<'a>,
        /// Path of the executable, NUL-terminated, cut at 255 bytes.
        exe: &'a [u8],
    },
    /// One of several threads ends.
    ThreadExit {
        /// The thread.
        head: Head<'a>,
        /// As wait(2) reports it, where it is known.
        code: Option<i32>,
    },
    /// A process ends.
    ProcessExit {
        /// The process; `tid` is its `pid`.
        head: Head<'a>,
        /// As wait(2) reports it, where it is known.
        code: Option<i32>,
    },
    /// Page allocations of a thread.
    Pages {
        /// The thread, from its first to its last allocation.
        head: Head<'a>,
        /// Allocations.
        count: u64,
        /// Their sum.
        bytes: u64,
    },
    /// A process is watched (iterator only). The head has no time: the reader knows when it has read the whole iterator.
    Watched {
        /// The process.
        head: Head<'a>,
        /// The reason.
        why: Why,
    },
    /// A process has called cuInit; the calling thread is watched from here on.
    CudaInit {
        /// The calling thread.
        head: Head<'a>,
        /// It is the only one of its process, which is watched as a whole therefore.
        alone: bool,
    },
    /// A request to a block device has been completed, or has not when tracing stops.
    Io(Io<'a>),
    /// TCP sent something again on a connection of this thread's.
    Retransmit {
        /// The thread that connected or sent last.
        head: Head<'a>,
        /// How often.
        count: u64,
    },
    /// The OOM killer chose a victim.
    Oom(Oom<'a>),
    /// Where in its code a thread was.
    Stack(Stack<'a>),
    /// A thread was off the CPU once in this time, and only one end of that was seen: a record that is lost.
    Unmatched(Head<'a>),
}

/// Decodes one event from the beginning of `bytes`: the event and its length. `None` where they hold none, which means
/// that the program and this module are not of one version.
pub fn decode(bytes: &[u8]) -> Option<(Event<'_>, usize)> {
    let mut fields = Fields(bytes);
    let (kind, head) = head(&mut fields)?;
    let event = match kind {
        KIND_SWITCH => Event::Switch(switch(head, &mut fields)?),
        KIND_WAIT => {
            let off = switch(head, &mut fields)?;
            Event::Switch(Switch { wait: Some(wait(&mut fields)?), ..off })
        }
        KIND_FORK | KIND_THREAD | KIND_THREAD_EXIT | KIND_PROCESS_EXIT | KIND_WATCHED | KIND_CUDA => {
            task(kind, head, &mut fields)?
        }
        KIND_UNMATCHED => Event::Unmatched(head),
        KIND_EXEC => Event::Exec { head, exe: fields.bytes(EXE_BYTES)? },
        KIND_PAGES => Event::Pages { head, count: fields.u64()?, bytes: fields.u64()? },
        KIND_RETRANSMIT => {
            let (count, _bytes) = (fields.u64()?, fields.u64()?);
            Event::Retransmit { head, count }
        }
        KIND_IO => Event::Io(io(head, &mut fields)?),
        KIND_OOM => Event::Oom(oom(head, &mut fields)?),
        KIND_STACK => Event::Stack(stack::decode(head, &mut fields)?),
        _ => return None,
    };
    Some((event, bytes.len() - fields.0.len()))
}

fn head<'a>(fields: &mut Fields<'a>) -> Option<(u32, Head<'a>)> {
    let (mono_ns, dur_ns) = (fields.u64()?, fields.u64()?);
    let (kind, ns_pid) = (fields.u32()?, fields.u32()?);
    Some((kind, Head { mono_ns, dur_ns, ns_pid: (ns_pid != 0).then_some(ns_pid), who: fields.who()? }))
}

fn switch<'a>(head: Head<'a>, fields: &mut Fields<'a>) -> Option<Switch<'a>> {
    let runq_ns = fields.u64()?;
    let (state, cpu) = (fields.u32()?, fields.u32()?);
    let (by, prev, waker) = (fields.who()?, fields.who()?, fields.who()?);
    let (flags, _unused) = (fields.u32()?, fields.u32()?);
    let given = |flag: u32, who| (flags & flag != 0).then_some(who);
    Some(Switch {
        head,
        runq_ns,
        state: u8::try_from(state).ok()?,
        cpu,
        by: given(HAS_BY, by),
        prev: given(HAS_PREV, prev),
        waker: given(HAS_WAKER, waker),
        waker_irq: flags & WAKER_IRQ != 0,
        open: flags & OPEN != 0,
        wait: None,
    })
}

fn wait(fields: &mut Fields<'_>) -> Option<Wait> {
    let (arg, timeout_ns, ino) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let (mode, call, flags) = (fields.u32()?, fields.u32()?.cast_signed(), fields.u32()?);
    let (family, port) = (fields.u16()?, fields.u16()?);
    let (peer, rest) = (fields.array()?, fields.array::<8>()?);
    let timeout = match flags & WAIT_WALL {
        _ if timeout_ns == 0 => None,
        0 => Some(Timeout::After(timeout_ns)),
        _ => Some(Timeout::Until(timeout_ns)),
    };
    let socket = (family != 0).then_some(Socket { family, peer, port, state: rest[0], kind: rest[1] });
    let file = (mode != 0 || ino != 0).then_some(File { ino, mode, socket });
    Some(Wait { within: in_of(call), arg, timeout, file, io: flags & WAIT_IO != 0 })
}

/// What the number of a system call stands for.
pub(super) fn in_of(call: i32) -> In {
    match u32::try_from(call) {
        Ok(number) => In::Call(number),
        Err(_) if call == KERNEL_THREAD => In::Kernel,
        Err(_) => In::OwnCode,
    }
}

fn task<'a>(kind: u32, head: Head<'a>, fields: &mut Fields<'a>) -> Option<Event<'a>> {
    let (child_pid, child_tid, child_ns_pid) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let code = Some(fields.u32()?.cast_signed()).filter(|code| *code != CODE_UNKNOWN);
    let (why, alone) = (fields.u32()?, fields.u32()?);
    Some(match kind {
        KIND_CUDA => Event::CudaInit { head, alone: alone != 0 },
        KIND_FORK => Event::Fork {
            head,
            child_pid,
            child_ns_pid: (child_ns_pid != 0).then_some(child_ns_pid),
            watched: why == Why::Child as u32,
        },
        KIND_THREAD => Event::Thread { head, child_pid, child_tid },
        KIND_THREAD_EXIT => Event::ThreadExit { head, code },
        KIND_PROCESS_EXIT => Event::ProcessExit { head, code },
        _ => Event::Watched {
            head,
            why: [Why::Asked, Why::Cuda, Why::Child].into_iter().find(|known| *known as u32 == why)?,
        },
    })
}

fn io<'a>(head: Head<'a>, fields: &mut Fields<'a>) -> Option<Io<'a>> {
    let bytes = fields.u64()?;
    let (op, _unused) = (fields.u32()?, fields.u32()?);
    let op = [IoOp::Read, IoOp::Write, IoOp::Discard].into_iter().find(|known| *known as u32 == op)?;
    Some(Io { head, bytes, op, disk: fields.bytes(DISK_BYTES)?, open: false })
}

fn oom<'a>(head: Head<'a>, fields: &mut Fields<'a>) -> Option<Oom<'a>> {
    let by = fields.who()?;
    let memory = OomMemory {
        total_vm_bytes: fields.u64()?,
        anon_rss_bytes: fields.u64()?,
        file_rss_bytes: fields.u64()?,
        shmem_rss_bytes: fields.u64()?,
        oom_score_adj: fields.u32()?.cast_signed(),
    };
    let known = fields.u32()? & OOM_HAS_MEMORY != 0;
    Some(Oom { head, by, memory: known.then_some(memory) })
}

/// Takes fields off the front of a byte slice.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn who(&mut self) -> Option<Who<'a>> {
        Some(Who { pid: self.u32()?, tid: self.u32()?, comm: self.bytes(COMM_BYTES)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lays fields out as `bpf/sched.h` does.
    #[derive(Default)]
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn u32s(mut self, values: &[u32]) -> Self {
            values.iter().for_each(|v| self.0.extend(v.to_ne_bytes()));
            self
        }
        fn u64s(mut self, values: &[u64]) -> Self {
            values.iter().for_each(|v| self.0.extend(v.to_ne_bytes()));
            self
        }
        fn who(self, pid: u32, tid: u32, comm: &str) -> Self {
            let mut this = self.u32s(&[pid, tid]);
            let mut name = [0; COMM_BYTES];
            name[..comm.len()].copy_from_slice(comm.as_bytes());
            this.0.extend(name);
            this
        }
        fn head(self, kind: u32) -> Self {
            self.u64s(&[100, 800]).u32s(&[kind, 0]).who(7, 8, "train")
        }
    }

    fn name(who: &Who<'_>) -> String {
        String::from_utf8_lossy(who.comm).trim_end_matches('\0').to_owned()
    }

    #[test]
    fn a_stack_has_as_many_frames_as_it_says() {
        let bytes =
            Bytes::default().head(KIND_STACK).u64s(&[0x4000]).u32s(&[202, 1 | 2 | 4, 2, 0]).u64s(&[10, 11, 20, 21]).0;
        let Some((Event::Stack(stack), len)) = decode(&bytes) else { panic!() };
        assert_eq!(len, bytes.len());
        assert_eq!((stack.ip, stack.within, stack.head.who.tid), (0x4000, In::Call(202), 8));
        assert_eq!([stack.on_cpu, stack.gc, stack.has_python, stack.torn, stack.cut], [true, true, true, false, false]);
        let frames: Vec<_> = stack.frames().map(|frame| (frame.code, frame.instruction)).collect();
        assert_eq!(frames, [(10, 11), (20, 21)]);
        assert!(decode(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn a_switch_and_its_optional_threads() {
        let bytes = |flags| {
            Bytes::default()
                .head(KIND_SWITCH)
                .u64s(&[195])
                .u32s(&[u32::from(b'S'), 3])
                .who(1, 2, "by")
                .who(3, 4, "prev")
                .who(5, 6, "waker")
                .u32s(&[flags, 0])
                .0
        };
        let all = bytes(HAS_BY | HAS_PREV | HAS_WAKER);
        let Some((Event::Switch(s), len)) = decode(&all) else { panic!() };
        assert_eq!(len, all.len());
        assert_eq!((s.head.mono_ns, s.head.dur_ns, s.runq_ns), (100, 800, 195));
        assert_eq!((s.head.who.pid, s.head.who.tid, s.state, s.cpu), (7, 8, b'S', 3));
        assert_eq!([s.by, s.prev, s.waker].map(|w| name(&w.unwrap())), ["by", "prev", "waker"]);
        assert!(!s.waker_irq && !s.open);

        let none = bytes(WAKER_IRQ | OPEN);
        let Some((Event::Switch(s), _)) = decode(&none) else { panic!() };
        assert_eq!([s.by, s.prev, s.waker], [None; 3]);
        assert!(s.waker_irq && s.open);
        assert_eq!(s.wait, None, "of a short wait nothing is known");
    }

    #[test]
    fn what_a_thread_was_in() {
        let wait = |timeout_ns: u64, [mode, call, flags]: [u32; 3], family: u16| {
            let mut bytes = Bytes::default().u64s(&[5, timeout_ns, 4711]).u32s(&[mode, call, flags]).0;
            bytes.extend(family.to_ne_bytes());
            bytes.extend(443_u16.to_ne_bytes());
            bytes.extend([10, 0, 0, 5].into_iter().chain([0; 12]));
            bytes.extend([1, 2, 0, 0, 0, 0, 0, 0]);
            assert_eq!(bytes.len(), 64);
            super::wait(&mut Fields(&bytes)).unwrap()
        };
        let socket = wait(7, [0o140_777, 45, WAIT_IO], 2);
        assert_eq!(
            (socket.within, socket.arg, socket.timeout, socket.io),
            (In::Call(45), 5, Some(Timeout::After(7)), true)
        );
        let file = socket.file.unwrap();
        assert_eq!((file.ino, file.mode), (4711, 0o140_777));
        let peer = file.socket.unwrap();
        assert_eq!((&peer.peer[..4], peer.port, peer.state, peer.kind), (&[10, 0, 0, 5][..], 443, 1, 2));
        let wall = wait(7, [0, u32::MAX, WAIT_WALL], 0);
        assert_eq!((wall.within, wall.timeout, wall.io), (In::OwnCode, Some(Timeout::Until(7)), false));
        let kernel = wait(0, [0, KERNEL_THREAD.cast_unsigned(), 0], 0);
        assert_eq!((kernel.within, kernel.timeout), (In::Kernel, None));
    }

    #[test]
    fn births_and_deaths() {
        let task = |kind, rest: [u32; 6]| Bytes::default().head(kind).u32s(&rest).0;
        let bytes = task(KIND_FORK, [70, 70, 1, 0, 3, 0]);
        assert!(matches!(
            decode(&bytes).unwrap().0,
            Event::Fork { child_pid: 70, child_ns_pid: Some(1), watched: true, .. }
        ));
        let bytes = task(KIND_FORK, [70, 70, 0, 0, 0, 0]);
        assert!(matches!(decode(&bytes).unwrap().0, Event::Fork { child_ns_pid: None, watched: false, .. }));
        let bytes = task(KIND_THREAD, [7, 71, 0, 0, 3, 0]);
        assert!(matches!(decode(&bytes).unwrap().0, Event::Thread { child_pid: 7, child_tid: 71, .. }));
        let bytes = task(KIND_PROCESS_EXIT, [0, 0, 0, 9, 0, 0]);
        assert!(matches!(decode(&bytes).unwrap().0, Event::ProcessExit { code: Some(9), .. }));
        let bytes = task(KIND_WATCHED, [0, 0, 0, 0, 2, 0]);
        assert!(matches!(decode(&bytes).unwrap().0, Event::Watched { why: Why::Cuda, .. }));
        let bytes = task(KIND_WATCHED, [0, 0, 0, 0, 9, 0]);
        assert!(decode(&bytes).is_none(), "no such reason");
    }

    #[test]
    fn a_lost_interval_is_a_head_alone() {
        let bytes = Bytes::default().head(KIND_UNMATCHED).0;
        let Some((Event::Unmatched(head), len)) = decode(&bytes) else { panic!() };
        assert_eq!((head.mono_ns, head.dur_ns, head.who.tid, len), (100, 800, 8, bytes.len()));
    }

    #[test]
    fn requests_and_what_else_is_not_of_the_scheduler() {
        let io = |op| {
            let mut bytes = Bytes::default().head(KIND_IO).u64s(&[8192]).u32s(&[op, 0]).0;
            bytes.extend(b"nvme0n1\0");
            bytes.resize(IO_BYTES, 0);
            bytes
        };
        let bytes = io(1);
        let Some((Event::Io(read), IO_BYTES)) = decode(&bytes) else { panic!() };
        assert_eq!((read.bytes, read.op, read.head.who.tid), (8192, IoOp::Write, 8));
        assert!(read.disk.starts_with(b"nvme0n1\0"));
        assert!(decode(&io(3)).is_none(), "no such operation");

        let oom = |flags| Bytes::default().head(KIND_OOM).who(1, 2, "by").u64s(&[40, 30, 20, 10]).u32s(&[5, flags]).0;
        let bytes = oom(OOM_HAS_MEMORY);
        let Some((Event::Oom(victim), _)) = decode(&bytes) else { panic!() };
        assert_eq!((victim.head.who.tid, name(&victim.by)), (8, "by".into()));
        let memory = victim.memory.unwrap();
        assert_eq!((memory.total_vm_bytes, memory.shmem_rss_bytes, memory.oom_score_adj), (40, 10, 5));
        let bytes = oom(0);
        assert!(matches!(decode(&bytes).unwrap().0, Event::Oom(Oom { memory: None, .. })));

        let bytes = Bytes::default().head(KIND_RETRANSMIT).u64s(&[1, 0]).0;
        assert!(matches!(decode(&bytes).unwrap().0, Event::Retransmit { count: 1, .. }));
        let bytes = Bytes::default().head(KIND_CUDA).u32s(&[0, 0, 0, 0, 2, 1]).0;
        assert!(matches!(decode(&bytes).unwrap().0, Event::CudaInit { alone: true, .. }));
    }

    #[test]
    fn events_follow_each_other_and_half_a_one_is_none() {
        let mut bytes = Bytes::default().head(KIND_PAGES).u64s(&[12, 49152]).0;
        let first = bytes.len();
        bytes.extend(Bytes::default().head(KIND_EXEC).0);
        bytes.extend(b"/usr/bin/python3\0");
        bytes.resize(first + 48 + EXE_BYTES, 0);
        let (event, len) = decode(&bytes).unwrap();
        assert!(matches!(event, Event::Pages { count: 12, bytes: 49152, .. }));
        assert_eq!(len, first);
        let Some((Event::Exec { exe, .. }, _)) = decode(&bytes[len..]) else { panic!() };
        assert!(exe.starts_with(b"/usr/bin/python3\0"));
        for cut in 0..first {
            assert!(decode(&bytes[..cut]).is_none(), "{cut}");
        }
        assert!(decode(&Bytes::default().head(99).u64s(&[0; 8]).0).is_none());
    }
}
