//! Reads, analyses, writes.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use ingero_common::exit::Exit;
use ingero_common::fifo::Patience;
use ingero_common::input::Input;
use ingero_common::ndjson::{LineReader, RecordWriter};
use ingero_common::output::Output;
use ingero_common::record::{Parsed, parse};
use ingero_common::signal::Stop;
use ingero_common::text::{Log, Traced};

use crate::input::ingest::Engine;
use crate::options::{Format, Options};
use crate::report::model::Report;
use crate::report::text::{self, Look, Parts};
use crate::report::{Wanted, csv, folded, html, logfmt};

/// The tool's name before its messages.
pub const TOOL: &str = "ingero-chain";

/// Reads one input to its end into `engine`; says on stderr which line was the first bad one. `after` is called
/// after each record. False where it broke off (a file that was cut while it was compressed, a disk that fails): what
/// came before is in `engine`, and stderr has the reason.
///
/// # Errors
/// What `after` says; with `strict` also the first line that is no record, and an input that breaks off.
pub fn read(
    engine: &mut Engine,
    name: &str,
    input: impl Read,
    strict: bool,
    log: &Log,
    mut after: impl FnMut(&mut Engine) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    let mut lines = LineReader::new(input);
    let (mut bad, mut whole) = (0_u64, true);
    loop {
        let line = match lines.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                let number = lines.line_number() + 1;
                if strict {
                    return Err(error).with_context(|| format!("reading {name}, line {number}"));
                }
                log.warn(format!("reading {name}, line {number}: {error}; what follows is missing in the report"));
                engine.broke_off();
                whole = false;
                break;
            }
        };
        let problem = match parse(line.bytes) {
            _ if line.too_long => "longer than 16 MiB".to_owned(),
            Parsed::Record(record) => {
                engine.record(&record, line.bytes);
                after(engine)?;
                continue;
            }
            Parsed::Unknown => {
                engine.unknown_record();
                continue;
            }
            Parsed::Bad(problem) => problem,
        };
        if strict {
            bail!("{name}, line {}: {problem}", line.number);
        }
        bad += 1;
        engine.bad_line();
        if bad == 1 {
            log.warn(format!("{name}, line {}: {problem}; skipped, like any that follow", line.number));
        }
    }
    if bad > 1 {
        log.warn(format!("{name}: {bad} lines were no records"));
    }
    Ok(whole)
}

/// Analyses one recording, as far as it can be read; `details` adds each finding's occurrences.
pub fn analyse(name: &str, input: impl Read, details: bool, log: &Log) -> anyhow::Result<Report> {
    let mut engine = Engine::default();
    read(&mut engine, name, input, false, log, |_| Ok(()))?;
    engine.end();
    Ok(engine.report(Wanted { details, so_far: false }))
}

/// The whole tool. `stop` ends the wait for the reader of a FIFO; input is read on to its end.
pub fn run(options: &Options, stop: &Stop, log: &Log) -> anyhow::Result<Exit> {
    let inputs: Vec<Input> = if options.inputs.is_empty() {
        if std::io::stdin().is_terminal() {
            bail!("no input: pipe a stream of ingero-join into it, or name a recording");
        }
        vec![Input::stdin()]
    } else {
        options.inputs.iter().map(Input::new).collect()
    };
    let patience = Patience { stop, limit: None, log };
    let Some(mut sink) = Sink::open(options, &inputs, &patience)? else { return Ok(Exit::Ok) };
    let mut engine = Engine::default();
    let mut schedule = options.every.map(Schedule::new);
    let mut whole = true;
    for input in &inputs {
        let boots = engine.boots();
        whole &= read(&mut engine, &input.name(), input.open()?, options.strict, log, |engine| {
            if schedule.as_mut().is_some_and(|schedule| schedule.is_due(engine.now_ns())) {
                let mut report = engine.report_so_far();
                options.select(&mut report);
                sink.write(&report)?;
            }
            Ok(())
        })?;
        if boots > 0 && engine.boots() > boots {
            bail!(
                "{} was recorded on another machine, or after another boot, than the inputs before it: judge them one at a time",
                input.name()
            );
        }
    }
    engine.end();
    let sound = whole && engine.own_bad_lines() == 0;
    let mut report = engine.report(Wanted { details: sink.wants_details(options), so_far: false });
    if engine.is_empty() {
        // A healthy process and a tracer that never ran must not look alike.
        let names: Vec<String> = inputs.iter().map(Input::name).collect();
        log.warn(format!(
            "no record in {}: see what the programs before it in the pipeline say, or name a recording",
            names.join(", ")
        ));
        sink.write(&report)?;
        return Ok(Exit::Error);
    }
    options.check(&report)?;
    options.select(&mut report);
    if let Some(id) = &options.explain {
        explain(&mut report, id)?;
    }
    let judged = is_judged(&report, log);
    sink.write(&report)?;
    let found = options.fail_on.is_some_and(|severity| report.has(severity.into()));
    Ok(match options.fail_on {
        _ if !sound => Exit::Error,
        _ if found => Exit::Found,
        Some(_) if !judged => Exit::Error,
        _ => Exit::Ok,
    })
}

