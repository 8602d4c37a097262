//! What the merge and the attribution need to know of a line, taken from it once, in the reader's thread.

use ingero_common::clock::parse_ts;
use ingero_common::host::{Side as Tracer, State};
use ingero_common::ndjson::Line;
use ingero_common::record::{self, Parsed, Record, src};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Some whole lines of one input and what they say.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The lines, one after another, without their line ends.
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: Vec<Item>,
}

/// A batch goes out when it has this many bytes…
const BATCH_BYTES: usize = 32 * 1024;
/// …or this many lines: a bad one has no bytes here, and the shortest record costs ten times its length.
const BATCH_ITEMS: usize = 2 * 1024;
/// Room for a batch: the line that fills it may be a long one.
const CAPACITY_BYTES: usize = BATCH_BYTES + 2 * 1024;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Where the line lies in its batch's bytes.
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) time: Time,
    pub(crate) pid: Option<u32>,
    pub(crate) tid: Option<u32>,
    pub(crate) kind: Kind,
    pub(crate) side: Side,
    /// It came in flagged `late` already.
    pub(crate) late: bool,
    /// It came in flagged `double` already.
    pub(crate) double: bool,
}

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    /// The stream about itself: `src` is `ingero`.
    Frame,
    /// A CUDA-side call.
    Cuda,
    /// One of the scheduler tracer's.
    Sched,
    /// Somebody else's.
    Other,
}

/// When it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// CLOCK_MONOTONIC, in nanoseconds.
    Mono { start_ns: u64, end_ns: u64 },
    /// Nanoseconds since the epoch, to be placed by the stream's offset.
    Wall { start_ns: i64, dur_ns: u64 },
    /// It does not say.
    None,
}

/// What it is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// Nothing that the join acts on.
    Other,
    /// A call; `outermost` when it is to get a `host` object, unless another input has it.
    Call { outermost: bool },
    /// A thread was off the CPU.
    Switch(Switch),
    /// Kernel page allocations of a thread.
    Pages { count: u64, bytes: u64 },
    /// A life begins or ends.
    Change(Change),
    /// A tracer of this kind watches the process from here on.
    Watch(Tracer),
    /// Scheduler records are missing.
    LostSched,
    /// Other records are missing.
    Lost,
    /// A stream's first line.
    Start(Box<Start>),
    /// The wall clock was set: the new offset.
    Clock { wall_offset_ns: i64 },
    /// A stream's last line, and which stream's where it says so.
    End { of_sched: Option<bool> },
    /// Nothing of the stream ends before this record.
    Alive,
    /// Told ahead of its own line: scheduler records are missing in [`start_ns`, `end_ns`]. There is no line.
    LossAhead { start_ns: u64, end_ns: u64 },
    /// No JSON object, or `count` such lines of a flood; the line itself is not kept.
    Bad { number: u64, count: u64, reason: Box<str> },
}

/// An off-CPU interval's own keys.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    pub(crate) state: State,
    /// The part at the end of the interval spent waiting for a CPU, in nanoseconds.
    pub(crate) runq_ns: u64,
    /// Who had the CPU while the thread was runnable: its pid, which is never 0, and name.
    pub(crate) holder: Option<(u32, Box<str>)>,
}

/// What happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Fork { child_pid: u32 },
    Exec,
    ThreadCreate { child_tid: u32 },
    ThreadExit,
    ProcessExit,
}

/// What a stream's first line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) tool: Box<str>,
    pub(crate) host: Box<str>,
    pub(crate) boot_id: Box<str>,
    pub(crate) kernel: Box<str>,
    /// The clock that `mono_ns` was read from; empty where it does not say.
    pub(crate) clock: Box<str>,
    /// When it was written, by that clock.
    pub(crate) mono_ns: Option<u64>,
    pub(crate) wall_offset_ns: Option<i64>,
    /// It is about processes that were named or started, and ends with them.
    pub(crate) ends_by_itself: bool,
}

