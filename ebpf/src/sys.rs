//! The system calls that have no safe wrapper: programs and links of the uprobe_multi kinds, perf events on trace events, and
//! leases of files.
//!
//! All `unsafe` of the workspace is in this file. The attribute structures follow `union bpf_attr` of `linux/bpf.h` and
//! `struct perf_event_attr` of `linux/perf_event.h`; every field is a plain integer, so zeroed and default are the same,
//! and the kernel takes a structure that is shorter than its own.
#![allow(
    unsafe_code,
    reason = "bpf(2), perf_event_open(2) and fcntl(2) have no safe wrapper that covers these commands"
)]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_KPROBE: u32 = 2;
/// `BPF_F_UPROBE_MULTI_RETURN`: the probes of the link are return probes.
const UPROBE_MULTI_RETURN: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;

/// `enum bpf_attach_type` of the links that [`load_program`] and [`link_uprobes`] make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum AttachType {
    /// One perf event, with a cookie (5.15).
    PerfEvent = 41,
    /// Many addresses of one file, entries or returns (6.6).
    UprobeMulti = 48,
    /// Many addresses of one file, one program at both ends (6.13).
    UprobeSession = 57,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoadAttr {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUprobeAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    cnt: u32,
    multi_flags: u32,
    pid: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkPerfAttr {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    bpf_cookie: u64,
}

/// The first published size of the structure (`PERF_ATTR_SIZE_VER0`) holds all that a trace event needs.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// The address of a slice's first element, as the kernel takes pointers.
fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr() as u64
}

/// bpf(2), for the commands whose result is a new file descriptor.
fn bpf_fd<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is one of the structures above and its exact size is passed. What it points to is borrowed by the
    // caller for the length of this call, and the kernel writes only to `log_buf`, which comes from a `&mut` buffer.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    owned(result)
}

/// Wraps the result of a system call that returns a new file descriptor or -1.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Loads a program for links of type `attach`. `log` receives the verifier's words if it is not empty.
///
/// # Errors
/// The kernel's. An unknown attach type is *not* an error here: only [`link_uprobes`] tells.
pub(crate) fn load_program(
    name: &str,
    instructions: &[bpf_insn],
    license: &CStr,
    attach: AttachType,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    let mut prog_name = [0; 16];
    for (to, from) in prog_name.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    let log_size = u32::try_from(log.len()).map_err(io::Error::other)?;
    let attr = ProgLoadAttr {
        prog_type: BPF_PROG_TYPE_KPROBE,
        insn_cnt: u32::try_from(instructions.len()).map_err(io::Error::other)?,
        insns: address(instructions),
        license: license.as_ptr() as u64,
        log_level: u32::from(log_size > 0),
        log_size,
        log_buf: if log_size > 0 { log.as_mut_ptr() as u64 } else { 0 },
        prog_name,
        expected_attach_type: attach as u32,
        ..ProgLoadAttr::default()
    };
    bpf_fd(BPF_PROG_LOAD, &attr)
}

/// Attaches `program` at `offsets` of the file at `path`, each with its cookie; closing the result detaches.
///
/// `returns`: at the returns of the functions rather than their entries (not for sessions).
///
/// # Errors
/// `EINVAL` where the kernel does not know this kind of link, else what it has against the path or an offset.
pub(crate) fn link_uprobes(
    program: BorrowedFd<'_>,
    attach: AttachType,
    path: &CStr,
    offsets: &[u64],
    cookies: &[u64],
    returns: bool,
) -> io::Result<OwnedFd> {
    if offsets.len() != cookies.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let attr = LinkUprobeAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        attach_type: attach as u32,
        path: path.as_ptr() as u64,
        offsets: address(offsets),
        cookies: address(cookies),
        cnt: u32::try_from(offsets.len()).map_err(io::Error::other)?,
        multi_flags: if returns { UPROBE_MULTI_RETURN } else { 0 },
        ..LinkUprobeAttr::default()
    };
    bpf_fd(BPF_LINK_CREATE, &attr)
}

