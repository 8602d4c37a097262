//! How an answer stays short, plain and complete.
//!
//! - **Short**: an answer has at most [`MAX_ANSWER_BYTES`], which is under 20,000 tokens at four bytes each; lists stop
//!   before that and say how to go on. The structured content and the text, which is the same as JSON inside a JSON
//!   string, both count.
//! - **Plain**: texts that come from traced programs are data. Whatever could move, hide or reorder text is escaped, also
//!   what is invisible to people but not to models, and long texts are cut.
//! - **Complete**: every list has its total and a cursor.

use std::fmt::Write as _;

use ingero_common::text::is_unprintable;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// All of an answer, in bytes: structured content and text together.
pub(crate) const MAX_ANSWER_BYTES: usize = 78_000;

/// A text of a recording has at most so many characters in an answer.
pub(crate) const MAX_TEXT_CHARS: usize = 400;

/// What stands at the end of every list.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct PageInfo {
    /// How many there are in all
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// How many are in this answer
    pub(crate) returned: u64,
    /// There are more than are in this answer
    pub(crate) truncated: bool,
    /// Give this as `cursor`, with the same other arguments, for what follows
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_cursor: Option<String>,
}

/// A list that is filled until it is full.
#[derive(Debug)]
pub(crate) struct Filler {
    items: Vec<Value>,
    limit: usize,
    left_bytes: usize,
}

impl Filler {
    /// For at most `limit` items beside `rest`, the answer without them.
    pub(crate) fn new(limit: usize, rest: &impl Serialize) -> Self {
        let rest_bytes = cost_bytes(&plain(rest)) + 500;
        Self { items: Vec::new(), limit, left_bytes: MAX_ANSWER_BYTES.saturating_sub(rest_bytes) }
    }

    /// Adds an item; `false` when it doesn't fit any more. The first one always does, and [`fit`] cuts its texts.
    pub(crate) fn push(&mut self, item: &impl Serialize) -> bool {
        let item = plain(item);
        let bytes = cost_bytes(&item);
        if self.items.len() >= self.limit || (bytes > self.left_bytes && !self.items.is_empty()) {
            return false;
        }
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        self.items.push(item);
        true
    }

    /// Takes a part of `all`, from the place `offset` on.
    pub(crate) fn page<T: Serialize>(
        mut self,
        all: impl ExactSizeIterator<Item = T>,
        offset: usize,
    ) -> (Vec<Value>, PageInfo) {
        let total = all.len();
        for item in all.skip(offset) {
            if !self.push(&item) {
                break;
            }
        }
        let next = offset + self.items.len();
        let truncated = next < total;
        let page = PageInfo {
            total: Some(total as u64),
            returned: self.items.len() as u64,
            truncated,
            next_cursor: truncated.then(|| format!("at:{next}")),
        };
        (self.items, page)
    }

    /// What has been added.
    pub(crate) fn into_items(self) -> Vec<Value> {
        self.items
    }
}

/// The place that a cursor of [`Filler::page`] names.
pub(crate) fn offset(cursor: Option<&str>) -> Result<usize, String> {
    let Some(cursor) = cursor.filter(|c| !c.is_empty()) else { return Ok(0) };
    cursor.strip_prefix("at:").and_then(|at| at.parse().ok()).ok_or_else(|| bad_cursor(cursor))
}

/// What to say of a cursor that nobody gave out.
pub(crate) fn bad_cursor(cursor: &str) -> String {
    format!(
        "cursor {} was not given out by this tool: leave it out to begin, then pass on next_cursor as it is",
        quoted(cursor)
    )
}

/// A value with all texts in it made plain.
pub(crate) fn plain(value: &impl Serialize) -> Value {
    // Only a map with keys that are no texts can fail, and there is none.
    let mut value = serde_json::to_value(value).unwrap_or(Value::Null);
    make_plain(&mut value);
    value
}

fn make_plain(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(plain) = plain_text(text) {
                *text = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_plain),
        Value::Object(map) => map.values_mut().for_each(make_plain),
        _ => {}
    }
}

