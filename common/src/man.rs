//! Man pages, from the same definition as `--help`.
//!
//! What follows the options in `--help` is a page's further sections: a line of capitals alone is the title of one. Indented
//! lines stay as they are; others are paragraphs.
//!
//! ```text
//! EXAMPLES                                    .SH EXAMPLES
//!                                             .nf
//!   ingero-cuda --list                          ingero-cuda --list
//!                                             .fi
//! EXIT STATUS                                 .SH "EXIT STATUS"
//!
//! 0 done; 2 an error.                         0 done; 2 an error.
//! ```

use std::io::{self, Write};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The suite, for the references between its pages.
const TOOLS: [&str; 5] = ["ingero-cuda", "ingero-sched", "ingero-join", "ingero-chain", "ingero-mcp"];

/// Writes the man page of a tool.
///
/// # Errors
/// Those of `out`.
pub fn write(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let further = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let man = Man::new(command.clone()).manual("ingero");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    let mut page = Roff::new();
    for (title, body) in sections(&further) {
        page.control("SH", [title]);
        write_body(&mut page, &body);
    }
    page.to_writer(out)?;
    man.render_version_section(out)?;
    let mut page = Roff::new();
    page.control("SH", ["SEE ALSO"]);
    let others: Vec<&str> = TOOLS.into_iter().filter(|tool| *tool != name).collect();
    let mut references = Vec::new();
    for (at, other) in others.iter().enumerate() {
        references.extend([bold(*other), roman(if at + 1 < others.len() { "(1), " } else { "(1)" })]);
    }
    page.text(references);
    page.to_writer(out)
}

/// The sections of a text, each with its lines. What stands before the first title is one of notes.
fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        if is_title(line) {
            all.push((line, Vec::new()));
        } else if let Some((_, body)) = all.last_mut() {
            body.push(line);
        } else if !line.is_empty() {
            all.push(("NOTES", vec![line]));
        }
    }
    all
}

fn is_title(line: &str) -> bool {
    line.starts_with(|c: char| c.is_ascii_uppercase()) && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ')
}

fn write_body(page: &mut Roff, lines: &[&str]) {
    let (mut as_it_is, mut began, mut gap) = (false, false, false);
    for line in lines {
        if line.is_empty() {
            gap = began;
            continue;
        }
        let indented = line.starts_with(' ');
        if indented != as_it_is {
            page.control(if indented { "nf" } else { "fi" }, []);
            as_it_is = indented;
        }
        if std::mem::take(&mut gap) {
            page.control("PP", []);
        }
        page.text([roman(*line)]);
        began = true;
    }
    if as_it_is {
        page.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(after: &'static str) -> String {
        let command = Command::new("ingero-cuda").version("1.2.3").about("traces").after_long_help(after);
        let mut page = Vec::new();
        write(&command, &mut page).unwrap();
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn titles_are_sections_and_examples_keep_their_lines() {
        let page = page("EXAMPLES\n\n  tool -x   does x\n  tool -y\n\nEXIT STATUS\n\n0 done.\n\nOr more.\n");
        let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part:?} in\n{page}"));
        let places = [
            at(".SH EXAMPLES\n.nf\n  tool \\-x   does x\n  tool \\-y\n.fi\n"),
            at(".SH \"EXIT STATUS\"\n0 done.\n.PP\nOr more.\n"),
            at(".SH VERSION\n"),
            at(".SH \"SEE ALSO\"\n\\fBingero\\-sched\\fR(1), "),
        ];
        assert!(places.is_sorted(), "{page}");
        assert!(!page.contains("EXTRA") && !page.contains("\\fBingero\\-cuda\\fR(1)"), "{page}");
    }

    #[test]
    fn a_text_without_titles_is_one_of_notes() {
        assert!(page("So it is.").contains(".SH NOTES\nSo it is.\n"));
        assert_eq!(sections(""), []);
        assert!(!is_title("A Sentence") && !is_title("") && !is_title("  A") && is_title("EXIT STATUS"));
    }
}
