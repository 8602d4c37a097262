//! The forms in which the joined stream can be written.

mod chrome;
mod csv;

use std::io;

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
        Format::Ndjson => Box::new(Ndjson { out }),
        Format::Csv => Box::new(csv::Csv::new(out)),
        Format::Chrome => Box::new(chrome::Chrome::new(out)),
    }
}

struct Ndjson<S> {
    out: S,
}

impl<S: Sink> Writer for Ndjson<S> {
    fn record(&mut self, line: &[u8]) -> io::Result<()> {
        self.out.write_all(line)?;
        self.out.write_all(b"\n")
    }

    fn sink(&mut self) -> &mut dyn Sink {
        &mut self.out
    }
}
