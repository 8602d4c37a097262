//! Live probes, as root, on a small library compiled here: every tier sees every call, once, with the right name.
//!
//! Without root these tests say so and pass: they have nothing to look at. So do those of a tier that the kernel is too old for.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test says no by failing")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ingero_ebpf::attach::{Attachment, Ends, Mode, Point};
use ingero_ebpf::cuda::record::{End, Record, parse};
use ingero_ebpf::cuda::{Config, Counters, Input, Output, SymbolSpec, Tracer};
use ingero_ebpf::load::Kernel;
use ingero_tests::{compiled, has_tier};

/// Names in the order of their symbol indices.
const NAMES: [&str; 28] = [
    "f0",
    "f1",
    "f2",
    "f3",
    "f4",
    "f5",
    "f6",
    "f7",
    "f8",
    "f9",
    "f10",
    "f11",
    "f12",
    "f13",
    "f14",
    "f15",
    "f16",
    "f17",
    "f18",
    "f19",
    "eight",
    "in_out",
    "outer",
    "recursive",
    "jumps",
    "tail",
    "jump_and_return",
    "ends",
];

fn root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// The library and the program.
fn target() -> &'static (PathBuf, PathBuf) {
    static TARGET: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    TARGET.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/target");
        // -O1 keeps frame pointers away and -fno-omit-frame-pointer brings `push %rbp` back, as in the CUDA libraries.
        let mut flags = vec!["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"];
        if cfg!(target_arch = "x86_64") {
            flags.push("-fcf-protection=none");
        }
        let shared = flags.iter().chain(&["-shared", "-fPIC"]);
        let library = compiled(&source, &["lib.c"], dir.join("libtarget.so"), shared);
        let linked = flags.iter().copied().chain(["-pthread", library.to_str().unwrap()]);
        let program = compiled(&source, &["main.c"], dir.join("target"), linked);
        (library, program)
    })
}

/// For the kernel matrix, which needs it before it runs the other tests.
#[test]
fn the_target_compiles() {
    assert!(target().0.is_file() && target().1.is_file());
}

