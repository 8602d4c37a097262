//! Start-up checks and loading of a BPF object.
//!
//! What can be told before loading is told before loading: the kernel answers a missing capability, a lockdown and a
//! missing feature all alike with `EPERM` or `EINVAL`. Every failure is one line that names the missing thing and its
//! cure.
//!
//! ```no_run
//! # fn main() -> Result<(), ingero_ebpf::load::StartError> {
//! # let object: &[u8] = &[];
//! let kernel = ingero_ebpf::load::Kernel::check()?;
//! let threshold = 4096u64;
//! let ebpf = kernel.load(object, |loader| {
//!     loader.override_global("ring_wakeup_bytes", &threshold, true).map_max_entries("events", 1 << 20);
//! })?;
//! # Ok(()) }
//! ```

use std::fs;
use std::path::Path;

use aya::{Btf, Ebpf, EbpfLoader};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Where the running kernel shows its type information.
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// The first kernel whose uprobes carry attach cookies.
const MIN_KERNEL: (u32, u32) = (5, 15);

/// Open files that a tracer needs at most: maps, programs, links of some dozen libraries.
const NEEDED_FILES: u64 = 256;

/// The initial PID namespace's inode, from `linux/proc_ns.h` (`PROC_PID_INIT_INO`): the same on every machine since Linux 3.8.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Numbers of capabilities, from `linux/capability.h`.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Why tracing cannot start on this machine. Displays as one line: the missing thing, then the cure.
#[derive(Debug, Error)]
pub enum StartError {
    /// The kernel is older than 5.15.
    #[error("kernel {0} is too old: tracing needs Linux 5.15 or newer; upgrade the kernel")]
    OldKernel(String),
    /// Neither root nor the capabilities that BPF tracing asks for.
    #[error("not root: tracing needs {missing}; run it with sudo")]
    NotPrivileged {
        /// The capabilities that are missing, by name.
        missing: &'static str,
    },
    /// Root, but one that may not trace.
    #[error(
        "root here has not the capabilities that tracing needs ({missing}), as in a container: give them to it (docker run \
         --privileged --pid=host), or run on the host"
    )]
    RootWithout {
        /// The capabilities that are missing, by name.
        missing: &'static str,
    },
    /// Another PID namespace than the initial one.
    #[error(
        "this is a container with process numbers of its own, and the kernel's probes tell of processes by the host's; give it \
         the host's (docker run --pid=host; hostPID: true in Kubernetes), or run it on the host"
    )]
    PidNamespace,
    /// `/proc` is not there, or is another one.
    #[error("cannot read /proc/self/status: {0}; mount it: mount -t proc proc /proc")]
    NoProc(String),
    /// Too few files may be open at once, and that limit may not be raised.
    #[error(
        "only {limit} files may be open at once (RLIMIT_NOFILE), and tracing needs {NEEDED_FILES}; raise the limit: ulimit -n \
         1024"
    )]
    FewFiles {
        /// The limit.
        limit: u64,
    },
    /// The kernel forbids BPF programs to read kernel memory.
    #[error(
        "the kernel is locked down (confidentiality), which forbids BPF programs to read kernel memory; boot with \
         lockdown=integrity or without lockdown"
    )]
    LockedDown,
    /// The kernel has no type information.
    #[error(
        "no BTF: {KERNEL_BTF} is missing, so field offsets of this kernel are not known; use a kernel built with \
         CONFIG_DEBUG_INFO_BTF=y{}",
        if *.wsl { " (this is WSL: update its kernel with `wsl --update`)" } else { "" }
    )]
    NoBtf {
        /// Whether this is the Windows Subsystem for Linux.
        wsl: bool,
    },
    /// The kernel's type information cannot be read.
    #[error("cannot read the kernel's BTF from {KERNEL_BTF}: {0}; it may be hidden by this container, run on the host")]
    BadBtf(String),
    /// tracefs is needed (kernels before 6.6) and is not mounted.
    #[error(
        "tracefs is not mounted, and the tracefs probes need it (Linux 6.6 has better ones); mount it: mount -t tracefs \
         tracefs /sys/kernel/tracing"
    )]
    NoTracefs,
    /// The file that makes the tracefs tier's probes is root's.
    #[error(
        "cannot write to tracefs's uprobe_events: {0}; it is root's, so that other users need CAP_DAC_OVERRIDE besides; use another \
         --probe-mode, or run it with sudo"
    )]
    TracefsDenied(std::io::Error),
    /// Tracing without BTF reads the layout of trace events from tracefs.
    #[error(
        "tracefs is not mounted, and tracing without BTF reads the layout of trace events from it; mount it: mount -t tracefs \
         tracefs /sys/kernel/tracing"
    )]
    NoFormats,
    /// A trace event has not the field that it should have.
    #[error(
        "the kernel's trace event {event} has no field {field} of the expected size; please report it with the kernel version"
    )]
    OddFormat {
        /// The event, by its directory in tracefs.
        event: String,
        /// The field.
        field: &'static str,
    },
    /// The tier that was asked for does not exist here.
    #[error("this kernel has no {mode} probes (they need Linux {since}); use --probe-mode auto")]
    NoMode {
        /// Its name.
        mode: &'static str,
        /// The first kernel that has it.
        since: &'static str,
    },
    /// No tier exists here.
    #[error(
        "this kernel has no user space probes; use one built with CONFIG_UPROBES=y and CONFIG_BPF_EVENTS=y (under WSL: \
         `wsl --update`)"
    )]
    NoUprobes,
    /// The kernel refused the program or a map.
    #[error("the kernel refused {what}: {why}; {cure}")]
    Refused {
        /// The program, map or object concerned.
        what: String,
        /// The kernel's reason: the errno and the verifier's last line.
        why: String,
        /// What to try.
        cure: &'static str,
    },
}

