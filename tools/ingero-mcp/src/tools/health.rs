//! `get_capture_health`: how far can the recording be trusted?

use ingero_chain::model::Report;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Context, Problem, ToolEntry, limit};
use crate::answer::{Filler, PageInfo, offset};
use crate::store::{OWN_TIME, ReadError};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Losses in one answer (1 to 200, usually 20)
    limit: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Health {
    recording: String,
    /// Nothing is known to be missing
    complete: bool,
    /// What limits conclusions, in words; empty where nothing does
    warnings: Vec<String>,
    /// The tools whose streams are in it
    tracers: Vec<Tracer>,
    /// Processes that the CUDA tracer watched
    watched_cuda: u64,
    /// Processes that the scheduler tracer watched
    watched_sched: u64,
    /// Records lost by the tracers, as far as counted
    lost: u64,
    /// Records that came later than the join's window
    late: u64,
    /// Lines that were no records
    bad_lines: u64,
    /// Outermost CUDA calls with what their thread went through
    calls_watched: u64,
    /// Outermost CUDA calls that the scheduler tracer did not watch all the while: their zeros are no evidence
    calls_not_watched: u64,
    /// Outermost CUDA calls without that knowledge at all: the recording was not joined
    calls_not_joined: u64,
    /// Time of processes that use CUDA in which records are missing or nobody watched: in no finding
    not_judged_ns: u64,
    /// Cold calls (first ones, those that load code), and their time: in no percentile and no finding
    cold_calls: u64,
    cold_ns: u64,
    /// Where records are missing, in order of time
    #[schemars(with = "Vec<Loss>")]
    losses: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct Tracer {
    tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    /// How its probes are attached
    #[serde(skip_serializing_if = "Option::is_none")]
    probe_mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes_attached: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probes_missing: Option<u64>,
}

/// Where records are missing.
#[derive(Debug, Serialize, JsonSchema)]
struct Loss {
    mono_ns: u64,
    dur_ns: u64,
    /// cuda, sched, or an input's name
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<String>,
    /// ring_full, map_full, unmatched, sampled, late, bad_line
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Absent where it is not known
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

/// Tracers in one answer: a recording has two or three.
const MAX_TRACERS: usize = 16;

/// `lost` records that are listed at all.
const MAX_LOSSES: usize = 10_000;

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_capture_health",
        "How far the recording can be trusted",
        "Whether records are missing and where, which tracers ran and with which probes, how many calls the scheduler tracer \
         watched. Look here early: where records are missing or nobody watched, silence is no evidence.",
        "{}",
        |context, arguments: Arguments| health(context, &arguments),
    )
}

struct Facts {
    tracers: Vec<Tracer>,
    watched: (u64, u64),
    calls: (u64, u64, u64),
    ended: bool,
    losses: Vec<Loss>,
}

fn health(context: &Context<'_>, arguments: &Arguments) -> Result<Health, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let limit = limit(arguments.limit, 20, 200)?;
    let offset = offset(arguments.cursor.as_deref())?;
    let view = context.view(recording)?;
    let facts = recording.store.read(OWN_TIME, &context.cancel, |connection| facts(connection))?;
    let summary = &view.report.summary;
    let mut health = Health {
        recording: recording.name.clone(),
        complete: false,
        warnings: warnings(&view.report, &facts, view.problem.as_deref(), view.growing),
        watched_cuda: facts.watched.0,
        watched_sched: facts.watched.1,
        lost: summary.stream.lost,
        late: summary.stream.late,
        bad_lines: summary.stream.bad_lines,
        calls_watched: facts.calls.0,
        calls_not_watched: facts.calls.1,
        calls_not_joined: facts.calls.2,
        not_judged_ns: summary.not_judged_ns,
        cold_calls: summary.cold.calls,
        cold_ns: summary.cold.ns,
        tracers: facts.tracers,
        losses: Vec::new(),
        page: PageInfo::default(),
    };
    health.complete = health.warnings.is_empty();
    let filler = Filler::new(limit, &health);
    (health.losses, health.page) = filler.page(facts.losses.into_iter(), offset);
    Ok(health)
}

