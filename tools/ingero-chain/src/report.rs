//! From what the engine knows to chains, process records and the summary.

use ingero_common::clock::Ts;
use ingero_common::host::{InstanceId, Name, ProcessInstance, Program, Side, Until};
use ingero_common::record::src;

use crate::calls::{Group, GroupKey, MIN_CALLS, MIN_CALLS_P99, SLOW_FACTOR, SLOW_NS};
use crate::cause::{Bill, Cause, WhoNs, share};
use crate::chain::{
    Aside, CallLine, Chain, Cold, ColdCall, Counts, Evidence, GapTotal, Kind, LOW_SHARE, Occurrence, ProcessReport,
    Ratio, Report, Severity, Summary,
};
use crate::cpus::CpuSet;
use crate::engine::Engine;
use crate::family::Family;
use crate::gaps::{Bounds, GAP_FACTOR, GapSum, MIN_GAP_NS, Settlement};
use crate::oom::Kill;
use crate::ops::Class;
use crate::period;
use crate::process::{CudaProcess, died_ns, watched_ns};
use crate::rates::{DROP_BELOW, DROP_NS};
use crate::stall::{self, SHORT_NS, STALL_FACTOR, STALL_NS};
use crate::stats::Block;
use crate::words;

/// Workers of one chain whose requests to block devices are told of.
const MAX_REQUESTERS: usize = 2;
/// Below this use, as its driver counts it, a GPU leaves no launch waiting.
const GPU_BUSY_FROM_PCT: f64 = 50.0;
/// Names of what no chain counts.
const START_UP: &str = "start-up";
const WIND_DOWN: &str = "wind-down";
/// Occurrences listed for one chain.
const MAX_OCCURRENCES: usize = 1000;

impl Engine {
    /// What has been found so far. `details` adds each chain's occurrences.
    pub fn report(&mut self, details: bool) -> Report {
        let mut chains: Vec<Chain> = Vec::new();
        let (mut totals, mut asides) = (Vec::new(), Vec::new());
        let end_ns = self.end_ns();
        for process in self.cuda.values() {
            let end_ns = self.end_of_ns(process);
            let observed_ns = self.observed_ns(process, end_ns);
            let gaps = Gaps::of(process);
            chains.extend(self.gap_chains(process, &gaps, observed_ns, details));
            totals.extend(self.gap_total(process, &gaps, observed_ns));
            asides.extend(self.asides(process, gaps.bounds));
            chains.extend(self.slow_chains(process, observed_ns, details));
            chains.extend(self.stall_chain(process, observed_ns, end_ns));
            chains.extend(self.drop_chain(process, observed_ns, end_ns));
        }
        chains.extend(self.kills.iter().map(|kill| self.oom_chain(kill)));
        chains.sort_by(|a, b| {
            let key = |c: &Chain| (std::cmp::Reverse(c.severity), std::cmp::Reverse(c.lost_ns), c.mono_ns);
            key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
        });
        unique_ids(&mut chains);
        for chain in &mut chains {
            let mut machine = words::Machine::over(&self.samples, &self.kills, &self.names, chain);
            machine.io = self.requests(chain);
            (machine.own_cpus, machine.worker_cpus) = self.cpus_had(chain, machine.cpus);
            let family = Family::of(&self.tasks, chain.pid, chain.mono_ns, chain.mono_ns + chain.dur_ns);
            words::tell(chain, &family, machine);
            if let Some(wall) = &mut self.wall {
                chain.ts = Some(wall.ts(chain.mono_ns));
                for one in &mut chain.occurrences {
                    one.ts = Some(wall.ts(one.mono_ns));
                }
            }
        }
        let processes = self.process_reports(end_ns);
        let aside_ns = |what| asides.iter().filter(|aside| aside.what == what).map(|aside| aside.dur_ns).sum();
        let (start_up_ns, wind_down_ns) = (aside_ns(START_UP), aside_ns(WIND_DOWN));
        let summary = Summary { gaps: totals, start_up_ns, wind_down_ns, ..self.summary(&chains, end_ns) };
        Report { chains, processes, asides, summary }
    }

