//! Which record goes into which table, and what is counted beside.

use ingero_common::record::{SysSample, Who, src};
use rusqlite::{Connection, Statement, params};

use super::blocks::Blocks;
use super::int;
use crate::grid::Grid;
use crate::row::{Line, Row, SampleRest};

/// Texts of a recording are stored up to this many bytes: names in the kernel have 16, paths 4096.
const MAX_TEXT_BYTES: usize = 4096;

/// Different kinds of records that are counted one by one; the rest, somebody else's, together.
const MAX_KINDS: usize = 250;

/// What has been seen of a recording besides its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Records so far, those of other programs included.
    pub(crate) records: u64,
    /// Lines that are no JSON objects.
    pub(crate) bad_lines: u64,
    /// The earliest start, CLOCK_MONOTONIC nanoseconds.
    pub(crate) start_ns: Option<u64>,
    /// The latest end.
    pub(crate) end_ns: u64,
    /// Which rows lie where in time.
    pub(crate) blocks: Blocks,
    /// What happened when, coarsely.
    pub(crate) grid: Grid,
    /// Those that come often are near the front.
    kinds: Vec<Kind>,
}

/// How many records of one kind there are.
#[derive(Clone, Debug)]
struct Kind {
    src: Box<str>,
    op: Box<str>,
    records: u64,
}

impl Seen {
    /// Records of each kind: `src`, `op`, how many.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.kinds.iter().map(|kind| (&*kind.src, &*kind.op, kind.records))
    }

    fn count(&mut self, src: &str, op: &str) {
        let (src, op) = (text(src), text(op));
        let known = |kinds: &[Kind], src: &str, op: &str| kinds.iter().position(|k| *k.op == *op && *k.src == *src);
        let at = match known(&self.kinds, src, op) {
            Some(at) => at,
            None => {
                let (src, op) = if self.kinds.len() < MAX_KINDS { (src, op) } else { ("other", "other") };
                known(&self.kinds, src, op).unwrap_or_else(|| {
                    self.kinds.push(Kind { src: src.into(), op: op.into(), records: 0 });
                    self.kinds.len() - 1
                })
            }
        };
        self.kinds[at].records += 1;
        // One step towards the front each time: the few kinds that make up a recording are found at once.
        if at > 0 && self.kinds[at - 1].records < self.kinds[at].records {
            self.kinds.swap(at - 1, at);
        }
    }

    fn place(&mut self, row: &Row<'_>) {
        let (Some(start_ns), Some(end_ns)) = (row.mono_ns, row.end_ns()) else { return };
        self.blocks.add(self.records, start_ns, end_ns);
        // The frame says when tracers ran, not when something happened.
        if &*row.src != src::INGERO {
            self.start_ns = Some(self.start_ns.map_or(start_ns, |s| s.min(start_ns)));
            self.end_ns = self.end_ns.max(end_ns);
        }
    }
}

/// Prepared statements, one a table.
pub(crate) struct Inserter<'c> {
    calls: Statement<'c>,
    switches: Statement<'c>,
    tasks: Statement<'c>,
    amounts: Statement<'c>,
    samples: Statement<'c>,
    frames: Statement<'c>,
}

impl<'c> Inserter<'c> {
    pub(crate) fn new(connection: &'c Connection) -> rusqlite::Result<Self> {
        let insert = |table: &str, columns: usize| {
            connection.prepare(&format!("INSERT INTO {table} VALUES (?{})", ",?".repeat(columns - 1)))
        };
        Ok(Self {
            calls: insert("calls", 26)?,
            switches: insert("switches", 19)?,
            tasks: insert("tasks", 10)?,
            amounts: insert("amounts", 11)?,
            samples: insert("samples", 17)?,
            frames: insert("frames", 11)?,
        })
    }

    /// Stores what a line says.
    pub(crate) fn line(&mut self, bytes: &[u8], seen: &mut Seen) -> rusqlite::Result<()> {
        let row = match Line::read(bytes) {
            Line::Row(row) => row,
            Line::Unknown => {
                seen.records += 1;
                seen.count("unknown", "");
                return Ok(());
            }
            Line::Bad => {
                seen.bad_lines += 1;
                return Ok(());
            }
        };
        seen.records += 1;
        if row.double {
            return Ok(());
        }
        seen.count(&row.src, &row.op);
        seen.place(&row);
        seen.grid.add(&row);
        let id = int(seen.records);
        match &*row.src {
            s if src::is_call(s) => self.call(id, &row),
            src::SCHED if &*row.op == "sched_switch" => self.switch(id, &row),
            src::SCHED => self.task(id, &row),
            src::MEM | src::BLOCK | src::NET => self.amount(id, &row),
            src::SYS if &*row.op == "sample" => self.sample(id, &row, bytes),
            src::INGERO => self.frame(id, &row, bytes),
            _ => Ok(()),
        }
    }