fn facts(connection: &rusqlite::Connection) -> Result<Facts, ReadError> {
    let mut tracers = Vec::new();
    let mut statement =
        connection.prepare("SELECT tool, detail FROM frames WHERE op = 'start' ORDER BY id LIMIT ?1")?;
    let mut rows = statement.query([MAX_TRACERS])?;
    while let Some(row) = rows.next()? {
        let (tool, detail): (Option<String>, Option<String>) = (row.get(0)?, row.get(1)?);
        tracers.push(tracer(tool.unwrap_or_default(), detail.as_deref()));
    }
    let watching = |stream: &str| -> rusqlite::Result<u64> {
        let sql = "SELECT count(DISTINCT pid) FROM frames WHERE op = 'watch' AND stream = ?1";
        connection.query_row(sql, [stream], |row| row.get(0))
    };
    let calls = connection.query_row(
        "SELECT coalesce(sum(watched = 1), 0), coalesce(sum(watched = 0), 0), coalesce(sum(watched IS NULL), 0)
         FROM calls WHERE depth = 0",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let ended =
        connection.query_row("SELECT count(*) FROM frames WHERE op = 'end'", [], |row| row.get::<_, u64>(0))? > 0;
    let mut losses = Vec::new();
    let mut statement = connection.prepare(
        "SELECT mono_ns, dur_ns, stream, why, count, pid FROM frames WHERE op = 'lost' ORDER BY mono_ns, id LIMIT ?1",
    )?;
    let mut rows = statement.query([MAX_LOSSES])?;
    while let Some(row) = rows.next()? {
        let ns = |at| -> rusqlite::Result<u64> { Ok(row.get::<_, Option<i64>>(at)?.unwrap_or(0).max(0) as u64) };
        losses.push(Loss {
            mono_ns: ns(0)?,
            dur_ns: ns(1)?,
            stream: row.get(2)?,
            why: row.get(3)?,
            count: row.get(4)?,
            pid: row.get(5)?,
        });
    }
    Ok(Facts { tracers, watched: (watching("cuda")?, watching("sched")?), calls, ended, losses })
}

fn tracer(tool: String, detail: Option<&str>) -> Tracer {
    let start: Value = detail.and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let probes = &start["probes"];
    let count = |key: &str| probes[key].as_array().map(|list| list.len() as u64);
    Tracer {
        tool,
        version: text(&start["version"]),
        kernel: text(&start["kernel"]),
        probe_mode: text(&probes["mode"]),
        probes_attached: count("attached"),
        probes_missing: count("missing"),
    }
}

fn warnings(report: &Report, facts: &Facts, problem: Option<&str>, growing: bool) -> Vec<String> {
    let summary = &report.summary;
    let mut warnings = Vec::new();
    let mut warn = |is: bool, text: String| {
        if is {
            warnings.push(text);
        }
    };
    let has = |tool: &str| facts.tracers.iter().any(|t| t.tool == tool);
    let (watched, not_watched, not_joined) = facts.calls;
    let calls = watched + not_watched + not_joined;
    let nothing_seen = summary.stream.nothing_seen;
    warn(nothing_seen.is_some(), format!("nothing could be judged: {}", nothing_seen.unwrap_or_default()));
    warn(problem.is_some(), format!("the recording ends before its end: {}", problem.unwrap_or_default()));
    warn(
        summary.stream.lost > 0,
        format!("{} records were lost: see losses; findings about those times may be incomplete", summary.stream.lost),
    );
    warn(
        summary.stream.double > 0,
        format!(
            "{} records of a second tracer of the same processes say again what others say; they are left out",
            summary.stream.double
        ),
    );
    warn(summary.stream.late > 0, format!("{} records came late and stand behind their place", summary.stream.late));
    warn(summary.stream.bad_lines > 0, format!("{} lines were no records", summary.stream.bad_lines));
    warn(
        summary.not_judged_ns > 0,
        format!(
            "{} ns are not judged, since records are missing there or nobody watched: in no finding",
            summary.not_judged_ns
        ),
    );
    warn(
        summary.stream.entries > 0,
        format!(
            "of {} calls only the entry was traced: nothing is said about the time in or between them",
            summary.stream.entries
        ),
    );
    warn(
        summary.stream.forgotten_processes > 0,
        format!(
            "{} processes that ended long ago are in no account and no finding",
            summary.stream.forgotten_processes
        ),
    );
    warn(
        not_joined > 0,
        format!(
            "{not_joined} of {calls} calls do not say what their thread went through: join the stream with ingero-join"
        ),
    );
    warn(
        not_watched > 0,
        format!(
            "{not_watched} of {calls} calls were not watched by the scheduler tracer: why they took long is not known"
        ),
    );
    warn(
        !facts.tracers.is_empty() && !has("ingero-sched"),
        "no stream of ingero-sched: causes of gaps can't be told, only that they are there".into(),
    );
    warn(!facts.tracers.is_empty() && !has("ingero-cuda"), "no stream of ingero-cuda: no CUDA calls".into());
    warn(
        facts.tracers.is_empty(),
        "no start record: it is not known which tracers ran, and wall clock times are absent".into(),
    );
    warn(
        !facts.ended && !growing,
        "no end record: the tracers were killed or the file is cut; the totals can't be checked".into(),
    );
    warnings
}
