//! Sums on streams in which anything may happen.
//!
//! Records are late, lost, cut or twice there; calls hang, have no end or overlap; tracers begin late, stop and begin again;
//! processes fork, become other programs and end. Nothing is said here about what is right, but whatever happens, each
//! account adds up to what was observed, what the findings lost is what the account calls lost, and causes add up.

use proptest::prelude::*;

use super::{Dice, config};
use crate::input::ingest::Engine;
use crate::process::Tail;
use crate::process::class::Class;
use crate::report::Wanted;
use crate::testing::engine;

const BASE_NS: u64 = 3_000_000_000;
const US: u64 = 1_000;

const OPS: [(&str, &str); 24] = [
    ("cudart", "cudaLaunchKernel"),
    ("cudart", "cudaLaunchKernel"),
    ("cudart", "cudaLaunchKernel"),
    ("cudart", "cudaGraphLaunch"),
    ("cudart", "cudaMemcpyAsync"),
    ("cudart", "cudaMemcpy"),
    ("cudart", "cudaMemsetAsync"),
    ("cudart", "cudaStreamSynchronize"),
    ("cudart", "cudaDeviceSynchronize"),
    ("cudart", "cudaDeviceSynchronize"),
    ("cudart", "cudaEventSynchronize"),
    ("cudart", "cudaEventQuery"),
    ("cudart", "cudaEventRecord"),
    ("cudart", "cudaMalloc"),
    ("cudart", "cudaFree"),
    ("cudart", "cudaSetDevice"),
    ("cudart", "cudaGetLastError"),
    ("cuda", "cuModuleLoadData"),
    ("cuda", "cuModuleUnload"),
    ("cuda", "cuCtxCreate"),
    ("cuda", "cuInit"),
    ("nccl", "ncclAllReduce"),
    ("cudart", "cudaNewInNextYearsVersion"),
    ("cuda", "cuLibraryLoadData"),
];

/// Records with the times at which they end, in nanoseconds after the beginning.
#[derive(Default)]
struct Stream {
    records: Vec<(u64, String)>,
}

