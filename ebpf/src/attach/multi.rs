//! `uprobe_multi` (Linux 6.6): one link holds the entries of all functions of a library, another one their returns.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{Ends, Point, ProgramNames, Unfit, c_path, try_link};
use crate::program::Programs;
use crate::sys::{AttachType, link_uprobes};

/// The loaded programs.
#[derive(Debug)]
pub(super) struct Multi {
    entry: OwnedFd,
    returns: OwnedFd,
    instant: OwnedFd,
}

impl Multi {
    pub(super) fn load(programs: &Programs, names: ProgramNames) -> Result<Self, Unfit> {
        let entry = programs.load(names.entry, AttachType::UprobeMulti).map_err(Unfit::Fatal)?;
        try_link(|path, offsets, cookies| {
            link_uprobes(entry.as_fd(), AttachType::UprobeMulti, path, offsets, cookies, false)
        })?;
        let returns = programs.load(names.returns, AttachType::UprobeMulti).map_err(Unfit::Fatal)?;
        let instant = programs.load(names.instant, AttachType::UprobeMulti).map_err(Unfit::Fatal)?;
        Ok(Self { entry, returns, instant })
    }

    pub(super) fn attach(&self, path: &str, points: &[Point], ends: Ends) -> io::Result<Vec<OwnedFd>> {
        let path = c_path(path)?;
        let offsets: Vec<u64> = points.iter().map(|point| point.offset).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.symbol.into()).collect();
        let link = |program: &OwnedFd, returns| {
            link_uprobes(program.as_fd(), AttachType::UprobeMulti, &path, &offsets, &cookies, returns)
        };
        if ends == Ends::Entries {
            return Ok(vec![link(&self.instant, false)?]);
        }
        // Returns first, and closed last: a call that is entered under the entry probe is then seen to return.
        let returns = link(&self.returns, true)?;
        let entry = link(&self.entry, false)?;
        Ok(vec![entry, returns])
    }
}
