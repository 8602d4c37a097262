//! Which processes are traced, and what has been said of them.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use anyhow::bail;
use ingero_common::discover::{FileId, Found, Library, Numbered, ProcFs, Process, Scan, Scanner, Seccomp};

/// Why a process is watched: the `why` of its `watch` record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It uses CUDA.
    Cuda,
    /// The user named it, or had it started.
    Asked,
    /// It descends from one of those.
    Child,
}

impl Why {
    /// Its value in a record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Asked => "asked",
            Self::Child => "child",
        }
    }
}

/// A process with CUDA libraries, as it was announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// The process as it was when it was looked at last.
    pub process: Process,
    /// Why it is watched.
    pub why: Why,
    /// Its libraries.
    pub libraries: Vec<Library>,
    /// What they implement: `cudart`, `cuda`, `nccl`.
    pub layers: BTreeSet<&'static str>,
    /// Whether the returns of its calls are probed, as far as was said.
    pub returns: bool,
    /// What keeps its calls from being seen.
    pub notes: Vec<String>,
}

/// The processes of interest.
#[derive(Debug)]
pub struct Processes {
    /// The processes asked for and their descendants; `None` when all are of interest.
    tree: Option<BTreeMap<u32, Why>>,
    announced: HashMap<u32, Announced>,
    /// Called before they could be looked at: all that is said of them is what the kernel side knew.
    sighted: HashSet<u32>,
    /// Processes that have called.
    callers: HashSet<u32>,
    /// Processes that were announced or sighted, ended ones too.
    ever_watched: u64,
    /// Dynamic linkers that were run by name: to run a program, or only to list the libraries of one (`ldd` does), which maps
    /// them just so. Which it is shows when it calls.
    linkers: HashMap<u32, Linker>,
}

/// A process that is not announced yet.
#[derive(Debug)]
struct Linker {
    found: Found,
    notes: Vec<String>,
    has_called: bool,
}

impl Processes {
    /// All processes that use CUDA.
    pub fn all() -> Self {
        Self::of(None)
    }

    /// The processes `roots` and their descendants.
    pub fn tree(roots: impl IntoIterator<Item = u32>) -> Self {
        Self::of(Some(roots.into_iter().map(|pid| (pid, Why::Asked)).collect()))
    }

    fn of(tree: Option<BTreeMap<u32, Why>>) -> Self {
        Self {
            tree,
            announced: HashMap::new(),
            sighted: HashSet::new(),
            callers: HashSet::new(),
            ever_watched: 0,
            linkers: HashMap::new(),
        }
    }

    /// The processes `pids` and those that descend from them now.
    ///
    /// # Errors
    /// When one of them does not exist.
    pub fn asked(proc: &ProcFs, pids: &[u32]) -> anyhow::Result<Self> {
        let all = proc.pids()?;
        for pid in pids {
            if !all.contains(pid) {
                if let Some(inside) = Numbered::find(proc, *pid)? {
                    bail!("there is no process {pid} here; in a container that is the number of {inside}: give that");
                }
                bail!("there is no process {pid}; `pgrep -a NAME` or --list shows what there is");
            }
        }
        let mut processes = Self::tree(pids.iter().copied());
        processes.add_descendants(proc)?;
        Ok(processes)
    }

