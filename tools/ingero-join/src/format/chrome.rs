//! A trace in the JSON that ui.perfetto.dev and chrome://tracing open.
//!
//! | record            | becomes                                                                            |
//! |-------------------|------------------------------------------------------------------------------------|
//! | a call            | a slice on its thread's track, with its arguments and `host`; an instant where only its entry was traced |
//! | `sched_switch`    | a slice on a second track of the thread, "off CPU": `preempted by NAME`, `asleep`, `I/O`; the part spent waiting for a CPU is a slice inside it, at its end |
//! | its `waker`       | an arrow from the waker's second track, at the instant of the wake-up              |
//! | `sys` samples     | counters: CPUs (busy share, busiest, steal), runnable threads, free memory, GPUs   |
//! | forks, exits, losses and the like | instants                                                           |
//!
//! Why two tracks: slices of one track must nest, and a thread may well be preempted before a call and
//! come back in the middle of it.
//!
//! The format's times are microseconds; they are written with three decimals, so that no nanosecond is
//! lost. It is described in "Trace Event Format" (Google, 2016) and in Perfetto's documentation.

use std::collections::HashSet;
use std::io;

use ingero_common::ndjson::to_json;
use ingero_common::record::{Parsed, Record, Who, parse, src};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::format::Writer;
use crate::sink::Sink;

/// Thread numbers of the second tracks begin here; the kernel's stay below 2^22.
const OFF_CPU_TRACKS: u32 = 1_000_000_000;

/// So many tracks get a name; a stream with more is no trace to look at.
const MAX_NAMED: usize = 1 << 20;

/// An entry of `traceEvents`.
#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cat: &'a str,
    ts: Micros,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<Micros>,
    pid: u32,
    tid: u32,
    /// Which arrow.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// An arrow binds to the slice around it; an instant belongs to its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Value::is_null")]
    args: Value,
}

/// Nanoseconds, written as microseconds without loss.
#[derive(Clone, Copy)]
struct Micros(u64);

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = format!("{}.{:03}", self.0 / 1000, self.0 % 1000);
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

/// What the counters are made of.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sample {
    cpu_pct: Option<f64>,
    cpu_max_pct: Option<f64>,
    steal_pct: Option<f64>,
    iowait_pct: Option<f64>,
    runnable: Option<f64>,
    mem_avail_bytes: Option<u64>,
    gpu: Vec<Gpu>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Gpu {
    index: u32,
    util_pct: Option<f64>,
    mem_used_bytes: Option<u64>,
}

pub(super) struct Chrome<S: Sink> {
    out: S,
    line: Vec<u8>,
    begun: bool,
    /// Tracks that have a name: process, thread.
    named: HashSet<(u32, u32)>,
    arrows: u64,
}

impl<S: Sink> Chrome<S> {
    pub(super) fn new(out: S) -> Self {
        Self { out, line: Vec::new(), begun: false, named: HashSet::new(), arrows: 0 }
    }

    fn put(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        self.line.extend_from_slice(if self.begun {
            b",\n"
        } else {
            b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        });
        self.begun = true;
        to_json(&mut self.line, event)?;
        self.out.write_all(&self.line)
    }