impl Batch {
    /// With room for as many lines as `last` had, and some: growing by doubling would cost up to twice the memory for as
    /// long as one of the lines waits for its turn.
    pub(crate) fn like(last: usize) -> Box<Self> {
        let items = Vec::with_capacity((last + last / 8).min(BATCH_ITEMS));
        Box::new(Self { bytes: Vec::with_capacity(CAPACITY_BYTES), items })
    }

    /// A line in a batch of its own, so that it keeps nothing else in memory.
    pub(crate) fn of_one(line: &[u8], item: &Item) -> Self {
        Self { bytes: line.to_vec(), items: vec![Item { from: 0, to: line.len() as u32, ..item.clone() }] }
    }

    /// Whether it should go out.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.items.len() >= BATCH_ITEMS
    }

    /// What it costs to keep.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.bytes.capacity() + self.items.capacity() * size_of::<Item>()
    }

    /// The bytes of a line.
    pub(crate) fn line(&self, item: &Item) -> &[u8] {
        &self.bytes[item.from as usize..item.to as usize]
    }

    /// Takes a line over.
    pub(crate) fn push(&mut self, line: Line<'_>) {
        if line.too_long {
            return self.push_bad(line.number, "longer than 16 MiB".into());
        }
        let item = match record::parse(line.bytes) {
            Parsed::Record(record) => Item::from_record(&record, line.bytes),
            Parsed::Unknown => Item { time: loose_time(line.bytes), ..Item::other() },
            Parsed::Bad(reason) => return self.push_bad(line.number, reason.into()),
        };
        // A batch holds a few lines of at most 16 MiB each: u32 is enough.
        let from = self.bytes.len() as u32;
        self.bytes.extend_from_slice(line.bytes);
        self.items.push(Item { from, to: self.bytes.len() as u32, ..item });
    }

    fn push_bad(&mut self, number: u64, reason: Box<str>) {
        let at = self.bytes.len() as u32;
        self.items.push(Item { from: at, to: at, kind: Kind::Bad { number, count: 1, reason }, ..Item::other() });
    }
}

impl Item {
    /// A line that says nothing.
    pub(crate) fn other() -> Self {
        Self {
            from: 0,
            to: 0,
            time: Time::None,
            pid: None,
            tid: None,
            kind: Kind::Other,
            side: Side::Other,
            late: false,
            double: false,
        }
    }

    fn from_record(record: &Record<'_>, line: &[u8]) -> Self {
        Self {
            from: 0,
            to: 0,
            time: time_of(record.mono_ns, record.ts.as_deref(), record.dur_ns),
            pid: record.pid,
            tid: record.tid,
            kind: Kind::of(record, line),
            side: Side::of(&record.src),
            late: record.late,
            double: record.double,
        }
    }
}

impl Side {
    fn of(src: &str) -> Self {
        match src {
            src::INGERO => Self::Frame,
            src::SCHED | src::MEM | src::BLOCK | src::NET | src::SYS | src::STACK => Self::Sched,
            s if src::is_call(s) => Self::Cuda,
            _ => Self::Other,
        }
    }
}

impl Kind {
    fn of(record: &Record<'_>, line: &[u8]) -> Self {
        match &*record.src {
            s if src::is_call(s) => {
                // A call told of while it hangs has another record to come, and the sleep that its thread is in has none yet.
                let known = record.dur_ns.is_some() && !record.stuck;
                Kind::Call { outermost: known && record.depth == 0 && record.host.is_none() && !record.double }
            }
            src::SCHED => sched(record),
            src::MEM if &*record.op == "mm_page_alloc" => {
                Kind::Pages { count: record.count.unwrap_or(1), bytes: record.bytes.unwrap_or(0) }
            }
            src::INGERO => frame(record, line),
            _ => Kind::Other,
        }
    }
}

fn sched(record: &Record<'_>) -> Kind {
    let task = match &*record.op {
        "sched_switch" => return Kind::Switch(switch(record)),
        "sched_process_fork" => record.child_pid.map(|child_pid| Change::Fork { child_pid }),
        "sched_process_exec" => Some(Change::Exec),
        "thread_create" => record.child_tid.map(|child_tid| Change::ThreadCreate { child_tid }),
        "thread_exit" => Some(Change::ThreadExit),
        // Of a thread that is not the first: only that thread ends.
        "sched_process_exit" if record.tid.is_some() && record.tid != record.pid => Some(Change::ThreadExit),
        "sched_process_exit" => Some(Change::ProcessExit),
        _ => None,
    };
    task.map_or(Kind::Other, Kind::Change)
}

