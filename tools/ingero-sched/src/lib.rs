//! The scheduler tracer: for each watched thread when it was off the CPU, why, who had the CPU meanwhile and who woke it;
//! births and deaths of processes and threads; page allocations; and samples of the whole system.
//!
//! [`run`] is the whole tool. The work in the kernel is `ingero_ebpf::sched`; here its events become records (`record`),
//! it is decided whom to watch (`processes`), and the system is sampled (`sample`).

mod capture;
mod identity;
mod libraries;
mod options;
mod processes;
mod record;
mod sample;
mod stacks;
mod waits;

use anyhow::{Context, ensure};
use ingero_common::discover::{Numbered, ProcFs, is_gone};
use ingero_common::exit::Exit;
use ingero_common::fifo::Patience;
use ingero_common::output::Output;
use ingero_common::signal::Stop;
use ingero_ebpf::sched::{Config, Pages, Source, Tracer};

pub use options::Options;

/// The name in messages and in the stream.
pub const TOOL: &str = "ingero-sched";

/// Added to the niceness that we were started with.
const NICE: i32 = -10;

/// Traces until it is told to stop, the time is up, or nobody reads any more.
///
/// # Errors
/// What keeps tracing from starting, in one line; and failing to write.
pub fn run(options: &Options) -> anyhow::Result<Exit> {
    let source = Source::find(options.probe_mode.into())?;
    check_pids(&options.pids)?;
    let log = options.common.log(TOOL);
    let stop = Stop::tracer().context("catching signals")?;
    // Before anything is attached: a wrong path must cost nothing, and a FIFO waits here for its reader.
    let patience = Patience { stop: &stop, limit: options.duration, log: &log };
    let Some(output) = Output::recording(options.output.as_deref(), &patience)? else { return Ok(Exit::Ok) };
    let pages = match (options.no_mem, options.raw) {
        (true, _) => Pages::Off,
        (false, true) => Pages::Raw,
        (false, false) => Pages::Summed,
    };
    // A fair share of a CPU that everybody fights for would be too little to keep up with the very fight that is to be told
    // of. Best effort: without the right to do so, it is as fair as everybody.
    let _ = rustix::process::nice(NICE);
    let config = Config {
        all: options.all,
        pages,
        io: !options.no_io,
        cu_init: options.finds_cuda(),
        stacks_hz: options.stacks,
        ring_bytes: options.ring_size,
    };
    for &pid in &options.pids {
        // What `ps` shows in a container may be the number of somebody else here.
        if let Some(inside) = Numbered::find(&ProcFs::default(), pid).context("listing /proc")? {
            log.note(format!("in a container, {pid} is the number of {inside}; --pid takes the numbers of here"));
        }
    }
    let tracer = Tracer::new(&source, config)?;
    capture::run(options, tracer, source.name(), output, &stop, log)?;
    Ok(Exit::Ok)
}

fn check_pids(pids: &[u32]) -> anyhow::Result<()> {
    let proc = ProcFs::default();
    for &pid in pids {
        match proc.process(pid) {
            Ok(_) => {}
            Err(error) if is_gone(&error) => {
                if let Some(inside) = Numbered::find(&proc, pid).context("listing /proc")? {
                    anyhow::bail!(
                        "there is no process {pid} here (--pid); in a container that is the number of {inside}: give that"
                    );
                }
                let hidden = if rustix::process::geteuid().is_root() {
                    ""
                } else {
                    ", unless /proc hides it from this user (hidepid): then run it with sudo"
                };
                anyhow::bail!("there is no process {pid} (--pid); `ps -e` lists those that there are{hidden}")
            }
            Err(error) => return Err(error).with_context(|| format!("looking for process {pid} (--pid)")),
        }
        // /proc has entries for all threads, though it lists only processes.
        let listed = proc.pids().context("listing /proc")?.contains(&pid);
        ensure!(listed, "{pid} (--pid) is a thread; give the process that it belongs to");
    }
    Ok(())
}
