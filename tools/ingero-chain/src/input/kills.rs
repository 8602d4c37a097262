//! Processes that the kernel killed for memory.
//!
//! One record a victim (`mem` `oom_kill`), whoever that is. Whether it matters is a question of whose it was: a
//! process that makes CUDA calls loses everything, one that loses a worker fails or stalls soon after, and of
//! somebody else's it is worth knowing that the machine, or a cgroup on it, ran out of memory.

use std::collections::VecDeque;

use ingero_common::host::{InstanceId, Interner, Thread};
use ingero_common::record::{Record, Who};
use serde::Deserialize;

use crate::limits::{MAX_KILLS, SAME_KILL_NS};

/// One kill.
#[derive(Clone, Debug)]
pub(crate) struct Kill {
    /// When, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The victim; the name is empty where the kernel doesn't tell it.
    pub victim: Thread,
    /// Which life of it, where one is known.
    pub life: Option<InstanceId>,
    /// Whose allocation found no memory; pid 0 = not known.
    pub by: Thread,
    /// Resident memory of the victim, as the kernel counts it, where it does.
    pub resident_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resident {
    anon_rss_bytes: Option<u64>,
    file_rss_bytes: Option<u64>,
    shmem_rss_bytes: Option<u64>,
}

/// The kills, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    all: VecDeque<Kill>,
}

impl Kills {
    /// Takes note of one; `line` is the record as it was read.
    pub(crate) fn add(
        &mut self,
        record: &Record<'_>,
        line: &[u8],
        at_ns: u64,
        life: Option<InstanceId>,
        names: &mut Interner,
    ) {
        let Some(pid) = record.pid else { return };
        let other_life = |kill: &Kill| kill.life.is_some() && life.is_some() && kill.life != life;
        let again = |kill: &&mut Kill| {
            kill.victim.pid == pid && !other_life(kill) && at_ns.abs_diff(kill.at_ns) <= SAME_KILL_NS
        };
        if let Some(kill) = self.all.iter_mut().find(again) {
            kill.life = kill.life.or(life);
            return;
        }
        let resident = serde_json::from_slice::<Resident>(line).unwrap_or_default();
        let parts = [resident.anon_rss_bytes, resident.file_rss_bytes, resident.shmem_rss_bytes];
        let known = parts.iter().any(Option::is_some);
        let by = |who: &Who<'_>, names: &mut Interner| Thread { pid: who.pid, tid: who.tid, name: names.id(&who.comm) };
        self.all.push_back(Kill {
            at_ns,
            victim: Thread { pid, tid: record.tid.unwrap_or(pid), name: names.id(&record.comm) },
            life,
            by: record.by.as_ref().map(|who| by(who, names)).unwrap_or_default(),
            resident_bytes: known.then(|| parts.into_iter().flatten().fold(0, u64::saturating_add)),
        });
        if self.all.len() > MAX_KILLS {
            self.all.pop_front();
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Kill> {
        self.all.iter()
    }

    /// Those in [`from_ns`, `to_ns`].
    pub(crate) fn between(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Kill> {
        self.all.iter().filter(move |kill| (from_ns..=to_ns).contains(&kill.at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::record::{Parsed, parse};

    #[test]
    fn one_kill_is_told_once_and_unknown_memory_stays_unknown() {
        let (mut kills, mut names) = (Kills::default(), Interner::default());
        let mut add = |line: &str, at_ns| {
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            kills.add(&record, line.as_bytes(), at_ns, None, &mut names);
        };
        let full = r#"{"src":"mem","op":"oom_kill","pid":7,"tid":8,"comm":"w","by":{"pid":9,"tid":9,"comm":"a"},"anon_rss_bytes":5,"shmem_rss_bytes":2}"#;
        add(full, 10);
        add(full, 20);
        add(r#"{"src":"mem","op":"oom_kill","pid":8}"#, 20);
        add(full, 1_000_000_010);
        add(full, 1_000_000_011);
        let all: Vec<_> = kills.iter().map(|kill| (kill.victim.pid, kill.by.pid, kill.resident_bytes)).collect();
        assert_eq!(all, [(7, 9, Some(7)), (8, 0, None), (7, 9, Some(7))]);
        assert_eq!(kills.iter().last().map(|kill| kill.at_ns), Some(1_000_000_011));
        assert_eq!(kills.between(0, 20).count(), 2);
    }

    #[test]
    fn old_kills_are_dropped() {
        let (mut kills, mut names) = (Kills::default(), Interner::default());
        for pid in 1..=300 {
            let line = format!(r#"{{"src":"mem","op":"oom_kill","pid":{pid}}}"#);
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            kills.add(&record, line.as_bytes(), 10, None, &mut names);
        }
        assert_eq!((kills.iter().count(), kills.iter().next().map(|kill| kill.victim.pid)), (256, Some(45)));
    }
}
