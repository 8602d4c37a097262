//! A recording of any length, made up but of the shape of real ones: a training loop with launches, copies and a
//! synchronise, fed by workers that take each other's CPU; every number follows from the number of the step.

use std::io::{self, Write};

/// The clock at the beginning of the recording, nanoseconds.
pub(crate) const START_NS: u64 = 1_000_000_000_000;

/// The training process and the first of its workers.
pub(crate) const TRAINER: u32 = 4242;
const WORKERS: u32 = 8;

/// Records of one step.
const PER_STEP: u64 = 20;

/// What the generated names are; the default is harmless.
pub(crate) struct Names<'a> {
    /// Of the training process.
    pub(crate) trainer: &'a str,
    /// Of its workers.
    pub(crate) worker: &'a str,
}

impl Default for Names<'_> {
    fn default() -> Self {
        Self { trainer: "train.py", worker: "pt_data_worker" }
    }
}

/// Writes about `records` records, as ingero-join would have written them.
pub(crate) fn joined(out: &mut impl Write, records: u64, names: &Names<'_>) -> io::Result<()> {
    let (trainer, worker) = (json(names.trainer), json(names.worker));
    let ts = "2026-11-29T12:00:00.000000000Z";
    for (tool, probes) in [
        ("ingero-join", ""),
        ("ingero-cuda", r#","probes":{"attached":["cudaLaunchKernel"],"missing":[],"mode":"session"}"#),
        ("ingero-sched", r#","probes":{"attached":["sched_switch"],"missing":[],"mode":"tp_btf"}"#),
    ] {
        writeln!(
            out,
            r#"{{"src":"ingero","op":"start","mono_ns":{START_NS},"ts":"{ts}","schema":1,"tool":"{tool}","version":"0.1.0","host":"node-1","boot_id":"b","clock":"monotonic","wall_offset_ns":"1795000000000000000","kernel":"6.18.0"{probes}}}"#
        )?;
    }
    for stream in ["cuda", "sched"] {
        for pid in TRAINER..=TRAINER + WORKERS {
            let (why, comm) = if pid == TRAINER { ("cuda", &trainer) } else { ("child", &worker) };
            writeln!(
                out,
                r#"{{"src":"ingero","op":"watch","mono_ns":{START_NS},"ts":"{ts}","stream":"{stream}","pid":{pid},"comm":{comm},"why":"{why}"}}"#
            )?;
        }
    }
    let mut now = START_NS;
    for step in 0..records / PER_STEP {
        // The GPU's process waits for a worker, longer at every tenth step.
        let gap = if step % 10 == 9 { 20_000_000 } else { 300_000 };
        let from = now;
        now += gap;
        let w = TRAINER + 1 + (step % u64::from(WORKERS)) as u32;
        let other = TRAINER + 1 + ((step + 1) % u64::from(WORKERS)) as u32;
        for part in 0..6 {
            let start = from + part * gap / 6;
            let dur = gap / 7;
            writeln!(
                out,
                r#"{{"src":"sched","op":"sched_switch","mono_ns":{start},"ts":"{ts}","dur_ns":{dur},"pid":{w},"tid":{w},"comm":{worker},"state":"R","runq_ns":{dur},"cpu":{},"by":{{"pid":{other},"tid":{other},"comm":{worker}}},"prev":{{"pid":{other},"tid":{other},"comm":{worker}}}}}"#,
                part % 2
            )?;
        }
        writeln!(
            out,
            r#"{{"src":"sched","op":"sched_switch","mono_ns":{from},"ts":"{ts}","dur_ns":{gap},"pid":{TRAINER},"tid":{TRAINER},"comm":{trainer},"state":"S","runq_ns":1000,"cpu":1,"by":{{"pid":{w},"tid":{w},"comm":{worker}}},"prev":{{"pid":0,"tid":0,"comm":"swapper/1"}},"waker":{{"pid":{w},"tid":{w},"comm":{worker}}}}}"#
        )?;
        let host = r#""host":{"off_ns":0,"preempted_ns":0,"runq_ns":0,"sleep_ns":0,"io_ns":0,"unknown_ns":0,"switches":0,"pages":0,"page_bytes":0,"by":[],"watched":true}"#;
        let mut call = |op: &str, dur: u64, rest: &str, host: &str| {
            let start = now;
            now += dur + 2_000;
            writeln!(
                out,
                r#"{{"src":"cudart","op":"{op}","mono_ns":{start},"ts":"{ts}","dur_ns":{dur},"pid":{TRAINER},"tid":{TRAINER},"comm":{trainer},"ret":0,"depth":0{rest},{host}}}"#
            )
        };
        call("cudaMemcpyAsync", 6_000 + step % 700, r#","bytes":1048576,"dir":"h2d","stream":"0x1""#, host)?;
        for launch in 0..11 {
            call(
                "cudaLaunchKernel",
                4_000 + (step * 31 + launch * 7) % 900,
                r#","func":"0x7f0000001000","grid":[64,1,1],"block":[256,1,1],"shmem":0,"stream":"0x1""#,
                host,
            )?;
        }
        let asleep = r#""host":{"off_ns":900000,"preempted_ns":0,"runq_ns":0,"sleep_ns":900000,"io_ns":0,"unknown_ns":0,"switches":1,"pages":0,"page_bytes":0,"by":[],"watched":true}"#;
        call("cudaStreamSynchronize", 1_000_000, r#","stream":"0x1""#, asleep)?;
        if step % 500 == 450 {
            // About the second before.
            let from = now - 1_000_000_000;
            writeln!(
                out,
                r#"{{"src":"sys","op":"sample","mono_ns":{from},"ts":"{ts}","dur_ns":1000000000,"cpu_pct":91.5,"cpu_max_pct":99.0,"cpus":2,"runnable":5,"iowait_pct":0.0,"steal_pct":0.0,"mem_avail_bytes":1000000000,"swap_used_bytes":0,"quota":[]}}"#
            )?;
        }
    }
    for stream in ["cuda", "sched", "join"] {
        writeln!(
            out,
            r#"{{"src":"ingero","op":"end","mono_ns":{now},"ts":"{ts}","stream":"{stream}","seen":{records},"written":{records},"lost":{{}},"user_ns":1,"sys_ns":1}}"#
        )?;
    }
    Ok(())
}

fn json(text: &str) -> String {
    serde_json::to_string(text).expect("a text is JSON")
}
