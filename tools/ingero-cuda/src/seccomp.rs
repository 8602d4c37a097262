//! Whether a return probe can kill a process that is under a system-call filter.
//!
//! On x86-64, Linux 6.11 made the trampoline that a return probe puts on the stack use a system call, `uretprobe` (335).
//! A filter that does not know the number may refuse it, and many kill: systemd's own daemons died of it
//! (<https://github.com/systemd/systemd/issues/34615>). Linux 6.14 lets that call pass unfiltered ("seccomp: passthrough
//! uretprobe systemcall without filtering"). 6.12.14 has that too, by Debian's changelog of linux 6.12.15-1, and Debian's
//! 6.12.117 was seen to spare such processes; of 6.13 it is known that later releases have it. Distributions backport, so a
//! doubtful kernel counts as dangerous: what that costs is the durations of such processes' calls, of which only the entries
//! are probed there.

use ingero_common::discover::Seccomp;

use crate::options::EntryOnly;

/// The first releases of stable series that are taken to be safe.
const SAFE_FROM: [(u32, u32, u32); 2] = [(6, 12, 14), (6, 13, 8)];

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

/// Whose calls get no return probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// Nobody's.
    Nobody,
    /// Those of processes under a filter.
    Filtered,
    /// Everybody's.
    Everybody,
}

impl Spared {
    /// What the user asks for, on a kernel of this release.
    pub fn new(asked: EntryOnly, release: &str) -> Self {
        match asked {
            EntryOnly::Always => Self::Everybody,
            EntryOnly::Seccomp => Self::Filtered,
            EntryOnly::Auto if return_probes_can_kill(release) => Self::Filtered,
            EntryOnly::Auto => Self::Nobody,
        }
    }

    /// Whether a process under this filter is among them.
    pub fn includes(self, seccomp: Seccomp) -> bool {
        match self {
            Self::Nobody => false,
            Self::Filtered => seccomp != Seccomp::Off,
            Self::Everybody => true,
        }
    }

    /// Whether a process may come to be among them while it runs.
    pub fn can_grow(self) -> bool {
        self == Self::Filtered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_comes_before_what_the_kernel_needs() {
        let spared = |asked| Spared::new(asked, "6.18.0");
        assert_eq!(spared(EntryOnly::Auto), Spared::Nobody);
        assert_eq!(spared(EntryOnly::Seccomp), Spared::Filtered);
        assert_eq!(spared(EntryOnly::Always), Spared::Everybody);
        assert!(Spared::Filtered.includes(Seccomp::Filter) && Spared::Filtered.includes(Seccomp::Strict));
        assert!(!Spared::Filtered.includes(Seccomp::Off) && Spared::Everybody.includes(Seccomp::Off));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_dangerous_kernel_spares_who_is_under_a_filter() {
        assert_eq!(Spared::new(EntryOnly::Auto, "6.11.0"), Spared::Filtered);
        assert_eq!(Spared::new(EntryOnly::Always, "6.11.0"), Spared::Everybody);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_kernels_in_between_are_dangerous() {
        for dangerous in ["6.11.0-19-generic", "6.11", "6.12.13", "6.13.0-rc4", "6.13.7", "unknown"] {
            assert!(return_probes_can_kill(dangerous), "{dangerous}");
        }
        for safe in [
            "5.15.0-1-amd64",
            "6.10.14",
            "6.12.14",
            "6.12.117+deb12-cloud-amd64",
            "6.13.8",
            "6.14.0",
            "6.18.44-fc",
            "7.0.1",
        ] {
            assert!(!return_probes_can_kill(safe), "{safe}");
        }
    }
}
