//! The real libcudart 12 and 13, which need no GPU to be called, on each attach tier.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use ingero_tests::{Background, Machine, cuda, has_tier, in_tier, watching, wheels};

/// Opens the library, waits for a line, calls, prints what each call returned.
const PROGRAM: &str = "
import ctypes, sys
cudart = ctypes.CDLL(sys.argv[1])
pointer = ctypes.c_void_p()
print('ready', flush=True)
sys.stdin.readline()
print(*[cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096)) for _ in range(100)], flush=True)
";

fn a_hundred_allocations(library: &Path, mode: &str) {
    let mut python = Command::new("python3");
    python.arg("-c").arg(PROGRAM).arg(library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().unwrap();
    let pid = python.id();
    let mut said = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "ready");

    let mut tracer = Background::start(&mut in_tier(mode, &mut cuda(pid)));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    python.stdin.take().unwrap().write_all(b"\n").unwrap();
    let returned: Vec<i64> = said.next().unwrap().unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    python.wait().unwrap();
    let out = tracer.interrupt().exits(0);

    let records = out.records();
    records.balance();
    let calls: Vec<_> = records.of("cudart", "cudaMalloc").filter(|r| r["pid"] == pid).collect();
    assert_eq!(calls.len(), 100, "{mode} on {}\n{out}", library.display());
    for (call, returned) in calls.iter().zip(returned) {
        assert_eq!(call["ret"], returned, "{call}");
        // No driver, or a driver without a device.
        assert!(returned == 35 || returned == 100, "cudaMalloc returned {returned}: is there a GPU?");
        assert_eq!((&call["bytes"], &call["depth"]), (&4096.into(), &0.into()), "{call}");
    }
    assert_eq!(records.only("ingero", "start")["probes"]["mode"], mode, "{out}");
}

fn both(mode: &str) {
    if !has_tier(mode) {
        return;
    }
    let _machine = Machine::take();
    for major in [12, 13] {
        a_hundred_allocations(&wheels::cudart(major), mode);
    }
}

#[test]
fn by_uprobe_session() {
    both("session");
}

#[test]
fn by_uprobe_multi() {
    both("multi");
}

#[test]
fn by_tracefs_events() {
    both("tracefs");
}

#[test]
fn by_perf_events() {
    both("perf");
}
