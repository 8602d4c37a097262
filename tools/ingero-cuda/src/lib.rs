//! `ingero-cuda`: CUDA API calls of running processes, as NDJSON.
//!
//! - [`options`]: the command line.
//! - [`trace`]: the running tracer, with [`processes`] (whose calls), [`probes`] (which files and symbols), [`render`] (a
//!   record as a line) and [`losses`] (what is missing).
//! - [`symbols`]: the table of functions and how their arguments are read.
//! - [`command`]: a command to run and trace, as its [`invoker`]. [`listing`]: `--list`. [`seccomp`]: who must not be probed.

pub mod command;
pub mod invoker;
pub mod listing;
pub mod losses;
pub mod options;
pub mod probes;
pub mod processes;
pub mod render;
pub mod seccomp;
pub mod symbols;
pub mod trace;

use anyhow::Context;
use ingero_common::discover::ProcFs;
use ingero_common::exit::{self, Exit};
use ingero_common::fifo::Patience;
use ingero_common::output::Output;
use ingero_common::signal::Stop;
use ingero_ebpf::load::Kernel;

pub use options::Options;

use command::{NotStarted, Running};
use processes::Processes;
use trace::{Ended, Trace};

/// The name of the tool, in messages and records.
pub const TOOL: &str = "ingero-cuda";

/// Does what the options ask for, until that is done or a signal stops it.
///
/// # Errors
/// What the machine lacks for tracing, a process that does not exist, or what is wrong with the output.
pub fn run(options: &Options) -> anyhow::Result<Exit> {
    let log = options.common.log(TOOL);
    if let Some(invoker) = options.run_as {
        let not_started = invoker::run(invoker, &options.command);
        log.warn(not_started.to_string());
        return Ok(Exit::Command(not_started.status));
    }
    if let Some(paths) = &options.list {
        return listing::run(&log, paths);
    }
    let processes = if !options.command.is_empty() {
        Processes::tree([])
    } else if options.pids.is_empty() {
        Processes::all()
    } else {
        Processes::asked(&ProcFs::default(), &options.pids)?
    };
    let kernel = Kernel::check()?;
    let stop = Stop::tracer().context("cannot catch signals")?;
    let patience = Patience { stop: &stop, limit: options.duration, log: &log };
    let Some(output) = Output::recording(options.output.as_deref(), &patience)? else { return Ok(Exit::Ok) };
    let mut trace = Trace::new(options, &log, &kernel, &stop, processes, output)?;
    if options.command.is_empty() {
        trace.allow_many_files();
    }
    trace.start()?;
    let mut command = if options.command.is_empty() {
        None
    } else {
        let keep_stdout = options.output.as_deref().is_some_and(|path| path.as_os_str() != "-");
        match trace.starting(|| Running::start(&options.command, keep_stdout), Running::pid) {
            Ok(running) => Some(running),
            Err(error) => {
                // A stream that has begun has an end.
                trace.detach();
                trace.finish()?;
                let Some(not_started) = error.downcast_ref::<NotStarted>() else { return Err(error) };
                log.warn(not_started.to_string());
                return Ok(Exit::Command(not_started.status));
            }
        }
    };
    // Not before the command is started, which has the limit that the user gave it.
    trace.allow_many_files();
    trace.confine(command.as_ref())?;
    let ended = trace.run(|| command.as_mut().map_or(Ok(false), Running::has_ended));
    // Whatever happened: first the probes go, then anything is reported.
    trace.detach();
    // A stream that has begun has an end, whatever ended the tracing.
    let finished = trace.finish();
    let result = match ended.and_then(|ended| finished.map(|()| ended)) {
        Err(error) if exit::is_broken_pipe(&error) => Ok(Ended::Done),
        other => other,
    };
    drop(trace);
    let Some(mut command) = command else { return result.map(|_| Exit::Ok) };
    // An output that fails, or a time that is over, is no reason to end somebody's work.
    if matches!(result, Ok(Ended::Stopped)) {
        command.terminate();
    }
    let status = command.wait()?;
    result.map(|_| status)
}
