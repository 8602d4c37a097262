//! The loop: events in, records out, until there is a reason to stop.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use anyhow::Context;
use ingero_common::clock::mono_ns;
use ingero_common::output::Output;
use ingero_common::privileges::{self, Work};
use ingero_common::record::why;
use ingero_common::record::write::{Probes, Watch};
use ingero_common::signal::Stop;
use ingero_common::stream::Stream;
use ingero_common::text::{Log, counted};
use ingero_ebpf::sched::event::{Event, Why};
use ingero_ebpf::sched::{Counters, Tracer};
use rustix::thread::CapabilitySet;
use serde::Serialize;

use crate::identity::Identity;
use crate::options::Options;
use crate::processes::{Processes, child_watch, cuda_watch, keys};
use crate::sample::Sampler;
use crate::stacks::Stacks;
use crate::waits::Waits;
use crate::{TOOL, record};

/// The name in `lost` and `watch` records.
const STREAM: &str = "sched";
/// Records handled before looking at signals and timers again.
const BATCH: usize = 4096;
/// How often losses, the reader and the clock are looked at.
const CHECK_EVERY: Duration = Duration::from_millis(100);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// What was asked for, in the `start` record.
#[derive(Serialize)]
struct Filter<'a> {
    #[serde(skip_serializing_if = "<[u32]>::is_empty")]
    pid: &'a [u32],
    cuda: bool,
    all: bool,
    pages: &'a str,
    io: bool,
    stacks_hz: u32,
}

/// A running capture.
struct Capture {
    tracer: Tracer,
    /// How the kernel is traced, in the `start` record.
    mode: &'static str,
    stream: Stream<Output>,
    processes: Processes,
    waits: Waits,
    /// `None`: it is not told where threads are in their code.
    stacks: Option<Stacks>,
    sampler: Option<Sampler>,
    /// Samples written; the kernel side has counted everything else.
    samples: u64,
    /// Records of what was still going on at the end.
    opened: u64,
    /// There is more to be watched than the kernel side does by itself.
    behind: bool,
    counted: Counters,
    counted_ns: u64,
    log: Log,
}

/// Traces until a stop is asked for, the time is up, or the reader has gone.
///
/// # Errors
/// Failing to write (a broken pipe among them) or to read from the kernel. The probes are detached in any case.
pub(crate) fn run(
    options: &Options,
    tracer: Tracer,
    mode: &'static str,
    output: Output,
    stop: &Stop,
    log: Log,
) -> anyhow::Result<()> {
    let stream = Stream::new(output, STREAM, TOOL, env!("CARGO_PKG_VERSION"));
    let processes = Processes::new(options.finds_cuda().then_some(options.scan_interval));
    let stacks = tracer.has_stacks().then(|| Stacks::new(options.stacks));
    let mut capture = Capture {
        stacks,
        tracer,
        mode,
        stream,
        processes,
        waits: Waits::default(),
        sampler: None,
        samples: 0,
        opened: 0,
        behind: false,
        counted: Counters::default(),
        counted_ns: mono_ns(),
        log,
    };
    capture.start(options)?;
    capture.confine()?;
    capture.tracer.ring().wake_on(stop.fd()).context("waiting for signals")?;
    capture.follow(options, stop)?;
    capture.finish()
}

impl Capture {
    fn start(&mut self, options: &Options) -> anyhow::Result<()> {
        let filter = Filter {
            pid: &options.pids,
            cuda: options.finds_cuda(),
            all: options.all,
            pages: if options.no_mem {
                "off"
            } else if options.raw {
                "raw"
            } else {
                "summed"
            },
            io: !options.no_io,
            stacks_hz: if self.stacks.is_some() { options.stacks } else { 0 },
        };
        let probes = Probes {
            attached: self.tracer.names().0.to_vec(),
            missing: self.tracer.names().1.to_vec(),
            mode: self.mode,
        };
        self.stream.start(filter, probes)?;
        if options.finds_cuda() && !self.tracer.has_cu_init() {
            self.log.detail("no probe on cuInit here: processes that use CUDA are found by looking");
        }
        for &pid in &options.pids {
            self.tracer.request(pid, Why::Asked).with_context(|| format!("asking to watch process {pid}"))?;
        }
        self.processes.probe_installed(&mut self.tracer, &self.log);
        self.processes.scan(&mut self.tracer, &self.log)?;
        self.watch_new()?;
        for pid in options.pids.iter().filter(|pid| !self.processes.is_watched(**pid)) {
            self.log.warn(format!("process {pid} is not watched: it has just ended, or is hidden from tracing"));
        }
        if !options.no_sys {
            self.sampler = Some(Sampler::new()?);
        }
        match self.processes.len() {
            0 if options.finds_cuda() => self.log.note("no process uses CUDA yet; waiting for one (Ctrl-C to stop)"),
            n => self.log.detail(format!("watching {}", counted(n as u64, "process", "processes"))),
        }
        Ok(())
    }