fn switch(record: &Record<'_>) -> Switch {
    let state = State::from_letter(record.state.as_deref());
    let runq_ns = state.runq_ns(record.runq_ns, record.dur_ns.unwrap_or(0));
    // `by` took the CPU when the thread left, so it had it while a preempted thread waited. After a
    // sleep the thread waits for the CPU on which it comes back, and that one was `prev`'s.
    let who = if state == State::Preempted { record.by.as_ref() } else { record.prev.as_ref() };
    let holder = who.filter(|who| runq_ns > 0 && who.pid != 0).map(|who| (who.pid, (&*who.comm).into()));
    Switch { state, runq_ns, holder }
}

fn frame(record: &Record<'_>, line: &[u8]) -> Kind {
    let sched = record.stream.as_deref() == Some("sched");
    match &*record.op {
        "watch" => Kind::Watch(if sched { Tracer::Sched } else { Tracer::Cuda }),
        "lost" if sched => Kind::LostSched,
        "lost" => Kind::Lost,
        "start" => Kind::Start(Box::new(start(record, line))),
        "clock" => offset(record).map_or(Kind::Other, |wall_offset_ns| Kind::Clock { wall_offset_ns }),
        "alive" => Kind::Alive,
        "end" => Kind::End { of_sched: record.stream.as_deref().map(|stream| stream == "sched") },
        _ => Kind::Other,
    }
}

fn offset(record: &Record<'_>) -> Option<i64> {
    record.wall_offset_ns.as_deref()?.parse().ok()
}

fn start(record: &Record<'_>, line: &[u8]) -> Start {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Rest {
        kernel: String,
        clock: String,
        filter: Asked,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Asked {
        pid: Vec<u32>,
        command: Option<String>,
    }
    let Rest { kernel, clock, filter } = serde_json::from_slice(line).unwrap_or_default();
    Start {
        tool: record.tool.as_deref().unwrap_or_default().into(),
        // In a call `host` is an object, here it is the machine's name.
        host: record.host.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()).unwrap_or_default().into(),
        boot_id: record.boot_id.as_deref().unwrap_or_default().into(),
        kernel: kernel.into(),
        clock: clock.into(),
        mono_ns: record.mono_ns,
        wall_offset_ns: offset(record),
        ends_by_itself: !filter.pid.is_empty() || filter.command.is_some(),
    }
}

fn time_of(mono_ns: Option<u64>, ts: Option<&str>, dur_ns: Option<u64>) -> Time {
    let dur_ns = dur_ns.unwrap_or(0);
    if let Some(start_ns) = mono_ns {
        return Time::Mono { start_ns, end_ns: start_ns.saturating_add(dur_ns) };
    }
    match ts.and_then(parse_ts).and_then(|ns| i64::try_from(ns).ok()) {
        Some(start_ns) => Time::Wall { start_ns, dur_ns },
        None => Time::None,
    }
}

