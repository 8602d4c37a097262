//! `-- COMMAND`: runs it as whoever called `sudo`, and keeps what it prints away from our stream.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::bail;
use ingero_common::discover::ProcFs;
use ingero_common::exit::Exit;
use ingero_common::text::Printable;
use rustix::process::{Pid, Signal, kill_process};

/// The running command.
#[derive(Debug)]
pub struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

/// A command that could not be started.
#[derive(Debug)]
pub struct NotStarted {
    /// Ours instead of the command's, as shells, sudo and env have it: 127 where there is no such program, 126 where it
    /// cannot be run.
    pub status: u8,
    message: String,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for NotStarted {}

impl NotStarted {
    fn new(program: &OsStr, error: &io::Error) -> Self {
        let cure = match error.kind() {
            io::ErrorKind::NotFound if Path::new(program).exists() => {
                "the interpreter that its first line names is missing, or its dynamic linker"
            }
            io::ErrorKind::NotFound => "give its path, or a name that is found in PATH",
            io::ErrorKind::PermissionDenied => "it must be an executable file",
            _ => "try to run it without tracing",
        };
        Self {
            status: if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 },
            message: format!("cannot run '{}': {error}; {cure}", Printable(program.as_encoded_bytes())),
        }
    }
}

/// Who called `sudo`, as it tells in the environment.
#[derive(Debug, PartialEq, Eq)]
struct Invoker {
    uid: u32,
    gid: u32,
}

impl Running {
    /// Starts `command`. `keep_stdout`: our stdout carries no records, so the command may have it; else what it prints
    /// goes to our stderr.
    ///
    /// # Errors
    /// [`NotStarted`] when it cannot be started.
    pub fn start(command: &[OsString], keep_stdout: bool) -> anyhow::Result<Self> {
        let Some((program, arguments)) = command.split_first() else { bail!("there is no command to run") };
        let env = |name: &str| std::env::var(name).ok();
        let invoker = invoker(env, rustix::process::geteuid().is_root());
        let stdout = || -> io::Result<Stdio> {
            Ok(if keep_stdout { Stdio::inherit() } else { Stdio::from(io::stderr().as_fd().try_clone_to_owned()?) })
        };
        let mut to_run = Command::new(program);
        to_run.args(arguments).stdout(stdout()?);
        let child = match invoker {
            None => to_run.spawn(),
            Some(invoker) => {
                // setpriv gives the user's supplementary groups too, by which devices may be guarded.
                let mut wrapped = Command::new("setpriv");
                wrapped.args([format!("--reuid={}", invoker.uid), format!("--regid={}", invoker.gid)]);
                wrapped.args(["--init-groups", "--"]).arg(program).args(arguments).stdout(stdout()?);
                set_environment(&mut wrapped, &invoker);
                match wrapped.spawn() {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        set_environment(&mut to_run, &invoker);
                        to_run.uid(invoker.uid).gid(invoker.gid).spawn()
                    }
                    other => other,
                }
            }
        };
        let child = child.map_err(|error| NotStarted::new(program, &error))?;
        Ok(Self { child, status: None })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// What `waitpid(2)` reports.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status.is_some())
    }

    /// Passes on the user's wish to stop. A Ctrl-C at a terminal has reached it already.
    pub fn terminate(&mut self) {
        if self.status.is_none()
            && let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            // It may have ended this instant; its number is not given away before it is waited for.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for its end and returns its exit status, 128 + n if signal n ended it.
    ///
    /// # Errors
    /// What `waitpid(2)` reports.
    pub fn wait(&mut self) -> io::Result<Exit> {
        let status = match self.status {
            Some(status) => status,
            None => self.child.wait()?,
        };
        self.status = Some(status);
        Ok(Exit::Command(code(status)))
    }
}

/// As shells count.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn invoker(env: impl Fn(&str) -> Option<String>, root: bool) -> Option<Invoker> {
    let number = |name: &str| env(name)?.parse().ok();
    let invoker = Invoker { uid: number("SUDO_UID")?, gid: number("SUDO_GID")? };
    (root && invoker.uid != 0).then_some(invoker)
}

