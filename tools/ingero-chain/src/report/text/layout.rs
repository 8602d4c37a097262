//! Lines of a width: wrapped between words only, labelled, coloured.

use anstyle::{AnsiColor, Style};
use textwrap::{Options, WordSeparator, WordSplitter};

use crate::findings::severity::Severity;

/// In files and pipes.
const COLUMNS: usize = 80;
/// Lines of prose that are longer are hard to read, and below the least there is no layout.
const LEAST_COLUMNS: usize = 60;
const MOST_COLUMNS: usize = 160;

/// What the place where the text goes can show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) columns: usize,
    pub(crate) colour: bool,
    /// More than ASCII.
    pub(crate) unicode: bool,
}

impl Look {
    /// For a terminal of so many columns, or for a file.
    pub(crate) fn new(columns: Option<usize>, colour: bool) -> Self {
        let columns = columns.unwrap_or(COLUMNS).clamp(LEAST_COLUMNS, MOST_COLUMNS);
        Self { columns, colour, unicode: is_utf8(|name| std::env::var(name).ok()) }
    }
}

/// Whether the locale is one of UTF-8, by the variables that name it, the strongest first.
fn is_utf8(var: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| var(name)).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();

/// The colour of a severity.
pub(super) fn severity_style(severity: Option<Severity>) -> Style {
    match severity {
        Some(Severity::High) => AnsiColor::Red.on_default().bold(),
        Some(Severity::Medium) => AnsiColor::Yellow.on_default().bold(),
        Some(Severity::Low) => BOLD,
        None => AnsiColor::Green.on_default().bold(),
    }
}

/// `text` in `style`.
pub(super) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// `first` and then `text`, wrapped between words; what follows the first line stands behind `indent` spaces. Where a word is
/// longer than the room behind `first`, the text begins on a line of its own, little indented.
pub(super) fn hang(look: Look, first: &str, indent: usize, text: &str) -> String {
    let longest = glued(text).split(' ').map(textwrap::core::display_width).max().unwrap_or(0);
    if indent > LABEL && indent + longest > look.columns {
        let text = wrap(look, &" ".repeat(LABEL), LABEL, text);
        return if first.trim().is_empty() { text } else { format!("{}\n{text}", first.trim_end()) };
    }
    wrap(look, first, indent, text)
}

/// Where text behind a label begins: `  when   `.
pub(super) const LABEL: usize = 9;

/// A text behind a label.
pub(super) fn labelled(look: Look, label: &str, text: &str) -> String {
    hang(look, &label_of(label), LABEL, text)
}

/// A label with the space around it.
pub(super) fn label_of(label: &str) -> String {
    let pad = " ".repeat(LABEL.saturating_sub(2 + label.len()));
    if label.is_empty() { format!("  {pad}") } else { format!("  {}{pad}", paint(DIM, label)) }
}

fn wrap(look: Look, first: &str, indent: usize, text: &str) -> String {
    let rest = " ".repeat(indent);
    let options = Options::new(look.columns)
        .initial_indent(first)
        .subsequent_indent(&rest)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(&glued(text), options).replace(NO_BREAK, " ")
}

const NO_BREAK: char = '\u{a0}';

/// A number and its unit are one word: `15.5 s`, `99 %`.
fn glued(text: &str) -> String {
    const UNITS: [&str; 12] = ["ns", "us", "ms", "s", "%", "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut glued = String::with_capacity(text.len());
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        glued.push_str(word);
        let Some(next) = words.peek() else { break };
        let unit = next.trim_end_matches([',', ';', ':', '.', ')', '|']);
        let number = word.trim_start_matches(['(', '<']);
        let is_number =
            number.starts_with(|c: char| c.is_ascii_digit()) && number.ends_with(|c: char| c.is_ascii_digit());
        glued.push(if is_number && UNITS.contains(&unit) { NO_BREAK } else { ' ' });
    }
    glued
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { columns: 60, colour: false, unicode: false };

    #[test]
    fn lines_break_between_words_and_not_before_a_unit() {
        let text = "the GPU waited 15.5 s of 15.6 s (99 %) of the loop-in-question, all of the time it";
        assert_eq!(
            wrap(LOOK, "12345 ", 6, text),
            "12345 the GPU waited 15.5 s of 15.6 s (99 %) of the\n      loop-in-question, all of the time it"
        );
        for at in 0..60 {
            let text = format!("{}x 15.5 s", "y".repeat(at));
            assert!(wrap(LOOK, "", 0, &text).lines().any(|line| line.contains("15.5 s")));
        }
    }

    #[test]
    fn a_long_word_gets_a_line_of_its_own_and_is_not_broken() {
        let word = "w".repeat(45);
        let text = hang(LOOK, "  why    100 %                          ", 40, &format!("see {word}"));
        assert_eq!(text, format!("  why    100 %\n         see {word}"));
    }

    #[test]
    fn the_strongest_variable_names_the_locale() {
        let with = |set: &[(&str, &str)]| {
            is_utf8(|name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LANG", "C"), ("LC_CTYPE", "C.utf8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "de_DE.UTF-8")]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]) && !with(&[]));
    }

    #[test]
    fn columns_are_those_of_the_terminal_within_reason() {
        assert_eq!([None, Some(20), Some(100), Some(1000)].map(|c| Look::new(c, false).columns), [80, 60, 100, 160]);
    }
}