    /// Adds whoever descends now from a member of the tree, and returns those that were not known. Once the kernel side
    /// follows the forks of all members, a look that finds nobody says that nobody is missing.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn add_descendants(&mut self, proc: &ProcFs) -> io::Result<Vec<u32>> {
        let Some(tree) = &mut self.tree else { return Ok(Vec::new()) };
        let parents: Vec<(u32, u32)> =
            proc.pids()?.into_iter().filter_map(|pid| Some((pid, proc.stat(pid).ok()?.parent_pid))).collect();
        let known: Vec<u32> = tree.keys().copied().collect();
        add_descendants(tree, &parents);
        Ok(tree.keys().copied().filter(|pid| known.binary_search(pid).is_err()).collect())
    }

    /// Adds a process that the user had started.
    pub fn add_root(&mut self, pid: u32) {
        if let Some(tree) = &mut self.tree {
            tree.insert(pid, Why::Asked);
        }
    }

    /// The members of the tree, where there is one.
    pub fn members(&self) -> impl Iterator<Item = u32> {
        self.tree.iter().flat_map(BTreeMap::keys).copied()
    }

    /// Whether everything that was asked for has ended.
    pub fn all_gone(&self) -> bool {
        self.tree.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// A process has been heard of: it belongs to the tree. The kernel side follows forks by itself, and its word of them may
    /// be lost.
    pub fn note(&mut self, pid: u32) {
        if let Some(tree) = &mut self.tree {
            tree.entry(pid).or_insert(Why::Child);
        }
    }

    /// A process has called.
    pub fn note_call(&mut self, pid: u32) {
        self.note(pid);
        self.callers.insert(pid);
        if let Some(linker) = self.linkers.get_mut(&pid) {
            linker.has_called = true;
        }
    }

    /// A process calls. Returns why it is watched, once, if nothing has been said of it yet: it may be over before it can be
    /// looked at.
    pub fn sighted(&mut self, pid: u32) -> Option<Why> {
        if self.announced.contains_key(&pid) || !self.sighted.insert(pid) {
            return None;
        }
        self.ever_watched += 1;
        Some(self.why(pid))
    }

    fn why(&self, pid: u32) -> Why {
        self.tree.as_ref().map_or(Why::Cuda, |tree| tree.get(&pid).copied().unwrap_or(Why::Child))
    }

    /// A process of the tree has forked.
    pub fn forked(&mut self, pid: u32, parent_pid: u32) {
        if let Some(tree) = &mut self.tree
            && tree.contains_key(&parent_pid)
        {
            tree.insert(pid, Why::Child);
        }
    }

    /// A process has ended.
    pub fn ended(&mut self, pid: u32) {
        self.announced.remove(&pid);
        self.sighted.remove(&pid);
        self.callers.remove(&pid);
        self.linkers.remove(&pid);
        if let Some(tree) = &mut self.tree {
            tree.remove(&pid);
        }
    }

    /// Whether the start of a program in `pid` is worth a look.
    pub fn is_of_interest(&self, pid: u32) -> bool {
        self.tree.as_ref().is_none_or(|tree| tree.contains_key(&pid))
    }

    /// Looks for processes of interest with new libraries, and for ended ones.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn scan(&mut self, scanner: &mut Scanner) -> io::Result<Scan> {
        let scan = match &self.tree {
            None => scanner.scan()?,
            Some(tree) => {
                let pids: Vec<u32> = tree.keys().copied().collect();
                scanner.scan_these(&pids)
            }
        };
        for gone in &scan.gone {
            self.announced.remove(&gone.pid);
            self.linkers.remove(&gone.pid);
        }
        // The kernel side tells of each end; this is for words that were lost.
        let lives = |pid: u32| scanner.proc().stat(pid).is_ok_and(|stat| stat.state != b'Z');
        self.sighted.retain(|&pid| lives(pid));
        self.callers.retain(|&pid| lives(pid));
        if let Some(tree) = &mut self.tree {
            tree.retain(|&pid, _| lives(pid));
        }
        Ok(scan)
    }

    /// Keeps back what was found in a process that may never call; returns what is to be announced of it now, if anything.
    pub fn keep_back(&mut self, found: Found, notes: Vec<String>) -> Option<(Found, Vec<String>)> {
        let pid = found.process.pid;
        let may_never_call = found.process.exe.as_deref().is_some_and(|exe| is_dynamic_linker(exe) || is_sampler(exe));
        if !may_never_call || self.announced.contains_key(&pid) {
            return Some((found, notes));
        }
        match self.linkers.entry(pid) {
            Entry::Occupied(mut linker) => {
                linker.get_mut().found.libraries.extend(found.libraries);
                linker.get_mut().notes.extend(notes);
            }
            Entry::Vacant(place) => {
                place.insert(Linker { found, notes, has_called: false });
            }
        }
        None
    }

    /// What was kept back of processes that have called meanwhile.
    pub fn called_at_last(&mut self) -> Vec<(Found, Vec<String>)> {
        let called: Vec<u32> =
            self.linkers.iter().filter(|(_, linker)| linker.has_called).map(|(pid, _)| *pid).collect();
        let linkers = called.into_iter().filter_map(|pid| self.linkers.remove(&pid));
        linkers.map(|linker| (linker.found, linker.notes)).collect()
    }

    /// Adds what was found in a process, and what stands in the way of seeing its calls.
    pub fn announce(&mut self, found: &Found, notes: Vec<String>) {
        let pid = found.process.pid;
        let why = self.why(pid);
        if !self.sighted.remove(&pid) && !self.announced.contains_key(&pid) {
            self.ever_watched += 1;
        }
        let announced = self.announced.entry(pid).or_insert_with(|| Announced {
            process: found.process.clone(),
            why,
            libraries: Vec::new(),
            layers: BTreeSet::new(),
            returns: true,
            notes: Vec::new(),
        });
        announced.process.clone_from(&found.process);
        announced.layers.extend(found.libraries.iter().map(|library| library.kind.src()));
        announced.libraries.extend(found.libraries.iter().cloned());
        announced.notes.extend(notes);
        announced.notes.dedup();
    }

    /// What has been said of a process.
    pub fn announced(&self, pid: u32) -> Option<&Announced> {
        self.announced.get(&pid)
    }

    /// Those that have a library in such a file.
    pub fn with_library(&self, is_such: impl Fn(FileId) -> bool) -> impl Iterator<Item = u32> {
        let announced = self.announced.iter();
        announced.filter(move |(_, it)| it.libraries.iter().any(|library| is_such(library.id))).map(|(pid, _)| *pid)
    }

    /// How many library files a process has, as far as it has been announced.
    pub fn library_files(&self, pid: u32) -> usize {
        let libraries = self.announced.get(&pid).into_iter().flat_map(|announced| &announced.libraries);
        libraries.map(|library| library.id).collect::<HashSet<FileId>>().len()
    }

    /// Which of the files `probed` is to make room for one of a process of user `uid`: one that no process maps; else one of the
    /// user who has the most, if that is more than `uid` has, through which none of its processes has called.
    pub fn to_give_up(&self, probed: impl Iterator<Item = FileId>, uid: u32) -> Option<FileId> {
        let mut users: HashMap<FileId, (u32, bool)> = HashMap::new();
        for (pid, announced) in &self.announced {
            for library in &announced.libraries {
                let user = users.entry(library.id).or_insert((announced.process.uid, false));
                user.1 |= self.callers.contains(pid);
            }
        }
        let mut files_of: HashMap<u32, Vec<(FileId, bool)>> = HashMap::new();
        for id in probed {
            let Some(&(user, has_called)) = users.get(&id) else { return Some(id) };
            files_of.entry(user).or_default().push((id, has_called));
        }
        let own = files_of.get(&uid).map_or(0, Vec::len);
        let (_, most) = files_of.iter().max_by_key(|(_, files)| files.len())?;
        let unused = most.iter().find(|(_, has_called)| !has_called);
        unused.filter(|_| most.len() > own + 1).map(|(id, _)| *id)
    }

    /// Those of which it was said that the returns of their calls are probed.
    pub fn announced_with_returns(&self) -> impl Iterator<Item = (u32, &Announced)> {
        self.announced.iter().filter(|(_, announced)| announced.returns).map(|(pid, announced)| (*pid, announced))
    }

    /// Says whether the returns of a process's calls are probed.
    pub fn set_returns(&mut self, pid: u32, returns: bool) {
        if let Some(announced) = self.announced.get_mut(&pid) {
            announced.returns = returns;
        }
    }

    /// A process has come under a filter. Returns its libraries.
    pub fn set_seccomp(&mut self, pid: u32, seccomp: Seccomp) -> Vec<Library> {
        let Some(announced) = self.announced.get_mut(&pid) else { return Vec::new() };
        announced.process.seccomp = seccomp;
        announced.libraries.clone()
    }

    /// Whether it has been said of a process which libraries it has.
    pub fn is_announced(&self, pid: u32) -> bool {
        self.announced.contains_key(&pid)
    }

    /// Processes that have a `watch` record, ended ones too.
    pub fn ever_watched(&self) -> u64 {
        self.ever_watched
    }
}