    /// What those asked of block devices who kept a chain's process waiting for one.
    fn requests(&self, chain: &Chain) -> Vec<(WhoNs, Block)> {
        let at_ns = chain.mono_ns + chain.dur_ns;
        let lines = chain.causes.iter().filter(|line| line.share >= words::NAMED_SHARE);
        let own = |ns| WhoNs { pid: chain.pid, comm: chain.comm.clone(), ns };
        let who = lines.flat_map(|line| match line.cause {
            Cause::IoWait => vec![own(line.ns)],
            Cause::WorkerIo => line.who.iter().take(MAX_REQUESTERS).cloned().collect(),
            _ => Vec::new(),
        });
        let io_of = |pid| {
            let life = self.tasks.find_process(pid, at_ns)?;
            self.stats.get(&life.id).map(|stats| stats.block).filter(|io| io.reads + io.writes > 0)
        };
        who.filter_map(|who| io_of(who.pid).map(|io| (who, io))).collect()
    }

    /// The CPUs that a chain's process had, and those that its descendants had, where they waited for one or computed all the
    /// time and are known to have had fewer than the machine's `cpus`.
    fn cpus_had(&self, chain: &Chain, cpus: Option<u32>) -> (Option<CpuSet>, Option<CpuSet>) {
        let at_ns = chain.mono_ns + chain.dur_ns;
        let named = |causes: &[Cause]| {
            chain.causes.iter().any(|line| line.share >= words::NAMED_SHARE && causes.contains(&line.cause))
        };
        let few = |set: CpuSet| Some(set).filter(|set| cpus.is_some_and(|cpus| set.is_all_they_have(cpus)));
        let cpus_of = |life: InstanceId| self.stats.get(&life).map(|stats| stats.cpus.clone()).unwrap_or_default();
        let head = self.tasks.find_process(chain.pid, at_ns).map(|life| life.id);
        let own = || few(cpus_of(head?));
        let workers = || {
            let mut set = CpuSet::default();
            for life in self.tasks.processes() {
                if self.tasks.ancestors(life).any(|ancestor| Some(ancestor.id) == head) {
                    set.add_all(&cpus_of(life.id));
                }
            }
            few(set)
        };
        (
            named(&[Cause::CpuWait]).then(own).flatten(),
            named(&[Cause::WorkerCpu, Cause::WorkerCpuWait]).then(workers).flatten(),
        )
    }

    /// Records that either tracer lost and that may concern a process in [`from_ns`, `to_ns`].
    fn lost_between(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        self.cuda_losses.count(pid, from_ns, to_ns) + self.sched_losses.count(pid, from_ns, to_ns)
    }

    /// How long a process was observed, in nanoseconds: from its watch (or first call) to its end.
    fn observed_ns(&self, process: &CudaProcess, end_ns: u64) -> u64 {
        let watch = process.life(&self.tasks).map(|life| life.watch(Side::Cuda));
        let watch_ns = watch.and_then(|watch| watch.since_ns());
        let from_ns = watch_ns.unwrap_or(process.first_call_ns).min(process.first_call_ns);
        let to_ns = died_ns(&self.tasks, process).unwrap_or(end_ns).max(process.returned_ns);
        to_ns.saturating_sub(from_ns) - watch.map_or(0, |watch| watch.between_ns(from_ns, to_ns))
    }

    /// Whether calls of a process may be missing in [`from_ns`, `to_ns`] because one tracer had stopped and the next not begun.
    fn was_not_watched(&self, process: &CudaProcess, from_ns: u64, to_ns: u64) -> bool {
        let life = process.life(&self.tasks);
        life.is_some_and(|life| life.watch(Side::Cuda).between_ns(from_ns, to_ns) > 0)
    }

    fn gap_chains(&self, process: &CudaProcess, gaps: &Gaps<'_>, observed_ns: u64, details: bool) -> Vec<Chain> {
        let mut chains = Vec::new();
        for (call, settlement, sum) in &gaps.sums {
            let lost_share = share(sum.lost_ns, observed_ns);
            let Some(severity) = Severity::of(lost_share) else { continue };
            let mut chain = self.gap_chain(process, *call, sum, severity, lost_share);
            if details {
                let kept = settlement.counted(gaps.bounds);
                chain.occurrences = self.occurrences(kept.map(|g| (g.start_ns, g.len_ns, g.seq, g.bill.clone())));
            }
            chains.push(chain);
        }
        chains
    }

