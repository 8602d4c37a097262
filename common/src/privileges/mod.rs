//! What a tracer gives up once its probes are in place: capabilities, the right to gain new ones, and system calls.
//!
//! Root attaches the probes, and then only looks. So each thread of a tracer keeps the capabilities that it goes on needing
//! ([`TRACING`] for the one that attaches to libraries that appear later), sets `no_new_privs`, and is put under a filter of
//! system calls ([`filter`]). All three are properties of a *thread*: threads that it makes later inherit them, those that are
//! there already give up theirs by themselves. A command that is to run with all that we were given is started before.
//!
//! docs/security.md says against whom this is meant to help.

pub mod filter;

use std::fmt;
use std::io;

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

pub use filter::Work;

/// What it takes to go on tracing, each for:
///
/// | capability | for |
/// |---|---|
/// | `BPF`, `PERFMON` | probes on libraries that appear later; the kernel's lists of tasks; before Linux 5.19 any use of a map |
/// | `SYS_PTRACE` | `/proc/PID/maps`, `root` and `exe` of other users' processes |
/// | `DAC_READ_SEARCH` | libraries in directories that only their owner may enter |
/// | `CHECKPOINT_RESTORE` | `/proc/PID/map_files`: libraries that were deleted |
/// | `LEASE` | leases of library files that belong to others (`ingero_ebpf::hold`) |
///
/// `SYS_ADMIN`, which is nearly all of root, is needed besides only where the kernel asks for it to place a uprobe.
pub const TRACING: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE)
    .union(CapabilitySet::LEASE);

/// What a thread was left with. Displayed for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// Its capabilities.
    pub kept: CapabilitySet,
    /// Whether it is under a filter of system calls; kernels can be built without.
    pub filtered: bool,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.kept.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        let kept = if names.is_empty() { "no capability".to_owned() } else { names.join(", ") };
        let filter =
            if self.filtered { "" } else { "; this kernel has no filter of system calls (CONFIG_SECCOMP_FILTER)" };
        write!(f, "{kept}{filter}")
    }
}

/// Gives up, for good and for this thread, all capabilities but `keep`, the right to gain any by executing a program, and the
/// system calls that `work` has no use for.
///
/// # Errors
/// What the kernel has against it; a kernel without seccomp filters is no error.
pub fn confine(keep: CapabilitySet, work: &Work) -> io::Result<Confined> {
    // First, since it takes CAP_SETPCAP. Without that the set stays as it is, and `no_new_privs` alone has to do.
    empty_bounding_set(keep);
    let had = capabilities(None)?;
    let kept = had.permitted & keep;
    clear_ambient_capability_set()?;
    let effective = had.effective & keep;
    set_capabilities(None, CapabilitySets { effective, permitted: kept, inheritable: CapabilitySet::empty() })?;
    set_no_new_privs(true)?;
    let filtered = filter::apply(work)?;
    Ok(Confined { kept, filtered })
}

fn empty_bounding_set(keep: CapabilitySet) {
    for capability in CapabilitySet::all().difference(keep).iter() {
        // Those that this kernel does not know are refused.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            let _ = remove_capability_from_bounding_set(capability);
        }
    }
}

/// Whether `act` succeeds without `capability`, which this thread has again afterwards.
///
/// # Errors
/// When the capability cannot be laid down or taken up.
pub fn succeeds_without(capability: CapabilitySet, act: impl FnOnce() -> bool) -> io::Result<bool> {
    let had = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: had.effective.difference(capability), ..had })?;
    let succeeded = act();
    set_capabilities(None, had)?;
    Ok(succeeded)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;

    use super::*;

    /// The fields of this thread's status that begin with one of these.
    fn status(fields: &[&str]) -> String {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |field: &&str| status.lines().find(|line| line.starts_with(*field)).unwrap_or_default().to_owned();
        fields.iter().map(line).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_thread_is_left_with_what_it_keeps_and_others_are_as_before() {
        const FIELDS: [&str; 7] = ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp:"];
        let before = status(&FIELDS);
        let had = capabilities(None).unwrap().effective;
        let (confined, after, later) = thread::spawn(|| {
            let confined = confine(CapabilitySet::LEASE, &Work::of_tracer()).unwrap();
            (confined, status(&FIELDS), thread::spawn(|| status(&FIELDS)).join().unwrap())
        })
        .join()
        .unwrap();
        let lease = format!("{:016x}", (had & CapabilitySet::LEASE).bits());
        let none = "0".repeat(16);
        // Whoever has no CAP_SETPCAP, as an ordinary user, keeps the bounding set: it gives nothing by itself.
        let bounding = status(&["CapBnd:"]).replace("CapBnd:\t", "");
        let bounding = if had.contains(CapabilitySet::SETPCAP) { lease.clone() } else { bounding };
        assert_eq!(
            after,
            format!(
                "CapInh:\t{none} CapPrm:\t{lease} CapEff:\t{lease} CapBnd:\t{bounding} CapAmb:\t{none} NoNewPrivs:\t1 \
                 Seccomp:\t2"
            )
        );
        assert_eq!(later, after);
        assert!(confined.filtered && confined.kept == had & CapabilitySet::LEASE, "{confined}");
        assert_eq!(status(&FIELDS), before);
    }

    #[test]
    fn a_capability_that_was_tried_without_is_there_again() {
        let had = capabilities(None).unwrap();
        let without = CapabilitySet::SYS_ADMIN;
        let seen = |expected: bool| capabilities(None).is_ok_and(|now| now.effective.contains(without) == expected);
        assert!(succeeds_without(without, || seen(false)).unwrap());
        assert!(!succeeds_without(without, || seen(true)).unwrap());
        assert_eq!(capabilities(None).unwrap(), had);
    }

    #[test]
    fn what_is_kept_is_said_by_name() {
        let kept = CapabilitySet::BPF | CapabilitySet::LEASE;
        assert_eq!(Confined { kept, filtered: true }.to_string(), "CAP_LEASE, CAP_BPF");
        let none = Confined { kept: CapabilitySet::empty(), filtered: false }.to_string();
        assert!(none.starts_with("no capability; ") && none.contains("CONFIG_SECCOMP_FILTER"), "{none}");
    }
}
