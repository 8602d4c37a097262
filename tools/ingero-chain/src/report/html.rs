//! A report as one HTML page, in the order of the text: for each process what and how bad, when, why, what to try, how
//! complete the data is; its findings are folded away below. Nothing is loaded from anywhere, and no script runs.
//!
//! The templates escape whatever is put into them, and what traced processes call themselves is escaped before.

use std::io::{self, Write};

use ingero_common::text::{Nanos, Traced, counted};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::blame::{Cause, CauseLine};
use crate::process::class::Class;
use crate::report::head::{self, Head};
use crate::report::model::{Finding, Occurrence, Report};
use crate::report::sentences::{self, count, pct};
use crate::report::strip::Cell;

const WIDTH: f64 = 1000.0;
/// Cells of a strip.
const CELLS: usize = 200;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;color:#1c1e21;background:#fff;overflow-wrap:anywhere}\
h1{font-size:1.4em}h2{font-size:1.15em;margin:2.2em 0 .3em}h3{font-size:1em;margin:1.2em 0 .2em}code{font-size:.92em}\
.high{color:#b3261e}.medium{color:#8a5a00}.low{color:#44546a}.ok{color:#2e7d32}\
table{border-collapse:collapse;margin:.5em 0}td,th{text-align:left;padding:.15em 1em .15em 0;vertical-align:top}\
td.n{text-align:right;white-space:nowrap}td.bar{width:7em;min-width:4em}th{white-space:nowrap}\
svg{width:100%;display:block}.bar{height:14px;margin:.4em 0}.strip{height:32px;margin-top:.4em}\
.dim,.key{font-size:12.5px;color:#44546a}.axis{display:flex;justify-content:space-between}\
.key span{display:inline-block;margin-right:1.2em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}\
summary{cursor:pointer}details{margin:.4em 0}details details{margin-left:1em}\
@media(prefers-color-scheme:dark){body{color:#e4e6eb;background:#18191a}.high{color:#ff8a80}.medium{color:#ffc46b}.ok{color:#81c995}.low,.dim,.key{color:#a9b4c4}}";

/// Writes the page on what was read from `inputs`. The report should carry its findings' occurrences. As a list, it has a
/// table of the findings only.
pub(crate) fn write(out: &mut impl Write, report: &Report, inputs: &[Traced], list: bool) -> io::Result<()> {
    out.write_all(page(report, inputs, list).into_string().as_bytes())
}

fn page(report: &Report, inputs: &[Traced], list: bool) -> Markup {
    let origin = origin(report, inputs);
    let (heads, others) = head::heads(report);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "ingero-chain: " (origin) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "What the GPU waited for" }
                p { (origin) br; (recording(report)) }
                @if list {
                    (findings_table(report))
                } @else {
                    @for head in &heads { (process(head, report)) }
                    @for finding in others { (finding_section(finding)) }
                }
                p.dim { "Times are those of the call on the host; for an asynchronous call, the time to enqueue it." }
            }
        }
    }
}

fn recording(report: &Report) -> Markup {
    let (counts, stream) = (report.summary.chains, &report.summary.stream);
    html! {
        b { (counts.high) " high, " (counts.medium) " medium, " (counts.low) " low" }
        " in " (Nanos(report.summary.dur_ns)) ": " (count(stream.records, "record")) ", " (count(stream.calls, "call"))
        " of " (counted(stream.processes, "process", "processes"))
        @if let Some(what) = sentences::incomplete(&report.summary) { "; " (what) }
        @if let Some(why) = stream.nothing_seen { br; b { "No CUDA call seen, so nothing was judged: " (why) } }
    }
}

/// Which recording this is: when it begins, where it was made, what it was read from.
fn origin(report: &Report, inputs: &[Traced]) -> String {
    let begun = report.summary.ts.as_ref().map(|ts| head::instant(ts.as_str()));
    let hosts: Vec<String> = report.summary.hosts.iter().map(ToString::to_string).collect();
    let files: Vec<String> =
        inputs.iter().map(|name| Traced::from(name.raw().rsplit('/').next().unwrap_or_default()).to_string()).collect();
    let parts = [begun, Some(hosts.join(", ")), Some(files.join(", "))];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" \u{b7} ")
}

fn tag(name: &str) -> Markup {
    html! { span class=(name.to_lowercase()) { "[" (name.to_uppercase()) "]" } " " }
}

