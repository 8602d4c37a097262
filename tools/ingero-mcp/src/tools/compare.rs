//! `compare_traces`: which causes of lost time grew, shrank, came or vanished.
//!
//! Two recordings have different pids and lengths, so processes are matched by their role and name (a number behind
//! a separator does not count: `pt_data_worker_3` is any of them, `python3` is not `python2`), and times are compared as shares of the observed time of the processes that lost
//! them.
//!
//! ```text
//!                          before: 10 s          after: 40 s
//!   gap ... worker_cpu     4 s = 0.40            2 s = 0.05      shrank
//!   gap ... host_cpu       -                     4 s = 0.10      appeared
//! ```

use std::collections::{BTreeMap, HashMap};

use ingero_chain::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Causes of lost time, by how much their share changed, the largest change first
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
    /// Observed time of all processes that make CUDA calls together, nanoseconds
    observed_ns: u64,
    /// Time lost in all chains
    lost_ns: u64,
    /// The same as a share of observed_ns
    lost_share: f64,
    /// Records lost by its tracers
    lost_records: u64,
}

/// One cause in one kind of finding of one kind of process.
#[derive(Debug, Serialize, JsonSchema)]
struct Change {
    /// grew, shrank, appeared, vanished, same (less than a tenth of its share, or half a percent of the time)
    change: String,
    /// Role and name of the process that lost the time
    process: String,
    /// gap, slow_call, stall, drop, oom
    kind: String,
    call: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dir: Option<String>,
    /// As in get_causal_chains; unexplained for what no record explains
    cause: String,
    before_ns: u64,
    after_ns: u64,
    /// Share of the observed time of such processes
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

/// What one recording lost, by key, and how long processes were observed, by role and name.
struct Account {
    lost: BTreeMap<Key, Lost>,
    observed_ns: HashMap<String, u64>,
}

/// Parties of a change in one answer.
const MAX_WHO: usize = 5;

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "compare_traces",
        "What changed between two recordings",
        "Two recordings side by side: which causes of lost time grew, shrank, appeared or vanished, by the role and name of the \
         process (not by pid), as shares of the observed time, so that recordings of different length compare.",
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
    let (old, new) = (account(&before_view.report), account(&after_view.report));
    let mut keys: Vec<&Key> = old.lost.keys().chain(new.lost.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut changes: Vec<Change> = keys.into_iter().map(|key| change(key, &old, &new)).collect();
    let size = |c: &Change| (c.after_share - c.before_share).abs();
    let most = |c: &Change| c.after_share.max(c.before_share);
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| most(b).total_cmp(&most(a))));
    let mut answer = Comparison {
        before: side(&before.name, &before_view.report),
        after: side(&after.name, &after_view.report),
        changes: Vec::new(),
        page: PageInfo::default(),
    };
    let filler = Filler::new(limit, &answer);
    (answer.changes, answer.page) = filler.page(changes.into_iter(), offset);
    Ok(answer)
}

fn side(name: &str, report: &Report) -> Side {
    let observed_ns = report.processes.iter().filter(|p| p.role == "cuda").map(|p| p.dur_ns).sum();
    let lost_ns = report.chains.iter().map(|c| c.lost_ns).sum();
    Side {
        recording: name.to_owned(),
        dur_ns: report.summary.dur_ns,
        observed_ns,
        lost_ns,
        lost_share: share(lost_ns, observed_ns),
        lost_records: report.summary.lost,
    }
}

fn account(report: &Report) -> Account {
    let mut labels: HashMap<u32, String> = HashMap::new();
    let mut observed_ns: HashMap<String, u64> = HashMap::new();
    for process in &report.processes {
        let label = label(process.role, &process.comm);
        *observed_ns.entry(label.clone()).or_default() += process.dur_ns;
        labels.insert(process.pid, label);
    }
    let mut lost: BTreeMap<Key, Lost> = BTreeMap::new();
    for chain in &report.chains {
        let process = labels.get(&chain.pid).cloned().unwrap_or_else(|| label("cuda", &chain.comm));
        let key = |cause| Key {
            process: process.clone(),
            kind: chain.op.name(),
            call: chain.call.clone(),
            dir: chain.dir.clone(),
            cause,
        };
        for cause in &chain.causes {
            let entry = lost.entry(key(cause.cause.name())).or_default();
            entry.ns += cause.ns;
            for who in &cause.who {
                // A thread is known by its own name; its process gives the role.
                let role = labels.get(&who.pid).and_then(|l| l.split_once(' ')).map_or("other", |(role, _)| role);
                *entry.who.entry(label(role, &who.comm)).or_default() += who.ns;
            }
        }
        if chain.unexplained_ns > 0 {
            lost.entry(key("unexplained")).or_default().ns += chain.unexplained_ns;
        }
    }
    Account { lost, observed_ns }
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

fn change(key: &Key, old: &Account, new: &Account) -> Change {
    let of = |account: &Account| {
        let ns = account.lost.get(key).map_or(0, |lost| lost.ns);
        (ns, share(ns, account.observed_ns.get(&key.process).copied().unwrap_or(0)))
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

fn share(part_ns: u64, whole_ns: u64) -> f64 {
    ingero_chain::cause::share(part_ns, whole_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account of one process of a kind, observed for a second, that lost so much by one cause.
    fn account(ns: u64) -> Account {
        let lost = Lost { ns, who: BTreeMap::from([("worker w".into(), ns)]) };
        let lost = if ns == 0 { BTreeMap::new() } else { BTreeMap::from([(key(), lost)]) };
        Account { lost, observed_ns: HashMap::from([("cuda train".into(), 1_000_000_000)]) }
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
            let change = change(&key(), &account(before_ns), &account(after_ns));
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
