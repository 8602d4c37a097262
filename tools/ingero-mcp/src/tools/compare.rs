//! `compare_traces`: what changed in the accounts, and which causes of lost time grew, shrank, came or vanished.
//!
//! Two recordings have different pids and lengths, so processes are matched by their role and name (a number behind a
//! separator does not count: `pt_data_worker_3` is any of them, `python3` is not `python2`), and times are compared as shares
//! of the loops of the processes that lost them, as ingero-chain's accounts have them.
//!
//! ```text
//!                          before: loop 10 s     after: loop 40 s
//!   gap ... worker_cpu     4 s = 0.40            2 s = 0.05      shrank
//!   gap ... host_cpu       -                     4 s = 0.10      appeared
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ingero_chain::model::{Kind, Report};
use ingero_chain::share;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::account::{AccountSum, SideOut};
use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording to compare from; the first one if absent
    before: Option<String>,
    /// Name of the recording to compare with; the second one if absent
    after: Option<String>,
    /// Causes in one answer (1 to 200, usually 30)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Comparison {
    before: Side,
    after: Side,
    /// Where the time went, before and after: processes of one name together, those with the longest loops first
    accounts: Vec<AccountChange>,
    /// How many kinds of processes there are in all
    accounts_total: u64,
    /// Causes of lost time, by how much their share changed, the largest change first. What all gaps of a process lost
    /// together is in accounts
    #[schemars(with = "Vec<Change>")]
    changes: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Side {
    recording: String,
    /// Length of the recording, nanoseconds
    dur_ns: u64,
    /// All processes that use CUDA together
    #[serde(flatten)]
    account: SideOut,
    /// Records lost by its tracers
    lost_records: u64,
    /// Why nothing could be judged, where that is so
    #[serde(skip_serializing_if = "Option::is_none")]
    nothing_seen: Option<String>,
}

/// The accounts of one kind of process. A side is absent where there was no such process.
#[derive(Debug, Serialize, JsonSchema)]
struct AccountChange {
    /// Role and name
    process: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<SideOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<SideOut>,
}

/// One cause in one kind of finding of one kind of process.
#[derive(Debug, Serialize, JsonSchema)]
struct Change {
    /// grew, shrank, appeared, vanished, same (less than a tenth of its share, or half a percent of the loop)
    change: String,
    /// Role and name of the process that lost the time
    process: String,
    /// gap, slow_call, host_calls, launch_bound, stall
    kind: String,
    /// The call it is about; of host_calls memory, load or copy
    #[serde(skip_serializing_if = "String::is_empty")]
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// As in get_causal_chains; unexplained for what no record explains
    cause: String,
    before_ns: u64,
    after_ns: u64,
    /// Share of the loops of such processes
    before_share: f64,
    after_share: f64,
    /// Whose doing, after or else before: roles and names, most first
    #[serde(skip_serializing_if = "Vec::is_empty")]
    who: Vec<String>,
}

/// What is compared; `who` is not part of it, being what may change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    process: String,
    kind: &'static str,
    call: String,
    dir: Option<String>,
    cause: &'static str,
}

#[derive(Debug, Default)]
struct Lost {
    ns: u64,
    who: BTreeMap<String, u64>,
}

/// What one recording lost, by key, and the accounts of its processes, by role and name.
struct Losses {
    lost: BTreeMap<Key, Lost>,
    accounts: BTreeMap<String, AccountSum>,
}

/// Tasks of a change in one answer.
const MAX_WHO: usize = 5;

/// Kinds of processes whose accounts are in one answer.
const MAX_ACCOUNTS: usize = 8;

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "compare_traces",
        "What changed between two recordings",
        "Two recordings side by side: the accounts (how long the GPU waited, and where the rest of the time went), and which causes \
         of lost time grew, shrank, appeared or vanished, by the role and name of the process (not by pid), as shares of its \
         loop, so that recordings of different length compare.",
        r#"{} or {"before": "baseline", "after": "tuned"}"#,
        |context, arguments: Arguments| compare(context, &arguments),
    )
}

