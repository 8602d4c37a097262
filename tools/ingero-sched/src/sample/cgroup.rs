//! CPU quotas: which cgroups of the watched processes have one, and how often it has stopped them.
//!
//! A quota may sit on the cgroup of a process or on any above it:
//!
//! ```text
//! /proc/4711/cgroup  0::/kube/pod7/main          limits and counters are read of /kube/pod7/main,
//! cpu.max            20000 100000                /kube/pod7 and /kube
//! cpu.stat           nr_periods 50, nr_throttled 31, throttled_usec 1240000
//! ```
//!
//! Version 1 has the same under other names (`cpu.cfs_quota_us`; `throttled_time` in nanoseconds), in the hierarchy that the
//! cpu controller is mounted in. Counters move only where there is a quota, so they are read each time, and the quota itself
//! seldom.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ingero_common::record::write::Quota;
use procfs::ProcessCGroups;
use procfs::prelude::FromRead;
use procfs::process::{MountInfo, MountInfos};

/// Processes seldom change their cgroup, and cgroups their quota.
const REREAD_AFTER: Duration = Duration::from_secs(10);

/// Where the cpu controller's files are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    mount_point: PathBuf,
    /// The cgroup that is mounted there; not `/` in many containers.
    root: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The quota counters of all cgroups that matter.
#[derive(Debug)]
pub(crate) struct Quotas {
    hierarchy: Option<Hierarchy>,
    /// By TGID.
    members: BTreeMap<u32, Member>,
    /// By path in the hierarchy.
    groups: BTreeMap<String, Group>,
}

#[derive(Debug)]
struct Member {
    path: String,
    read: Instant,
}

#[derive(Debug)]
struct Group {
    counters: Counters,
    limited: bool,
    limit_read: Instant,
    pids: Vec<u32>,
}

/// What `cpu.stat` holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
}

impl Quotas {
    /// Finds the hierarchy.
    ///
    /// # Errors
    /// When the list of mounts cannot be read.
    pub(crate) fn new() -> io::Result<Self> {
        let mounts = MountInfos::from_file("/proc/self/mountinfo").map_err(io::Error::other)?;
        Ok(Self { hierarchy: find_hierarchy(&mounts.0), members: BTreeMap::new(), groups: BTreeMap::new() })
    }

    /// What the quotas have done since the last call, for each cgroup with one that holds one of `pids`. A cgroup that is
    /// new has done nothing yet: counting begins when it is first seen.
    pub(crate) fn deltas(&mut self, pids: impl Iterator<Item = u32>) -> Vec<Quota> {
        let Some(hierarchy) = self.hierarchy.clone() else { return Vec::new() };
        self.refresh_members(&hierarchy, pids);
        for group in self.groups.values_mut() {
            group.pids.clear();
        }
        for (&pid, member) in &self.members {
            for path in with_ancestors(&member.path, &hierarchy.root) {
                let group = match self.groups.get_mut(path) {
                    Some(group) => group,
                    None => {
                        let Some(group) = Group::new(&hierarchy, path) else { continue };
                        self.groups.entry(path.to_owned()).or_insert(group)
                    }
                };
                group.pids.push(pid);
            }
        }
        self.groups.retain(|_, group| !group.pids.is_empty());
        self.groups.iter_mut().filter_map(|(path, group)| group.delta(&hierarchy, path)).collect()
    }

    fn refresh_members(&mut self, hierarchy: &Hierarchy, pids: impl Iterator<Item = u32>) {
        let now = Instant::now();
        let mut members = BTreeMap::new();
        for pid in pids {
            let known = self.members.remove(&pid).filter(|member| now - member.read < REREAD_AFTER);
            let member = known.or_else(|| {
                // A process that has just ended is no error: its exit record follows.
                let groups = ProcessCGroups::from_file(format!("/proc/{pid}/cgroup")).ok()?;
                Some(Member { path: path_of(&groups, hierarchy.version)?, read: now })
            });
            if let Some(member) = member {
                members.insert(pid, member);
            }
        }
        self.members = members;
    }
}

impl Group {
    /// `None` where the cgroup has no counters: the root of all, or gone.
    fn new(hierarchy: &Hierarchy, path: &str) -> Option<Self> {
        let dir = hierarchy.dir(path)?;
        Some(Self {
            counters: read_counters(hierarchy.version, &dir)?,
            limited: is_limited(hierarchy.version, &dir),
            limit_read: Instant::now(),
            pids: Vec::new(),
        })
    }

    fn delta(&mut self, hierarchy: &Hierarchy, path: &str) -> Option<Quota> {
        let dir = hierarchy.dir(path)?;
        let now = read_counters(hierarchy.version, &dir)?;
        let before = std::mem::replace(&mut self.counters, now);
        let moved = now.periods != before.periods;
        if self.limit_read.elapsed() >= REREAD_AFTER || (moved && !self.limited) {
            self.limited = is_limited(hierarchy.version, &dir);
            self.limit_read = Instant::now();
        }
        // A quota that was lifted in this very interval has still done something.
        (self.limited || moved).then(|| Quota {
            cgroup: path.to_owned(),
            pids: self.pids.clone(),
            periods: now.periods.saturating_sub(before.periods),
            throttled: now.throttled.saturating_sub(before.throttled),
            throttled_ns: now.throttled_ns.saturating_sub(before.throttled_ns),
        })
    }
}

