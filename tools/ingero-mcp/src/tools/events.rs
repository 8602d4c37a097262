//! `query_events`: single records.

use rusqlite::Rows;
use rusqlite::types::{ToSql, ValueRef};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Context, Problem, ToolEntry, interval, limit};
use crate::answer::{Filler, PageInfo, bad_cursor};
use crate::recording::Recording;
use crate::store::{OWN_TIME, ReadError, int};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Which records: calls (CUDA calls; the usual choice), switches (times off the CPU), tasks (births and deaths), amounts
    /// (pages, block I/O, retransmits), samples (the machine each second), frames (the stream about itself)
    table: Option<Table>,
    /// Only records that overlap the time from here, CLOCK_MONOTONIC nanoseconds
    from_ns: Option<u64>,
    /// ... to here
    to_ns: Option<u64>,
    /// Only of this process
    pid: Option<u32>,
    /// Only of this thread
    tid: Option<u32>,
    /// Only of this operation: cudaMemcpyAsync, read, lost
    op: Option<String>,
    /// switches: only with this state (R preempted, S asleep, D in I/O)
    state: Option<String>,
    /// Only those that took at least so long, nanoseconds
    min_dur_ns: Option<u64>,
    /// time (the usual order: as they ended) or duration (the longest first)
    order: Option<Order>,
    /// Records in one answer (1 to 500, usually 50)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Table {
    Calls,
    Switches,
    Tasks,
    Amounts,
    Samples,
    Frames,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    Time,
    Duration,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Table::Calls => "calls",
            Table::Switches => "switches",
            Table::Tasks => "tasks",
            Table::Amounts => "amounts",
            Table::Samples => "samples",
            Table::Frames => "frames",
        }
    }

    /// Columns; `detail` of a frame repeats the others and may be long.
    fn columns(self) -> &'static str {
        match self {
            Table::Frames => "id, mono_ns, dur_ns, op, stream, tool, pid, comm, why, count",
            _ => "*",
        }
    }

    fn has(self, column: &str) -> bool {
        match column {
            "dur_ns" => self != Table::Tasks,
            "op" => !matches!(self, Table::Switches | Table::Samples),
            "state" => self == Table::Switches,
            "tid" => !matches!(self, Table::Samples | Table::Frames),
            "pid" => self != Table::Samples,
            _ => true,
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Events {
    recording: String,
    table: String,
    /// The records, with the keys of the record contract (ingero://contract); what is absent is not known, never 0. `id` is
    /// a record's place in the stream
    #[schemars(with = "Vec<Map<String, Value>>")]
    records: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "query_events",
        "Single records",
        "Single records with filters: CUDA calls, times off the CPU, births and deaths, pages and I/O, samples, the stream about \
         itself. For example the longest calls, or what a thread went through in a stretch of time that a chain names.",
        r#"{"table": "calls", "op": "cudaMemcpyAsync", "order": "duration", "limit": 10} or {"table": "switches", "pid": 4242, "from_ns": 1000000000, "to_ns": 1040000000}"#,
        |context, arguments: Arguments| events(context, &arguments),
    )
}

/// Conditions and their parameters.
#[derive(Default)]
struct Filter {
    conditions: Vec<String>,
    parameters: Vec<Box<dyn ToSql>>,
}

impl Filter {
    fn add(&mut self, condition: &str, value: impl ToSql + 'static) {
        self.parameters.push(Box::new(value));
        self.conditions.push(condition.replace("{}", &format!("?{}", self.parameters.len())));
    }

    fn sql(&self) -> String {
        if self.conditions.is_empty() { "1".into() } else { self.conditions.join(" AND ") }
    }

    fn parameters(&self) -> Vec<&dyn ToSql> {
        self.parameters.iter().map(AsRef::as_ref).collect()
    }
}

fn filter(arguments: &Arguments, table: Table) -> Result<Filter, Problem> {
    let mut filter = Filter::default();
    let mut add = |column: &str, condition: &str, value: Option<Box<dyn ToSql>>| -> Result<(), Problem> {
        match value {
            Some(_) if !table.has(column) => {
                Err(Problem::Told(format!("{} have no {column}: leave that filter out", table.name())))
            }
            Some(value) => {
                filter.add(condition, value);
                Ok(())
            }
            None => Ok(()),
        }
    };
    add("pid", "pid = {}", arguments.pid.map(|v| Box::new(v) as _))?;
    add("tid", "tid = {}", arguments.tid.map(|v| Box::new(v) as _))?;
    add("op", "op = {}", arguments.op.clone().map(|v| Box::new(v) as _))?;
    add("state", "state = {}", arguments.state.clone().map(|v| Box::new(v) as _))?;
    add("dur_ns", "dur_ns >= {}", arguments.min_dur_ns.map(|v| Box::new(int(v)) as _))?;
    Ok(filter)
}

fn events(context: &Context<'_>, arguments: &Arguments) -> Result<Events, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 50, 500)?;
    let table = arguments.table.unwrap_or(Table::Calls);
    let order = arguments.order.unwrap_or(Order::Time);
    let mut filter = filter(arguments, table)?;
    if order == Order::Duration {
        if !table.has("dur_ns") {
            return Err(Problem::Told(format!("{} have no duration: order them by time", table.name())));
        }
        filter.conditions.push("dur_ns IS NOT NULL".into());
    }
    context.view(recording)?;
    if arguments.from_ns.is_some() || arguments.to_ns.is_some() {
        overlap(recording, arguments, table, &mut filter)?;
    }
    // The total is that of all pages, so the place of this one comes after it.
    let count_sql = format!("SELECT count(*) FROM {} WHERE {}", table.name(), filter.sql());
    let counted = filter.parameters.len();
    let order_sql = go_on(order, arguments.cursor.as_deref(), &mut filter)?;
    let sql = format!(
        "SELECT {} FROM {} WHERE {} ORDER BY {order_sql} LIMIT {}",
        table.columns(),
        table.name(),
        filter.sql(),
        limit + 1
    );
    let mut answer = Events {
        recording: recording.name.clone(),
        table: table.name().into(),
        records: Vec::new(),
        page: PageInfo::default(),
    };
    let mut filler = Filler::new(limit, &answer);
    let (total, next) = recording.store.read(OWN_TIME, &context.cancel, |connection| {
        let parameters = filter.parameters();
        let total: u64 = connection.query_row(&count_sql, &parameters[..counted], |row| row.get(0))?;
        let mut statement = connection.prepare(&sql)?;
        Ok((total, fill(statement.query(&parameters[..])?, order, &mut filler)?))
    })?;
    answer.records = filler.into_items();
    answer.page = PageInfo {
        total: Some(total),
        returned: answer.records.len() as u64,
        truncated: next.is_some(),
        next_cursor: next,
    };
    Ok(answer)
}

/// Only what overlaps the time that was asked for.
fn overlap(recording: &Recording, arguments: &Arguments, table: Table, filter: &mut Filter) -> Result<(), Problem> {
    let (from_ns, to_ns) = interval(recording, arguments.from_ns, arguments.to_ns)?;
    let (first, last) = recording.seen().blocks.ids(from_ns, to_ns).unwrap_or((0, 0));
    filter.add("id >= {}", int(first));
    filter.add("id <= {}", int(last));
    filter.add("mono_ns <= {}", int(to_ns));
    let end = if table.has("dur_ns") { "mono_ns + coalesce(dur_ns, 0) >= {}" } else { "mono_ns >= {}" };
    filter.add(end, int(from_ns));
    Ok(())
}

/// Leaves out what earlier pages had; the order in SQL.
fn go_on(order: Order, cursor: Option<&str>, filter: &mut Filter) -> Result<&'static str, Problem> {
    match order {
        Order::Time => {
            if let Some(after) = after_id(cursor)? {
                filter.add("id > {}", after);
            }
            Ok("id")
        }
        Order::Duration => {
            if let Some((dur_ns, id)) = after_duration(cursor)? {
                filter.add("dur_ns <= {}", dur_ns);
                filter.add("(dur_ns < {}", dur_ns);
                let id_at = filter.parameters.len() + 1;
                filter.parameters.push(Box::new(id));
                if let Some(condition) = filter.conditions.last_mut() {
                    condition.push_str(&format!(" OR id > ?{id_at})"));
                }
            }
            Ok("dur_ns DESC, id")
        }
    }
}

