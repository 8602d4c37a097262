//! Rows of a recording as lines of the record contract.

use ingero_common::clock::{Ts, WallClock};
use ingero_common::ndjson::to_json;
use ingero_common::record::write::{Call, Decimal, Hex, Identity, Probes, Start, Task, Text, Watch};
use ingero_common::record::{SCHEMA_VERSION, src};
use serde::Serialize;

use crate::db::query::{Event, EventKind, Facts, Loss, SystemSample};

/// Something that becomes a line.
#[derive(Clone, Debug)]
pub(super) enum Row {
    Start,
    Watch { stream: &'static str, pid: u32, at_ns: i64 },
    Call { event: Event, depth: u32 },
    Other(Event),
    Sample(SystemSample),
    Lost(Loss),
    End,
}

/// Turns rows into lines.
pub(super) struct Renderer<'a> {
    facts: &'a Facts,
    name: &'a str,
    wall: WallClock,
    line: Vec<u8>,
}

/// What the recording does not know of a switch is absent.
#[derive(Serialize)]
struct SwitchRow<'a> {
    src: &'a str,
    op: &'a str,
    mono_ns: u64,
    ts: Ts,
    dur_ns: u64,
    pid: u32,
    tid: u32,
    comm: Text<'a>,
}

#[derive(Serialize)]
struct AmountRow<'a> {
    src: &'a str,
    op: &'a str,
    mono_ns: u64,
    ts: Ts,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur_ns: Option<u64>,
    pid: u32,
    tid: u32,
    comm: Text<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct SampleRow {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    ts: Ts,
    dur_ns: u64,
    cpu_pct: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<u32>,
    mem_avail_bytes: u64,
    swap_used_bytes: u64,
}

#[derive(Serialize)]
struct LostRow<'a> {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    ts: Ts,
    dur_ns: u64,
    stream: &'a str,
    count: u64,
    pid: u32,
    why: &'static str,
}

#[derive(Serialize)]
struct EndRow {
    src: &'static str,
    op: &'static str,
    mono_ns: u64,
    ts: Ts,
    seen: u64,
    written: u64,
    lost: SampledCount,
}

#[derive(Serialize)]
struct SampledCount {
    sampled: u64,
}

impl<'a> Renderer<'a> {
    pub(super) fn new(facts: &'a Facts, name: &'a str) -> Self {
        Self { facts, name, wall: WallClock::with_offset(facts.base_ns), line: Vec::new() }
    }

    /// The line of a row.
    pub(super) fn line(&mut self, row: &Row) -> anyhow::Result<&[u8]> {
        self.line.clear();
        match row {
            Row::Start => self.start()?,
            Row::Watch { stream, pid, at_ns } => self.watch(stream, *pid, *at_ns)?,
            Row::Call { event, depth } => self.call(event, *depth)?,
            Row::Other(event) => self.other(event)?,
            Row::Sample(sample) => self.sample(sample)?,
            Row::Lost(loss) => self.lost(loss)?,
            Row::End => self.end()?,
        }
        Ok(&self.line)
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let boot_id = format!("recording-{}", self.facts.base_ns);
        let start = Start {
            src: src::INGERO,
            op: "start",
            mono_ns: 0,
            ts: self.wall.ts(0),
            schema: SCHEMA_VERSION,
            tool: "ingero",
            version: &self.facts.version,
            host: "recording",
            boot_id: &boot_id,
            clock: "monotonic",
            wall_offset_ns: Decimal(self.facts.base_ns),
            kernel: &self.facts.kernel,
            filter: serde_json::json!({ "pid": self.facts.pid_filter }),
            probes: Probes { attached: vec![], missing: vec![], mode: "SQLite recording" },
        };
        Ok(to_json(&mut self.line, &start)?)
    }

    fn watch(&mut self, stream: &str, pid: u32, at_ns: i64) -> anyhow::Result<()> {
        let mono_ns = self.facts.mono_ns(at_ns);
        let watch = Watch {
            src: src::INGERO,
            op: "watch",
            mono_ns,
            ts: self.wall.ts(mono_ns),
            pid,
            tid: pid,
            ns_pid: None,
            comm: self.comm(pid),
            why: "cuda",
            stream,
            lib: vec![],
            layers: vec![],
            returns: None,
            note: Some("from the first stored row on"),
            who: Identity::default(),
        };
        Ok(to_json(&mut self.line, &watch)?)
    }

