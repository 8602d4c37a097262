//! Which processes have come to use CUDA since the last look, at a cost that lets one look twice a second.
//!
//! Reading `/proc/PID/maps` of every process each time is dear (the kernel walks and prints each mapping). A library
//! cannot be loaded without changing the size of the address space, so two cheaper questions are asked first:
//!
//! 1. `statm`, one line without a walk. *Total minus data* counts code, read-only and shared mappings, and stays put
//!    while a heap grows.
//! 2. Only where that changed, `VmExe` and `VmLib` of `status`, whose sum is what is mapped executable.
//!
//! ```text
//!                      statm: size   data   1. size - data    2. executable      maps
//! a python                  30212  18811             11401           9,120 kB
//! it allocates 100 MB       55812  44411             11401                       not read
//! it starts a thread        57861  46459             11402           9,120 kB    not read
//! it loads libcuda          63975  47142             16833          25,680 kB    read again
//! ```
//!
//! A change that cancels out exactly (as much code unmapped in the same interval) is caught by a sweep: each scan
//! re-reads, within [`SWEEP_BUDGET`], those processes whose maps were read longest ago. The numbers are read *before*
//! the maps, so what changes in between shows as a change at the next scan.
//!
//! Files are told apart by device, inode, size and time of modification; each is looked into once, however many
//! processes map it. While a process has a file mapped its inode cannot be reused, so a mapping that was seen at the
//! last read is not even looked up.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::identity::Identities;
use super::library::{FileFacts, FileId, facts, libraries};
use super::maps::{self, Mapping};
use super::procfs::{ProcFs, is_gone};
use super::resolve::{peek, resolve};
use super::{Library, Process};

/// Time spent in one scan on processes of which nothing seems to have changed; one process at least. This is the default
/// of [`Scanner::sweep_for`].
pub const SWEEP_BUDGET: Duration = Duration::from_micros(500);

/// Files remembered before the memory is emptied and built anew.
const FILES_KEPT: usize = 16 << 10;

/// A process with CUDA libraries that were not reported for it before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The process as it is now.
    pub process: Process,
    /// The libraries that are new in it.
    pub libraries: Vec<Library>,
}

/// A process that was reported in [`Scan::appeared`] and has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoneProcess {
    /// Its process id, which may already belong to another.
    pub pid: u32,
    /// When it had started, in clock ticks since boot.
    pub start_ticks: u64,
}

/// What one look found.
#[derive(Debug, Default)]
pub struct Scan {
    /// New process-library pairs, one entry for each process.
    pub appeared: Vec<Found>,
    /// Ended since they were reported.
    pub gone: Vec<GoneProcess>,
    /// What the look took.
    pub cost: ScanCost,
}

/// What one look took and what it could not see.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ScanCost {
    /// Processes in `/proc`.
    pub processes: usize,
    /// Maps files read.
    pub maps_read: usize,
    /// Files looked into for the first time.
    pub files_read: usize,
    /// Processes whose maps may not be read by us.
    pub denied: usize,
    /// Mapped files that could not be opened or are malformed, newly met in this scan.
    pub unreadable_files: usize,
    /// Wall time of the scan, ns.
    pub elapsed_ns: u64,
}

/// Finds new process-library pairs; keeps what it has seen.
#[derive(Debug)]
pub struct Scanner {
    proc: ProcFs,
    sweep_budget: Duration,
    known: HashMap<u32, Known>,
    files: HashMap<FileId, KnownFile>,
    identities: Identities,
    round: u64,
    path: String,
    text: Vec<u8>,
}

/// A process as it was when its maps were last read.
#[derive(Debug)]
struct Known {
    start_ticks: u64,
    /// Total minus data pages; see the head of this file.
    shape: u64,
    /// Executable mappings, kB.
    code_kib: u64,
    /// The scan that read the maps last.
    read_in_round: u64,
    /// The scan that saw the process last.
    seen_in_round: u64,
    denied: bool,
    /// Executable file mappings at that time.
    mapped: HashSet<FileId>,
    /// Those of them that are CUDA libraries.
    cuda: HashSet<FileId>,
    reported: bool,
}

#[derive(Debug)]
struct KnownFile {
    stamp: Stamp,
    facts: FileFacts,
}

