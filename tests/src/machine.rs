//! The machine, which the live tests have to themselves one at a time.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Holds the machine for one live test, across all test programs.
#[derive(Debug)]
pub struct Machine {
    _lock: File,
}

impl Machine {
    /// Waits for its turn; fails where live probes cannot work at all.
    #[track_caller]
    pub fn take() -> Self {
        assert!(rustix::process::geteuid().is_root(), "live probes need root: run `make test` as root");
        assert!(
            Path::new("/sys/kernel/btf/vmlinux").exists(),
            "live probes need a kernel with BTF (CONFIG_DEBUG_INFO_BTF)"
        );
        let path = std::env::temp_dir().join("ingero-tests.lock");
        let lock = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        lock.lock().unwrap();
        Self { _lock: lock }
    }

    /// How many CPUs there are to run on.
    pub fn cpus() -> usize {
        std::thread::available_parallelism().unwrap().get()
    }
}

/// The attach tiers, best first, and the first kernel that has each.
pub const TIERS: [(&str, (u32, u32)); 4] =
    [("session", (6, 13)), ("multi", (6, 6)), ("tracefs", (5, 15)), ("perf", (5, 15))];

/// The tiers that the running kernel must have by its version, best first.
pub fn tiers() -> Vec<&'static str> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap());
    let version: (u32, u32) = (numbers.next().unwrap(), numbers.next().unwrap());
    TIERS.iter().filter(|(_, since)| version >= *since).map(|(name, _)| *name).collect()
}

/// Whether the running kernel has a tier. If not, says that the test is skipped, as the kernel matrix counts it.
pub fn has_tier(name: &str) -> bool {
    let has = tiers().contains(&name);
    if !has {
        println!("skipped: this kernel has no {name} probes");
    }
    has
}

/// The same command as nobody, who may do nothing.
pub fn without_root(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    append(&mut wrapped, command);
    wrapped
}

/// The same command in a mount namespace of its own, prepared by `prepare` (a shell command).
pub fn in_mounts(prepare: &str, command: &Command) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--mount", "--", "sh", "-c", &format!("{prepare} && exec \"$@\""), "sh"]);
    append(&mut wrapped, command);
    wrapped
}

/// The same command as on a kernel without type information, with nothing in its place: tracefs is hidden too.
pub fn without_btf(command: &Command) -> Command {
    let hide = |place| format!("{{ [ ! -d {place} ] || mount -t tmpfs none {place}; }}");
    in_mounts(&["/sys/kernel/btf", "/sys/kernel/tracing", "/sys/kernel/debug"].map(hide).join(" && "), command)
}

/// The same command with tracefs where a tracer looks for it: mounted for it alone where it is not mounted already.
pub fn with_tracefs(command: &Command) -> Command {
    in_mounts("{ [ -e /sys/kernel/tracing/uprobe_events ] || mount -t tracefs none /sys/kernel/tracing; }", command)
}

fn append(to: &mut Command, command: &Command) {
    to.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => to.env(key, value),
            None => to.env_remove(key),
        };
    }
}
