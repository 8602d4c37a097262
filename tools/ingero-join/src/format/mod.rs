//! The forms in which the joined stream can be written.

mod chrome;
mod csv;

use std::io;

use ingero_common::ndjson::to_safe_line;

use crate::options::Format;
use crate::sink::Sink;

/// Takes the joined stream's records one by one, in order.
pub(crate) trait Writer {
    /// One record, as a line without its end.
    fn record(&mut self, line: &[u8]) -> io::Result<()>;

    /// There are no more.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The sink below.
    fn sink(&mut self) -> &mut dyn Sink;
}

/// The writer for a format.
pub(crate) fn writer<'a, S: Sink + 'a>(format: Format, out: S) -> Box<dyn Writer + 'a> {
    match format {
        Format::Ndjson => Box::new(Ndjson { safe: out.is_terminal(), line: Vec::new(), out }),
        Format::Csv => Box::new(csv::Csv::new(out)),
        Format::Chrome => Box::new(chrome::Chrome::new(out)),
    }
}

/// Lines that came in go out byte for byte, but for a terminal, which would obey what traced programs call themselves.
struct Ndjson<S> {
    out: S,
    safe: bool,
    line: Vec<u8>,
}

impl<S: Sink> Writer for Ndjson<S> {
    fn record(&mut self, line: &[u8]) -> io::Result<()> {
        if self.safe {
            self.line.clear();
            to_safe_line(&mut self.line, line)?;
            self.out.write_all(&self.line)?;
        } else {
            self.out.write_all(line)?;
        }
        self.out.write_all(b"\n")
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.out
    }
}
