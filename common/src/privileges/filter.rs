//! The system calls that a tracer has no use for, and that somebody who has taken it over would have.
//!
//! A list of what is denied rather than of what is allowed: what a C library, a driver's library or a newer kernel use besides
//! must not end a tracer in its tenth hour. What is denied fails with `EPERM`. Each group below has its reason.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{BackendError, BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

/// What a thread is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// It may open files for writing (devices), and local sockets.
    drives_devices: bool,
    /// It may load programs into the kernel.
    loads_programs: bool,
    /// A process that it may send signals to, beside its own.
    command: Option<u32>,
}

impl Work {
    /// Reads what the kernel and `/proc` say, places probes, and writes to what is open.
    pub fn of_tracer() -> Self {
        Self { drives_devices: false, loads_programs: false, command: None }
    }

    /// The same, and it ends the process `command`, if there is one.
    #[must_use]
    pub fn ending(self, command: Option<u32>) -> Self {
        Self { command, ..self }
    }

    /// The same, and if `loads` it loads programs into the kernel.
    #[must_use]
    pub fn loading_programs(self, loads: bool) -> Self {
        Self { loads_programs: loads, ..self }
    }

    /// Asks a device's library, which opens the device and may ask a daemon on this machine.
    pub fn of_device_reader() -> Self {
        Self { drives_devices: true, ..Self::of_tracer() }
    }
}

/// Puts this thread under the filter. `false` where the kernel has none.
///
/// # Errors
/// What the kernel has against it.
pub(super) fn apply(work: &Work) -> io::Result<bool> {
    use seccompiler::Error::{Prctl, Seccomp};
    let program = program(work).map_err(io::Error::other)?;
    match seccompiler::apply_filter(&program) {
        Ok(()) => Ok(true),
        // A kernel without seccomp (ENOSYS), or without its filters (EINVAL).
        Err(Prctl(error) | Seccomp(error)) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL)) => {
            Ok(false)
        }
        Err(Prctl(error) | Seccomp(error)) => Err(error),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn program(work: &Work) -> Result<BpfProgram, BackendError> {
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules(work)?, SeccompAction::Allow, denied, arch)?.try_into()
}

/// Calls by number, each with the rules of which one must hold for it to be denied; none: always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(work: &Work) -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for group in [&PROGRAMS[..], &OTHERS[..], &KERNEL[..], &PLACES[..], &IDENTITY[..], &FILES[..], &AROUND[..]] {
        rules.extend(group.iter().map(|call| (*call, Vec::new())));
    }
    #[cfg(target_arch = "x86_64")]
    rules.extend(OLD.iter().map(|call| (*call, Vec::new())));

    // The programs and their maps are in the kernel; from now on only links are made.
    if !work.loads_programs {
        let command = |command| rule([condition(0, Eq, command)?]);
        let loads = vec![command(BPF_MAP_CREATE)?, command(BPF_PROG_LOAD)?, command(BPF_BTF_LOAD)?];
        rules.insert(libc::SYS_bpf, loads);
    }
    // Root's network, and with it each daemon that obeys root on a socket.
    let socket = if work.drives_devices { vec![rule([condition(0, Ne, libc::AF_UNIX)?])?] } else { Vec::new() };
    rules.insert(libc::SYS_socket, socket);
    if !work.drives_devices {
        // Root's files are root's without any capability.
        rules.insert(libc::SYS_openat, writing(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_open, writing(1)?);
    }
    // Signals to anybody but ourselves and the command that we run.
    let own = std::process::id();
    let strangers = [Some(own), work.command]
        .into_iter()
        .flatten()
        .map(|pid| condition(0, Ne, pid.cast_signed()))
        .collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_kill, vec![SeccompRule::new(strangers)?]);
    rules.insert(libc::SYS_tgkill, vec![rule([condition(0, Ne, own.cast_signed())?])?]);
    #[cfg(target_arch = "x86_64")]
    deny_x32(&mut rules);
    Ok(rules)
}

