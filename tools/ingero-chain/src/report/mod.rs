//! How is it said? From what the engine knows to findings, accounts, process records and the summary, and from these to
//! text.

mod advice;
pub(crate) mod csv;
pub(crate) mod folded;
mod head;
pub(crate) mod html;
mod lines;
pub(crate) mod logfmt;
mod machine;
pub mod model;
mod phrases;
pub mod sentences;
mod strip;
#[cfg(test)]
mod tests;
pub(crate) mod text;

pub use phrases::places;

use ingero_common::host::{InstanceId, ProcessInstance, Program, Side, Until};
use ingero_common::record::src;

use crate::blame::process_tree::ProcessTree;
use crate::blame::{Cause, WhoNs, share};
use crate::findings;
use crate::findings::stall::{self, Stall};
use crate::gpu::counter;
use crate::input::ingest::Engine;
use crate::limits::{MAX_REQUESTERS, NAMED_SHARE};
use crate::process::class::Class;
use crate::process::{Account, CudaProcess, Tail};
use crate::report::model::{
    AccountLine, CallLine, Cold, Counts, Finding, GpuLine, ProcessReport, Report, Steps, Stream, Summary,
};
use crate::stats::calls::{Group, GroupKey};
use crate::stats::totals::Block;

/// How a report is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Each finding's occurrences, too.
    pub details: bool,
    /// The stream goes on.
    pub so_far: bool,
}

impl Engine {
    /// What has been found so far.
    pub fn report(&mut self, wanted: Wanted) -> Report {
        let end_ns = self.end_ns();
        let judged: Vec<(&CudaProcess, Account, Option<Stall>)> =
            self.cuda.values().map(|process| self.judge(process, wanted)).collect();
        let mut findings = findings::all(self, &judged, wanted.details);
        let mut accounts: Vec<AccountLine> =
            judged.iter().map(|(process, account, _)| self.account(process, account)).collect();
        let busy_ns = judged.iter().map(|(_, account, _)| account.busy_ns).sum();
        for finding in &mut findings {
            let mut machine = machine::Machine::over(&self.samples, &self.kills, &self.names, finding);
            machine.io = self.requests(finding);
            let account = accounts.iter().rfind(|account| account.pid == finding.pid);
            machine.drains = account.and_then(|account| account.steps).map_or(0, |steps| steps.n);
            let (from_ns, to_ns) = (finding.lost.mono_ns, finding.lost.mono_ns + finding.lost.dur_ns);
            let tree = ProcessTree::of(&self.tasks, finding.pid, from_ns, to_ns);
            sentences::tell(finding, &tree, &machine);
            finding.so_far = wanted.so_far;
        }
        accounts.iter_mut().for_each(|account| account.so_far = wanted.so_far);
        let mut summary = self.summary(&findings, &accounts, end_ns);
        (summary.gpu_busy_ns, summary.so_far) = (busy_ns, wanted.so_far);
        let mut processes = self.process_reports(end_ns);
        self.stamp(&mut findings, &mut accounts, &mut processes);
        Report { findings, accounts, processes, summary }
    }

