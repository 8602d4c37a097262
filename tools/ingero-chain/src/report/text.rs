//! A report for people: the same numbers as the records, one block for each finding.

use std::io::{self, Write};

use ingero_common::text::{Bytes, Nanos, Printable, counted};

use crate::blame::Cause;
use crate::findings::severity::Severity;
use crate::report::model::{CallLine, Finding, Kind, Occurrence, ProcessReport, Report, Summary};
use crate::report::sentences::{self, count, pct};

/// Colours of a terminal; all empty where none are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// Whether to colour.
    pub colour: bool,
}

impl Style {
    fn paint(self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Writes the whole report.
pub(crate) fn write(out: &mut impl Write, report: &Report, per_process: bool, style: Style) -> io::Result<()> {
    for one in &report.findings {
        finding(out, one, style)?;
    }
    if per_process {
        for one in &report.processes {
            process(out, one)?;
        }
    }
    summary(out, &report.summary, style)
}

fn tag(severity: Severity, style: Style) -> String {
    let colour = match severity {
        Severity::High => "1;31",
        Severity::Medium => "1;33",
        Severity::Low => "1",
    };
    style.paint(&format!("[{}]", severity.name().to_uppercase()), colour)
}

fn finding(out: &mut impl Write, finding: &Finding, style: Style) -> io::Result<()> {
    writeln!(out, "{} {}", tag(finding.severity, style), safe(&finding.story.summary))?;
    writeln!(out, "       {}", numbers(finding))?;
    for line in &finding.story.timeline {
        writeln!(out, "       {:<6} | {}", line.layer, safe(&line.text))?;
    }
    for cause in &finding.lost.causes {
        let who: Vec<String> =
            cause.who.iter().take(4).map(|w| format!("{} ({}) {}", safe(&w.comm), w.pid, Nanos(w.ns))).collect();
        let name = cause.cause.name();
        // Who had a CPU between two switches that are on record is in part an estimate.
        let about =
            if matches!(cause.cause, Cause::CpuWait | Cause::WorkerCpuWait) && !who.is_empty() { "about " } else { "" };
        let line = format!(
            "       {:>5} {name:<16} {:>8}  {about}{}",
            pct(cause.share),
            Nanos(cause.ns).to_string(),
            who.join(", ")
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    if finding.lost.unexplained_ns > 0 {
        let share = finding.lost.unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64;
        writeln!(
            out,
            "       {:>5} {:<16} {:>8}",
            pct(share),
            "unexplained",
            Nanos(finding.lost.unexplained_ns).to_string()
        )?;
    }
    for advice in &finding.story.advice {
        writeln!(out, "       try: {}", safe(&advice.text))?;
        writeln!(out, "            because {}", safe(&advice.because))?;
    }
    for one in &finding.occurrences {
        occurrence(out, one)?;
    }
    writeln!(out, "       id {}", safe(&finding.id))?;
    writeln!(out)
}

/// One line of a finding's evidence.
fn occurrence(out: &mut impl Write, one: &Occurrence) -> io::Result<()> {
    let at = one.ts.as_ref().map_or_else(|| one.mono_ns.to_string(), |ts| ts.as_str().to_owned());
    let mut parts: Vec<String> = Vec::new();
    for cause in &one.causes {
        let who = cause.who.first().map(|w| format!(" {} ({})", safe(&w.comm), w.pid)).unwrap_or_default();
        parts.push(format!("{} {}{who}", cause.cause.name(), Nanos(cause.ns)));
    }
    if one.unexplained_ns > 0 {
        parts.push(format!("unexplained {}", Nanos(one.unexplained_ns)));
    }
    let parts = parts.join(", ");
    writeln!(out, "       {at} {:>8} after {}: {parts}", Nanos(one.dur_ns).to_string(), count(one.after_calls, "call"))
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
    let times = finding.times.clone().unwrap_or_default();
    if finding.times.is_some() {
        parts.push(format!("longest {}", Nanos(times.max_ns)));
        parts.push(format!("p50 {}", Nanos(times.p50_ns)));
    }
    parts.push(format!("lost {} = {}", Nanos(finding.lost.lost_ns), pct(finding.lost.lost_share)));
    if let Some(proven) = finding.extra.proven {
        parts.push(match (proven, finding.op) {
            (true, _) => "proven idle".into(),
            (false, Kind::Gap) if finding.extra.proven_ns.unwrap_or(0) > 0 => {
                format!("upper bound, {} proven idle", Nanos(finding.extra.proven_ns.unwrap_or(0)))
            }
            _ => "upper bound: the GPU may have had work left".into(),
        });
    }
    if let Some(period) = times.period {
        parts.push(format!("every {} ({})", Nanos(period.ns), count(period.every, "call")));
    }
    if finding.evidence.lost > 0 {
        parts.push(format!("{} lost there", count(finding.evidence.lost, "record")));
    }
    parts.join(" | ")
}

fn process(out: &mut impl Write, process: &ProcessReport) -> io::Result<()> {
    let parent = process.parent.map(|p| format!(", child of {p}")).unwrap_or_default();
    writeln!(
        out,
        "{} ({}): {}{parent}, observed {}",
        safe(&process.comm),
        process.pid,
        process.role,
        Nanos(process.dur_ns)
    )?;
    calls(out, &process.calls)?;
    let s = &process.switches;
    if s.voluntary + s.preempted > 0 {
        let (avg, max, runq) = (Nanos(s.avg_off_ns), Nanos(s.max_off_ns), Nanos(s.runq_ns));
        writeln!(
            out,
            "       off the CPU {} times by itself, {} preempted: avg {avg}, worst {max}; waited for a CPU {runq}",
            s.voluntary, s.preempted
        )?;
    }
    if process.pages > 0 {
        writeln!(out, "       {} pages allocated", process.pages)?;
    }
    writeln!(out)
}

/// A table of calls; what one of them is the size class tells apart where there is one.
fn calls(out: &mut impl Write, calls: &[CallLine]) -> io::Result<()> {
    let name = |call: &CallLine| {
        let dir = call.dir.as_ref().map(|dir| format!(" {dir}")).unwrap_or_default();
        let size = call.size_bytes.map(|bytes| format!(", {}", sentences::size(bytes))).unwrap_or_default();
        safe(&format!("{}{dir}{size}", call.op)).to_string()
    };
    let names: Vec<String> = calls.iter().map(name).collect();
    let Some(width) = names.iter().map(|name| name.chars().count()).max() else { return Ok(()) };
    let [n, avg, p50, p99, max] = ["calls", "avg", "p50", "p99", "max"];
    writeln!(out, "       {:width$}  {n:>9}  {avg:>8}  {p50:>8}  {p99:>8}  {max:>8}", "")?;
    for (name, call) in names.iter().zip(calls) {
        let [avg, p50, p99, max] = [call.avg_ns, call.p50_ns, call.p99_ns, call.max_ns]
            .map(|ns| ns.map_or_else(|| "-".to_owned(), |ns| Nanos(ns).to_string()));
        writeln!(out, "       {name:width$}  {:>9}  {avg:>8}  {p50:>8}  {p99:>8}  {max:>8}", call.n)?;
    }
    if calls.iter().any(|call| call.avg_ns.is_none()) {
        writeln!(out, "       (without a duration: traced by their entries alone)")?;
    }
    Ok(())
}

/// One line for each finding: its severity, what it cost, its main cause, its id.
pub(crate) fn list(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        let cause = finding.lost.causes.first().map_or("unexplained", |line| line.cause.name());
        let (severity, lost) = (finding.severity.name(), Nanos(finding.lost.lost_ns).to_string());
        writeln!(out, "{severity:<6} {lost:>8} {:>6} {cause:<16} {}", pct(finding.lost.lost_share), safe(&finding.id))?;
    }
    out.flush()
}

fn summary(out: &mut impl Write, summary: &Summary, style: Style) -> io::Result<()> {
    let counts = summary.chains;
    let found = match counts.high + counts.medium + counts.low {
        0 => "nothing found".to_owned(),
        _ => format!("{} high, {} medium, {} low", counts.high, counts.medium, counts.low),
    };
    let found = if summary.so_far { format!("so far {found}") } else { found };
    writeln!(
        out,
        "{} in {}: {}, {} of {}",
        style.paint(&found, "1"),
        Nanos(summary.dur_ns),
        count(summary.stream.records, "record"),
        count(summary.stream.calls, "call"),
        counted(summary.stream.processes, "process", "processes")
    )?;
    if let Some(what) = sentences::incomplete(summary) {
        writeln!(out, "not complete: {what}")?;
    }
    if counts.high + counts.medium + counts.low == 0 {
        writeln!(out, "looked for:")?;
        for line in &summary.checked {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

fn safe(text: &str) -> Printable<'_> {
    Printable(text.as_bytes())
}
