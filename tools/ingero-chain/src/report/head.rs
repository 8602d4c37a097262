//! What there is to say of one process, in the order in which text and page say it: what and how bad, when, why, what to
//! try, how complete the data is.

use ingero_common::text::{Nanos, counted};

use crate::blame::Cause;
use crate::findings::severity::Severity;
use crate::limits::{MAX_CAUSES, MOST_NOT_JUDGED, ROUNDS_TO_NOTHING, SHOWN_SHARE};
use crate::process::class::Class;
use crate::report::model::{AccountLine, Finding, GridLine, Kind, Report, Summary};
use crate::report::phrases::{phrase, places};
use crate::report::sentences::{self, pct};
use crate::report::strip::{self, Cell};

/// Of a stream in which nothing is known to be missing.
pub(crate) const COMPLETE: &str = "complete: no records lost, late or unreadable";

/// One process with its findings.
pub(crate) struct Head<'a> {
    pub(crate) account: &'a AccountLine,
    /// What tells its story: all its gaps together, else the largest kind of gap, or another finding that is worse.
    pub(crate) lead: Option<&'a Finding>,
    /// The other ones of these, worst first.
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
    /// In which functions.
    pub(crate) places: Vec<String>,
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
    of_pid().find(|(_, account)| covers(account)).or_else(|| of_pid().next_back()).map(|(at, _)| at)
}

impl<'a> Head<'a> {
    fn new(account: &'a AccountLine, all: Vec<&'a Finding>) -> Self {
        // `all` is sorted by severity and then by time, so the first of a kind is its largest.
        let first = |kind| all.iter().copied().find(|finding| finding.op == kind);
        let gaps = first(Kind::Total).or_else(|| first(Kind::Gap));
        let others = all.iter().copied().filter(|finding| !is_gap(finding));
        let mut told: Vec<&Finding> = gaps.into_iter().chain(others).collect();
        // Stable: of equal ones, the gaps come first.
        told.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        // A remark of which nobody knows what it cost does not make a run that is fed a bad one.
        let at = told.iter().position(|finding| !is_remark(finding));
        let lead = at.map(|at| told.remove(at));
        Self { account, lead, also: told, all }
    }

    /// The worst of its findings.
    pub(crate) fn severity(&self) -> Option<Severity> {
        self.lead.map(|lead| lead.severity)
    }

