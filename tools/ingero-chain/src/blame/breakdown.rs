//! Causes and the breakdown that they make up: nanoseconds that always add up to the lost time.

use ingero_common::host::{Interner, Name, Task};
use ingero_common::text::Traced;
use serde::{Serialize, Serializer};

use crate::limits::MAX_PARTIES;

/// Why time was lost; `docs/schema.md`, "Causes", has the definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    CudaCall,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 15] = [
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
        Cause::CudaCall,
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
            Cause::CudaCall => "cuda_call",
        }
    }
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// Lost time split into causes. `total_ns` is always the sum of everything put in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breakdown {
    lines: Vec<(Cause, Task, u64)>,
    unexplained_ns: u64,
    /// In which operations the time of [`Cause::CudaCall`] was.
    ops: Vec<(Name, u64)>,
}

impl Breakdown {
    /// Puts `ns` down to `cause`, and to `party` (the default for nobody).
    pub(crate) fn add(&mut self, cause: Cause, party: Task, ns: u64) {
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

    /// Puts `ns` down to a call of `op` that `task` was in.
    pub(crate) fn add_in_call(&mut self, task: Task, op: Name, ns: u64) {
        self.add(Cause::CudaCall, task, ns);
        self.add_op(op, ns);
    }

    /// Of very many operations, all but the first count as one.
    fn add_op(&mut self, op: Name, ns: u64) {
        let known = self.ops.iter().position(|(known, _)| *known == op);
        match known.or((self.ops.len() >= MAX_PARTIES).then_some(MAX_PARTIES - 1)) {
            Some(at) => self.ops[at].1 += ns,
            None if ns > 0 => self.ops.push((op, ns)),
            None => {}
        }
    }

    /// Puts `ns` down to nothing that the records show.
    pub(crate) fn add_unexplained(&mut self, ns: u64) {
        self.unexplained_ns += ns;
    }

    /// What was put down to `cause` turns out not to be known.
    pub(crate) fn doubt(&mut self, cause: Cause) {
        self.unexplained_ns += self.of(cause);
        self.lines.retain(|(c, ..)| *c != cause);
    }

    /// Adds all of another breakdown.
    pub(crate) fn add_all(&mut self, other: &Breakdown) {
        for &(cause, party, ns) in &other.lines {
            self.add(cause, party, ns);
        }
        other.ops.iter().for_each(|&(op, ns)| self.add_op(op, ns));
        self.unexplained_ns += other.unexplained_ns;
    }

    /// The same breakdown for `ns` in all, in proportion; what rounding leaves over goes to the largest line.
    pub(crate) fn scaled_to(&self, ns: u64) -> Breakdown {
        let whole = u128::from(self.total_ns());
        if whole == 0 {
            return Breakdown { unexplained_ns: ns, ..Breakdown::default() };
        }
        let scale = |part: u64| (u128::from(part) * u128::from(ns) / whole) as u64;
        let mut breakdown = Breakdown { unexplained_ns: scale(self.unexplained_ns), ..Breakdown::default() };
        for &(cause, party, part) in &self.lines {
            breakdown.add(cause, party, scale(part));
        }
        self.ops.iter().for_each(|&(op, part)| breakdown.add_op(op, scale(part)));
        let rest = ns - breakdown.total_ns();
        match breakdown.lines.iter_mut().max_by_key(|(.., part)| *part) {
            Some(line) if line.2 > breakdown.unexplained_ns => line.2 += rest,
            _ => breakdown.unexplained_ns += rest,
        }
        breakdown
    }

    /// The part that nothing explains, in nanoseconds.
    pub(crate) fn unexplained_ns(&self) -> u64 {
        self.unexplained_ns
    }

    /// What is put down to `cause`, in nanoseconds.
    pub(crate) fn of(&self, cause: Cause) -> u64 {
        self.lines.iter().filter(|(c, ..)| *c == cause).map(|(.., ns)| ns).sum()
    }

    /// The parties of one cause with their nanoseconds, as they came.
    pub(crate) fn parties(&self, cause: Cause) -> impl Iterator<Item = (Task, u64)> {
        self.lines.iter().filter(move |(c, ..)| *c == cause).map(|&(_, party, ns)| (party, ns))
    }

    /// Everything that was put in, in nanoseconds.
    pub(crate) fn total_ns(&self) -> u64 {
        self.lines.iter().map(|(.., ns)| ns).sum::<u64>() + self.unexplained_ns
    }

    /// The causes, largest first, each with its parties, largest first.
    pub(crate) fn causes(&self, names: &Interner) -> Vec<CauseLine> {
        let total = self.total_ns();
        let mut causes: Vec<CauseLine> = Vec::new();
        for cause in Cause::ALL {
            let mut who: Vec<WhoNs> = Vec::new();
            let mut ns = 0;
            for &(_, party, part) in self.lines.iter().filter(|(c, ..)| *c == cause) {
                ns += part;
                if party != Task::default() {
                    who.push(WhoNs { pid: party.pid, comm: names.text(party.name).into(), ns: part });
                }
            }
            // Equal parts in an order that doesn't depend on that of the records.
            who.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.pid, &a.comm).cmp(&(b.pid, &b.comm))));
            if ns > 0 {
                let ops = if cause == Cause::CudaCall { self.ops(names) } else { Vec::new() };
                causes.push(CauseLine { cause, ns, share: share(ns, total), who, ops });
            }
        }
        causes.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
        causes
    }

    fn ops(&self, names: &Interner) -> Vec<OpNs> {
        let mut ops: Vec<OpNs> = self.ops.iter().map(|&(op, ns)| OpNs { op: names.text(op).into(), ns }).collect();
        ops.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.op.raw().cmp(b.op.raw())));
        ops
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
    /// In which CUDA calls, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<OpNs>,
}

/// A CUDA operation with its part of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpNs {
    /// The API name.
    pub op: Traced,
    /// Its part, in nanoseconds.
    pub ns: u64,
}

/// A process or thread with its part of a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WhoNs {
    /// Process (TGID).
    pub pid: u32,
    /// Its thread's name.
    pub comm: Traced,
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
    fn a_breakdown_adds_up_however_many_parties_there_are() {
        let mut names = Interner::default();
        let mut breakdown = Breakdown::default();
        for i in 1..=1000_u32 {
            let party = Task { pid: i, name: names.id("w") };
            breakdown.add(Cause::CpuWait, party, u64::from(i));
        }
        breakdown.add_unexplained(5);
        let causes = breakdown.causes(&names);
        assert_eq!((breakdown.total_ns(), causes.len(), causes[0].ns), (500_505, 1, 500_500));
        assert_eq!((causes[0].who.len(), causes[0].who[0].pid), (32, 1000));
        let mut twice = breakdown.clone();
        twice.add_all(&breakdown);
        assert_eq!(twice.total_ns(), 2 * breakdown.total_ns());
    }
}
