//! Text for people: durations, sizes, shares, and names of traced things made safe to print.

use std::fmt::{self, Write as _};
use std::io::Write as _;

/// Writes one line to stderr with the tool's name in front. Everything unprintable is escaped,
/// since messages carry names that come from traced processes.
pub fn say(tool: &str, message: &str) {
    // A closed stderr must not end a tracer: there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "{tool}: {}", Printable(message.as_bytes()));
}

/// What a tool tells people while it works, on stderr.
#[derive(Clone, Debug)]
pub struct Log {
    tool: &'static str,
    quiet: bool,
    verbose: bool,
}

impl Log {
    /// `quiet` silences notes (not warnings); `verbose` adds details.
    pub fn new(tool: &'static str, quiet: bool, verbose: bool) -> Self {
        Self { tool, quiet, verbose }
    }

    /// The name that stands before each line.
    pub fn tool(&self) -> &'static str {
        self.tool
    }

    /// Something is wrong or missing; always printed.
    pub fn warn(&self, message: impl AsRef<str>) {
        say(self.tool, message.as_ref());
    }

    /// Something worth knowing; silenced by `-q`.
    pub fn note(&self, message: impl AsRef<str>) {
        if !self.quiet {
            say(self.tool, message.as_ref());
        }
    }

    /// A detail; printed with `-v` only.
    pub fn detail(&self, message: impl AsRef<str>) {
        if self.verbose {
            say(self.tool, message.as_ref());
        }
    }
}

/// Whether a character could move the cursor, hide or reorder text on a terminal: controls, line and
/// paragraph separators, and the bidirectional formatting characters of Unicode.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{061C}' | '\u{FEFF}')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// Displays bytes of unknown origin on one line: what is unprintable as `\u{…}`, what is not UTF-8 as `\xNN`.
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_unprintable(c) {
                    write!(f, "{}", c.escape_unicode())?;
                } else {
                    f.write_char(c)?;
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A count with its noun: `1 process`, `2 processes`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A name from a traced process as a cell of a table: on one line, and never a formula to a spreadsheet.
pub fn table_cell(text: &str) -> String {
    let text = Printable(text.as_bytes()).to_string();
    if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text }
}

/// Displays nanoseconds in the largest unit that keeps three significant digits: `1.25 ms`, `870 ns`, `12.0 s`.
pub struct Nanos(pub u64);

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            ns @ 0..1_000 => format!("{ns} ns"),
            ns @ 1_000..1_000_000 => scaled(ns as f64 / 1e3, "us"),
            ns @ 1_000_000..1_000_000_000 => scaled(ns as f64 / 1e6, "ms"),
            ns => scaled(ns as f64 / 1e9, "s"),
        };
        f.pad(&text)
    }
}

/// Displays a size in binary units: `4.00 KiB`.
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let power = (self.0.ilog2() / 10) as usize;
        let value = self.0 as f64 / f64::powi(1024.0, power as i32);
        f.pad(&scaled(value, units[power - 1]))
    }
}

fn scaled(value: f64, unit: &str) -> String {
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_on_their_line() {
        let name = b"a\x1b[2Jb\ncaf\xc3\xa9\xff\xe2\x80\xae".as_slice();
        assert_eq!(Printable(name).to_string(), "a\\u{1b}[2Jb\\u{a}caf\u{e9}\\xff\\u{202e}");
    }

    #[test]
    fn cells_are_no_formulas() {
        assert_eq!(table_cell("=HYPERLINK(\"x\")"), "'=HYPERLINK(\"x\")");
        assert_eq!(table_cell("a\nb"), "a\\u{a}b");
    }

    #[test]
    fn durations_keep_three_digits() {
        let shown: Vec<_> = [0, 999, 1_000, 12_345, 1_250_000, 99_949_999, 12_000_000_000]
            .into_iter()
            .map(|ns| Nanos(ns).to_string())
            .collect();
        assert_eq!(shown, ["0 ns", "999 ns", "1.00 us", "12.3 us", "1.25 ms", "99.9 ms", "12.0 s"]);
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(4096).to_string(), "4.00 KiB");
        assert_eq!(Bytes(u64::MAX).to_string(), "16.0 EiB");
    }
}