/// Takes rows until the answer is full; then, the cursor to what follows.
fn fill(mut rows: Rows<'_>, order: Order, filler: &mut Filler) -> Result<Option<String>, ReadError> {
    let mut last = None;
    while let Some(row) = rows.next()? {
        let mut record = Map::new();
        let names = row.as_ref().column_names().map(str::to_owned).collect::<Vec<_>>();
        for (at, name) in names.into_iter().enumerate() {
            if let Some(value) = cell(row.get_ref(at)?) {
                record.insert(name, value);
            }
        }
        let number = |key: &str| record.get(key).and_then(Value::as_i64).unwrap_or(0);
        let place = match order {
            Order::Time => format!("id:{}", number("id")),
            Order::Duration => format!("ns:{}:{}", number("dur_ns"), number("id")),
        };
        if !filler.push(&record) {
            return Ok(last);
        }
        last = Some(place);
    }
    Ok(None)
}

fn after_id(cursor: Option<&str>) -> Result<Option<i64>, Problem> {
    let Some(cursor) = cursor.filter(|c| !c.is_empty()) else { return Ok(None) };
    let id = cursor.strip_prefix("id:").and_then(|id| id.parse().ok());
    id.map(Some).ok_or_else(|| Problem::Told(bad_cursor(cursor)))
}

fn after_duration(cursor: Option<&str>) -> Result<Option<(i64, i64)>, Problem> {
    let Some(cursor) = cursor.filter(|c| !c.is_empty()) else { return Ok(None) };
    let parts = cursor.strip_prefix("ns:").and_then(|rest| rest.split_once(':'));
    let place = parts.and_then(|(dur, id)| Some((dur.parse().ok()?, id.parse().ok()?)));
    place.map(Some).ok_or_else(|| Problem::Told(bad_cursor(cursor)))
}

/// A value of a table as JSON; `None` for NULL. A blob is only ever made by a statement, never stored.
pub(super) fn cell(value: ValueRef<'_>) -> Option<Value> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(n) => Some(n.into()),
        // JSON has no infinity.
        ValueRef::Real(x) => Some(serde_json::Number::from_f64(x).map_or_else(|| x.to_string().into(), Value::Number)),
        ValueRef::Text(text) => {
            // Only the beginning of a long text is shown, so only that is looked at.
            let beginning = &text[..text.len().min(4 * crate::answer::MAX_TEXT_CHARS + 8)];
            let mut shown = String::from_utf8_lossy(beginning).into_owned();
            if beginning.len() < text.len() {
                shown.push_str(&format!("... ({} bytes in all)", text.len()));
            }
            Some(shown.into())
        }
        ValueRef::Blob(bytes) => Some(format!("(a blob of {} bytes)", bytes.len()).into()),
    }
}
