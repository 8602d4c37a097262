//! Newline-delimited JSON, both ways.
//!
//! Reading splits at 0x0A only and hands out each line as the bytes that came in, so that a filter can
//! pass on what it does not understand byte for byte. Writing goes through serde_json with a formatter
//! that also escapes what JSON allows but terminals and line-based tools trip over.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::text::is_unprintable;

/// A line longer than this is no record of ours: it is skipped and counted as bad.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

const CHUNK_BYTES: usize = 256 * 1024;

/// One line of input, without its line end (`\n` or `\r\n`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Counted from 1; blank lines count.
    pub number: u64,
    /// The line was longer than [`MAX_LINE_BYTES`]: `bytes` is only its beginning.
    pub too_long: bool,
}

/// Splits a byte stream into lines without copying them.
#[derive(Debug)]
pub struct LineReader<R> {
    input: R,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// How far past `start` is known to hold no line end.
    searched: usize,
    number: u64,
    eof: bool,
}

impl<R: Read> LineReader<R> {
    /// Reads from `input`, which needs no buffering of its own.
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; CHUNK_BYTES], start: 0, end: 0, searched: 0, number: 0, eof: false }
    }

    /// The number of the line handed out last.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// Whether a whole line is there already, so that [`Self::next_line`] will not read.
    pub fn has_buffered_line(&self) -> bool {
        memchr::memchr(b'\n', &self.buffer[self.start..self.end]).is_some()
    }

    /// The next line that is not blank; `None` at the end of the input. A missing last newline is accepted.
    pub fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            let Some((from, to, too_long)) = self.next_range()? else { return Ok(None) };
            self.number += 1;
            let mut to = to;
            if to > from && self.buffer[to - 1] == b'\r' {
                to -= 1;
            }
            if self.buffer[from..to].iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            return Ok(Some(Line { bytes: &self.buffer[from..to], number: self.number, too_long }));
        }
    }

    fn next_range(&mut self) -> io::Result<Option<(usize, usize, bool)>> {
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &unread[self.searched..]) {
                let (from, to) = (self.start, self.start + self.searched + at);
                self.start = to + 1;
                self.searched = 0;
                return Ok(Some((from, to, false)));
            }
            self.searched = unread.len();
            if self.eof {
                let (from, to) = (self.start, self.end);
                self.start = to;
                self.searched = 0;
                return Ok((from < to).then_some((from, to, false)));
            }
            if unread.len() >= MAX_LINE_BYTES {
                self.skip_line()?;
                // The beginning stays in the buffer for a message; what follows the line was moved behind it.
                return Ok(Some((0, CHUNK_BYTES.min(self.start), true)));
            }
            self.fill()?;
        }
    }

    /// Makes room and reads once.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 && self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.eof = true;
                    return Ok(());
                }
                Ok(n) => {
                    self.end += n;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Drops the rest of an overlong line, keeping its first chunk at the front of the buffer.
    fn skip_line(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.start + CHUNK_BYTES, 0);
        loop {
            // Everything from CHUNK_BYTES on is scratch.
            let n = match self.input.read(&mut self.buffer[CHUNK_BYTES..]) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.searched = 0;
            if n == 0 {
                self.eof = true;
                (self.start, self.end) = (CHUNK_BYTES, CHUNK_BYTES);
                return Ok(());
            }
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[CHUNK_BYTES..CHUNK_BYTES + n]) {
                (self.start, self.end) = (CHUNK_BYTES + at + 1, CHUNK_BYTES + n);
                return Ok(());
            }
        }
    }
}

/// Writes records, one a line, through one reused buffer.
#[derive(Debug)]
pub struct RecordWriter<W> {
    out: W,
    line: Vec<u8>,
}

impl<W: Write> RecordWriter<W> {
    /// Writes to `out`, which should buffer in blocks.
    pub fn new(out: W) -> Self {
        Self { out, line: Vec::with_capacity(1024) }
    }

    /// Serialises one record and ends its line.
    pub fn write<T: Serialize + ?Sized>(&mut self, record: &T) -> io::Result<()> {
        self.line.clear();
        to_json(&mut self.line, record)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }

    /// Where it writes to.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// Where it writes to.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Gives the sink back.
    pub fn into_inner(self) -> W {
        self.out
    }
}

/// Appends `value` as JSON, with every control, separator and bidirectional character escaped.
pub fn to_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut *out, Safe)).map_err(io::Error::from)
}

/// JSON's own escapes, and those of [`is_unprintable`] on top.
struct Safe;

impl Formatter for Safe {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        // Names, ops and times are ASCII; DEL is the only one of those that serde_json leaves as it is.
        if fragment.bytes().all(|b| (0x20..0x7f).contains(&b)) {
            return writer.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|&(_, c)| is_unprintable(c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            write_escaped(writer, c)?;
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }

    /// JSON that came in and goes out as it is.
    fn write_raw_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut safe = Vec::with_capacity(fragment.len());
        to_safe_line(&mut safe, fragment.as_bytes())?;
        writer.write_all(&safe)
    }
}