impl Stream {
    fn put(&mut self, at_ns: u64, dur_ns: u64, rest: &str) {
        let dur = if dur_ns > 0 { format!(r#""dur_ns":{dur_ns},"#) } else { String::new() };
        let mono_ns = BASE_NS + at_ns;
        self.records.push((at_ns + dur_ns, format!(r#"{{"mono_ns":{mono_ns},{dur}{rest}}}"#)));
    }
}

fn stream(seed: u64) -> Vec<String> {
    let mut dice = Dice(seed);
    let mut stream = Stream::default();
    let (pids, tame) = (1 + dice.roll(2) as u32, dice.roll(2) == 0);
    let span_ns = dice.one_of(&[40_000, 3_000_000, 25_000_000]) * US;
    let at = |dice: &mut Dice| span_ns / 1000 * dice.roll(1001) as u64;
    for pid in (0..pids).map(|n| 100 * (n + 1)) {
        for _ in 0..1 + dice.roll(3) {
            calls(&mut stream, &mut dice, pid, span_ns, tame);
        }
        for side in ["cuda", "sched"] {
            for _ in 0..dice.roll(3) {
                let t = if dice.roll(2) == 0 { 0 } else { at(&mut dice) };
                stream.put(t, 0, &format!(r#""src":"ingero","op":"watch","pid":{pid},"stream":"{side}""#));
            }
        }
        if dice.roll(2) == 0 {
            let op = dice.one_of(&["sched_process_exec", "sched_process_exit", "thread_exit"]);
            let tid = pid + if op == "thread_exit" { 1 } else { 0 };
            stream.put(at(&mut dice), 0, &format!(r#""src":"sched","op":"{op}","pid":{pid},"tid":{tid},"comm":"x""#));
        }
        if dice.roll(3) == 0 {
            let rest = format!(r#""src":"sched","op":"sched_process_fork","pid":1,"tid":1,"child_pid":{pid}"#);
            stream.put(if dice.roll(2) == 0 { 0 } else { at(&mut dice) }, 0, &rest);
        }
        for _ in 0..dice.roll(30) {
            let (state, waker) = (dice.one_of(&["S", "R", "D", "T"]), 100 * (1 + dice.roll(3)));
            let dur_ns = 1 + dice.roll_one_of(&[300, 9000]) as u64 * US;
            let rest = format!(
                r#""src":"sched","op":"sched_switch","pid":{pid},"tid":{},"comm":"x","state":"{state}","runq_ns":{},"cpu":{},"waker":{{"pid":{waker},"tid":{waker},"comm":"w"}}"#,
                pid + dice.roll(3) as u32,
                dice.roll(5000),
                dice.roll(2),
            );
            stream.put(at(&mut dice), dur_ns, &rest);
        }
    }
    for _ in 0..dice.roll(4) {
        let (side, why) = (dice.one_of(&["cuda", "sched"]), dice.one_of(&["ring_full", "sampled", "bad_line"]));
        let count = dice.one_of(&[r#","count":3"#, r#","count":0"#, r#","count":4000"#, ""]);
        let pid = dice.one_of(&[r#","pid":100"#, ""]);
        let dur_ns = dice.roll_one_of(&[2, 40_000, 900_000]) as u64 * US;
        let rest = format!(r#""src":"ingero","op":"lost","stream":"{side}","why":"{why}"{count}{pid}"#);
        stream.put(at(&mut dice), dur_ns, &rest);
    }
    for _ in 0..dice.roll(4) {
        let rest =
            format!(r#""src":"sys","op":"sample","cpu_pct":50.0,"gpu":[{{"index":0,"util_pct":{}}}]"#, dice.roll(101));
        stream.put(at(&mut dice), 1_000_000 * US, &rest);
    }
    for side in ["cuda", "sched"] {
        if dice.roll(3) > 0 {
            let t = if dice.roll(4) == 0 { at(&mut dice) } else { span_ns + 2_000_000 * US };
            stream.put(t, 0, &format!(r#""src":"ingero","op":"end","stream":"{side}""#));
        }
    }
    // Late by up to 100 ms, some of them.
    if dice.roll(2) == 0 {
        for (end_ns, _) in &mut stream.records {
            *end_ns += if dice.roll(20) == 0 { dice.roll(100_000) as u64 * US } else { 0 };
        }
    }
    stream.records.sort_by_key(|(end_ns, _)| *end_ns);
    stream.records.into_iter().map(|(_, line)| line).collect()
}

/// `tame`: all on one stream of one device.
fn calls(stream: &mut Stream, dice: &mut Dice, pid: u32, span_ns: u64, tame: bool) {
    let tid = pid + dice.roll(4) as u32;
    let mut at_ns = dice.roll(1000) as u64 * US;
    let pace = dice.one_of(&[40, 4000, 100_000]);
    let mut n = 0;
    while at_ns < span_ns && n < 400 {
        n += 1;
        let (src, op) = dice.one_of(if tame { &OPS[..15] } else { &OPS });
        let dur_ns = 1 + dice.roll_one_of(&[30, 300, 3000, pace]) as u64 * US + dice.roll(1000) as u64;
        let queue = if tame { "" } else { dice.one_of(&["", r#","stream":"0x7""#, r#","stream":"0x8""#]) };
        let dir = if op.contains("Memcpy") { dice.one_of(&[r#","dir":"h2d""#, r#","dir":"d2h""#]) } else { "" };
        let ret = dice.one_of(&[r#","ret":0"#, r#","ret":0"#, r#","ret":600"#, ""]);
        let depth = usize::from(dice.roll(12) == 0);
        let bytes = 1 << dice.roll(26);
        let who = format!(r#""src":"{src}","op":"{op}","pid":{pid},"tid":{tid},"comm":"t","depth":{depth}"#);
        match dice.roll(40) {
            // Only its entry is traced.
            0 => stream.put(at_ns, 0, &who),
            // It is told of while it hangs, and maybe again when it returns.
            1 => {
                stream.put(at_ns, dur_ns / 2 + 1, &format!(r#"{who},"open":true"#));
                if dice.roll(2) == 0 {
                    stream.put(at_ns, dur_ns, &format!("{who}{ret}"));
                }
            }
            _ => stream.put(
                at_ns,
                dur_ns,
                &format!(r#"{who}{ret}{queue}{dir},"bytes":{bytes},"func":"0x{}""#, dice.roll(3)),
            ),
        }
        at_ns += dur_ns + dice.roll_one_of(&[1, 20, pace, pace * 10]) as u64 * US;
    }
}

fn check(engine: &mut Engine) -> Result<(), TestCaseError> {
    for process in engine.cuda.values() {
        for tail in [Tail::ShutDown, Tail::Stalled, Tail::Open] {
            let account = process.account(BASE_NS, tail, (engine.sources(), &engine.cuda_losses));
            let (classes, ledger) = (account.classes, &account.ledger);
            let (from_ns, to_ns) = account.observed_ns;
            prop_assert_eq!(classes.total_ns(), to_ns - from_ns);
            let outside = [Class::StartUp, Class::WindDown].map(|class| classes.get(class)).iter().sum::<u64>();
            prop_assert_eq!(account.loop_len_ns(), classes.total_ns() - outside, "{:?} {:?}", tail, account.loop_ns);
            if tail != Tail::Stalled {
                let lost: u64 = ledger.lost.values().map(|sum| sum.lost_ns).sum();
                let proven: u64 = ledger.lost.values().map(|sum| sum.proven_ns).sum();
                prop_assert_eq!((lost, proven), (classes.lost_ns(), classes.get(Class::Idle)));
            }
            for sum in ledger.lost.values() {
                prop_assert_eq!(sum.breakdown.total_ns(), sum.lost_ns);
                prop_assert_eq!(sum.lengths.len(), sum.n);
                prop_assert_eq!(sum.grid.slices.iter().sum::<u64>(), sum.lost_ns);
                prop_assert!(sum.watched_ns <= sum.lost_ns);
            }
        }
    }
    let report = engine.report(Wanted { details: true, so_far: false });
    for account in &report.accounts {
        prop_assert_eq!(account.classes.total_ns(), account.observed_ns);
        prop_assert_eq!(account.classes.lost_ns(), account.lost_ns);
    }
    for finding in &report.findings {
        let causes = finding.lost.causes.iter().map(|line| line.ns).sum::<u64>();
        prop_assert_eq!(causes + finding.lost.unexplained_ns, finding.lost.lost_ns, "{}", finding.id);
        prop_assert!((0.0..=1.0).contains(&finding.lost.lost_share), "{} {}", finding.id, finding.lost.lost_share);
        for one in &finding.occurrences {
            prop_assert_eq!(one.causes.iter().map(|line| line.ns).sum::<u64>() + one.unexplained_ns, one.dur_ns);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20 * config().cases, ..config() })]

    #[test]
    fn whatever_happens_it_adds_up(seed: u64) {
        let lines = stream(seed);
        for eager in [false, true] {
            check(&mut engine(&lines, eager))?;
        }
    }
}
