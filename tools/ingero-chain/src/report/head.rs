//! What there is to say of one process, in the order in which text and page say it: what and how bad, when, why, what to
//! try, how complete the data is.

use ingero_common::text::{Nanos, counted};

use crate::blame::Cause;
use crate::findings::severity::Severity;
use crate::process::class::Class;
use crate::report::model::{AccountLine, Finding, Kind, Report};
use crate::report::sentences::{self, pct};
use crate::report::strip::{self, Cell};

/// Causes that are told of one by one.
pub(crate) const MAX_CAUSES: usize = 5;
/// What is a smaller share is not told of by itself.
pub(crate) const SHOWN_SHARE: f64 = 0.01;

/// One process with its findings.
pub(crate) struct Head<'a> {
    pub(crate) account: &'a AccountLine,
    /// The finding that tells of its lost time: all its gaps together, else the largest kind of gap, else where it got stuck.
    pub(crate) main: Option<&'a Finding>,
    /// Other findings that are no gaps, worst first.
    pub(crate) also: Vec<&'a Finding>,
    /// Everything found, worst first.
    pub(crate) all: Vec<&'a Finding>,
}

/// One of the reasons for the lost time.
pub(crate) struct Why {
    pub(crate) share: f64,
    pub(crate) ns: u64,
    /// `None` for what nothing explains.
    pub(crate) cause: Option<Cause>,
    pub(crate) text: String,
}

/// The processes of a report, worst first, and the findings about processes that have no account.
pub(crate) fn heads(report: &Report) -> (Vec<Head<'_>>, Vec<&Finding>) {
    let mut of_account: Vec<Vec<&Finding>> = vec![Vec::new(); report.accounts.len()];
    let mut without = Vec::new();
    for finding in &report.findings {
        match account_of(finding, &report.accounts) {
            Some(at) => of_account[at].push(finding),
            None => without.push(finding),
        }
    }
    let mut heads: Vec<Head<'_>> =
        report.accounts.iter().zip(of_account).map(|(account, all)| Head::new(account, all)).collect();
    heads.sort_by_key(|head| (std::cmp::Reverse((head.severity(), head.account.lost_ns)), head.account.mono_ns));
    (heads, without)
}

/// Which account a finding belongs to: a number may be used again by a later process.
fn account_of(finding: &Finding, accounts: &[AccountLine]) -> Option<usize> {
    let of_pid = || accounts.iter().enumerate().filter(|(_, account)| account.pid == finding.pid);
    let at_ns = finding.lost.mono_ns;
    let covers = |account: &AccountLine| (account.mono_ns..=account.mono_ns + account.observed_ns).contains(&at_ns);
    of_pid().find(|(_, account)| covers(account)).or_else(|| of_pid().last()).map(|(at, _)| at)
}

impl<'a> Head<'a> {
    fn new(account: &'a AccountLine, all: Vec<&'a Finding>) -> Self {
        // `all` is sorted by severity and then by time, so the first of a kind is its largest.
        let first = |kind| all.iter().copied().find(|finding| finding.op == kind);
        let main = first(Kind::Total).or_else(|| first(Kind::Gap)).or_else(|| first(Kind::Stall));
        let is_main = |finding: &Finding| main.is_some_and(|main| main.id == finding.id);
        let told = |finding: &&Finding| !matches!(finding.op, Kind::Gap | Kind::Total) && !is_main(finding);
        let also = all.iter().copied().filter(told).collect();
        Self { account, main, also, all }
    }

    /// The worst of its findings.
    pub(crate) fn severity(&self) -> Option<Severity> {
        self.all.iter().map(|finding| finding.severity).max()
    }

    /// What and how bad, in one line.
    pub(crate) fn line(&self) -> String {
        let account = self.account;
        let name = sentences::process(&account.comm, account.pid);
        if account.loop_ns == 0 {
            let observed = Nanos(account.observed_ns);
            return format!("{name}: no loop seen in {observed}, so no time counts as lost");
        }
        match self.main {
            Some(stall) if stall.op == Kind::Stall => return format!("{name}: {}", sentences::claim(stall)),
            Some(_) => {}
            None => return format!("{name}: {}", self.fed()),
        }
        let (lost, whole, share) = (Nanos(account.lost_ns), Nanos(account.loop_ns), pct(account.lost_share));
        let (idle_ns, silence_ns) = (account.classes.get(Class::Idle), account.classes.get(Class::Silence));
        // A stretch of silence that rounds to nothing does not make the whole uncertain.
        let (most, known) = if silence_ns as f64 <= account.lost_ns as f64 * 0.005 {
            ("", "known to be idle for all of it".to_owned())
        } else if idle_ns == 0 {
            ("at most ", "an upper bound because it may have had work".to_owned())
        } else {
            ("at most ", format!("known to be idle for {} of it", Nanos(idle_ns)))
        };
        format!("{name}: the GPU waited {most}{lost} of {whole} ({share}) of the loop, {known}")
    }

