//! `-- COMMAND`: runs it as whoever called `sudo` ([`crate::invoker`]), and keeps what it prints away from our stream.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::bail;
use ingero_common::exit::Exit;
use ingero_common::invoker::Invoker;
use ingero_common::text::Printable;
use rustix::process::{Pid, Signal, kill_process};

use crate::TOOL;

/// The running command.
#[derive(Debug)]
pub struct Running {
    child: Child,
    status: Option<ExitStatus>,
    of_another_user: bool,
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
    /// `program` was not found, or `exec(2)` refused it.
    pub fn new(program: &OsStr, error: &io::Error) -> Self {
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

    /// Root's privileges could not be given up, and `program` was not run with them.
    pub fn still_privileged(program: &OsStr, error: &anyhow::Error) -> Self {
        let program = Printable(program.as_encoded_bytes());
        Self { status: 126, message: format!("cannot run '{program}' as the user who called sudo: {error:#}") }
    }
}

impl Running {
    /// Starts `command`. `keep_stdout`: our stdout carries no records, so the command may have it; else what it prints
    /// goes to our stderr.
    ///
    /// # Errors
    /// [`NotStarted`] when it cannot be started.
    pub fn start(command: &[OsString], keep_stdout: bool) -> anyhow::Result<Self> {
        let Some((program, arguments)) = command.split_first() else { bail!("there is no command to run") };
        let invoker = Invoker::of_this_process();
        let mut to_run = match invoker {
            None => {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            }
            // Between a fork and the command there is room for nothing safe, so we run ourselves again, to become the user
            // and then the command. What goes wrong with the command is said there, by the same exit status.
            Some(invoker) => {
                let mut again = Command::new("/proc/self/exe");
                again.arg0(TOOL).arg(format!("--run-as={invoker}")).arg("--").args(command);
                again
            }
        };
        if !keep_stdout {
            to_run.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        let child = to_run.spawn().map_err(|error| NotStarted::new(program, &error))?;
        Ok(Self { child, status: None, of_another_user: invoker.is_some() })
    }

    /// Whether it is run by another user than this process is, so that it takes CAP_KILL to end it.
    pub fn is_of_another_user(&self) -> bool {
        self.of_another_user
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

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
