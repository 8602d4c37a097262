//! Text for people: durations, sizes, shares, and names of traced things made safe to print.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use serde::{Serialize, Serializer};

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

/// Whether a character could move the cursor, hide or reorder text on a terminal, or is invisible to people but not to
/// programs and models: controls, line and paragraph separators, what Unicode calls default ignorable (bidirectional
/// formatting, zero width, fillers, variation selectors, tags; `DerivedCoreProperties.txt`, `Default_Ignorable_Code_Point`),
/// and interlinear annotation.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{FFF9}'..='\u{FFFB}')
        || matches!(c, '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}')
        || matches!(c, '\u{180B}'..='\u{180F}' | '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}')
        || matches!(c, '\u{3164}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFF8}')
        || matches!(c, '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
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

/// So many characters of a traced text are shown in a line for people.
const MAX_SHOWN: usize = 60;

/// Text that a traced process, a recording or a command line chose: a thread's name, an operation, a file. What shows it
/// to people cannot help escaping it, because it is no `str` and there is no other way to format it. Records hold it as it
/// is: their writer escapes by the rules of JSON.
///
/// ```compile_fail
/// # use ingero_common::text::Traced;
/// let name = Traced::from("\u{1b}[2J");
/// let shown: &str = &name;
/// ```
///
/// ```compile_fail
/// # use ingero_common::text::Traced;
/// # use std::io::Write;
/// let name = Traced::from("\u{1b}[2J");
/// std::io::stdout().write_all(name.as_ref());
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traced(String);

impl Traced {
    /// What it is, unescaped: to compare and to search, never to show.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Escaped like all of it, and not cut, however long it is: what people copy into a command.
    pub fn whole(&self) -> Printable<'_> {
        Printable(self.0.as_bytes())
    }

    /// As a cell of a table; see [`table_cell`].
    pub fn cell(&self) -> String {
        table_cell(&self.0)
    }
}

impl From<&str> for Traced {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<&Self> for Traced {
    fn from(text: &Self) -> Self {
        text.clone()
    }
}

impl From<String> for Traced {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl PartialEq<str> for Traced {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Traced {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// On one line, what is unprintable escaped, and no longer than a line for people has room for.
impl fmt::Display for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.whole().to_string();
        if let Some((at, _)) = text.char_indices().nth(MAX_SHOWN) {
            text.truncate(at);
            text.push_str("...");
        }
        f.pad(&text)
    }
}

/// Escaped as well: a failing assertion reaches a terminal, too.
impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.whole())
    }
}

impl Serialize for Traced {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
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
    fn what_nobody_sees_is_unprintable_and_what_people_write_is_not() {
        for c in "\0\u{7f}\u{9b}\u{ad}\u{200b}\u{200d}\u{200f}\u{2028}\u{2060}\u{2065}\u{206f}\u{fe0f}\u{feff}\u{fffb}\u{e0001}\u{e01ef}".chars() {
            assert!(is_unprintable(c), "{c:?}");
        }
        for c in "a \u{e9}\u{628}\u{5d0}\u{3042}\u{4e2d}\u{301}\u{fffd}\u{1f600}\u{10ffff}".chars() {
            assert!(!is_unprintable(c), "{c:?}");
        }
    }

    #[test]
    fn traced_text_is_shown_escaped_and_short_and_recorded_as_it_is() {
        let name = Traced::from("a\u{1b}[2J\u{202e}");
        assert_eq!(
            (name.to_string().as_str(), format!("{name:?}").as_str()),
            ("a\\u{1b}[2J\\u{202e}", "\"a\\u{1b}[2J\\u{202e}\"")
        );
        assert_eq!(serde_json::to_value(&name).unwrap(), "a\u{1b}[2J\u{202e}");
        assert_eq!(format!("{:<4}|", Traced::from("ab")), "ab  |");
        let long = Traced::from("x".repeat(1000));
        assert_eq!((long.to_string().len(), long.whole().to_string().len()), (MAX_SHOWN + 3, 1000));
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
