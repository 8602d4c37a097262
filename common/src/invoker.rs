//! Who called `sudo`: what is made for them is theirs, and is made with their rights.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::str::FromStr;

use anyhow::bail;
use nix::unistd::{Gid, Uid, User, getgrouplist, setfsgid, setfsuid};
use rustix::process::getgroups;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups};

/// Capabilities that let a process access files of others. Root's stay root's when only the user id for files changes, if
/// somebody set the securebits for that.
const OTHERS_FILES: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

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

    /// Their user id.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Their group id.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Their account; `None` for an id without one.
    pub fn account(self) -> Option<User> {
        User::from_uid(Uid::from_raw(self.uid)).ok().flatten()
    }

    /// Their groups. By the supplementary ones devices may be guarded. Somebody without an `account` has none of those.
    ///
    /// # Errors
    /// When they cannot be looked up.
    pub fn groups(self, account: Option<&User>) -> io::Result<Vec<Gid>> {
        let gid = Gid::from_raw(self.gid);
        match account {
            Some(account) => Ok(getgrouplist(&CString::new(account.name.as_bytes())?, gid)?),
            None => Ok(vec![gid]),
        }
    }

    /// Does something in which this thread accesses files as the user does, with their groups and no right beyond. Whatever
    /// else root may do it still may.
    ///
    /// # Errors
    /// When it could not be, in which case nothing was done; or not be undone.
    pub fn with_their_files<T>(self, act: impl FnOnce() -> T) -> io::Result<T> {
        let as_group = |gid: &Gid| rustix::fs::Gid::from_raw(gid.as_raw());
        let theirs: Vec<_> = self.groups(self.account().as_ref())?.iter().map(as_group).collect();
        let (had, groups) = (capabilities(None)?, getgroups()?);
        set_thread_groups(&theirs)?;
        let gid = setfsgid(Gid::from_raw(self.gid));
        let uid = setfsuid(Uid::from_raw(self.uid));
        let effective = had.effective.difference(OTHERS_FILES);
        let changed = set_capabilities(None, CapabilitySets { effective, ..had }).is_ok() && self.is_for_files();
        let done = changed.then(act);
        setfsuid(uid);
        setfsgid(gid);
        set_thread_groups(&groups)?;
        set_capabilities(None, had)?;
        done.ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// Whether this thread accesses files as the user. The calls that set it tell of no error.
    fn is_for_files(self) -> bool {
        // An id that no user has changes nothing.
        const NOBODY: u32 = u32::MAX;
        setfsuid(Uid::from_raw(NOBODY)).as_raw() == self.uid && setfsgid(Gid::from_raw(NOBODY)).as_raw() == self.gid
    }
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
}
