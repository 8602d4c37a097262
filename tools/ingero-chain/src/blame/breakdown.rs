//! Causes and the breakdown that they make up: nanoseconds that always add up to the lost time.

use ingero_common::host::{Interner, Name, Task, Wait};
use ingero_common::text::Traced;
use serde::{Serialize, Serializer};

use crate::blame::places::{Place, Places, WhereLine};
use crate::input::stacks::{Frame, Stacks};
use crate::limits::{MAX_PARTIES, MAX_WAITS};

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
    Lock,
    Pause,
    Network,
    Spin,
    Gc,
    WorkerGc,
}

impl Cause {
    /// All of them.
    pub const ALL: [Cause; 21] = [
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
        Cause::Lock,
        Cause::Pause,
        Cause::Network,
        Cause::Spin,
        Cause::Gc,
        Cause::WorkerGc,
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
            Cause::Lock => "lock",
            Cause::Pause => "pause",
            Cause::Network => "network",
            Cause::Spin => "spin",
            Cause::Gc => "gc",
            Cause::WorkerGc => "worker_gc",
        }
    }

    /// The cause of the time on a CPU that turns out to have been garbage collection.
    pub(super) fn collecting(self) -> Option<Cause> {
        match self {
            Cause::HostCpu => Some(Cause::Gc),
            Cause::WorkerCpu => Some(Cause::WorkerGc),
            _ => None,
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
    /// What was waited in: nanoseconds, and how often.
    waits: Vec<(WaitKey, u64, u64)>,
    /// The part of [`Cause::Network`] in which the path waited for somebody to ask for something.
    no_input_ns: u64,
    /// Where in the code it was.
    places: Places,
}

/// One kind of wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WaitKey {
    /// The cause that it belongs to; `None`: it was the thread that feeds the GPU that waited, whatever the cause is.
    pub(crate) of: Option<Cause>,
    /// What it was in, as [`Wait::parts`] reads it.
    pub(crate) text: Name,
    /// Who waited; of the thread that feeds the GPU, who ended it.
    pub(crate) by: Task,
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

    /// Takes note of what was waited in, beside its cause. Nothing is to be told of a wait without a name.
    pub(crate) fn add_wait(&mut self, key: WaitKey, ns: u64, n: u64) {
        if ns == 0 || key.text == Name::default() {
            return;
        }
        match self.waits.iter_mut().find(|(known, ..)| *known == key) {
            Some((_, known_ns, known_n)) => (*known_ns, *known_n) = (*known_ns + ns, *known_n + n),
            None => self.waits.push((key, ns, n)),
        }
        if self.waits.len() > MAX_WAITS
            && let Some(at) = (0..self.waits.len()).min_by_key(|&at| self.waits[at].1)
        {
            self.waits.swap_remove(at);
        }
    }

    /// Takes note of where in its code somebody was.
    pub(crate) fn add_place(&mut self, place: Place, ns: u64, samples: u64) {
        self.places.add(place, ns, samples);
    }

    /// Takes note of `ns` of [`Cause::Network`] in which nothing was asked for.
    pub(crate) fn add_no_input(&mut self, ns: u64) {
        self.no_input_ns += ns;
    }

    /// How long nothing was asked for, in nanoseconds.
    pub(crate) fn no_input_ns(&self) -> u64 {
        self.no_input_ns
    }

    /// Puts `ns` down to nothing that the records show.
    pub(crate) fn add_unexplained(&mut self, ns: u64) {
        self.unexplained_ns += ns;
    }

    /// What was put down to `cause` turns out not to be known.
    pub(crate) fn doubt(&mut self, cause: Cause) {
        self.unexplained_ns += self.of(cause);
        self.lines.retain(|(c, ..)| *c != cause);
        self.waits.retain(|(key, ..)| key.of != Some(cause));
        self.places.forget(cause);
    }

    /// Adds all of another breakdown.
    pub(crate) fn add_all(&mut self, other: &Breakdown) {
        for &(cause, party, ns) in &other.lines {
            self.add(cause, party, ns);
        }
        other.ops.iter().for_each(|&(op, ns)| self.add_op(op, ns));
        other.waits.iter().for_each(|&(key, ns, n)| self.add_wait(key, ns, n));
        self.places.add_all(&other.places);
        self.no_input_ns += other.no_input_ns;
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
        self.waits.iter().for_each(|&(key, part, n)| breakdown.add_wait(key, scale(part), n));
        breakdown.places = self.places.scaled(scale);
        breakdown.no_input_ns = scale(self.no_input_ns);
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

    /// The lines with spinning and garbage collection told from other time on a CPU, as far as samples tell.
    fn told_apart(&self) -> Vec<(Cause, Task, u64)> {
        let split = |&(cause, task, ns): &(Cause, Task, u64)| {
            let cause = if self.places.spins(cause, task) { Cause::Spin } else { cause };
            let collecting = cause.collecting().map(|gc| (gc, task, self.places.gc_ns(cause, task, ns)));
            let rest_ns = ns - collecting.map_or(0, |(.., ns)| ns);
            collecting.into_iter().chain([(cause, task, rest_ns)]).filter(|&(.., ns)| ns > 0)
        };
        self.lines.iter().flat_map(split).collect()
    }

    /// How long threads asked over and over whether something had happened, in nanoseconds.
    pub(crate) fn spun_ns(&self) -> u64 {
        self.told_apart().iter().filter(|(cause, ..)| *cause == Cause::Spin).map(|(.., ns)| ns).sum()
    }

    /// The causes, largest first, each with its parties, largest first.
    pub(crate) fn causes(&self, names: &Interner, stacks: &Stacks) -> Vec<CauseLine> {
        let total = self.total_ns();
        let (lines, places) = (self.told_apart(), self.places.told_apart());
        let mut causes: Vec<CauseLine> = Vec::new();
        for cause in Cause::ALL {
            let mut who: Vec<WhoNs> = Vec::new();
            let mut ns = 0;
            for &(_, party, part) in lines.iter().filter(|(c, ..)| *c == cause) {
                ns += part;
                if party != Task::default() {
                    who.push(WhoNs { pid: party.pid, comm: names.text(party.name).into(), ns: part });
                }
            }
            // Equal parts in an order that doesn't depend on that of the records.
            who.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| (a.pid, &a.comm).cmp(&(b.pid, &b.comm))));
            if ns > 0 {
                let ops = if cause == Cause::CudaCall { self.ops(names) } else { Vec::new() };
                causes.push(CauseLine {
                    cause,
                    ns,
                    share: share(ns, total),
                    who,
                    ops,
                    waits: self.waits(Some(cause), names),
                    places: places.lines(cause, ns, stacks),
                });
            }
        }
        causes.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
        causes
    }

    /// The stacks that are known, outermost frame first, each with its part of the time of a cause and a party.
    pub(crate) fn folded(&self, names: &Interner, stacks: &Stacks) -> Vec<FoldedLine> {
        let (mut lines, places) = (Vec::new(), self.places.told_apart());
        for (cause, task, ns) in self.told_apart() {
            for (stack, ns) in places.folded(cause, task, ns) {
                let who = WhoNs { pid: task.pid, comm: names.text(task.name).into(), ns };
                let frames = stacks.frames(stack).rev().map(Frame::label).collect();
                lines.push(FoldedLine { cause, who, frames });
            }
        }
        lines
    }

    /// What was waited in, of one cause or by the thread that feeds the GPU, largest first.
    pub(crate) fn waits(&self, of: Option<Cause>, names: &Interner) -> Vec<WaitLine> {
        let line = |&(key, ns, n): &(WaitKey, u64, u64)| {
            let [call, kind, name] = Wait::parts(names.text(key.text).raw());
            let on =
                (!kind.is_empty()).then(|| OnLine { kind: kind.into(), name: (!name.is_empty()).then(|| name.into()) });
            let by = (key.by.pid != 0).then(|| WhoNs { pid: key.by.pid, comm: names.text(key.by.name).into(), ns });
            WaitLine { call: call.into(), on, ns, n, by }
        };
        let mut lines: Vec<WaitLine> = self.waits.iter().filter(|(key, ..)| key.of == of).map(line).collect();
        lines.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.key().cmp(&b.key())));
        lines
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
    /// What was waited in, where the path ends with it, largest first; `by` is who waited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitLine>,
    /// In which functions, largest first, where stacks were sampled.
    #[serde(rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<WhereLine>,
}

