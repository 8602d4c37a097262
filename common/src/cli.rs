//! The command-line contract that all tools share: common flags, durations and sizes, the schema page,
//! man pages and completions made from the same definitions.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, CommandFactory, Parser, ValueEnum};

use crate::exit::Exit;
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

/// Answers the flags that print something about the tool itself: `Some` when that was all that was asked.
pub fn answer<T: Parser + CommandFactory + HasCommon>(options: &T) -> anyhow::Result<Option<Exit>> {
    let common = options.common();
    let mut out = std::io::stdout().lock();
    if common.schema {
        out.write_all(SCHEMA.as_bytes())?;
        return Ok(Some(Exit::Ok));
    }
    let Some(what) = common.generate else { return Ok(None) };
    let mut command = T::command();
    let shell = match what {
        Generate::Man => {
            clap_mangen::Man::new(command).render(&mut out)?;
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

/// `64k`, `16m`, `1MiB`, `4096`: bytes, in binary units. For clap's `value_parser`.
pub fn size_bytes(text: &str) -> anyhow::Result<u64> {
    match parse_size::Config::new().with_binary().parse_size(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => bail!("is no size in bytes; write for instance 64k, 16m, 4096"),
    }
}

#[cfg(test)]
mod tests {
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
    fn sizes_are_binary() {
        assert_eq!(size_bytes("64k").unwrap(), 65_536);
        assert_eq!(size_bytes("1MiB").unwrap(), 1 << 20);
        assert_eq!(size_bytes("4096").unwrap(), 4096);
        assert!(size_bytes("many").is_err());
    }
}
