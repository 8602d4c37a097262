//! A report of ingero-chain, and the totals, as tables.

use ingero_chain::Class;
use ingero_chain::model::{Finding, Report};
use rusqlite::{Connection, params, params_from_iter, types::Value};

use super::{Seen, int};

/// Puts `report` and the totals in place of what the tables had before.
pub(crate) fn write_findings(
    connection: &mut Connection,
    report: Option<&Report>,
    seen: &Seen,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "DELETE FROM accounts; DELETE FROM findings; DELETE FROM causes; DELETE FROM blame; DELETE FROM ops;
         DELETE FROM advice; DELETE FROM lost_time; DELETE FROM occurrences; DELETE FROM processes; DELETE FROM totals;",
    )?;
    for (src, op, records) in seen.kinds() {
        transaction.execute("INSERT INTO totals VALUES (?,?,?)", params![src, op, int(records)])?;
    }
    if let Some(report) = report {
        accounts(&transaction, report)?;
        findings(&transaction, report)?;
        reasons(&transaction, report)?;
        times(&transaction, report)?;
        processes(&transaction, report)?;
    }
    transaction.commit()
}

fn accounts(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let columns = 13 + Class::ALL.len();
    let sql = format!("INSERT INTO accounts VALUES (?{})", ",?".repeat(columns - 1));
    let mut accounts = connection.prepare(&sql)?;
    for a in &report.accounts {
        let mut row: Vec<Value> = vec![
            a.pid.into(),
            a.comm.raw().to_owned().into(),
            int(a.mono_ns).into(),
            int(a.observed_ns).into(),
            int(a.loop_mono_ns).into(),
            int(a.loop_ns).into(),
            int(a.lost_ns).into(),
            a.lost_share.into(),
        ];
        row.extend(Class::ALL.iter().map(|&class| Value::from(int(a.classes.get(class)))));
        row.extend([
            a.gpu.gpu_busy_pct.into(),
            a.gpu.launch_bound_ns.map(int).into(),
            a.gpu.launch_bound_err_ns.map(int).into(),
            a.steps.map(|steps| int(steps.n)).into(),
            a.steps.map(|steps| steps.per_s).into(),
        ]);
        accounts.execute(params_from_iter(row))?;
    }
    Ok(())
}

fn findings(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let sql = format!("INSERT INTO findings VALUES (?{})", ",?".repeat(28));
    let mut findings = connection.prepare(&sql)?;
    for f in &report.findings {
        findings.execute(params_from_iter(finding(f)))?;
    }
    Ok(())
}

/// One row, in the order of the columns.
fn finding(f: &Finding) -> Vec<Value> {
    let times = f.times.as_ref();
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    vec![
        f.id.raw().to_owned().into(),
        f.op.name().to_owned().into(),
        f.severity.name().to_owned().into(),
        int(f.lost.mono_ns).into(),
        int(f.lost.dur_ns).into(),
        f.pid.into(),
        f.comm.raw().to_owned().into(),
        int(f.lost.n).into(),
        int(f.lost.lost_ns).into(),
        f.lost.lost_share.into(),
        f.extra.proven_ns.map(int).into(),
        f.extra.gpu_wait_ns.map(int).into(),
        f.extra.launches.and_then(|launches| launches.err_ns).map(int).into(),
        f.extra.class.map(str::to_owned).into(),
        known(f.call.call_src.raw()).into(),
        known(f.call.call.raw()).into(),
        f.call.dir.as_ref().map(|dir| dir.raw().to_owned()).into(),
        f.call.bytes.map(|[from, _]| int(from)).into(),
        f.call.bytes.map(|[_, to]| int(to)).into(),
        times.map(|times| int(times.p50_ns)).into(),
        times.and_then(|times| times.p99_ns).map(int).into(),
        times.map(|times| int(times.max_ns)).into(),
        times.and_then(|times| times.ratio).into(),
        times.and_then(|times| times.period).map(|period| int(period.ns)).into(),
        int(f.lost.unexplained_ns).into(),
        f.story.summary.clone().into(),
        int(f.evidence.lost).into(),
        f.evidence.watched_share.into(),
        int(f.evidence.samples).into(),
    ]
}

/// Why, and what to try.
fn reasons(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let mut causes = connection.prepare("INSERT INTO causes VALUES (?,?,?,?)")?;
    let mut blame = connection.prepare("INSERT INTO blame VALUES (?,?,?,?,?)")?;
    let mut ops = connection.prepare("INSERT INTO ops VALUES (?,?,?,?,?,?)")?;
    let mut advice = connection.prepare("INSERT INTO advice VALUES (?,?,?,?)")?;
    for f in &report.findings {
        for cause in &f.lost.causes {
            let name = cause.cause.name();
            causes.execute(params![f.id.raw(), name, int(cause.ns), cause.share])?;
            for who in &cause.who {
                blame.execute(params![f.id.raw(), name, who.pid, who.comm.raw(), int(who.ns)])?;
            }
            for op in &cause.ops {
                ops.execute(params![f.id.raw(), name, op.op.raw(), None::<&str>, None::<i64>, int(op.ns)])?;
            }
        }
        for op in &f.extra.ops {
            ops.execute(params![
                f.id.raw(),
                None::<&str>,
                op.op.raw(),
                op.dir.as_ref().map(|dir| dir.raw()),
                int(op.n),
                int(op.ns)
            ])?;
        }
        for one in &f.story.advice {
            advice.execute(params![
                f.id.raw(),
                one.text,
                one.because,
                Some(one.up_to_ns).filter(|&ns| ns > 0).map(int)
            ])?;
        }
    }
    Ok(())
}

/// When.
fn times(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let mut lost_time = connection.prepare("INSERT INTO lost_time VALUES (?,?,?,?)")?;
    let mut occurrences = connection.prepare("INSERT INTO occurrences VALUES (?,?,?,?,?)")?;
    for f in &report.findings {
        for (grid, slice, &lost_ns) in f
            .lost
            .grid
            .iter()
            .flat_map(|grid| grid.lost_ns.iter().enumerate().map(move |(at, ns)| (grid, at as u64, ns)))
        {
            let mono_ns = grid.mono_ns.saturating_add(grid.slice_ns.saturating_mul(slice));
            lost_time.execute(params![f.id.raw(), int(mono_ns), int(grid.slice_ns), int(lost_ns)])?;
        }
        for one in &f.occurrences {
            occurrences.execute(params![
                f.id.raw(),
                int(one.mono_ns),
                int(one.dur_ns),
                int(one.after_calls),
                int(one.unexplained_ns)
            ])?;
        }
    }
    Ok(())
}

fn processes(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let mut processes = connection.prepare("INSERT INTO processes VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)")?;
    for p in &report.processes {
        let s = &p.switches;
        processes.execute(params![
            p.pid,
            p.comm.raw(),
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
        ])?;
    }
    Ok(())
}
