//! One perf event for each end of each function: what is left where nothing else works.
//!
//! Detaching costs about 0.1 s for each event, one after the other, so only functions marked as essential are probed, and
//! at most [`MAX_POINTS`] of a library.

use std::io;

use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{Program, UProbe};

use super::{Ends, Point, ProgramNames, Unfit, load_uprobe};

/// Functions probed in one library; detaching them takes some seconds.
pub(super) const MAX_POINTS: usize = 16;

/// The names of the loaded programs, which stay in aya's object.
#[derive(Debug)]
pub(super) struct Perf {
    names: ProgramNames,
}

impl Perf {
    pub(super) fn load(ebpf: &mut Ebpf, names: ProgramNames) -> Result<Self, Unfit> {
        load_uprobe(ebpf, names.entry)?;
        load_uprobe(ebpf, names.returns)?;
        load_uprobe(ebpf, names.instant)?;
        Ok(Self { names })
    }

    /// Probes the essential ones among `points`; returns how many those were.
    /// In all processes: a perf event of one process follows one thread of it, so the programs' own filter has to do.
    pub(super) fn attach(
        &self,
        ebpf: &mut Ebpf,
        path: &str,
        points: &[Point],
        ends: Ends,
    ) -> io::Result<(usize, Vec<UProbeLink>)> {
        let essential: Vec<&Point> = points.iter().filter(|point| point.essential).take(MAX_POINTS).collect();
        let mut links = Vec::with_capacity(2 * essential.len());
        // Returns first, see multi.rs.
        let programs = match ends {
            Ends::Both => &[self.names.returns, self.names.entry][..],
            Ends::Entries => &[self.names.instant],
        };
        for name in programs {
            let program = match ebpf.program_mut(name) {
                Some(Program::UProbe(program)) => program,
                _ => return Err(io::ErrorKind::NotFound.into()),
            };
            for point in &essential {
                links.push(attach_one(program, path, point)?);
            }
        }
        Ok((essential.len(), links))
    }
}

fn attach_one(program: &mut UProbe, path: &str, point: &Point) -> io::Result<UProbeLink> {
    let at = UProbeAttachPoint {
        location: UProbeAttachLocation::AbsoluteOffset(point.offset),
        cookie: Some(point.symbol.into()),
    };
    let id = program.attach(at, path, UProbeScope::AllProcesses).map_err(io::Error::other)?;
    program.take_link(id).map_err(io::Error::other)
}
