//! A report of ingero-chain, and the totals, as tables.

use ingero_chain::Report;
use rusqlite::{Connection, params};

use super::{Seen, int};

/// Puts `report` and the totals in place of what the tables had before.
pub(crate) fn write_findings(
    connection: &mut Connection,
    report: Option<&Report>,
    seen: &Seen,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "DELETE FROM chains; DELETE FROM causes; DELETE FROM blame; DELETE FROM occurrences; DELETE FROM processes;
         DELETE FROM totals;",
    )?;
    for (src, op, records) in seen.kinds() {
        transaction.execute("INSERT INTO totals VALUES (?,?,?)", params![src, op, int(records)])?;
    }
    if let Some(report) = report {
        chains(&transaction, report)?;
        processes(&transaction, report)?;
    }
    transaction.commit()
}

fn chains(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let mut chains = connection.prepare("INSERT INTO chains VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")?;
    let mut causes = connection.prepare("INSERT INTO causes VALUES (?,?,?,?)")?;
    let mut blame = connection.prepare("INSERT INTO blame VALUES (?,?,?,?,?)")?;
    let mut occurrences = connection.prepare("INSERT INTO occurrences VALUES (?,?,?,?)")?;
    for c in &report.chains {
        chains.execute(params![
            c.id,
            c.op.name(),
            c.severity.name(),
            int(c.mono_ns),
            int(c.dur_ns),
            c.pid,
            c.comm,
            int(c.n),
            int(c.lost_ns),
            c.lost_share,
            c.proven_ns.map(int),
            c.call,
            c.dir,
            int(c.p50_ns),
            c.p99_ns.map(int),
            int(c.max_ns),
            int(c.unexplained_ns),
            c.summary,
        ])?;
        for cause in &c.causes {
            causes.execute(params![c.id, cause.cause.name(), int(cause.ns), cause.share])?;
            for who in &cause.who {
                blame.execute(params![c.id, cause.cause.name(), who.pid, who.comm, int(who.ns)])?;
            }
        }
        for one in &c.occurrences {
            occurrences.execute(params![c.id, int(one.mono_ns), int(one.dur_ns), int(one.unexplained_ns)])?;
        }
    }
    Ok(())
}

fn processes(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let mut processes = connection.prepare("INSERT INTO processes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)")?;
    for p in &report.processes {
        let s = &p.switches;
        processes.execute(params![
            p.pid,
            p.comm,
            p.role,
            p.parent,
            int(p.mono_ns),
            int(p.dur_ns),
            int(s.voluntary),
            int(s.preempted),
            int(s.avg_off_ns),
            int(s.max_off_ns),
            int(s.runq_ns),
            int(p.pages),
            int(p.page_bytes),
            p.between_calls_share,
        ])?;
    }
    Ok(())
}