    /// What no chain counts of a process: starting up and winding down.
    fn asides(&self, process: &CudaProcess, bounds: Bounds) -> Vec<Aside> {
        let starts = process.start_up(bounds).map(|part| (START_UP, part));
        let end = process.wind_down(died_ns(&self.tasks, process)).map(|part| (WIND_DOWN, part));
        let comm = self.names.text(process.name);
        let aside =
            |(what, (mono_ns, dur_ns))| Aside { pid: process.pid, comm: comm.to_owned(), what, mono_ns, dur_ns };
        starts.chain(end).map(aside).collect()
    }

    /// All gaps of a process, where they are before more than one kind of call and worth a word together.
    fn gap_total(&self, process: &CudaProcess, gaps: &Gaps<'_>, observed_ns: u64) -> Option<GapTotal> {
        let (mut n, mut kinds, mut bill) = (0, 0, Bill::default());
        for (.., sum) in &gaps.sums {
            n += sum.n;
            kinds += u64::from(sum.n > 0);
            bill.add_all(&sum.bill);
        }
        let lost_share = share(bill.total_ns(), observed_ns);
        let severity = Severity::of(lost_share).filter(|_| kinds > 1)?;
        Some(GapTotal {
            severity,
            pid: process.pid,
            comm: self.names.text(process.name).to_owned(),
            n,
            kinds,
            lost_ns: bill.total_ns(),
            lost_share,
            causes: bill.causes(&self.names),
            unexplained_ns: bill.unexplained_ns(),
        })
    }

    fn gap_chain(
        &self,
        process: &CudaProcess,
        call: GroupKey,
        gaps: &GapSum,
        severity: Severity,
        lost_share: f64,
    ) -> Chain {
        let usual_ns = process.union.usual.median_ns();
        // One loss may touch many gaps, and is counted once.
        let lost = match gaps.lost {
            0 => 0,
            _ => self.lost_between(process.pid, gaps.first_ns, gaps.last_end_ns),
        };
        Chain {
            mono_ns: gaps.first_ns,
            dur_ns: gaps.last_end_ns - gaps.first_ns,
            n: gaps.n,
            period: period::of(&gaps.occurrences),
            lost_ns: gaps.lost_ns,
            lost_share,
            proven: Some(gaps.proven_ns == gaps.lost_ns),
            proven_ns: Some(gaps.proven_ns),
            p50_ns: usual_ns,
            max_ns: gaps.max_ns,
            evidence: Evidence {
                lost,
                watched_share: share(gaps.watched_ns, gaps.lost_ns),
                samples: process.union.usual.len(),
            },
            ..self.chain(Kind::Gap, process, call, severity, &gaps.bill)
        }
        .with_ratio()
    }

    fn slow_chains(&self, process: &CudaProcess, observed_ns: u64, details: bool) -> Vec<Chain> {
        let mut chains = Vec::new();
        let doubtful = self.sched_losses.ranges(process.pid);
        for (call, group) in process.groups.sorted(&self.names) {
            let Some(slow) = group.slow(&self.samples, &doubtful) else { continue };
            let lost_share = share(slow.lost_ns, observed_ns);
            let Some(severity) = Severity::of(lost_share) else { continue };
            let (first_ns, last_ns) = (slow.first_ns, slow.last_end_ns);
            let class = group.class();
            let gpu_pct = self.samples.gpu_pct(first_ns, last_ns);
            let gpu_worked = match gpu_pct {
                Some(pct) if class.enqueues() => pct >= GPU_BUSY_FROM_PCT,
                Some(_) => true,
                // A synchronise tells by itself that the GPU was at work. That a queue was full, only a busy GPU does.
                None => class.waits_for_gpu(),
            };
            let gpu_wait_ns = if gpu_worked { slow.gpu_wait_ns } else { 0 };
            let queue_may_be_full = !gpu_worked && gpu_pct.is_none() && slow.gpu_wait_ns > slow.lost_ns / 2;
            // The GPU at work is worth a remark, never an alarm. What cannot have been that counts by itself, where a call
            // need not wait for it by its nature.
            let severity = match gpu_wait_ns > slow.lost_ns / 2 {
                true if matches!(class, Class::Sync | Class::SyncCopy) => Severity::Low,
                true => Severity::of(share(slow.lost_ns - gpu_wait_ns, observed_ns)).unwrap_or(Severity::Low),
                false => severity,
            };
            let lost = self.lost_between(process.pid, first_ns, last_ns);
            let chain = Chain {
                mono_ns: first_ns,
                dur_ns: last_ns - first_ns,
                n: slow.n,
                period: period::of(&slow.occurrences),
                lost_ns: slow.lost_ns,
                lost_share,
                gpu_wait_ns: Some(gpu_wait_ns).filter(|&ns| ns > 0),
                queue_may_be_full,
                bytes: call.bytes().map(|(from, to)| [from, to]),
                p50_ns: group.durations.median_ns(),
                p99_ns: p99_ns(group),
                max_ns: group.durations.max_ns(),
                evidence: Evidence {
                    lost,
                    watched_share: 1.0 - share(slow.bill.unexplained_ns(), slow.lost_ns),
                    samples: group.durations.len(),
                },
                occurrences: if details {
                    self.occurrences(group.slow_calls(&self.samples, &doubtful))
                } else {
                    Vec::new()
                },
                ..self.chain(Kind::SlowCall, process, call, severity, &slow.bill)
            };
            chains.push(chain.with_ratio());
        }
        chains
    }

