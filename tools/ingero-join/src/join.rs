//! The whole of it: takes records from the merge, keeps them for another window so that a call sees what
//! ends a little after it, adds `host`, and writes.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ingero_common::exit::Exit;
use ingero_common::host::Side as Tracer;
use ingero_common::ndjson::to_json;
use ingero_common::text::Log;
use serde::Serialize;

use crate::attribution::Attribution;
use crate::edit;
use crate::entry::{Entry, SINGLE_BAD_LINES};
use crate::filter::Filter;
use crate::format::{Writer, writer};
use crate::frame::Frame;
use crate::host::Call;
use crate::item::{Item, Kind, Side};
use crate::late::Late;
use crate::merge::{Merge, Step};
use crate::options::Options;
use crate::queue::Hub;
use crate::sink::Sink;

/// What waits for its window may cost so much memory; beyond that the wait is cut short.
const MAX_AHEAD_BYTES: usize = 11 * 1024 * 1024;

/// How often a waiting join looks whether its reader is still there and its inputs still silent.
const TICK: Duration = Duration::from_millis(100);

/// How long a stdin that nobody named, and that has said nothing, is waited for after everything else.
const IMPLIED_STDIN: Duration = Duration::from_secs(2);

/// How long what a scheduler tracer still has to say is waited for after the processes have ended that were traced with CUDA's.
/// It samples the machine each second.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// While lines come, the output is flushed when it is due, which is looked at every so many lines.
const FLUSH_EVERY_LINES: u32 = 64;

/// One run.
pub(crate) struct Join<'a> {
    options: &'a Options,
    log: &'a Log,
    hub: Arc<Hub>,
    window_ns: u64,
    merge: Merge,
    attribution: Attribution,
    /// Inputs of which it was said that both have a process: whose side, the one that is believed, the other one.
    told_doubles: Vec<(Tracer, usize, usize)>,
    filter: Filter,
    frame: Frame,
    /// First lines of the inputs, until the output begins.
    heads: Vec<Entry>,
    begun: bool,
    /// In order, waiting for their window.
    ahead: VecDeque<Entry>,
    ahead_bytes: usize,
    /// The latest end in `ahead` so far.
    newest_ns: u64,
    late: Late,
    inputs: Vec<InputState>,
    out: Box<dyn Writer + 'a>,
    line: Vec<u8>,
    counts: Counts,
    live: bool,
    until_flush: u32,
    /// Since when all that was traced of CUDA has ended by itself.
    leaderless_since: Option<Instant>,
}

/// What the run knows of an input beside the merge.
#[derive(Debug, Default)]
struct InputState {
    implied: bool,
    tool: Box<str>,
    /// It is about processes that were named or started, and ends with them.
    ends_by_itself: bool,
    /// When its tracer stopped.
    stopped_ns: Option<u64>,
    /// Bad lines beyond [`SINGLE_BAD_LINES`]: how many, from, to.
    flood: Option<(u64, u64, u64)>,
    bad_lines: u64,
    /// Of these, so many have had their turn in the output.
    bad_lines_told: u64,
    broken: bool,
}

#[derive(Debug, Default)]
struct Counts {
    seen: u64,
    written: u64,
    filtered: u64,
    late: u64,
    double: u64,
    bad_lines: u64,
}

impl<'a> Join<'a> {
    /// `implied` says of each input whether it is a stdin that nobody named.
    pub(crate) fn new(
        options: &'a Options,
        log: &'a Log,
        hub: Arc<Hub>,
        merge: Merge,
        implied: Vec<bool>,
        live: bool,
        out: impl Sink + 'a,
    ) -> Self {
        let window_ns = u64::try_from(options.window.as_nanos()).unwrap_or(u64::MAX);
        Self {
            options,
            log,
            hub,
            window_ns,
            attribution: Attribution::new(merge.lanes.len(), window_ns),
            merge,
            told_doubles: Vec::new(),
            filter: Filter::new(options),
            frame: Frame::default(),
            heads: Vec::new(),
            begun: false,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            newest_ns: 0,
            late: Late::default(),
            inputs: implied.into_iter().map(|implied| InputState { implied, ..InputState::default() }).collect(),
            out: writer(options.format, out),
            line: Vec::with_capacity(1024),
            counts: Counts::default(),
            live,
            until_flush: FLUSH_EVERY_LINES,
            leaderless_since: None,
        }
    }

