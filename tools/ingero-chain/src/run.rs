//! Reads, analyses, writes.

use std::io::{IsTerminal, Read, Write};

use anyhow::{Context, bail};
use ingero_common::exit::Exit;
use ingero_common::input::Input;
use ingero_common::ndjson::{LineReader, RecordWriter};
use ingero_common::output::Output;
use ingero_common::record::{Parsed, parse};
use ingero_common::text::Log;

use crate::chain::Report;
use crate::engine::Engine;
use crate::options::{Format, Options};
use crate::text::{self, Style};

/// The tool's name before its messages.
pub const TOOL: &str = "ingero-chain";

/// Reads one input to its end into `engine`; says on stderr which line was the first bad one.
pub fn read(engine: &mut Engine, name: &str, input: impl Read, strict: bool, log: &Log) -> anyhow::Result<()> {
    let mut lines = LineReader::new(input);
    let mut bad = 0_u64;
    while let Some(line) = lines.next_line().with_context(|| format!("reading {name}"))? {
        let problem = match parse(line.bytes) {
            _ if line.too_long => "longer than 16 MiB".to_owned(),
            Parsed::Record(record) => {
                engine.record(&record, line.bytes);
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
    Ok(())
}

/// Analyses one recording.
pub fn analyse(name: &str, input: impl Read, log: &Log) -> anyhow::Result<Report> {
    let mut engine = Engine::default();
    read(&mut engine, name, input, false, log)?;
    engine.end();
    Ok(engine.report())
}

/// The whole tool.
pub fn run(options: &Options, log: &Log) -> anyhow::Result<Exit> {
    let mut engine = Engine::default();
    let inputs: Vec<Input> = if options.inputs.is_empty() {
        if std::io::stdin().is_terminal() {
            bail!("no input: pipe a stream of ingero-join into it, or name a recording");
        }
        vec![Input::stdin()]
    } else {
        options.inputs.iter().map(Input::new).collect()
    };
    let mut output = Output::open(options.output.as_deref())?;
    for input in &inputs {
        read(&mut engine, &input.name(), input.open()?, options.strict, log)?;
    }
    let bad_lines = engine.own_bad_lines();
    engine.end();
    let report = engine.report();
    let format = options.format.unwrap_or(if output.is_terminal() { Format::Text } else { Format::Ndjson });
    let colour = output.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    match format {
        Format::Text => text::write(&mut output, &report, options.per_process, Style { colour })?,
        Format::Ndjson => write_ndjson(&mut output, &report, options.per_process)?,
    }
    output.flush()?;
    Ok(match options.fail_on {
        _ if bad_lines > 0 => Exit::Error,
        Some(severity) if report.has(severity.into()) => Exit::Found,
        _ => Exit::Ok,
    })
}

/// Writes a report as records, one a line, the summary last.
pub fn write_ndjson(out: &mut impl Write, report: &Report, per_process: bool) -> std::io::Result<()> {
    let mut records = RecordWriter::new(out);
    for chain in &report.chains {
        records.write(chain)?;
    }
    if per_process {
        for process in &report.processes {
            records.write(process)?;
        }
    }
    records.write(&report.summary)
}