    /// The longest of some occurrences: start, length, place, bill.
    fn occurrences(&self, all: impl Iterator<Item = (u64, u64, u64, Bill)>) -> Vec<Occurrence> {
        let one = |(mono_ns, dur_ns, after_calls, bill): (u64, u64, u64, Bill)| Occurrence {
            mono_ns,
            ts: None,
            dur_ns,
            after_calls,
            causes: bill.causes(&self.names),
            unexplained_ns: bill.unexplained_ns(),
        };
        let mut all: Vec<_> = all.map(one).collect();
        all.sort_by_key(|o| (std::cmp::Reverse(o.dur_ns), o.mono_ns));
        all.truncate(MAX_OCCURRENCES);
        all
    }

    fn stall_chain(&self, process: &CudaProcess, observed_ns: u64, end_ns: u64) -> Option<Chain> {
        let until = Until { ns: end_ns, in_order: self.ends_in_order(process) };
        let stall = stall::of(process, self.sources(), &self.cuda_losses, until)?;
        let lost_share = share(stall.lost_ns, observed_ns);
        let severity = Severity::of(lost_share)?;
        let severity = if stall.lost_ns < STALL_NS || stall.remark { Severity::Low } else { severity };
        let chain = Chain {
            mono_ns: stall.start_ns,
            dur_ns: stall.lost_ns,
            n: 1,
            lost_ns: stall.lost_ns,
            lost_share,
            proven: if stall.in_call { None } else { Some(stall.proven) },
            p50_ns: stall.usual_ns,
            max_ns: stall.lost_ns,
            evidence: Evidence {
                lost: stall.lost,
                watched_share: share(stall.watched_ns, stall.lost_ns),
                samples: process.calls,
            },
            ..self.chain(Kind::Stall, process, stall.call, severity, &stall.bill)
        };
        Some(Chain { max_ns: stall.lost_ns, ..chain.with_ratio() })
    }

    fn drop_chain(&self, process: &CudaProcess, observed_ns: u64, end_ns: u64) -> Option<Chain> {
        let limit_ns = process.union.limit_ns();
        let gap_ns = |from, to| process.settlements.values().map(|s| s.gap_ns(limit_ns, from, to)).sum();
        // What follows the last call is a stall or nothing.
        let drop = process.rates.drop(process.returned_ns.min(end_ns), gap_ns)?;
        let lost = self.cuda_losses.count(process.pid, drop.start_ns, drop.end_ns);
        let lost_share = share(drop.lost_ns, observed_ns);
        let severity = Severity::of(lost_share)?;
        if lost > 0 || self.was_not_watched(process, drop.start_ns, drop.end_ns) {
            return None;
        }
        // A phase of the program that came and went is worth a remark; only one that lasts is more.
        let lasts = drop.end_ns + 2 * drop.window_ns >= process.returned_ns;
        let severity = if lasts { severity } else { Severity::Low };
        let per_call = |calls: u64| drop.window_ns / calls.max(1);
        let chain = Chain {
            mono_ns: drop.start_ns,
            dur_ns: drop.end_ns - drop.start_ns,
            n: 1,
            lost_share,
            p50_ns: per_call(drop.usual_calls),
            max_ns: per_call(drop.calls),
            evidence: Evidence {
                lost,
                watched_share: share(
                    watched_ns(self.sources(), process.pid, drop.start_ns, drop.end_ns),
                    drop.end_ns - drop.start_ns,
                ),
                samples: process.calls,
            },
            ..self.chain(Kind::Drop, process, drop.call, severity, &drop.bill)
        };
        Some(chain.with_ratio())
    }