impl StartError {
    /// Turns an error of aya's about `what` into one line with a cure.
    pub fn refused(what: impl Into<String>, error: &(dyn std::error::Error + 'static)) -> Self {
        let why = one_line(error);
        let cure = if why.contains("Too many open files") {
            "raise the limit of open files: ulimit -n 1024"
        } else if why.contains("Operation not permitted") || why.contains("Permission denied") {
            "run as root on the host; kernels with the 2025 uprobe hardening ask for CAP_SYS_ADMIN"
        } else if why.contains("Cannot allocate memory") {
            "free some memory or ask for a smaller ring buffer"
        } else if is_wsl(&os_release()) {
            "this is WSL: its kernel may lack CONFIG_UPROBES or CONFIG_BPF_EVENTS; update it with `wsl --update`"
        } else {
            "please report it with the kernel version"
        };
        Self::Refused { what: what.into(), why, cure }
    }
}

/// The running kernel, checked, with its type information.
#[derive(Debug)]
pub struct Kernel {
    btf: Btf,
    release: String,
}

impl Kernel {
    /// Checks that BPF programs can be loaded here.
    ///
    /// # Errors
    /// A [`StartError`] for an old kernel, missing privilege, lockdown or missing BTF.
    pub fn check() -> Result<Self, StartError> {
        let release = check_machine()?;
        if !Path::new(KERNEL_BTF).exists() {
            return Err(StartError::NoBtf { wsl: is_wsl(&release) });
        }
        let btf = Btf::from_sys_fs().map_err(|e| StartError::BadBtf(one_line(&e)))?;
        Ok(Self { btf, release })
    }

    /// The kernel's types, to which programs are fitted.
    pub fn btf(&self) -> &Btf {
        &self.btf
    }