fn run(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// True where tracefs is mounted. If not, runs the test again where it is, in a mount namespace of its own.
fn with_tracefs(test: &str) -> bool {
    let mounted = Path::new("/sys/kernel/tracing/uprobe_events").exists();
    if !mounted {
        let mut again = Command::new(std::env::current_exe().unwrap());
        run(&mut ingero_tests::with_tracefs(again.args(["--exact", test, "--nocapture"])));
    }
    mounted
}

/// The target program, waiting to be told to go.
struct Target {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Target {
    fn start(arguments: &[&str]) -> Self {
        let mut child =
            Command::new(&target().1).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Lets it make its calls, and waits for their end.
    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A call, with nothing borrowed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    name: &'static str,
    pid: u32,
    tid: u32,
    depth: u8,
    end: End,
    ret: Option<i32>,
    out: Option<u64>,
    words: Vec<u64>,
    input: Vec<u8>,
    start_ns: u64,
    end_ns: u64,
}

struct Probes {
    tracer: Tracer,
    attachment: Option<Attachment>,
}

const CONFIG: Config = Config {
    nested: true,
    only_watched: true,
    follow_children: true,
    spare_seccomp: false,
    entry_only: false,
    stuck_ns: u64::MAX,
    ring_bytes: 1 << 20,
    mode: None,
};

impl Probes {
    fn attach(config: Config) -> Self {
        Self::attach_ends(config, Ends::Both)
    }

    fn attach_ends(config: Config, ends: Ends) -> Self {
        let kernel = Kernel::check().unwrap();
        let mut tracer = Tracer::new(&kernel, config).unwrap();
        if let Some(mode) = config.mode {
            assert_eq!(tracer.mode(), mode);
        }
        let file = File::open(&target().0).unwrap();
        let functions = ingero_common::discover::elf::ElfFile::new(&file)
            .unwrap()
            .functions(|name| NAMES.iter().any(|known| known.as_bytes() == name))
            .unwrap();
        let mut points = Vec::new();
        for (symbol, name) in (0..).zip(NAMES) {
            let spec = match name {
                "eight" => SymbolSpec { words: 8, ..SymbolSpec::default() },
                "in_out" => SymbolSpec {
                    words: 2,
                    input: Some(Input { word: 0, offset_bytes: 8, words: 1 }),
                    output: Some(Output { word: 1, bytes: 8 }),
                },
                _ => SymbolSpec { words: 2, ..SymbolSpec::default() },
            };
            tracer.describe(symbol, spec).unwrap();
            let function =
                functions.list.iter().find(|function| function.names.iter().any(|n| n == name.as_bytes())).unwrap();
            points.push(Point {
                offset: function.probe_offset,
                symbol,
                essential: matches!(name, "f7" | "f0" | "outer"),
            });
        }
        let attachment = tracer.attach(&file, &points, ends).unwrap();
        let expected = if tracer.mode() == Mode::Perf { 3 } else { NAMES.len() };
        assert_eq!(attachment.points(), expected);
        Self { tracer, attachment: Some(attachment) }
    }

    /// All calls until no more come.
    fn calls(&mut self) -> Vec<Seen> {
        let mut calls = Vec::new();
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_millis(120) {
            let before = calls.len();
            self.tracer.ring().drain(usize::MAX, |bytes| match parse(bytes) {
                Some(Record::Call(call)) => calls.push(Seen {
                    name: NAMES[call.symbol as usize],
                    pid: call.pid,
                    tid: call.tid,
                    depth: call.depth,
                    end: call.end,
                    ret: call.ret,
                    out: call.out,
                    words: (0..).map_while(|i| call.word(i)).collect(),
                    input: call.input().to_vec(),
                    start_ns: call.start_ns,
                    end_ns: call.end_ns,
                }),
                Some(_) => {}
                None => panic!("not a record: {bytes:?}"),
            });
            // Programs that others start are in the ring too.
            if calls.len() > before {
                quiet_since = Instant::now();
            }
            self.tracer.ring().wait(Duration::from_millis(20)).unwrap();
        }
        calls
    }

    fn counters(&self) -> Counters {
        self.tracer.counters().unwrap()
    }
}

fn by_name(calls: &[Seen]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for call in calls {
        *counts.entry(call.name).or_default() += 1;
    }
    counts
}

/// Calls from several threads, with the arguments and results that the program is known to have.
fn every_call_is_seen(mode: Mode) {
    let mut probes = Probes::attach(Config { mode: Some(mode), ..CONFIG });
    let mut target = Target::start(&["calls", "2003", "3"]);
    let mut other = Target::start(&["calls", "11"]);
    probes.tracer.watch_process(target.pid()).unwrap();
    target.go();
    other.go();
    let calls = probes.calls();
    assert_eq!(calls.len(), 6009);
    let threads: std::collections::BTreeSet<u32> = calls.iter().map(|call| call.tid).collect();
    assert_eq!(threads.len(), 3);
    for call in &calls {
        assert_eq!((call.name, call.pid, call.depth, call.ret), ("f7", target.pid(), 0, Some(1007)));
        assert_eq!(call.words[1], 2);
        assert!(call.start_ns <= call.end_ns);
    }
    assert_eq!(probes.counters(), Counters { seen: 6009, ..Counters::default() });
    assert_eq!(probes.tracer.take_lost_since().unwrap(), None);

    // Nothing is seen any more once detached, and the process goes on.
    probes.attachment = None;
    let mut late = Target::start(&["calls", "5"]);
    probes.tracer.watch_process(late.pid()).unwrap();
    late.go();
    assert_eq!(probes.calls(), []);
    assert_eq!(probes.counters().seen, 6009);
}

#[test]
fn session_sees_every_call() {
    if root() && has_tier("session") {
        every_call_is_seen(Mode::Session);
    }
}

#[test]
fn multi_sees_every_call() {
    if root() && has_tier("multi") {
        every_call_is_seen(Mode::Multi);
    }
}

#[test]
fn tracefs_sees_every_call() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_sees_every_call") {
        every_call_is_seen(Mode::Tracefs);
        let left = std::fs::read_to_string("/sys/kernel/tracing/uprobe_events").unwrap();
        assert!(!left.contains(&format!("ingero_{}_", std::process::id())), "left behind: {left}");
    }
}

#[test]
fn perf_sees_every_call() {
    if root() && has_tier("perf") {
        every_call_is_seen(Mode::Perf);
    }
}

/// Registers, stack, memory behind arguments, and which function it was: all by name in each tier.
fn arguments_are_kept(mode: Mode) {
    let mut probes = Probes::attach(Config { mode: Some(mode), ..CONFIG });
    let mut target = Target::start(&["arguments"]);
    probes.tracer.watch_process(target.pid()).unwrap();
    target.go();
    let calls = probes.calls();
    let names: Vec<&str> = calls.iter().map(|call| call.name).collect();
    assert_eq!(names, ["f0", "f19", "eight", "in_out", "in_out"]);
    assert_eq!((calls[0].ret, &calls[0].words[..]), (Some(1000), &[u64::MAX, 5][..]));
    assert_eq!((calls[1].ret, &calls[1].words[..]), (Some(1019), &[7, 8][..]));
    assert_eq!(calls[2].words, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!((calls[3].input.as_slice(), calls[3].out), (&21u64.to_le_bytes()[..], Some(42)));
    assert_eq!((calls[4].input.as_slice(), calls[4].out), (&21u64.to_le_bytes()[..], Some(42)));
}

#[test]
fn session_keeps_arguments() {
    if root() && has_tier("session") {
        arguments_are_kept(Mode::Session);
    }
}

#[test]
fn multi_keeps_arguments() {
    if root() && has_tier("multi") {
        arguments_are_kept(Mode::Multi);
    }
}

#[test]
fn tracefs_keeps_arguments() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_keeps_arguments") {
        arguments_are_kept(Mode::Tracefs);
    }
}

