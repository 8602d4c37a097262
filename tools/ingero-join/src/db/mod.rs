//! SQLite recordings of ingero (`.db`) as an input: their rows become records of our contract.
//!
//! What such a file says and does not say, and what becomes of it:
//!
//! | in the file                                                      | here                                            |
//! |------------------------------------------------------------------|-------------------------------------------------|
//! | times are wall clock only                                        | `mono_ns` counts from the file's beginning; the `boot_id` is the file's own, so that it is never compared with a real monotonic clock unasked |
//! | CUDA rows are stamped at their start, scheduler rows at their end | both become [start, + duration]                 |
//! | runtime calls and the driver calls inside them, side by side      | `depth` from which interval contains which      |
//! | `sched_switch` rows have no state                                | no `state`: the time counts as unknown          |
//! | `sched_switch` rows name the thread where others name the process | the process, where a CUDA row of that thread tells it |
//! | rows that were counted a minute and kind, but not stored          | `lost` records over that minute, `why` "sampled" |
//! | nothing on when the watch began                                  | `watch` from a process's first stored row of that kind |
//!
//! Rows come out in order of their ends, which needs little memory: a row is held until the file has been
//! read to its end.

mod guard;
mod query;
mod row;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use ingero_common::ndjson::Line;
use rusqlite::Connection;

use crate::db::query::{Event, Facts};
use crate::db::row::{Renderer, Row};
use crate::item::{Batch, Item, Kind};

/// Calls of one thread that are open at once: a runtime call contains a driver call, and hardly ever another.
const MAX_OPEN: usize = 64;

/// Whether a regular file is an SQLite database.
pub(crate) fn is_database(path: &Path) -> bool {
    let mut magic = [0; 16];
    File::open(path).and_then(|mut f| f.read_exact(&mut magic)).is_ok() && &magic == b"SQLite format 3\0"
}

/// Reads a recording and hands it on in batches.
pub(crate) fn read(path: &Path, mut put: impl FnMut(Box<Batch>)) -> anyhow::Result<()> {
    let name = path.display().to_string();
    let doing = || format!("reading the SQLite recording {name}");
    let connection = query::open(path).with_context(doing)?;
    let facts = Facts::read(&connection).map_err(guard::explain).with_context(doing)?;
    let mut import = Import::new(&facts, &name);
    import.begin()?;
    import.events(&connection, &mut put).map_err(guard::explain).with_context(doing)?;
    import.release(i64::MAX, &mut put)?;
    import.end()?;
    put(import.batch);
    Ok(())
}

struct Import<'a> {
    facts: &'a Facts,
    renderer: Renderer<'a>,
    batch: Box<Batch>,
    lines: u64,
    held: BinaryHeap<Reverse<Held>>,
    rows: u64,
    /// Ends of the open calls of each thread, outermost first.
    open_calls: HashMap<u32, Vec<i64>>,
    watched_cuda: HashSet<u32>,
    watched_sched: HashSet<u32>,
}

/// A row that waits for its end; the number keeps equal ends in order.
struct Held {
    end_ns: i64,
    number: u64,
    row: Row,
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.end_ns, self.number).cmp(&(other.end_ns, other.number))
    }
}

impl<'a> Import<'a> {
    fn new(facts: &'a Facts, name: &'a str) -> Self {
        Self {
            facts,
            renderer: Renderer::new(facts, name),
            batch: Box::default(),
            lines: 0,
            held: BinaryHeap::new(),
            rows: 0,
            open_calls: HashMap::new(),
            watched_cuda: HashSet::new(),
            watched_sched: HashSet::new(),
        }
    }

    /// The first line, and everything that does not come from `events`.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.push_line(&Row::Start)?;
        for loss in &self.facts.losses {
            if loss.stream == Some("sched") {
                // The line itself comes in its place, at the end of its minute. Calls within that minute
                // are written before, and must know.
                let (start_ns, end_ns) = (self.facts.mono_ns(loss.start_ns), self.facts.mono_ns(loss.end_ns));
                let kind = Kind::LossAhead { start_ns, end_ns };
                self.batch.items.push(Item { pid: Some(loss.pid), kind, ..Item::other() });
            }
            self.hold(loss.end_ns, Row::Lost(loss.clone()));
        }
        for sample in &self.facts.samples {
            self.hold(sample.end_ns, Row::Sample(sample.clone()));
        }
        Ok(())
    }

    fn events(&mut self, connection: &Connection, put: &mut impl FnMut(Box<Batch>)) -> anyhow::Result<()> {
        query::events(connection, |event| {
            // Every later row ends at its own stamp or after it.
            self.release(event.stamp_ns, put)?;
            self.event(event);
            Ok(())
        })
    }

    fn event(&mut self, mut event: Event) {
        let Some(kind) = self.facts.kinds.get(&(event.source, event.op)) else { return };
        if kind.is_call() {
            let end_ns = event.stamp_ns.saturating_add(event.dur_ns);
            let depth = self.depth(event.tid, event.stamp_ns, end_ns);
            if self.watched_cuda.insert(event.pid) {
                self.hold(event.stamp_ns, Row::Watch { stream: "cuda", pid: event.pid, at_ns: event.stamp_ns });
            }
            self.hold(end_ns, Row::Call { event, depth });
            return;
        }
        if kind.is_switch() {
            if let Some(&pid) = self.facts.process_of.get(&event.tid).filter(|_| event.pid == event.tid) {
                event.pid = pid;
            }
            if self.facts.cuda_pids.contains(&event.pid) && self.watched_sched.insert(event.pid) {
                self.hold(event.stamp_ns, Row::Watch { stream: "sched", pid: event.pid, at_ns: event.stamp_ns });
            }
        }
        self.hold(event.stamp_ns, Row::Other(event));
    }

    /// How many open calls of the thread contain this one. Rows come in order of their starts, outer ones first.
    fn depth(&mut self, tid: u32, start_ns: i64, end_ns: i64) -> u32 {
        let open = self.open_calls.entry(tid).or_default();
        open.retain(|&outer_end_ns| outer_end_ns > start_ns);
        let depth = open.iter().filter(|&&outer_end_ns| outer_end_ns >= end_ns).count();
        if open.len() < MAX_OPEN {
            open.push(end_ns);
        }
        depth as u32
    }

    fn hold(&mut self, end_ns: i64, row: Row) {
        self.rows += 1;
        self.held.push(Reverse(Held { end_ns, number: self.rows, row }));
    }

    /// Lets go of what ends before `until_ns`.
    fn release(&mut self, until_ns: i64, put: &mut impl FnMut(Box<Batch>)) -> anyhow::Result<()> {
        while self.held.peek().is_some_and(|first| first.0.end_ns < until_ns) {
            let Some(Reverse(Held { row, .. })) = self.held.pop() else { break };
            self.push_line(&row)?;
            if self.batch.is_full() {
                put(std::mem::take(&mut self.batch));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.push_line(&Row::End)
    }

    fn push_line(&mut self, row: &Row) -> anyhow::Result<()> {
        self.lines += 1;
        let bytes = self.renderer.line(row)?;
        self.batch.push(Line { bytes, number: self.lines, too_long: false });
        Ok(())
    }
}