/// The time of an object of which some known key has a type of its own: it is passed on as it is, at its place.
fn loose_time(line: &[u8]) -> Time {
    #[derive(Deserialize)]
    struct Loose<'a> {
        #[serde(borrow)]
        mono_ns: Option<&'a RawValue>,
        #[serde(borrow)]
        ts: Option<&'a RawValue>,
        #[serde(borrow)]
        dur_ns: Option<&'a RawValue>,
    }
    let Ok(loose) = serde_json::from_slice::<Loose<'_>>(line) else { return Time::None };
    let number = |raw: Option<&RawValue>| raw.and_then(|raw| raw.get().parse::<u64>().ok());
    let ts = loose.ts.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    time_of(number(loose.mono_ns), ts.as_deref(), number(loose.dur_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(line: &str) -> Item {
        let mut batch = Batch::default();
        batch.push(Line { bytes: line.as_bytes(), number: 1, too_long: false });
        assert_eq!(batch.line(&batch.items[0]).len(), batch.bytes.len());
        batch.items.remove(0)
    }

    #[test]
    fn exits_of_threads_and_of_processes_are_told_apart() {
        let exit = |tid: &str| item(&format!(r#"{{"src":"sched","op":"sched_process_exit","pid":7{tid}}}"#)).kind;
        assert!(matches!(exit(r#","tid":7"#), Kind::Change(Change::ProcessExit)));
        assert!(matches!(exit(""), Kind::Change(Change::ProcessExit)));
        assert!(matches!(exit(r#","tid":8"#), Kind::Change(Change::ThreadExit)));
    }

    #[test]
    fn who_held_the_cpu() {
        let holder = |keys: &str| match item(&format!(
            r#"{{"src":"sched","op":"sched_switch","mono_ns":1,"dur_ns":9,"pid":7,"tid":7,{keys}}}"#
        ))
        .kind
        {
            Kind::Switch(s) => (s.state, s.runq_ns, s.holder.map(|(pid, _)| pid)),
            other => panic!("{other:?}"),
        };
        let who = r#""by":{"pid":3,"tid":3,"comm":"b"},"prev":{"pid":4,"tid":4,"comm":"p"}"#;
        assert_eq!(holder(&format!(r#""state":"R","runq_ns":0,{who}"#)), (State::Preempted, 9, Some(3)));
        assert_eq!(holder(&format!(r#""state":"S","runq_ns":2,{who}"#)), (State::Sleep, 2, Some(4)));
        assert_eq!(holder(&format!(r#""state":"S","runq_ns":0,{who}"#)), (State::Sleep, 0, None));
        assert_eq!(holder(&format!(r#""state":"D","runq_ns":99,{who}"#)), (State::Uninterruptible, 9, Some(4)));
        assert_eq!(holder(r#""state":"R+","by":{"pid":0,"tid":0,"comm":"swapper/3"}"#), (State::Preempted, 9, None));
        assert_eq!(holder(r#""runq_ns":0"#).0, State::Unknown);
        assert_eq!(holder(r#""state":"T""#).0, State::Stopped);
    }

    #[test]
    fn objects_of_other_shapes_keep_their_time() {
        assert_eq!(item(r#"{"mono_ns":5,"dur_ns":2,"pid":"seven"}"#).time, Time::Mono { start_ns: 5, end_ns: 7 });
        assert_eq!(item(r#"{"mono_ns":5.5}"#).time, Time::None);
        let wall = Time::Wall { start_ns: 1_000_000_005, dur_ns: 0 };
        assert_eq!(item(r#"{"ts":"1970-01-01T00:00:01.000000005Z","state":7}"#).time, wall);
        assert_eq!(item(r#"{"ts":"yesterday"}"#).time, Time::None);
    }

    #[test]
    fn a_call_that_has_its_host_object_gets_no_second_one() {
        let call = |rest: &str| item(&format!(r#"{{"src":"cudart","op":"x","mono_ns":1{rest}}}"#)).kind;
        assert!(matches!(call(r#","dur_ns":2"#), Kind::Call { outermost: true }));
        assert!(matches!(call(r#","dur_ns":2,"depth":1"#), Kind::Call { outermost: false }));
        assert!(matches!(call(r#","dur_ns":2,"host":{"off_ns":1}"#), Kind::Call { outermost: false }));
    }

    #[test]
    fn a_call_gets_a_host_object_where_its_interval_is_known_and_over() {
        let call = |rest: &str| item(&format!(r#"{{"src":"cudart","op":"x","mono_ns":1{rest}}}"#)).kind;
        assert!(matches!(call(r#","dur_ns":2,"open":true"#), Kind::Call { outermost: true }));
        assert!(matches!(call(r#","dur_ns":2,"open":true,"stuck":true"#), Kind::Call { outermost: false }));
        assert!(matches!(call(""), Kind::Call { outermost: false }));
    }
}
