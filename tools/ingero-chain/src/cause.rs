//! Causes and the bill that they make up: nanoseconds that always add up to the lost time.

use ingero_common::host::{Interner, Task};
use serde::Serialize;

/// Why time was lost; `docs/schema.md`, "Causes", has the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are those of the contract")]
pub enum Cause {
    HostCpu,
    CpuWait,
    Quota,
    IoWait,
    Blocked,
    DriverCpu,
    WorkerCpu,
    WorkerCpuWait,
    WorkerQuota,
    WorkerIo,
    Wait,
    Sleep,
    OffCpu,
    Steal,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 14] = [
        Cause::HostCpu,
        Cause::CpuWait,
        Cause::Quota,
        Cause::IoWait,
        Cause::Blocked,
        Cause::DriverCpu,
        Cause::WorkerCpu,
        Cause::WorkerCpuWait,
        Cause::WorkerQuota,
        Cause::WorkerIo,
        Cause::Wait,
        Cause::Sleep,
        Cause::OffCpu,
        Cause::Steal,
    ];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Cause::HostCpu => "host_cpu",
            Cause::CpuWait => "cpu_wait",
            Cause::Quota => "quota",
            Cause::IoWait => "io_wait",
            Cause::Blocked => "blocked",
            Cause::DriverCpu => "driver_cpu",
            Cause::WorkerCpu => "worker_cpu",
            Cause::WorkerCpuWait => "worker_cpu_wait",
            Cause::WorkerQuota => "worker_quota",
            Cause::WorkerIo => "worker_io",
            Cause::Wait => "wait",
            Cause::Sleep => "sleep",
            Cause::OffCpu => "off_cpu",
            Cause::Steal => "steal",
        }
    }
}

/// Different parties kept for each cause; the smallest beyond become nameless, their time stays.
const MAX_PARTIES: usize = 32;

/// The longest sleep that nobody was seen to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slept {
    /// Its length; 0 = there was none.
    pub ns: u64,
    /// The thread went straight back to sleep, and this one ended that: so waits who waits with a time-out.
    pub then: Task,
}

/// Lost time split into causes. `total_ns` is always the sum of everything put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bill {
    lines: Vec<(Cause, Task, u64)>,
    unexplained_ns: u64,
    slept: Slept,
}

impl Bill {
    /// Puts `ns` down to `cause`, and to `party` (the default for nobody).
    pub fn add(&mut self, cause: Cause, party: Task, ns: u64) {
        if ns == 0 {
            return;
        }
        if let Some(line) = self.lines.iter_mut().find(|(c, p, _)| *c == cause && *p == party) {
            line.2 += ns;
            return;
        }
        self.lines.push((cause, party, ns));
        if party != Task::default() && self.named(cause).count() > MAX_PARTIES {
            self.fold_smallest(cause);
        }
    }

    /// Puts `ns` down to nothing that the records show.
    pub fn add_unexplained(&mut self, ns: u64) {
        self.unexplained_ns += ns;
    }

    /// What was put down to `cause` turns out not to be known.
    pub fn doubt(&mut self, cause: Cause) {
        self.unexplained_ns += self.of(cause);
        self.lines.retain(|(c, ..)| *c != cause);
    }

    /// The longest of the sleeps that are put down to [`Cause::Sleep`].
    pub fn slept(&self) -> Slept {
        self.slept
    }

    /// Takes note of such a sleep.
    pub fn note_sleep(&mut self, slept: Slept) {
        if slept.ns > self.slept.ns {
            self.slept = slept;
        }
    }

    /// Adds all of another bill.
    pub fn add_all(&mut self, other: &Bill) {
        self.note_sleep(other.slept);
        for &(cause, party, ns) in &other.lines {
            self.add(cause, party, ns);
        }
        self.unexplained_ns += other.unexplained_ns;
    }

    /// The same bill for `ns` in all, in proportion; what rounding leaves over goes to the largest line.
    pub fn scaled_to(&self, ns: u64) -> Bill {
        let whole = u128::from(self.total_ns());
        if whole == 0 {
            return Bill { unexplained_ns: ns, ..Bill::default() };
        }
        let scale = |part: u64| (u128::from(part) * u128::from(ns) / whole) as u64;
        let mut bill = Bill { unexplained_ns: scale(self.unexplained_ns), ..Bill::default() };
        for &(cause, party, part) in &self.lines {
            bill.add(cause, party, scale(part));
        }
        let rest = ns - bill.total_ns();
        match bill.lines.iter_mut().max_by_key(|(.., part)| *part) {
            Some(line) if line.2 > bill.unexplained_ns => line.2 += rest,
            _ => bill.unexplained_ns += rest,
        }
        bill
    }

    /// The same bill for `ns` in all, of which what is more than it has is unexplained.
    pub fn filled_to(mut self, ns: u64) -> Bill {
        self.unexplained_ns += ns.saturating_sub(self.total_ns());
        self
    }

