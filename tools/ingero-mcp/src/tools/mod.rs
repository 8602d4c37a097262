//! What a client can ask: one file a tool.
//!
//! A tool is a function from typed arguments to a typed answer. What all have in common is here: reading the arguments,
//! finding the recording, turning an answer into text and structured content that are the same, and every failure into
//! words that say what to write instead.

mod account;
mod chains;
mod compare;
mod events;
mod finding;
mod health;
mod placed;
mod processes;
mod sql;
mod stats;
mod timeline;

use std::sync::Arc;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{fit, plain, quoted};
use crate::recording::{NotYet, Recording, View};
use crate::schema;
use crate::store::{Cancel, ReadError, Refused};

pub(crate) use stats::overview;

/// Arguments that are longer are not looked at.
const MAX_ARGUMENT_BYTES: usize = 100_000;

/// A tool and how to run it.
#[derive(Clone)]
pub struct ToolEntry {
    /// What clients see of it.
    pub tool: Tool,
    run: Run,
}

type Run = Arc<dyn Fn(&Context<'_>, &JsonObject) -> Result<Value, Problem> + Send + Sync>;

/// What a tool works with.
pub struct Context<'a> {
    /// The recordings that are served.
    pub recordings: &'a [Arc<Recording>],
    /// Set when the client gives up.
    pub cancel: Cancel,
}

/// Why a tool has no answer.
#[derive(Debug)]
pub enum Problem {
    /// In words for whoever called it: what is wrong, what to write instead.
    Told(String),
    /// The client gave up and wants none.
    Cancelled,
}

impl From<String> for Problem {
    fn from(message: String) -> Self {
        Self::Told(message)
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Cancelled => Self::Cancelled,
            ReadError::TooSlow(limit) => Self::Told(format!(
                "stopped after {:.0} s: ask for less (a shorter stretch of time, one pid, an aggregate instead of rows)",
                limit.as_secs_f64()
            )),
            ReadError::TooLarge => Self::Told(
                "stopped, since it needs more than 256 MB of temporary space: sort, group or join less (aggregate first, fewer \
                 and shorter columns, a condition on both sides of a join)"
                    .into(),
            ),
            ReadError::Refused(Refused(message)) => Self::Told(message),
            ReadError::Sqlite(error) => Self::Told(format!("SQLite: {error}")),
        }
    }
}

/// All tools.
pub fn all() -> Vec<ToolEntry> {
    vec![
        stats::tool(),
        health::tool(),
        chains::tool(),
        processes::tool(),
        timeline::tool(),
        events::tool(),
        sql::tool(),
        compare::tool(),
    ]
}

impl ToolEntry {
    /// A tool with the arguments `A` and the answer `R`.
    pub fn new<A, R>(
        name: &'static str,
        title: &'static str,
        description: &'static str,
        example: &'static str,
        run: impl Fn(&Context<'_>, A) -> Result<R, Problem> + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        R: Serialize + JsonSchema,
    {
        let annotations =
            ToolAnnotations::with_title(title).read_only(true).destructive(false).idempotent(true).open_world(false);
        let tool = Tool::new(name, description, schema::input::<A>())
            .with_title(title)
            .with_raw_output_schema(schema::output::<R>())
            .with_annotations(annotations);
        let run = move |context: &Context<'_>, arguments: &JsonObject| -> Result<Value, Problem> {
            Ok(fit(plain(&run(context, read(arguments, example)?)?)))
        };
        Self { tool, run: Arc::new(run) }
    }

    /// Runs it; every failure but a cancelled request is an answer too.
    pub fn call(&self, context: &Context<'_>, arguments: &JsonObject) -> Option<CallToolResult> {
        match (self.run)(context, arguments) {
            // The text is the structured content as JSON: nothing of a recording is ever outside a JSON string.
            Ok(value) => Some(CallToolResult::structured(value)),
            Err(Problem::Told(message)) => Some(failure(&message)),
            Err(Problem::Cancelled) => None,
        }
    }
}

/// An answer that says what went wrong.
pub fn failure(message: &str) -> CallToolResult {
    let message =
        plain(&message.chars().take(2000).collect::<Vec<_>>().chunks(300).map(String::from_iter).collect::<Vec<_>>());
    let text: String = message.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    CallToolResult::error(vec![ContentBlock::text(text)])
}

fn read<A: DeserializeOwned>(arguments: &JsonObject, example: &str) -> Result<A, Problem> {
    let value = Value::Object(arguments.clone());
    let bytes = value.to_string().len();
    if bytes > MAX_ARGUMENT_BYTES {
        let message =
            format!("the arguments have {bytes} bytes; at most {MAX_ARGUMENT_BYTES} are read. For instance: {example}");
        return Err(Problem::Told(message));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!("{}: ", quoted(&path)) };
        let why = quoted(&error.into_inner().to_string());
        Problem::Told(format!("arguments not understood: {at}{why}. Write for instance {example}"))
    })
}

impl Context<'_> {
    /// The recording that is meant: by name, or the first.
    pub(crate) fn recording(&self, name: Option<&str>) -> Result<&Arc<Recording>, Problem> {
        let found = match name {
            None | Some("") => self.recordings.first(),
            Some(name) => self.recordings.iter().find(|r| r.name == name),
        };
        found.ok_or_else(|| {
            let names: Vec<String> = self.recordings.iter().map(|r| format!("\"{}\"", r.name)).collect();
            Problem::Told(format!(
                "no recording is called {}; there {} {}",
                quoted(name.unwrap_or_default()),
                if names.len() == 1 { "is" } else { "are" },
                names.join(", ")
            ))
        })
    }

    /// What there is of a recording.
    pub(crate) fn view(&self, recording: &Recording) -> Result<View, Problem> {
        recording.view(&self.cancel).map_err(|not_yet| match not_yet {
            NotYet::Cancelled => Problem::Cancelled,
            NotYet::Loading(records) => Problem::Told(format!(
                "\"{}\" is still being loaded ({records} records so far): call the tool again in a few seconds",
                recording.name
            )),
            NotYet::Failed(why) => Problem::Told(format!("\"{}\" can't be served: {}", recording.name, quoted(&why))),
        })
    }
}

/// A limit that is asked for, between 1 and `most`.
pub(crate) fn limit(asked: Option<u32>, usual: usize, most: usize) -> Result<usize, Problem> {
    match asked {
        None => Ok(usual),
        Some(n) if (1..=most as u32).contains(&n) => Ok(n as usize),
        Some(n) => Err(Problem::Told(format!("limit {n} is not between 1 and {most}: use the cursor for more"))),
    }
}

/// `from_ns` and `to_ns` in the right order, with the recording's own ends where they are absent.
pub(crate) fn interval(recording: &Recording, from_ns: Option<u64>, to_ns: Option<u64>) -> Result<(u64, u64), Problem> {
    let (start_ns, end_ns) = {
        let seen = recording.seen();
        (seen.start_ns.unwrap_or(0), seen.end_ns)
    };
    if let (Some(from_ns), Some(to_ns)) = (from_ns, to_ns)
        && from_ns > to_ns
    {
        return Err(Problem::Told(format!("from_ns {from_ns} is after to_ns {to_ns}")));
    }
    let (from_ns, to_ns) = (from_ns.unwrap_or(start_ns), to_ns.unwrap_or(end_ns));
    if to_ns < start_ns || from_ns > end_ns {
        return Err(Problem::Told(format!(
            "nothing was recorded between {from_ns} and {to_ns}: the recording reaches from mono_ns {start_ns} to {end_ns}"
        )));
    }
    Ok((from_ns, to_ns))
}