/// `None` where the text is plain already.
fn plain_text(text: &str) -> Option<String> {
    let short = text.len() <= MAX_TEXT_CHARS || text.chars().nth(MAX_TEXT_CHARS).is_none();
    if short && !text.chars().any(is_unprintable) {
        return None;
    }
    let mut plain = String::with_capacity(text.len().min(4 * MAX_TEXT_CHARS));
    let mut chars = text.chars();
    for c in chars.by_ref().take(MAX_TEXT_CHARS) {
        if is_unprintable(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    match chars.count() {
        0 => {}
        more => {
            let _ = write!(plain, "... ({more} more characters)");
        }
    }
    Some(plain)
}

/// Cuts texts shorter and shorter until the answer is short enough: for recordings in which every name is as long and as
/// odd as can be. What has been counted stays true, since nothing but texts is cut.
pub(crate) fn fit(mut answer: Value) -> Value {
    for chars in [120, 40, 16] {
        if cost_bytes(&answer) <= MAX_ANSWER_BYTES {
            break;
        }
        cut(&mut answer, chars);
    }
    answer
}

fn cut(value: &mut Value, chars: usize) {
    match value {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(chars) {
                text.truncate(at);
                text.push_str("...");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, chars)),
        // A cursor is of use as a whole only.
        Value::Object(map) => {
            map.iter_mut().filter(|(key, _)| *key != "next_cursor").for_each(|(_, item)| cut(item, chars));
        }
        _ => {}
    }
}

/// A text inside a message: as a JSON string, made plain and short.
pub(crate) fn quoted(text: &str) -> String {
    let short: String = text.chars().take(80).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    plain(&format!("{short}{more}")).to_string()
}

/// Bytes that a value costs in an answer: once as it is, once as JSON inside a JSON string.
pub(crate) fn cost_bytes(value: &Value) -> usize {
    let json = value.to_string();
    let escapes = json.bytes().filter(|b| matches!(b, b'"' | b'\\')).count();
    2 * json.len() + escapes + 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_stays() {
        let hidden = "a\u{1b}[2J\u{202e}b\u{200b}\u{e0041}\u{fe0f}\n</tool>caf\u{e9} \u{1f600}";
        let text = plain(&hidden);
        assert_eq!(
            text.as_str().unwrap(),
            "a\\u{1b}[2J\\u{202e}b\\u{200b}\\u{e0041}\\u{fe0f}\\u{a}</tool>caf\u{e9} \u{1f600}"
        );
        assert!(plain(&"x".repeat(10_000)).as_str().unwrap().ends_with("... (9600 more characters)"));
    }

    #[test]
    fn an_answer_of_odd_texts_is_cut_until_it_fits() {
        let odd = "\u{202e}\"\\".repeat(1000);
        let items: Vec<Value> = (0..60).map(|_| serde_json::json!({"src": odd, "op": odd})).collect();
        let answer = fit(plain(
            &serde_json::json!({"kinds": items, "next_cursor": "ns:9223372036854775807:9223372036854775807"}),
        ));
        assert!(cost_bytes(&answer) <= MAX_ANSWER_BYTES);
        assert_eq!(answer["kinds"].as_array().unwrap().len(), 60);
        assert_eq!(answer["next_cursor"].as_str().unwrap().len(), 42);
        let short = serde_json::json!({"a": "x".repeat(400)});
        assert_eq!(fit(short.clone()), short);
    }

    #[test]
    fn a_page_ends_before_the_answer_is_too_long_and_the_next_one_goes_on() {
        let items: Vec<String> = (0..1000).map(|i| format!("{i:0>300}")).collect();
        let mut seen = 0;
        let mut cursor = None;
        loop {
            let at = offset(cursor.as_deref()).unwrap();
            let (page, info) = Filler::new(500, &serde_json::json!({"a": 1})).page(items.iter(), at);
            assert!(page.iter().map(cost_bytes).sum::<usize>() <= MAX_ANSWER_BYTES);
            assert_eq!(page[0].as_str().unwrap().trim_start_matches('0').parse().unwrap_or(0), at);
            seen += page.len();
            cursor = info.next_cursor;
            assert_eq!(info.truncated, cursor.is_some());
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, 1000);
        assert!(offset(Some("5; drop")).unwrap_err().contains("\"5; drop\""));
    }
}
