//! A recording as tables: a private SQLite database on disk that has no name, so that nothing of it is left however the
//! server ends, and that needs no memory beyond its page cache.
//!
//! | module     | question it answers                                                  |
//! |------------|----------------------------------------------------------------------|
//! | `insert`   | which record goes into which table?                                  |
//! | `blocks`   | which rows may lie in a stretch of time? (with a worked example)     |
//! | `findings` | how does a report of ingero-chain become tables?                     |
//! | `guard`    | what may a statement that somebody else wrote do, and for how long?  |
//! | `temporary` | how much may it write into temporary files?                          |

mod blocks;
mod findings;
mod guard;
mod insert;
mod temporary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Context;
use rusqlite::hooks::{AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode, Statement};

pub(crate) use findings::write_findings;
pub(crate) use guard::FUNCTIONS;
pub use guard::Refused;
pub use guard::check_statement;
pub(crate) use insert::{Inserter, Seen};
use temporary::Meter;

/// The tables, with the comments that explain them to whoever writes SQL.
pub const SCHEMA: &str = include_str!("schema.sql");

/// What makes the usual questions fast; made after the load, when it is cheapest.
const INDEXES: &str = "
    CREATE INDEX calls_by_op ON calls (pid, op, dur_ns);
    CREATE INDEX switches_by_thread ON switches (pid, tid);
    CREATE INDEX causes_by_finding ON causes (finding);
    CREATE INDEX blame_by_finding ON blame (finding);
    CREATE INDEX occurrences_by_finding ON occurrences (finding);
";

/// A tool's own statements may take so long; they are written to need far less.
pub const OWN_TIME: Duration = Duration::from_secs(30);

/// Virtual machine instructions of SQLite between two looks at the clock, in a tool's own statement: about 50 us.
const INSTRUCTIONS: i32 = 10_000;

/// The same in a statement that somebody else wrote, where each instruction may be a function on 64 kB: [`guard`].
const FOREIGN_INSTRUCTIONS: i32 = 50;

/// The tables of one recording.
#[derive(Debug)]
pub struct Store {
    connection: Mutex<Connection>,
    /// What one statement of somebody else may write into temporary files.
    temporary_bytes: u64,
}

/// Asks a running statement to stop.
pub type Cancel = Arc<AtomicBool>;

impl Store {
    /// An empty database with all tables.
    ///
    /// Errors: no directory for temporary files can be written (SQLITE_TMPDIR, TMPDIR, /var/tmp, /tmp are tried).
    pub fn new() -> anyhow::Result<Self> {
        let open = || -> rusqlite::Result<Connection> {
            // The empty name: a temporary file that SQLite unlinks as soon as it is open.
            let connection = Connection::open("")?;
            connection.execute_batch(
                "PRAGMA page_size = 16384; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;
                 PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -131072; PRAGMA threads = 2;
                 PRAGMA temp_store = FILE; PRAGMA trusted_schema = OFF;",
            )?;
            connection.execute_batch("BEGIN")?;
            connection.execute_batch(SCHEMA)?;
            // Opens the file, which would otherwise appear with the first page that is spilled: [`temporary`] must know it.
            connection.cache_flush()?;
            connection.execute_batch("COMMIT")?;
            guard::limit(&connection)?;
            Ok(connection)
        };
        let connection = open().context(
            "making a temporary database for the recording (in SQLITE_TMPDIR, TMPDIR, /var/tmp or /tmp; set one of the \
             variables to a directory with room for about half of the uncompressed recording)",
        )?;
        Ok(Self { connection: Mutex::new(connection), temporary_bytes: temporary::MAX_BYTES })
    }

