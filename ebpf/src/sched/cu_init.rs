//! The probe on `cuInit`: by a uprobe_multi link (Linux 6.6), which is gone at once when it is closed, or by a perf event, which
//! takes 0.1 s for each library.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope};
use aya::programs::{Program, UProbe};
use ingero_common::privileges::succeeds_without;
use rustix::thread::CapabilitySet;

use crate::guard::{Guard, Kept};
use crate::hold::Hold;
use crate::load::{Kernel, StartError};
use crate::program::Programs;
use crate::sys::{AttachType, link_uprobes};

/// The name of the program in the object.
const PROGRAM: &str = "cuda_init";

/// A link for a moment, at offset 0 of our own executable: the ELF header, where nothing is ever placed.
fn try_link(program: &OwnedFd) -> io::Result<OwnedFd> {
    link_uprobes(program.as_fd(), AttachType::UprobeMulti, c"/proc/self/exe", &[0], &[0], false)
}

/// The program, and the guard of its links.
#[derive(Debug)]
pub(super) struct CuInit {
    /// Loaded for uprobe_multi links; absent where the kernel has none.
    multi: Option<OwnedFd>,
    guard: Guard,
}

impl CuInit {
    /// Loads the program. All maps of `ebpf`, loaded from `object`, must still be in it.
    pub(super) fn load(kernel: &Kernel, object: &[u8], ebpf: &mut Ebpf) -> Result<Self, StartError> {
        let guard = Guard::new().map_err(|e| StartError::refused("a guard of library files", &e))?;
        let program = Programs::parse(kernel, object, ebpf)?.load(PROGRAM, AttachType::UprobeMulti)?;
        // Old kernels load a program for links that they do not know.
        if try_link(&program).is_ok() {
            return Ok(Self { multi: Some(program), guard });
        }
        perf(ebpf)
            .and_then(|program| program.load().map_err(io::Error::other))
            .map_err(|e| StartError::refused(format!("program {PROGRAM}"), &e))?;
        Ok(Self { multi: None, guard })
    }

    /// Whether probing copies that appear later needs CAP_SYS_ADMIN: perf events may, links are tried.
    pub(super) fn needs_admin(&self) -> io::Result<bool> {
        let Some(program) = &self.multi else { return Ok(true) };
        succeeds_without(CapabilitySet::SYS_ADMIN, || try_link(program).is_ok()).map(|succeeded| !succeeded)
    }

    /// Probes `offset` of `library` in all processes, until somebody wants to write to the file.
    pub(super) fn probe(&mut self, ebpf: &mut Ebpf, library: &File, hold: Hold, offset: u64) -> io::Result<Kept> {
        // Leads to the very file, whatever becomes of its name.
        let path = format!("/proc/self/fd/{}", library.as_raw_fd());
        match &self.multi {
            Some(program) => {
                let path = CString::new(path).map_err(io::Error::other)?;
                let link = link_uprobes(program.as_fd(), AttachType::UprobeMulti, &path, &[offset], &[0], false)?;
                Ok(self.guard.keep(link, hold))
            }
            None => {
                let at = UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(offset), cookie: None };
                let program = perf(ebpf)?;
                let id = program.attach(at, &path, UProbeScope::AllProcesses).map_err(io::Error::other)?;
                Ok(self.guard.keep(program.take_link(id).map_err(io::Error::other)?, hold))
            }
        }
    }

    /// Takes all probes off.
    pub(super) fn detach(&self) {
        self.guard.clear();
    }
}

fn perf(ebpf: &mut Ebpf) -> io::Result<&mut UProbe> {
    match ebpf.program_mut(PROGRAM) {
        Some(Program::UProbe(program)) => Ok(program),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