    /// Names a thread's track, and its process by its first thread.
    fn name(&mut self, pid: u32, tid: u32, comm: &str, off_cpu: bool) -> io::Result<u32> {
        let track = if off_cpu { tid.saturating_add(OFF_CPU_TRACKS) } else { tid };
        if self.named.len() >= MAX_NAMED || !self.named.insert((pid, track)) {
            return Ok(track);
        }
        let name = if off_cpu { format!("{comm} {tid}, off CPU") } else { format!("{comm} {tid}") };
        self.put(&json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": track, "args": {"name": name}}))?;
        // Each thread's two tracks stay together.
        let order = u64::from(tid) * 2 + u64::from(off_cpu);
        self.put(
            &json!({"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": track, "args": {"sort_index": order}}),
        )?;
        if self.named.insert((pid, u32::MAX)) {
            self.put(&json!({"ph": "M", "name": "process_name", "pid": pid, "tid": track, "args": {"name": comm}}))?;
        }
        Ok(track)
    }

    fn call(&mut self, r: &Record<'_>, mono_ns: u64, pid: u32, tid: u32) -> io::Result<()> {
        self.name(pid, tid, &r.comm, false)?;
        let mut args = Map::new();
        let numbers =
            [("ret", r.ret.map(Value::from)), ("bytes", r.bytes.map(Value::from)), ("count", r.count.map(Value::from))];
        let texts = [("dir", &r.dir), ("stream", &r.stream), ("func", &r.func)];
        args.extend(numbers.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        args.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.as_deref()?.into()))));
        if let Some(host) = r.host.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
            args.insert("host".to_owned(), host);
        }
        if r.open {
            args.insert("open".to_owned(), true.into());
        }
        self.put(&slice(&r.op, &r.src, mono_ns, r.dur_ns.unwrap_or(0), pid, tid, args.into()))
    }

    fn switch(&mut self, r: &Record<'_>, mono_ns: u64, pid: u32, tid: u32) -> io::Result<()> {
        let track = self.name(pid, tid, &r.comm, true)?;
        let dur_ns = r.dur_ns.unwrap_or(0);
        let end_ns = mono_ns.saturating_add(dur_ns);
        let by = r.by.as_ref().filter(|by| by.pid != 0);
        let state = r.state.as_deref().unwrap_or_default();
        let name = match (state.as_bytes().first(), by) {
            (Some(b'R'), Some(by)) => format!("preempted by {} {}", &*by.comm, by.pid),
            (Some(b'R'), None) => "runnable, but not run".to_owned(),
            (Some(b'S' | b'I'), _) => "asleep".to_owned(),
            (Some(b'D'), _) => "I/O".to_owned(),
            (Some(_), _) => format!("off CPU ({state})"),
            (None, _) => "off CPU".to_owned(),
        };
        self.put(&slice(
            &name,
            "sched",
            mono_ns,
            dur_ns,
            pid,
            track,
            json!({"state": state, "cpu": r.cpu, "prev": r.prev.as_ref().map(who)}),
        ))?;
        let runq_ns = r.runq_ns.unwrap_or(0).min(dur_ns);
        if runq_ns > 0 && !state.starts_with('R') {
            self.put(&slice(
                "waiting for a CPU",
                "sched",
                end_ns - runq_ns,
                runq_ns,
                pid,
                track,
                json!({"prev": r.prev.as_ref().map(who)}),
            ))?;
        }
        match &r.waker {
            // An interrupt is not the thread that it interrupted.
            Some(waker) if !r.waker_irq && dur_ns > 0 => {
                // Inside the slice even where it ends at once.
                let woken_ns = (end_ns - runq_ns).min(end_ns - 1);
                self.arrow(waker, woken_ns, &r.comm, pid, tid, track)
            }
            _ => Ok(()),
        }
    }

    fn arrow(&mut self, waker: &Who<'_>, at_ns: u64, comm: &str, pid: u32, tid: u32, track: u32) -> io::Result<()> {
        let from = self.name(waker.pid, waker.tid, &waker.comm, true)?;
        self.arrows += 1;
        let id = Some(self.arrows);
        self.put(&slice(&format!("wakes {comm} {tid}"), "wake", at_ns, 1, waker.pid, from, Value::Null))?;
        let end = |ph, pid, tid, bp| Event { id, bp, ..event(ph, "wakes", "wake", at_ns, pid, tid) };
        self.put(&end("s", waker.pid, from, None))?;
        self.put(&end("f", pid, track, Some("e")))
    }

    fn sample(&mut self, line: &[u8], end_ns: u64) -> io::Result<()> {
        let Ok(sample) = serde_json::from_slice::<Sample>(line) else { return Ok(()) };
        let mut cpu = Map::new();
        for (name, value) in [
            ("busy", sample.cpu_pct),
            ("busiest", sample.cpu_max_pct),
            ("steal", sample.steal_pct),
            ("iowait", sample.iowait_pct),
        ] {
            cpu.extend(value.map(|value| (name.to_owned(), json!(value))));
        }
        self.counter("CPU %", end_ns, cpu)?;
        self.counter("runnable threads", end_ns, one("runnable", sample.runnable.map(|n| json!(n))))?;
        self.counter("memory available (bytes)", end_ns, one("bytes", sample.mem_avail_bytes.map(|n| json!(n))))?;
        for gpu in &sample.gpu {
            let util = one("busy", gpu.util_pct.map(|n| json!(n)));
            self.counter(&format!("GPU {} %", gpu.index), end_ns, util)?;
            let memory = one("bytes", gpu.mem_used_bytes.map(|n| json!(n)));
            self.counter(&format!("GPU {} memory (bytes)", gpu.index), end_ns, memory)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, at_ns: u64, args: Map<String, Value>) -> io::Result<()> {
        if args.is_empty() {
            return Ok(());
        }
        self.put(&Event { args: args.into(), ..event("C", name, "", at_ns, 0, 0) })
    }

    fn instant(&mut self, r: &Record<'_>, mono_ns: u64) -> io::Result<()> {
        let (pid, tid) = (r.pid.unwrap_or(0), r.tid.or(r.pid).unwrap_or(0));
        if pid != 0 {
            self.name(pid, tid, &r.comm, false)?;
        }
        let args = json!({
            "dur_ns": r.dur_ns, "count": r.count, "bytes": r.bytes, "stream": r.stream.as_deref(),
            "why": r.why.as_deref(), "child_pid": r.child_pid, "child_tid": r.child_tid,
        });
        let args = if let Value::Object(map) = args {
            map.into_iter().filter(|(_, v)| !v.is_null()).collect()
        } else {
            Map::new()
        };
        self.put(&Event {
            s: Some(if pid == 0 { "g" } else { "t" }),
            args: args.into(),
            ..event("i", &r.op, &r.src, mono_ns, pid, tid)
        })
    }
}