impl Hierarchy {
    /// The directory of the cgroup at `path`; `None` for one outside of what is mounted.
    fn dir(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.trim_end_matches('/'))?;
        Some(self.mount_point.join(below.trim_start_matches('/')))
    }
}

/// The hierarchy that has the cpu controller: one of version 1 claims it, else it is the unified one's.
fn find_hierarchy(mounts: &[MountInfo]) -> Option<Hierarchy> {
    let found = |version, mount: &MountInfo| Hierarchy {
        version,
        mount_point: mount.mount_point.clone(),
        root: mount.root.clone(),
    };
    let v1 = mounts.iter().find(|m| m.fs_type == "cgroup" && m.super_options.contains_key("cpu"));
    let v2 = || mounts.iter().find(|m| m.fs_type == "cgroup2");
    v1.map(|m| found(Version::V1, m)).or_else(|| v2().map(|m| found(Version::V2, m)))
}

/// The path of a process in the hierarchy of this version.
fn path_of(groups: &ProcessCGroups, version: Version) -> Option<String> {
    let mut groups = groups.0.iter();
    let group = match version {
        Version::V1 => groups.find(|group| group.controllers.iter().any(|controller| controller == "cpu")),
        Version::V2 => groups.find(|group| group.hierarchy == 0),
    };
    group.map(|group| group.pathname.clone())
}

/// `/a/b`, `/a`, `/`: a path and those above it, down to `root`.
fn with_ancestors<'a>(path: &'a str, root: &'a str) -> impl Iterator<Item = &'a str> {
    std::iter::successors(Some(path), |path| match path.rfind('/') {
        Some(0) if path.len() > 1 => Some("/"),
        Some(at) if at > 0 => Some(&path[..at]),
        _ => None,
    })
    .take_while(move |path| path.len() >= root.len())
}

fn is_limited(version: Version, dir: &Path) -> bool {
    match version {
        Version::V1 => {
            let quota = fs::read_to_string(dir.join("cpu.cfs_quota_us"));
            quota.ok().and_then(|text| text.trim().parse::<i64>().ok()).is_some_and(|quota| quota > 0)
        }
        Version::V2 => fs::read_to_string(dir.join("cpu.max")).is_ok_and(|text| !text.starts_with("max")),
    }
}

fn read_counters(version: Version, dir: &Path) -> Option<Counters> {
    parse_counters(version, &fs::read_to_string(dir.join("cpu.stat")).ok()?)
}

