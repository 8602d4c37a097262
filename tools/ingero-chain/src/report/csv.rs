//! A report as a table (CSV): a line for each cause of each finding, so that spreadsheets can sum and filter.

use std::io::{self, Write};

use ingero_common::text::table_cell;

use crate::report::model::{Finding, Report};

const HEADER: [&str; 19] = [
    "op",
    "severity",
    "id",
    "mono_ns",
    "dur_ns",
    "pid",
    "comm",
    "call",
    "dir",
    "n",
    "lost_ns",
    "lost_share",
    "proven",
    "p50_ns",
    "p99_ns",
    "max_ns",
    "cause",
    "cause_ns",
    "who",
];

/// Writes the chains.
pub(crate) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(HEADER)?;
    for finding in &report.findings {
        for cause in &finding.lost.causes {
            let who: Vec<String> =
                cause.who.iter().map(|w| format!("{} ({}) {}", table_cell(&w.comm), w.pid, w.ns)).collect();
            table.write_record(row(finding, cause.cause.name(), cause.ns, &who.join("; ")))?;
        }
        if finding.lost.unexplained_ns > 0 || finding.lost.causes.is_empty() {
            table.write_record(row(finding, "unexplained", finding.lost.unexplained_ns, ""))?;
        }
    }
    table.flush()
}

fn row(finding: &Finding, cause: &str, cause_ns: u64, who: &str) -> [String; 19] {
    let times = finding.times.as_ref();
    [
        finding.op.name().to_owned(),
        finding.severity.name().to_owned(),
        table_cell(&finding.id),
        finding.lost.mono_ns.to_string(),
        finding.lost.dur_ns.to_string(),
        finding.pid.to_string(),
        table_cell(&finding.comm),
        table_cell(&finding.call.call),
        finding.call.dir.as_deref().map(table_cell).unwrap_or_default(),
        finding.lost.n.to_string(),
        finding.lost.lost_ns.to_string(),
        finding.lost.lost_share.to_string(),
        finding.extra.proven.map(|p| p.to_string()).unwrap_or_default(),
        times.map(|times| times.p50_ns.to_string()).unwrap_or_default(),
        times.and_then(|times| times.p99_ns).map(|ns| ns.to_string()).unwrap_or_default(),
        times.map(|times| times.max_ns.to_string()).unwrap_or_default(),
        cause.to_owned(),
        cause_ns.to_string(),
        table_cell(who),
    ]
}
