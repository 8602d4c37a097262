//! Trace events with many probes each (Linux 5.15), for kernels without `uprobe_multi`.
//!
//! A perf event for each function is easily made and takes 0.1 s to close. But a trace event may hold any number of
//! probes, written to `uprobe_events` as lines with one name, and one perf event with one BPF link serves them all. The
//! program then has to find out at which of them it runs. The link's cookie says which event; within it, the offset of
//! the instruction in its page decides, which address randomisation leaves alone. So functions are dealt into events
//! ("buckets") in which that offset is unique:
//!
//! ```text
//! file offset   0x1040   0x2040   0x3040   0x2ff0       uprobe_events
//! in the page     0x40     0x40     0x40    0xff0       p:ingero_812_0/b0 /proc/self/fd/7:0x1040
//! bucket             0        1        2        0       p:ingero_812_0/b0 /proc/self/fd/7:0x2ff0
//!                                                       p:ingero_812_0/b1 /proc/self/fd/7:0x2040  ...
//! ```
//!
//! Six buckets do for the 443 functions of libcudart 13. Returns need no telling apart and share one event.
//!
//! When we are killed, the kernel closes the links, and the events stay behind: disabled, and harmless. The group's name
//! holds our pid, so that [`sweep`] can remove those of tracers that are gone.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::{HashMap, MapData};
use aya::programs::ProgramFd;

use super::{Ends, Point, ProgramNames, Unfit, load_uprobe, take_buckets};
use crate::load::StartError;
use crate::sys::{link_perf_event, open_trace_event};

/// What the names of our groups begin with; the pid and a number follow.
const GROUP_PREFIX: &str = "ingero_";
/// The kernel takes up to 4096 bytes of whole lines in one write (`WRITE_BUFSIZE`, kernel/trace/trace_dynevent.c).
const WRITE_BYTES: usize = 4000;
/// Bits of an address that the offset in a page has, with the smallest pages that Linux uses.
const PAGE_BITS: u32 = 12;
/// The event of the returns.
const RETURNS: &str = "r";

/// The loaded programs.
#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
    events: Arc<File>,
    entry: ProgramFd,
    returns: ProgramFd,
    instant: ProgramFd,
    symbols: HashMap<MapData, u64, u32>,
    /// Buckets are numbered over all libraries, because the cookie is all that the program sees of them.
    next_bucket: u64,
    next_group: u32,
}

impl Tracefs {
    pub(super) fn load(ebpf: &mut Ebpf, names: ProgramNames) -> Result<Self, Unfit> {
        let root = mounted().ok_or(Unfit::Fatal(StartError::NoTracefs))?;
        if !root.join("uprobe_events").exists() {
            return Err(Unfit::Missing);
        }
        sweep();
        let mut load = |name: &str| {
            let fd = load_uprobe(ebpf, name)?.fd().map_err(io::Error::other).and_then(ProgramFd::try_clone);
            fd.map_err(|e| Unfit::Fatal(StartError::refused(format!("program {name}"), &e)))
        };
        let (entry, returns) = (load(names.entry_bucket)?, load(names.returns)?);
        let instant = load(names.instant_bucket)?;
        let symbols = take_buckets(ebpf, names.bucket_map)?;
        // Opened once: later nothing may be opened for writing (`ingero_common::privileges`).
        let events = open_events(&root).map_err(|e| Unfit::Fatal(StartError::TracefsDenied(e)))?;
        Ok(Self { root, events: Arc::new(events), entry, returns, instant, symbols, next_bucket: 0, next_group: 0 })
    }

    pub(super) fn attach(&mut self, path: &str, points: &[Point], ends: Ends) -> io::Result<Group> {
        let buckets = deal(points);
        let mut group = Group {
            root: self.root.clone(),
            file: Arc::clone(&self.events),
            name: format!("{GROUP_PREFIX}{}_{}", process::id(), self.next_group),
            events: Vec::new(),
            links: Vec::new(),
        };
        self.next_group += 1;
        let first_bucket = self.next_bucket;
        self.next_bucket += buckets.len() as u64;

        for (number, bucket) in (first_bucket..).zip(&buckets) {
            for point in bucket {
                self.symbols.insert(key(number, point.offset), point.symbol, 0).map_err(io::Error::other)?;
            }
        }
        // Returns first, see multi.rs. On an error the group is dropped, and takes back what it has made.
        let entry = match ends {
            Ends::Both => {
                group.create('r', RETURNS, path, points)?;
                group.link(RETURNS, self.returns.as_fd(), 0)?;
                &self.entry
            }
            Ends::Entries => &self.instant,
        };
        for (number, bucket) in (first_bucket..).zip(&buckets) {
            let event = format!("b{number}");
            group.create('p', &event, path, bucket)?;
            group.link(&event, entry.as_fd(), number)?;
        }
        Ok(group)
    }
}

