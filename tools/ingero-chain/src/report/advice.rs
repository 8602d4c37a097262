//! What to try. Each piece of advice is tied to a cause and says what in the records led to it; there is none where the
//! records don't say why.

use ingero_common::cuda_api::Class;
use ingero_common::text::{Bytes, Nanos};

use crate::blame::cpus::CpuSet;
use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, CauseLine, WhoNs};
use crate::report::model::{Advice, Finding, Kind};
use crate::report::sentences::{Machine, count, cpu_list, gpu_at_work, in_thread, name, named, parties, phrase, who};

/// What to try, for each cause that is large enough to be named.
pub(super) fn of(finding: &Finding, tree: &ProcessTree<'_>, machine: &Machine) -> Vec<Advice> {
    let mut all = Vec::new();
    all.extend(of_kind(finding));
    if let (Kind::Oom, Some(bytes)) = (finding.op, finding.extra.resident_bytes) {
        all.push(oom_advice(finding, bytes, machine));
    }
    let by_cause = !matches!(finding.op, Kind::HostCalls | Kind::LaunchBound);
    for line in named(finding).filter(|_| by_cause) {
        let took = format!("{} of {} lost", Nanos(line.ns), Nanos(finding.lost.lost_ns));
        if let Some((text, because)) = advice_for(finding, line, tree, machine, &took) {
            all.push(Advice { text, because, up_to_ns: line.ns });
        }
    }
    let is_named = |causes: [Cause; 2]| named(finding).any(|line| causes.contains(&line.cause));
    if machine.throttled_ns > 0
        && is_named([Cause::CpuWait, Cause::WorkerCpuWait])
        && !is_named([Cause::Quota, Cause::WorkerQuota])
    {
        let text = "look at the CPU limit of the container or cgroup (cpu.max), too".to_owned();
        let because = format!(
            "it throttled {} for {} in that time while others had the CPUs; how much of the waiting that was is not on record",
            name(finding),
            Nanos(machine.throttled_ns)
        );
        all.push(Advice { text, because, up_to_ns: 0 });
    }
    // Something regular in what the process does by itself is a lead; data that comes late comes late at each step.
    let own =
        matches!(finding.lost.causes.first().map(|c| c.cause), Some(Cause::HostCpu | Cause::IoWait | Cause::Sleep));
    if let Some(period) = finding.times.as_ref().and_then(|times| times.period)
        && own
        && !all.is_empty()
    {
        let text = format!("look for what {} does every {}", name(finding), Nanos(period.ns));
        let (calls, apart) = (count(period.every, "call"), Nanos(period.ns));
        let because = format!("{} occurrences, one in {calls}, {apart} apart", finding.lost.n);
        all.push(Advice { text, because, up_to_ns: 0 });
    }
    all
}

/// What helps against a kind of finding whatever its causes.
fn of_kind(finding: &Finding) -> Option<Advice> {
    let took = Nanos(finding.lost.lost_ns);
    let (text, because) = match (finding.op, finding.extra.class) {
        (Kind::HostCalls, Some("memory")) => (
            "keep memory allocated: a caching allocator, no emptying of its cache, buffers that are used again",
            format!("allocating and freeing took {took} of the loop"),
        ),
        (Kind::HostCalls, Some("load")) => (
            "warm up before the loop: load modules, instantiate graphs, and run each kernel once",
            format!("loading code took {took} of the loop"),
        ),
        (Kind::HostCalls, _) => (
            "copy from pinned memory with non_blocking=True, and to the host in a stream of its own",
            format!("copies blocked the host for {took} of the loop"),
        ),
        (Kind::LaunchBound, _) => (
            "launch less and larger work: CUDA graphs, torch.compile, larger batches, fewer small kernels",
            "the GPU is done with what it was given before the host gives it more".to_owned(),
        ),
        _ => return None,
    };
    Some(Advice { text: text.to_owned(), because, up_to_ns: finding.lost.lost_ns })
}

/// A victim that had little resident is not what used the memory.
fn oom_advice(finding: &Finding, resident_bytes: u64, machine: &Machine) -> Advice {
    let had = format!("{} had {} resident", name(finding), Bytes(resident_bytes));
    match machine.mem_avail_bytes {
        Some(avail_bytes) if avail_bytes > resident_bytes => Advice {
            text: "raise the memory limit of its container or cgroup (memory.max), or use less in it: fewer workers, less prefetching".into(),
            because: format!("{had}, while the machine had {} to give: a limit was reached, not the machine's end", Bytes(avail_bytes)),
            up_to_ns: 0,
        },
        _ => Advice { text: "use less memory: fewer workers, less prefetching, smaller batches".into(), because: had, up_to_ns: 0 },
    }
}