fn process(head: &Head<'_>, report: &Report) -> Markup {
    html! {
        section {
            h2 { (tag(head.verdict())) (head.line()) }
            @if let Some(line) = head.loop_line() { p { "Loop: " (line) } }
            (classes(head))
            @for finding in &head.also { p { (tag(finding.severity.name())) (head.claim(finding)) } }
            (when(head))
            @if let Some(lead) = head.lead { (why(lead)) }
            (advice(head.lead.into_iter().chain(head.also.iter().copied())))
            p.dim { "Data: " (head.data(&report.summary)) }
            @for finding in &head.all { (details(finding)) }
        }
    }
}

/// The account as one stacked bar.
fn classes(head: &Head<'_>) -> Markup {
    let account = head.account;
    let whole = account.observed_ns.max(1) as f64;
    let mut x = 0.0;
    let mut parts: Vec<(Class, u64, f64, f64)> = Vec::new();
    for (class, ns) in account.classes.iter() {
        let width = ns as f64 / whole * WIDTH;
        parts.push((class, ns, x, width));
        x += width;
    }
    html! {
        svg.bar viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label="what the time went into" {
            @for (class, ns, x, width) in &parts {
                rect x=(number(*x)) width=(number(*width)) height="14" fill=(class_colour(*class)) {
                    title { (sentences::class(*class)) ": " (Nanos(*ns)) }
                }
            }
        }
        p.key {
            @for (class, ns, ..) in &parts {
                span { i style={ "background:" (class_colour(*class)) } {} (sentences::class(*class)) " " (Nanos(*ns)) }
            }
        }
    }
}

/// The recording with the waits drawn. The drawing has no text in it, which would shrink with it on a narrow screen.
fn when(head: &Head<'_>) -> Markup {
    let Some(cells) = head.strip(CELLS) else { return html! {} };
    let width = WIDTH / CELLS as f64;
    let (from, to) = head.times();
    let drawn = |(i, cell): (usize, &Cell)| {
        let (height, fill) = match cell {
            Cell::Outside => (32.0, "#8885"),
            Cell::Loop(share) if *share > 0.0 => ((share * 32.0).max(1.0), "#d93025"),
            Cell::Loop(_) => return None,
        };
        Some((i as f64 * width, 32.0 - height, height, fill))
    };
    html! {
        svg.strip viewBox="0 0 1000 32" preserveAspectRatio="none" shape-rendering="crispEdges" role="img" aria-label="when the GPU waited" {
            rect width="1000" height="32" fill="#8882" {}
            @for (x, y, height, fill) in cells.iter().enumerate().filter_map(drawn) {
                rect x=(number(x)) y=(number(y)) width=(number(width)) height=(number(height)) fill=(fill) {}
            }
        }
        div.dim.axis { span { (from) } span { "red: the GPU waited; grey: start-up and shutdown" } span { (to) } }
    }
}

/// The causes with bars.
fn why(finding: &Finding) -> Markup {
    let (whys, rest) = head::whys(finding);
    html! {
        table {
            @for why in &whys {
                tr {
                    td.n { (pct(why.share)) }
                    td.bar {
                        svg.bar viewBox="0 0 1000 14" preserveAspectRatio="none" {
                            rect width=(number(why.share * WIDTH)) height="14" fill=(colour(why.cause)) {}
                        }
                    }
                    td.n { (Nanos(why.ns)) }
                    td { (why.text) @for place in &why.places { br; span.dim { (place) } } }
                }
            }
            @if let Some((n, ns)) = rest {
                tr {
                    td.n { (pct(ns as f64 / finding.lost.lost_ns.max(1) as f64)) }
                    td {}
                    td.n { (Nanos(ns)) }
                    td { (count(n as u64, "smaller cause")) }
                }
            }
        }
    }
}

fn advice<'a>(findings: impl Iterator<Item = &'a Finding>) -> Markup {
    let all: Vec<_> = findings.flat_map(|finding| &finding.story.advice).collect();
    html! {
        @if !all.is_empty() {
            h3 { "What to try" }
            ul {
                @for one in all {
                    li {
                        @if one.up_to_ns > 0 { b { "up to " (Nanos(one.up_to_ns)) ": " } }
                        (one.text)
                        br;
                        span.dim { "because " (one.because) }
                    }
                }
            }
        }
    }
}

/// A finding about a process that makes no CUDA calls itself.
fn finding_section(finding: &Finding) -> Markup {
    html! {
        section {
            h2 { (tag(finding.severity.name())) (sentences::claim(finding)) }
            (advice([finding].into_iter()))
            (details(finding))
        }
    }
}

