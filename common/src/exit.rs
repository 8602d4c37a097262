//! How every tool ends: exit codes, the error line, and a closed pipe as success.

use std::io;
use std::process::ExitCode;

use crate::text::say;

/// The exit status of a tool that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, nothing to complain about.
    Ok,
    /// 1: something was found that the user asked to be told of (`--fail-on`).
    Found,
    /// 2: an error, or soft errors such as bad input lines that were skipped and counted.
    Error,
    /// The exit status of the command that the tool ran (`-- COMMAND`).
    Command(u8),
}

impl Exit {
    /// The numeric status.
    pub fn code(self) -> u8 {
        match self {
            Exit::Ok => 0,
            Exit::Found => 1,
            Exit::Error => 2,
            Exit::Command(code) => code,
        }
    }
}

/// Runs a tool's body and turns what it returns into the process's exit status.
///
/// An error is printed on stderr as one line, `tool: what: why`, and gives 2; a broken pipe anywhere
/// in its chain of causes is the reader's way to say "enough" and gives 0 without a word.
pub fn run(tool: &str, body: impl FnOnce() -> anyhow::Result<Exit>) -> ExitCode {
    match body() {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            say(tool, &format!("{error:#}"));
            ExitCode::from(Exit::Error.code())
        }
    }
}

/// Whether a broken pipe is among the causes of `error`.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let kind = cause
            .downcast_ref::<io::Error>()
            .map(io::Error::kind)
            .or_else(|| cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind));
        kind == Some(io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_broken_pipe_below_context_is_success() {
        let broken = Err::<Exit, _>(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing records");
        assert_eq!(run("t", || broken), ExitCode::SUCCESS);
    }

    #[test]
    fn other_errors_are_two() {
        let denied = Err::<Exit, _>(io::Error::from(io::ErrorKind::PermissionDenied)).context("opening x");
        assert!(!is_broken_pipe(denied.as_ref().unwrap_err()));
        assert_eq!(run("t", || denied), ExitCode::from(2));
    }
}
