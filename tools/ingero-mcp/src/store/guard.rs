//! What a statement that somebody else wrote may do: read these tables, for a while, in small pieces.
//!
//! The database is a private temporary file, so not even a successful write could touch the recording. Still nothing but
//! reading is let through: the authorizer is asked while SQLite compiles a statement and denies every action and every
//! function that is not listed here, and the connection's limits bound what one value, one statement, one plan and one
//! sort may cost.
//!
//! Time is bounded by [`super::Store::run_foreign`], which looks at the clock between two instructions of SQLite. So no
//! single instruction may take long. What decides that is the longest value and what a function makes of it:
//!
//! ```text
//!   like       64 kB against a pattern of 100 bytes                 7 million steps at most
//!   instr      SQLite's own: 32 kB in 64 kB, at each place anew      a billion; ours is linear
//!   replace, trim                                                    the same; left out
//!   json_pretty, json_group_array   grow beyond the longest value    gigabytes; left out
//! ```

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement};

/// The longest text or blob of the tools' own statements, in bytes.
const OWN_VALUE_BYTES: i32 = 1_000_000;

/// The longest text or blob that somebody else's statement may build or read, in bytes: the longest there is, the
/// `detail` of a frame, and what its row needs beside.
const FOREIGN_VALUE_BYTES: i32 = 68 * 1024;

/// The longest statement, in bytes.
const MAX_SQL_BYTES: usize = 10_000;

/// The functions that a statement may use. What is not here reaches beyond the database, takes more than linear time or
/// memory, makes something of nothing, or answers no question about a recording.
pub(crate) const FUNCTIONS: &[&str] = &[
    "->",
    "->>",
    "abs",
    "avg",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "count",
    "cume_dist",
    "date",
    "datetime",
    "dense_rank",
    "first_value",
    "format",
    "glob",
    "group_concat",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "json_array_length",
    "json_extract",
    "json_type",
    "json_valid",
    "julianday",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "likelihood",
    "likely",
    "lower",
    "max",
    "min",
    "nth_value",
    "ntile",
    "nullif",
    "octet_length",
    "percent_rank",
    "printf",
    "quote",
    "rank",
    "round",
    "row_number",
    "sign",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "time",
    "timediff",
    "total",
    "typeof",
    "unicode",
    "unixepoch",
    "unlikely",
    "upper",
];

/// Tables that are no tables but windows into SQLite itself; all others are ours.
const TABLES_DENIED: [&str; 2] = ["dbstat", "sqlite_dbpage"];

/// A statement that was not let through, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Bounds what any statement on this connection may need.
pub(super) fn limit(connection: &Connection) -> rusqlite::Result<()> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES as i32),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
        (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    ] {
        connection.set_limit(limit, value)?;
    }
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("instr", 2, flags, |context| instr(context))?;
    unbind(connection)
}

/// Bounds what somebody else's statement may need beyond that. A sort takes as much memory as the page cache may, once
/// for each thread.
pub(super) fn bind(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, FOREIGN_VALUE_BYTES)?;
    connection.execute_batch("PRAGMA cache_size = -16384; PRAGMA threads = 0;")
}

/// What the tools' own statements, loads and indexes may need.
pub(super) fn unbind(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, OWN_VALUE_BYTES)?;
    connection.execute_batch("PRAGMA cache_size = -131072; PRAGMA threads = 2;")
}

/// `instr(X, Y)` as SQLite has it, for texts and integers, in linear time: where Y begins in X, in characters from 1; 0
/// where it is not.
fn instr(context: &Context<'_>) -> rusqlite::Result<Option<i64>> {
    let text = |at| match context.get_raw(at) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(value) => Ok(Some(value.to_string())),
        ValueRef::Text(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
        ValueRef::Real(_) | ValueRef::Blob(_) => {
            Err(rusqlite::Error::UserFunctionError("instr looks for a text in a text".into()))
        }
    };
    let (Some(text), Some(part)) = (text(0)?, text(1)?) else { return Ok(None) };
    Ok(Some(text.find(&part).map_or(0, |at| text[..at].chars().count() as i64 + 1)))
}

/// Compiles `sql` with everything but reading denied, and hands it to `work`.
pub(super) fn prepare<T>(
    connection: &mut Connection,
    sql: &str,
    work: impl FnOnce(&mut Statement<'_>) -> Result<T, super::ReadError>,
) -> Result<T, super::ReadError> {
    if let Err(refused) = check_statement(sql) {
        return Err(super::ReadError::Refused(refused));
    }
    // It stays in force while the statement runs: some virtual tables compile statements of their own.
    connection.authorizer(Some(authorize))?;
    let result = compile(connection, sql, work);
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    result
}

fn compile<T>(
    connection: &Connection,
    sql: &str,
    work: impl FnOnce(&mut Statement<'_>) -> Result<T, super::ReadError>,
) -> Result<T, super::ReadError> {
    let mut statement = connection.prepare(sql)?;
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(super::ReadError::Refused(Refused("only statements that read are run; write a SELECT".into())));
    }
    work(&mut statement)
}

/// What is plain from the text alone: its length and its first word. A clear answer for the usual mistakes; the
/// authorizer is what protects.
pub fn check_statement(sql: &str) -> Result<(), Refused> {
    if sql.len() > MAX_SQL_BYTES {
        let message = format!("the statement has {} bytes; at most {MAX_SQL_BYTES} are read", sql.len());
        return Err(Refused(message));
    }
    let word: String = sql.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
    match word.to_ascii_uppercase().as_str() {
        "SELECT" | "WITH" | "VALUES" | "EXPLAIN" | "" => Ok(()),
        _ => {
            Err(Refused(format!("{word} is not run: the tables are read-only. Write one SELECT (or WITH ... SELECT)")))
        }
    }
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let allowed = match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Read { table_name, .. } => {
            !TABLES_DENIED.contains(&table_name) && !table_name.to_ascii_lowercase().starts_with("pragma_")
        }
        AuthAction::Function { function_name } => FUNCTIONS.contains(&function_name.to_ascii_lowercase().as_str()),
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allowed_exists() {
        let connection = Connection::open_in_memory().unwrap();
        let exists = |name: &&str| -> bool {
            let sql = "SELECT count(*) > 0 FROM pragma_function_list WHERE name = ?1";
            connection.query_row(sql, [name], |row| row.get(0)).unwrap()
        };
        let missing: Vec<_> = FUNCTIONS.iter().filter(|name| !exists(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn instr_says_what_sqlites_own_says() {
        let (own, ours) = (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
        limit(&ours).unwrap();
        for (text, part) in [
            ("'kworker/3:1'", "'/'"),
            ("'ab'", "'c'"),
            ("'ab'", "'ab'"),
            ("'a'", "'ab'"),
            ("'äöü'", "'ü'"),
            ("'ab'", "''"),
            ("''", "''"),
            ("12345", "34"),
            ("NULL", "'a'"),
            ("'a'", "NULL"),
        ] {
            let sql = format!("SELECT instr({text}, {part})");
            let ask = |c: &Connection| c.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).unwrap();
            assert_eq!(ask(&ours), ask(&own), "{sql}");
        }
        let error = ours.query_row("SELECT instr(x'61', 'a')", [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert!(error.to_string().contains("a text in a text"), "{error}");
    }
}
