//! The workload (`workload.c`): started at a gate, asked what it has counted.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// A running workload. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Workload {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    said: HashMap<String, u64>,
}

impl Workload {
    /// Starts it and waits until it is at the gate.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_as(&mut Command::new(executable()), arguments)
    }

    /// Starts it by a command of which it is the last argument.
    pub(crate) fn start_as(command: &mut Command, arguments: &[&str]) -> Self {
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starting the workload");
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut workload = Self { child, stdin, stdout, said: HashMap::new() };
        workload.wait_for("pid");
        workload
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        u32::try_from(self.said("pid")).unwrap()
    }

    /// Lets it pass the gate.
    pub(crate) fn go(&mut self) {
        self.stdin.as_mut().expect("has ended").write_all(b"g").unwrap();
    }

    /// Reads what it says until it says this.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, key: &str) {
        let mut line = String::new();
        while !self.said.contains_key(key) {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the workload ended without saying {key}");
            let (name, value) = line.trim_end().split_once(' ').expect("key value");
            self.said.insert(name.to_owned(), value.parse().unwrap());
        }
    }

    /// What it has said.
    #[track_caller]
    pub(crate) fn said(&self, key: &str) -> u64 {
        *self.said.get(key).unwrap_or_else(|| panic!("the workload has not said {key}: {:?}", self.said))
    }

    /// What it has said, as a process or thread id.
    #[track_caller]
    pub(crate) fn id(&self, key: &str) -> u32 {
        u32::try_from(self.said(key)).unwrap()
    }

    /// Lets it end, and waits for that.
    pub(crate) fn end(&mut self) {
        // A closed stdin passes every gate.
        self.stdin = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The compiled workload.
pub(crate) fn executable() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let sources = ["workload.c", "resources.c", "cuda.c", "births.c"];
    BUILT.get_or_init(|| compile("workload", &sources, &["-pthread", "-ldl"]))
}

/// A libcuda with a `cuInit` that begins as few functions do: `libcuda_nop5.c`.
pub(crate) fn odd_libcuda() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| compile("libcuda.so.1", &["libcuda_nop5.c"], &["-shared", "-fPIC"]))
}

fn compile(name: &str, sources: &[&str], arguments: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live");
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ingero-sched").join(name);
    ingero_tests::compiled(&here, sources, output, ["-O2"].iter().chain(arguments))
}

/// For the kernel matrix, which needs both before it runs the other tests.
#[test]
fn both_compile() {
    assert!(executable().is_file() && odd_libcuda().is_file());
}
