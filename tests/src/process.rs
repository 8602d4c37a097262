//! Runs a program and keeps all that it says, so that a failing test shows what happened: the command, how it ended, both of
//! its outputs.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::{Records, bin};

/// However slow the machine: what has not happened by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command that runs one of the suite's tools.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(bin(name));
    command.env_remove("NO_COLOR");
    command
}

/// What a program left behind.
#[derive(Debug)]
pub struct Output {
    command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Output {
    /// Runs `command` to its end, with nothing on stdin.
    pub fn of(command: &mut Command) -> Self {
        let shown = format!("{command:?}");
        let done = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{shown}: {e}"));
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        Self { command: shown, status: done.status, stdout: done.stdout, stderr }
    }

    /// Fails the test unless the exit status is this.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "exit status\n{self}");
        self
    }

    /// Fails the test unless this holds, and shows everything.
    #[track_caller]
    pub fn shows(self, what: &str, holds: impl FnOnce(&Self) -> bool) -> Self {
        assert!(holds(&self), "{what}\n{self}");
        self
    }

    /// Fails the test unless stderr is one line that contains all of `words`, in any case.
    #[track_caller]
    pub fn says_in_one_line(self, words: &[&str]) -> Self {
        let said = self.stderr.to_lowercase();
        assert_eq!(said.trim_end().lines().count(), 1, "one line on stderr\n{self}");
        for word in words {
            assert!(said.contains(&word.to_lowercase()), "stderr does not name `{word}`\n{self}");
        }
        self
    }

    /// stdout as records.
    #[track_caller]
    pub fn records(&self) -> Records {
        Records::parse(&self.stdout[..]).unwrap_or_else(|e| panic!("{e}\n{self}"))
    }

    /// stdout as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, status, stderr, .. } = self;
        let stdout = self.text();
        // Both ends of a long output: where it began, where it went wrong.
        let shown = match stdout.char_indices().nth(6000) {
            None => stdout.clone(),
            Some((at, _)) => {
                let tail = stdout.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
                format!("{}\n[…]\n{}", &stdout[..at], &stdout[tail..])
            }
        };
        write!(f, "--- command\n{command}\n--- status\n{status}\n--- stdout\n{shown}\n--- stderr\n{stderr}")
    }
}

/// A program that runs beside the test, its outputs in files.
///
/// Dropped before its end, it is killed.
#[derive(Debug)]
pub struct Background {
    command: String,
    child: Child,
    stdout: NamedTempFile,
    stderr: NamedTempFile,
    /// Copies a piped stdout to the file until the pipe's end.
    reader: Option<JoinHandle<std::io::Result<u64>>>,
}

impl Background {
    /// Starts `command` with its stdout in a file, which takes all that it writes.
    pub fn start(command: &mut Command) -> Self {
        let stdout = NamedTempFile::new().unwrap();
        let to = stdout.reopen().unwrap().into();
        Self::with_stdout(command, stdout, to)
    }

    /// Starts `command` with its stdout in a pipe that a thread reads, as the next tool of a pipeline would.
    pub fn start_piped(command: &mut Command) -> Self {
        let mut started = Self::start_stalled(command);
        started.read_on();
        started
    }

    /// Starts `command` with its stdout in a pipe that nobody reads before [`Background::read_on`].
    pub fn start_stalled(command: &mut Command) -> Self {
        Self::with_stdout(command, NamedTempFile::new().unwrap(), Stdio::piped())
    }

    fn with_stdout(command: &mut Command, stdout: NamedTempFile, to: Stdio) -> Self {
        let stderr = NamedTempFile::new().unwrap();
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(to).stderr(Stdio::from(stderr.reopen().unwrap()));
        let child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
        Self { command: shown, child, stdout, stderr, reader: None }
    }

    /// Begins to read the pipe of [`Background::start_stalled`].
    pub fn read_on(&mut self) {
        let mut from = self.child.stdout.take().expect("started stalled");
        let mut to = self.stdout.reopen().unwrap();
        self.reader = Some(std::thread::spawn(move || std::io::copy(&mut from, &mut to)));
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until stdout has a line in which this holds.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
        self.wait_until(what, |stdout, _| {
            let text = String::from_utf8_lossy(stdout);
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).any(|record| holds(&record))
        });
    }

    /// Waits until this holds of what it has written: stdout, stderr.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, holds: impl Fn(&[u8], &str) -> bool) {
        let patience = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().unwrap();
            let (stdout, stderr) = (read(self.stdout.path()), read(self.stderr.path()));
            if holds(&stdout, &String::from_utf8_lossy(&stderr)) {
                return;
            }
            if ended.is_some() || Instant::now() > patience {
                let _ = self.child.kill();
                panic!("waiting for {what}\n{}", self.output());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until this holds of its process id.
    #[track_caller]
    pub fn wait_until_holds(&mut self, what: &str, holds: impl Fn(u32) -> bool) {
        let pid = self.pid();
        self.wait_until(what, |_, _| holds(pid));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap_or_else(|e| panic!("{}: {e}", self.command));
    }

    /// Stops it as Ctrl-C does, unless it has ended by itself, and waits for its end.
    #[track_caller]
    pub fn interrupt(mut self) -> Output {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::INT);
        }
        self.wait()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Output {
        let patience = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > patience {
                let _ = self.child.kill();
                panic!("waiting for its end\n{}", self.output());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.output()
    }

    fn output(&mut self) -> Output {
        let status = self.child.wait().unwrap();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap().unwrap();
        }
        let stdout = read(self.stdout.path());
        let stderr = String::from_utf8_lossy(&read(self.stderr.path())).into_owned();
        Output { command: self.command.clone(), status, stdout, stderr }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn read(path: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    File::open(path).unwrap().read_to_end(&mut all).unwrap();
    all
}