fn compare(context: &Context<'_>, arguments: &Arguments) -> Result<Comparison, Problem> {
    let limit = limit(arguments.limit, 30, 200)?;
    let offset = offset(arguments.cursor.as_deref())?;
    if context.recordings.len() < 2 {
        return Err(Problem::Told(
            "only one recording is served, so there is nothing to compare: start ingero-mcp with two recordings".into(),
        ));
    }
    let before = context.recording(arguments.before.as_deref())?;
    let after = match arguments.after.as_deref() {
        None => &context.recordings[1],
        name => context.recording(name)?,
    };
    let (before_view, after_view) = (context.view(before)?, context.view(after)?);
    let (old, new) = (losses(&before_view.report), losses(&after_view.report));
    let mut answer = Comparison {
        before: side(&before.name, &before_view.report),
        after: side(&after.name, &after_view.report),
        accounts: Vec::new(),
        accounts_total: 0,
        changes: Vec::new(),
        page: PageInfo::default(),
    };
    (answer.accounts, answer.accounts_total) = accounts(&old, &new);
    let filler = Filler::new(limit, &answer);
    (answer.changes, answer.page) = filler.page(changes(&old, &new).into_iter(), offset);
    Ok(answer)
}

fn changes(old: &Losses, new: &Losses) -> Vec<Change> {
    let keys: BTreeSet<&Key> = old.lost.keys().chain(new.lost.keys()).collect();
    let mut changes: Vec<Change> = keys.into_iter().map(|key| change(key, old, new)).collect();
    let size = |c: &Change| (c.after_share - c.before_share).abs();
    let most = |c: &Change| c.after_share.max(c.before_share);
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| most(b).total_cmp(&most(a))));
    changes
}

/// The accounts side by side, and how many there are.
fn accounts(old: &Losses, new: &Losses) -> (Vec<AccountChange>, u64) {
    let names: BTreeSet<&String> = old.accounts.keys().chain(new.accounts.keys()).collect();
    let loop_ns = |name: &String| {
        let of = |losses: &Losses| losses.accounts.get(name).map_or(0, AccountSum::loop_ns);
        of(old).max(of(new))
    };
    let mut names: Vec<&String> = names.into_iter().collect();
    // Stable: of equal loops in the order of names.
    names.sort_by_key(|name| std::cmp::Reverse(loop_ns(name)));
    let change = |name: &String| AccountChange {
        process: name.clone(),
        before: old.accounts.get(name).map(AccountSum::out),
        after: new.accounts.get(name).map(AccountSum::out),
    };
    (names.iter().take(MAX_ACCOUNTS).map(|name| change(name)).collect(), names.len() as u64)
}

fn side(name: &str, report: &Report) -> Side {
    let mut all = AccountSum::default();
    report.accounts.iter().for_each(|line| all.add(line));
    Side {
        recording: name.to_owned(),
        dur_ns: report.summary.dur_ns,
        account: all.out(),
        lost_records: report.summary.stream.lost,
        nothing_seen: report.summary.stream.nothing_seen.map(str::to_owned),
    }
}

fn losses(report: &Report) -> Losses {
    let labels: HashMap<u32, String> =
        report.processes.iter().map(|process| (process.pid, label(process.role, process.comm.raw()))).collect();
    let mut accounts: BTreeMap<String, AccountSum> = BTreeMap::new();
    for line in &report.accounts {
        accounts.entry(label("cuda", line.comm.raw())).or_default().add(line);
    }
    let mut lost: BTreeMap<Key, Lost> = BTreeMap::new();
    // A total is the same gaps once more.
    for finding in report.findings.iter().filter(|f| f.op != Kind::Total) {
        let process = labels.get(&finding.pid).cloned().unwrap_or_else(|| label("cuda", finding.comm.raw()));
        let key = |cause| Key {
            process: process.clone(),
            kind: finding.op.name(),
            call: finding.extra.class.map_or_else(|| finding.call.call.raw().to_owned(), str::to_owned),
            dir: finding.call.dir.as_ref().map(|dir| dir.raw().to_owned()),
            cause,
        };
        for cause in &finding.lost.causes {
            let entry = lost.entry(key(cause.cause.name())).or_default();
            entry.ns += cause.ns;
            for who in &cause.who {
                // A thread is known by its own name; its process gives the role.
                let role = labels.get(&who.pid).and_then(|l| l.split_once(' ')).map_or("other", |(role, _)| role);
                *entry.who.entry(label(role, who.comm.raw())).or_default() += who.ns;
            }
        }
        if finding.lost.unexplained_ns > 0 {
            lost.entry(key("unexplained")).or_default().ns += finding.lost.unexplained_ns;
        }
    }
    Losses { lost, accounts }
}

