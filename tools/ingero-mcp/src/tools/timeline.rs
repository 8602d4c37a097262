//! `get_timeline`: what happened when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::placed::{Cut, Lost, place};
use super::{Context, Problem, ToolEntry, interval};
use crate::answer::{Filler, PageInfo, offset};
use crate::grid::Grid;
use crate::recording::Recording;
use crate::store::{OWN_TIME, int};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Name of the recording; the first one if absent
    recording: Option<String>,
    /// Start, CLOCK_MONOTONIC nanoseconds; the recording's start if absent
    from_ns: Option<u64>,
    /// End; the recording's end if absent
    to_ns: Option<u64>,
    /// Only calls and waits of this process; CPU samples are the machine's
    pid: Option<u32>,
    /// Into how many slices the time is cut (1 to 200, usually 40)
    slices: Option<u32>,
    /// next_cursor of the answer before
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Timeline {
    recording: String,
    from_ns: u64,
    to_ns: u64,
    /// Length of a slice, nanoseconds
    slice_ns: u64,
    /// Calls and waits are known to this precision, nanoseconds: what lies at the border of two slices may be in the other
    /// one. Lost time is known to the slices of each finding's grid, and exactly where its occurrences are kept
    precision_ns: u64,
    /// Slow calls that happened too often to be kept one by one: what is not kept is in no slice
    #[serde(skip_serializing_if = "Vec::is_empty")]
    partly: Vec<String>,
    #[schemars(with = "Vec<SliceOut>")]
    slices: Vec<Value>,
    #[serde(flatten)]
    page: PageInfo,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SliceOut {
    /// Start, CLOCK_MONOTONIC nanoseconds
    mono_ns: u64,
    /// Time in which the GPU waited: in the gaps and stalls that are findings, of all processes together
    lost_ns: u64,
    /// Outermost CUDA calls that began here
    calls: u64,
    /// Time of all threads in CUDA calls, nanoseconds
    call_ns: u64,
    /// Time that watched threads were runnable without a CPU, nanoseconds
    cpu_wait_ns: u64,
    /// Time of watched threads in uninterruptible sleep, nanoseconds
    io_ns: u64,
    /// Records lost in intervals that begin here
    lost: u64,
    /// Busy share of all CPUs, where it was sampled
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_pct: Option<f64>,
    /// Busiest CPU
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_max_pct: Option<f64>,
    /// Use of the GPUs, where it was sampled
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_util_pct: Option<f64>,
    /// Findings that lost time here, the most first, at most three: gap, slow_call, stall, oom
    #[serde(skip_serializing_if = "Vec::is_empty")]
    findings: Vec<Lost>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    cpu: (f64, u32),
    cpu_max: f64,
    gpu: (f64, u32),
}

/// Records that are looked at one by one: two or three seconds.
const MAX_SINGLE: u64 = 4_000_000;

pub(super) fn tool() -> ToolEntry {
    ToolEntry::new(
        "get_timeline",
        "What happened when",
        "The recording, or a stretch of it, cut into equal slices: how long the GPU waited and which findings lost time there, \
         CUDA calls and the time in them, time that threads waited for a CPU or for I/O, CPU and GPU use, lost records. For \
         single records of a slice, query_events with its times.",
        r#"{"slices": 20} or {"from_ns": 1000000000, "to_ns": 2000000000, "pid": 4242}"#,
        |context, arguments: Arguments| timeline(context, &arguments),
    )
}

fn timeline(context: &Context<'_>, arguments: &Arguments) -> Result<Timeline, Problem> {
    let recording = context.recording(arguments.recording.as_deref())?;
    let offset = offset(arguments.cursor.as_deref())?;
    let slices = match arguments.slices {
        None => 40,
        Some(n @ 1..=200) => n as usize,
        Some(n) => return Err(Problem::Told(format!("slices {n} is not between 1 and 200"))),
    };
    let view = context.view(recording)?;
    let (from_ns, to_ns) = interval(recording, arguments.from_ns, arguments.to_ns)?;
    let cut = Cut { from_ns, to_ns, slices };
    let coarse = {
        let seen = recording.seen();
        let precise = cut.slice_ns() > 2 * seen.grid.width_ns();
        precise.then(|| (seen.grid.sums(from_ns, to_ns, slices, arguments.pid), seen.grid.width_ns()))
    };
    let (sums, precision_ns) = match coarse {
        Some(sums) => sums,
        // A narrow stretch: few records, which are looked at one by one.
        None => {
            let grid = window(context, recording, cut)?;
            (grid.sums(from_ns, to_ns, slices, arguments.pid), grid.width_ns())
        }
    };
    let sampled = sampled(context, recording, cut)?;
    let placed = place(&view.report, arguments.pid, cut);

    let mean = |(sum, n): (f64, u32)| (n > 0).then(|| (sum / f64::from(n) * 10.0).round() / 10.0);
    let out = (0..slices).map(|at| SliceOut {
        mono_ns: cut.start_ns(at),
        lost_ns: placed.slices[at].lost_ns,
        calls: sums[at].calls,
        call_ns: sums[at].call_ns,
        cpu_wait_ns: sums[at].cpu_wait_ns,
        io_ns: sums[at].io_ns,
        lost: sums[at].lost,
        cpu_pct: mean(sampled[at].cpu),
        cpu_max_pct: (sampled[at].cpu.1 > 0).then_some(sampled[at].cpu_max),
        gpu_util_pct: mean(sampled[at].gpu),
        findings: placed.slices[at].findings.clone(),
    });
    let mut answer = Timeline {
        recording: recording.name.clone(),
        from_ns,
        to_ns,
        slice_ns: cut.slice_ns(),
        precision_ns,
        partly: placed.partly.clone(),
        slices: Vec::new(),
        page: PageInfo::default(),
    };
    let filler = Filler::new(slices, &answer);
    (answer.slices, answer.page) = filler.page(out, offset);
    Ok(answer)
}

/// What happened in a stretch of time, from its single records.
fn window(context: &Context<'_>, recording: &Recording, cut: Cut) -> Result<Grid, Problem> {
    let mut grid = Grid::of_window(cut.from_ns, cut.to_ns);
    let Some((first, last)) = recording.seen().blocks.ids(cut.from_ns, cut.to_ns) else { return Ok(grid) };
    if last - first > MAX_SINGLE {
        return Err(Problem::Told(format!(
            "slices of {} ns of so many records would take long: ask for fewer slices or a shorter stretch",
            cut.slice_ns()
        )));
    }
    recording.store.read(OWN_TIME, &context.cancel, |connection| {
        let overlap = "id BETWEEN ?1 AND ?2 AND mono_ns <= ?4 AND mono_ns + coalesce(dur_ns, 0) >= ?3";
        let parameters = [int(first), int(last), int(cut.from_ns), int(cut.to_ns)];
        let ns = |value: Option<i64>| value.unwrap_or(0).max(0) as u64;
        let sql = format!("SELECT pid, mono_ns, dur_ns FROM calls WHERE depth = 0 AND {overlap}");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            let (pid, start_ns, dur_ns) = (row.get::<_, Option<u32>>(0)?, ns(row.get(1)?), ns(row.get(2)?));
            grid.call(pid.unwrap_or(0), start_ns, start_ns.saturating_add(dur_ns));
        }
        let sql = format!("SELECT pid, mono_ns, dur_ns, runq_ns, state FROM switches WHERE {overlap}");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            let (pid, start_ns, dur_ns) = (row.get::<_, Option<u32>>(0)?, ns(row.get(1)?), ns(row.get(2)?));
            let (runq_ns, state): (_, Option<String>) = (ns(row.get(3)?), row.get(4)?);
            grid.switch(pid.unwrap_or(0), state.as_deref(), start_ns, start_ns.saturating_add(dur_ns), runq_ns);
        }
        let sql = format!("SELECT pid, mono_ns, count FROM frames WHERE op = 'lost' AND {overlap}");
        let mut statement = connection.prepare(&sql)?;
        let mut rows = statement.query(parameters)?;
        while let Some(row) = rows.next()? {
            let (pid, at_ns): (Option<u32>, _) = (row.get(0)?, ns(row.get(1)?));
            grid.lost(pid.unwrap_or(0), at_ns, row.get::<_, Option<i64>>(2)?.map_or(1, |n| ns(Some(n))));
        }
        Ok(())
    })?;
    Ok(grid)
}