    fn lock(&self) -> rusqlite::Result<MutexGuard<'_, Connection>> {
        self.connection.lock().or_else(|poisoned| {
            // A tool panicked while it worked here. What bounded its statement must not bound the next one.
            self.connection.clear_poison();
            let mut connection = poisoned.into_inner();
            connection.progress_handler(INSTRUCTIONS, None::<fn() -> bool>)?;
            connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
            guard::unbind(&connection)?;
            Ok(connection)
        })
    }

    /// Works on the database, undisturbed.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> anyhow::Result<T> {
        self.lock()
            .and_then(|mut connection| work(&mut connection))
            .context("writing to the temporary database (is its disk full? see TMPDIR)")
    }

    /// Makes the indexes.
    pub(crate) fn index(&self) -> anyhow::Result<()> {
        self.write(|connection| connection.execute_batch(INDEXES))
    }

    /// Reads, for at most `limit` and until `cancel` is set.
    pub fn read<T>(
        &self,
        limit: Duration,
        cancel: &Cancel,
        work: impl FnOnce(&mut Connection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let mut connection = self.lock()?;
        timed(&mut connection, Bounds { instructions: INSTRUCTIONS, limit, meter: None }, cancel, work)
    }

    /// Hands the compiled statement `sql`, which somebody else wrote, to `work`, with all that [`guard`] forbids forbidden.
    /// `begun` is called when the tables are free for it.
    ///
    /// The clock is looked at between instructions only, and a single row can be made of many slow ones: whoever promises
    /// an answer in time waits for this on another thread.
    pub(crate) fn run_foreign<T>(
        &self,
        sql: &str,
        limit: Duration,
        cancel: &Cancel,
        begun: impl FnOnce(),
        work: impl FnOnce(&mut Statement<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let mut connection = self.lock()?;
        begun();
        guard::bind(&connection)?;
        let bounds =
            Bounds { instructions: FOREIGN_INSTRUCTIONS, limit, meter: Some(Meter::new(self.temporary_bytes)) };
        let result = timed(&mut connection, bounds, cancel, |connection| guard::prepare(connection, sql, work));
        guard::unbind(&connection)?;
        result
    }
}

/// What stops a statement.
struct Bounds {
    /// Instructions of SQLite between two looks.
    instructions: i32,
    /// How long it may take.
    limit: Duration,
    /// How much it may write into temporary files, where that is bounded.
    meter: Option<Meter>,
}

/// Works until a bound is reached or `cancel` is set, which are looked at every so many instructions.
fn timed<T>(
    connection: &mut Connection,
    bounds: Bounds,
    cancel: &Cancel,
    work: impl FnOnce(&mut Connection) -> Result<T, ReadError>,
) -> Result<T, ReadError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(ReadError::Cancelled);
    }
    let Bounds { instructions, limit, mut meter } = bounds;
    let deadline = Instant::now() + limit;
    let (stop, too_large) = (Arc::clone(cancel), Arc::new(AtomicBool::new(false)));
    let told = Arc::clone(&too_large);
    let handler = move || {
        if meter.as_mut().is_some_and(Meter::is_over) {
            told.store(true, Ordering::Relaxed);
        }
        told.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed) || Instant::now() >= deadline
    };
    connection.progress_handler(instructions, Some(handler))?;
    let result = work(connection);
    connection.progress_handler(instructions, None::<fn() -> bool>)?;
    match result {
        Err(ReadError::Sqlite(error)) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Err(match (cancel.load(Ordering::Relaxed), too_large.load(Ordering::Relaxed)) {
                (true, _) => ReadError::Cancelled,
                (_, true) => ReadError::TooLarge,
                _ => ReadError::TooSlow(limit),
            })
        }
        result => result,
    }
}

/// Why nothing was read.
#[derive(Debug)]
pub enum ReadError {
    /// The client gave up.
    Cancelled,
    /// It took longer than this.
    TooSlow(Duration),
    /// It wrote too much into temporary files.
    TooLarge,
    /// The statement does what it may not.
    Refused(Refused),
    /// SQLite says no.
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// SQLite's integers are signed: what is above ends at the largest.
pub(crate) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a statement to its end, with at most so many bytes of temporary files.
    fn run(sql: &str, temporary_bytes: u64) -> Result<u64, ReadError> {
        let store = Store { temporary_bytes, ..Store::new().unwrap() };
        store.run_foreign(
            sql,
            Duration::from_secs(600),
            &Cancel::default(),
            || {},
            |statement| {
                let (mut rows, mut n) = (statement.query([])?, 0);
                while rows.next()?.is_some() {
                    n += 1;
                }
                Ok(n)
            },
        )
    }

    #[test]
    fn a_statement_that_writes_too_much_into_temporary_files_is_stopped() {
        // 5,000 rows of 20 kB, six times as much as the page cache of such a statement.
        let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5000), \
                    r AS (SELECT x, printf('%20000d', x) AS y FROM c)";
        for end in [
            "SELECT x FROM r ORDER BY y DESC",
            "SELECT DISTINCT y FROM r",
            "SELECT y, count(*) FROM r GROUP BY y",
            "SELECT y FROM r UNION SELECT y FROM r",
            "SELECT x, max(y) OVER (ORDER BY x ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM r",
            ", m AS MATERIALIZED (SELECT * FROM r) SELECT m.x FROM m, m AS n WHERE n.x = 7",
        ] {
            let sql = format!("{rows} {end}");
            assert!(matches!(run(&sql, 32 << 20), Err(ReadError::TooLarge)), "{end}");
            assert!(run(&sql, 1 << 40).is_ok(), "{end}");
        }
    }
}
