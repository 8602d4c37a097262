//! A report as one HTML page: nothing is loaded from anywhere, and no script runs. What traced processes call
//! themselves is text, escaped, wherever it lands.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use ingero_common::text::{Nanos, Printable};

use crate::cause::{Cause, CauseLine};
use crate::chain::{Aside, Chain, Kind, Report};
use crate::words::{self, call, count, pct};

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
pub fn write(out: &mut impl Write, report: &Report, inputs: &[String]) -> io::Result<()> {
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
         <title>ingero-chain: {0}</title><style>{STYLE}</style>\n<h1>What the GPU waited for</h1>\n<p>{0}</p>\n",
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
        count(summary.records, "record"),
        count(summary.calls, "call")
    )?;
    if let Some(what) = words::incomplete(summary) {
        write!(page, " Not complete: {}.", esc(&what))?;
    }
    page.push_str("</p>\n");
    if !report.chains.is_empty() || !report.asides.is_empty() {
        timeline(page, report)?;
    }
    for one in &report.chains {
        chain(page, one)?;
    }
    if !summary.gaps.is_empty() {
        page.push_str("<h2>All gaps of a process together</h2><ul>");
        for total in &summary.gaps {
            write!(page, "<li>{}", esc(&words::total(total)))?;
        }
        page.push_str("</ul>");
    }
    let nowhere: Vec<String> = words::counted_nowhere(summary);
    if !nowhere.is_empty() {
        page.push_str("<h2>Counted nowhere</h2><ul>");
        for line in nowhere {
            write!(page, "<li>{}", esc(&line))?;
        }
        page.push_str("</ul>");
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

/// One lane for each chain, each occurrence where it was, in the colour of its main cause. The drawing has no text in
/// it, which would shrink with it on a narrow screen.
fn timeline(page: &mut String, report: &Report) -> fmt::Result {
    let (start_ns, dur_ns) = (report.summary.mono_ns, report.summary.dur_ns.max(1));
    let x = |ns: u64| ns.saturating_sub(start_ns) as f64 / dur_ns as f64 * WIDTH;
    for chain in &report.chains {
        let what = match chain.op {
            Kind::Gap => format!("gap before {}", call(chain)),
            Kind::Oom => "kill for memory".to_owned(),
            op => format!("{} {}", op.name(), call(chain)),
        };
        let (name, id) = (esc(&format!("{what} of {} ({})", chain.comm, chain.pid)), esc(&chain.id));
        write!(page, "<div class=\"name\"><a href=\"#{id}\">{name}</a></div>")?;
        write!(
            page,
            "<svg class=\"lane\" viewBox=\"0 0 {WIDTH} 18\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{name}\">\
             <rect width=\"{WIDTH}\" height=\"18\" fill=\"#8883\"/>"
        )?;
        let whole = [(chain.mono_ns, chain.dur_ns, chain.causes.first(), chain.lost_ns)];
        let parts: Vec<_> = if chain.occurrences.is_empty() {
            whole.to_vec()
        } else {
            chain.occurrences.iter().map(|o| (o.mono_ns, o.dur_ns, o.causes.first(), o.dur_ns)).collect()
        };
        for (mono_ns, len_ns, cause, lost_ns) in parts {
            let width = (x(mono_ns + len_ns) - x(mono_ns)).max(if chain.op == Kind::Oom { 3.0 } else { 0.6 });
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
    asides(page, report, x)?;
    page.push_str("<div class=\"axis\">");
    for ns in [0, dur_ns / 2, dur_ns] {
        write!(page, "<span>{}</span>", esc(&Nanos(ns).to_string()))?;
    }
    page.push_str("</div>\n<p class=\"key\">");
    for cause in Cause::ALL {
        if report.chains.iter().any(|c| c.causes.iter().any(|line| line.cause == cause)) {
            write!(page, "<span><i style=\"background:{}\"></i>{}</span>", colour(Some(cause)), cause.name())?;
        }
    }
    if report.chains.iter().any(|c| c.unexplained_ns > 0) {
        write!(page, "<span><i style=\"background:{}\"></i>unexplained</span>", colour(None))?;
    }
    page.push_str("</p>\n");
    Ok(())
}

/// One lane for each process that was seen to start up or to wind down.
fn asides(page: &mut String, report: &Report, x: impl Fn(u64) -> f64) -> fmt::Result {
    let mut pids: Vec<u32> = report.asides.iter().map(|aside| aside.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    for pid in pids {
        let own: Vec<&Aside> = report.asides.iter().filter(|aside| aside.pid == pid).collect();
        let name = esc(&format!("{} ({pid}) starting up and winding down: counted nowhere", own[0].comm));
        write!(
            page,
            "<div class=\"name\">{name}</div><svg class=\"lane\" viewBox=\"0 0 {WIDTH} 18\" preserveAspectRatio=\"none\" \
             role=\"img\" aria-label=\"{name}\"><rect width=\"{WIDTH}\" height=\"18\" fill=\"#8883\"/>"
        )?;
        for aside in own {
            let (left, right) = (x(aside.mono_ns), x(aside.mono_ns + aside.dur_ns).min(WIDTH));
            write!(
                page,
                "<rect x=\"{left:.2}\" y=\"6\" width=\"{:.2}\" height=\"6\" fill=\"#607d8b\"><title>{}: {}</title></rect>",
                (right - left).max(0.6),
                esc(&Nanos(aside.dur_ns).to_string()),
                aside.what
            )?;
        }
        page.push_str("</svg>\n");
    }
    Ok(())
}

fn chain(page: &mut String, chain: &Chain) -> fmt::Result {
    let class = chain.severity.name();
    writeln!(
        page,
        "<h2 id=\"{0}\"><span class=\"{class}\">[{1}]</span> {2}</h2>",
        esc(&chain.id),
        class.to_uppercase(),
        esc(&chain.summary)
    )?;
    if chain.lost_ns > 0 {
        bar(page, chain)?;
    }
    page.push_str("<table>");
    for line in &chain.causes {
        row(page, line)?;
    }
    if chain.unexplained_ns > 0 {
        let share = chain.unexplained_ns as f64 / chain.lost_ns.max(1) as f64;
        write!(
            page,
            "<tr><td>unexplained<td class=\"n\">{}<td class=\"n\">{}<td>",
            pct(share),
            esc(&Nanos(chain.unexplained_ns).to_string())
        )?;
    }
    page.push_str("</table><table>");
    for line in &chain.timeline {
        write!(page, "<tr><th>{}<td>{}", line.layer, esc(&line.text))?;
    }
    page.push_str("</table>");
    if !chain.advice.is_empty() {
        page.push_str("<ul>");
        for advice in &chain.advice {
            write!(page, "<li><b>{}</b><br>because {}", esc(&advice.text), esc(&advice.because))?;
        }
        page.push_str("</ul>");
    }
    writeln!(page, "<p><code>{}</code></p>", esc(&chain.id))
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
fn bar(page: &mut String, chain: &Chain) -> fmt::Result {
    write!(
        page,
        "<svg class=\"bar\" viewBox=\"0 0 {WIDTH} 14\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"causes\">"
    )?;
    let mut x = 0.0;
    let unexplained = (None, chain.unexplained_ns);
    for (cause, ns) in chain.causes.iter().map(|c| (Some(c.cause), c.ns)).chain([unexplained]) {
        let width = ns as f64 / chain.lost_ns.max(1) as f64 * WIDTH;
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
