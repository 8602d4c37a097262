//! User space probes on hundreds of functions at once, by the best means that the running kernel has.
//!
//! | tier | kernel | one library with 443 functions | nested calls |
//! |---|---|---|---|
//! | [`Mode::Session`] | 6.13 | one link | declined at the entry |
//! | [`Mode::Multi`] | 6.6 | two links | both ends |
//! | [`Mode::Tracefs`] | 5.15 | a trace event for each bucket of entries, one for the returns | both ends |
//! | [`Mode::Perf`] | 5.15 | two perf events for each function, essential ones only | both ends |
//!
//! [`Attacher::new`] chooses the tier by trying: an old kernel loads programs for links that it does not know, so only
//! making a link tells. It is tried on our own executable at an offset that is not code, where no probe is ever placed.
//! All tiers share the programs' state, and in all of them dropping an [`Attachment`] detaches. A process that ends in any
//! way takes its links with it; what the tracefs tier leaves behind then is swept by the next one.

mod multi;
mod perf;
mod session;
mod tracefs;

use std::collections::HashSet;
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use aya::programs::UProbe;
use ingero_common::privileges::succeeds_without;
use rustix::thread::{CapabilitySet, capabilities};
use thiserror::Error;

use crate::load::{Kernel, StartError};
use crate::program::Programs;

pub use tracefs::sweep;

/// How probes are attached, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// One program at both ends, which can decline the return (Linux 6.13).
    Session,
    /// Two programs, all functions in one link each (Linux 6.6).
    Multi,
    /// Two programs on trace events with many probes each (Linux 5.15 and tracefs).
    Tracefs,
    /// Two programs on perf events, on the essential functions only (Linux 5.15).
    Perf,
}

impl Mode {
    /// All tiers, best first.
    pub const ALL: [Self; 4] = [Self::Session, Self::Multi, Self::Tracefs, Self::Perf];

    /// The name, as `--probe-mode` takes it and `start` records show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Multi => "multi",
            Self::Tracefs => "tracefs",
            Self::Perf => "perf",
        }
    }

    /// Open files that the probes of one library take, about: links, and what holds the file.
    pub fn files_of_library(self) -> u64 {
        match self {
            Self::Session | Self::Multi => 4,
            // An event for each bucket, of which the largest libraries take a dozen.
            Self::Tracefs => 20,
            // Two links for each function.
            Self::Perf => 2 * perf::MAX_POINTS as u64 + 4,
        }
    }

    /// Whether attaching loads a program: aya's perf events ask the kernel so, each time, whether it has cookies.
    pub fn loads_programs(self) -> bool {
        self == Self::Perf
    }

    /// The first kernel that has it.
    pub fn since(self) -> &'static str {
        match self {
            Self::Session => "6.13",
            Self::Multi => "6.6",
            Self::Tracefs | Self::Perf => "5.15",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The programs that the tiers attach, by their names in the object.
///
/// What they have to do is described at `bpf/cuda.bpf.c`, whose programs these are made for.
#[derive(Debug, Clone, Copy)]
pub struct ProgramNames {
    /// Both ends of a session; a result of 1 at the entry declines the return.
    pub session: &'static str,
    /// Entries; the attach cookie is the symbol.
    pub entry: &'static str,
    /// Entries in the tracefs tier; the symbol is in `bucket_map` under `cookie << 12 | offset in the page`.
    pub entry_bucket: &'static str,
    /// Returns.
    pub returns: &'static str,
    /// Entries without returns ([`Ends::Entries`]); the attach cookie is the symbol.
    pub instant: &'static str,
    /// The same in the tracefs tier, see `entry_bucket`.
    pub instant_bucket: &'static str,
    /// The map that `entry_bucket` looks into.
    pub bucket_map: &'static str,
}

/// Which ends of its functions are probed in one library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Entries and returns. In [`Mode::Session`] the program decides for each call.
    Both,
    /// Entries alone: no process that maps the library meets a return probe.
    Entries,
}

/// One function to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Where the probe belongs, as an offset in the file, bytes.
    pub offset: u64,
    /// What the programs get to know of it: the symbol's index.
    pub symbol: u32,
    /// Among the few to attach where each one is dear ([`Mode::Perf`]).
    pub essential: bool,
}

/// A point of our own executable where no probe is ever placed: its ELF header, which no process executes.
const NOWHERE: Point = Point { offset: 0, symbol: 0, essential: true };

/// Why one library could not be probed. The others are not concerned.
#[derive(Debug, Error)]
#[error("cannot attach {mode} probes: {source}")]
pub struct AttachError {
    /// The tier.
    pub mode: Mode,
    /// What the kernel said, and about what.
    #[source]
    pub source: io::Error,
}

/// The probes on one library. Dropping it detaches.
#[derive(Debug)]
pub struct Attachment {
    points: usize,
    _links: Links,
}

impl Attachment {
    /// Functions that are probed.
    pub fn points(&self) -> usize {
        self.points
    }
}