    fn call(&mut self, event: &Event, depth: u32) -> anyhow::Result<()> {
        let Some(kind) = self.facts.kinds.get(&(event.source, event.op)) else { return Ok(()) };
        let mono_ns = self.facts.mono_ns(event.stamp_ns);
        let op = kind.op.as_str();
        let amount = u64::try_from(event.arg0).ok();
        let copies = op.contains("Memcpy");
        let call = Call {
            src: &kind.src,
            op,
            mono_ns,
            ts: self.wall.ts(mono_ns),
            dur_ns: Some(event.dur_ns.unsigned_abs()),
            pid: event.pid,
            tid: event.tid,
            ns_pid: None,
            comm: self.comm(event.pid),
            ret: i32::try_from(event.ret).ok(),
            depth: Some(depth),
            sym: None,
            bytes: amount.filter(|_| copies || op.contains("Alloc")),
            dir: if copies && kind.src == src::CUDART { direction(event.arg1) } else { None },
            stream: None,
            // Pointers come as signed integers.
            func: op.contains("LaunchKernel").then_some(Hex(event.arg0 as u64)),
            grid: None,
            block: None,
            shmem: None,
            ptr: op.ends_with("Free").then_some(Hex(event.arg0 as u64)),
            count: None,
            dtype: None,
            rank: None,
            nranks: None,
            event: None,
            device: None,
            open: false,
            stuck: false,
        };
        Ok(to_json(&mut self.line, &call)?)
    }

    fn other(&mut self, event: &Event) -> anyhow::Result<()> {
        let Some(EventKind { src, op }) = self.facts.kinds.get(&(event.source, event.op)) else { return Ok(()) };
        let end_ns = self.facts.mono_ns(event.stamp_ns);
        let mono_ns = end_ns.saturating_sub(event.dur_ns.unsigned_abs());
        let (ts, comm) = (self.wall.ts(mono_ns), self.comm(event.pid));
        let (pid, tid, dur_ns) = (event.pid, event.tid, end_ns - mono_ns);
        let amount = u64::try_from(event.arg0).ok();
        match op.as_str() {
            "sched_switch" => to_json(&mut self.line, &SwitchRow { src, op, mono_ns, ts, dur_ns, pid, tid, comm })?,
            "sched_process_fork" | "sched_process_exec" | "sched_process_exit" => {
                let child_pid = if op == "sched_process_fork" { u32::try_from(event.arg0).ok() } else { None };
                let src = ingero_common::record::src::SCHED;
                let task =
                    Task { src, op, mono_ns, ts, pid, tid, comm, child_pid, child_tid: None, exe: None, code: None };
                to_json(&mut self.line, &task)?;
            }
            _ => {
                let dur_ns = (dur_ns > 0).then_some(dur_ns);
                let count = matches!(op.as_str(), "mm_page_alloc" | "tcp_retransmit").then_some(1);
                let bytes = amount.filter(|_| op == "mm_page_alloc" || src == src::BLOCK);
                to_json(&mut self.line, &AmountRow { src, op, mono_ns, ts, dur_ns, pid, tid, comm, count, bytes })?;
            }
        }
        Ok(())
    }

    fn sample(&mut self, sample: &SystemSample) -> anyhow::Result<()> {
        let end_ns = self.facts.mono_ns(sample.end_ns);
        let mono_ns = end_ns.saturating_sub(sample.dur_ns.unsigned_abs());
        let row = SampleRow {
            src: src::SYS,
            op: "sample",
            mono_ns,
            ts: self.wall.ts(mono_ns),
            dur_ns: end_ns - mono_ns,
            cpu_pct: sample.cpu_pct,
            cpus: Some(self.facts.cpus).filter(|&n| n > 0),
            mem_avail_bytes: sample.mem_avail_bytes,
            swap_used_bytes: sample.swap_used_bytes,
        };
        Ok(to_json(&mut self.line, &row)?)
    }

    fn lost(&mut self, loss: &Loss) -> anyhow::Result<()> {
        let (mono_ns, end_ns) = (self.facts.mono_ns(loss.start_ns), self.facts.mono_ns(loss.end_ns));
        let row = LostRow {
            src: src::INGERO,
            op: "lost",
            mono_ns,
            ts: self.wall.ts(mono_ns),
            dur_ns: end_ns - mono_ns,
            stream: loss.stream.unwrap_or(self.name),
            count: loss.count,
            pid: loss.pid,
            why: ingero_common::record::why::SAMPLED,
        };
        Ok(to_json(&mut self.line, &row)?)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let mono_ns = self.facts.mono_ns(self.facts.end_ns);
        let sampled = self.facts.losses.iter().fold(0u64, |sum, l| sum.saturating_add(l.count));
        let row = EndRow {
            src: src::INGERO,
            op: "end",
            mono_ns,
            ts: self.wall.ts(mono_ns),
            seen: self.facts.rows.saturating_add(sampled),
            written: self.facts.rows,
            lost: SampledCount { sampled },
        };
        Ok(to_json(&mut self.line, &row)?)
    }

    fn comm(&self, pid: u32) -> Text<'a> {
        Text(self.facts.names.get(&pid).map_or(&[], |name| name.as_bytes()))
    }
}

/// `cudaMemcpyKind` of the CUDA runtime.
fn direction(kind: i64) -> Option<&'static str> {
    match kind {
        0 => Some("h2h"),
        1 => Some("h2d"),
        2 => Some("d2h"),
        3 => Some("d2d"),
        _ => None,
    }
}