/// `outer` calls `f0` and `f1`: with `nested` all three are written, without it one.
fn nested_calls(mode: Mode) {
    for (nested, expected) in [(true, vec![("f0", 7), ("f1", 7), ("outer", 7)]), (false, vec![("outer", 7)])] {
        let mut probes = Probes::attach(Config { mode: Some(mode), nested, ..CONFIG });
        let mut target = Target::start(&["nested", "7"]);
        probes.tracer.watch_process(target.pid()).unwrap();
        target.go();
        let calls = probes.calls();
        assert_eq!(by_name(&calls).into_iter().collect::<Vec<_>>(), expected);
        for call in &calls {
            assert_eq!(call.depth, u8::from(call.name != "outer"));
        }
        assert_eq!(probes.counters(), Counters { seen: calls.len() as u64, ..Counters::default() });
    }
}

#[test]
fn session_nested_calls() {
    if root() && has_tier("session") {
        nested_calls(Mode::Session);
    }
}

#[test]
fn multi_nested_calls() {
    if root() && has_tier("multi") {
        nested_calls(Mode::Multi);
    }
}

#[test]
fn tracefs_nested_calls() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_nested_calls") {
        nested_calls(Mode::Tracefs);
    }
}

/// Twenty calls deep, with room for eight: the rest is counted, and the sum is right.
fn too_deep_calls(mode: Mode) {
    let mut probes = Probes::attach(Config { mode: Some(mode), ..CONFIG });
    let mut target = Target::start(&["recursive", "19"]);
    probes.tracer.watch_process(target.pid()).unwrap();
    target.go();
    let calls = probes.calls();
    assert_eq!(calls.len(), 8);
    assert_eq!(probes.counters(), Counters { seen: 20, too_deep: 12, ..Counters::default() });
    assert_eq!((calls[7].depth, calls[7].ret), (0, Some(19)));
    assert!(probes.tracer.take_lost_since().unwrap().is_some());
    assert_eq!(probes.tracer.take_lost_since().unwrap(), None);
}

#[test]
fn session_too_deep_calls() {
    if root() && has_tier("session") {
        too_deep_calls(Mode::Session);
    }
}

#[test]
fn multi_too_deep_calls() {
    if root() && has_tier("multi") {
        too_deep_calls(Mode::Multi);
    }
}

#[test]
fn tracefs_too_deep_calls() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_too_deep_calls") {
        too_deep_calls(Mode::Tracefs);
    }
}

/// A longjmp out of a call, and a call that ends by jumping into another: no frame is taken for another call's.
fn odd_ends(mode: Mode) {
    let mut probes = Probes::attach(Config { mode: Some(mode), ..CONFIG });
    let mut target = Target::start(&["odd", "5"]);
    probes.tracer.watch_process(target.pid()).unwrap();
    target.go();
    let calls = probes.calls();
    let expected = [("f2", 5), ("f3", 5), ("jump_and_return", 5), ("tail", 5)];
    assert_eq!(by_name(&calls).into_iter().collect::<Vec<_>>(), expected);
    for call in &calls {
        let (depth, ret) = match call.name {
            "f2" => (1, 1002),
            "f3" => (1, 1003),
            "tail" => (0, 1002),
            _ => (0, 1003),
        };
        assert_eq!((call.depth, call.ret), (depth, Some(ret)), "{call:?}");
    }
    // `jumps` never returns.
    assert_eq!(probes.counters(), Counters { seen: 25, unmatched: 5, ..Counters::default() });
}