    fn oom_chain(&self, kill: &Kill) -> Chain {
        let life = kill.life.and_then(|id| self.tasks.instance(kill.victim.pid, id));
        let role = life.map_or("other", |life| self.role(life));
        // By what it does to the GPU's work: there are no nanoseconds to go by.
        let severity = match role {
            "cuda" => Severity::High,
            "worker" => Severity::Medium,
            _ => Severity::Low,
        };
        let name = life.map(|life| life.name).filter(|_| kill.victim.name == Name::default());
        Chain {
            mono_ns: kill.at_ns,
            n: 1,
            role: Some(role),
            resident_bytes: kill.resident_bytes,
            ratio_reason: Some("an event has no duration"),
            ..self.bare_chain(Kind::Oom, kill.victim.pid, name.unwrap_or(kill.victim.name), severity, &Bill::default())
        }
    }

    /// What chains about calls have in common; numbers that they don't are 0 here.
    fn chain(&self, op: Kind, process: &CudaProcess, call: GroupKey, severity: Severity, bill: &Bill) -> Chain {
        let dir = Some(self.names.text(call.dir)).filter(|d| !d.is_empty()).map(str::to_owned);
        let name = self.names.text(call.op);
        let bytes = call.bytes().map(|(from, _)| format!("-{from}")).unwrap_or_default();
        let dash_dir = dir.as_ref().map(|d| format!("-{d}")).unwrap_or_default();
        Chain {
            id: format!("{}-{}-{name}{dash_dir}{bytes}", op.name(), process.pid),
            call: name.to_owned(),
            call_src: self.names.text(call.source).to_owned(),
            dir,
            ..self.bare_chain(op, process.pid, process.name, severity, bill)
        }
    }

    /// What all kinds of chains have in common.
    fn bare_chain(&self, op: Kind, pid: u32, name: Name, severity: Severity, bill: &Bill) -> Chain {
        Chain {
            src: src::CHAIN,
            op,
            id: format!("{}-{pid}", op.name()),
            severity,
            mono_ns: 0,
            ts: None,
            dur_ns: 0,
            pid,
            comm: self.names.text(name).to_owned(),
            role: None,
            resident_bytes: None,
            n: 0,
            period: None,
            lost_ns: bill.total_ns(),
            lost_share: 0.0,
            proven: None,
            proven_ns: None,
            gpu_wait_ns: None,
            queue_may_be_full: false,
            call: String::new(),
            call_src: String::new(),
            dir: None,
            bytes: None,
            p50_ns: 0,
            p99_ns: None,
            max_ns: 0,
            ratio: Ratio(None),
            ratio_reason: None,
            causes: bill.causes(&self.names),
            unexplained_ns: bill.unexplained_ns(),
            timeline: Vec::new(),
            summary: String::new(),
            advice: Vec::new(),
            evidence: Evidence { lost: 0, watched_share: 0.0, samples: 0 },
            occurrences: Vec::new(),
            so_far: false,
        }
    }

