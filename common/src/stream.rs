//! The frame of a tracer's stream: its first and last line, its clock, and the account of what was seen,
//! written and lost.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::clock::{Ts, WallClock, mono_ns};
use crate::ndjson::RecordWriter;
use crate::record::write::{Alive, ClockStep, Decimal, End, Lost, Probes, Start, Watch};
use crate::record::{SCHEMA_VERSION, src};

/// How often a live stream says that it has told of everything by then.
const ALIVE_EVERY: Duration = Duration::from_millis(50);
/// What ended so long before the buffer was read to its end was in it: a program in the kernel takes microseconds from its look at the
/// clock to its record, more only where the hypervisor has its CPU meanwhile; sums of page allocations lie for 10 ms and the tick of a
/// timer.
const SETTLED: Duration = Duration::from_millis(25);

/// How often the wall clock is compared with the offset in use.
const CLOCK_CHECK: Duration = Duration::from_secs(1);

/// Writes one tracer's stream.
///
/// `written` counts the records of traced events; the frame (`start`, `watch`, `clock`, `lost`, `end`)
/// counts in none of the totals.
#[derive(Debug)]
pub struct Stream<W> {
    records: RecordWriter<W>,
    clock: WallClock,
    /// `cuda` or `sched`: what `lost` and `watch` records call it.
    name: &'static str,
    tool: &'static str,
    version: &'static str,
    written: u64,
    lost: BTreeMap<&'static str, u64>,
    clock_checked: Instant,
    alive_told: Instant,
}

impl<W: Write> Stream<W> {
    /// A stream called `name` in its `lost` and `watch` records, made by `tool` of `version`.
    pub fn new(out: W, name: &'static str, tool: &'static str, version: &'static str) -> Self {
        Self {
            records: RecordWriter::new(out),
            clock: WallClock::measured(),
            name,
            tool,
            version,
            written: 0,
            lost: BTreeMap::new(),
            clock_checked: Instant::now(),
            alive_told: Instant::now(),
        }
    }

    /// Tells a reader that waits for it, now and then, how far this stream is: everything that the kernel side had at `read_ns` has been
    /// written.
    pub fn alive(&mut self, read_ns: u64) -> io::Result<()> {
        if self.alive_told.elapsed() < ALIVE_EVERY {
            return Ok(());
        }
        self.alive_told = Instant::now();
        let mono_ns = read_ns.saturating_sub(SETTLED.as_nanos() as u64);
        let record = Alive { src: src::INGERO, op: "alive", mono_ns, ts: self.clock.ts(mono_ns), stream: self.name };
        self.records.write(&record)
    }

    /// Writes the first line.
    pub fn start(&mut self, filter: impl Serialize, probes: Probes<'_>) -> io::Result<()> {
        let uname = rustix::system::uname();
        let boot_id = boot_id();
        let mono_ns = mono_ns();
        let record = Start {
            src: src::INGERO,
            op: "start",
            mono_ns,
            ts: self.clock.ts(mono_ns),
            schema: SCHEMA_VERSION,
            tool: self.tool,
            version: self.version,
            host: &uname.nodename().to_string_lossy(),
            boot_id: &boot_id,
            clock: "monotonic",
            wall_offset_ns: Decimal(self.clock.offset_ns()),
            kernel: &uname.release().to_string_lossy(),
            filter,
            probes,
        };
        self.records.write(&record)
    }

    /// An instant as wall clock text.
    pub fn ts(&mut self, mono_ns: u64) -> Ts {
        self.clock.ts(mono_ns)
    }

    /// An instant on the wall clock, ns since 1970.
    pub fn wall_ns(&self, mono_ns: u64) -> u64 {
        u64::try_from(i128::from(mono_ns) + i128::from(self.clock.offset_ns())).unwrap_or(0)
    }

    /// Writes the record of a traced event and counts it.
    pub fn event<T: Serialize>(&mut self, record: &T) -> io::Result<()> {
        self.written += 1;
        self.records.write(record)
    }

    /// Writes a `watch` record; `src`, `op`, `ts` and `stream` are filled in here.
    pub fn watch(&mut self, mut watch: Watch<'_>) -> io::Result<()> {
        watch.ts = self.clock.ts(watch.mono_ns);
        (watch.src, watch.op, watch.stream) = (src::INGERO, "watch", self.name);
        self.records.write(&watch)
    }

    /// Writes a `lost` record for `count` records missing in [`from_ns`, `to_ns`] and counts them.
    pub fn lost(
        &mut self,
        why: &'static str,
        count: u64,
        from_ns: u64,
        to_ns: u64,
        pid: Option<u32>,
    ) -> io::Result<()> {
        *self.lost.entry(why).or_default() += count;
        self.write_lost(why, Some(count), (from_ns, to_ns), pid)
    }

