//! A report as one HTML page: nothing is loaded from anywhere, and no script runs. What traced processes call
//! themselves is text, escaped, wherever it lands.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use ingero_common::text::{Nanos, Printable};

use crate::blame::{Cause, CauseLine};
use crate::report::model::{Finding, Kind, Report};
use crate::report::sentences::{self, call, count, pct};

const WIDTH: f64 = 1000.0;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;color:#1c1e21;background:#fff;overflow-wrap:anywhere}\
h1{font-size:1.4em}h2{font-size:1.1em;margin:2em 0 .3em}code{font-size:.92em}a{color:inherit}\
.high{color:#b3261e}.medium{color:#8a5a00}.low{color:#44546a}\
table{border-collapse:collapse;margin:.5em 0}td,th{text-align:left;padding:.15em 1em .15em 0;vertical-align:top}\
td.n{text-align:right;white-space:nowrap}td:first-child{white-space:nowrap}\
svg{width:100%;display:block}.bar{height:14px;margin:.4em 0}.lane{height:18px;margin-bottom:.5em}\
.name,.axis{font-size:12.5px;color:#44546a}.name a{text-decoration:none}.axis{display:flex;justify-content:space-between}\
.key span{display:inline-block;margin-right:1.2em}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}\
@media(prefers-color-scheme:dark){body{color:#e4e6eb;background:#18191a}.high{color:#ff8a80}.medium{color:#ffc46b}.low,.name,.axis{color:#a9b4c4}}";

/// Writes the page on what was read from `inputs`. The report should carry its chains' occurrences.
pub(crate) fn write(out: &mut impl Write, report: &Report, inputs: &[String]) -> io::Result<()> {
    let mut page = String::new();
    // Writing to a string does not fail.
    if render(&mut page, report, inputs).is_err() {
        return Err(io::Error::other("drawing the report"));
    }
    out.write_all(page.as_bytes())
}

fn render(page: &mut String, report: &Report, inputs: &[String]) -> fmt::Result {
    let summary = &report.summary;
    let origin = origin(report, inputs);
    let counts = summary.chains;
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>ingero-finding: {0}</title><style>{STYLE}</style>\n<h1>What the GPU waited for</h1>\n<p>{0}</p>\n",
        esc(&origin)
    )?;
    let found = match counts.high + counts.medium + counts.low {
        0 => "nothing found".to_owned(),
        _ => format!("{} high, {} medium, {} low", counts.high, counts.medium, counts.low),
    };
    write!(
        page,
        "<p><b>{found}</b> in {}: {}, {}.",
        esc(&Nanos(summary.dur_ns).to_string()),
        count(summary.stream.records, "record"),
        count(summary.stream.calls, "call")
    )?;
    if let Some(what) = sentences::incomplete(summary) {
        write!(page, " Not complete: {}.", esc(&what))?;
    }
    page.push_str("</p>\n");
    if !report.findings.is_empty() {
        timeline(page, report)?;
    }
    for one in &report.findings {
        finding(page, one)?;
    }
    page.push_str("<h2>Looked for</h2><ul>");
    for line in &summary.checked {
        write!(page, "<li>{}", esc(line))?;
    }
    page.push_str("</ul>\n<p>Times are those of the call on the host; for an asynchronous call, the time to enqueue it.</p></html>\n");
    Ok(())
}

/// Which recording this is: when it begins, where it was made, what it was read from.
fn origin(report: &Report, inputs: &[String]) -> String {
    let begun = report.summary.ts.as_ref().map(|ts| {
        // To the second is enough for people: `2026-11-29 12:02:03 UTC`.
        let (day, time) = ts.as_str().split_once('T').unwrap_or((ts.as_str(), ""));
        format!("{day} {} UTC", time.split('.').next().unwrap_or(time))
    });
    let hosts = Some(report.summary.hosts.join(", ")).filter(|hosts| !hosts.is_empty());
    let files: Vec<&str> = inputs.iter().map(|name| name.rsplit('/').next().unwrap_or(name)).collect();
    [begun, hosts, Some(files.join(", "))].into_iter().flatten().collect::<Vec<_>>().join(" \u{b7} ")
}

/// One lane for each finding, each occurrence where it was, in the colour of its main cause. The drawing has no text in
/// it, which would shrink with it on a narrow screen.
fn timeline(page: &mut String, report: &Report) -> fmt::Result {
    let (start_ns, dur_ns) = (report.summary.mono_ns, report.summary.dur_ns.max(1));
    let x = |ns: u64| ns.saturating_sub(start_ns) as f64 / dur_ns as f64 * WIDTH;
    for finding in &report.findings {
        let what = match finding.op {
            Kind::Gap => format!("gap before {}", call(finding)),
            Kind::Oom => "kill for memory".to_owned(),
            op => format!("{} {}", op.name(), call(finding)),
        };
        let (name, id) = (esc(&format!("{what} of {} ({})", finding.comm, finding.pid)), esc(&finding.id));
        write!(page, "<div class=\"name\"><a href=\"#{id}\">{name}</a></div>")?;
        write!(
            page,
            "<svg class=\"lane\" viewBox=\"0 0 {WIDTH} 18\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{name}\">\
             <rect width=\"{WIDTH}\" height=\"18\" fill=\"#8883\"/>"
        )?;
        let whole = [(finding.lost.mono_ns, finding.lost.dur_ns, finding.lost.causes.first(), finding.lost.lost_ns)];
        let parts: Vec<_> = if finding.occurrences.is_empty() {
            whole.to_vec()
        } else {
            finding.occurrences.iter().map(|o| (o.mono_ns, o.dur_ns, o.causes.first(), o.dur_ns)).collect()
        };
        for (mono_ns, len_ns, cause, lost_ns) in parts {
            let width = (x(mono_ns + len_ns) - x(mono_ns)).max(if finding.op == Kind::Oom { 3.0 } else { 0.6 });
            // At the very end there is no room to the right.
            let left = x(mono_ns).min(WIDTH - width);
            let what = cause.map_or("unexplained", |c| c.cause.name());
            write!(
                page,
                "<rect x=\"{left:.2}\" width=\"{width:.2}\" height=\"18\" fill=\"{}\"><title>{}: {what}</title></rect>",
                colour(cause.map(|c| c.cause)),
                esc(&Nanos(lost_ns).to_string())
            )?;
        }
        page.push_str("</svg>\n");
    }
    page.push_str("<div class=\"axis\">");
    for ns in [0, dur_ns / 2, dur_ns] {
        write!(page, "<span>{}</span>", esc(&Nanos(ns).to_string()))?;
    }
    page.push_str("</div>\n<p class=\"key\">");
    for cause in Cause::ALL {
        if report.findings.iter().any(|c| c.lost.causes.iter().any(|line| line.cause == cause)) {
            write!(page, "<span><i style=\"background:{}\"></i>{}</span>", colour(Some(cause)), cause.name())?;
        }
    }
    if report.findings.iter().any(|c| c.lost.unexplained_ns > 0) {
        write!(page, "<span><i style=\"background:{}\"></i>unexplained</span>", colour(None))?;
    }
    page.push_str("</p>\n");
    Ok(())
}

fn finding(page: &mut String, finding: &Finding) -> fmt::Result {
    let class = finding.severity.name();
    writeln!(
        page,
        "<h2 id=\"{0}\"><span class=\"{class}\">[{1}]</span> {2}</h2>",
        esc(&finding.id),
        class.to_uppercase(),
        esc(&finding.story.summary)
    )?;
    if finding.lost.lost_ns > 0 {
        bar(page, finding)?;
    }
    page.push_str("<table>");
    for line in &finding.lost.causes {
        row(page, line)?;
    }
    if finding.lost.unexplained_ns > 0 {
        let share = finding.lost.unexplained_ns as f64 / finding.lost.lost_ns.max(1) as f64;
        write!(
            page,
            "<tr><td>unexplained<td class=\"n\">{}<td class=\"n\">{}<td>",
            pct(share),
            esc(&Nanos(finding.lost.unexplained_ns).to_string())
        )?;
    }
    page.push_str("</table><table>");
    for line in &finding.story.timeline {
        write!(page, "<tr><th>{}<td>{}", line.layer, esc(&line.text))?;
    }
    page.push_str("</table>");
    if !finding.story.advice.is_empty() {
        page.push_str("<ul>");
        for advice in &finding.story.advice {
            write!(page, "<li><b>{}</b><br>because {}", esc(&advice.text), esc(&advice.because))?;
        }
        page.push_str("</ul>");
    }
    writeln!(page, "<p><code>{}</code></p>", esc(&finding.id))
}

fn row(page: &mut String, line: &CauseLine) -> fmt::Result {
    let who: Vec<String> = line.who.iter().take(6).map(|w| format!("{} ({}) {}", w.comm, w.pid, Nanos(w.ns))).collect();
    write!(
        page,
        "<tr><td>{}<td class=\"n\">{}<td class=\"n\">{}<td>{}",
        line.cause.name(),
        pct(line.share),
        esc(&Nanos(line.ns).to_string()),
        esc(&who.join(", "))
    )
}

/// The causes as one bar.
fn bar(page: &mut String, finding: &Finding) -> fmt::Result {
    write!(
        page,
        "<svg class=\"bar\" viewBox=\"0 0 {WIDTH} 14\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"causes\">"
    )?;
    let mut x = 0.0;
    let unexplained = (None, finding.lost.unexplained_ns);
    for (cause, ns) in finding.lost.causes.iter().map(|c| (Some(c.cause), c.ns)).chain([unexplained]) {
        let width = ns as f64 / finding.lost.lost_ns.max(1) as f64 * WIDTH;
        write!(page, "<rect x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"14\" fill=\"{}\"/>", colour(cause))?;
        x += width;
    }
    page.push_str("</svg>\n");
    Ok(())
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
        Some(Cause::OffCpu) => "#90a4ae",
        None => "#9e9e9e",
    }
}

/// Text in HTML, also inside a quoted attribute.
fn esc(text: &str) -> String {
    let text = Printable(text.as_bytes()).to_string();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_text() {
        assert_eq!(esc("<script>\"'&\n"), "&lt;script&gt;&quot;&#39;&amp;\\u{a}");
    }
}