/// One stack with its part of a cause.
#[derive(Clone, Debug)]
pub struct FoldedLine {
    /// Why.
    pub cause: Cause,
    /// Whose stack it is, and how long.
    pub who: WhoNs,
    /// `function (file:line)`, outermost first.
    pub frames: Vec<String>,
}

/// What was waited in, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WaitLine {
    /// The system call.
    #[serde(rename = "in")]
    pub call: Traced,
    /// What that was on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<OnLine>,
    /// For how long, in nanoseconds.
    pub ns: u64,
    /// How often.
    pub n: u64,
    /// Who ended it: held the lock, wrote or read at the other end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<WhoNs>,
}

impl WaitLine {
    /// What it is on, as a kind.
    pub fn kind(&self) -> &str {
        self.on.as_ref().map_or("", |on| on.kind.raw())
    }

    fn key(&self) -> (&str, &str, Option<&str>, u32) {
        let name = self.on.as_ref().and_then(|on| on.name.as_ref()).map(Traced::raw);
        (self.call.raw(), self.kind(), name, self.by.as_ref().map_or(0, |by| by.pid))
    }
}

/// What a system call waited on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct OnLine {
    pub kind: Traced,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Traced>,
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
        let causes = breakdown.causes(&names, &Stacks::default());
        assert_eq!((breakdown.total_ns(), causes.len(), causes[0].ns), (500_505, 1, 500_500));
        assert_eq!((causes[0].who.len(), causes[0].who[0].pid), (32, 1000));
        let mut twice = breakdown.clone();
        twice.add_all(&breakdown);
        assert_eq!(twice.total_ns(), 2 * breakdown.total_ns());
    }

    #[test]
    fn so_many_waits_are_told_apart() {
        let mut names = Interner::default();
        let mut breakdown = Breakdown::default();
        for i in 1..=100_u32 {
            let text = names.id(&format!("read\tpipe\tpipe:[{i}]"));
            breakdown.add_wait(WaitKey { of: None, text, by: Task::default() }, u64::from(i), 1);
        }
        breakdown.add_wait(WaitKey { of: Some(Cause::Pause), ..WaitKey::default() }, 500, 1);
        let waits = breakdown.waits(None, &names);
        assert_eq!((waits.len(), waits[0].ns, waits[63].ns), (64, 100, 37), "the smallest go");
        assert_eq!((waits[0].call.raw(), waits[0].kind(), waits[0].by.as_ref()), ("read", "pipe", None));
        assert!(breakdown.waits(Some(Cause::Pause), &names).is_empty(), "without a name there is nothing to tell");
        let mut twice = breakdown.clone();
        twice.add_all(&breakdown);
        assert_eq!((twice.waits(None, &names)[0].ns, twice.waits(None, &names)[0].n), (200, 2));
    }
}