    /// Writes a `lost` record for an interval in which it is not known how many records are missing, so that it is in no sum.
    pub fn lost_unknown(&mut self, why: &'static str, from_ns: u64, to_ns: u64, pid: Option<u32>) -> io::Result<()> {
        self.write_lost(why, None, (from_ns, to_ns), pid)
    }

    fn write_lost(
        &mut self,
        why: &'static str,
        count: Option<u64>,
        (from_ns, to_ns): (u64, u64),
        pid: Option<u32>,
    ) -> io::Result<()> {
        let record = Lost {
            src: src::INGERO,
            op: "lost",
            mono_ns: from_ns,
            ts: self.clock.ts(from_ns),
            dur_ns: to_ns.saturating_sub(from_ns),
            stream: self.name,
            count,
            pid,
            why,
        };
        self.records.write(&record)
    }

    /// Compares the clocks once a second and writes a `clock` record when the wall clock was set.
    pub fn check_clock(&mut self) -> io::Result<()> {
        if self.clock_checked.elapsed() < CLOCK_CHECK {
            return Ok(());
        }
        self.clock_checked = Instant::now();
        let Some(step_ns) = self.clock.recheck() else { return Ok(()) };
        let mono_ns = mono_ns();
        let record = ClockStep {
            src: src::INGERO,
            op: "clock",
            mono_ns,
            ts: self.clock.ts(mono_ns),
            wall_offset_ns: Decimal(self.clock.offset_ns()),
            step_ns,
        };
        self.records.write(&record)
    }

    /// Writes the last line and flushes. `seen` must equal what was written plus what was lost. `mono_ns` is when
    /// tracing stopped, which is earlier than now: silence after it is no evidence.
    pub fn end(&mut self, seen: u64, mono_ns: u64) -> io::Result<()> {
        let (user_ns, sys_ns) = cpu_times_ns();
        let record = End {
            src: src::INGERO,
            op: "end",
            mono_ns,
            ts: self.clock.ts(mono_ns),
            stream: self.name,
            seen,
            written: self.written,
            lost: &self.lost,
            user_ns,
            sys_ns,
        };
        self.records.write(&record)?;
        self.records.get_mut().flush()
    }

    /// How many traced events were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// How many were lost, for all reasons.
    pub fn lost_total(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Where it writes to.
    pub fn out(&mut self) -> &mut W {
        self.records.get_mut()
    }
}

/// This boot's identity: clocks of two boots or hosts cannot be compared.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|s| s.trim().to_owned()).unwrap_or_default()
}

/// CPU time of this process in user and kernel mode, in nanoseconds: from getrusage's fields as
/// /proc/self/stat gives them (clock ticks), scaled to the exact total of CLOCK_PROCESS_CPUTIME_ID.
pub fn cpu_times_ns() -> (u64, u64) {
    let total = clock_gettime(ClockId::ProcessCPUTime);
    let total_ns = total.tv_sec as u64 * 1_000_000_000 + total.tv_nsec as u64;
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|stat| {
        // utime and stime are fields 14 and 15; the name in field 2 may hold anything, so count from its end.
        let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
        let utime: u64 = fields.next()?.parse().ok()?;
        let stime: u64 = fields.next()?.parse().ok()?;
        Some((utime, stime))
    });
    match ticks {
        Some((utime, stime)) if utime + stime > 0 => {
            let user_ns = (u128::from(total_ns) * u128::from(utime) / u128::from(utime + stime)) as u64;
            (user_ns, total_ns - user_ns)
        }
        _ => (total_ns, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_balances() {
        let mut stream = Stream::new(Vec::new(), "cuda", "ingero-cuda", "0.0.0");
        stream
            .start(serde_json::json!({"pid": [7]}), Probes { attached: vec!["cuInit"], missing: vec![], mode: "test" })
            .unwrap();
        stream.event(&serde_json::json!({"src": "cuda", "op": "cuInit"})).unwrap();
        stream.lost("ring_full", 3, 10, 25, Some(7)).unwrap();
        stream.end(4, 30).unwrap();
        let text = String::from_utf8(std::mem::take(stream.out())).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(
            lines.iter().map(|l| l["op"].as_str().unwrap()).collect::<Vec<_>>(),
            ["start", "cuInit", "lost", "end"]
        );
        assert_eq!((lines[0]["schema"].as_u64(), lines[0]["filter"]["pid"][0].as_u64()), (Some(1), Some(7)));
        assert_eq!((lines[2]["mono_ns"].as_u64(), lines[2]["dur_ns"].as_u64()), (Some(10), Some(15)));
        let end = &lines[3];
        assert_eq!(
            end["seen"].as_u64().unwrap(),
            end["written"].as_u64().unwrap() + end["lost"]["ring_full"].as_u64().unwrap()
        );
        assert!(end["user_ns"].is_u64() && end["sys_ns"].is_u64());
    }
}