/// The trace events of one library and their links.
#[derive(Debug)]
pub(super) struct Group {
    root: PathBuf,
    /// `uprobe_events`.
    file: Arc<File>,
    name: String,
    events: Vec<String>,
    links: Vec<OwnedFd>,
}

impl Group {
    /// Makes `event` with one probe for each point. `kind` is `p` for entries and `r` for returns.
    fn create(&mut self, kind: char, event: &str, path: &str, points: &[Point]) -> io::Result<()> {
        // Noted before the first write: part of it may have been taken when a later one fails.
        self.events.push(event.to_owned());
        let lines = points.iter().map(|point| format!("{kind}:{}/{event} {path}:{:#x}\n", self.name, point.offset));
        chunks(lines).iter().try_for_each(|chunk| (&*self.file).write_all(chunk.as_bytes()))
    }

    fn link(&mut self, event: &str, program: std::os::fd::BorrowedFd<'_>, cookie: u64) -> io::Result<()> {
        let path = self.root.join("events").join(&self.name).join(event).join("id");
        let id = fs::read_to_string(&path)?.trim().parse().map_err(io::Error::other)?;
        let event = open_trace_event(id)?;
        // The link keeps the perf event alive.
        self.links.push(link_perf_event(program, event.as_fd(), cookie)?);
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The events are busy as long as links hang at them. Entries are closed before returns.
        while self.links.pop().is_some() {}
        remove(&self.file, self.events.iter().map(|event| format!("{}/{event}", self.name)));
    }
}

/// Where the program finds the symbol of the probe at `offset`.
fn key(bucket: u64, offset: u64) -> u64 {
    bucket << PAGE_BITS | offset & ((1 << PAGE_BITS) - 1)
}

/// Deals points into as few buckets as have no two with the same offset in a page.
///
/// Each point goes to the first bucket where its place is free, so the number of buckets is the largest number of points
/// that share an offset in a page: fewer cannot do.
fn deal(points: &[Point]) -> Vec<Vec<Point>> {
    let mut buckets: Vec<Vec<Point>> = Vec::new();
    let mut taken = std::collections::HashMap::<u64, usize>::new();
    for point in points {
        let in_page = key(0, point.offset);
        let bucket = taken.entry(in_page).or_default();
        if *bucket == buckets.len() {
            buckets.push(Vec::new());
        }
        buckets[*bucket].push(*point);
        *bucket += 1;
    }
    buckets
}

/// Joins lines to texts of at most [`WRITE_BYTES`]; no line is split.
fn chunks(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut chunks: Vec<String> = Vec::new();
    for line in lines {
        match chunks.last_mut() {
            Some(last) if last.len() + line.len() <= WRITE_BYTES => last.push_str(&line),
            _ => chunks.push(line),
        }
    }
    chunks
}

/// Where tracefs is mounted, in its usual places first.
fn mounted() -> Option<PathBuf> {
    for usual in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if Path::new(usual).join("uprobe_events").exists() {
            return Some(PathBuf::from(usual));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    find_mount(&mounts).map(PathBuf::from)
}

/// The first tracefs in a mount table. One whose path has characters that the table escapes is passed over.
fn find_mount(mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let (path, kind) = (fields.nth(1)?, fields.next()?);
        (kind == "tracefs" && !path.contains('\\')).then_some(path)
    })
}

fn open_events(root: &Path) -> io::Result<File> {
    // Appending adds to the events that are there; truncating would remove everybody's.
    OpenOptions::new().append(true).open(root.join("uprobe_events"))
}

/// Removes events, each named `group/event`. One that is gone or in use is left as it is.
fn remove(mut file: &File, events: impl Iterator<Item = String>) {
    let mut line = String::new();
    for event in events {
        line.clear();
        let _ = writeln!(line, "-:{event}");
        let _ = file.write_all(line.as_bytes());
    }
}

