//! What a traced call costs in each tier, as a ratio to an empty pair of probes in the same run; and how long attaching and
//! detaching take.
//!
//!     sudo cargo bench -p ingero-ebpf --bench call_cost
//!
//! The called functions do next to nothing and begin with `push %rbp`, as CUDA's do: the time is that of the probes. Each
//! number is the median of several runs. Needs root; the tracefs row needs tracefs, and is left out without it.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark talks, and gives up where it cannot measure")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ingero_common::discover::elf::ElfFile;
use ingero_ebpf::attach::{Attacher, Ends, Mode, Point, ProgramNames};
use ingero_ebpf::cuda::{Config, SymbolSpec, Tracer};
use ingero_ebpf::load::Kernel;

static EMPTY: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/empty.bpf.o"));
const EMPTY_NAMES: ProgramNames = ProgramNames {
    session: "empty_session",
    entry: "empty_entry",
    entry_bucket: "empty_entry",
    returns: "empty_return",
    instant: "empty_entry",
    instant_bucket: "empty_entry",
    bucket_map: "buckets",
};
const RUNS: usize = 5;
const CALLS: &str = "400000";
const NAMES: [&[u8]; 4] = [b"f7", b"outer", b"f0", b"f1"];

fn main() {
    let kernel = Kernel::check().unwrap();
    let target = Target::compile();
    println!("linux {}, {RUNS} runs of {CALLS} calls, ns a call", kernel.release());
    println!("{:<46} {:>8} {:>8}", "", "ns", "ratio");
    let base = target.cost("cost");
    println!("{:<46} {base:>8.0}", "not traced");
    let empty = empty_pair(&kernel, &target);
    let row = |what: String, ns: f64| println!("{what:<46} {ns:>8.0} {:>8.2}", ns / empty);
    row("empty pair of probes (session or multi)".into(), empty);
    for mode in Mode::ALL {
        let Some(mut traced) = Traced::start(&kernel, &target, mode, false) else {
            println!("{mode:<46} not here");
            continue;
        };
        row(format!("{mode}: a call, written"), target.cost("cost"));
        if mode != Mode::Perf {
            // `outer` calls two others: what the pair of them adds, halved.
            let outer = target.cost("cost-nested");
            row(format!("{mode}: a call with two nested ones, not written"), outer);
            row(format!("{mode}: a nested call, not written"), (outer - target.cost("cost")) / 2.0);
        }
        let detach = traced.stop();
        println!("{:<46} {:>8.1} ms, {:.1} ms", format!("{mode}: attach and detach"), traced.attach_ms, detach);
    }
    let mut traced = Traced::start(&kernel, &target, Mode::Session, true).unwrap();
    row("session: a call with two nested ones, all written".into(), target.cost("cost-nested"));
    traced.stop();
}

/// Both ends of a call probed by programs that do nothing.
fn empty_pair(kernel: &Kernel, target: &Target) -> f64 {
    let mut ebpf = kernel.load(EMPTY, |_| ()).unwrap();
    let mut attacher = Attacher::new(kernel, EMPTY, &mut ebpf, EMPTY_NAMES, None).unwrap();
    let _attachment =
        attacher.attach(&mut ebpf, &File::open(&target.library).unwrap(), &target.points, Ends::Both).unwrap();
    target.cost("cost")
}

struct Target {
    library: PathBuf,
    program: PathBuf,
    points: Vec<Point>,
}

impl Target {
    fn compile() -> Self {
        let dir = std::env::temp_dir().join(format!("ingero-call-cost-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/target");
        let (library, program) = (dir.join("libtarget.so"), dir.join("target"));
        let gcc = |out: &Path, rest: &[&Path]| {
            let flags = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-fPIC", "-pthread", "-o"];
            assert!(Command::new("gcc").args(flags).arg(out).args(rest).status().unwrap().success());
        };
        gcc(&library, &[Path::new("-shared"), &source.join("lib.c")]);
        gcc(&program, &[&source.join("main.c"), &library]);
        let file = File::open(&library).unwrap();
        let functions = ElfFile::new(&file).unwrap().functions(|name| NAMES.contains(&name)).unwrap();
        let point = |name: &&[u8]| {
            let function = functions.list.iter().find(|function| function.names.iter().any(|n| n == name)).unwrap();
            Point { offset: function.probe_offset, symbol: 0, essential: *name == b"f7" }
        };
        let points = NAMES.iter().map(point).collect();
        Self { library, program, points }
    }

    /// The median over all runs, ns a call.
    fn cost(&self, scenario: &str) -> f64 {
        let mut runs: Vec<f64> = (0..RUNS).map(|_| self.run(scenario)).collect();
        runs.sort_by(f64::total_cmp);
        runs[RUNS / 2]
    }

    fn run(&self, scenario: &str) -> f64 {
        let mut child = Command::new(&self.program)
            .args([scenario, CALLS])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        line.trim().parse::<f64>().unwrap() / 1000.0
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.library.parent().unwrap());
    }
}

/// The tracer with a thread that reads its records.
struct Traced {
    stop: Arc<AtomicBool>,
    reader: Option<std::thread::JoinHandle<f64>>,
    attach_ms: f64,
}

impl Traced {
    fn start(kernel: &Kernel, target: &Target, mode: Mode, nested: bool) -> Option<Self> {
        let config = Config {
            nested,
            only_watched: false,
            follow_children: false,
            spare_seccomp: false,
            entry_only: false,
            stuck_ns: u64::MAX,
            ring_bytes: 64 << 20,
            mode: Some(mode),
        };
        let mut tracer = Tracer::new(kernel, config).ok()?;
        // The commonest need: a few words of registers.
        tracer.describe(0, SymbolSpec { words: 4, ..SymbolSpec::default() }).unwrap();
        let started = Instant::now();
        let attachment = tracer.attach(&File::open(&target.library).unwrap(), &target.points, Ends::Both).unwrap();
        let attach_ms = started.elapsed().as_secs_f64() * 1e3;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let reader = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if tracer.ring().drain(8192, |_| ()) < 8192 {
                    tracer.ring().wait(Duration::from_millis(50)).unwrap();
                }
            }
            let started = Instant::now();
            drop(attachment);
            let detach_ms = started.elapsed().as_secs_f64() * 1e3;
            let counters = tracer.counters().unwrap();
            if counters.lost() > 0 {
                println!(
                    "    of {} records {} were lost: the numbers above are too good",
                    counters.seen,
                    counters.lost()
                );
            }
            detach_ms
        });
        Some(Self { stop, reader: Some(reader), attach_ms })
    }

    /// Detaches and returns how long that took, ms.
    fn stop(&mut self) -> f64 {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.take().map_or(0.0, |reader| reader.join().unwrap())
    }
}