/// What changes when a file's contents do, or when its inode number passes to another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    /// That of `stat`: where maps shows one device for all subvolumes of a btrfs, this tells them apart.
    dev: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { dev: metadata.dev(), size_bytes: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner of `/proc`.
    #[must_use]
    pub fn new() -> Self {
        Self::of(ProcFs::default())
    }

    /// A scanner of another `/proc` than the usual one.
    #[must_use]
    pub fn of(proc: ProcFs) -> Self {
        Self {
            proc,
            sweep_budget: SWEEP_BUDGET,
            known: HashMap::new(),
            files: HashMap::new(),
            identities: Identities::default(),
            round: 0,
            path: String::new(),
            text: Vec::new(),
        }
    }

    /// Sets the time that each scan spends on re-reading what seems unchanged; zero for none.
    #[must_use]
    pub fn sweep_for(mut self, budget: Duration) -> Self {
        self.sweep_budget = budget;
        self
    }

    /// The `/proc` it looks at.
    #[must_use]
    pub fn proc(&self) -> &ProcFs {
        &self.proc
    }

    /// Looks at all processes.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn scan(&mut self) -> io::Result<Scan> {
        let pids = self.proc.pids()?;
        Ok(self.scan_these(&pids))
    }

    /// Looks at some processes; those of earlier scans that are not among them count as gone.
    pub fn scan_these(&mut self, pids: &[u32]) -> Scan {
        let started = Instant::now();
        let mut scan = Scan::default();
        self.round += 1;
        for &pid in pids {
            scan.cost.processes += 1;
            let Some(shape) = self.shape(pid) else { continue };
            match self.known.get_mut(&pid) {
                // Ended and not yet waited for: no address space is left, and none will come back.
                Some(known) if shape == 0 && known.shape != 0 => continue,
                Some(known) if known.shape == shape => {
                    known.seen_in_round = self.round;
                    scan.cost.denied += usize::from(known.denied);
                    continue;
                }
                _ => {}
            }
            if !self.has_the_same_code(pid, shape) {
                self.read_maps(pid, shape, &mut scan);
            }
        }
        self.sweep(&mut scan);
        let round = self.round;
        self.known.retain(|&pid, known| {
            let here = known.seen_in_round == round;
            if !here && known.reported {
                scan.gone.push(GoneProcess { pid, start_ticks: known.start_ticks });
            }
            here
        });
        scan.cost.elapsed_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        scan
    }

    /// Re-reads the maps of those who were read longest ago, as far as the budget goes.
    fn sweep(&mut self, scan: &mut Scan) {
        if self.sweep_budget.is_zero() {
            return;
        }
        let mut stale: Vec<(u64, u32, u64)> = self
            .known
            .iter()
            .filter(|(_, known)| known.seen_in_round == self.round && known.read_in_round < self.round)
            // A kernel thread has no address space and never gets one.
            .filter(|(_, known)| known.shape != 0 && !known.denied)
            .map(|(&pid, known)| (known.read_in_round, pid, known.shape))
            .collect();
        stale.sort_unstable();
        let started = Instant::now();
        for (_, pid, shape) in stale {
            self.read_maps(pid, shape, scan);
            if started.elapsed() >= self.sweep_budget {
                break;
            }
        }
    }

    /// Whether a process, whose shape is now `shape`, has as much mapped executable as when its maps were read.
    fn has_the_same_code(&mut self, pid: u32, shape: u64) -> bool {
        if self.known.get(&pid).is_none_or(|known| known.denied) {
            return false;
        }
        let code_kib = self.code_kib(pid);
        match self.known.get_mut(&pid) {
            Some(known) if Some(known.code_kib) == code_kib => {
                known.shape = shape;
                known.seen_in_round = self.round;
                true
            }
            _ => false,
        }
    }

    /// What a process has mapped executable, kB: `VmExe` and `VmLib`, which `task_mem` (`fs/proc/task_mmu.c`) makes of
    /// `exec_vm`.
    fn code_kib(&mut self, pid: u32) -> Option<u64> {
        let mut text = [0_u8; 4096];
        let read = self.open(pid, "status").and_then(|mut file| file.read(&mut text)).ok()?;
        let sizes = text[..read].split(|&byte| byte == b'\n').filter_map(|line| {
            let size = line.strip_prefix(b"VmExe:").or_else(|| line.strip_prefix(b"VmLib:"))?;
            digits(size.trim_ascii().strip_suffix(b" kB")?)
        });
        // Without an address space the lines are missing, behind a very long list of groups they are not reached.
        let (found, total) = sizes.fold((0, 0), |(found, total), size| (found + 1, total + size));
        (found == 2).then_some(total)
    }

    /// Total minus data pages of a process; `None` when it is gone.
    fn shape(&mut self, pid: u32) -> Option<u64> {
        let mut text = [0_u8; 128];
        let read = self.open(pid, "statm").and_then(|mut file| file.read(&mut text)).ok()?;
        let mut numbers = text[..read].split(|byte| byte.is_ascii_whitespace()).map(digits);
        // proc(5): size resident shared text lib data dt.
        let size = numbers.next()??;
        let data = numbers.nth(4)??;
        Some(size.wrapping_sub(data))
    }

    fn open(&mut self, pid: u32, below: &str) -> io::Result<File> {
        self.path.clear();
        // Formatting into a String cannot fail.
        let _ = write!(self.path, "{}/{pid}/{below}", self.proc.root().display());
        File::open(&self.path)
    }

    /// Reads one process's maps and reports what is new in them.
    fn read_maps(&mut self, pid: u32, shape: u64, scan: &mut Scan) {
        // The start time is read first: if the PID changes hands after this, the next scan sees another one.
        let Ok(stat) = self.proc.stat(pid) else { return };
        let code_kib = self.code_kib(pid).unwrap_or(0);
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let read = self.open(pid, "maps").and_then(|mut file| file.read_to_end(&mut text));
        let denied = match read {
            Ok(_) => false,
            Err(error) if is_gone(&error) => {
                self.text = text;
                return;
            }
            Err(_) => true,
        };
        scan.cost.maps_read += 1;
        scan.cost.denied += usize::from(denied);

        let mut before = self.known.remove(&pid);
        if let Some(old) = before.take_if(|old| old.start_ticks != stat.start_ticks)
            && old.reported
        {
            scan.gone.push(GoneProcess { pid, start_ticks: old.start_ticks });
        }
        let mut now = Known {
            start_ticks: stat.start_ticks,
            shape,
            code_kib,
            read_in_round: self.round,
            seen_in_round: self.round,
            denied,
            mapped: HashSet::new(),
            cuda: HashSet::new(),
            reported: before.as_ref().is_some_and(|before| before.reported),
        };
        let mut new = Vec::new();
        for mapping in maps::parse(&text).filter(|mapping| mapping.exec && mapping.is_file()) {
            let id = FileId::mapped(&mapping);
            if !now.mapped.insert(id) {
                continue;
            }
            match &before {
                Some(before) if before.mapped.contains(&id) => {
                    if before.cuda.contains(&id) {
                        now.cuda.insert(id);
                    }
                }
                _ => match self.look_into(pid, id, &mapping, &mut scan.cost) {
                    Ok(found) if found.is_empty() => {}
                    Ok(found) => {
                        now.cuda.insert(id);
                        new.extend(found);
                    }
                    // The process may have ended or unmapped it; if it is still there, the next reading tries again.
                    Err(_) => {
                        now.mapped.remove(&id);
                        scan.cost.unreadable_files += 1;
                    }
                },
            }
        }
        self.text = text;
        if !new.is_empty()
            && let Ok(process) = self.proc.process(pid)
            && process.start_ticks == now.start_ticks
        {
            now.reported = true;
            scan.appeared.push(Found { process, libraries: new });
        }
        self.known.insert(pid, now);
    }

    /// The CUDA libraries in one mapped file; empty for nearly every file.
    fn look_into(
        &mut self,
        pid: u32,
        id: FileId,
        mapping: &Mapping<'_>,
        cost: &mut ScanCost,
    ) -> io::Result<Vec<Library>> {
        let known = self.files.get(&id);
        if known.is_some_and(|known| known.facts.kinds.is_empty())
            && peek(&self.proc, pid, mapping).map(|metadata| Stamp::of(&metadata)) == known.map(|known| known.stamp)
        {
            return Ok(Vec::new());
        }
        let resolved = resolve(&self.proc, pid, mapping)?;
        let stamp = Stamp::of(&resolved.metadata);
        if self.files.get(&id).is_none_or(|known| known.stamp != stamp) {
            cost.files_read += 1;
            let facts = facts(&resolved.file).unwrap_or_else(|_| {
                // Malformed or too large to tell: remembered as no library, so that it is not read again and again.
                cost.unreadable_files += 1;
                FileFacts::default()
            });
            if self.files.len() >= FILES_KEPT {
                self.files.clear();
            }
            self.files.insert(id, KnownFile { stamp, facts });
        }
        let Some(known) = self.files.get(&id).filter(|known| !known.facts.kinds.is_empty()) else {
            return Ok(Vec::new());
        };
        let known_as = self.identities.of(&resolved.file, &resolved.metadata);
        Ok(libraries(&known.facts, known_as, &resolved))
    }
}

/// A decimal number without sign.
fn digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |value, &digit| {
        digit.is_ascii_digit().then(|| value.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    })
}