/// The samples of the machine, by slice. One tells of all slices that it covers.
fn sampled(context: &Context<'_>, recording: &Recording, cut: Cut) -> Result<Vec<Sampled>, Problem> {
    type Row = (u64, u64, Option<f64>, Option<f64>, Option<f64>);
    let rows = recording.store.read(OWN_TIME, &context.cancel, |connection| {
        let mut statement = connection.prepare(
            "SELECT mono_ns, dur_ns, cpu_pct, cpu_max_pct, gpu_util_pct FROM samples
             WHERE mono_ns <= ?2 AND mono_ns + coalesce(dur_ns, 0) >= ?1",
        )?;
        let rows = statement.query_map([int(cut.from_ns), int(cut.to_ns)], |row| {
            let (start, dur): (i64, Option<i64>) = (row.get(0)?, row.get(1)?);
            Ok((start.max(0) as u64, dur.unwrap_or(0).max(0) as u64, row.get(2)?, row.get(3)?, row.get(4)?))
        })?;
        Ok(rows.collect::<rusqlite::Result<Vec<Row>>>()?)
    })?;
    let mut sampled = vec![Sampled::default(); cut.slices];
    for (start_ns, dur_ns, cpu, cpu_max, gpu) in rows {
        for one in &mut sampled[cut.slice(start_ns)..=cut.slice(start_ns.saturating_add(dur_ns).min(cut.to_ns))] {
            if let Some(pct) = cpu {
                one.cpu = (one.cpu.0 + pct, one.cpu.1 + 1);
            }
            if let Some(pct) = gpu {
                one.gpu = (one.gpu.0 + pct, one.gpu.1 + 1);
            }
            one.cpu_max = one.cpu_max.max(cpu_max.unwrap_or(0.0));
        }
    }
    Ok(sampled)
}