/// Beyond the basic plane a character is a pair of surrogates.
fn write_escaped<W: ?Sized + Write>(writer: &mut W, c: char) -> io::Result<()> {
    c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
}

/// Appends a line of valid JSON with the same meaning in which nothing is left that acts on a terminal: what a filter passes
/// on byte for byte, where people look at it directly. Inside strings it is escaped; outside of them there is white space.
pub fn to_safe_line(out: &mut Vec<u8>, line: &[u8]) -> io::Result<()> {
    let mut in_string = false;
    let mut escaped = false;
    for chunk in line.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' if !escaped => in_string = !in_string,
                c if !is_unprintable(c) => {}
                _ if !in_string => {
                    out.push(b' ');
                    continue;
                }
                c => {
                    write_escaped(out, c)?;
                    escaped = false;
                    continue;
                }
            }
            escaped = c == '\\' && !escaped;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        // There is none in valid JSON.
        chunk.invalid().iter().for_each(|_| out.push(b'?'));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes a few at a time.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(self.1).min(buf.len());
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn lines(input: &[u8], step: usize) -> Vec<(u64, Vec<u8>, bool)> {
        let mut reader = LineReader::new(Drip(input, step));
        let mut all = Vec::new();
        while let Some(line) = reader.next_line().unwrap() {
            all.push((line.number, line.bytes.to_vec(), line.too_long));
        }
        all
    }

    #[test]
    fn line_ends_blank_lines_and_a_missing_last_newline() {
        let input = b"a\r\n\n \r\nb\xe2\x80\xa8b\nlast";
        for step in [1, 2, 3, 100] {
            let got = lines(input, step);
            let want = [(1, "a"), (4, "b\u{2028}b"), (5, "last")];
            assert_eq!(got, want.map(|(n, s)| (n, s.as_bytes().to_vec(), false)), "step {step}");
        }
        assert_eq!(lines(b"", 1), []);
    }

    #[test]
    fn an_overlong_line_is_one_bad_line_and_the_next_one_is_read() {
        let mut input = vec![b'x'; MAX_LINE_BYTES + 3 * CHUNK_BYTES];
        input.extend_from_slice(b"\n{}\n{\"a\":1}");
        let got = lines(&input, 1 << 20);
        assert_eq!(got.len(), 3);
        assert!(got[0].2 && got[0].1.iter().all(|&b| b == b'x'));
        assert_eq!((got[1].0, got[1].1.as_slice()), (2, b"{}".as_slice()));
        assert_eq!((got[2].0, got[2].1.as_slice()), (3, b"{\"a\":1}".as_slice()));
        let got = lines(&input[..MAX_LINE_BYTES + 5], 1 << 20);
        assert_eq!((got.len(), got[0].2), (1, true));
    }

    #[test]
    fn lines_longer_than_a_chunk_come_out_whole() {
        let long = vec![b'y'; CHUNK_BYTES * 3 + 17];
        let input = [b"first\n".as_slice(), &long, b"\nlast\n"].concat();
        let got = lines(&input, 70_000);
        assert_eq!(got.iter().map(|l| l.1.len()).collect::<Vec<_>>(), [5, long.len(), 4]);
    }

    #[test]
    fn written_text_is_one_safe_line_that_reads_back_equal() {
        let name = "q\"\\\u{1}\n\u{7f}\u{85}\u{2028}\u{202e}caf\u{e9}\u{1f600}\u{200b}\u{e0041}\u{fe0f}";
        let mut writer = RecordWriter::new(Vec::new());
        writer.write(name).unwrap();
        let out = String::from_utf8(writer.into_inner()).unwrap();
        assert!(!out.trim_end_matches('\n').chars().any(is_unprintable), "{out:?}");
        assert_eq!(serde_json::from_str::<String>(&out).unwrap(), name);
    }

    #[test]
    fn raw_json_inside_a_record_is_safe_too() {
        let raw: &serde_json::value::RawValue = serde_json::from_str("{\"a\":\t\"\u{9b}\u{202e}\"}").unwrap();
        let mut out = Vec::new();
        to_json(&mut out, &[raw]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), r#"[{"a": "\u009b\u202e"}]"#);
    }

    #[test]
    fn a_line_that_was_passed_on_means_the_same_when_it_is_safe() {
        let line = "{\t\"a\\\\\":\r\"\u{7f}\u{9b}2J\u{202e}\\\"\u{e0041}\\u001b\", \"caf\u{e9}\":[1, {}]}";
        let mut safe = Vec::new();
        to_safe_line(&mut safe, line.as_bytes()).unwrap();
        let safe = String::from_utf8(safe).unwrap();
        assert!(!safe.chars().any(is_unprintable), "{safe:?}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&safe), value(line));
    }
}