    /// Of a process without gaps that are worth a word.
    fn fed(&self) -> String {
        let account = self.account;
        let most = if account.classes.get(Class::Silence) > 0 { "at most " } else { "" };
        let idle = format!("idle {most}{} of the loop", pct(account.lost_share));
        // Short of work all the same, where it is done with each launch before the next one comes.
        let bound = self.also.iter().any(|finding| finding.op == Kind::LaunchBound);
        if bound { format!("GPU {idle} between its waits and the next work") } else { format!("GPU fed: {idle}") }
    }

    /// What the time of the loop went into.
    pub(crate) fn loop_line(&self) -> Option<String> {
        let account = self.account;
        if account.loop_ns == 0 {
            return None;
        }
        let steps = account.steps.map(|steps| format!(", {} of {}", counted(steps.n, "step", "steps"), per_step(account, steps.n)));
        let classes = self.loop_classes();
        let shown = classes.iter().filter(|&&(_, _, share)| share >= SHOWN_SHARE).take(MAX_CAUSES);
        let parts: Vec<String> = shown.map(|&(class, _, share)| format!("{} {}", pct(share), sentences::class(class))).collect();
        let busy = account.gpu.gpu_busy_pct.map(|busy| format!("; GPU {} busy by its driver's counter, copies not counted", pct(busy / 100.0)));
        Some(format!(
            "{}{}: {}{}",
            Nanos(account.loop_ns),
            steps.unwrap_or_default(),
            parts.join(", "),
            busy.unwrap_or_default()
        ))
    }

    /// The classes of the loop's time with their shares, largest first.
    pub(crate) fn loop_classes(&self) -> Vec<(Class, u64, f64)> {
        let outside = [Class::StartUp, Class::WindDown];
        let inside = self.account.classes.iter().filter(|(class, _)| !outside.contains(class));
        let mut classes: Vec<(Class, u64, f64)> =
            inside.map(|(class, ns)| (class, ns, ns as f64 / self.account.loop_ns.max(1) as f64)).collect();
        classes.sort_by_key(|&(class, ns, _)| (std::cmp::Reverse(ns), class));
        classes
    }

    /// When it waited, where that is known.
    pub(crate) fn strip(&self, cells: usize) -> Option<Vec<Cell>> {
        let grids = || self.all.iter().filter_map(|finding| finding.lost.grid.as_ref());
        grids().next()?;
        Some(strip::cells(self.account, grids(), cells))
    }

    /// When it was observed: the first and the last instant.
    pub(crate) fn times(&self) -> (String, String) {
        match (&self.account.ts, &self.account.end_ts) {
            (Some(from), Some(to)) => (clock(from.as_str()), clock(to.as_str())),
            _ => (Nanos(0).to_string(), Nanos(self.account.observed_ns).to_string()),
        }
    }

    /// Why the time was lost, and what is not told of one by one: how many causes and how much.
    pub(crate) fn whys(&self) -> (Vec<Why>, Option<(usize, u64)>) {
        self.main.map(whys).unwrap_or_default()
    }

    /// How complete the data on this process is.
    pub(crate) fn data(&self) -> Vec<String> {
        let mut parts = Vec::new();
        let not_judged_ns = self.account.classes.get(Class::NotJudged);
        if not_judged_ns > 0 {
            parts.push(format!("{} not judged: records are missing there", Nanos(not_judged_ns)));
        }
        if let Some(main) = self.main {
            let unwatched = 1.0 - main.evidence.watched_share;
            if unwatched >= SHOWN_SHARE / 2.0 {
                parts.push(format!("the scheduler tracer did not watch {} of the lost time", pct(unwatched)));
            }
            if main.evidence.lost > 0 {
                parts.push(format!("{} in the lost time", counted(main.evidence.lost, "lost record", "lost records")));
            }
        }
        parts
    }
}

fn per_step(account: &AccountLine, steps: u64) -> String {
    Nanos(account.loop_ns / steps.max(1)).to_string()
}

/// To the millisecond is enough for people: `18:03:03.113 UTC`.
fn clock(ts: &str) -> String {
    match ts.get(11..23) {
        Some(time) => format!("{time} UTC"),
        None => ts.to_owned(),
    }
}

/// The reasons of one finding that are large enough, at most [`MAX_CAUSES`], and what is left.
pub(crate) fn whys(finding: &Finding) -> (Vec<Why>, Option<(usize, u64)>) {
    let whole = finding.lost.lost_ns.max(1) as f64;
    let mut all: Vec<Why> = finding
        .lost
        .causes
        .iter()
        .map(|line| Why { share: line.share, ns: line.ns, cause: Some(line.cause), text: sentences::phrase(line) })
        .collect();
    if finding.lost.unexplained_ns > 0 {
        let ns = finding.lost.unexplained_ns;
        all.push(Why { share: ns as f64 / whole, ns, cause: None, text: "not explained by the records".to_owned() });
        all.sort_by_key(|why| std::cmp::Reverse(why.ns));
    }
    let shown = all.iter().take_while(|why| why.share >= SHOWN_SHARE).count().min(MAX_CAUSES);
    let rest = all.split_off(shown);
    let rest_ns: u64 = rest.iter().map(|why| why.ns).sum();
    let rest = (rest_ns as f64 >= whole * SHOWN_SHARE).then_some((rest.len(), rest_ns));
    (all, rest)
}
