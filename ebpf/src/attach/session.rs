//! `uprobe_session` (Linux 6.13): one link holds all functions of a library, one program runs at both ends of each call,
//! and its result at the entry says whether it wants the return.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::{Point, ProgramNames, Unfit, c_path, try_link};
use crate::program::Programs;
use crate::sys::{AttachType, link_uprobes};

/// The loaded program.
#[derive(Debug)]
pub(super) struct Session {
    program: OwnedFd,
}

impl Session {
    pub(super) fn load(programs: &Programs, names: ProgramNames) -> Result<Self, Unfit> {
        let program = programs.load(names.session, AttachType::UprobeSession).map_err(Unfit::Fatal)?;
        try_link(|path, offsets, cookies| {
            link_uprobes(program.as_fd(), AttachType::UprobeSession, path, offsets, cookies, false)
        })?;
        Ok(Self { program })
    }

    pub(super) fn attach(&self, path: &str, points: &[Point]) -> io::Result<Vec<OwnedFd>> {
        let path = c_path(path)?;
        let offsets: Vec<u64> = points.iter().map(|point| point.offset).collect();
        let cookies: Vec<u64> = points.iter().map(|point| point.symbol.into()).collect();
        let program = self.program.as_fd();
        Ok(vec![link_uprobes(program, AttachType::UprobeSession, &path, &offsets, &cookies, false)?])
    }
}