#[test]
fn session_odd_ends() {
    if root() && has_tier("session") {
        odd_ends(Mode::Session);
    }
}

#[test]
fn multi_odd_ends() {
    if root() && has_tier("multi") {
        odd_ends(Mode::Multi);
    }
}

#[test]
fn tracefs_odd_ends() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_odd_ends") {
        odd_ends(Mode::Tracefs);
    }
}

/// A thread that ends inside a call leaves an open record up to its end; one that has jumped out of it before leaves a loss.
fn ends_of_threads(mode: Mode) {
    let mut probes = Probes::attach(Config { mode: Some(mode), ..CONFIG });
    let run = |probes: &mut Probes, scenario: &str| {
        let mut target = Target::start(&[scenario]);
        probes.tracer.watch_process(target.pid()).unwrap();
        target.go();
        probes.calls()
    };
    let calls = run(&mut probes, "ends");
    assert_eq!(calls.len(), 1);
    assert_eq!((calls[0].name, calls[0].end, calls[0].ret, calls[0].depth), ("ends", End::Open, None, 0));
    assert!(calls[0].tid != calls[0].pid && calls[0].end_ns > calls[0].start_ns);
    assert_eq!(run(&mut probes, "leaves"), []);
    assert_eq!(probes.counters(), Counters { seen: 2, unmatched: 1, ..Counters::default() });
}

#[test]
fn session_ends_of_threads() {
    if root() && has_tier("session") {
        ends_of_threads(Mode::Session);
    }
}

#[test]
fn tracefs_ends_of_threads() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_ends_of_threads") {
        ends_of_threads(Mode::Tracefs);
    }
}

/// Entries alone: each is an instant with its arguments, and nothing is unmatched.
fn entries_only(mode: Mode) {
    // In a session the program declines every return, elsewhere no return is probed.
    let mut probes = Probes::attach_ends(Config { mode: Some(mode), entry_only: true, ..CONFIG }, Ends::Entries);
    for arguments in [&["arguments"][..], &["nested", "7"]] {
        let mut target = Target::start(arguments);
        probes.tracer.watch_process(target.pid()).unwrap();
        target.go();
    }
    let calls = probes.calls();
    assert!(calls.iter().all(|call| call.end == End::Unknown && call.ret.is_none() && call.start_ns == call.end_ns));
    assert_eq!((calls[0].name, &calls[0].words[..]), ("f0", &[u64::MAX, 5][..]));
    let expected = if mode == Mode::Perf {
        vec![("f0", 8), ("outer", 7)]
    } else {
        vec![("eight", 1), ("f0", 8), ("f1", 7), ("f19", 1), ("in_out", 2), ("outer", 7)]
    };
    assert_eq!(by_name(&calls).into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(probes.counters(), Counters { seen: calls.len() as u64, ..Counters::default() });
}

#[test]
fn session_entries_only() {
    if root() && has_tier("session") {
        entries_only(Mode::Session);
    }
}

#[test]
fn multi_entries_only() {
    if root() && has_tier("multi") {
        entries_only(Mode::Multi);
    }
}

#[test]
fn tracefs_entries_only() {
    if root() && has_tier("tracefs") && with_tracefs("tracefs_entries_only") {
        entries_only(Mode::Tracefs);
    }
}

#[test]
fn perf_entries_only() {
    if root() && has_tier("perf") {
        entries_only(Mode::Perf);
    }
}

/// The smallest ring and a reader that does not read: what does not fit is counted, and nothing is counted twice.
#[test]
fn a_full_ring_is_counted() {
    if !root() {
        return;
    }
    let mut probes = Probes::attach(Config { ring_bytes: 64 << 10, ..CONFIG });
    let mut target = Target::start(&["calls", "5003", "2"]);
    probes.tracer.watch_process(target.pid()).unwrap();
    let before = ingero_common::clock::mono_ns();
    target.go();
    let calls = probes.calls();
    let counters = probes.counters();
    assert_eq!(counters.seen, 10_006);
    assert!(counters.ring_full > 0);
    assert_eq!(calls.len() as u64 + counters.ring_full, 10_006);
    let since = probes.tracer.take_lost_since().unwrap().unwrap();
    assert!(since >= before && since <= ingero_common::clock::mono_ns());
}