/// What keeps the probes in place.
#[derive(Debug)]
enum Links {
    Fds(#[expect(dead_code, reason = "held for its drop")] Vec<std::os::fd::OwnedFd>),
    Tracefs(#[expect(dead_code, reason = "held for its drop")] tracefs::Group),
    Perf(#[expect(dead_code, reason = "held for its drop")] Vec<aya::programs::uprobe::UProbeLink>),
}

/// Attaches probes in the tier that this kernel has.
#[derive(Debug)]
pub struct Attacher {
    tier: Tier,
}

/// The loaded programs of the chosen tier.
#[derive(Debug)]
enum Tier {
    Session(session::Session),
    Multi(multi::Multi),
    Tracefs(Box<tracefs::Tracefs>),
    Perf(Box<perf::Perf>),
}

/// Why a tier is not the one.
enum Unfit {
    /// The kernel does not have it: the next one may do.
    Missing,
    /// Something that no other tier would be better at.
    Fatal(StartError),
}

impl Attacher {
    /// Loads the programs of the best tier, or of the one `forced`.
    ///
    /// `ebpf` was loaded from `object` and still holds all its maps.
    ///
    /// # Errors
    /// When the forced tier is not there, when none is, or when the kernel refuses a program.
    pub fn new(
        kernel: &Kernel,
        object: &[u8],
        ebpf: &mut Ebpf,
        names: ProgramNames,
        forced: Option<Mode>,
    ) -> Result<Self, StartError> {
        let programs = Programs::parse(kernel, object, ebpf)?;
        let tier = choose(forced, |mode| match mode {
            Mode::Session => session::Session::load(&programs, names).map(Tier::Session),
            Mode::Multi => multi::Multi::load(&programs, names).map(Tier::Multi),
            Mode::Tracefs => tracefs::Tracefs::load(ebpf, names).map(|tier| Tier::Tracefs(Box::new(tier))),
            Mode::Perf => perf::Perf::load(ebpf, names).map(|tier| Tier::Perf(Box::new(tier))),
        })?;
        let mut attacher = Self { tier };
        // Of all other tiers making a link has told.
        let may_all = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN));
        if attacher.mode() == Mode::Perf && !may_all {
            let own = File::open("/proc/self/exe").map_err(|e| StartError::refused("perf probes", &e))?;
            attacher.attach(ebpf, &own, &[NOWHERE], Ends::Both).map_err(|e| StartError::refused("perf probes", &e))?;
        }
        Ok(attacher)
    }

    /// The tier in use.
    pub fn mode(&self) -> Mode {
        match self.tier {
            Tier::Session(_) => Mode::Session,
            Tier::Multi(_) => Mode::Multi,
            Tier::Tracefs(_) => Mode::Tracefs,
            Tier::Perf(_) => Mode::Perf,
        }
    }

    /// Probes `points` of the ELF file `library`, in all processes that map it now or later.
    ///
    /// `library` is read by the kernel through its descriptor, so it may be open on a deleted file or one of another mount
    /// namespace. Points with the same offset are one probe, the first's. `ebpf` is the one given at the start.
    /// [`Mode::Session`] does not heed `ends`: its program is told by its own settings.
    ///
    /// # Errors
    /// The kernel's words on this library; nothing of it stays attached then.
    pub fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        library: &File,
        points: &[Point],
        ends: Ends,
    ) -> Result<Attachment, AttachError> {
        let mode = self.mode();
        let points = distinct(points);
        // Every tier takes a path. This one leads to the very file, whatever becomes of its name.
        let path = format!("/proc/self/fd/{}", library.as_raw_fd());
        let result = match &mut self.tier {
            Tier::Session(tier) => tier.attach(&path, &points).map(|links| (points.len(), Links::Fds(links))),
            Tier::Multi(tier) => tier.attach(&path, &points, ends).map(|links| (points.len(), Links::Fds(links))),
            Tier::Tracefs(tier) => tier.attach(&path, &points, ends).map(|group| (points.len(), Links::Tracefs(group))),
            Tier::Perf(tier) => tier.attach(ebpf, &path, &points, ends).map(|(n, links)| (n, Links::Perf(links))),
        };
        result
            .map(|(points, links)| Attachment { points, _links: links })
            .map_err(|source| AttachError { mode, source })
    }
}

impl Attacher {
    /// Whether placing probes on libraries that appear later needs CAP_SYS_ADMIN besides CAP_BPF and CAP_PERFMON. Kernels
    /// differ in that, so it is tried, on our own executable where nothing is ever placed.
    ///
    /// # Errors
    /// What keeps it from being tried.
    pub fn needs_admin(&mut self, ebpf: &mut Ebpf) -> io::Result<bool> {
        let own = File::open("/proc/self/exe")?;
        let mut attach = || self.attach(ebpf, &own, &[NOWHERE], Ends::Both).is_ok();
        succeeds_without(CapabilitySet::SYS_ADMIN, &mut attach).map(|succeeded| !succeeded)
    }
}

