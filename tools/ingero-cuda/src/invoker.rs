//! How a command becomes that of whoever called `sudo` ([`Invoker`]) again.
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
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, ensure};
use ingero_common::discover::{ProcFs, Process};
use ingero_common::invoker::Invoker;
use nix::unistd::{Gid, Uid, User, seteuid, setgroups, setresgid, setresuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities};

use crate::command::NotStarted;

/// Turns this process, which must have one thread, into `command`, run by the user. Returns only if it cannot be.
pub fn run(invoker: Invoker, command: &[OsString]) -> NotStarted {
    let (program, arguments) = match command.split_first() {
        Some((program, arguments)) => (program.as_os_str(), arguments),
        None => (OsStr::new(""), &[][..]),
    };
    let mut to_run = Command::new(program);
    to_run.args(arguments);
    let account = invoker.account();
    set_environment(invoker, &mut to_run, account.as_ref());
    match become_user(invoker, account.as_ref()) {
        Ok(()) => NotStarted::new(program, &to_run.exec()),
        Err(error) => NotStarted::still_privileged(program, &error),
    }
}

/// Gives `command` the environment in which the user called `sudo`. It is data here, and counts from the command on.
fn set_environment(invoker: Invoker, command: &mut Command, account: Option<&User>) {
    if let Some(environ) = sudo_environment(invoker.uid()) {
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
fn become_user(invoker: Invoker, account: Option<&User>) -> anyhow::Result<()> {
    let (uid, gid) = (Uid::from_raw(invoker.uid()), Gid::from_raw(invoker.gid()));
    setgroups(&invoker.groups(account).context("looking up the groups")?).context("setting the groups")?;
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
    fn environments() {
        let environ = parse_environ(b"A=1\0B=x=y\0=odd\0none\0C=\0");
        assert_eq!(environ.len(), 3);
        assert_eq!(environ[OsStr::new("B")], OsStr::new("x=y"));
        assert_eq!(environ[OsStr::new("C")], OsStr::new(""));
    }
}
