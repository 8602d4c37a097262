//! What a statement that somebody else wrote may do: read these tables, for a while, in small pieces.
//!
//! The database is a private temporary file, so not even a successful write could touch the recording. Still nothing but
//! reading is let through: the authorizer is asked while SQLite compiles a statement and denies every action that is not
//! listed here, and the connection's limits bound what one value, one statement and one plan may cost. Time is bounded
//! by [`super::Store::read`].

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Statement};

/// The longest text or blob that a statement may build, in bytes: `zeroblob`, `printf`, `group_concat` end here.
const MAX_VALUE_BYTES: i32 = 1_000_000;

/// The longest statement, in bytes.
const MAX_SQL_BYTES: usize = 20_000;

/// Functions that reach beyond the database.
const FUNCTIONS_DENIED: [&str; 5] = ["load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"];

/// Tables that are no tables but windows into SQLite itself; all others are ours.
const TABLES_DENIED: [&str; 2] = ["dbstat", "sqlite_dbpage"];

/// A statement that was not let through, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Bounds what any statement on this connection may need.
pub(super) fn limit(connection: &Connection) -> rusqlite::Result<()> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES as i32),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    ] {
        connection.set_limit(limit, value)?;
    }
    Ok(())
}

/// Compiles `sql` with everything but reading denied, and hands it to `work`.
pub(crate) fn prepare<T>(
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
        AuthAction::Function { function_name } => {
            !FUNCTIONS_DENIED.contains(&function_name.to_ascii_lowercase().as_str())
        }
        _ => false,
    };
    if allowed { Authorization::Allow } else { Authorization::Deny }
}
