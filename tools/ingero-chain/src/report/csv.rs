//! A report as a table (CSV): a line for each cause of each finding, so that spreadsheets can sum and filter. Accounts are
//! not in it: their lines would have other columns.

use std::io::{self, Write};

use ingero_common::text::{Traced, table_cell};

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

/// Writes the findings; as a list, each with its largest cause only.
pub(crate) fn write(out: &mut impl Write, report: &Report, list: bool) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(HEADER)?;
    for finding in &report.findings {
        let causes = finding.lost.causes.len();
        for cause in finding.lost.causes.iter().take(if list { 1 } else { causes }) {
            let who = cause.who.iter().map(|who| format!("{} ({}) {}", who.comm, who.pid, who.ns));
            let ops = cause.ops.iter().map(|op| format!("{} {}", op.op, op.ns));
            let who: Vec<String> = who.chain(ops).collect();
            table.write_record(row(finding, cause.cause.name(), cause.ns, &who.join("; ")))?;
        }
        if causes == 0 || finding.lost.unexplained_ns > 0 && !list {
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
        finding.id.cell(),
        finding.lost.mono_ns.to_string(),
        finding.lost.dur_ns.to_string(),
        finding.pid.to_string(),
        finding.comm.cell(),
        finding.call.call.cell(),
        finding.call.dir.as_ref().map(Traced::cell).unwrap_or_default(),
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
