//! What there is to say of one process, before its findings one by one.

use ingero_common::text::Nanos;

use super::layout::{DIM, LABEL, Look, hang, label_of, labelled, paint, severity_style};
use crate::findings::severity::Severity;
use crate::limits::MAX_ADVICE;
use crate::report::head::{Head, Why};
use crate::report::model::{Advice, Finding, Kind, Summary};
use crate::report::phrases;
use crate::report::sentences::{self, pct};
use crate::report::strip::Cell;

/// Where text behind a severity begins.
const TAG: usize = 9;
/// The longest bar of a cause.
const BAR: usize = 12;

pub(super) fn process(page: &mut String, head: &Head<'_>, summary: &Summary, look: Look) {
    tagged(page, (head.verdict(), head.severity()), &head.line(), look);
    if let Some(line) = head.loop_line() {
        push(page, &labelled(look, "loop", &line));
    }
    for finding in &head.also {
        let tag = format!("[{}] ", finding.severity.name().to_uppercase());
        let text = format!("{}{}", paint(severity_style(Some(finding.severity)), &tag), head.claim(finding));
        push(page, &labelled(look, "also", &text));
    }
    when(page, head, look);
    why(page, head, look);
    for (i, wait) in head.lead.map(phrases::waits).unwrap_or_default().iter().enumerate() {
        push(page, &labelled(look, if i == 0 { "waits" } else { "" }, wait));
    }
    for finding in head.lead.iter().chain(&head.also) {
        advice(page, finding, look);
    }
    push(page, &labelled(look, "data", &head.data(summary)));
    if let Some(main) = head.lead {
        let what = if main.op == Kind::Gap { "each gap and its causes" } else { "all of its evidence" };
        push(page, &labelled(look, "more", &format!("--explain {}: {what}", main.id.whole())));
    }
    page.push('\n');
}

fn push(page: &mut String, lines: &str) {
    page.push_str(lines);
    page.push('\n');
}

/// A line behind its severity.
pub(super) fn tagged(page: &mut String, (name, severity): (&str, Option<Severity>), text: &str, look: Look) {
    let tag = format!("[{name}]");
    let pad = " ".repeat(TAG.saturating_sub(tag.len()));
    push(page, &hang(look, &format!("{}{pad}", paint(severity_style(severity), &tag)), TAG, text));
}

/// The recording with the waits drawn.
fn when(page: &mut String, head: &Head<'_>, look: Look) {
    let cells = look.columns - LABEL - 2;
    let Some(strip) = head.strip(cells) else { return };
    let drawn: String = strip.iter().map(|cell| draw(*cell, look)).collect();
    let edge = if look.unicode { '│' } else { '|' };
    push(page, &format!("{}{edge}{drawn}{edge}", label_of("when")));
    let (from, to) = head.times();
    let between = (look.columns - LABEL).saturating_sub(from.len() + to.len());
    push(page, &format!("{}{from}{}{to}", " ".repeat(LABEL), " ".repeat(between)));
    let full = draw(Cell::Loop(1.0), look);
    let mut key = format!("{full} the GPU waited");
    if strip.contains(&Cell::Outside) {
        key.push_str(&format!("   {} start-up or shutdown", draw(Cell::Outside, look)));
    }
    push(page, &format!("{}{}", " ".repeat(LABEL), paint(DIM, &key)));
}

/// A cell by its share: nothing is a blank, anything a mark.
fn draw(cell: Cell, look: Look) -> char {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '%', '#'];
    match cell {
        Cell::Outside => {
            if look.unicode {
                '·'
            } else {
                '~'
            }
        }
        Cell::Loop(share) => {
            let level = (share * 8.0).ceil().clamp(0.0, 8.0) as usize;
            if look.unicode { BLOCKS[level] } else { ASCII[level] }
        }
    }
}

/// The causes with bars.
fn why(page: &mut String, head: &Head<'_>, look: Look) {
    let (whys, rest) = head.whys();
    for (i, why) in whys.iter().enumerate() {
        let first = format!("{}{}", label_of(if i == 0 { "why" } else { "" }), numbers(why, look));
        push(page, &hang(look, &first, LABEL + NUMBERS, &why.text));
        for place in &why.places {
            push(page, &hang(look, &" ".repeat(LABEL + NUMBERS + 2), LABEL + NUMBERS + 4, place));
        }
    }
    if let Some((n, ns)) = rest {
        let all = head.lead.map_or(1, |main| main.lost.lost_ns.max(1));
        let share = pct(ns as f64 / all as f64);
        let what = sentences::count(n as u64, "smaller cause");
        let label = label_of(if whys.is_empty() { "why" } else { "" });
        push(page, &format!("{label}{share:>5}  {:BAR$}  {:>7}  {what}", "", Nanos(ns).to_string()));
    }
}

/// ` 73 %  ########      11.3 s  `
const NUMBERS: usize = 5 + 2 + BAR + 2 + 7 + 2;

fn numbers(why: &Why, look: Look) -> String {
    format!("{:>5}  {}  {:>7}  ", pct(why.share), bar(why.share, BAR, look), Nanos(why.ns).to_string())
}

/// A bar of `width` for all of it, in eighths of a character where there are such.
pub(super) fn bar(share: f64, width: usize, look: Look) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = share.clamp(0.0, 1.0);
    let (text, len) = if look.unicode {
        let eighths = marks(share, width * 8);
        let part = EIGHTHS[eighths % 8];
        (format!("{}{part}", "█".repeat(eighths / 8)), eighths / 8 + usize::from(!part.is_empty()))
    } else {
        let full = marks(share, width);
        ("#".repeat(full), full)
    };
    format!("{text}{}", " ".repeat(width.saturating_sub(len)))
}

/// So many of `all`, one at least of anything.
fn marks(share: f64, all: usize) -> usize {
    ((share * all as f64).round() as usize).max(usize::from(share > 0.0))
}

/// What to try, and how much it could bring.
pub(super) fn advice(page: &mut String, finding: &Finding, look: Look) {
    for one in finding.story.advice.iter().take(MAX_ADVICE) {
        push(page, &labelled(look, "try", &bring(one)));
    }
}

/// A piece of advice with how much it could bring, where that is known.
pub(super) fn bring(advice: &Advice) -> String {
    match advice.up_to_ns {
        0 => advice.text.clone(),
        ns => format!("up to {}: {}", Nanos(ns), advice.text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Look = Look { columns: 80, colour: false, unicode: true };
    const ASCII: Look = Look { columns: 80, colour: false, unicode: false };

    #[test]
    fn bars_and_cells_grow_with_the_share_and_keep_their_width() {
        for look in [UNICODE, ASCII] {
            let filled = |share| bar(share, 8, look).trim_end().chars().count();
            assert_eq!([0.0, 0.5, 1.0, 2.0].map(filled), [0, 4, 8, 8]);
            assert!((0..=100).all(|i| bar(f64::from(i) / 100.0, 8, look).chars().count() == 8));
        }
        assert_eq!(bar(0.03, 8, UNICODE).trim_end(), "▎");
        assert_eq!([UNICODE, ASCII].map(|look| bar(0.001, 8, look)), ["▏       ", "#       "]);
        assert_eq!([0.0, 0.001, 0.5, 1.0].map(|share| draw(Cell::Loop(share), UNICODE)), [' ', '▁', '▄', '█']);
        assert_eq!([0.0, 0.001, 1.0].map(|share| draw(Cell::Loop(share), ASCII)), [' ', '.', '#']);
    }
}