    fn process_reports(&mut self, end_ns: u64) -> Vec<ProcessReport> {
        let mut reports = Vec::new();
        for life in self.tasks.processes() {
            // Of a process that became another program, the last one gives the name.
            let programs = || self.cuda.range(Program::all_of(life.id)).map(|(_, process)| process);
            let cuda = programs().next_back();
            let stats = self.stats.get(&life.id);
            let watches_ns = [life.watch(Side::Sched).since_ns(), life.watch(Side::Cuda).since_ns()];
            if cuda.is_none() && stats.is_none() && watches_ns.iter().all(Option::is_none) {
                continue;
            }
            let first_call_ns = programs().map(|program| program.first_call_ns).min();
            let from_ns = [first_call_ns, Some(life.seen_ns)];
            let from_ns = watches_ns.into_iter().chain(from_ns).flatten().min().unwrap_or(life.seen_ns);
            let dur_ns = life.died_ns.unwrap_or(end_ns).saturating_sub(from_ns);
            reports.push(ProcessReport {
                src: src::CHAIN,
                op: "process",
                mono_ns: from_ns,
                ts: None,
                dur_ns,
                pid: life.pid,
                comm: self.names.text(cuda.map_or(life.name, |c| c.name)).to_owned(),
                role: self.role(life),
                parent: life.birth.map(|birth| birth.parent.pid),
                calls: programs().flat_map(|program| self.call_lines(program)).collect(),
                cold: cuda.map(|_| Cold {
                    calls: programs().map(|program| program.startup.cold.0).sum(),
                    ns: programs().map(|program| program.startup.cold.1).sum(),
                }),
                switches: stats.map(|s| s.switches()).unwrap_or_default(),
                pages: stats.map_or(0, |s| s.pages),
                page_bytes: stats.map_or(0, |s| s.page_bytes),
                between_calls_share: cuda
                    .map(|_| share(programs().map(|program| program.union.between_ns()).sum(), dur_ns)),
            });
        }
        reports.sort_by_key(|r| (std::cmp::Reverse(r.calls.len()), r.mono_ns, r.pid));
        if let Some(wall) = &mut self.wall {
            for report in &mut reports {
                report.ts = Some(wall.ts(report.mono_ns));
            }
        }
        reports
    }

    /// `cuda`, `worker` of one that is, or `other`.
    fn role(&self, life: &ProcessInstance) -> &'static str {
        let makes_calls = |life: InstanceId| self.cuda.range(Program::all_of(life)).next().is_some();
        if makes_calls(life.id) {
            return "cuda";
        }
        if life.is_child {
            return "worker";
        }
        if self.tasks.ancestors(life).any(|ancestor| makes_calls(ancestor.id)) {
            return "worker";
        }
        "other"
    }

    fn call_lines(&self, process: &CudaProcess) -> Vec<CallLine> {
        let line = |(key, group): (GroupKey, &Group)| {
            let n = group.durations.len();
            CallLine {
                src: self.names.text(key.source).to_owned(),
                op: self.names.text(key.op).to_owned(),
                dir: Some(self.names.text(key.dir)).filter(|d| !d.is_empty()).map(str::to_owned),
                n,
                avg_ns: Some((group.total_ns / u128::from(n.max(1))) as u64),
                p50_ns: Some(group.durations.median_ns()),
                p99_ns: p99_ns(group),
                max_ns: Some(group.durations.max_ns()),
                bytes: group.bytes,
                size_bytes: key.bytes().map(|(from, to)| [from, to]),
            }
        };
        let entry = |(&key, &n): (&GroupKey, &u64)| CallLine {
            src: self.names.text(key.source).to_owned(),
            op: self.names.text(key.op).to_owned(),
            dir: Some(self.names.text(key.dir)).filter(|d| !d.is_empty()).map(str::to_owned),
            n,
            avg_ns: None,
            p50_ns: None,
            p99_ns: None,
            max_ns: None,
            bytes: 0,
            size_bytes: None,
        };
        let mut entries: Vec<CallLine> = process.entries.iter().map(entry).collect();
        entries.sort_by(|a, b| (&a.src, &a.op, &a.dir).cmp(&(&b.src, &b.op, &b.dir)));
        let groups = process.groups.sorted(&self.names).into_iter().filter(|(_, g)| !g.durations.is_empty());
        groups.map(line).chain(entries).collect()
    }

    /// The last line, but for what is known of the gaps of each process.
    fn summary(&mut self, chains: &[Chain], end_ns: u64) -> Summary {
        let start_ns = self.start_ns.or(self.first_task_ns).unwrap_or(end_ns);
        let end_ns = end_ns.max(self.now_ns);
        let mut cold = Cold::default();
        for process in self.cuda.values() {
            cold.calls += process.startup.cold.0;
            cold.ns += process.startup.cold.1;
        }
        let longest = self.cuda.values().filter_map(|p| p.longest_cold.map(|(ns, key)| (ns, p.pid, key)));
        let longest_cold = longest.max().map(|(ns, pid, key)| {
            let call = self.names.text(key.op).to_owned();
            ColdCall { pid, call, ns }
        });
        Summary {
            src: src::CHAIN,
            op: "summary",
            mono_ns: start_ns,
            ts: self.ts(start_ns),
            dur_ns: end_ns.saturating_sub(start_ns),
            hosts: self.hosts.clone(),
            records: self.records,
            calls: self.cuda.values().map(|p| p.calls).sum(),
            processes: self.cuda.len() as u64,
            bad_lines: self.bad_lines,
            lost: self.lost,
            late: self.late,
            double: self.double,
            forgotten_processes: self.forgotten,
            not_judged_ns: self.cuda.values().map(|p| p.not_judged_ns).sum(),
            gpu_busy_ns: self.cuda.values().map(|p| p.gpu_busy_ns).sum(),
            entries: self.cuda.values().flat_map(|p| p.entries.values()).sum(),
            cold,
            longest_cold,
            start_up_ns: 0,
            wind_down_ns: 0,
            chains: Counts::of(chains),
            gaps: Vec::new(),
            checked: checked(),
            so_far: false,
        }
    }

    fn ts(&mut self, mono_ns: u64) -> Option<Ts> {
        self.wall.as_mut().map(|wall| wall.ts(mono_ns))
    }
}