impl<S: Sink> Writer for Chrome<S> {
    fn record(&mut self, line: &[u8]) -> io::Result<()> {
        // What is no record of ours has no place in a trace.
        let Parsed::Record(r) = parse(line) else { return Ok(()) };
        let Some(mono_ns) = r.mono_ns else { return Ok(()) };
        // It would be drawn over what it says again.
        if r.double {
            return Ok(());
        }
        match (&*r.src, r.pid, r.tid) {
            // The slice of a call that is told of while it hangs is drawn when it is over.
            (s, ..) if src::is_call(s) && r.stuck => self.instant(&r, r.end_ns().unwrap_or(mono_ns)),
            (s, Some(pid), Some(tid)) if src::is_call(s) && r.dur_ns.is_some() => self.call(&r, mono_ns, pid, tid),
            (src::SCHED, Some(pid), Some(tid)) if &*r.op == "sched_switch" => self.switch(&r, mono_ns, pid, tid),
            (src::SYS, ..) if &*r.op == "sample" => self.sample(line, r.end_ns().unwrap_or(mono_ns)),
            // Thousands of them, and their sums are in `host`.
            (src::MEM, ..) if &*r.op == "mm_page_alloc" => Ok(()),
            _ => self.instant(&r, mono_ns),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        let text: &[u8] = if self.begun { b"\n]}\n" } else { b"{\"traceEvents\":[]}\n" };
        self.out.write_all(text)
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.out
    }
}

fn event<'a>(ph: &'static str, name: &'a str, cat: &'a str, at_ns: u64, pid: u32, tid: u32) -> Event<'a> {
    Event { ph, name, cat, ts: Micros(at_ns), dur: None, pid, tid, id: None, bp: None, s: None, args: Value::Null }
}

fn slice<'a>(name: &'a str, cat: &'a str, at_ns: u64, dur_ns: u64, pid: u32, tid: u32, args: Value) -> Event<'a> {
    Event { dur: Some(Micros(dur_ns)), args, ..event("X", name, cat, at_ns, pid, tid) }
}

fn who(who: &Who<'_>) -> String {
    format!("{} {}", &*who.comm, who.pid)
}