    /// Reads everything and writes everything.
    pub(crate) fn run(mut self) -> anyhow::Result<Exit> {
        let hold = self.options.stall + self.options.window;
        let mut idle_since = None;
        loop {
            match self.merge.next()? {
                Step::Head(entry) => self.head(entry)?,
                Step::Line(entry) => self.line(entry)?,
                Step::Wait(lane) => self.wait(&[lane], hold)?,
                Step::Idle => {
                    self.drain()?;
                    let open: Vec<usize> =
                        (0..self.inputs.len()).filter(|&at| !self.merge.lanes[at].has_ended()).collect();
                    let since = *idle_since.get_or_insert_with(Instant::now);
                    if let [only] = open[..]
                        && self.inputs[only].implied
                        && !self.merge.lanes[only].has_spoken()
                        && since.elapsed() >= IMPLIED_STDIN
                    {
                        self.log.note("stdin is a pipe that says nothing; name it with - to wait for it");
                        self.merge.give_up(only);
                        continue;
                    }
                    self.wait(&open, hold)?;
                    continue;
                }
                Step::Broken(lane, error) => self.broken(lane, &error),
                Step::End => break,
            }
            idle_since = None;
        }
        self.drain()?;
        self.finish()
    }

    /// Where the processes have ended that ingero-cuda was to trace, ingero-sched beside it has nothing more to tell: its pipe is
    /// closed, which ends it, once it was read to where they ended.
    ///
    /// ```text
    ///   ingero-cuda -- train.py   ...... call  end|            the command has ended
    ///   ingero-sched              ...... switch ... switch ... sample | closed
    ///                                              |<- window ->|
    /// ```
    fn close_followers(&mut self) {
        let Some(stopped_ns) = self.leaders_stopped_ns() else { return };
        let since = *self.leaderless_since.get_or_insert_with(Instant::now);
        for at in 0..self.inputs.len() {
            let lane = &self.merge.lanes[at];
            let follows = !lane.has_ended() && lane.is_live() && &*self.inputs[at].tool == "ingero-sched";
            let read = lane.high_ns() > stopped_ns.saturating_add(self.window_ns);
            if follows && (read || since.elapsed() >= LAST_WORDS) {
                self.log.detail(format!("{}: closed, since what was traced has ended", lane.name));
                self.merge.give_up(at);
            }
        }
    }

    /// When the last tracer of CUDA calls stopped, if all of them have, and one because its processes had ended.
    fn leaders_stopped_ns(&self) -> Option<u64> {
        let leaders = || self.inputs.iter().enumerate().filter(|(_, input)| &*input.tool == "ingero-cuda");
        let ended = leaders().all(|(at, _)| self.merge.lanes[at].has_ended());
        let by_itself = leaders().any(|(_, input)| input.ends_by_itself && input.stopped_ns.is_some());
        (ended && by_itself).then(|| leaders().filter_map(|(_, input)| input.stopped_ns).max()).flatten()
    }

