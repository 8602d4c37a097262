//! A report for people. For each process: what and how bad, when, why, what to try, how complete the data is, where to look
//! further. Findings by call follow where they are asked for.

mod details;
mod layout;
mod overview;

use std::io::{self, Write};

use ingero_common::text::{Nanos, counted, is_unprintable};

use crate::report::head::{self, Head};
use crate::report::model::{Finding, Report, Summary};
use crate::report::sentences::{self, count};
pub(crate) use layout::Look;
use layout::{BOLD, hang, label_of, paint};

/// How much of a report is wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    /// Findings by call.
    pub(crate) findings: bool,
    /// What each process did.
    pub(crate) processes: bool,
    /// One finding only: no overview.
    pub(crate) explained: bool,
}

/// Writes the report.
pub(crate) fn write(out: &mut impl Write, report: &Report, parts: Parts, look: Look) -> io::Result<()> {
    let mut page = String::new();
    if parts.explained {
        report.findings.iter().for_each(|finding| details::finding(&mut page, finding, look));
    } else {
        let (heads, others) = head::heads(report);
        heads.iter().for_each(|head| process(&mut page, head, report, parts, look));
        others.iter().for_each(|finding| other(&mut page, finding, parts, look));
    }
    if parts.processes {
        report.processes.iter().for_each(|process| details::process(&mut page, process, look));
    }
    summary(&mut page, report, parts, look);
    finish(out, &page, look)
}

/// One line for each finding: its severity, what it cost, its main cause, its id.
pub(crate) fn list(out: &mut impl Write, report: &Report, look: Look) -> io::Result<()> {
    let mut page = String::new();
    for finding in &report.findings {
        let cause = finding.lost.causes.first().map_or("unexplained", |line| line.cause.name());
        let (severity, lost) = (finding.severity.name(), Nanos(finding.lost.lost_ns).to_string());
        let share = sentences::pct(finding.lost.lost_share);
        page.push_str(&format!("{severity:<6} {lost:>8} {share:>6} {cause:<16} {}\n", finding.id.whole()));
    }
    finish(out, &page, look)
}

fn process(page: &mut String, head: &Head<'_>, report: &Report, parts: Parts, look: Look) {
    overview::process(page, head, &report.summary, look);
    if parts.findings {
        head.all.iter().for_each(|finding| details::finding(page, finding, look));
    }
}

/// A finding about a process that makes no CUDA calls itself.
fn other(page: &mut String, finding: &Finding, parts: Parts, look: Look) {
    if parts.findings {
        return details::finding(page, finding, look);
    }
    let tag = finding.severity.name().to_uppercase();
    overview::tagged(page, (&tag, Some(finding.severity)), &sentences::claim(finding), look);
    overview::advice(page, finding, look);
    page.push('\n');
}

fn summary(page: &mut String, report: &Report, parts: Parts, look: Look) {
    let summary = &report.summary;
    if let Some(why) = summary.stream.nothing_seen {
        let why = format!("no CUDA call seen, so nothing was judged: {why}");
        page.push_str(&format!("{}\n", hang(look, "", 0, &why)));
    }
    page.push_str(&format!("{}\n", hang(look, "", 0, &recording(summary))));
    if let Some(data) = sentences::incomplete(summary).filter(|_| report.accounts.is_empty() || parts.explained) {
        page.push_str(&format!("{}\n", hang(look, &label_of("data"), layout::LABEL, &data)));
    }
    let mut further: Vec<&str> = Vec::new();
    if !parts.findings && !parts.explained && !report.findings.is_empty() {
        further.push("--list: the findings with their ids");
        further.push("--verbose: the findings by call, with the evidence");
    }
    if !parts.processes && !report.processes.is_empty() {
        further.push("--per-process: calls and context switches of each process");
    }
    for (i, line) in further.iter().enumerate() {
        page.push_str(&format!("{}\n", hang(look, &label_of(if i == 0 { "more" } else { "" }), layout::LABEL, line)));
    }
}

/// What was read, and how much was found in it.
fn recording(summary: &Summary) -> String {
    let (counts, stream) = (summary.chains, &summary.stream);
    let found = match counts.all() {
        0 if summary.stream.nothing_seen.is_some() => "nothing judged".to_owned(),
        0 => "nothing found".to_owned(),
        _ => format!("{} high, {} medium, {} low", counts.high, counts.medium, counts.low),
    };
    let so_far = if summary.so_far { "so far " } else { "" };
    let found = paint(BOLD, &format!("{so_far}{found}"));
    let hosts: Vec<String> = summary.hosts.iter().map(ToString::to_string).collect();
    let hosts = if hosts.is_empty() { String::new() } else { format!(" on {}", hosts.join(", ")) };
    let begun = summary.ts.as_ref().map(|ts| format!(" from {}", head::instant(ts.as_str()))).unwrap_or_default();
    let origin = if hosts.is_empty() && begun.is_empty() { String::new() } else { format!("; recorded{hosts}{begun}") };
    format!(
        "{found} in {}; {}, {} of {}{origin}",
        Nanos(summary.dur_ns),
        count(stream.records, "record"),
        count(stream.calls, "call"),
        counted(stream.processes, "process", "processes")
    )
}

/// Colours only where they are wanted, and only ASCII where more would not be shown as what it is.
fn finish(out: &mut impl Write, page: &str, look: Look) -> io::Result<()> {
    let mut page = if look.colour { page.to_owned() } else { anstream::adapter::strip_str(page).to_string() };
    if !look.unicode {
        // In other encodings, the bytes of such a character may be commands to the terminal.
        page =
            page.chars().map(|c| if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() }).collect();
    }
    debug_assert!(look.colour || !page.chars().any(|c| c != '\n' && is_unprintable(c)), "everything traced is escaped");
    out.write_all(page.as_bytes())
}