/// One finding with its evidence, folded away.
fn details(finding: &Finding) -> Markup {
    html! {
        details id=(finding.id.whole()) {
            summary { (tag(finding.severity.name())) (finding.story.summary) " " code { (finding.id.whole()) } }
            table {
                @for line in &finding.story.timeline { tr { th { (line.layer) } td { (line.text) } } }
            }
            table {
                @for line in &finding.lost.causes { (cause_row(line)) }
                @if sentences::unexplained_ns(finding) > 0 {
                    tr {
                        td { "unexplained" }
                        td.n { (pct(finding.lost.unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64)) }
                        td.n { (Nanos(finding.lost.unexplained_ns)) }
                        td {}
                    }
                }
            }
            @if !finding.occurrences.is_empty() { (occurrences(&finding.occurrences)) }
        }
    }
}

fn cause_row(line: &CauseLine) -> Markup {
    let who = line.who.iter().take(6).map(|who| format!("{} ({}) {}", who.comm, who.pid, Nanos(who.ns)));
    let ops = line.ops.iter().take(6).map(|op| format!("{} {}", op.op, Nanos(op.ns)));
    html! {
        tr {
            td { (line.cause.name()) }
            td.n { (pct(line.share)) }
            td.n { (Nanos(line.ns)) }
            td { (who.chain(ops).collect::<Vec<_>>().join(", ")) }
        }
    }
}

/// Each of the occurrences that are kept, longest first.
fn occurrences(all: &[Occurrence]) -> Markup {
    let causes = |one: &Occurrence| {
        let mut parts: Vec<String> =
            one.causes.iter().map(|line| format!("{} {}", line.cause.name(), Nanos(line.ns))).collect();
        if one.unexplained_ns > 0 {
            parts.push(format!("unexplained {}", Nanos(one.unexplained_ns)));
        }
        parts.join(", ")
    };
    html! {
        details {
            summary { (count(all.len() as u64, "occurrence")) ", longest first" }
            table {
                @for one in all {
                    tr {
                        td.n { (Nanos(one.dur_ns)) }
                        td { @if let Some(ts) = &one.ts { (ts.as_str()) } @else { (one.mono_ns) } }
                        td { (causes(one)) }
                    }
                }
            }
        }
    }
}

fn findings_table(report: &Report) -> Markup {
    html! {
        table {
            @for finding in &report.findings {
                tr {
                    td { (tag(finding.severity.name())) }
                    td.n { (Nanos(finding.lost.lost_ns)) }
                    td.n { (pct(finding.lost.lost_share)) }
                    td { (finding.lost.causes.first().map_or("unexplained", |line| line.cause.name())) }
                    td { code { (finding.id.whole()) } }
                }
            }
        }
    }
}

/// A coordinate.
fn number(value: f64) -> String {
    format!("{value:.2}")
}

/// Waiting is red, feeding green, memory and code brown, the unknown grey.
fn class_colour(class: Class) -> &'static str {
    match class {
        Class::StartUp => "#b0bec5",
        Class::Idle => "#d93025",
        Class::Silence => "#f06292",
        Class::GpuWait => "#2e9e5b",
        Class::Enqueue => "#7cb342",
        Class::Copy => "#1a73e8",
        Class::Memory => "#8d6e63",
        Class::Load => "#c0a000",
        Class::OtherCall => "#5c6bc0",
        Class::Between => "#4fc3f7",
        Class::WindDown => "#90a4ae",
        Class::NotJudged => "#616161",
    }
}

/// Computing is green, waiting for a CPU red, devices blue, others violet, the unknown grey.
fn colour(cause: Option<Cause>) -> &'static str {
    match cause {
        Some(Cause::HostCpu) => "#2e9e5b",
        Some(Cause::DriverCpu) => "#7cb342",
        Some(Cause::WorkerCpu) => "#00897b",
        Some(Cause::CpuWait) => "#d93025",
        Some(Cause::WorkerCpuWait) => "#f06292",
        Some(Cause::Quota) => "#ef6c00",
        Some(Cause::WorkerQuota) => "#ffb300",
        Some(Cause::Steal) => "#6d4c41",
        Some(Cause::CudaCall) => "#c0a000",
        Some(Cause::IoWait) => "#1a73e8",
        Some(Cause::WorkerIo) => "#4fc3f7",
        Some(Cause::Blocked) => "#5c6bc0",
        Some(Cause::Wait) => "#8e24aa",
        Some(Cause::Sleep) => "#b39ddb",
        Some(Cause::Lock) => "#c2185b",
        Some(Cause::Pause) => "#9575cd",
        Some(Cause::Network) => "#0097a7",
        Some(Cause::Spin) => "#afb42b",
        Some(Cause::Gc | Cause::WorkerGc) => "#8d6e63",
        Some(Cause::OffCpu) => "#90a4ae",
        None => "#9e9e9e",
    }
}
