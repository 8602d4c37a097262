//! Where the joined stream goes.

use std::io::{self, Write};

use ingero_common::output::Output;

/// A writer that knows about pipes; what is not one may leave everything as it is.
pub trait Sink: Write {
    /// Flushes if the last time is long ago.
    fn flush_if_due(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether nobody reads any more.
    fn reader_gone(&self) -> bool {
        false
    }

    /// Whether people look at it directly.
    fn is_terminal(&self) -> bool {
        false
    }
}

impl Sink for Output {
    fn flush_if_due(&mut self) -> io::Result<()> {
        Output::flush_if_due(self)
    }

    fn reader_gone(&self) -> bool {
        Output::reader_gone(self)
    }

    fn is_terminal(&self) -> bool {
        Output::is_terminal(self)
    }
}

impl Sink for Vec<u8> {}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn flush_if_due(&mut self) -> io::Result<()> {
        (**self).flush_if_due()
    }

    fn reader_gone(&self) -> bool {
        (**self).reader_gone()
    }

    fn is_terminal(&self) -> bool {
        (**self).is_terminal()
    }
}
