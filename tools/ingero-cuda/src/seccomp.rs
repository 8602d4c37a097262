//! Whether a return probe can kill a process that is under a system-call filter.
//!
//! On x86-64, Linux 6.11 made the trampoline that a return probe puts on the stack use a system call, `uretprobe` (335).
//! A filter that does not know the number may refuse it, and many kill: systemd's own daemons died of it
//! (<https://github.com/systemd/systemd/issues/34615>). Linux 6.14 lets that call pass unfiltered, and the fix went into
//! later releases of 6.12 and 6.13. Where exactly is not told reliably by the version, since distributions backport, so a
//! doubtful kernel counts as dangerous: what that costs is the calls of such processes.

use ingero_common::discover::Seccomp;

/// The first releases of stable series that are taken to be safe.
const SAFE_FROM: [(u32, u32, u32); 2] = [(6, 12, 20), (6, 13, 8)];

/// Whether return probes are dangerous on a kernel of this release (`uname -r`) to processes under a filter.
pub fn return_probes_can_kill(release: &str) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else { return true };
    let patch = numbers.next().unwrap_or(0);
    match (major, minor) {
        (6, 11) => true,
        (6, 12 | 13) => SAFE_FROM.iter().any(|safe| (safe.0, safe.1) == (major, minor) && patch < safe.2),
        _ => false,
    }
}

/// Whether a process is under a filter.
pub fn is_filtered(seccomp: Seccomp) -> bool {
    seccomp != Seccomp::Off
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_kernels_in_between_are_dangerous() {
        for dangerous in ["6.11.0-19-generic", "6.11", "6.12.9", "6.13.0-rc4", "6.13.7", "unknown"] {
            assert!(return_probes_can_kill(dangerous), "{dangerous}");
        }
        for safe in ["5.15.0-1-amd64", "6.10.14", "6.12.20", "6.12.111", "6.13.8", "6.14.0", "6.18.44-fc", "7.0.1"] {
            assert!(!return_probes_can_kill(safe), "{safe}");
        }
    }
}