/// Whether a program is a dynamic linker: `ld-linux-x86-64.so.2`, `ld-musl-aarch64.so.1`, `ld-2.31.so`.
fn is_dynamic_linker(exe: &[u8]) -> bool {
    let name = exe.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-") && name.windows(3).any(|part| part == b".so")
}

/// Whether a program is the scheduler tracer, whose GPU samples come from a library of NVIDIA's that maps libcuda.
fn is_sampler(exe: &[u8]) -> bool {
    exe.rsplit(|byte| *byte == b'/').next() == Some(b"ingero-sched")
}

/// Adds to `tree` whoever descends from a member, given each process with its parent.
fn add_descendants(tree: &mut BTreeMap<u32, Why>, parents: &[(u32, u32)]) {
    loop {
        let before = tree.len();
        for (pid, parent) in parents {
            if tree.contains_key(parent) {
                tree.entry(*pid).or_insert(Why::Child);
            }
        }
        if tree.len() == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_of_any_depth_in_any_order() {
        let mut tree = BTreeMap::from([(10, Why::Asked)]);
        add_descendants(&mut tree, &[(13, 12), (12, 11), (11, 10), (10, 1), (20, 1)]);
        assert_eq!(tree.keys().copied().collect::<Vec<_>>(), [10, 11, 12, 13]);
        assert_eq!((tree[&10], tree[&13]), (Why::Asked, Why::Child));
    }

    #[test]
    fn a_dynamic_linker_is_announced_when_it_calls() {
        for linker in ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-aarch64.so.1", "/lib/x86_64-linux-gnu/ld-2.31.so"] {
            assert!(is_dynamic_linker(linker.as_bytes()), "{linker}");
        }
        for other in ["/usr/bin/ld", "/usr/bin/ld-so-tool", "/opt/ld-linux.so/python3", "/usr/bin/python3"] {
            assert!(!is_dynamic_linker(other.as_bytes()), "{other}");
        }
        let mut process = ProcFs::default().process(std::process::id()).unwrap();
        process.exe = Some(b"/lib64/ld-linux-x86-64.so.2".to_vec());
        let pid = process.pid;
        let found = Found { process, libraries: Vec::new() };
        let mut processes = Processes::all();
        assert_eq!(processes.keep_back(found.clone(), vec!["a".into()]), None);
        assert!(processes.called_at_last().is_empty());
        processes.note_call(pid);
        assert_eq!(processes.called_at_last(), [(found.clone(), vec!["a".to_owned()])]);
        assert!(processes.called_at_last().is_empty());
        // Announced once, what is found later is told at once.
        processes.announce(&found, Vec::new());
        assert!(processes.keep_back(found, Vec::new()).is_some());
    }

    #[test]
    fn a_process_is_sighted_once_in_its_life() {
        // Above the largest that the kernel gives out (PID_MAX_LIMIT).
        const ROOT: u32 = 4_194_305;
        const CHILD: u32 = 4_194_306;
        let mut processes = Processes::tree([ROOT]);
        processes.note(CHILD);
        assert_eq!((processes.sighted(CHILD), processes.sighted(CHILD)), (Some(Why::Child), None));
        assert_eq!(processes.sighted(ROOT), Some(Why::Asked));
        // Another one by the same number.
        processes.ended(CHILD);
        assert!(processes.sighted(CHILD).is_some());
        assert_eq!(processes.ever_watched(), 3);
        // What is announced meanwhile is counted already, and needs no sighting.
        let process = ProcFs::default().process(std::process::id()).unwrap();
        let pid = process.pid;
        assert!(processes.sighted(pid).is_some());
        processes.announce(&Found { process, libraries: Vec::new() }, Vec::new());
        assert_eq!((processes.sighted(pid), processes.ever_watched()), (None, 4));
        // An end that nobody told of is noticed by looking.
        processes.scan(&mut Scanner::new()).unwrap();
        assert!(processes.sighted.is_empty(), "{:?}", processes.sighted);
    }

    #[test]
    fn who_has_most_and_uses_nothing_yields() {
        let library = |inode| Library {
            kind: ingero_common::discover::LibraryKind::Cudart,
            id: FileId { dev: 1, inode },
            opened: FileId { dev: 1, inode },
            path: Vec::new(),
            open_path: "/".into(),
            deleted: false,
            soname: None,
            version: None,
            build_id: None,
            is_static: false,
        };
        let own = ProcFs::default().process(std::process::id()).unwrap();
        let mut processes = Processes::all();
        // User 7 has files 1 to 3 and calls through 1 alone; user 8 has file 4.
        for (pid, uid, inodes) in [(10, 7, 1..2), (11, 7, 2..4), (12, 8, 4..5)] {
            let process = Process { pid, uid, ..own.clone() };
            processes.announce(&Found { process, libraries: inodes.map(library).collect() }, Vec::new());
        }
        processes.note_call(10);
        let file = |inode| FileId { dev: 1, inode };
        let yields = |uid, inodes: &[u64]| processes.to_give_up(inodes.iter().copied().map(file), uid);
        assert!([Some(file(2)), Some(file(3))].contains(&yields(9, &[1, 2, 3, 4])));
        assert!(yields(8, &[1, 2, 3, 4]).is_some());
        // Not for more of the same user's, not for one that has as many, and not what is used.
        assert_eq!(yields(7, &[1, 2, 3, 4]), None);
        assert_eq!(yields(8, &[1, 2, 4]), None);
        assert_eq!(yields(9, &[1]), None);
        // What nobody maps any more goes first.
        assert_eq!(yields(7, &[1, 2, 5]), Some(file(5)));
    }

    #[test]
    fn a_tree_grows_by_forks_and_ends() {
        let mut processes = Processes::tree([10]);
        processes.forked(11, 10);
        processes.forked(30, 29);
        assert_eq!(processes.members().collect::<Vec<_>>(), [10, 11]);
        assert!(processes.is_of_interest(11) && !processes.is_of_interest(30));
        processes.ended(10);
        assert!(!processes.all_gone());
        processes.ended(11);
        assert!(processes.all_gone());
        assert!(!Processes::all().all_gone());
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        let error = Processes::asked(&ProcFs::default(), &[u32::MAX]).unwrap_err().to_string();
        assert!(error.contains(&u32::MAX.to_string()), "{error}");
        let own = Processes::asked(&ProcFs::default(), &[std::process::id()]).unwrap();
        assert!(own.is_of_interest(std::process::id()));
    }
}