/// On kernels with the x32 interface each call is there a second time, and some a third time, under other numbers.
#[cfg(target_arch = "x86_64")]
fn deny_x32(rules: &mut Rules) {
    /// `__X32_SYSCALL_BIT` (`asm/unistd.h`).
    const X32: i64 = 0x4000_0000;
    /// The calls that x32 has of its own (`syscall_64.tbl`), execve and ptrace among them.
    const OWN: std::ops::RangeInclusive<i64> = 512..=547;
    let again: Vec<_> = rules.iter().map(|(call, rules)| (X32 | call, rules.clone())).collect();
    rules.extend(again);
    rules.extend(OWN.map(|call| (X32 | call, Vec::new())));
}

/// Rules for an `open` whose flags are argument `flags`: all that is no plain reading.
fn writing(flags: u8) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |mask: libc::c_int, value: libc::c_int| {
        rule([condition(flags, MaskedEq(u64::from(mask.unsigned_abs())), value)?])
    };
    Ok(vec![
        is(libc::O_ACCMODE, libc::O_WRONLY)?,
        is(libc::O_ACCMODE, libc::O_RDWR)?,
        // For ioctl(2) alone, which takes the right to write too.
        is(libc::O_ACCMODE, libc::O_ACCMODE)?,
        is(libc::O_CREAT, libc::O_CREAT)?,
        is(libc::O_TRUNC, libc::O_TRUNC)?,
    ])
}

fn condition(
    argument: u8,
    operator: seccompiler::SeccompCmpOp,
    value: libc::c_int,
) -> Result<SeccompCondition, BackendError> {
    // The kernel takes the lower half of the register for an int.
    SeccompCondition::new(argument, Dword, operator, u64::from(value.cast_unsigned()))
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.to_vec())
}

/// `enum bpf_cmd`.
const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_BTF_LOAD: libc::c_int = 18;

/// Other programs: none is run.
const PROGRAMS: [c_long; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// Other processes: CAP_SYS_PTRACE is kept to look at them, not to touch them.
const OTHERS: [c_long; 10] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// The kernel itself: modules, another kernel, its clock, swap.
const KERNEL: [c_long; 11] = [
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
];

/// Other places than the one that we were started in: mounts, roots, namespaces; and files by their number on the disk, which
/// CAP_DAC_READ_SEARCH would open out of any container.
const PLACES: [c_long; 13] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
];

/// Another identity, and root's keys.
const IDENTITY: [c_long; 13] = [
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_personality,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
];