/// The gaps of one process, those before each kind of call summed up.
struct Gaps<'a> {
    bounds: Bounds,
    sums: Vec<(GroupKey, &'a Settlement, GapSum)>,
}

impl<'a> Gaps<'a> {
    fn of(process: &'a CudaProcess) -> Self {
        let bounds = process.gap_bounds();
        let sums = process.settlements.iter().map(|(&call, settlement)| (call, settlement, settlement.gaps(bounds)));
        Self { bounds, sums: sums.collect() }
    }
}

impl Chain {
    fn with_ratio(mut self) -> Self {
        if self.p50_ns == 0 {
            self.ratio_reason = Some("the median is 0");
        } else {
            self.ratio = Ratio(Some(self.max_ns as f64 / self.p50_ns as f64));
        }
        self
    }
}

fn p99_ns(group: &Group) -> Option<u64> {
    (group.durations.len() >= MIN_CALLS_P99).then(|| group.durations.quantile_ns(0.99))
}

/// Two lives of one pid can have the same chain.
fn unique_ids(chains: &mut [Chain]) {
    let mut seen = std::collections::HashMap::new();
    for chain in chains {
        let n = seen.entry(chain.id.clone()).and_modify(|n| *n += 1).or_insert(1_u32);
        if *n > 1 {
            chain.id = format!("{}-{n}", chain.id);
        }
    }
}

/// What was looked for, with thresholds: an empty result must say what it is the result of.
fn checked() -> Vec<String> {
    vec![
        format!(
            "gap: no call in flight in the whole process for at least {GAP_FACTOR}x its usual time between calls and {} ms, after its cold start (once it repeats itself, or if the like comes again) and before it winds down",
            MIN_GAP_NS / 1_000_000
        ),
        format!(
            "slow_call: beyond {SLOW_FACTOR}x the median of its group and {} us over it, groups of at least {MIN_CALLS} calls, without cold ones",
            SLOW_NS / 1000
        ),
        format!(
            "stall: no call, or one that has not returned, for the last {} s or more and {STALL_FACTOR}x the longest wait before, while the process lives; a call open for {} ms or more is worth a remark",
            STALL_NS / 1_000_000_000,
            SHORT_NS / 1_000_000
        ),
        format!(
            "drop: an operation called below {:.0} % of its usual rate for {} s or more, beyond what longer calls and gaps explain",
            DROP_BELOW * 100.0,
            DROP_NS / 1_000_000_000
        ),
        "oom: processes that the kernel killed for memory, where the scheduler tracer tells".to_owned(),
        format!("reported from {} % of a process's observed time on", LOW_SHARE * 100.0),
    ]
}
