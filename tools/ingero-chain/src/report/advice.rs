//! What to try. Each piece of advice is tied to a cause and says what in the records led to it; there is none where the
//! records don't say why.

use ingero_common::cuda_api::Class;
use ingero_common::text::{Bytes, Nanos, Traced};

use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, CauseLine, WaitLine, WhoNs};
use crate::limits::{FULL_FROM, NAMED_SHARE, RIVAL_SHARE};
use crate::report::machine::Machine;
use crate::report::model::{Advice, Finding, Kind};
use crate::report::phrases::{function, phrase, tasks, threads, who};
use crate::report::sentences::{count, gpu_at_work, name, named, pct};

/// What to try, for each cause that is large enough to be named.
pub(super) fn of(finding: &Finding, tree: &ProcessTree<'_>, machine: &Machine) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(of_kind(finding));
    if let (Kind::Oom, Some(bytes)) = (finding.op, finding.extra.resident_bytes) {
        all.push(oom_advice(finding, bytes, machine));
    }
    let by_cause = !matches!(finding.op, Kind::HostCalls | Kind::LaunchBound | Kind::NoInput);
    let about = About { finding, tree, machine };
    all.extend(about.gil().into_iter().chain(about.pipe()).filter(|_| by_cause));
    all.extend(named(finding).filter(|_| by_cause).filter_map(|line| about.advice(line)));
    all.extend(about.limit_as_well());
    // Something regular in what the process does by itself is a lead, unless it is what its loop consists of. Data that comes
    // late comes late at each step.
    let each_step = finding.lost.n.saturating_mul(2) > machine.drains && machine.drains > 0;
    let own = matches!(
        finding.lost.causes.first().map(|c| c.cause),
        Some(Cause::HostCpu | Cause::IoWait | Cause::Sleep | Cause::Pause)
    );
    if let Some(period) = finding.times.as_ref().and_then(|times| times.period)
        && own
        && !each_step
        && !all.is_empty()
    {
        let (calls, apart) = (count(period.every, "call"), Nanos(period.ns));
        all.push(Advice {
            text: format!("look for what {} does every {apart}", name(finding)),
            because: format!("{} occurrences, one in {calls}, {apart} apart", finding.lost.n),
            up_to_ns: 0,
        });
    }
    all
}

/// What helps against a kind of finding whatever its causes.
fn of_kind(finding: &Finding) -> Option<Advice> {
    let took = Nanos(finding.lost.lost_ns);
    let (text, because) = match (finding.op, finding.extra.class) {
        (Kind::HostCalls, Some("memory")) => (
            "keep memory allocated: use a caching allocator, do not empty its cache, use buffers again",
            format!("allocating and freeing took {took} of the loop"),
        ),
        (Kind::HostCalls, Some("load")) => (
            "warm up before the loop: load modules, instantiate graphs, and run each kernel once",
            format!("loading code took {took} of the loop"),
        ),
        (Kind::HostCalls, _) if finding.lost.lost_ns == 0 => (
            "copy from pinned memory with non_blocking=True, ahead of its use",
            "a copy from pinned memory would return at once".to_owned(),
        ),
        (Kind::HostCalls, _) => (
            "copy from pinned memory with non_blocking=True, and to the host in a stream of its own",
            format!("copies blocked the host for {took} of the loop"),
        ),
        (Kind::LaunchBound, _) => (
            "launch less and larger work: CUDA graphs, torch.compile, larger batches, fewer small kernels",
            "the GPU finishes its work before the host enqueues more".to_owned(),
        ),
        _ => return None,
    };
    Some(Advice { text: text.to_owned(), because, up_to_ns: finding.lost.lost_ns })
}