    fn wait(&mut self, lanes: &[usize], hold: Duration) -> anyhow::Result<()> {
        self.close_followers();
        self.write_settled()?;
        self.out.sink().flush()?;
        if self.out.sink().reader_gone() {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        self.hub.wait(lanes, TICK);
        self.merge.notice_silence(hold);
        Ok(())
    }

    /// What the inputs' clocks gave reason to say.
    fn tell_of_clocks(&mut self) {
        for notice in self.merge.take_notices() {
            self.log.warn(notice);
        }
    }

    fn broken(&mut self, lane: usize, error: &anyhow::Error) {
        self.log.warn(format!("{error:#}; what follows there is missing"));
        self.inputs[lane].broken = true;
    }

    /// The first line of an input.
    fn head(&mut self, entry: Entry) -> anyhow::Result<()> {
        self.tell_of_clocks();
        if let Kind::Start(start) = &entry.item().kind {
            self.attribution.started(entry.lane(), &start.tool);
            self.started(entry.lane(), &start.tool.clone(), start.ends_by_itself);
        }
        if self.begun {
            return self.write(&entry);
        }
        self.heads.push(entry);
        Ok(())
    }

    fn started(&mut self, lane: usize, tool: &str, ends_by_itself: bool) {
        let input = &mut self.inputs[lane];
        (input.tool, input.ends_by_itself, input.stopped_ns) = (tool.into(), ends_by_itself, None);
    }

    /// The next line in order.
    fn line(&mut self, mut entry: Entry) -> anyhow::Result<()> {
        let item = entry.item();
        if matches!(item.kind, Kind::LossAhead { .. }) {
            self.attribution.learn(&entry);
            return Ok(());
        }
        if !self.begun {
            self.begin(entry.start_ns)?;
        }
        let item = entry.item();
        match &item.kind {
            Kind::Bad { number, count, reason } => {
                let (lane, number, count, reason) = (entry.lane(), *number, *count, reason.clone());
                self.bad_line(lane, number, count, &reason);
                self.attribution.unreadable(&entry);
            }
            Kind::Start(start) => {
                self.attribution.started(entry.lane(), &start.tool);
                self.started(entry.lane(), &start.tool.clone(), start.ends_by_itself);
            }
            _ => {
                if let Kind::End { .. } = entry.item().kind {
                    self.inputs[entry.lane()].stopped_ns = Some(entry.end_ns);
                }
                entry.double = self.is_double(&entry);
                // A thread is off the CPU once, however many tell of it.
                if !entry.double || !matches!(entry.item().kind, Kind::Switch(_) | Kind::Pages { .. }) {
                    self.attribution.learn(&entry);
                }
            }
        }
        self.newest_ns = self.newest_ns.max(entry.end_ns);
        self.ahead_bytes += entry.held_bytes();
        self.ahead.push_back(entry);
        self.write_settled()?;
        // Asking for the time with every line would cost more than the line.
        self.until_flush = self.until_flush.checked_sub(1).unwrap_or(FLUSH_EVERY_LINES);
        if self.until_flush == 0 {
            self.close_followers();
            self.out.sink().flush_if_due()?;
        }
        Ok(())
    }

    /// Whether another input says the same.
    fn is_double(&mut self, entry: &Entry) -> bool {
        let Item { side, pid, double, .. } = *entry.item();
        let Some(pid) = pid else { return false };
        let of = match side {
            Side::Cuda => Tracer::Cuda,
            Side::Sched => Tracer::Sched,
            Side::Frame | Side::Other => return false,
        };
        let lanes = &self.merge.lanes;
        let tells = |other: usize| !lanes[other].has_ended() || lanes[other].high_ns() >= entry.end_ns;
        let before = self.attribution.told_before(entry, of, tells);
        if let Some(first) = before {
            self.tell_of_doubles(of, pid, first, entry.lane());
        }
        double || before.is_some()
    }

    fn tell_of_doubles(&mut self, side: Tracer, pid: u32, first: usize, second: usize) {
        if self.told_doubles.contains(&(side, first, second)) {
            return;
        }
        self.told_doubles.push((side, first, second));
        let tool = if side == Tracer::Cuda { "ingero-cuda" } else { "ingero-sched" };
        let (first, second) = (&self.merge.lanes[first].name, &self.merge.lanes[second].name);
        self.log.warn(format!(
            "{first} and {second} both tell of process {pid}: two {tool} traced it at once. What {second} says again is marked \
             \"double\":true, and ingero-chain leaves it out; to have it once, join one of them only"
        ));
    }

    /// Writes what no line that may still come can change.
    fn write_settled(&mut self) -> anyhow::Result<()> {
        let known_ns = self.newest_ns.saturating_sub(self.window_ns).max(self.merge.promised_ns());
        while let Some(first) = self.ahead.front() {
            if first.end_ns >= known_ns && self.ahead_bytes <= MAX_AHEAD_BYTES {
                break;
            }
            self.write_first()?;
        }
        Ok(())
    }

    /// Everything that waits is written: nothing will come soon, or ever.
    fn drain(&mut self) -> anyhow::Result<()> {
        while !self.ahead.is_empty() {
            self.write_first()?;
        }
        Ok(())
    }

    fn write_first(&mut self) -> anyhow::Result<()> {
        let Some(entry) = self.ahead.pop_front() else { return Ok(()) };
        self.ahead_bytes -= entry.held_bytes();
        self.write(&entry)
    }

    /// Writes a line, its time having come.
    fn write(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let item = entry.item();
        let (start_ns, end_ns) = (entry.start_ns, entry.end_ns);
        if entry.late {
            self.counts.late += 1;
            let stream = match item.side {
                Side::Cuda => "cuda",
                Side::Sched => "sched",
                Side::Frame | Side::Other => &self.merge.lanes[entry.lane()].name,
            };
            self.late.add(stream, start_ns, end_ns, self.newest_ns);
        } else if self.late.is_due(end_ns, self.options.window) {
            self.write_late()?;
        }
        if let Kind::Bad { count, .. } = item.kind {
            self.counts.seen += count;
            self.counts.bad_lines += count;
            return self.write_bad(entry.lane(), count, start_ns, end_ns);
        }
        let counted = u64::from(item.side != Side::Frame);
        self.counts.seen += counted;
        if !self.filter.keeps(item, start_ns, end_ns) {
            self.counts.filtered += counted;
            self.written(entry);
            return Ok(());
        }
        self.counts.written += counted;
        self.counts.double += u64::from(entry.double);
        let call = call(entry).filter(|_| item.tid.is_some() && !entry.double);
        if call.is_some() {
            for (at, lane) in self.merge.lanes.iter().enumerate() {
                self.attribution.read_up_to(at, lane.high_ns(), lane.has_ended());
            }
        }
        let host = call.map(|call| self.attribution.host(entry.domain, call));
        let (flag_late, flag_double) = (entry.late && !item.late, entry.double && !item.double);
        if let Some(mono_ns) = self.filter.moved(item, start_ns) {
            let ts = self.frame.ts(mono_ns);
            edit::at_time(&mut self.line, entry.line(), mono_ns, ts)?;
            self.out.record(&self.line)?;
        } else if host.is_none() && !flag_late && !flag_double {
            self.out.record(entry.line())?;
        } else {
            edit::annotate(&mut self.line, entry.line(), host.as_ref(), flag_late, flag_double)?;
            self.out.record(&self.line)?;
        }
        self.written(entry);
        Ok(())
    }

    fn written(&mut self, entry: &Entry) {
        if let Some(call) = call(entry) {
            self.attribution.written(entry.domain, call);
        }
    }

    /// Writes the first lines: our own, then those of the inputs in their order.
    fn begin(&mut self, first_ns: u64) -> anyhow::Result<()> {
        self.begun = true;
        let mut heads = std::mem::take(&mut self.heads);
        heads.sort_by_key(Entry::lane);
        let starts: Vec<_> = heads
            .iter()
            .filter_map(|e| if let Kind::Start(start) = &e.item().kind { Some(&**start) } else { None })
            .collect();
        let start_ns = heads.iter().map(Entry::own_start_ns).min().unwrap_or(first_ns);
        self.filter.begin(start_ns, starts.iter().find_map(|s| s.wall_offset_ns));
        if self.filter.lacks_offset() {
            bail!(
                "--since and --until as wall clock need a `start` record with `wall_offset_ns` in an input; give them \
                 as durations after the first record"
            );
        }
        if self.filter.is_empty() {
            bail!("--since lies behind --until: there is nothing between them; give the earlier time to --since");
        }
        let names = self.merge.lanes.iter().map(|l| l.name.as_str()).collect();
        let start = self.frame.start(self.options, &starts, names, self.filter.within(start_ns));
        put(&mut self.line, &mut *self.out, &start)?;
        for head in &heads {
            self.write(head)?;
        }
        Ok(())
    }

    fn bad_line(&mut self, lane: usize, number: u64, count: u64, reason: &str) {
        let input = &mut self.inputs[lane];
        input.bad_lines += count;
        if input.bad_lines == 1 {
            let name = &self.merge.lanes[lane].name;
            self.log.warn(format!("{name}, line {number}: {reason}; skipped and counted"));
        }
    }

    /// A `lost` record for a bad line; those of a flood are told of together, at the end.
    fn write_bad(&mut self, lane: usize, count: u64, start_ns: u64, end_ns: u64) -> anyhow::Result<()> {
        let input = &mut self.inputs[lane];
        input.bad_lines_told += count;
        if input.bad_lines_told > SINGLE_BAD_LINES {
            let flood = input.flood.get_or_insert((0, start_ns, end_ns));
            *flood = (flood.0 + count, flood.1.min(start_ns), flood.2.max(end_ns));
            return Ok(());
        }
        self.write_bad_lines(lane, Some(1), start_ns, end_ns)
    }

    fn write_bad_lines(&mut self, lane: usize, count: Option<u64>, start_ns: u64, end_ns: u64) -> anyhow::Result<()> {
        let name = self.merge.lanes[lane].name.as_str();
        let stream = match &*self.inputs[lane].tool {
            "ingero-cuda" => "cuda",
            "ingero-sched" => "sched",
            _ => name,
        };
        let lost = self.frame.lost("bad_line", stream, Some(name), count, start_ns, end_ns);
        Ok(put(&mut self.line, &mut *self.out, &lost)?)
    }

    fn write_late(&mut self) -> anyhow::Result<()> {
        for group in self.late.take() {
            let lost = self.frame.lost("late", &group.stream, None, Some(group.count), group.start_ns, group.end_ns);
            put(&mut self.line, &mut *self.out, &lost)?;
        }
        Ok(())
    }

    /// Writes what is left to say, and the last line.
    fn finish(mut self) -> anyhow::Result<Exit> {
        if !self.begun {
            self.begin(0)?;
        }
        self.write_late()?;
        for lane in 0..self.inputs.len() {
            if let Some((count, start_ns, end_ns)) = self.inputs[lane].flood {
                self.write_bad_lines(lane, Some(count), start_ns, end_ns)?;
            }
            if self.inputs[lane].broken {
                let high_ns = self.merge.lanes[lane].high_ns();
                self.write_bad_lines(lane, None, high_ns, self.newest_ns.max(high_ns))?;
            }
        }
        let mut end = self.frame.end(self.filter.within(self.newest_ns));
        end.seen = self.counts.seen;
        end.written = self.counts.written;
        end.filtered = self.counts.filtered;
        end.late = self.counts.late;
        end.double = self.counts.double;
        if self.counts.bad_lines > 0 {
            end.lost.insert("bad_line", self.counts.bad_lines);
        }
        if self.live {
            let (user_ns, sys_ns) = ingero_common::stream::cpu_times_ns();
            (end.user_ns, end.sys_ns) = (Some(user_ns), Some(sys_ns));
        }
        put(&mut self.line, &mut *self.out, &end)?;
        self.out.finish()?;
        self.out.sink().flush().context("writing the end of the stream")?;
        self.report()
    }

    /// Tells people what went wrong.
    fn report(mut self) -> anyhow::Result<Exit> {
        for (input, lane) in self.inputs.iter().zip(&self.merge.lanes) {
            if input.bad_lines > 1 {
                self.log.warn(format!("{}: lines that were no records: {}", lane.name, input.bad_lines));
            }
        }
        if self.counts.late > 0 {
            self.log.note(format!(
                "records that came later than the window of {:?} allows, written behind their place with `late`: {}",
                self.options.window, self.counts.late
            ));
        }
        // Of streams that began in the middle of an input.
        self.tell_of_clocks();
        if self.merge.cut_short {
            self.log.note("more records came within the window than fit in memory; it was cut short");
        }
        let soft_errors = self.counts.bad_lines > 0 || self.inputs.iter().any(|i| i.broken);
        Ok(if soft_errors { Exit::Error } else { Exit::Ok })
    }
}

/// The call that gets a `host` object, if it is one.
fn call(entry: &Entry) -> Option<Call> {
    let Item { kind: Kind::Call { outermost: true }, pid, tid, .. } = *entry.item() else { return None };
    let pid = pid?;
    Some(Call { pid, tid: tid.unwrap_or(pid), start_ns: entry.start_ns, end_ns: entry.end_ns })
}

fn put(line: &mut Vec<u8>, out: &mut dyn Writer, record: &impl Serialize) -> io::Result<()> {
    line.clear();
    to_json(line, record)?;
    out.record(line)
}
