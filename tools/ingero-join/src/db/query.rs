//! The queries on a recording, and what is known of it before its events are read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, bail};
use ingero_common::record::src;
use rusqlite::{Connection, OpenFlags, Row as SqlRow};

use crate::db::guard::{self, has_table, text};

const MINUTE_NS: i64 = 60_000_000_000;

/// A row of `events`.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Nanoseconds since the epoch: the start of a call, the end of anything else.
    pub(super) stamp_ns: i64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) source: i64,
    pub(super) op: i64,
    pub(super) dur_ns: i64,
    pub(super) arg0: i64,
    pub(super) arg1: i64,
    pub(super) ret: i64,
}

/// What a (source, op) pair means in our contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EventKind {
    pub(super) src: String,
    pub(super) op: String,
}

/// Rows of one process that were counted in a minute and are not there.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) pid: u32,
    /// `cuda` or `sched`; `None` for what neither attribution nor gaps rest on.
    pub(super) stream: Option<&'static str>,
    pub(super) count: u64,
}

/// A row of `system_snapshots`.
#[derive(Clone, Debug)]
pub(super) struct SystemSample {
    pub(super) end_ns: i64,
    pub(super) dur_ns: i64,
    pub(super) cpu_pct: f64,
    pub(super) mem_avail_bytes: u64,
    pub(super) swap_used_bytes: u64,
}

/// A recording but for its events.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The wall clock at `mono_ns` 0.
    pub(super) base_ns: i64,
    pub(super) end_ns: i64,
    pub(super) kernel: String,
    pub(super) version: String,
    pub(super) pid_filter: String,
    pub(super) cpus: u32,
    pub(super) kinds: HashMap<(i64, i64), EventKind>,
    pub(super) names: HashMap<u32, String>,
    /// Of threads that make CUDA calls and are not their process's first.
    pub(super) process_of: HashMap<u32, u32>,
    pub(super) cuda_pids: HashSet<u32>,
    pub(super) losses: Vec<Loss>,
    pub(super) samples: Vec<SystemSample>,
    pub(super) rows: u64,
}

impl EventKind {
    fn new(source: &str, op: &str) -> Self {
        let (src, op) = match (source, op) {
            ("CUDA", "cudaStreamSync") => (src::CUDART, "cudaStreamSynchronize"),
            ("CUDA", "cudaDeviceSync") => (src::CUDART, "cudaDeviceSynchronize"),
            ("CUDA", op) => (src::CUDART, op),
            ("DRIVER", op) => (src::CUDA, op),
            ("HOST", "process_exec") => (src::SCHED, "sched_process_exec"),
            ("HOST", "process_exit") => (src::SCHED, "sched_process_exit"),
            ("HOST", "process_fork") => (src::SCHED, "sched_process_fork"),
            ("HOST", op @ ("mm_page_alloc" | "oom_kill")) => (src::MEM, op),
            ("HOST", op) => (src::SCHED, op),
            ("IO", op) => (src::BLOCK, op.strip_prefix("block_").unwrap_or(op)),
            ("TCP" | "NET", op) => (src::NET, op),
            (source, op) => return Self { src: source.to_lowercase(), op: op.to_owned() },
        };
        Self { src: src.to_owned(), op: op.to_owned() }
    }

    pub(super) fn is_call(&self) -> bool {
        src::is_call(&self.src)
    }

    pub(super) fn is_switch(&self) -> bool {
        self.op == "sched_switch"
    }
}