/// Removes the trace events of tracers of this suite that are gone. Quiet: there may be none, or no tracefs.
pub fn sweep() {
    let Some(root) = mounted() else { return };
    let Ok(events) = fs::read_to_string(root.join("uprobe_events")) else { return };
    let alive = |pid: u32| pid != process::id() && Path::new(&format!("/proc/{pid}")).exists();
    let dead = dead_events(&events, alive);
    if let Ok(file) = open_events(&root) {
        remove(&file, dead.into_iter());
    }
}

/// The `group/event` names in the text of `uprobe_events` that belong to tracers that are not alive.
fn dead_events(text: &str, alive: impl Fn(u32) -> bool) -> Vec<String> {
    let mut seen = HashSet::new();
    text.lines()
        .filter_map(|line| {
            // p:ingero_812_0/b0 /usr/lib/libcudart.so.12:0x0000000000001040
            let name = line.split(' ').next()?.split_once(':')?.1;
            let (group, _event) = name.split_once('/')?;
            let (pid, number) = group.strip_prefix(GROUP_PREFIX)?.split_once('_')?;
            let _: u32 = number.parse().ok()?;
            (!alive(pid.parse().ok()?)).then_some(name)
        })
        .filter(|name| seen.insert(*name))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(offsets: impl IntoIterator<Item = u64>) -> Vec<Point> {
        (0..).zip(offsets).map(|(symbol, offset)| Point { offset, symbol, essential: false }).collect()
    }

    #[test]
    fn buckets_have_unique_offsets_in_the_page_and_are_as_few_as_can_be() {
        let all = points((0..443u64).map(|i| 0x1000 + i * i * 48));
        let buckets = deal(&all);
        let mut most = std::collections::HashMap::<u64, usize>::new();
        for point in &all {
            *most.entry(point.offset & 0xfff).or_default() += 1;
        }
        assert_eq!(buckets.len(), most.values().copied().max().unwrap());
        for bucket in &buckets {
            let places: HashSet<u64> = bucket.iter().map(|point| point.offset & 0xfff).collect();
            assert_eq!(places.len(), bucket.len());
        }
        let mut dealt: Vec<u32> = buckets.iter().flatten().map(|point| point.symbol).collect();
        dealt.sort_unstable();
        assert_eq!(dealt, (0..443).collect::<Vec<_>>());
    }

    #[test]
    fn the_example_of_the_head_comment() {
        let buckets = deal(&points([0x1040, 0x2040, 0x3040, 0x2ff0]));
        let offsets: Vec<Vec<u64>> = buckets.iter().map(|b| b.iter().map(|point| point.offset).collect()).collect();
        assert_eq!(offsets, [vec![0x1040, 0x2ff0], vec![0x2040], vec![0x3040]]);
        assert_eq!(key(2, 0x3040), 2 << 12 | 0x40);
        assert!(deal(&[]).is_empty());
    }

    #[test]
    fn writes_hold_whole_lines() {
        let lines: Vec<String> = (0..1000).map(|i| format!("p:ingero_1_0/b0 /proc/self/fd/7:{i:#x}\n")).collect();
        let chunks = chunks(lines.iter().cloned());
        assert!(chunks.iter().all(|chunk| chunk.len() <= WRITE_BYTES && chunk.ends_with('\n')));
        assert!(chunks.len() > 1);
        assert_eq!(chunks.concat(), lines.concat());
    }

    #[test]
    fn only_the_dead_are_swept() {
        let text = "p:ingero_812_0/b0 /usr/lib/libcudart.so.12:0x0000000000001040\n\
                    p:ingero_812_0/b0 /usr/lib/libcudart.so.12:0x0000000000001080\n\
                    r:ingero_812_0/r /usr/lib/libcudart.so.12:0x0000000000001040\n\
                    p:ingero_900_1/b1 /x:0x40\n\
                    p:ingero_x_1/b1 /x:0x40\n\
                    p:uprobes/ingero_812_0 /x:0x40\n\
                    p:ingero_812/b0 /x:0x40\n\
                    \n";
        assert_eq!(dead_events(text, |pid| pid == 900), ["ingero_812_0/b0", "ingero_812_0/r"]);
        assert!(dead_events(text, |_| true).is_empty());
    }

    #[test]
    fn finds_tracefs_in_a_mount_table() {
        let table = "proc /proc proc rw 0 0\nnodev /a\\040b tracefs rw 0 0\nnodev /mnt/t tracefs rw 0 0\n";
        assert_eq!(find_mount(table), Some("/mnt/t"));
        assert_eq!(find_mount("proc /proc proc rw 0 0\n\nx"), None);
    }
}