    fn call(&mut self, id: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        let host = row.host.as_ref();
        self.calls.execute(params![
            id,
            row.mono_ns.map(int),
            row.dur_ns.map(int),
            row.pid,
            row.tid,
            text(&row.comm),
            text(&row.src),
            text(&row.op),
            row.depth,
            row.ret,
            row.bytes.map(int),
            row.dir.as_deref().map(text),
            row.stream.as_deref().map(text),
            row.func.as_deref().map(text),
            row.count.map(int),
            host.map(|h| int(h.off_ns)),
            host.map(|h| int(h.preempted_ns)),
            host.map(|h| int(h.runq_ns)),
            host.map(|h| int(h.sleep_ns)),
            host.map(|h| int(h.io_ns)),
            host.map(|h| int(h.unknown_ns)),
            host.map(|h| int(h.switches)),
            host.map(|h| int(h.pages)),
            host.map(|h| h.watched),
            flag(row.open),
            flag(row.late),
        ])?;
        Ok(())
    }

    fn switch(&mut self, id: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        let pid = |who: &Option<Who<'_>>| who.as_ref().map(|w| w.pid);
        let waker = row.waker.as_ref();
        self.switches.execute(params![
            id,
            row.mono_ns.map(int),
            row.dur_ns.map(int),
            row.pid,
            row.tid,
            text(&row.comm),
            row.state.as_deref().map(text),
            row.runq_ns.map(int),
            row.cpu,
            pid(&row.by),
            row.by.as_ref().map(|w| text(&w.comm)),
            pid(&row.prev),
            row.prev.as_ref().map(|w| text(&w.comm)),
            pid(&row.waker),
            waker.map(|w| w.tid),
            waker.map(|w| text(&w.comm)),
            flag(row.waker_irq),
            flag(row.open),
            flag(row.late),
        ])?;
        Ok(())
    }

    fn task(&mut self, id: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        self.tasks.execute(params![
            id,
            row.mono_ns.map(int),
            row.pid,
            row.tid,
            text(&row.comm),
            text(&row.op),
            row.child_pid,
            row.child_tid,
            row.exe.as_deref().map(text),
            row.code,
        ])?;
        Ok(())
    }

    fn amount(&mut self, id: i64, row: &Row<'_>) -> rusqlite::Result<()> {
        self.amounts.execute(params![
            id,
            row.mono_ns.map(int),
            row.dur_ns.map(int),
            row.pid,
            row.tid,
            text(&row.comm),
            text(&row.src),
            text(&row.op),
            row.count.map(int),
            row.bytes.map(int),
            row.dev.as_deref().map(text),
        ])?;
        Ok(())
    }

    fn sample(&mut self, id: i64, row: &Row<'_>, bytes: &[u8]) -> rusqlite::Result<()> {
        let sample = serde_json::from_slice::<SysSample>(bytes).unwrap_or_default();
        let rest = serde_json::from_slice::<SampleRest>(bytes).unwrap_or_default();
        let psi = rest.psi.unwrap_or_default();
        let throttled_ns = sample.quota.iter().map(|q| q.throttled_ns).fold(0, u64::saturating_add);
        let utils: Vec<f64> = rest.gpu.iter().filter_map(|gpu| gpu.util_pct).collect();
        let mems: Vec<u64> = rest.gpu.iter().filter_map(|gpu| gpu.mem_used_bytes).collect();
        let mean_mem = mems.iter().fold(0, |sum: u64, &m| sum.saturating_add(m)).checked_div(mems.len() as u64);
        self.samples.execute(params![
            id,
            row.mono_ns.map(int),
            row.dur_ns.map(int),
            sample.cpu_pct,
            sample.cpu_max_pct,
            sample.cpus,
            sample.runnable,
            sample.iowait_pct,
            sample.steal_pct,
            sample.mem_avail_bytes.map(int),
            sample.swap_used_bytes.map(int),
            psi.cpu,
            psi.memory,
            psi.io,
            (!sample.quota.is_empty()).then_some(int(throttled_ns)),
            (!utils.is_empty()).then(|| utils.iter().sum::<f64>() / utils.len() as f64),
            mean_mem.map(int),
        ])?;
        Ok(())
    }

    fn frame(&mut self, id: i64, row: &Row<'_>, bytes: &[u8]) -> rusqlite::Result<()> {
        self.frames.execute(params![
            id,
            row.mono_ns.map(int),
            row.dur_ns.map(int),
            text(&row.op),
            row.stream.as_deref().map(text),
            row.tool.as_deref().map(text),
            row.pid,
            text(&row.comm),
            row.why.as_deref().map(text),
            row.count.map(int),
            // A `start` record lists its probes, about 1,100 names.
            std::str::from_utf8(bytes).ok().filter(|json| json.len() <= 64 * 1024),
        ])?;
        Ok(())
    }
}

/// A flag that is rarely set costs nothing where it is not.
fn flag(set: bool) -> Option<bool> {
    set.then_some(true)
}

/// The beginning of a text, cut between characters.
fn text(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}