fn advice_for(
    finding: &Finding,
    line: &CauseLine,
    tree: &ProcessTree<'_>,
    machine: &Machine,
    took: &str,
) -> Option<(String, String)> {
    let who = who(line);
    let in_call = finding.op == Kind::SlowCall;
    let busy = |because: String| match machine.samples {
        0 => because,
        _ => format!("{because}; CPUs {:.0} % busy", machine.cpu_pct),
    };
    let (text, because) = match line.cause {
        Cause::HostCpu => (
            "move this work off the thread that feeds the GPU (worker processes, prefetching), or make it cheaper; a profiler of the host code shows where it goes".to_owned(),
            format!("the feeding thread{} was on a CPU for {took}, not waiting for anybody", in_thread(line)),
        ),
        Cause::CpuWait if who.is_empty() => (
            "give the process more CPUs, or run less beside it".to_owned(),
            busy(format!("it was runnable without a CPU for {took}")) + &ran_on("it", &machine.own_cpus),
        ),
        Cause::CpuWait => match rivals(line, tree) {
            Some(rivals) => (
                format!("keep {rivals} off this process's CPUs (cpuset, taskset, nice, another host)"),
                busy(format!("it was runnable without a CPU for {took}; {who} had it")) + &ran_on("it", &machine.own_cpus),
            ),
            None => (
                more_cpus("fewer threads and workers", "it", &machine.own_cpus),
                busy(format!("it was runnable without a CPU for {took}; {who} had it, mostly its own threads and workers"))
                    + &ran_on("it", &machine.own_cpus),
            ),
        },
        Cause::Quota | Cause::WorkerQuota => (
            "raise the CPU limit of the container or cgroup (cpu.max), or run fewer threads in it".to_owned(),
            busy(format!("runnable and throttled, {took}, while a CPU was free")),
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
            format!("the time of {who} in D: {took}"),
        ),
        Cause::WorkerCpu if named(finding).any(|l| matches!(l.cause, Cause::CpuWait | Cause::WorkerCpuWait)) => (
            "cheaper work for each item: more workers would wait for a CPU too".to_owned(),
            busy(format!("the time of {who} on a CPU, while the GPU's process waited: {took}")),
        ),
        Cause::WorkerCpu if machine.worker_cpus.is_some() => (
            more_cpus("cheaper work for each item", "the workers", &machine.worker_cpus),
            busy(format!("the time of {who} on a CPU, while the GPU's process waited: {took}"))
                + &ran_on("they", &machine.worker_cpus),
        ),
        Cause::WorkerCpu => (
            "more workers or prefetching if CPUs are free, else cheaper work for each item".to_owned(),
            busy(format!("the time of {who} on a CPU, while the GPU's process waited: {took}")),
        ),
        Cause::WorkerCpuWait => (
            match rivals(line, tree) {
                Some(rivals) => {
                    format!("keep {rivals} off the workers' CPUs (cpuset, taskset, nice, another host)")
                }
                None => more_cpus("fewer workers or threads", "the workers", &machine.worker_cpus),
            },
            busy(format!("workers were runnable without a CPU for {took}{}", had_by(&who)))
                + &ran_on("they", &machine.worker_cpus),
        ),
        Cause::Wait => (
            format!("watch {} as well (ingero-sched --pid) to see what it does", line.who.first().map_or("it".into(), |w| format!("{} ({})", w.comm, w.pid))),
            format!("the process waited for it for {took}, and nothing more is on record"),
        ),
        Cause::DriverCpu | Cause::Blocked if in_call && finding.extra.queue_may_be_full => (
            "record the GPU's use (ingero-sched where NVIDIA's driver is): at a busy GPU, this is waiting for it and no fault; \
             else look for what makes the driver work or wait in this call"
                .to_owned(),
            format!("{} for {took}, {}", phrase(line), before_queue(finding)),
        ),
        Cause::DriverCpu if in_call && !gpu_at_work(finding) => (
            "look for what makes the driver work in this call (pageable memory, first touches, lazy loading)".to_owned(),
            format!("on the CPU inside the call, beyond the usual, for {took}"),
        ),
        Cause::Sleep => (
            "find what it slept in: a pause or a poll".to_owned(),
            format!("asleep for {took}, until a timer or an interrupt woke it"),
        ),
        Cause::CudaCall => (
            "keep memory allocated (a caching allocator, no emptying of its cache), and load code before the loop".to_owned(),
            format!("{}: {took}, while the GPU was idle", phrase(line)),
        ),
        Cause::Steal => (
            "ask for dedicated CPUs of the hypervisor".to_owned(),
            format!("up to {:.0} % of CPU time was stolen", machine.steal_pct),
        ),
        _ => return None,
    };
    Some((text, because))
}