    /// The release, as `uname -r` prints it.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Creates the maps of `object` and prepares its programs; none is loaded or attached yet.
    ///
    /// `configure` sets globals and map sizes. Maps of types that aya does not know (task storage) are created too, and are
    /// for the BPF side only. Memory for maps is charged to the cgroup on every kernel we support, so no
    /// `RLIMIT_MEMLOCK` has to be lifted.
    ///
    /// # Errors
    /// [`StartError::Refused`] with the kernel's reason.
    pub fn load<'a>(&'a self, object: &[u8], configure: impl FnOnce(&mut EbpfLoader<'a>)) -> Result<Ebpf, StartError> {
        let mut loader = EbpfLoader::new();
        loader.btf(Some(&self.btf)).allow_unsupported_maps();
        configure(&mut loader);
        loader.load(object).map_err(|e| StartError::refused("the BPF object", &e))
    }
}

/// Checks that BPF programs can be loaded here, type information apart; the kernel's release.
///
/// # Errors
/// A [`StartError`] for an old kernel, too few open files, missing privilege, a PID namespace of its own or lockdown.
pub fn check_machine() -> Result<String, StartError> {
    let release = os_release();
    check_release(&release)?;
    allow_files()?;
    let status = fs::read_to_string("/proc/self/status").map_err(|e| StartError::NoProc(e.to_string()))?;
    check_capabilities(effective_capabilities(&status), rustix::process::geteuid().is_root())?;
    check_pid_namespace(&fs::read_link("/proc/self/ns/pid").unwrap_or_default())?;
    // Absent where no security module offers lockdown; then there is none.
    check_lockdown(&fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default())?;
    Ok(release)
}

/// An error with all its causes on one line, each said once, and of a verifier log just the last line.
fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        let text = match text.split_once("Verifier output:") {
            Some((head, log)) => {
                // The verifier ends with statistics; the reason is the last line before them.
                let reason = log
                    .lines()
                    .map(str::trim)
                    .filter(|line| {
                        !line.is_empty() && !line.starts_with("processed ") && !line.starts_with("verification time")
                    })
                    .rfind(|line| !line.starts_with("stack depth"));
                format!("{} {}", head.trim(), reason.unwrap_or_default()).trim().to_owned()
            }
            None => text.lines().map(str::trim).collect::<Vec<_>>().join(" "),
        };
        if parts.last().is_none_or(|last| !last.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    parts.join(": ")
}

fn os_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether `release` is that of a WSL kernel (`5.15.153.1-microsoft-standard-WSL2`).
fn is_wsl(release: &str) -> bool {
    release.to_ascii_lowercase().contains("microsoft")
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|n| n.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next()?))
}

fn check_release(release: &str) -> Result<(), StartError> {
    match version(release) {
        Some(version) if version >= MIN_KERNEL => Ok(()),
        _ => Err(StartError::OldKernel(release.to_owned())),
    }
}

/// The effective capability set (`CapEff`) in the text of `/proc/PID/status`; none where it is not said.
fn effective_capabilities(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

/// Lifts the limit of open files as far as it takes and as it goes.
fn allow_files() -> Result<(), StartError> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|limit| limit >= NEEDED_FILES) {
        return Ok(());
    }
    let most = limits.maximum.map_or(NEEDED_FILES, |most| most.min(NEEDED_FILES));
    // What does not work shows in what the limit is then.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limits });
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < NEEDED_FILES => Err(StartError::FewFiles { limit }),
        _ => Ok(()),
    }
}

/// Open files that a tracer of many libraries asks for. A quarter of it does on the best tiers.
const WANTED_FILES: u64 = 16 << 10;

/// Lifts the limit of open files for many libraries, as far as it goes, and returns it. Programs that are started afterwards
/// inherit it.
pub fn allow_many_files() -> u64 {
    let limits = getrlimit(Resource::Nofile);
    let wanted = |limit: Option<u64>| limit.map(|limit| limit.max(WANTED_FILES));
    // The first needs CAP_SYS_RESOURCE where it lifts the hard limit; the second is anybody's.
    let both = Rlimit { current: wanted(limits.current), maximum: wanted(limits.maximum) };
    if setrlimit(Resource::Nofile, both).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
    }
    open_files()
}

/// How many files may be open at once.
pub fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn check_capabilities(effective: u64, root: bool) -> Result<(), StartError> {
    let has = |capability: u32| effective & (1 << capability) != 0;
    let missing = match (has(CAP_SYS_ADMIN), has(CAP_BPF), has(CAP_PERFMON)) {
        (true, _, _) | (false, true, true) => return Ok(()),
        (false, true, false) => "CAP_PERFMON besides CAP_BPF",
        (false, false, true) => "CAP_BPF besides CAP_PERFMON",
        (false, false, false) => "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN",
    };
    Err(if root { StartError::RootWithout { missing } } else { StartError::NotPrivileged { missing } })
}

/// `namespace` is what the link `/proc/self/ns/pid` shows; empty on a kernel without namespaces.
fn check_pid_namespace(namespace: &Path) -> Result<(), StartError> {
    let initial = namespace.as_os_str().is_empty() || namespace == Path::new(INITIAL_PID_NAMESPACE);
    if initial { Ok(()) } else { Err(StartError::PidNamespace) }
}

