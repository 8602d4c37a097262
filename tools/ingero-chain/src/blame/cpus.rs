//! Sets of CPUs: which ones the threads of a process came back on.
//!
//! What a process may use is not on record (`taskset`, a cpuset, `sched_setaffinity`), but where its threads ran is. One that
//! was given a CPU many times and always one of four has four, as far as can be told, however many the machine has:
//!
//! ```text
//!   16 CPUs, 25 % busy; 4,000 times back, on CPUs 0-3 only        it waits for a CPU: these four are what it has
//!   16 CPUs, 25 % busy;     6 times back, on CPUs 2, 5 and 9      that says nothing
//! ```

use std::fmt;

/// CPUs that are told apart.
const MAX_CPUS: u32 = 8192;
/// A process came back so many times as often as there are CPUs, and only on some: it may not use the others.
const TIMES_EACH: u64 = 8;

/// CPUs, and how often somebody came back on one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet {
    words: Vec<u64>,
    times: u64,
}

impl CpuSet {
    /// Somebody came back on `cpu`.
    pub fn add(&mut self, cpu: u32) {
        if cpu >= MAX_CPUS {
            return;
        }
        let at = (cpu / 64) as usize;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        self.words[at] |= 1 << (cpu % 64);
        self.times += 1;
    }

    /// Adds all of another set.
    pub fn add_all(&mut self, other: &CpuSet) {
        self.words.resize(self.words.len().max(other.words.len()), 0);
        self.words.iter_mut().zip(&other.words).for_each(|(mine, its)| *mine |= its);
        self.times += other.times;
    }

    /// How many CPUs.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.times == 0
    }

    /// Whether those who came back on these CPUs can be said to have no others of the `cpus` of the machine.
    pub fn is_all_they_have(&self, cpus: u32) -> bool {
        !self.is_empty() && self.len() < cpus && self.times >= TIMES_EACH * u64::from(cpus)
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        let bits = |(at, &word): (usize, &u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        };
        self.words.iter().enumerate().flat_map(bits)
    }
}

/// As the kernel lists CPUs: `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let run =
            |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        f.write_str(&runs.iter().map(run).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[u32], times: u64) -> CpuSet {
        let mut set = CpuSet::default();
        (0..times).for_each(|i| set.add(cpus[i as usize % cpus.len()]));
        set
    }

    #[test]
    fn cpus_are_listed_as_the_kernel_does() {
        assert_eq!(set(&[3, 0, 1, 2, 130, 8, u32::MAX], 7).to_string(), "0-3,8,130");
        assert_eq!((set(&[5], 1).to_string().as_str(), CpuSet::default().to_string().as_str()), ("5", ""));
        let mut both = set(&[1], 2);
        both.add_all(&set(&[70, 1], 4));
        assert_eq!((both.to_string().as_str(), both.len(), both.times), ("1,70", 2, 6));
    }

    #[test]
    fn only_many_returns_to_few_cpus_tell() {
        assert!(set(&[0, 1, 2, 3], 4000).is_all_they_have(16));
        assert!(!set(&[2, 5, 9], 6).is_all_they_have(16));
        assert!(!set(&[0, 1], 4000).is_all_they_have(2));
        assert!(!CpuSet::default().is_all_they_have(16));
    }
}