/// `None` where the file has no quota counters: that of the root of version 2.
fn parse_counters(version: Version, text: &str) -> Option<Counters> {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
    };
    let throttled_ns = match version {
        Version::V1 => value("throttled_time")?,
        Version::V2 => value("throttled_usec")?.saturating_mul(1000),
    };
    Some(Counters { periods: value("nr_periods")?, throttled: value("nr_throttled")?, throttled_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
    const UNIFIED: &str = "35 24 0:30 /docker/abc /sys/fs/cgroup ro,nosuid shared:9 - cgroup2 cgroup rw,nsdelegate\n";

    fn hierarchy(text: &str) -> Hierarchy {
        find_hierarchy(&MountInfos::from_read(text.as_bytes()).unwrap().0).unwrap()
    }

    #[test]
    fn a_version_1_cpu_controller_comes_first() {
        let found = hierarchy(MIXED);
        assert_eq!(
            (found.version, found.mount_point.as_path()),
            (Version::V1, Path::new("/sys/fs/cgroup/cpu,cpuacct"))
        );
        assert_eq!(found.dir("/a/b"), Some("/sys/fs/cgroup/cpu,cpuacct/a/b".into()));
        assert_eq!(found.dir("/"), Some("/sys/fs/cgroup/cpu,cpuacct/".into()));
        assert!(find_hierarchy(&[]).is_none());
    }

    #[test]
    fn a_mounted_part_shows_only_what_is_in_it() {
        let found = hierarchy(UNIFIED);
        assert_eq!(found.version, Version::V2);
        assert_eq!(found.dir("/docker/abc/job"), Some("/sys/fs/cgroup/job".into()));
        assert_eq!(found.dir("/docker"), None);
        assert_eq!(
            with_ancestors("/docker/abc/job", &found.root).collect::<Vec<_>>(),
            ["/docker/abc/job", "/docker/abc"]
        );
    }

    #[test]
    fn a_quota_may_sit_above() {
        assert_eq!(with_ancestors("/a/b/c", "/").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a", "/"]);
        assert_eq!(with_ancestors("/", "/").collect::<Vec<_>>(), ["/"]);
        assert_eq!(with_ancestors("", "/").count(), 0);
    }

    #[test]
    fn paths_of_both_versions() {
        let text = "12:cpuset:/\n4:cpu,cpuacct:/old\n1:name=systemd:/s\n0::/new:with:colons\n";
        let groups = ProcessCGroups::from_read(text.as_bytes()).unwrap();
        assert_eq!(path_of(&groups, Version::V1).as_deref(), Some("/old"));
        assert_eq!(path_of(&groups, Version::V2).as_deref(), Some("/new:with:colons"));
    }

    #[test]
    fn counters_of_both_versions_are_nanoseconds() {
        let want = Some(Counters { periods: 50, throttled: 31, throttled_ns: 1_240_000_000 });
        let v1 = "nr_periods 50\nnr_throttled 31\nthrottled_time 1240000000\nnr_bursts 0\n";
        assert_eq!(parse_counters(Version::V1, v1), want);
        let v2 = "usage_usec 7\nuser_usec 5\nnr_periods 50\nnr_throttled 31\nthrottled_usec 1240000\nnr_bursts 0\n";
        assert_eq!(parse_counters(Version::V2, v2), want);
        assert_eq!(parse_counters(Version::V2, "usage_usec 7\nuser_usec 5\nsystem_usec 2\n"), None);
    }

    #[test]
    fn a_quota_counts_from_when_it_is_first_seen() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().join("job");
        fs::create_dir(&job).unwrap();
        let stat = |periods, throttled| {
            let text = format!("nr_periods {periods}\nnr_throttled {throttled}\nthrottled_usec {}\n", throttled * 40);
            fs::write(job.join("cpu.stat"), text).unwrap();
        };
        let hierarchy = Hierarchy { version: Version::V2, mount_point: dir.path().into(), root: "/".into() };
        stat(0, 0);
        fs::write(job.join("cpu.max"), "max 100000\n").unwrap();
        let mut group = Group::new(&hierarchy, "/job").unwrap();
        group.pids.push(7);
        assert_eq!(group.delta(&hierarchy, "/job"), None);

        fs::write(job.join("cpu.max"), "20000 100000\n").unwrap();
        stat(10, 4);
        let quota = group.delta(&hierarchy, "/job").unwrap();
        assert_eq!((quota.periods, quota.throttled, quota.throttled_ns), (10, 4, 160_000));
        assert_eq!((quota.cgroup.as_str(), quota.pids.as_slice()), ("/job", [7].as_slice()));
        // Limited but idle: told, with zeros.
        assert_eq!(group.delta(&hierarchy, "/job").map(|quota| quota.periods), Some(0));

        fs::remove_file(job.join("cpu.stat")).unwrap();
        assert_eq!(group.delta(&hierarchy, "/job"), None);
    }

    /// A hierarchy below `dir` with a quota on /team and none on /team/job, in the files of this version.
    fn limited_above(dir: &Path, version: Version) -> Hierarchy {
        let job = dir.join("team/job");
        fs::create_dir_all(&job).unwrap();
        for (group, quota_us) in [(dir.join("team"), Some(20_000)), (job, None)] {
            let (file, text) = match (version, quota_us) {
                (Version::V1, Some(quota_us)) => ("cpu.cfs_quota_us", format!("{quota_us}\n")),
                (Version::V1, None) => ("cpu.cfs_quota_us", "-1\n".to_owned()),
                (Version::V2, Some(quota_us)) => ("cpu.max", format!("{quota_us} 100000\n")),
                (Version::V2, None) => ("cpu.max", "max 100000\n".to_owned()),
            };
            fs::write(group.join(file), text).unwrap();
            write_stat(&group, version, 0);
        }
        Hierarchy { version, mount_point: dir.into(), root: "/".into() }
    }

    /// So many periods, half of them throttled for 40 ms.
    fn write_stat(group: &Path, version: Version, periods: u64) {
        let throttled = periods / 2;
        let time = match version {
            Version::V1 => format!("throttled_time {}", throttled * 40_000_000),
            Version::V2 => format!("usage_usec 7\nthrottled_usec {}", throttled * 40_000),
        };
        fs::write(group.join("cpu.stat"), format!("nr_periods {periods}\nnr_throttled {throttled}\n{time}\n")).unwrap();
    }

    #[test]
    fn both_versions_say_the_same_of_the_same() {
        let read = |version| {
            let dir = tempfile::tempdir().unwrap();
            let hierarchy = limited_above(dir.path(), version);
            let mut quotas = Quotas { hierarchy: Some(hierarchy), members: BTreeMap::new(), groups: BTreeMap::new() };
            // As /proc/7/cgroup would have it; it is read again only after a while.
            let member = Member { path: "/team/job".into(), read: Instant::now() };
            quotas.members.insert(7, member);
            let first = quotas.deltas([7].into_iter());
            write_stat(&dir.path().join("team"), version, 10);
            (first, quotas.deltas([7].into_iter()), quotas.deltas([].into_iter()))
        };
        let quota = |periods, throttled, throttled_ns| Quota {
            cgroup: "/team".into(),
            pids: vec![7],
            periods,
            throttled,
            throttled_ns,
        };
        for version in [Version::V1, Version::V2] {
            // The quota that throttles the job sits on the group above it.
            let want = (vec![quota(0, 0, 0)], vec![quota(10, 5, 200_000_000)], vec![]);
            assert_eq!(read(version), want, "{version:?}");
        }
    }
}