/// Opens a recording without leaving a trace beside it.
pub(super) fn open(path: &Path) -> anyhow::Result<Connection> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    // A database in WAL mode makes its readers create files beside it, unless it is declared immutable,
    // which is true of one that nobody has written to since its last checkpoint.
    let in_use = std::fs::metadata(&wal).is_ok_and(|m| m.len() > 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let mut uri = String::from("file:");
    for &byte in std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => uri.push(char::from(byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    if !in_use {
        uri.push_str("?immutable=1");
    }
    let mut connection = Connection::open_with_flags(uri, flags)?;
    guard::limit(&mut connection, guard::size_bytes(path, Path::new(&wal)))?;
    // Nothing that a hostile file could bring along (triggers, views with functions) is to run.
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    Ok(connection)
}

/// All events in order of their stamps, of equal ones the longer first.
pub(super) fn events(connection: &Connection, mut each: impl FnMut(Event) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut statement = connection.prepare(
        "SELECT timestamp, pid, tid, source, op, duration, arg0, arg1, ret_code FROM events
         ORDER BY timestamp, duration DESC, id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(Event {
            stamp_ns: row.get(0)?,
            pid: row.get(1)?,
            tid: row.get(2)?,
            source: row.get(3)?,
            op: row.get(4)?,
            dur_ns: row.get::<_, i64>(5)?.max(0),
            arg0: row.get(6)?,
            arg1: row.get(7)?,
            ret: row.get(8)?,
        })?;
    }
    Ok(())
}

impl Facts {
    pub(super) fn read(connection: &Connection) -> anyhow::Result<Self> {
        guard::check_schema(connection)?;
        for table in ["events", "ops", "sources"] {
            if !has_table(connection, table)? {
                bail!("it has no table {table}: it is an SQLite database, but no ingero recording");
            }
        }
        let mut facts = Self::default();
        facts.kinds(connection)?;
        facts.session(connection).context("table sessions")?;
        facts.processes(connection)?;
        facts.samples(connection).context("table system_snapshots")?;
        facts.losses(connection).context("table event_aggregates")?;
        Ok(facts)
    }

    /// Nanoseconds since the epoch on the clock that counts from the file's beginning.
    pub(super) fn mono_ns(&self, wall_ns: i64) -> u64 {
        u64::try_from(wall_ns.saturating_sub(self.base_ns)).unwrap_or(0)
    }

    fn kinds(&mut self, connection: &Connection) -> anyhow::Result<()> {
        each(
            connection,
            "SELECT o.source_id, o.op_id, s.name, o.name FROM ops o JOIN sources s ON s.id = o.source_id",
            |row| {
                let (source, op) = (text(row, 2)?, text(row, 3)?);
                self.kinds.insert((row.get(0)?, row.get(1)?), EventKind::new(&source, &op));
                Ok(())
            },
        )
    }

    fn session(&mut self, connection: &Connection) -> anyhow::Result<()> {
        let mut first_ns = i64::MAX;
        each(connection, "SELECT MIN(timestamp), MAX(timestamp), COUNT(*) FROM events", |row| {
            first_ns = row.get::<_, Option<i64>>(0)?.unwrap_or(i64::MAX);
            self.end_ns = row.get::<_, Option<i64>>(1)?.unwrap_or(0);
            self.rows = row.get(2)?;
            Ok(())
        })?;
        if has_table(connection, "sessions")? {
            each(
                connection,
                "SELECT started_at, stopped_at, kernel, ingero_ver, pid_filter, cpu_cores FROM sessions ORDER BY started_at",
                |row| {
                    first_ns = first_ns.min(row.get(0)?);
                    self.end_ns = self.end_ns.max(row.get(1)?);
                    (self.kernel, self.version, self.pid_filter) = (text(row, 2)?, text(row, 3)?, text(row, 4)?);
                    self.cpus = row.get(5)?;
                    Ok(())
                },
            )?;
        }
        self.base_ns = if first_ns == i64::MAX { 0 } else { first_ns };
        Ok(())
    }

    fn processes(&mut self, connection: &Connection) -> anyhow::Result<()> {
        if has_table(connection, "process_names")? {
            each(connection, "SELECT pid, name FROM process_names", |row| {
                self.names.insert(row.get(0)?, text(row, 1)?);
                Ok(())
            })?;
        }
        each(connection, "SELECT DISTINCT source, op, pid, tid FROM events", |row| {
            if self.kinds.get(&(row.get(0)?, row.get(1)?)).is_some_and(EventKind::is_call) {
                let (pid, tid) = (row.get(2)?, row.get(3)?);
                self.cuda_pids.insert(pid);
                if pid != tid {
                    self.process_of.insert(tid, pid);
                }
            }
            Ok(())
        })
    }

    fn samples(&mut self, connection: &Connection) -> anyhow::Result<()> {
        if !has_table(connection, "system_snapshots")? {
            return Ok(());
        }
        let mut previous_ns = None;
        let query = "SELECT timestamp, cpu_pct, mem_avail, swap_mb FROM system_snapshots ORDER BY timestamp";
        each(connection, query, |row| {
            let end_ns: i64 = row.get(0)?;
            let megabytes = |at| row.get::<_, i64>(at).map(|mb| u64::try_from(mb).unwrap_or(0).saturating_mul(1 << 20));
            self.samples.push(SystemSample {
                end_ns,
                dur_ns: previous_ns.map_or(0, |previous_ns: i64| end_ns.saturating_sub(previous_ns)),
                cpu_pct: row.get(1)?,
                mem_avail_bytes: megabytes(2)?,
                swap_used_bytes: megabytes(3)?,
            });
            previous_ns = Some(end_ns);
            Ok(())
        })
    }

    /// What was counted but is not there. A minute's `count` less its `stored` is what the recorder left
    /// out on purpose; where fewer rows are there than it says it stored, the rest went some other way.
    fn losses(&mut self, connection: &Connection) -> anyhow::Result<()> {
        if !has_table(connection, "event_aggregates")? {
            return Ok(());
        }
        let mut present: HashMap<(i64, i64, i64, u32), u64> = HashMap::new();
        let query = format!(
            "SELECT timestamp / {MINUTE_NS} * {MINUTE_NS}, source, op, pid, COUNT(*) FROM events GROUP BY 1, 2, 3, 4"
        );
        each(connection, &query, |row| {
            present.insert((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?), row.get(4)?);
            Ok(())
        })?;
        let mut lost: BTreeMap<(i64, u32, Option<&'static str>), u64> = BTreeMap::new();
        each(connection, "SELECT bucket, source, op, pid, count, stored FROM event_aggregates", |row| {
            let (bucket, source, op, pid) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            let (count, stored): (u64, u64) = (row.get(4)?, row.get(5)?);
            let stream = match self.kinds.get(&(source, op)) {
                Some(kind) if kind.is_call() => Some("cuda"),
                Some(kind) if kind.is_switch() => Some("sched"),
                _ => None,
            };
            let left_out = count.saturating_sub(stored);
            let vanished = stored.saturating_sub(present.get(&(bucket, source, op, pid)).copied().unwrap_or(0));
            for (stream, count) in [(stream, left_out), (None, vanished)] {
                let lost = lost.entry((bucket, pid, stream)).or_default();
                *lost = lost.saturating_add(count);
            }
            Ok(())
        })?;
        let (base_ns, last_ns) = (self.base_ns, self.end_ns);
        self.losses.extend(lost.into_iter().filter(|&(_, count)| count > 0).map(|((bucket, pid, stream), count)| {
            Loss {
                start_ns: bucket.max(base_ns),
                end_ns: bucket.saturating_add(MINUTE_NS).min(last_ns).max(bucket.max(base_ns)),
                pid,
                stream,
                count,
            }
        }));
        Ok(())
    }
}

fn each(
    connection: &Connection,
    query: &str,
    mut row: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<()>,
) -> anyhow::Result<()> {
    let mut statement = connection.prepare(query)?;
    let mut rows = statement.query([])?;
    while let Some(next) = rows.next()? {
        row(next)?;
    }
    Ok(())
}