/// A victim that had little resident is not what used the memory.
fn oom_advice(finding: &Finding, resident_bytes: u64, machine: &Machine) -> Advice {
    let had = format!("{} had {} resident", name(finding), Bytes(resident_bytes));
    let (text, because) = match machine.mem_avail_bytes {
        Some(avail_bytes) if avail_bytes > resident_bytes => (
            "raise the memory limit of its container or cgroup (memory.max), or use less in it: fewer workers, less prefetching",
            format!("{had}, while the machine had {} available: a limit was reached", Bytes(avail_bytes)),
        ),
        _ => ("use less memory: fewer workers, less prefetching, smaller batches", had),
    };
    Advice { text: text.to_owned(), because, up_to_ns: 0 }
}

/// What advice is made from.
struct About<'a> {
    finding: &'a Finding,
    tree: &'a ProcessTree<'a>,
    machine: &'a Machine,
}

impl About<'_> {
    /// What to try against one cause.
    fn advice(&self, line: &CauseLine) -> Option<Advice> {
        let (text, because) = match line.cause {
            Cause::CpuWait => self.cpu_wait(line),
            Cause::WorkerCpuWait => self.worker_cpu_wait(line),
            Cause::WorkerCpu => self.worker_cpu(line),
            Cause::DriverCpu | Cause::Blocked => self.in_call(line)?,
            _ => self.other(line)?,
        };
        // To watch a process brings nothing yet.
        let up_to_ns = if line.cause == Cause::Wait { 0 } else { line.ns };
        Some(Advice { text, because, up_to_ns })
    }

    fn took(&self, line: &CauseLine) -> String {
        format!("{} of {} lost", Nanos(line.ns), Nanos(self.finding.lost.lost_ns))
    }

    /// How busy the CPUs were, as a part of a reason.
    fn busy(&self, because: String) -> String {
        match self.machine.samples {
            0 => because,
            _ => format!("{because}; the machine's CPUs were {:.0} % busy", self.machine.cpu_pct),
        }
    }

    fn cpu_wait(&self, line: &CauseLine) -> (String, String) {
        let (who, took) = (who(line), self.took(line));
        let because = format!("it was runnable without a CPU for {took}");
        if let Some(cpus) = self.machine.affinity.get(&self.finding.pid) {
            let because = self.busy(format!("{because}; it may run on CPUs {cpus} only"));
            let others =
                rivals(line, self.tree).map(|rivals| format!(", or keep {rivals} off them")).unwrap_or_default();
            return (format!("let it run on more CPUs than {cpus} (taskset, cpuset){others}"), because);
        }
        if who.is_empty() {
            return ("give the process more CPUs, or run less beside it".to_owned(), self.busy(because));
        }
        match rivals(line, self.tree) {
            Some(rivals) => (
                format!("keep {rivals} off this process's CPUs (cpuset, taskset, nice, another host)"),
                self.busy(format!("{because}; {who} had it")),
            ),
            None => (
                "fewer threads and workers, or more CPUs".to_owned(),
                self.busy(format!("{because}; {who} had it, mostly its own threads and workers")),
            ),
        }
    }

    fn worker_cpu_wait(&self, line: &CauseLine) -> (String, String) {
        let cpus = self.workers_cpus();
        let text = match (rivals(line, self.tree), &cpus) {
            (Some(rivals), _) => format!("keep {rivals} off the workers' CPUs (cpuset, taskset, nice, another host)"),
            (None, Some(cpus)) => {
                format!("let the workers run on more CPUs than {cpus} (taskset, cpuset), or use fewer")
            }
            (None, None) => "fewer workers or threads, or more CPUs".to_owned(),
        };
        let only = cpus.map(|cpus| format!("; they may run on CPUs {cpus} only")).unwrap_or_default();
        let had =
            Some(who(line)).filter(|who| !who.is_empty()).map(|who| format!("; {who} had it")).unwrap_or_default();
        (text, self.busy(format!("workers were runnable without a CPU for {}{had}{only}", self.took(line))))
    }

    /// The CPUs on which the process's workers may run, where these are not all and the same for all of them that are known.
    fn workers_cpus(&self) -> Option<&str> {
        let workers = self.machine.affinity.iter().filter(|(pid, _)| **pid != self.finding.pid && self.tree.has(**pid));
        let mut cpus = workers.map(|(_, cpus)| cpus.as_str());
        let first = cpus.next()?;
        cpus.all(|cpus| cpus == first).then_some(first)
    }

    fn worker_cpu(&self, line: &CauseLine) -> (String, String) {
        let first = self.first_place(line).map(|place| format!(", first of all {place}")).unwrap_or_default();
        let crowded = named(self.finding).any(|l| matches!(l.cause, Cause::CpuWait | Cause::WorkerCpuWait));
        let text = match crowded {
            true => format!("make the work for each item cheaper{first}: more workers would wait for a CPU too"),
            false => format!(
                "make the work for each item cheaper{first}, or use more workers and prefetching if the CPUs that they may \
                 use are not busy"
            ),
        };
        let because = format!("{} computed for {} while the GPU's process waited", who(line), self.took(line));
        (text, self.busy(because))
    }

    /// The function in which most of the time of a cause was, if that is enough to be named.
    fn first_place(&self, line: &CauseLine) -> Option<String> {
        let first = line.places.first()?;
        let share = first.share.filter(|&share| share >= NAMED_SHARE)?;
        Some(format!("{}, {} of it", function(first), pct(share)))
    }

    /// Time inside a call: only of slow calls is it known that there is too much of it.
    fn in_call(&self, line: &CauseLine) -> Option<(String, String)> {
        let (finding, took) = (self.finding, self.took(line));
        if finding.op != Kind::SlowCall {
            return None;
        }
        if finding.extra.queue_may_be_full {
            return Some((
                "record the GPU's use (ingero-sched where NVIDIA's driver is): at a busy GPU, this is waiting for it and no fault; \
                 else look for what makes the driver work or wait in this call"
                    .to_owned(),
                format!("{} for {took}, {}", phrase(finding, line), before_queue(finding)),
            ));
        }
        (line.cause == Cause::DriverCpu && !gpu_at_work(finding)).then(|| {
            (
                "look for what makes the driver work in this call (pageable memory, first touches, lazy loading)"
                    .to_owned(),
                format!("on the CPU inside the call, longer than usual, for {took}"),
            )
        })
    }

    fn other(&self, line: &CauseLine) -> Option<(String, String)> {
        let (who, took, machine) = (who(line), self.took(line), self.machine);
        Some(match line.cause {
            Cause::HostCpu => {
                let threads = Some(threads(line)).filter(|threads| !threads.is_empty());
                let threads = threads.unwrap_or_else(|| "the thread that feeds the GPU".to_owned());
                let (first, else_where) = match self.first_place(line) {
                    Some(place) => (format!(", first of all {place}"), ""),
                    None => (String::new(), "; a profiler of the host code shows where the time goes"),
                };
                (
                    format!(
                        "do less in {threads} while the GPU waits{first}: move the work to worker processes, prefetch, or make \
                         it cheaper{else_where}"
                    ),
                    format!("{threads} ran on a CPU for {took}"),
                )
            }
            Cause::Quota | Cause::WorkerQuota => (
                "raise the CPU limit of the container or cgroup (cpu.max), or run fewer threads in it".to_owned(),
                self.busy(format!("runnable and throttled for {took} while a CPU was free")),
            ),
            Cause::IoWait | Cause::WorkerIo if machine.swap_grew_bytes > 0 => (
                "free memory or use less of it: the machine swaps".to_owned(),
                format!("waiting in D for {took} while swap grew by {}", Bytes(machine.swap_grew_bytes)),
            ),
            Cause::IoWait => (
                "read ahead or from faster storage; keep the data in memory if it fits".to_owned(),
                format!("the thread waited in D for {took}"),
            ),
            Cause::WorkerIo => (
                "more workers that read ahead, faster storage, or the data in memory".to_owned(),
                format!("{who} waited in D for {took}"),
            ),
            Cause::Wait => {
                let whom = line.who.first().map_or("it".into(), |w| format!("{} ({})", w.comm, w.pid));
                (
                    format!("watch {whom} as well (ingero-sched --pid) to see what it does"),
                    format!("the process waited for it for {took}, and nothing more is on record"),
                )
            }
            Cause::Gc | Cause::WorkerGc => (
                "collect garbage less often: gc.freeze() once the program is set up, higher thresholds (gc.set_threshold), or \
                 automatic collection off and gc.collect() where nothing waits"
                    .to_owned(),
                format!("{} for {took}", phrase(self.finding, line)),
            ),
            Cause::Sleep | Cause::Pause | Cause::Lock | Cause::Network | Cause::Spin => self.asleep(line),
            Cause::CudaCall => (
                "keep memory allocated (a caching allocator whose cache is not emptied), and load code before the loop"
                    .to_owned(),
                format!("{}: {took} while the GPU was idle", phrase(self.finding, line)),
            ),
            Cause::Steal => (
                "ask for dedicated CPUs from the hypervisor".to_owned(),
                format!("up to {:.0} % of the CPU time was stolen", machine.steal_pct),
            ),
            _ => return None,
        })
    }

    /// Against sleeps that nobody is known to have ended.
    fn asleep(&self, line: &CauseLine) -> (String, String) {
        let text = match line.cause {
            Cause::Pause => "wait for what the pause is for instead of pausing, or pause outside the loop".to_owned(),
            Cause::Lock => "look for who holds the lock, and for how long".to_owned(),
            Cause::Network => {
                "fetch ahead (deeper prefetching, more workers), or keep the data in a local cache".to_owned()
            }
            Cause::Spin => format!("look for what {} asks for; the records do not tell", threads(line)),
            _ => "look for a pause or a poll with a time-out".to_owned(),
        };
        (text, format!("{} for {}", phrase(self.finding, line), self.took(line)))
    }

    /// How long the thread that feeds the GPU was in waits of one kind, if that is enough to be named, and with whom.
    fn waits(&self, of: impl Fn(&WaitLine) -> bool) -> Option<(u64, String)> {
        let waits: Vec<&WaitLine> = self.finding.lost.waits.iter().filter(|wait| of(wait)).collect();
        let ns = waits.iter().map(|wait| wait.ns).sum::<u64>();
        let large = ns > 0 && ns as f64 >= self.finding.lost.lost_ns as f64 * NAMED_SHARE;
        large.then(|| (ns, tasks(waits.iter().filter_map(|wait| wait.by.as_ref()))))
    }

    /// Only one thread of a process runs Python at a time.
    fn gil(&self) -> Option<Advice> {
        let (ns, who) = self.waits(|wait| wait.kind() == "gil")?;
        let who = if who.is_empty() { "another thread".to_owned() } else { who };
        Some(Advice {
            text: format!(
                "move the Python code of {who} to a process of its own, or to native code that releases the GIL; \
                 a free-threaded build of Python has none"
            ),
            because: format!("the thread that feeds the GPU waited {} for the GIL, which {who} had", Nanos(ns)),
            up_to_ns: ns,
        })
    }

    /// A pipe that is full or empty: the other end is late.
    fn pipe(&self) -> Option<Advice> {
        let writes = |wait: &WaitLine| wait.kind() == "pipe" && wait.call.raw().contains("write");
        let (ns, who) = self.waits(writes)?;
        let who = if who.is_empty() { "its reader".to_owned() } else { who };
        Some(Advice {
            text: format!("let {who} read faster, write less to it, or write from a thread of its own"),
            because: format!(
                "the thread that feeds the GPU waited {} for room in the pipe that {who} reads",
                Nanos(ns)
            ),
            up_to_ns: ns,
        })
    }

    /// The CPU limit may have had a part in the waiting that is put down to others.
    fn limit_as_well(&self) -> Option<Advice> {
        let is_named = |causes: [Cause; 2]| named(self.finding).any(|line| causes.contains(&line.cause));
        let hidden = self.machine.throttled_ns > 0
            && is_named([Cause::CpuWait, Cause::WorkerCpuWait])
            && !is_named([Cause::Quota, Cause::WorkerQuota]);
        hidden.then(|| Advice {
            text: "look at the CPU limit of the container or cgroup (cpu.max), too".to_owned(),
            because: format!(
                "it throttled {} for {} in that time while others had the CPUs; the throttled share cannot be separated",
                name(self.finding),
                Nanos(self.machine.throttled_ns)
            ),
            up_to_ns: 0,
        })
    }
}