    /// The account of a process, and whether it got stuck.
    fn judge<'a>(&self, process: &'a CudaProcess, wanted: Wanted) -> (&'a CudaProcess, Account, Option<Stall>) {
        let end_ns = self.end_of_ns(process);
        let until = Until { ns: end_ns, in_order: self.ends_in_order(process) };
        let stall = stall::of(process, self.sources(), &self.cuda_losses, until);
        let tail = match &stall {
            Some(stall) if !stall.in_call && !stall.remark && !wanted.so_far => Tail::Stalled,
            _ if wanted.so_far => Tail::Open,
            _ => Tail::ShutDown,
        };
        (process, process.account(self.observed_from_ns(process), tail, (self.sources(), &self.cuda_losses)), stall)
    }

    /// From when on a process was observed: its watch, or its first call.
    fn observed_from_ns(&self, process: &CudaProcess) -> u64 {
        let Some(instance) = process.instance(&self.tasks) else { return process.first_call_ns };
        let began_ns = instance.program_start_ns(process.program).unwrap_or(0);
        let watch_ns = instance.watch(Side::Cuda).since_ns().unwrap_or(process.first_call_ns);
        watch_ns.max(began_ns).min(process.first_call_ns)
    }

    fn account(&self, process: &CudaProcess, account: &Account) -> AccountLine {
        let loop_ns = account.loop_len_ns();
        let lost_ns = account.classes.lost_ns();
        let counted = (loop_ns > 0).then(|| counter::of(&self.samples, account)).flatten();
        let per_s = account.drains as f64 * 1e9 / loop_ns.max(1) as f64;
        AccountLine {
            src: src::CHAIN,
            op: "account",
            mono_ns: account.observed_ns.0,
            ts: None,
            pid: process.pid,
            comm: self.names.text(process.name).into(),
            script: process
                .instance(&self.tasks)
                .map_or_else(|| "".into(), |life| self.names.text(life.script).clone()),
            observed_ns: account.observed_ns.1 - account.observed_ns.0,
            end_ts: None,
            loop_mono_ns: account.loop_ns.0,
            loop_ns,
            lost_ns,
            lost_share: share(lost_ns, loop_ns),
            classes: account.classes,
            gpu: GpuLine {
                gpu_busy_pct: counted.map(|counted| (counted.busy_pct * 10.0).round() / 10.0),
                launch_bound_ns: counted.map(|counted| counted.launch_bound_ns),
                launch_bound_err_ns: counted.map(|counted| counted.err_ns),
            },
            steps: (account.drains > 0).then(|| Steps { n: account.drains, per_s: (per_s * 10.0).round() / 10.0 }),
            so_far: false,
        }
    }

    /// Wall clock times, where the stream says what they were.
    fn stamp(&mut self, findings: &mut [Finding], accounts: &mut [AccountLine], processes: &mut [ProcessReport]) {
        let clock = &mut self.clock;
        for finding in findings {
            finding.lost.ts = clock.ts(finding.lost.mono_ns);
            for one in &mut finding.occurrences {
                one.ts = clock.ts(one.mono_ns);
            }
        }
        for account in accounts {
            account.ts = clock.ts(account.mono_ns);
            account.end_ts = clock.ts(account.mono_ns + account.observed_ns);
        }
        processes.iter_mut().for_each(|process| process.ts = clock.ts(process.mono_ns));
    }

    /// What those asked of block devices who kept a chain's process waiting for one.
    fn requests(&self, finding: &Finding) -> Vec<(WhoNs, Block)> {
        let at_ns = finding.lost.mono_ns + finding.lost.dur_ns;
        let lines = finding.lost.causes.iter().filter(|line| line.share >= NAMED_SHARE);
        let own = |ns| WhoNs { pid: finding.pid, comm: finding.comm.clone(), ns };
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

    /// Records that either tracer lost and that may concern a process in [`from_ns`, `to_ns`].
    pub(crate) fn lost_between(&self, pid: u32, from_ns: u64, to_ns: u64) -> u64 {
        self.cuda_losses.count(pid, from_ns, to_ns).saturating_add(self.sched_losses.count(pid, from_ns, to_ns))
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
                comm: self.names.text(cuda.map_or(life.name, |c| c.name)).into(),
                role: self.role(life),
                parent: life.birth.map(|birth| birth.parent.pid),
                calls: programs().flat_map(|program| self.call_lines(program)).collect(),
                cold: cuda.map(|_| Cold {
                    calls: programs().map(|program| program.phases.cold.0).sum(),
                    ns: programs().map(|program| program.phases.cold.1).sum(),
                }),
                switches: stats.map(|s| s.switches()).unwrap_or_default(),
                pages: stats.map_or(0, |s| s.pages),
                page_bytes: stats.map_or(0, |s| s.page_bytes),
            });
        }
        reports.sort_by_key(|r| (std::cmp::Reverse(r.calls.len()), r.mono_ns, r.pid));
        reports
    }

    /// `cuda`, `worker` of one that is, or `other`.
    pub(crate) fn role(&self, life: &ProcessInstance) -> &'static str {
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
        let entry = |(&key, &n): (&GroupKey, &u64)| CallLine {
            src: self.names.text(key.source).into(),
            op: self.names.text(key.op).into(),
            dir: key.dir(&self.names),
            n,
            avg_ns: None,
            p50_ns: None,
            p99_ns: None,
            max_ns: None,
            bytes: 0,
            size_bytes: None,
        };
        let line = |(key, group): (GroupKey, &Group)| {
            let n = group.durations.len();
            CallLine {
                avg_ns: Some((group.total_ns / u128::from(n.max(1))) as u64),
                p50_ns: Some(group.durations.median_ns()),
                p99_ns: group.durations.p99_ns(),
                max_ns: Some(group.durations.max_ns()),
                bytes: group.bytes,
                size_bytes: key.bytes().map(|(from, to)| [from, to]),
                ..entry((&key, &n))
            }
        };
        let mut entries: Vec<CallLine> = process.entries.iter().map(entry).collect();
        entries.sort_by(|a, b| (&a.src, &a.op, &a.dir).cmp(&(&b.src, &b.op, &b.dir)));
        let groups = process.groups.sorted(&self.names).into_iter().filter(|(_, g)| !g.durations.is_empty());
        groups.map(line).chain(entries).collect()
    }

    /// The last line.
    fn summary(&mut self, findings: &[Finding], accounts: &[AccountLine], end_ns: u64) -> Summary {
        let start_ns = self.clock.start_ns.or(self.clock.first_task_ns).unwrap_or(end_ns);
        let end_ns = end_ns.max(self.clock.now_ns);
        let mut cold = Cold::default();
        for process in self.cuda.values() {
            cold.calls += process.phases.cold.0;
            cold.ns += process.phases.cold.1;
        }
        let in_class = |class| accounts.iter().map(|account| account.classes.get(class)).sum();
        let calls: u64 = self.cuda.values().map(|p| p.calls).sum();
        Summary {
            src: src::CHAIN,
            op: "summary",
            mono_ns: start_ns,
            ts: self.clock.ts(start_ns),
            dur_ns: end_ns.saturating_sub(start_ns),
            hosts: self.coverage.hosts.clone(),
            stream: Stream {
                records: self.coverage.records,
                calls,
                processes: self.cuda.len() as u64,
                bad_lines: self.coverage.bad_lines,
                lost: self.coverage.lost,
                late: self.coverage.late,
                double: self.coverage.double,
                entries: self.cuda.values().flat_map(|p| p.entries.values()).sum(),
                forgotten_processes: self.forgotten,
                nothing_seen: (calls == 0).then(|| self.nothing_seen()),
                unknown_schema: self.coverage.unknown_schema,
            },
            not_judged_ns: in_class(Class::NotJudged),
            start_up_ns: in_class(Class::StartUp),
            wind_down_ns: in_class(Class::WindDown),
            gpu_busy_ns: 0,
            cold,
            chains: Counts::of(findings),
            checked: findings::checked(),
            so_far: false,
        }
    }
}