/// Gives `command` the environment in which the user called `sudo`: sudo replaces PATH and HOME, and with them goes the
/// Python environment in which the command was meant to run.
fn set_environment(command: &mut Command, invoker: &Invoker) {
    if let Some(environ) = sudo_environment() {
        command.env_clear().envs(environ);
        return;
    }
    // Not below a sudo that we can look at: at least the user's own directory and name.
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some((name, home)) = account(&passwd, invoker.uid) {
        command.env("HOME", home).env("USER", name).env("LOGNAME", name);
    }
}

/// The environment of the nearest `sudo` above us.
fn sudo_environment() -> Option<HashMap<OsString, OsString>> {
    let proc = ProcFs::default();
    let mut pid = std::process::id();
    // sudo, where it logs, puts one or two processes of its own in between.
    for _ in 0..4 {
        pid = proc.stat(pid).ok()?.parent_pid;
        if proc.stat(pid).ok()?.comm == b"sudo" {
            let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
            return Some(parse_environ(&environ)).filter(|variables| !variables.is_empty());
        }
    }
    None
}

/// `NAME=value` strings, each ended by a NUL.
fn parse_environ(bytes: &[u8]) -> HashMap<OsString, OsString> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|variable| {
            let at = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (variable.get(..at)?, variable.get(at + 1..)?);
            (!name.is_empty()).then(|| (OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
        })
        .collect()
}

/// Name and home directory of `uid` in the text of `/etc/passwd`.
fn account(passwd: &str, uid: u32) -> Option<(&str, &str)> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, _, _, home, ..] = fields[..] else { return None };
        (number.parse() == Ok(uid)).then_some((name, home))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_root_below_sudo_becomes_somebody_else() {
        let sudo = |name: &str| match name {
            "SUDO_UID" => Some("1000".to_owned()),
            "SUDO_GID" => Some("100".to_owned()),
            _ => None,
        };
        assert_eq!(invoker(sudo, true), Some(Invoker { uid: 1000, gid: 100 }));
        assert_eq!(invoker(sudo, false), None);
        assert_eq!(invoker(|_| None, true), None);
        assert_eq!(invoker(|_| Some("0".to_owned()), true), None);
        assert_eq!(invoker(|_| Some("1000; rm".to_owned()), true), None);
    }

    #[test]
    fn environments() {
        let environ = parse_environ(b"A=1\0B=x=y\0=odd\0none\0C=\0");
        assert_eq!(environ.len(), 3);
        assert_eq!(environ[OsStr::new("B")], OsStr::new("x=y"));
        assert_eq!(environ[OsStr::new("C")], OsStr::new(""));
    }

    #[test]
    fn accounts() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1000:100:Ann,,,:/home/ann:/bin/zsh\n";
        assert_eq!(account(passwd, 1000), Some(("ann", "/home/ann")));
        assert_eq!(account(passwd, 7), None);
    }

    #[test]
    fn statuses_are_those_of_the_command() {
        for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
            let command = ["sh", "-c", script].map(OsString::from);
            let mut running = Running::start(&command, false).unwrap();
            assert_eq!(running.wait().unwrap(), Exit::Command(expected), "{script}");
            assert!(running.has_ended().unwrap());
        }
    }

    #[test]
    fn what_cannot_be_run_gives_the_status_that_a_shell_gives() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
        let started = |program: &OsStr| Running::start(&[program.to_owned()], false).unwrap_err();
        let plain = script.as_os_str();
        for (program, status, cure) in [
            (OsStr::new("/nonexistent/x"), 127, "PATH"),
            (plain, 126, "executable"),
            (OsStr::new("/"), 126, "executable"),
        ] {
            let error = started(program);
            assert_eq!(error.downcast_ref::<NotStarted>().unwrap().status, status, "{error}");
            assert!(
                error.to_string().contains(&*program.to_string_lossy()) && error.to_string().contains(cure),
                "{error}"
            );
        }
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let error = started(plain);
        assert_eq!(error.downcast_ref::<NotStarted>().unwrap().status, 127, "{error}");
        assert!(error.to_string().contains("interpreter"), "{error}");
    }
}