/// What makes a call wait for a GPU that is at work, as a part of a reason.
fn before_queue(finding: &Finding) -> String {
    match finding.call.function().map(|function| function.class) {
        Some(Class::Copy) => {
            "with operations not waited for by then, behind which a copy from or to pageable memory waits".to_owned()
        }
        _ => format!("with {FULL_FROM} operations or more not waited for by then, at which its queue may be full"),
    }
}

/// Threads of the kernel, by the names that it gives them: most belong to a CPU and cannot be kept off it.
fn is_kernel_thread(comm: &Traced) -> bool {
    ["kworker/", "ksoftirqd/", "migration/", "rcu_", "rcuc/", "irq/", "kcompactd", "kswapd"]
        .iter()
        .any(|p| comm.raw().starts_with(p))
}

/// Those outside the process's tree who had the CPU that a cause waited for, if it was they who mostly had it.
fn rivals(line: &CauseLine, tree: &ProcessTree<'_>) -> Option<String> {
    let stranger = |who: &&WhoNs| !tree.has(who.pid) && !is_kernel_thread(&who.comm);
    let strangers: Vec<&WhoNs> = line.who.iter().filter(stranger).collect();
    let ns: u64 = strangers.iter().map(|who| who.ns).sum();
    let own_ns: u64 = line.who.iter().map(|who| who.ns).sum::<u64>() - ns;
    // Not every kernel thread that once came by.
    let worth_naming = |who: &&WhoNs| who.ns as f64 >= ns as f64 * RIVAL_SHARE;
    (ns > own_ns).then(|| tasks(strangers.into_iter().filter(worth_naming)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::{TaskTable, Thread};

    fn line(who: &[(&str, u32, u64)]) -> CauseLine {
        let who: Vec<_> = who.iter().map(|&(comm, pid, ns)| WhoNs { pid, comm: comm.into(), ns }).collect();
        let ns = who.iter().map(|one| one.ns).sum();
        CauseLine {
            cause: Cause::WorkerCpuWait,
            ns,
            share: 1.0,
            who,
            ops: Vec::new(),
            waits: Vec::new(),
            places: Vec::new(),
        }
    }

    #[test]
    fn only_strangers_are_rivals_and_only_if_it_was_mostly_they() {
        let mut tasks = TaskTable::default();
        let parent = Thread { pid: 1, tid: 1, ..Thread::default() };
        tasks.process(1, 0);
        tasks.fork(parent, 2, 10);
        let tree = ProcessTree::of(&tasks, 1, 0, 100);
        let rivals = |who: &[_]| super::rivals(&line(who), &tree);
        assert_eq!(
            rivals(&[("stress", 11, 40), ("loader", 2, 30), ("cron", 5, 1), ("kworker/0:1", 6, 5)]).as_deref(),
            Some("stress (11)")
        );
        assert_eq!(rivals(&[("loader", 2, 50), ("stress", 11, 40)]), None);
        assert_eq!(rivals(&[("train", 1, 5)]), None);
    }

    #[test]
    fn who_came_by_is_no_rival() {
        let tasks = TaskTable::default();
        let tree = ProcessTree::of(&tasks, 1, 0, 100);
        let rivals = |who: &[_]| super::rivals(&line(who), &tree);
        assert_eq!(rivals(&[("stress", 11, 95), ("cron", 5, 5)]).as_deref(), Some("stress (11) and cron (5)"));
        assert_eq!(rivals(&[("stress", 11, 96), ("cron", 5, 4)]).as_deref(), Some("stress (11)"));
    }
}