fn one(key: &str, value: Option<Value>) -> Map<String, Value> {
    value.map(|value| (key.to_owned(), value)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(lines: &[&str]) -> Vec<Value> {
        let mut out = Vec::new();
        let mut chrome = Chrome::new(&mut out);
        lines.iter().for_each(|line| chrome.record(line.as_bytes()).unwrap());
        chrome.finish().unwrap();
        drop(chrome);
        let trace: Value = serde_json::from_slice(&out).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn a_call_that_hangs_is_one_slice() {
        let mut out = Vec::new();
        let mut chrome = Chrome::new(&mut out);
        for end in [r#""dur_ns":4000,"open":true,"stuck":true"#, r#""dur_ns":9000,"ret":0"#] {
            let line = format!(r#"{{"src":"cudart","op":"c","mono_ns":1000,"pid":7,"tid":8,"depth":0,{end}}}"#);
            chrome.record(line.as_bytes()).unwrap();
        }
        chrome.finish().unwrap();
        drop(chrome);
        let trace: Value = serde_json::from_slice(&out).unwrap();
        let drawn: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["name"] == "c").collect();
        assert_eq!((&drawn[0]["ph"], drawn[0]["ts"].as_f64()), (&"i".into(), Some(5.0)));
        assert_eq!((&drawn[1]["ph"], drawn[1]["dur"].as_f64()), (&"X".into(), Some(9.0)));
        assert_eq!(drawn.len(), 2);
    }

    #[test]
    fn calls_and_off_cpu_time_have_tracks_of_their_own() {
        let events = trace(&[
            r#"{"src":"sched","op":"sched_switch","mono_ns":5000,"dur_ns":3000,"pid":7,"tid":8,"comm":"t","state":"S","runq_ns":1000,"waker":{"pid":9,"tid":9,"comm":"w"}}"#,
            r#"{"src":"cudart","op":"cudaMalloc","mono_ns":9007199254740993,"dur_ns":1,"pid":7,"tid":8,"comm":"t","bytes":4,"host":{"off_ns":0}}"#,
            r#"{"note":"no record of ours"}"#,
        ]);
        let with = |name: &str| events.iter().filter(|e| e["name"] == name).collect::<Vec<_>>();
        let (asleep, waiting, call) = (with("asleep")[0], with("waiting for a CPU")[0], with("cudaMalloc")[0]);
        assert_eq!((asleep["ts"].to_string(), asleep["dur"].to_string()), ("5.0".into(), "3.0".into()));
        assert_eq!((waiting["ts"].as_f64(), waiting["dur"].as_f64()), (Some(7.0), Some(1.0)));
        assert_eq!((&asleep["tid"], &call["tid"]), (&json!(OFF_CPU_TRACKS + 8), &json!(8)));
        assert_eq!((&call["args"]["bytes"], &call["args"]["host"]["off_ns"]), (&json!(4), &json!(0)));
        // The arrow begins in a slice of the waker and ends in the woken one's, at the same instant.
        let arrow = with("wakes");
        assert_eq!((arrow[0]["ph"].as_str(), arrow[1]["ph"].as_str()), (Some("s"), Some("f")));
        assert_eq!((arrow[0]["id"].as_u64(), arrow[0]["id"].as_u64()), (Some(1), arrow[1]["id"].as_u64()));
        assert_eq!((arrow[0]["ts"].as_f64(), arrow[1]["ts"].as_f64()), (Some(7.0), Some(7.0)));
        assert_eq!(with("wakes t 8")[0]["ts"].as_f64(), Some(7.0));
        assert_eq!(with("thread_name").len(), 3);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let mut out = Vec::new();
        let mut chrome = Chrome::new(&mut out);
        chrome
            .record(br#"{"src":"cudart","op":"c","mono_ns":9007199254740993,"dur_ns":1001,"pid":7,"tid":8}"#)
            .unwrap();
        chrome.finish().unwrap();
        drop(chrome);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""ts":9007199254740.993,"dur":1.001,"#), "{text}");
    }

    #[test]
    fn samples_become_counters_and_an_empty_stream_a_trace() {
        let events = trace(&[
            r#"{"src":"sys","op":"sample","mono_ns":1000,"dur_ns":1000,"cpu_pct":50.5,"runnable":3,"gpu":[{"index":1,"util_pct":20.0}]}"#,
        ]);
        let counters: Vec<_> = events
            .iter()
            .map(|e| (e["ph"].as_str().unwrap(), e["name"].as_str().unwrap(), e["ts"].as_f64().unwrap()))
            .collect();
        assert_eq!(counters, [("C", "CPU %", 2.0), ("C", "runnable threads", 2.0), ("C", "GPU 1 %", 2.0)]);
        assert!(trace(&[]).is_empty());
    }
}
