//! A program that is started in a roundabout way (in a container, as another user, by a shell) and waits for a byte.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use ingero_common::discover::ProcFs;
use tempfile::NamedTempFile;

/// The program and what started it. Dropped before its end, what started it is killed.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    stderr: NamedTempFile,
}

impl Guest {
    /// Starts `command`; its stdin is the gate, its stdout is nobody's.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let stderr = NamedTempFile::new().unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::from(stderr.reopen().unwrap()));
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        Self { child, stderr }
    }

    /// The process of this name among it and its descendants, when there is one that has a CUDA library mapped.
    #[track_caller]
    pub fn pid(&mut self, name: &str, library: &str) -> u32 {
        let proc = ProcFs::default();
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            let own = self.child.id();
            let mut all = proc.descendants(&[own]).unwrap();
            all.push(own);
            let found = all.into_iter().find(|pid| {
                proc.stat(*pid).is_ok_and(|stat| stat.comm == name.as_bytes())
                    && std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(library))
            });
            if let Some(pid) = found {
                return pid;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < patience,
                "no {name} with {library}: {ended:?}\n{}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Opens the gate and waits for the end.
    #[track_caller]
    pub fn run(mut self) -> ExitStatus {
        self.child.stdin.take().unwrap().write_all(b".\n").unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.said());
        status
    }

    fn said(&self) -> String {
        let mut text = String::new();
        File::open(self.stderr.path()).unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