/// Opens trace event number `id` for all processes.
///
/// A program attached to it runs on every CPU, though a perf event names one: it hangs at the trace event itself.
///
/// # Errors
/// The kernel's.
pub(crate) fn open_trace_event(id: u64) -> io::Result<OwnedFd> {
    const ALL_PROCESSES: i32 = -1;
    const FIRST_CPU: i32 = 0;
    const NO_GROUP: i32 = -1;
    let attr = PerfEventAttr {
        kind: PERF_TYPE_TRACEPOINT,
        // The structure is 64 bytes, checked by a test.
        size: size_of::<PerfEventAttr>() as u32,
        config: id,
        ..PerfEventAttr::default()
    };
    // SAFETY: `attr` outlives the call and tells its own size; nothing else is passed by reference.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attr),
            ALL_PROCESSES,
            FIRST_CPU,
            NO_GROUP,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    owned(result)
}

/// Attaches `program` to the perf event `event` with `cookie`; closing the result detaches.
///
/// # Errors
/// The kernel's.
pub(crate) fn link_perf_event(program: BorrowedFd<'_>, event: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let attr = LinkPerfAttr {
        prog_fd: program.as_raw_fd().cast_unsigned(),
        target_fd: event.as_raw_fd().cast_unsigned(),
        attach_type: AttachType::PerfEvent as u32,
        bpf_cookie: cookie,
        ..LinkPerfAttr::default()
    };
    bpf_fd(BPF_LINK_CREATE, &attr)
}

/// `F_SETLEASE` or `F_GETLEASE` of fcntl(2).
fn lease(fd: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: both commands take an integer (`F_GETLEASE` ignores it) and no pointer; the descriptor is borrowed for the call.
    match unsafe { libc::fcntl(fd.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        kind => Ok(kind),
    }
}

/// Takes a read lease on a file, of which SIGIO tells when somebody is about to write.
///
/// # Errors
/// `EAGAIN` if somebody has it open for writing, others where there are no leases.
pub(crate) fn lease_for_reading(fd: BorrowedFd<'_>) -> io::Result<()> {
    lease(fd, libc::F_SETLEASE, libc::F_RDLCK).map(|_| ())
}

/// Whether the lease is there and nobody asks for it to be given up.
pub(crate) fn is_leased_for_reading(fd: BorrowedFd<'_>) -> bool {
    lease(fd, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK)
}

/// Gives up a lease.
///
/// # Errors
/// `EAGAIN` if there is none.
pub(crate) fn give_up_lease(fd: BorrowedFd<'_>) -> io::Result<()> {
    lease(fd, libc::F_SETLEASE, libc::F_UNLCK).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Offsets taken from `union bpf_attr` and `struct perf_event_attr` as a C compiler lays them out.
    #[test]
    fn attributes_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!(offset_of!(ProgLoadAttr, insns), 8);
        assert_eq!(offset_of!(ProgLoadAttr, log_buf), 32);
        assert_eq!(offset_of!(ProgLoadAttr, prog_name), 48);
        assert_eq!(offset_of!(ProgLoadAttr, expected_attach_type), 68);
        assert_eq!(offset_of!(LinkUprobeAttr, path), 16);
        assert_eq!(offset_of!(LinkUprobeAttr, cookies), 40);
        assert_eq!(offset_of!(LinkUprobeAttr, cnt), 48);
        assert_eq!(offset_of!(LinkUprobeAttr, pid), 56);
        assert_eq!(offset_of!(LinkPerfAttr, bpf_cookie), 16);
        assert_eq!(size_of::<PerfEventAttr>(), 64);
        assert_eq!(offset_of!(PerfEventAttr, config1), 56);
    }

    #[test]
    fn errors_are_the_kernels() {
        // No such command.
        let error = bpf_fd(9999, &LinkPerfAttr::default()).unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)), "{error}");
    }
}