    /// In a word: a severity, `OK`, or `?` where too little of it could be judged for either.
    pub(crate) fn verdict(&self) -> &'static str {
        match self.severity() {
            Some(Severity::High) => "HIGH",
            Some(Severity::Medium) => "MEDIUM",
            Some(Severity::Low) => "LOW",
            None if self.is_judged() => "OK",
            None => "?",
        }
    }

    /// Whether it had a loop, most of which could be judged.
    fn is_judged(&self) -> bool {
        self.account.loop_ns > 0 && self.not_judged() <= MOST_NOT_JUDGED
    }

    /// Share of the loop that could not be judged.
    fn not_judged(&self) -> f64 {
        self.account.classes.get(Class::NotJudged) as f64 / self.account.loop_ns.max(1) as f64
    }

    /// What and how bad, in one line.
    pub(crate) fn line(&self) -> String {
        let text = match self.lead {
            Some(lead) => self.claim(lead),
            None => self.without_findings(),
        };
        let process = sentences::process(&self.account.comm, self.account.pid);
        match &self.account.script {
            script if script.is_empty() => format!("{process}: {text}"),
            script => format!("{process} {script}: {text}"),
        }
    }

    /// What was lost by one of its findings.
    pub(crate) fn claim(&self, finding: &Finding) -> String {
        // The account of a process that got stuck has the time of its stall as well, which is a finding of its own.
        let stalled = self.all.iter().any(|other| other.op == Kind::Stall);
        if is_gap(finding) && !stalled { self.waited() } else { sentences::claim(finding) }
    }

    /// How long its GPU waited.
    fn waited(&self) -> String {
        let account = self.account;
        let (lost, whole, share) = (Nanos(account.lost_ns), Nanos(account.loop_ns), pct(account.lost_share));
        let (idle_ns, silence_ns) = (account.classes.get(Class::Idle), account.classes.get(Class::Silence));
        // A stretch of silence that rounds to nothing does not make the whole uncertain.
        let (most, known) = if silence_ns as f64 <= account.lost_ns as f64 * ROUNDS_TO_NOTHING {
            ("", "known to be idle for all of it".to_owned())
        } else if idle_ns == 0 {
            ("at most ", "an upper bound because it may have had work".to_owned())
        } else {
            ("at most ", format!("known to be idle for {} of it", Nanos(idle_ns)))
        };
        format!("the GPU waited {most}{lost} of {whole} ({share}) of the loop, {known}")
    }

    /// Of a process of which there is nothing to complain.
    fn without_findings(&self) -> String {
        let account = self.account;
        if account.loop_ns == 0 {
            return format!("no loop seen in {}, so no time counts as lost", Nanos(account.observed_ns));
        }
        let not_judged = pct(self.not_judged());
        if !self.is_judged() {
            return format!("{not_judged} of the loop could not be judged");
        }
        let most = if account.classes.get(Class::Silence) > 0 { "at most " } else { "" };
        let fed = format!("GPU fed: idle {most}{} of the loop", pct(account.lost_share));
        if self.not_judged() >= SHOWN_SHARE { format!("{fed}, {not_judged} of it not judged") } else { fed }
    }

    /// What the time of the loop went into.
    pub(crate) fn loop_line(&self) -> Option<String> {
        let account = self.account;
        if account.loop_ns == 0 {
            return None;
        }
        let steps = account
            .steps
            .map(|steps| format!(", {} of {}", counted(steps.n, "step", "steps"), per_step(account, steps.n)));
        let classes = self.loop_classes();
        let shown = classes.iter().filter(|&&(_, _, share)| share >= SHOWN_SHARE).take(MAX_CAUSES);
        let parts: Vec<String> =
            shown.map(|&(class, _, share)| format!("{} {}", pct(share), sentences::class(class))).collect();
        let busy = account.gpu.gpu_busy_pct.map(|busy| {
            format!("; GPU {} busy by its driver's counter, which does not count copies", pct(busy / 100.0))
        });
        Some(format!(
            "{}{}{}: {}{}",
            Nanos(account.loop_ns),
            self.around(),
            steps.unwrap_or_default(),
            parts.join(", "),
            busy.unwrap_or_default()
        ))
    }

    /// What came before and after the loop.
    fn around(&self) -> String {
        let parts: Vec<String> = [(Class::StartUp, "start-up"), (Class::WindDown, "shutdown")]
            .into_iter()
            .map(|(class, name)| (self.account.classes.get(class), name))
            .filter(|&(ns, _)| ns as f64 >= self.account.observed_ns as f64 * SHOWN_SHARE)
            .map(|(ns, name)| format!("{} of {name}", Nanos(ns)))
            .collect();
        if parts.is_empty() { String::new() } else { format!(" (and {})", parts.join(", ")) }
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
        let total =
            self.all.iter().find(|finding| finding.op == Kind::Total).and_then(|total| total.lost.grid.as_ref());
        let grids: Vec<&GridLine> = match total {
            Some(grid) => vec![grid],
            None => self.all.iter().filter_map(|finding| finding.lost.grid.as_ref()).collect(),
        };
        (!grids.is_empty()).then(|| strip::cells(self.account, grids.into_iter(), cells))
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
        self.lead.map(whys).unwrap_or_default()
    }

    /// How complete the data on this process is.
    pub(crate) fn data(&self, summary: &Summary) -> String {
        let mut parts = Vec::new();
        let not_judged_ns = self.account.classes.get(Class::NotJudged);
        if not_judged_ns > 0 {
            parts.push(format!("{} not judged: too little is on record there", Nanos(not_judged_ns)));
        }
        if let Some(gaps) = self.lead.filter(|lead| is_gap(lead)) {
            let unwatched = 1.0 - gaps.evidence.watched_share;
            if unwatched >= ROUNDS_TO_NOTHING {
                parts.push(format!("the scheduler tracer did not watch {} of the lost time", pct(unwatched)));
            }
            if gaps.evidence.lost > 0 {
                let records = counted(gaps.evidence.lost, "record is", "records are");
                parts.push(format!("{records} missing in the time that the GPU waited"));
            }
        }
        parts.extend(sentences::incomplete(summary).map(|what| format!("in the whole recording, {what}")));
        if parts.is_empty() { COMPLETE.to_owned() } else { parts.join("; ") }
    }
}

/// Whether it costs an amount that is not known.
fn is_remark(finding: &Finding) -> bool {
    matches!(finding.op, Kind::HostCalls | Kind::LaunchBound) && finding.lost.lost_ns == 0
}

fn is_gap(finding: &Finding) -> bool {
    matches!(finding.op, Kind::Gap | Kind::Total)
}

fn per_step(account: &AccountLine, steps: u64) -> String {
    Nanos(account.loop_ns / steps.max(1)).to_string()
}

/// To the millisecond is enough for people: `18:03:03.113 UTC`.
pub(crate) fn clock(ts: &str) -> String {
    match ts.get(11..23) {
        Some(time) => format!("{time} UTC"),
        None => ts.to_owned(),
    }
}

/// To the second is enough for people: `2026-11-29 12:02:03 UTC`.
pub(crate) fn instant(ts: &str) -> String {
    let (day, time) = ts.split_once('T').unwrap_or((ts, ""));
    format!("{day} {} UTC", time.split('.').next().unwrap_or(time))
}

/// The reasons of one finding that are large enough, at most [`MAX_CAUSES`], and what is left.
pub(crate) fn whys(finding: &Finding) -> (Vec<Why>, Option<(usize, u64)>) {
    let whole = finding.lost.lost_ns.max(1) as f64;
    let mut all: Vec<Why> = finding
        .lost
        .causes
        .iter()
        .map(|line| Why {
            share: line.share,
            ns: line.ns,
            cause: Some(line.cause),
            text: phrase(finding, line),
            places: places(line),
        })
        .collect();
    let ns = sentences::unexplained_ns(finding);
    if ns > 0 {
        let text = "not explained by the records".to_owned();
        all.push(Why { share: ns as f64 / whole, ns, cause: None, text, places: Vec::new() });
        all.sort_by_key(|why| std::cmp::Reverse(why.ns));
    }
    let shown = all.iter().take_while(|why| why.share >= SHOWN_SHARE).count().min(MAX_CAUSES);
    let rest = all.split_off(shown);
    let rest_ns: u64 = rest.iter().map(|why| why.ns).sum();
    let rest = (rest_ns as f64 >= whole * SHOWN_SHARE).then_some((rest.len(), rest_ns));
    (all, rest)
}