/// Role and name, with the numbers that tell one of many from the others left out: those that stand alone behind a
/// separator. Digits that belong to a name or a version stay.
fn label(role: &str, comm: &str) -> String {
    let mut label = format!("{role} ");
    let mut rest = comm;
    // What came before `rest`; a name that begins with a number keeps it.
    let mut before = 'a';
    while let Some(c) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ends = !rest[digits..].starts_with(|c: char| c.is_alphanumeric());
        if digits > 0 && ends && !before.is_alphanumeric() && before != '.' {
            label.push('#');
        } else {
            label.push_str(&rest[..digits.max(c.len_utf8())]);
        }
        let (done, left) = rest.split_at(digits.max(c.len_utf8()));
        before = done.chars().next_back().unwrap_or(c);
        rest = left;
    }
    label
}

fn change(key: &Key, old: &Losses, new: &Losses) -> Change {
    let of = |losses: &Losses| {
        let ns = losses.lost.get(key).map_or(0, |lost| lost.ns);
        (ns, share(ns, losses.accounts.get(&key.process).map_or(0, AccountSum::loop_ns)))
    };
    let ((before_ns, before_share), (after_ns, after_share)) = (of(old), of(new));
    let change = match (before_ns, after_ns) {
        (0, _) => "appeared",
        (_, 0) => "vanished",
        _ if (after_share - before_share).abs() < (before_share.max(after_share) / 10.0).max(0.005) => "same",
        _ if after_share > before_share => "grew",
        _ => "shrank",
    };
    let who = new.lost.get(key).or_else(|| old.lost.get(key)).map(|lost| &lost.who);
    let mut who: Vec<(&String, &u64)> = who.into_iter().flatten().collect();
    who.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    Change {
        change: change.to_owned(),
        process: key.process.clone(),
        kind: key.kind.to_owned(),
        call: key.call.clone(),
        dir: key.dir.clone(),
        cause: key.cause.to_owned(),
        before_ns,
        after_ns,
        before_share,
        after_share,
        who: who.into_iter().take(MAX_WHO).map(|(name, _)| name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Losses of one process of a kind, with a loop of a second, that lost so much by one cause.
    fn losses(ns: u64) -> Losses {
        let lost = Lost { ns, who: BTreeMap::from([("worker w".into(), ns)]) };
        let lost = if ns == 0 { BTreeMap::new() } else { BTreeMap::from([(key(), lost)]) };
        Losses { lost, accounts: BTreeMap::from([("cuda train".into(), AccountSum::of_loop(1_000_000_000))]) }
    }

    fn key() -> Key {
        Key { process: "cuda train".into(), kind: "gap", call: "cudaMemcpy".into(), dir: None, cause: "worker_cpu" }
    }

    #[test]
    fn a_change_has_its_word() {
        for (before_ns, after_ns, word) in [
            (0, 10_000_000, "appeared"),
            (10_000_000, 0, "vanished"),
            (100_000_000, 120_000_000, "grew"),
            (120_000_000, 100_000_000, "shrank"),
            // Less than a tenth of it.
            (100_000_000, 105_000_000, "same"),
            // Twice as much, but of next to nothing.
            (2_000_000, 4_000_000, "same"),
        ] {
            let change = change(&key(), &losses(before_ns), &losses(after_ns));
            assert_eq!(change.change, word, "{before_ns} {after_ns}");
            assert_eq!((change.before_ns, change.after_ns), (before_ns, after_ns));
            assert_eq!(change.who, ["worker w"]);
        }
    }

    #[test]
    fn processes_are_matched_by_role_and_name() {
        assert_eq!(label("worker", "pt_data_worker_17"), label("worker", "pt_data_worker_3"));
        assert_ne!(label("worker", "train"), label("cuda", "train"));
        for (name, shown) in [
            ("kworker/3:12", "kworker/#:#"),
            ("pt_data_worker_3", "pt_data_worker_#"),
            ("rank 12 of 64", "rank # of #"),
            ("python3", "python3"),
            ("python3.11", "python3.11"),
            ("cuda12-app-7", "cuda12-app-#"),
            ("x_3d_4", "x_3d_#"),
            ("7zip", "7zip"),
            ("ü_3é", "ü_3é"),
            ("", ""),
        ] {
            assert_eq!(label("other", name), format!("other {shown}"));
        }
    }
}