    /// What of each cause is beyond `usual_ns(cause)`, its parties in proportion. What nothing explains is left out.
    pub fn beyond(&self, usual_ns: impl Fn(Cause) -> u64) -> Bill {
        let mut beyond = Bill::default();
        for cause in Cause::ALL {
            let all_ns = self.of(cause);
            let excess_ns = all_ns.saturating_sub(usual_ns(cause));
            for (party, ns) in self.parties(cause) {
                beyond.add(cause, party, (u128::from(ns) * u128::from(excess_ns) / u128::from(all_ns.max(1))) as u64);
            }
        }
        beyond
    }

    /// The part that nothing explains, in nanoseconds.
    pub fn unexplained_ns(&self) -> u64 {
        self.unexplained_ns
    }

    /// What is put down to `cause`, in nanoseconds.
    pub fn of(&self, cause: Cause) -> u64 {
        self.lines.iter().filter(|(c, ..)| *c == cause).map(|(.., ns)| ns).sum()
    }

    /// The parties of one cause with their nanoseconds, as they came.
    pub fn parties(&self, cause: Cause) -> impl Iterator<Item = (Task, u64)> {
        self.lines.iter().filter(move |(c, ..)| *c == cause).map(|&(_, party, ns)| (party, ns))
    }

    /// Everything that was put in, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.lines.iter().map(|(.., ns)| ns).sum::<u64>() + self.unexplained_ns
    }

    /// The causes, largest first, each with its parties, largest first.
    pub fn causes(&self, names: &Interner) -> Vec<CauseLine> {
        let total = self.total_ns();
        let mut causes: Vec<CauseLine> = Vec::new();
        for cause in Cause::ALL {
            let mut who: Vec<WhoNs> = Vec::new();
            let mut ns = 0;
            for &(_, party, part) in self.lines.iter().filter(|(c, ..)| *c == cause) {
                ns += part;
                if party != Task::default() {
                    who.push(WhoNs { pid: party.pid, comm: names.text(party.name).to_owned(), ns: part });
                }
            }
            // Equal parts in an order that doesn't depend on that of the records.
            who.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.pid, &a.comm).cmp(&(b.pid, &b.comm))));
            if ns > 0 {
                let slept = (cause == Cause::Sleep && self.slept.ns > 0).then(|| {
                    let Task { pid, name } = self.slept.then;
                    WhoNs { pid, comm: names.text(name).to_owned(), ns: self.slept.ns }
                });
                causes.push(CauseLine { cause, ns, share: share(ns, total), who, slept });
            }
        }
        causes.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
        causes
    }

    fn named(&self, cause: Cause) -> impl Iterator<Item = (usize, &(Cause, Task, u64))> {
        self.lines.iter().enumerate().filter(move |(_, (c, p, _))| *c == cause && *p != Task::default())
    }

    fn fold_smallest(&mut self, cause: Cause) {
        if let Some((at, _)) = self.named(cause).min_by_key(|(_, line)| line.2) {
            let (_, _, ns) = self.lines.swap_remove(at);
            self.add(cause, Task::default(), ns);
        }
    }
}

/// One cause in a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseLine {
    /// Why.
    pub cause: Cause,
    /// How much of the lost time, in nanoseconds.
    pub ns: u64,
    /// The same as a share of it, 0 to 1.
    pub share: f64,
    /// Whose doing, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub who: Vec<WhoNs>,
    /// See [`Slept`]; pid 0 = the thread did not go back to sleep, or nobody ended that either.
    #[serde(skip)]
    pub slept: Option<WhoNs>,
}

/// A process or thread with its part of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhoNs {
    /// Process (TGID).
    pub pid: u32,
    /// Its thread's name.
    pub comm: String,
    /// Its part, in nanoseconds.
    pub ns: u64,
}

/// `part` of `whole`, 0 to 1, rounded to six decimals; 0 where there is no whole.
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e6).round() / 1e6 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_written_by_its_name() {
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
        }
    }

    #[test]
    fn a_bill_adds_up_however_many_parties_there_are() {
        let mut names = Interner::default();
        let mut bill = Bill::default();
        for i in 1..=1000_u32 {
            let party = Task { pid: i, name: names.id("w") };
            bill.add(Cause::CpuWait, party, u64::from(i));
        }
        bill.add_unexplained(5);
        let causes = bill.causes(&names);
        assert_eq!((bill.total_ns(), causes.len(), causes[0].ns), (500_505, 1, 500_500));
        assert_eq!((causes[0].who.len(), causes[0].who[0].pid), (MAX_PARTIES, 1000));
        let mut twice = bill.clone();
        twice.add_all(&bill);
        assert_eq!(twice.total_ns(), 2 * bill.total_ns());
    }
}