/// `text` is the content of `/sys/kernel/security/lockdown`, such as `none [integrity] confidentiality`.
fn check_lockdown(text: &str) -> Result<(), StartError> {
    if text.contains("[confidentiality]") { Err(StartError::LockedDown) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn releases() {
        for good in ["5.15.0", "5.15", "6.1.176-amd64", "6.18.44-fc", "10.0.1"] {
            assert!(check_release(good).is_ok(), "{good}");
        }
        for bad in ["5.14.21", "4.18.0-553.el8.x86_64", "", "unknown"] {
            let message = check_release(bad).unwrap_err().to_string();
            assert!(message.contains(bad) && message.contains("5.15"), "{message}");
        }
    }

    #[test]
    fn capabilities() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n";
        assert_eq!(effective_capabilities(status), 0x1ff_ffff_ffff);
        assert!(check_capabilities(0x1ff_ffff_ffff, true).is_ok());
        assert!(check_capabilities(1 << CAP_SYS_ADMIN, false).is_ok());
        assert!(check_capabilities(1 << CAP_BPF | 1 << CAP_PERFMON, false).is_ok());
        for (set, word) in
            [(0, "CAP_BPF and"), (1 << CAP_BPF, "CAP_PERFMON besides"), (1 << CAP_PERFMON, "CAP_BPF besides")]
        {
            let message = check_capabilities(set, false).unwrap_err().to_string();
            assert!(message.starts_with("not root") && message.contains(word) && message.contains("sudo"), "{message}");
            let message = check_capabilities(set, true).unwrap_err().to_string();
            assert!(message.starts_with("root here") && message.contains(word), "{message}");
        }
    }

    #[test]
    fn pid_namespaces() {
        assert!(check_pid_namespace(Path::new("pid:[4026531836]")).is_ok());
        assert!(check_pid_namespace(Path::new("")).is_ok());
        assert!(matches!(check_pid_namespace(Path::new("pid:[4026532251]")), Err(StartError::PidNamespace)));
    }

    #[test]
    fn lockdown() {
        assert!(check_lockdown("").is_ok());
        assert!(check_lockdown("[none] integrity confidentiality\n").is_ok());
        assert!(check_lockdown("none [integrity] confidentiality\n").is_ok());
        assert!(matches!(check_lockdown("none integrity [confidentiality]\n"), Err(StartError::LockedDown)));
    }

    #[test]
    fn every_error_is_one_line_with_a_cure() {
        let all = [
            (StartError::OldKernel("4.18".into()), "upgrade"),
            (StartError::NotPrivileged { missing: "CAP_BPF" }, "sudo"),
            (StartError::RootWithout { missing: "CAP_BPF" }, "--privileged"),
            (StartError::NoProc("x".into()), "mount -t proc"),
            (StartError::PidNamespace, "--pid=host"),
            (StartError::LockedDown, "boot with"),
            (StartError::FewFiles { limit: 16 }, "ulimit -n"),
            (StartError::refused("map x", &io::Error::from_raw_os_error(24)), "ulimit -n"),
            (StartError::NoBtf { wsl: false }, "CONFIG_DEBUG_INFO_BTF"),
            (StartError::NoBtf { wsl: true }, "wsl --update"),
            (StartError::BadBtf("x".into()), "run on the host"),
            (StartError::NoTracefs, "mount -t tracefs"),
            (StartError::TracefsDenied(io::Error::from_raw_os_error(13)), "CAP_DAC_OVERRIDE"),
            (StartError::NoMode { mode: "session", since: "6.13" }, "--probe-mode auto"),
            (StartError::NoUprobes, "CONFIG_UPROBES"),
            (StartError::NoFormats, "mount -t tracefs"),
            (StartError::OddFormat { event: "sched/sched_switch".into(), field: "prev_pid" }, "report"),
            (StartError::refused("program x", &io::Error::from_raw_os_error(1)), "CAP_SYS_ADMIN"),
            (StartError::refused("map x", &io::Error::from_raw_os_error(12)), "smaller ring"),
        ];
        for (error, cure) in all {
            let message = error.to_string();
            assert!(message.contains(cure) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_verifier_log_is_cut_to_its_reason() {
        #[derive(Debug, Error)]
        #[error(
            "the BPF_PROG_LOAD syscall returned EACCES. Verifier output: 0: R1=ctx()\n1: (79) r0 = *(u64 *)(r2 +0)\nR2 !read_ok\nprocessed 2 insns (limit 1000000)\n"
        )]
        struct Log;
        let text = one_line(&Log);
        assert!(text.ends_with("R2 !read_ok") && !text.contains("R1=ctx"), "{text}");
    }
}
