//! Findings one by one with their evidence, and what each process did.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use ingero_common::text::{Bytes, Nanos};

use super::layout::{LABEL, Look, hang, label_of, labelled};
use super::overview::{bring, tagged};
use crate::blame::{Cause, CauseLine, WhoNs};
use crate::limits::MAX_WHO;
use crate::report::head;
use crate::report::model::{CallLine, Finding, Kind, Occurrence, ProcessReport};
use crate::report::phrases;
use crate::report::sentences::{self, count, pct, size};

pub(super) fn finding(page: &mut String, finding: &Finding, look: Look) {
    tagged(page, (&finding.severity.name().to_uppercase(), Some(finding.severity)), &finding.story.summary, look);
    push(page, &labelled(look, "times", &numbers(finding)));
    for line in &finding.story.timeline {
        push(page, &labelled(look, &line.layer.to_lowercase(), &line.text));
    }
    for (i, line) in finding.lost.causes.iter().enumerate() {
        cause(page, i, line, look);
    }
    let unexplained_ns = sentences::unexplained_ns(finding);
    if unexplained_ns > 0 {
        let share = unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64;
        let first = head_of(finding.lost.causes.len(), share, "unexplained", unexplained_ns);
        push(page, first.trim_end());
    }
    for advice in &finding.story.advice {
        push(page, &labelled(look, "try", &bring(advice)));
        push(page, &hang(look, &" ".repeat(LABEL), LABEL + 2, &format!("because {}", advice.because)));
    }
    for (i, one) in finding.occurrences.iter().enumerate() {
        push(page, &hang(look, &label_of(if i == 0 { "each" } else { "" }), LABEL + 2, &occurrence(one)));
    }
    push(page, &labelled(look, "id", &finding.id.whole().to_string()));
    page.push('\n');
}

fn push(page: &mut String, lines: &str) {
    page.push_str(lines);
    page.push('\n');
}

fn head_of(i: usize, share: f64, name: &str, ns: u64) -> String {
    let label = label_of(if i == 0 { "why" } else { "" });
    format!("{label}{:>5} {name:<16} {:>7}  ", pct(share), Nanos(ns).to_string())
}

/// Where those begin that a cause points at.
const WHO: usize = LABEL + 5 + 1 + 16 + 1 + 7 + 2;

fn cause(page: &mut String, i: usize, line: &CauseLine, look: Look) {
    let first = head_of(i, line.share, line.cause.name(), line.ns);
    let mut who: Vec<String> = line.who.iter().take(MAX_WHO).map(task).collect();
    who.extend(line.ops.iter().take(MAX_WHO).map(|op| format!("{} {}", op.op, Nanos(op.ns))));
    let more = (line.who.len() + line.ops.len()).saturating_sub(who.len());
    if more > 0 {
        who.push(format!("{more} more"));
    }
    // Who had a CPU between two switches that are on record is in part an estimate.
    let estimated = matches!(line.cause, Cause::CpuWait | Cause::WorkerCpuWait) && !who.is_empty();
    let about = if estimated { "about " } else { "" };
    match who.is_empty() {
        true => push(page, first.trim_end()),
        false => push(page, &hang(look, &first, WHO, &format!("{about}{}", who.join(", ")))),
    }
    for place in phrases::places(line) {
        push(page, &hang(look, &" ".repeat(WHO), WHO + 2, &format!("in {place}")));
    }
}

fn task(who: &WhoNs) -> String {
    format!("{} ({}) {}", who.comm, who.pid, Nanos(who.ns))
}

/// One line of a finding's evidence.
fn occurrence(one: &Occurrence) -> String {
    let at = one.ts.as_ref().map_or_else(|| one.mono_ns.to_string(), |ts| head::clock(ts.as_str()));
    let mut parts: Vec<String> = Vec::new();
    for cause in &one.causes {
        let who = cause.who.first().map(|w| format!(" {} ({})", w.comm, w.pid)).unwrap_or_default();
        parts.push(format!("{} {}{who}", cause.cause.name(), Nanos(cause.ns)));
    }
    if one.unexplained_ns > 0 {
        parts.push(format!("unexplained {}", Nanos(one.unexplained_ns)));
    }
    format!("{at}  {} after {}: {}", Nanos(one.dur_ns), count(one.after_calls, "call"), parts.join(", "))
}

/// The one line of numbers.
fn numbers(finding: &Finding) -> String {
    let mut parts = Vec::new();
    if finding.op == Kind::Oom {
        return match finding.extra.resident_bytes {
            Some(bytes) => format!("{} resident", Bytes(bytes)),
            None => "resident memory not on record".into(),
        };
    }
    parts.push(format!("lost {} = {} of the loop", Nanos(finding.lost.lost_ns), pct(finding.lost.lost_share)));
    if let Some(times) = &finding.times {
        parts.push(format!("longest {}", Nanos(times.max_ns)));
        parts.push(format!("median {}", Nanos(times.p50_ns)));
        parts.extend(times.p99_ns.map(|ns| format!("p99 {}", Nanos(ns))));
        parts
            .extend(times.period.map(|period| format!("every {} ({})", Nanos(period.ns), count(period.every, "call"))));
    }
    if let (Some(proven), Some(proven_ns)) = (finding.extra.proven, finding.extra.proven_ns) {
        parts.push(if proven { "confirmed idle".into() } else { format!("{} confirmed idle", Nanos(proven_ns)) });
    }
    if finding.evidence.lost > 0 {
        parts.push(format!("{} lost there", count(finding.evidence.lost, "record")));
    }
    parts.join(" | ")
}

pub(super) fn process(page: &mut String, process: &ProcessReport, look: Look) {
    let parent = process.parent.map(|p| format!(", child of {p}")).unwrap_or_default();
    let name = sentences::process(&process.comm, process.pid);
    push(page, &hang(look, "", 0, &format!("{name}: {}{parent}, observed {}", process.role, Nanos(process.dur_ns))));
    calls(page, &process.calls, look);
    let s = &process.switches;
    if s.voluntary + s.preempted > 0 {
        let text = format!(
            "{} voluntary, {} involuntary context switches; off the CPU {} on average, longest {}; waited for a CPU {} in total",
            s.voluntary,
            s.preempted,
            Nanos(s.avg_off_ns),
            Nanos(s.max_off_ns),
            Nanos(s.runq_ns)
        );
        push(page, &hang(look, "  ", 2, &text));
    }
    if process.pages > 0 {
        push(page, &format!("  {} allocated ({})", count(process.pages, "page"), Bytes(process.page_bytes)));
    }
    page.push('\n');
}

/// A table of calls; what one of them is the size class tells apart where there is one.
fn calls(page: &mut String, calls: &[CallLine], look: Look) {
    if calls.is_empty() {
        return;
    }
    let mut table = Table::new();
    // A name is never broken: a table that is too wide for the place has wide lines.
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["", "calls", "avg", "p50", "p99", "max"]);
    for call in calls {
        let dir = call.dir.as_ref().map(|dir| format!(" {dir}")).unwrap_or_default();
        let bytes = call.size_bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
        let [avg, p50, p99, max] = [call.avg_ns, call.p50_ns, call.p99_ns, call.max_ns]
            .map(|ns| ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns).to_string()));
        table.add_row([format!("{}{dir}{bytes}", call.op), call.n.to_string(), avg, p50, p99, max]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines: Vec<String> = table.lines().map(|line| format!(" {}", line.trim_end())).collect();
    push(page, &lines.join("\n"));
    if calls.iter().any(|call| call.avg_ns.is_none()) {
        push(page, &hang(look, "  ", 2, "(without a duration: only entries of these calls were traced)"));
    }
}
