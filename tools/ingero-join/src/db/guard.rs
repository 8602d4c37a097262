//! A recording that somebody else made may be made to do harm: what reading it may cost, and what may be in it.
//!
//! | made                                                             | would                                    | so                              |
//! |------------------------------------------------------------------|------------------------------------------|---------------------------------|
//! | a view or virtual table by one of the names, a computed column   | make gigabytes of a few bytes, never end | refused: no recording has any   |
//! | many equal ids where there should be one                         | make a join of them square               | work is bounded by the file's size |
//! | a length in a page that says 2 GB                                | end the process for want of memory       | values are at most 1 MB long    |
//! | names that are no UTF-8                                          |                                          | read, with U+FFFD for what is none |

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row as SqlRow};

/// The longest text, blob or row.
const MAX_VALUE_BYTES: i32 = 1_000_000;
/// Texts are kept up to this many bytes: names in the kernel have 16.
const MAX_TEXT_BYTES: usize = 4096;

/// Instructions of SQLite that reading a file may take: these…
const BASE_STEPS: u64 = 1_000_000;
/// …and so many for each byte of it. A row of `events` has 20 bytes and more, and all queries together take about 150
/// instructions for it.
const STEPS_PER_BYTE: u64 = 64;
/// Instructions between two looks.
const STEPS: i32 = 1_000;

/// Bounds what reading from `connection` may cost; `bytes` is the size of its file.
pub(super) fn limit(connection: &mut Connection, bytes: u64) -> rusqlite::Result<()> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    let most = BASE_STEPS.saturating_add(bytes.saturating_mul(STEPS_PER_BYTE));
    let steps = Arc::new(AtomicU64::new(0));
    connection
        .progress_handler(STEPS, Some(move || steps.fetch_add(STEPS.unsigned_abs().into(), Ordering::Relaxed) > most))
}

/// The size of a database with what is not in its file yet.
pub(super) fn size_bytes(path: &Path, wal: &Path) -> u64 {
    [path, wal].iter().filter_map(|path| std::fs::metadata(path).ok()).map(|metadata| metadata.len()).sum()
}

/// Refuses a file that has more than tables and their indexes.
pub(super) fn check_schema(connection: &Connection) -> anyhow::Result<()> {
    let mut statement = connection.prepare("SELECT sql FROM sqlite_master")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // What the statement says counts, not the columns beside it, which may say something else.
        let sql = text(row, 0)?.to_ascii_uppercase();
        let mut words = sql.split_ascii_whitespace();
        let known = matches!(
            (words.next(), words.next(), words.next()),
            (None, ..) | (Some("CREATE"), Some("TABLE" | "INDEX"), _) | (Some("CREATE"), Some("UNIQUE"), Some("INDEX"))
        );
        if !known {
            bail!("it has views, triggers or virtual tables: it is no ingero recording");
        }
    }
    Ok(())
}

/// Whether there is a table of this name.
///
/// Errors: some of its columns are computed.
pub(super) fn has_table(connection: &Connection, name: &str) -> anyhow::Result<bool> {
    let sql = "SELECT count(*), coalesce(sum(hidden), 0) FROM pragma_table_xinfo(?1)";
    let (columns, computed): (i64, i64) = connection.query_row(sql, [name], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if computed != 0 {
        bail!("its table {name} has computed columns: it is no ingero recording");
    }
    Ok(columns > 0)
}

/// A text, whatever is stored there; absent ones are empty.
pub(super) fn text(row: &SqlRow<'_>, at: usize) -> rusqlite::Result<String> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => String::new(),
        ValueRef::Integer(value) => value.to_string(),
        ValueRef::Real(value) => value.to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned()
        }
    })
}

/// What stopped the reading, in words that say what is wrong with the file.
pub(super) fn explain(error: anyhow::Error) -> anyhow::Error {
    let code = error.chain().find_map(|cause| cause.downcast_ref::<rusqlite::Error>()?.sqlite_error_code());
    match code {
        Some(ErrorCode::OperationInterrupted) => {
            error.context("it takes more work than a recording of its size does: it is damaged, or made to do harm")
        }
        Some(ErrorCode::TooBig) => error.context("it has a value of more than 1 MB: it is damaged, or made to do harm"),
        _ => error,
    }
}
