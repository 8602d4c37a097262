//! Every exported function of the real runtime and of the stub driver, probed at once and called from several threads: each
//! call is seen, and no entry is without its return.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ingero_common::discover::elf::ElfFile;
use ingero_ebpf::attach::{Ends, Mode, Point};
use ingero_ebpf::cuda::record::{Record, parse};
use ingero_ebpf::cuda::{Config, Counters, SymbolSpec, Tracer};
use ingero_ebpf::load::Kernel;
use ingero_tests::{Machine, has_tier, wheels};
use ingero_workload::stub_dir;

const THREADS: usize = 4;
const ROUNDS: usize = 25;

/// Calls each function that survives it in a child of its own: the arguments are all pointers to zeros, and what a function
/// makes of that is its business. Then, when told to, calls all of those in several threads.
const PROGRAM: &str = "
import ctypes, os, signal, sys, threading
library, threads, rounds, names = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.stdin.readline().split()
library = ctypes.CDLL(library)
zeros = ctypes.create_string_buffer(1 << 16)
arguments = [ctypes.c_void_p(ctypes.addressof(zeros))] * 8

def survives(name):
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        getattr(library, name)(*arguments)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0

names = [name for name in names if survives(name)]
print(*names, flush=True)
sys.stdin.readline()

def work():
    for _ in range(rounds):
        for name in names:
            getattr(library, name)(*arguments)

workers = [threading.Thread(target=work) for _ in range(threads)]
for worker in workers: worker.start()
for worker in workers: worker.join()
print('done', flush=True)
os._exit(0)
";

/// The exported functions at addresses of their own: name and offset of the probe.
fn functions(library: &Path) -> Vec<(String, u64)> {
    let file = File::open(library).unwrap();
    let functions = ElfFile::new(&file).unwrap().functions(|name| name.starts_with(b"cu")).unwrap();
    let own = functions.list.iter().filter(|function| function.alias_of.is_none());
    own.map(|function| (String::from_utf8(function.names[0].clone()).unwrap(), function.probe_offset)).collect()
}

struct Caller {
    child: Child,
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// What it will call.
    names: Vec<String>,
}

impl Caller {
    fn start(library: &Path, functions: &[(String, u64)]) -> Self {
        let mut python = Command::new("python3");
        python.arg("-c").arg(PROGRAM).arg(library).args([THREADS.to_string(), ROUNDS.to_string()]);
        // What functions print, and core files of those that do not survive, are of no interest.
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir(std::env::temp_dir());
        let mut child = python.spawn().unwrap();
        let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
        writeln!(child.stdin.as_mut().unwrap(), "{}", names.join(" ")).unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let names = said.next().unwrap().unwrap().split_whitespace().map(str::to_owned).collect();
        Self { child, said, names }
    }

    fn go(mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        assert_eq!(self.said.next().unwrap().unwrap(), "done");
        assert!(self.child.wait().unwrap().success());
    }
}

fn every_call_is_seen(library: &Path, mode: Mode) {
    let functions = functions(library);
    let caller = Caller::start(library, &functions);
    assert!(caller.names.len() * 2 > functions.len(), "{} of {} survive", caller.names.len(), functions.len());

    let config = Config {
        nested: true,
        only_watched: true,
        follow_children: false,
        spare_seccomp: false,
        entry_only: false,
        stuck_ns: u64::MAX,
        ring_bytes: 64 << 20,
        mode: Some(mode),
    };
    let mut tracer = Tracer::new(&Kernel::check().unwrap(), config).unwrap();
    let mut points = Vec::new();
    for (symbol, (_, offset)) in (0..).zip(&functions) {
        tracer.describe(symbol, SymbolSpec { words: 6, ..SymbolSpec::default() }).unwrap();
        points.push(Point { offset: *offset, symbol, essential: true });
    }
    let attachment = tracer.attach(&File::open(library).unwrap(), &points, Ends::Both).unwrap();
    assert_eq!(attachment.points(), functions.len());
    tracer.watch_process(caller.child.id()).unwrap();
    let names = caller.names.clone();
    caller.go();

    let mut outermost = BTreeMap::<&str, usize>::new();
    let (mut all, patience) = (0, Instant::now() + Duration::from_secs(60));
    loop {
        let got = tracer.ring().drain(usize::MAX, |bytes| {
            if let Some(Record::Call(call)) = parse(bytes) {
                all += 1;
                if call.depth == 0 {
                    *outermost.entry(&functions[call.symbol as usize].0).or_default() += 1;
                }
            }
        });
        if got == 0 {
            break;
        }
        assert!(Instant::now() < patience);
    }
    drop(attachment);
    let counters = tracer.counters().unwrap();
    assert_eq!(counters, Counters { seen: all, ..Counters::default() }, "{mode} on {}", library.display());
    for name in &names {
        let got = outermost.get(name.as_str()).copied().unwrap_or(0);
        assert_eq!(got, THREADS * ROUNDS, "{name}, {mode} on {}", library.display());
    }
}

fn libraries() -> [PathBuf; 3] {
    [wheels::cudart(12), wheels::cudart(13), stub_dir().join("libcuda.so.1")]
}

#[test]
fn is_seen_by_a_session() {
    if !has_tier("session") {
        return;
    }
    let _machine = Machine::take();
    for library in libraries() {
        every_call_is_seen(&library, Mode::Session);
    }
}

#[test]
fn is_seen_by_multi_links() {
    if !has_tier("multi") {
        return;
    }
    let _machine = Machine::take();
    for library in libraries() {
        every_call_is_seen(&library, Mode::Multi);
    }
}
