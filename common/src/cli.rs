//! The command-line contract that all tools share: common flags, durations and sizes, the schema page,
//! man pages and completions made from the same definitions.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::{Arg, Args, Command, CommandFactory, Parser, ValueEnum};

use crate::exit::Exit;
use crate::man;
use crate::text::Log;

/// The record contract, as `--schema` prints it.
pub const SCHEMA: &str = include_str!("../../docs/schema.md");

/// Flags that every tool has.
#[derive(Args, Clone, Debug, Default)]
pub struct Common {
    /// Say nothing on stderr but warnings and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,

    /// Say more on stderr
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,

    /// Print the record contract (what each line means) and exit
    #[arg(long, exclusive = true)]
    pub schema: bool,

    /// Print a man page or a shell's completions and exit
    #[arg(long, value_name = "WHAT", hide = true, exclusive = true)]
    pub generate: Option<Generate>,
}

impl Common {
    /// The voice of the tool on stderr.
    pub fn log(&self, tool: &'static str) -> Log {
        Log::new(tool, self.quiet, self.verbose)
    }
}

/// What `--generate` can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Generate {
    Man,
    Bash,
    Zsh,
    Fish,
}

/// A parsed command line that holds [`Common`].
pub trait HasCommon {
    /// The common flags.
    fn common(&self) -> &Common;
}

/// What the values of these names are: times, sizes, process ids. None begins with a hyphen unless it is wrong, so one that does
/// is taken as a value, and the value's own parser says what is wrong with it.
const MEASURES: [&str; 3] = ["TIME", "SIZE", "PID"];

/// The definition of a tool's command line.
pub fn command<T: CommandFactory>() -> Command {
    let is_measure = |arg: &Arg| {
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| MEASURES.contains(&name.as_str())))
    };
    T::command().mut_args(|arg| if is_measure(&arg) { arg.allow_hyphen_values(true) } else { arg })
}

/// Reads the command line of this process. Ends the process with 2 where it is wrong, with 0 after `--help` and `--version`.
pub fn parse<T: Parser>() -> T {
    T::from_arg_matches(&command::<T>().get_matches()).unwrap_or_else(|error| error.exit())
}

/// Answers the flags that print something about the tool itself: `Some` when that was all that was asked.
pub fn answer<T: Parser + CommandFactory + HasCommon>(options: &T) -> anyhow::Result<Option<Exit>> {
    let common = options.common();
    let mut out = std::io::stdout().lock();
    if common.schema {
        out.write_all(SCHEMA.as_bytes())?;
        return Ok(Some(Exit::Ok));
    }
    let Some(what) = common.generate else { return Ok(None) };
    let mut command = command::<T>();
    let shell = match what {
        Generate::Man => {
            man::write(&command, &mut out)?;
            return Ok(Some(Exit::Ok));
        }
        Generate::Bash => clap_complete::Shell::Bash,
        Generate::Zsh => clap_complete::Shell::Zsh,
        Generate::Fish => clap_complete::Shell::Fish,
    };
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    out.write_all(&script)?;
    Ok(Some(Exit::Ok))
}

/// `60s`, `500ms`, `2m`, `1h30m`; a bare number is seconds. For clap's `value_parser`.
pub fn duration(text: &str) -> anyhow::Result<Duration> {
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    match parsed {
        Some(d) if d > Duration::ZERO && d < Duration::from_secs(100 * 365 * 86_400) => Ok(d),
        Some(_) => bail!("must be above zero and below a hundred years"),
        None => bail!("is no duration; write for instance 60s, 500ms, 2m"),
    }
}

/// A process id. For clap's `value_parser`.
pub fn pid(text: &str) -> anyhow::Result<u32> {
    match text.parse() {
        Ok(0) => bail!("is the kernel's idle task, which is no process"),
        Ok(pid) => Ok(pid),
        Err(_) => bail!("is no process id; `pgrep -a NAME` shows those of processes"),
    }
}

/// `64k`, `16m`, `1MiB`, `4096`: bytes, in binary units. For clap's `value_parser`.
pub fn size_bytes(text: &str) -> anyhow::Result<u64> {
    match parse_size::Config::new().with_binary().parse_size(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => bail!("is no size in bytes; write for instance 64k, 16m, 4096"),
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("60s").unwrap(), Duration::from_secs(60));
        assert_eq!(duration("1.5").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("2m 500ms").unwrap(), Duration::from_millis(120_500));
        for bad in ["", "x", "-1", "0", "NaN", "inf", "5 parsecs", "1e300"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn process_ids() {
        assert_eq!(pid("4711").unwrap(), 4711);
        for bad in ["0", "-1", "x", "", "4294967296", "1.5"] {
            assert!(pid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_negative_value_is_answered_by_its_own_parser() {
        #[derive(Parser, Debug)]
        struct Tool {
            #[arg(short, long, value_name = "TIME", value_parser = duration)]
            duration: Option<Duration>,
            #[arg(short, long, value_name = "PID", value_parser = pid, value_delimiter = ',')]
            pid: Vec<u32>,
            #[arg(short, long)]
            quiet: bool,
        }
        let parse = |arguments: &[&str]| command::<Tool>().try_get_matches_from([&["tool"], arguments].concat());
        for (arguments, said) in [
            (&["-d", "-5s"][..], "is no duration"),
            (&["--duration=-5s"], "is no duration"),
            (&["-d", "-q"], "is no duration"),
            (&["-p", "-1"], "is no process id"),
            (&["-p", "0"], "idle task"),
        ] {
            let error = parse(arguments).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("tip:"), "{error}");
        }
        let tool = Tool::from_arg_matches(&parse(&["-p", "1,2", "-q", "-d", "5s"]).unwrap()).unwrap();
        assert_eq!((tool.pid, tool.quiet, tool.duration), (vec![1, 2], true, Some(Duration::from_secs(5))));
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(size_bytes("64k").unwrap(), 65_536);
        assert_eq!(size_bytes("1MiB").unwrap(), 1 << 20);
        assert_eq!(size_bytes("4096").unwrap(), 4096);
        assert!(size_bytes("many").is_err());
    }
}