/// That threads ran on some CPUs only, as a part of a reason.
fn ran_on(who: &str, set: &Option<CpuSet>) -> String {
    set.as_ref().map_or_else(String::new, |set| format!(", but {who} ran on {} only", cpu_list(set)))
}

/// What to try, or more CPUs: those of the machine that it doesn't use, where that is known.
fn more_cpus(what: &str, whom: &str, set: &Option<CpuSet>) -> String {
    match set {
        None => format!("{what}, or more CPUs"),
        Some(set) => {
            format!("let {whom} run on more than {} (taskset, cpuset of its container), or {what}", cpu_list(set))
        }
    }
}

/// What makes a call wait for a GPU that is at work, as a part of a reason.
fn before_queue(finding: &Finding) -> &'static str {
    match ingero_common::cuda_api::find(&finding.call.call_src, &finding.call.call).map(|function| function.class) {
        Some(Class::Copy) => {
            "with operations not waited for by then, behind which a copy from or to pageable memory waits"
        }
        _ => "with 512 operations or more not waited for by then, at which its queue may be full",
    }
}

/// Threads of the kernel, by the names that it gives them: most belong to a CPU and cannot be kept off it.
fn is_kernel_thread(comm: &str) -> bool {
    ["kworker/", "ksoftirqd/", "migration/", "rcu_", "rcuc/", "irq/", "kcompactd", "kswapd"]
        .iter()
        .any(|p| comm.starts_with(p))
}

/// Those outside the process's tree who had the CPU that a cause waited for, if it was they who mostly had it.
fn rivals(line: &CauseLine, tree: &ProcessTree<'_>) -> Option<String> {
    let stranger = |who: &&WhoNs| !tree.has(who.pid) && !is_kernel_thread(&who.comm);
    let strangers: Vec<&WhoNs> = line.who.iter().filter(stranger).collect();
    let ns: u64 = strangers.iter().map(|who| who.ns).sum();
    let own_ns: u64 = line.who.iter().map(|who| who.ns).sum::<u64>() - ns;
    // Not every kernel thread that once came by.
    let worth_naming = |who: &&WhoNs| who.ns * 20 >= ns;
    (ns > own_ns).then(|| parties(strangers.into_iter().filter(worth_naming)))
}

fn had_by(who: &str) -> String {
    if who.is_empty() { String::new() } else { format!("; {who} had it") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::{TaskTable, Thread};

    fn line(who: &[(&str, u32, u64)]) -> CauseLine {
        let who: Vec<_> = who.iter().map(|&(comm, pid, ns)| WhoNs { pid, comm: comm.into(), ns }).collect();
        let ns = who.iter().map(|one| one.ns).sum();
        CauseLine { cause: Cause::WorkerCpuWait, ns, share: 1.0, who, ops: Vec::new() }
    }

    #[test]
    fn only_strangers_are_rivals_and_only_if_it_was_mostly_they() {
        let mut tasks = TaskTable::default();
        let parent = Thread { pid: 1, tid: 1, ..Thread::default() };
        tasks.process(1, 0);
        tasks.fork(parent, 2, 10);
        let tree = ProcessTree::of(&tasks, 1, 0, 100);
        let rivals = |who: &[_]| super::rivals(&line(who), &tree);
        assert_eq!(rivals(&[("stress", 11, 40), ("loader", 2, 30), ("kworker", 5, 1)]).as_deref(), Some("stress (11)"));
        assert_eq!(rivals(&[("loader", 2, 50), ("stress", 11, 40)]), None);
        assert_eq!(rivals(&[("train", 1, 5)]), None);
    }
}
