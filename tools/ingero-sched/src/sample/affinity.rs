//! Which watched processes may not run on all CPUs.

use std::collections::BTreeMap;
use std::fs;

use ingero_common::record::Affinity;

use crate::identity::cpus_allowed;

/// Processes that are asked, the first ones: each costs some 20 us.
const MAX_ASKED: usize = 256;

/// The affinities of those of `pids` that are narrower than the machine.
pub(super) fn of(pids: &[u32]) -> Vec<Affinity> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let lists = pids.iter().take(MAX_ASKED).filter_map(|&pid| Some((cpus_allowed(pid)?, pid)));
    narrower(online.trim(), lists)
}

fn narrower(online: &str, lists: impl Iterator<Item = (String, u32)>) -> Vec<Affinity> {
    let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (list, pid) in lists.filter(|(list, _)| !covers(list, online)) {
        groups.entry(list).or_default().push(pid);
    }
    groups.into_iter().map(|(cpus_allowed, pids)| Affinity { cpus_allowed, pids }).collect()
}

/// Whether a list of CPUs holds all of another one, which is one range nearly always. A mask may name CPUs that are not there.
fn covers(list: &str, online: &str) -> bool {
    let range = |text: &str| -> Option<(u32, u32)> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    let held = |(first, last): (u32, u32)| list.split(',').filter_map(range).any(|(a, b)| a <= first && last <= b);
    online.split(',').filter_map(range).all(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_of_that_may_not_run_everywhere() {
        let lists = [("0-15", 1), ("0-3", 2), ("0-127", 3), ("0-3", 4), ("1,3", 5)];
        let told = narrower("0-15", lists.into_iter().map(|(list, pid)| (list.to_owned(), pid)));
        let told: Vec<_> = told.iter().map(|one| (one.cpus_allowed.as_str(), one.pids.as_slice())).collect();
        assert_eq!(told, [("0-3", &[2, 4][..]), ("1,3", &[5][..])]);
        assert!(covers("0-3,8-15", "0-3,8-15") && !covers("0-3", "0-3,8-15"));
    }
}