/// Leaves one finding and its process in a report.
fn explain(report: &mut Report, id: &str) -> anyhow::Result<()> {
    let known: Vec<String> = report.findings.iter().map(|finding| finding.id.raw().to_owned()).collect();
    report.findings.retain(|finding| finding.id == *id);
    let Some(pid) = report.findings.first().map(|finding| finding.pid) else {
        let known =
            if known.is_empty() { "nothing was found".into() } else { format!("there are {}", known.join(", ")) };
        bail!("no finding has the id {id}; {known}");
    };
    report.retain(|other| other == pid);
    Ok(())
}

/// Whether the stream could be judged; says on stderr why it could not.
fn is_judged(report: &Report, log: &Log) -> bool {
    let stream = &report.summary.stream;
    if let Some(why) = stream.nothing_seen {
        log.warn(format!("no CUDA call in the input, so nothing was judged: {why}"));
    }
    if let Some(schema) = stream.unknown_schema {
        log.warn(format!("a stream follows version {schema} of the record contract, which this program does not know: its report may be wrong"));
    }
    stream.nothing_seen.is_none() && stream.unknown_schema.is_none()
}

/// When `--every` asks for a report: the stream's own time decides, so that a recording gives the reports that it gave
/// live.
struct Schedule {
    every_ns: u64,
    next_ns: Option<u64>,
}

impl Schedule {
    fn new(every: Duration) -> Self {
        Self { every_ns: u64::try_from(every.as_nanos()).unwrap_or(u64::MAX).max(1), next_ns: None }
    }

    /// Whether the stream, read to `now_ns`, has come to the next report. Of several that it passed at once, one is due.
    fn is_due(&mut self, now_ns: u64) -> bool {
        if now_ns == 0 {
            return false;
        }
        let next_ns = *self.next_ns.get_or_insert_with(|| now_ns.saturating_add(self.every_ns));
        if now_ns < next_ns {
            return false;
        }
        let passed = (now_ns - next_ns) / self.every_ns + 1;
        self.next_ns = Some(next_ns.saturating_add(passed.saturating_mul(self.every_ns)));
        true
    }
}

/// Where and how reports are written.
struct Sink {
    output: Output,
    format: Format,
    list: bool,
    parts: Parts,
    look: Look,
    inputs: Vec<Traced>,
}

impl Sink {
    fn open(options: &Options, inputs: &[Input], patience: &Patience<'_>) -> anyhow::Result<Option<Self>> {
        let Some(output) = Output::beside(options.output.as_deref(), &options.inputs, patience)? else {
            return Ok(None);
        };
        let people = output.is_terminal() || options.list;
        let format = options.format.unwrap_or(if people { Format::Text } else { Format::Ndjson });
        if options.every.is_some() && matches!(format, Format::Csv | Format::Html | Format::Folded) {
            bail!("--every goes with text, logfmt and NDJSON; a table, a page or a flame graph is one whole");
        }
        let look = Look::new(output.columns(), output.wants_colour());
        let inputs = inputs.iter().map(|input| Traced::from(input.name())).collect();
        let parts = Parts {
            findings: options.common.verbose,
            processes: options.per_process,
            explained: options.explain.is_some(),
        };
        Ok(Some(Self { output, format, list: options.list, parts, look, inputs }))
    }

    fn wants_details(&self, options: &Options) -> bool {
        options.explain.is_some() || self.format == Format::Html
    }

    fn write(&mut self, report: &Report) -> std::io::Result<()> {
        let out = &mut self.output;
        match self.format {
            Format::Text if self.list => text::list(out, report, self.look)?,
            Format::Text => text::write(out, report, self.parts, self.look)?,
            Format::Ndjson if self.list => write_findings(out, report)?,
            Format::Ndjson => write_ndjson(out, report, self.parts.processes)?,
            Format::Csv => csv::write(out, report, self.list)?,
            Format::Html => html::write(out, report, &self.inputs, self.list)?,
            Format::Folded => folded::write(out, report)?,
            Format::Logfmt => logfmt::write(out, report, self.list)?,
        }
        out.flush()
    }
}

/// Writes a report as records, one a line, the summary last.
pub fn write_ndjson(out: &mut impl Write, report: &Report, per_process: bool) -> std::io::Result<()> {
    let mut records = RecordWriter::new(out);
    for account in &report.accounts {
        records.write(account)?;
    }
    for finding in &report.findings {
        records.write(finding)?;
    }
    if per_process {
        for process in &report.processes {
            records.write(process)?;
        }
    }
    records.write(&report.summary)
}

/// The findings alone, and the summary.
fn write_findings(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let mut records = RecordWriter::new(out);
    for finding in &report.findings {
        records.write(finding)?;
    }
    records.write(&report.summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_due_at_even_distances_of_stream_time() {
        let mut schedule = Schedule::new(Duration::from_nanos(10));
        let due: Vec<u64> = [0, 103, 104, 112, 113, 114, 122, 124, 170, 172, 173]
            .into_iter()
            .filter(|&ns| schedule.is_due(ns))
            .collect();
        assert_eq!(due, [113, 124, 170, 173]);
    }
}
