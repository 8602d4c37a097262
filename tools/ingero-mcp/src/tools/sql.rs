//! `run_sql`: whatever the other tools don't answer.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::events::cell;
use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset};
use crate::recording::Recording;
use crate::store::{Cancel, FUNCTIONS, ReadError, Refused};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SELECT (or WITH ... SELECT) in SQLite's dialect. Tables: calls, switches, tasks, amounts, samples, frames, totals,
    /// accounts, findings, causes, blame, ops, advice, lost_time, occurrences, processes; the resource ingero://sql-schema describes them
    sql: String,
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Rows in one answer (1 to 1000, usually 100)
    limit: Option<u32>,
    /// next_cursor of the answer before: the same statement is run again and its first rows are skipped
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Rows {
    recording: String,
    columns: Vec<String>,
    /// One list for each row, in the order of the columns; NULL is null
    #[schemars(schema_with = "rows_schema")]
    rows: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

/// Cells are of any type, which a plain schema says by saying nothing.
fn rows_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "array", "items": {"type": "array", "items": {}}})
}

/// How long a statement may run.
const TIME: Duration = Duration::from_secs(4);

/// Beyond that, how long SQLite has to notice; then the answer is given without it.
const GRACE: Duration = Duration::from_millis(500);

/// How long a statement may wait for its turn, behind another one or a load.
const TURN: Duration = Duration::from_secs(10);

/// Rows beyond those given are counted up to this many.
const MAX_COUNTED: u64 = 100_000;

/// ... and for so long since the statement began.
const COUNT_TIME: Duration = Duration::from_secs(1);

/// Columns in one answer.
const MAX_COLUMNS: usize = 100;

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "run_sql",
        "SQL on the recording",
        "Runs one read-only SELECT on the recording's tables, for at most 4 s. Times are nanoseconds; `SELECT sql FROM \
         sqlite_schema` or the resource ingero://sql-schema show the tables. ORDER BY id is the order of time. `total` is \
         absent where there are too many rows to count.",
        r#"{"sql": "SELECT op, count(*) AS n, max(dur_ns) FROM calls WHERE depth = 0 GROUP BY op ORDER BY n DESC"}"#,
        |context, arguments: Arguments| run(context, &arguments),
    )
}

fn run(context: &Context<'_>, arguments: &Arguments) -> Result<Rows, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 100, 1000)?;
    let offset = offset(arguments.cursor.as_deref())?;
    context.view(recording)?;
    // SQLite looks at the clock between instructions, and nobody knows how long the next one takes. So the statement has
    // its own thread, and the answer does not wait for it.
    let stop = Cancel::default();
    let (to_begun, begun) = channel();
    let (to_done, done) = channel();
    let thread = thread::Builder::new().name("sql".into()).spawn({
        let (recording, sql, stop) = (Arc::clone(recording), arguments.sql.clone(), Arc::clone(&stop));
        // Nobody may be listening any more.
        move || {
            let _ = to_done.send(query(&recording, &sql, (limit, offset), &stop, || {
                let _ = to_begun.send(());
            }));
        }
    });
    let thread = thread.map_err(|error| Problem::Told(format!("starting a thread for the statement: {error}")))?;
    let waited = wait(&begun, TURN, &context.cancel).and_then(|_| wait(&done, TIME + GRACE, &context.cancel));
    stop.store(true, Ordering::Relaxed);
    match waited {
        Ok(Some(rows)) => rows.map_err(explain),
        Ok(None) => match thread.join() {
            // As if it had happened here.
            Err(panic) => panic::resume_unwind(panic),
            Ok(()) => Err(Problem::Told("the statement ended without an answer: call the tool again".into())),
        },
        Err(Late::Cancelled) => Err(Problem::Cancelled),
        Err(Late::After(TURN)) => Err(Problem::Told(format!(
            "\"{}\" is busy with an earlier statement: call the tool again in a few seconds",
            recording.name
        ))),
        Err(Late::After(_)) => Err(ReadError::TooSlow(TIME).into()),
    }
}

/// Why there was nothing to wait for any more.
#[derive(Debug)]
enum Late {
    /// The client gave up.
    Cancelled,
    /// Nothing came for so long.
    After(Duration),
}

/// What comes within `limit`; `None` where nothing will.
fn wait<T>(from: &Receiver<T>, limit: Duration, cancel: &Cancel) -> Result<Option<T>, Late> {
    let deadline = Instant::now() + limit;
    loop {
        match from.recv_timeout(Duration::from_millis(20)) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if cancel.load(Ordering::Relaxed) => return Err(Late::Cancelled),
            Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => return Err(Late::After(limit)),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Runs the statement and takes a page of its rows; `begun` is called when its turn has come.
fn query(
    recording: &Recording,
    sql: &str,
    (limit, offset): (usize, usize),
    stop: &Cancel,
    begun: impl FnOnce(),
) -> Result<Rows, ReadError> {
    recording.store.run_foreign(sql, TIME, stop, begun, |statement| {
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        if columns.len() > MAX_COLUMNS {
            let message = format!("{} columns; at most {MAX_COLUMNS} are given: name those you need", columns.len());
            return Err(ReadError::Refused(Refused(message)));
        }
        let mut answer =
            Rows { recording: recording.name.clone(), columns, rows: Vec::new(), page: PageInfo::default() };
        let mut filler = Filler::new(limit, &answer);
        let (mut seen, mut full, mut counted) = (0_u64, false, true);
        let began = Instant::now();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            seen += 1;
            if seen <= offset as u64 {
                continue;
            }
            if !full {
                let cells = (0..answer.columns.len())
                    .map(|at| Ok(cell(row.get_ref(at)?).unwrap_or(Value::Null)))
                    .collect::<rusqlite::Result<Vec<Value>>>()?;
                full = !filler.push(&cells);
            }
            if full && (seen > MAX_COUNTED.max(next_after(offset, limit)) || began.elapsed() > COUNT_TIME) {
                counted = false;
                break;
            }
        }
        answer.rows = filler.into_items();
        let next = offset.saturating_add(answer.rows.len());
        answer.page = PageInfo {
            total: counted.then_some(seen),
            returned: answer.rows.len() as u64,
            truncated: full,
            next_cursor: full.then(|| format!("at:{next}")),
        };
        Ok(answer)
    })
}

/// Rows up to the end of a full page.
fn next_after(offset: usize, limit: usize) -> u64 {
    (offset as u64).saturating_add(limit as u64)
}

/// SQLite's words, with what to do where that is known.
fn explain(error: ReadError) -> Problem {
    let ReadError::Sqlite(error) = error else { return error.into() };
    let code = error.sqlite_error_code();
    let text = error.to_string();
    let hint: &str = match code {
        Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => {
            "this is not allowed: the tables are read-only, and PRAGMA, ATTACH and load_extension are off"
        }
        Some(rusqlite::ErrorCode::TooBig) => "a value may have at most 64 kB",
        _ if matches!(error, rusqlite::Error::MultipleStatement) => "give one statement at a time",
        _ if text.contains("not authorized to use function") => &format!("there are {}", FUNCTIONS.join(", ")),
        _ if text.contains("no such table") || text.contains("no such column") => {
            "SELECT name, sql FROM sqlite_schema shows the tables and columns"
        }
        _ => "it is SQLite's dialect",
    };
    Problem::Told(format!("SQLite: {}; {hint}", crate::answer::quoted(&text)))
}