    /// Gives up, for good, all rights that tracing does not go on needing.
    fn confine(&self) -> anyhow::Result<()> {
        let mut keep = privileges::TRACING;
        keep.set(CapabilitySet::SYS_ADMIN, self.tracer.needs_admin().context("trying which capabilities probes need")?);
        let confined = privileges::confine(keep, &Work::of_tracer()).context("giving up privileges")?;
        self.log.detail(format!("privileges kept: {confined}"));
        Ok(())
    }

    fn follow(&mut self, options: &Options, stop: &Stop) -> anyhow::Result<()> {
        let started = Instant::now();
        let (mut next_check, mut next_sample) = (started + CHECK_EVERY, started + SAMPLE_EVERY);
        let live = self.stream.out().is_live();
        while !stop.requested() {
            let read_ns = mono_ns();
            let batch_is_full = self.drain()? == BATCH;
            if live && !batch_is_full {
                self.stream.alive(read_ns)?;
            }
            let now = Instant::now();
            if options.duration.is_some_and(|duration| now - started >= duration) {
                break;
            }
            if now >= next_check {
                next_check = now + CHECK_EVERY;
                let lost = self.report_losses()?;
                if let Some(stacks) = &mut self.stacks {
                    stacks.look(&mut self.tracer, &self.log).context("telling of interpreters")?;
                }
                self.stream.check_clock()?;
                if options.ends_with_pids() && self.processes.len() == 0 {
                    self.log.detail("all that was to be watched has ended");
                    break;
                }
                if self.stream.out().reader_gone() {
                    return Err(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing records");
                }
                // A lost birth leaves a process that is watched and not told of.
                if self.processes.scan(&mut self.tracer, &self.log)? || lost {
                    self.behind = true;
                }
            }
            if std::mem::take(&mut self.behind) {
                self.watch_new()?;
            }
            if now >= next_sample {
                // Not from `now`: seconds must not grow by what each of them takes.
                next_sample += SAMPLE_EVERY;
                self.sample()?;
            }
            if batch_is_full {
                self.stream.out().flush_if_due()?;
            } else {
                io::Write::flush(self.stream.out())?;
                let until_stop =
                    options.duration.map_or(CHECK_EVERY, |duration| duration.saturating_sub(now - started));
                self.tracer.ring().wait(until_stop).context("waiting for events")?;
            }
        }
        Ok(())
    }

    /// Has the kernel side watch what was asked for, and looks at what is new.
    fn watch_new(&mut self) -> anyhow::Result<()> {
        let new = self.processes.watch_new(&mut self.tracer, &mut self.stream)?;
        if let Some(stacks) = &mut self.stacks {
            new.into_iter().for_each(|pid| stacks.watch(pid));
            stacks.look(&mut self.tracer, &self.log).context("telling of interpreters")?;
        }
        Ok(())
    }

    /// Stops the kernel side, then writes what it still holds and what is open.
    fn finish(mut self) -> anyhow::Result<()> {
        let stop_ns = self.tracer.stop().context("stopping the tracer")?;
        // A program that was running on another CPU may still have counted and written something.
        loop {
            while self.drain()? > 0 {}
            self.report_losses()?;
            if self.drain()? == 0 {
                break;
            }
        }

        let (stream, waits, opened) = (&mut self.stream, &mut self.waits, &mut self.opened);
        let stacks = &mut self.stacks;
        let mut result = Ok(());
        self.tracer
            .open(stop_ns, |event| {
                if result.is_ok() {
                    *opened += 1;
                    result = record::write(stream, waits, &event);
                    if let (Ok(()), Some(stacks)) = (&result, stacks.as_mut()) {
                        result = stacks.follow(stream, &event);
                    }
                }
            })
            .context("reading the kernel's list of tasks")?;
        result?;
        self.sample()?;
        let stacks = self.stacks.as_ref().map_or(0, Stacks::written);
        let seen = self.counted.seen + self.opened + self.samples + stacks;
        if let Some(torn) = self.stacks.as_ref().map(Stacks::torn).filter(|torn| *torn > 0) {
            self.log.detail(format!("{} changed while they were read", counted(torn, "stack", "stacks")));
        }
        if self.counted.ring_full > 0 {
            self.log.warn(format!(
                "{} of {seen} records were lost: the buffer was full; a larger --ring-size or a faster reader keeps them",
                self.counted.ring_full
            ));
        }
        self.stream.end(seen, stop_ns)?;
        Ok(())
    }

    /// Writes what the ring holds, one batch at most; how many events that was.
    fn drain(&mut self) -> anyhow::Result<usize> {
        let (stream, processes, waits) = (&mut self.stream, &mut self.processes, &mut self.waits);
        let stacks = &mut self.stacks;
        let mut result = Ok(false);
        let mut cuda_began = false;
        let drained = self.tracer.drain(BATCH, |event| {
            if result.is_ok() {
                result = handle(stream, processes, waits, &event);
                if let (Ok(_), Some(stacks)) = (&result, stacks.as_mut())
                    && let Err(error) = stacks.follow(stream, &event)
                {
                    result = Err(error.into());
                }
                cuda_began |= matches!(result, Ok(true));
            }
        });
        let count = drained.context("reading events")?;
        self.behind |= cuda_began;
        result.map(|_| count)
    }

    fn sample(&mut self) -> anyhow::Result<()> {
        let Some(sampler) = &mut self.sampler else { return Ok(()) };
        sampler.write(&mut self.stream, self.processes.pids())?;
        self.samples += 1;
        Ok(())
    }

    /// Writes `lost` records for what the kernel side has lost since the last call. Whether there was any.
    fn report_losses(&mut self) -> anyhow::Result<bool> {
        let counters = self.tracer.counters().context("reading the counters")?;
        let now_ns = mono_ns();
        let lost: BTreeMap<&'static str, u64> = [
            (why::RING_FULL, counters.ring_full - self.counted.ring_full),
            (why::MAP_FULL, counters.map_full - self.counted.map_full),
        ]
        .into_iter()
        .filter(|&(_, count)| count > 0)
        .collect();
        if !lost.is_empty() {
            let since = self.tracer.take_lost_since().context("reading the counters")?.unwrap_or(self.counted_ns);
            for (&why, &count) in &lost {
                self.stream.lost(why, count, since, now_ns, None)?;
            }
        }
        (self.counted, self.counted_ns) = (counters, now_ns);
        Ok(!lost.is_empty())
    }
}

/// Writes what one event says. Whether a process has begun to use CUDA by it, of which more is to be watched.
fn handle(
    stream: &mut Stream<Output>,
    processes: &mut Processes,
    waits: &mut Waits,
    event: &Event<'_>,
) -> anyhow::Result<bool> {
    processes.follow(event);
    record::write(stream, waits, event)?;
    match *event {
        Event::Exec { head, .. } | Event::ProcessExit { head, .. } => waits.forget(head.who.pid),
        Event::Fork { head, child_pid, child_ns_pid, watched: true } => {
            let ts = stream.ts(head.mono_ns);
            stream.watch(child_watch(head, ts, child_pid, child_ns_pid))?;
        }
        Event::CudaInit { head, alone } => {
            if alone {
                let ts = stream.ts(head.mono_ns);
                let who = Identity::of(head.who.pid);
                stream.watch(Watch { who: keys(&who), ..cuda_watch(head, ts) })?;
            }
            return Ok(true);
        }
        _ => {}
    }
    Ok(false)
}
