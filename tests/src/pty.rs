//! A shell at a terminal, for what only a terminal does: Ctrl-C reaches the whole pipeline at once.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A program on a terminal of its own.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Runs a bash script in the foreground of a new terminal.
    pub fn bash(script: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let side = || {
            use std::os::unix::fs::OpenOptionsExt;
            // The terminal must not become the test's own.
            let no_ctty = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
            Stdio::from(File::options().read(true).write(true).custom_flags(no_ctty).open(&name).unwrap())
        };
        // setsid makes stdin the controlling terminal of a new session, so bash and what it starts are its foreground.
        // Ctrl-C works there even if whoever started the tests ignores it, as a shell's background jobs do.
        let mut command = Command::new("setsid");
        command
            .args(["--ctty", "env", "--default-signal=INT,QUIT", "bash", "-c", script])
            .env("TERM", "dumb")
            .env("COLUMNS", "120");
        command.stdin(side()).stdout(side()).stderr(side());
        let child = command.spawn().unwrap_or_else(|e| panic!("setsid (util-linux): {e}"));
        drop(command);

        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // A terminal without anybody on its other side reads as an error.
            while let Ok(n @ 1..) = from.read(&mut piece) {
                to.lock().unwrap().extend_from_slice(&piece[..n]);
            }
        });
        Self { child, keyboard, screen }
    }

    /// Everything written to it so far.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).replace("\r\n", "\n")
    }

    /// Presses Ctrl-C.
    pub fn ctrl_c(&mut self) {
        self.keyboard.write_all(b"\x03").unwrap();
    }

    /// Processes on this terminal whose name begins so.
    pub fn pids(&self, name: &str) -> Vec<u32> {
        let all =
            std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        all.filter(|pid| session_of(*pid) == Some(self.child.id()) && comm(*pid).is_some_and(|c| c.starts_with(name)))
            .collect()
    }

    /// Waits until a process of that name runs on it.
    #[track_caller]
    pub fn wait_for(&self, name: &str) -> u32 {
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(pid) = self.pids(name).first() {
                return *pid;
            }
            assert!(Instant::now() < patience, "no {name} on the terminal\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the script's end; its exit code and the whole screen.
    #[track_caller]
    pub fn wait(mut self) -> (Option<i32>, String) {
        let patience = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > patience {
                for pid in self.pids("") {
                    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
                panic!("the script on the terminal did not end\n{}", self.screen());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = self.child.wait().unwrap().code();
        // What was written last is still on its way to the reading thread.
        std::thread::sleep(Duration::from_millis(50));
        (code, self.screen())
    }
}

fn comm(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()
}

/// The session id, field 6 of `/proc/PID/stat`. Started from here, `setsid` leads no group, so it leads the session itself.
fn session_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}
