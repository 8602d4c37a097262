//! A number that a container shows, looked for from outside of it.
//!
//! Each PID namespace numbers its processes by itself. `/proc` has the numbers of the namespace for which it was mounted, and
//! says for each process how the namespaces below call it (`NSpid:` in its status):
//!
//! ```text
//! docker exec … ps          7 python3
//! here                      48211 python3      NSpid: 48211 7
//! ```

use std::fmt;
use std::io;

use super::procfs::{ProcFs, Process};
use crate::text::Printable;

/// Most processes that are named.
const NAMED: usize = 3;

/// Processes that have one number in PID namespaces of their own. Displayed as `48211 (python3), 51002 (redis-server)`.
#[derive(Debug)]
pub struct Numbered(Vec<Process>);

impl Numbered {
    /// Who is `number` in another PID namespace than that of `proc`; `None` if nobody is.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn find(proc: &ProcFs, number: u32) -> io::Result<Option<Self>> {
        // One that ends meanwhile is nobody.
        let processes = proc.pids()?.into_iter().filter_map(|pid| proc.process(pid).ok());
        let found: Vec<Process> = processes.filter(|process| process.ns_pid == Some(number)).collect();
        Ok((!found.is_empty()).then_some(Self(found)))
    }
}

impl fmt::Display for Numbered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, process) in self.0.iter().take(NAMED).enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{} ({})", process.pid, Printable(&process.comm))?;
        }
        match self.0.len().checked_sub(NAMED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named() {
        let own = ProcFs::default().process(std::process::id()).unwrap();
        let numbered = |count: u32| {
            let process = |pid| Process { pid, comm: b"py\nthon".to_vec(), ..own.clone() };
            Numbered((1..=count).map(process).collect()).to_string()
        };
        let name = Printable(b"py\nthon").to_string();
        assert_eq!(numbered(1), format!("1 ({name})"));
        assert_eq!(numbered(3), format!("1 ({name}), 2 ({name}), 3 ({name})"));
        assert!(numbered(5).ends_with(" and 2 more"));
    }

    #[test]
    fn nobody_has_a_number_that_is_not_given_out() {
        assert!(Numbered::find(&ProcFs::default(), u32::MAX).unwrap().is_none());
    }
}