/// Changes of files other than by what is open already. (`openat2` hides its flags from a filter; nothing here uses it.)
const FILES: [c_long; 18] = [
    libc::SYS_openat2,
    libc::SYS_truncate,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// Ways around a filter, and where the kernel has had its weak spots.
const AROUND: [c_long; 2] = [libc::SYS_io_uring_setup, libc::SYS_userfaultfd];

/// What newer architectures do without.
#[cfg(target_arch = "x86_64")]
const OLD: [c_long; 15] = [
    libc::SYS_creat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_kexec_file_load,
];

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::process::Command;
    use std::thread;

    use rustix::fs::{Mode, OFlags, open};
    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketType, socket};
    use rustix::process::{Pid, Signal, kill_process, test_kill_process};

    use super::*;

    fn under<T: Send + 'static>(work: Work, act: impl FnOnce() -> T + Send + 'static) -> T {
        let confined = thread::spawn(move || {
            assert!(apply_unprivileged(&work));
            act()
        });
        confined.join().unwrap()
    }

    /// A filter takes `no_new_privs` or CAP_SYS_ADMIN.
    fn apply_unprivileged(work: &Work) -> bool {
        rustix::thread::set_no_new_privs(true).unwrap();
        apply(work).unwrap()
    }

    fn refused<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
    }

    #[test]
    fn files_are_read_and_none_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "old").unwrap();
        let new = dir.path().join("new");
        let (file, dir_path) = (file.clone(), dir.path().to_owned());
        under(Work::of_tracer(), move || {
            assert_eq!(fs::read(&file).unwrap(), b"old");
            assert_eq!(fs::read_dir(&dir_path).unwrap().count(), 1);
            assert!(refused(File::create(&new)) && refused(File::create_new(&new)));
            assert!(refused(File::options().append(true).open(&file)));
            assert!(refused(File::options().read(true).write(true).open(&file)));
            for flags in [OFlags::RDONLY | OFlags::TRUNC, OFlags::RDONLY | OFlags::CREATE, OFlags::RWMODE] {
                assert_eq!(open(&file, flags, Mode::RUSR).unwrap_err(), Errno::PERM, "{flags:?}");
            }
            assert!(refused(fs::remove_file(&file)) && refused(fs::rename(&file, &new)));
            assert!(refused(fs::hard_link(&file, &new)) && refused(std::os::unix::fs::symlink(&file, &new)));
            assert!(refused(fs::create_dir(&new)) && refused(fs::remove_dir(&dir_path)));
            assert!(refused(fs::set_permissions(&file, fs::metadata(&file).unwrap().permissions())));
            assert_eq!(fs::read(&file).unwrap(), b"old");
        });
        drop(dir);
    }

    #[test]
    fn no_program_no_socket_no_other_place() {
        under(Work::of_tracer(), || {
            let error = Command::new("true").spawn().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
            for family in [AddressFamily::INET, AddressFamily::INET6, AddressFamily::NETLINK, AddressFamily::UNIX] {
                assert_eq!(socket(family, SocketType::DGRAM, None).unwrap_err(), Errno::PERM);
            }
            // What has been connected from the start is no way out.
            assert!(UnixStream::pair().is_ok());
            assert!(nix::unistd::chroot(Path::new("/")).is_err_and(|error| error == nix::Error::EPERM));
        });
    }

    #[test]
    fn signals_reach_nobody_but_ourselves_and_the_command() {
        let mut sleepers = [(); 2].map(|()| Command::new("sleep").arg("60").spawn().unwrap());
        let [command, stranger] = sleepers.each_ref().map(std::process::Child::id);
        under(Work::of_tracer().ending(Some(command)), move || {
            let of = |pid: u32| Pid::from_raw(pid.cast_signed()).unwrap();
            let own = of(std::process::id());
            assert_eq!(kill_process(of(stranger), Signal::TERM), Err(Errno::PERM));
            test_kill_process(own).unwrap();
            kill_process(of(command), Signal::TERM).unwrap();
        });
        assert!(!sleepers[0].wait().unwrap().success());
        assert!(sleepers[1].try_wait().unwrap().is_none());
        sleepers[1].kill().unwrap();
        sleepers[1].wait().unwrap();
    }

    #[test]
    fn a_device_reader_opens_devices_and_local_sockets_alone() {
        under(Work::of_device_reader(), || {
            File::options().read(true).write(true).open("/dev/null").unwrap();
            socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
            assert_eq!(socket(AddressFamily::INET, SocketType::STREAM, None).unwrap_err(), Errno::PERM);
            assert!(Command::new(OsStr::new("true")).spawn().is_err());
        });
    }

    /// Each number once: a call in two groups would have two reasons.
    #[test]
    fn each_call_is_denied_for_one_reason() {
        let groups = [&PROGRAMS[..], &OTHERS[..], &KERNEL[..], &PLACES[..], &IDENTITY[..], &FILES[..], &AROUND[..]];
        let mut all: Vec<c_long> = groups.concat();
        #[cfg(target_arch = "x86_64")]
        all.extend(OLD);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_x32_interface_is_no_way_around() {
        let rules = rules(&Work::of_tracer()).unwrap();
        for call in [libc::SYS_execve, libc::SYS_openat, libc::SYS_bpf, 520, 521, 545] {
            assert!(rules.contains_key(&(0x4000_0000 | call)), "{call}");
        }
    }
}
