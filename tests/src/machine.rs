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

fn append(to: &mut Command, command: &Command) {
    to.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => to.env(key, value),
            None => to.env_remove(key),
        };
    }
}
