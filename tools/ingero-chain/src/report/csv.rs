//! A report as a table (CSV): a line for each cause of each chain, so that spreadsheets can sum and filter.

use std::io::{self, Write};

use ingero_common::text::table_cell;

use crate::chain::{Chain, Report};

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
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(HEADER)?;
    for chain in &report.chains {
        for cause in &chain.causes {
            let who: Vec<String> =
                cause.who.iter().map(|w| format!("{} ({}) {}", table_cell(&w.comm), w.pid, w.ns)).collect();
            table.write_record(row(chain, cause.cause.name(), cause.ns, &who.join("; ")))?;
        }
        if chain.unexplained_ns > 0 || chain.causes.is_empty() {
            table.write_record(row(chain, "unexplained", chain.unexplained_ns, ""))?;
        }
    }
    table.flush()
}

fn row(chain: &Chain, cause: &str, cause_ns: u64, who: &str) -> [String; 19] {
    [
        chain.op.name().to_owned(),
        chain.severity.name().to_owned(),
        table_cell(&chain.id),
        chain.mono_ns.to_string(),
        chain.dur_ns.to_string(),
        chain.pid.to_string(),
        table_cell(&chain.comm),
        table_cell(&chain.call),
        chain.dir.as_deref().map(table_cell).unwrap_or_default(),
        chain.n.to_string(),
        chain.lost_ns.to_string(),
        chain.lost_share.to_string(),
        chain.proven.map(|p| p.to_string()).unwrap_or_default(),
        chain.p50_ns.to_string(),
        chain.p99_ns.map(|ns| ns.to_string()).unwrap_or_default(),
        chain.max_ns.to_string(),
        cause.to_owned(),
        cause_ns.to_string(),
        table_cell(who),
    ]
}