/// The first tier that `load` finds fit, in order; or just the `forced` one.
fn choose<T>(forced: Option<Mode>, mut load: impl FnMut(Mode) -> Result<T, Unfit>) -> Result<T, StartError> {
    let modes = match &forced {
        Some(mode) => std::slice::from_ref(mode),
        None => &Mode::ALL,
    };
    for mode in modes {
        match load(*mode) {
            Ok(tier) => return Ok(tier),
            Err(Unfit::Missing) => {}
            Err(Unfit::Fatal(error)) => return Err(error),
        }
    }
    Err(match forced {
        Some(mode) => StartError::NoMode { mode: mode.name(), since: mode.since() },
        None => StartError::NoUprobes,
    })
}

/// The points with different offsets; of those that share one, the first.
fn distinct(points: &[Point]) -> Vec<Point> {
    let mut seen = HashSet::with_capacity(points.len());
    points.iter().copied().filter(|point| seen.insert(point.offset)).collect()
}

/// Makes one link on our own executable, at offset 0: the ELF header, which no process executes, so that the kernel checks
/// everything and places nothing. `EINVAL` means that it does not know this kind of link.
fn try_link(link: impl FnOnce(&CString, &[u64], &[u64]) -> io::Result<std::os::fd::OwnedFd>) -> Result<(), Unfit> {
    let path = c"/proc/self/exe".to_owned();
    match link(&path, &[0], &[0]) {
        Ok(_detached_at_once) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(Unfit::Missing),
        Err(error) => Err(Unfit::Fatal(StartError::refused("a uprobe link", &error))),
    }
}

/// A path as the kernel takes it.
fn c_path(path: &str) -> io::Result<CString> {
    CString::new(path).map_err(io::Error::other)
}

/// Loads a uprobe program through aya, for perf events.
fn load_uprobe<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut UProbe, Unfit> {
    let missing =
        || Unfit::Fatal(StartError::refused(format!("program {name}"), &io::Error::from(io::ErrorKind::NotFound)));
    let program: &mut UProbe = ebpf.program_mut(name).ok_or_else(missing)?.try_into().map_err(|_| missing())?;
    program.load().map_err(|e| Unfit::Fatal(StartError::refused(format!("program {name}"), &e)))?;
    Ok(program)
}

/// Takes the map that leads from buckets to symbols.
fn take_buckets(ebpf: &mut Ebpf, name: &str) -> Result<HashMap<MapData, u64, u32>, Unfit> {
    let refused = |e: &(dyn std::error::Error + 'static)| Unfit::Fatal(StartError::refused(format!("map {name}"), e));
    let map = ebpf.take_map(name).ok_or_else(|| refused(&io::Error::from(io::ErrorKind::NotFound)))?;
    HashMap::try_from(map).map_err(|e| refused(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(forced: Option<Mode>, missing: &[Mode]) -> (Vec<Mode>, Result<Mode, StartError>) {
        let mut tried = Vec::new();
        let result = choose(forced, |mode| {
            tried.push(mode);
            if missing.contains(&mode) { Err(Unfit::Missing) } else { Ok(mode) }
        });
        (tried, result)
    }

    #[test]
    fn tiers_are_tried_best_first() {
        use Mode::{Multi, Perf, Session, Tracefs};
        for (missing, tried) in [
            (&[][..], &[Session][..]),
            (&[Session], &[Session, Multi]),
            (&[Session, Multi], &[Session, Multi, Tracefs]),
            (&[Session, Multi, Tracefs], &[Session, Multi, Tracefs, Perf]),
        ] {
            let (order, result) = chosen(None, missing);
            assert_eq!(order, tried);
            assert_eq!(result.unwrap(), *tried.last().unwrap());
        }
        assert!(matches!(chosen(None, &Mode::ALL).1, Err(StartError::NoUprobes)));
    }

    #[test]
    fn a_forced_tier_is_the_only_one_tried() {
        for mode in Mode::ALL {
            let (tried, result) = chosen(Some(mode), &[]);
            assert_eq!((tried, result.unwrap()), (vec![mode], mode));
            let (tried, result) = chosen(Some(mode), &[mode]);
            assert_eq!(tried, [mode]);
            let message = result.unwrap_err().to_string();
            assert!(message.contains(mode.name()) && message.contains(mode.since()), "{message}");
        }
    }

    #[test]
    fn what_no_other_tier_is_better_at_ends_the_search() {
        let mut tries = 0;
        let result: Result<(), _> = choose(None, |_| {
            tries += 1;
            Err(Unfit::Fatal(StartError::LockedDown))
        });
        assert!(matches!(result, Err(StartError::LockedDown)));
        assert_eq!(tries, 1);
    }

    #[test]
    fn one_probe_for_each_offset() {
        let point = |offset, symbol| Point { offset, symbol, essential: false };
        let points = [point(16, 0), point(32, 1), point(16, 2)];
        assert_eq!(distinct(&points), [point(16, 0), point(32, 1)]);
    }
}
