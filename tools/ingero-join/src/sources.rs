//! Which inputs to read: those named, and stdin where it is meant.
//!
//! `ingero-cuda | ingero-join <(ingero-sched)` means both streams, although only one is named.
//! `ingero-join cuda.ndjson sched.ndjson` means these two, whatever stdin happens to be: in a script, a CI
//! job or an ssh session it may be closed, /dev/null, a terminal, or a pipe that nobody ever closes.
//!
//! | named            | stdin is                                    | stdin is read                      |
//! |------------------|---------------------------------------------|------------------------------------|
//! | nothing          | a terminal                                  | no: an error says what to do       |
//! | nothing          | anything else                               | yes                                |
//! | `-` among them   | anything                                    | yes                                |
//! | one, not `-`     | a pipe or a socket                          | yes, but see below                 |
//! | one, not `-`     | a regular file at its beginning             | yes (`ingero-join b.ndjson < a.ndjson`) |
//! | one, not `-`     | a regular file read in part                 | no (`while read f; do ingero-join $f; done < list`) |
//! | one, not `-`     | a terminal, /dev/null, closed               | no                                 |
//! | two or more      | anything                                    | no                                 |
//!
//! The one doubtful case is a single named input beside an inherited pipe that never says anything. Such a
//! stdin holds nothing up (it stalls like any silent pipe), and once the named input has ended it is waited
//! for only a little.

use std::fs::{File, FileType};
use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;

use anyhow::{Context, bail};
use ingero_common::input::Input;

use crate::options::Options;

/// An input and how to treat it.
#[derive(Clone, Debug)]
pub struct Source {
    /// What to read.
    pub input: Input,
    /// A regular file: never silent, only slow.
    pub patient: bool,
    /// Stdin that nobody named.
    pub implied: bool,
}

impl Source {
    /// An input that was named. Fails early where it plainly can't be opened.
    pub fn named(input: Input) -> anyhow::Result<Self> {
        if input.is_stdin() {
            return Ok(Self { patient: stdin_type().is_some_and(|t| t.is_file()), implied: false, input });
        }
        let metadata = std::fs::metadata(input.as_os_str()).with_context(|| format!("opening {}", input.name()))?;
        if metadata.is_dir() {
            bail!("opening {}: it is a directory; name the files in it", input.name());
        }
        Ok(Self { patient: metadata.is_file(), implied: false, input })
    }
}

/// The inputs of a run, stdin first.
pub fn sources(options: &Options) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for name in &options.inputs {
        let source = Source::named(Input::new(name))?;
        // Stdin is one stream, however often it is named, and the first one.
        if !source.input.is_stdin() {
            sources.push(source);
        } else if !sources.first().is_some_and(|s: &Source| s.input.is_stdin()) {
            sources.insert(0, source);
        }
    }
    if sources.is_empty() {
        if std::io::stdin().is_terminal() {
            bail!("nothing to read: name the streams to merge, or pipe one in (--help has examples)");
        }
        sources.push(Source::named(Input::stdin())?);
    } else if let [only] = sources.as_slice()
        && !only.input.is_stdin()
        && stdin_is_meant()
    {
        sources.insert(0, Source { implied: true, ..Source::named(Input::stdin())? });
    }
    Ok(sources)
}

fn stdin_is_meant() -> bool {
    stdin_type().is_some_and(|kind| {
        kind.is_fifo() || kind.is_socket() || kind.is_file() && rustix::fs::tell(rustix::stdio::stdin()) == Ok(0)
    })
}

fn stdin_type() -> Option<FileType> {
    let stdin = rustix::stdio::stdin().try_clone_to_owned().ok()?;
    Some(File::from(stdin).metadata().ok()?.file_type())
}
