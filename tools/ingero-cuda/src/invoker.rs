//! Who called `sudo`, and how a command becomes theirs again.
//!
//! What a user controls (the environment, the files that it names, the command) is none of root's business. So the order is:
//!
//! ```text
//! sudo                    root, with sudo's environment (env_reset, secure_path)
//!   ingero-cuda           root, the same; looks nothing up by a name of the user's
//!     fork, exec /proc/self/exe --run-as=UID:GID
//!       ingero-cuda       root, the same; reads the environment that sudo was called with, as bytes
//!                         groups, then gid, then uid: real, effective and saved; no capability is left
//!       exec COMMAND      the user, in their own environment: PATH, LD_LIBRARY_PATH, LD_PRELOAD count from here on
//! ```
//!
//! The user's own environment rather than sudo's, because a command's Python or CUDA environment is made of it, and because
//! it gives the user nothing that they do not have without sudo.

use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use ingero_common::discover::{ProcFs, Process};
use nix::unistd::{Gid, Uid, User, getgrouplist, seteuid, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};

use crate::command::NotStarted;

/// Who called `sudo`. Displayed and parsed as `UID:GID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invoker {
    uid: u32,
    gid: u32,
}

impl fmt::Display for Invoker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for Invoker {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let parsed = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
        // 2^32 - 1 means "leave it as it is" to the kernel.
        const MAX_ID: u32 = u32::MAX - 1;
        let Some((uid @ 1..=MAX_ID, gid @ 0..=MAX_ID)) = parsed else { bail!("is no UID:GID of a user") };
        Ok(Self { uid, gid })
    }
}

impl Invoker {
    /// Who called the `sudo` below which this process runs as root, as sudo tells in the environment.
    pub fn of_this_process() -> Option<Self> {
        Self::of(|name| std::env::var(name).ok(), rustix::process::geteuid().is_root())
    }

    fn of(env: impl Fn(&str) -> Option<String>, root: bool) -> Option<Self> {
        let invoker = format!("{}:{}", env("SUDO_UID")?, env("SUDO_GID")?).parse().ok()?;
        root.then_some(invoker)
    }

    /// Turns this process, which must have one thread, into `command`, run by the user. Returns only if it cannot be.
    pub fn run(self, command: &[OsString]) -> NotStarted {
        let (program, arguments) = match command.split_first() {
            Some((program, arguments)) => (program.as_os_str(), arguments),
            None => (OsStr::new(""), &[][..]),
        };
        let mut to_run = Command::new(program);
        to_run.args(arguments);
        let account = User::from_uid(Uid::from_raw(self.uid)).ok().flatten();
        self.set_environment(&mut to_run, account.as_ref());
        match self.become_user(account.as_ref()) {
            Ok(()) => NotStarted::new(program, &to_run.exec()),
            Err(error) => NotStarted::still_privileged(program, &error),
        }
    }

    /// Gives `command` the environment in which the user called `sudo`. It is data here, and counts from the command on.
    fn set_environment(self, command: &mut Command, account: Option<&User>) {
        if let Some(environ) = sudo_environment(self.uid) {
            command.env_clear().envs(environ);
            return;
        }
        // Not below a sudo that we can look at: ours, with the user's own name and directory.
        for name in ["SUDO_UID", "SUDO_GID", "SUDO_USER", "SUDO_COMMAND", "SUDO_HOME"] {
            command.env_remove(name);
        }
        if let Some(account) = account {
            command.env("HOME", &account.dir).env("USER", &account.name).env("LOGNAME", &account.name);
            command.env("SHELL", &account.shell);
        }
    }

    /// Gives up all that root has, for good.
    fn become_user(self, account: Option<&User>) -> anyhow::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        // By the supplementary groups devices may be guarded. Somebody without an account has none.
        let groups = match account {
            Some(account) => {
                let name = CString::new(account.name.as_bytes()).context("an account's name")?;
                getgrouplist(&name, gid).with_context(|| format!("looking up the groups of {}", account.name))?
            }
            None => vec![gid],
        };
        setgroups(&groups).context("setting the groups")?;
        setresgid(gid, gid, gid).context("setting the group id")?;
        clear_ambient_capability_set().context("clearing the ambient capabilities")?;
        setresuid(uid, uid, uid).context("setting the user id")?;
        // Capabilities go with the last user id of root, unless somebody set securebits to keep them.
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
            .context("dropping the capabilities")?;
        let left = capabilities(None).context("looking at the capabilities")?;
        ensure!(left.permitted.is_empty() && seteuid(Uid::from_raw(0)).is_err(), "root's privileges are still there");
        Ok(())
    }
}

/// The environment of the nearest `sudo` above us that `uid` called.
fn sudo_environment(uid: u32) -> Option<HashMap<OsString, OsString>> {
    let proc = ProcFs::default();
    let mut pid = std::process::id();
    // Between it and us: the tracer, and one or two processes of sudo's own where it logs.
    for _ in 0..5 {
        pid = proc.stat(pid).ok()?.parent_pid;
        // A name alone proves nothing. sudo has root's rights and, of itself, the real user id of whoever called it.
        let is_sudo =
            |process: Process| process.comm == b"sudo" && process.effective_uid == 0 && [0, uid].contains(&process.uid);
        if proc.process(pid).is_ok_and(is_sudo) {
            let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
            return Some(parse_environ(&environ)).filter(|variables| !variables.is_empty());
        }
    }
    None
}

/// `NAME=value` strings, each ended by a NUL.
fn parse_environ(bytes: &[u8]) -> HashMap<OsString, OsString> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (variable.get(..at)?, variable.get(at + 1..)?);
            (!name.is_empty()).then(|| (OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_below_sudo_becomes_somebody_else() {
        let sudo = |name: &str| match name {
            "SUDO_UID" => Some("1000".to_owned()),
            "SUDO_GID" => Some("100".to_owned()),
            _ => None,
        };
        assert_eq!(Invoker::of(sudo, true), Some(Invoker { uid: 1000, gid: 100 }));
        assert_eq!(Invoker::of(sudo, false), None);
        assert_eq!(Invoker::of(|_| None, true), None);
        assert_eq!(Invoker::of(|_| Some("0".to_owned()), true), None);
        assert_eq!(Invoker::of(|_| Some("1000; rm".to_owned()), true), None);
    }

    #[test]
    fn an_invoker_is_a_user_and_a_group() {
        let invoker = Invoker { uid: 1000, gid: 0 };
        assert_eq!(invoker.to_string().parse::<Invoker>().unwrap(), invoker);
        // Root, and what the kernel takes for "no change", would leave the privileges where they are.
        for bad in ["", "1000", "0:100", "4294967295:100", "100:4294967295", "-1:1", "1:1:1", "a:b"] {
            assert!(bad.parse::<Invoker>().is_err(), "{bad}");
        }
    }

    #[test]
    fn environments() {
        let environ = parse_environ(b"A=1\0B=x=y\0=odd\0none\0C=\0");
        assert_eq!(environ.len(), 3);
        assert_eq!(environ[OsStr::new("B")], OsStr::new("x=y"));
        assert_eq!(environ[OsStr::new("C")], OsStr::new(""));
    }
}
