//! The quick way to read a record: one pass over a line of the plain form that our own writers make.
//!
//! Plain means: no whitespace between tokens, ASCII without escapes in strings, integers where the
//! contract has integers, every known key once and with its type. That is nearly every line of every
//! stream. Whatever is not plain in the slightest gives `None`, and the line is read by serde, which
//! decides alone what is a record, what is somebody else's object and what is no JSON. So this can only
//! ever be quicker, not different; the tests below compare the two on lines plain and strange.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::record::read::{Record, Str, Who};

/// Values nested deeper than this are not plain.
const MAX_DEPTH: u32 = 16;

/// The record in a plain line; `None` says nothing about the line.
pub(super) fn scan(line: &[u8]) -> Option<Record<'_>> {
    let mut cursor = Cursor { line, at: 0 };
    let mut record = Record::default();
    let mut seen = 0;
    cursor.object(|cursor, key| member(cursor, key, &mut record, &mut seen))?;
    (cursor.at == line.len()).then_some(record)
}

/// Reads the value of `key` into its place. `seen` has a bit for each known key.
#[rustfmt::skip] // A line a key.
fn member<'a>(cursor: &mut Cursor<'a>, key: &'a [u8], r: &mut Record<'a>, seen: &mut u64) -> Option<()> {
    let bit = match key {
        b"src" => { r.src = cursor.text()?; 0 }
        b"op" => { r.op = cursor.text()?; 1 }
        b"mono_ns" => { r.mono_ns = Some(cursor.u64()?); 2 }
        b"ts" => { r.ts = Some(cursor.text()?); 3 }
        b"dur_ns" => { r.dur_ns = Some(cursor.u64()?); 4 }
        b"pid" => { r.pid = Some(cursor.u32()?); 5 }
        b"tid" => { r.tid = Some(cursor.u32()?); 6 }
        b"comm" => { r.comm = cursor.text()?; 7 }
        b"open" => { r.open = cursor.bool()?; 8 }
        b"late" => { r.late = cursor.bool()?; 9 }
        b"depth" => { r.depth = cursor.u32()?; 10 }
        b"ret" => { r.ret = Some(cursor.i64()?); 11 }
        b"bytes" => { r.bytes = Some(cursor.u64()?); 12 }
        b"dir" => { r.dir = Some(cursor.text()?); 13 }
        b"stream" => { r.stream = Some(cursor.text()?); 14 }
        b"func" => { r.func = Some(cursor.text()?); 15 }
        b"count" => { r.count = Some(cursor.u64()?); 16 }
        b"host" => { r.host = Some(cursor.raw()?); 17 }
        b"state" => { r.state = Some(cursor.text()?); 18 }
        b"runq_ns" => { r.runq_ns = Some(cursor.u64()?); 19 }
        b"cpu" => { r.cpu = Some(cursor.u32()?); 20 }
        b"by" => { r.by = Some(cursor.who()?); 21 }
        b"prev" => { r.prev = Some(cursor.who()?); 22 }
        b"waker" => { r.waker = Some(cursor.who()?); 23 }
        b"waker_irq" => { r.waker_irq = cursor.bool()?; 24 }
        b"child_pid" => { r.child_pid = Some(cursor.u32()?); 25 }
        b"child_tid" => { r.child_tid = Some(cursor.u32()?); 26 }
        b"tool" => { r.tool = Some(cursor.text()?); 27 }
        b"boot_id" => { r.boot_id = Some(cursor.text()?); 28 }
        b"wall_offset_ns" => { r.wall_offset_ns = Some(cursor.text()?); 29 }
        b"why" => { r.why = Some(cursor.text()?); 30 }
        _ => return cursor.skip(0),
    };
    once(seen, bit)
}

/// Marks a key as seen; a second time is not plain.
fn once(seen: &mut u64, bit: u32) -> Option<()> {
    let mask = 1 << bit;
    let first = *seen & mask == 0;
    *seen |= mask;
    first.then_some(())
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// An object, each of whose values `member` has to read.
    fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            member(self, key)?;
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A string of printable ASCII without escapes; what stands between the quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = &self.line[self.at..];
        let len = rest.iter().position(|&b| !is_plain(b))?;
        if rest[len] != b'"' {
            return None;
        }
        self.at += len + 1;
        Some(&rest[..len])
    }

    fn text(&mut self) -> Option<Str<'a>> {
        std::str::from_utf8(self.string()?).ok().map(|text| Str(Cow::Borrowed(text)))
    }

    /// A number of digits only, without leading zeros.
    fn u64(&mut self) -> Option<u64> {
        let begin = self.at;
        let mut value: u64 = 0;
        while let Some(digit) = self.peek().map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
            self.at += 1;
        }
        let len = self.at - begin;
        let plain = len == 1 || len > 1 && self.line[begin] != b'0';
        // A fraction or an exponent would follow; both need a decision that is serde's.
        (plain && !matches!(self.peek(), Some(b'.' | b'e' | b'E'))).then_some(value)
    }

    fn u32(&mut self) -> Option<u32> {
        u32::try_from(self.u64()?).ok()
    }

    fn i64(&mut self) -> Option<i64> {
        if self.peek()? != b'-' {
            return i64::try_from(self.u64()?).ok();
        }
        self.at += 1;
        // "-0" is a fraction to serde.
        self.u64().filter(|&n| n > 0).and_then(|n| 0i64.checked_sub_unsigned(n))
    }

    fn bool(&mut self) -> Option<bool> {
        let value = self.peek()? == b't';
        self.word(if value { b"true" } else { b"false" })?;
        Some(value)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.line[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    fn who(&mut self) -> Option<Who<'a>> {
        let mut who = Who::default();
        let mut seen = 0;
        #[rustfmt::skip] // As above.
        let member = |cursor: &mut Self, key: &'a [u8]| {
            let bit = match key {
                b"pid" => { who.pid = cursor.u32()?; 0 }
                b"tid" => { who.tid = cursor.u32()?; 1 }
                b"comm" => { who.comm = cursor.text()?; 2 }
                _ => return cursor.skip(1),
            };
            once(&mut seen, bit)
        };
        self.object(member)?;
        Some(who)
    }

    /// Any plain value but `null`.
    fn raw(&mut self) -> Option<&'a RawValue> {
        let begin = self.at;
        self.skip(0)?;
        let bytes = &self.line[begin..self.at];
        if bytes == b"null" { None } else { serde_json::from_slice(bytes).ok() }
    }

    /// Steps over a plain value.
    fn skip(&mut self, depth: u32) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            b'{' if depth < MAX_DEPTH => self.object(|cursor, _| cursor.skip(depth + 1)),
            b'[' if depth < MAX_DEPTH => self.array(depth),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn array(&mut self, depth: u32) -> Option<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.skip(depth + 1)?;
            let byte = self.peek()?;
            self.at += 1;
            match byte {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A number without an exponent.
    fn number(&mut self) -> Option<()> {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let begin = self.at;
        let whole = self.digits();
        if whole == 0 || whole > 1 && self.line[begin] == b'0' {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return None;
            }
        }
        (!matches!(self.peek(), Some(b'e' | b'E'))).then_some(())
    }

    fn digits(&mut self) -> usize {
        let len = self.line[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += len;
        len
    }
}

/// Bytes that a plain string is made of.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const LINES: [&str; 8] = [
        r#"{"src":"cudart","op":"cudaLaunchKernel","mono_ns":9007199254740993,"ts":"2026-11-30T12:00:01.001000000Z","dur_ns":1000000,"pid":100,"tid":101,"comm":"train","ret":-1,"depth":0,"bytes":18446744073709551615,"dir":"h2d","stream":"0x0","func":"0x7f","count":3,"grid":[1,2,3],"shmem":0,"open":true}"#,
        r#"{"src":"sched","op":"sched_switch","mono_ns":1,"dur_ns":0,"pid":1,"tid":1,"state":"R","runq_ns":7,"cpu":3,"by":{"pid":900,"tid":901,"comm":"noisy"},"prev":{"pid":0,"tid":0,"comm":"swapper/0","x":[{}]},"waker":{},"waker_irq":true,"late":false}"#,
        r#"{"src":"ingero","op":"start","host":"box","boot_id":"b","tool":"t","wall_offset_ns":"17","why":"w","child_pid":4,"child_tid":5}"#,
        r#"{"src":"cuda","op":"x","host":{"off_ns":1,"by":[{"pid":3,"comm":"c","ns":1}],"watched":true}}"#,
        r#"{"a":1.5,"b":-0.25,"c":[],"d":{},"e":[[1,[2]],"x",null,true,false],"n":0,"m":-7}"#,
        r#"{}"#,
        r#"{"pid":4294967295,"tid":0,"ret":-9223372036854775808,"host":null,"host2":1}"#,
        r#"{"src":"","comm":"a b c ~!#"}"#,
    ];

    /// A key that is added to these structs must be added above too, or plain lines would lose it.
    #[test]
    fn every_key_is_known() {
        #[rustfmt::skip]
        let Record {
            src: _, op: _, mono_ns: _, ts: _, dur_ns: _, pid: _, tid: _, comm: _, open: _, late: _, depth: _, ret: _,
            bytes: _, dir: _, stream: _, func: _, count: _, host: _, state: _, runq_ns: _, cpu: _, by: _, prev: _,
            waker: _, waker_irq: _, child_pid: _, child_tid: _, tool: _, boot_id: _, wall_offset_ns: _, why: _,
        } = Record::default();
        let Who { pid: _, tid: _, comm: _ } = Who::default();
    }

    /// What serde says, as one comparable text.
    fn slow(line: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(line).ok()?;
        serde_json::from_str::<Record<'_>>(text).ok().map(|r| format!("{r:?}"))
    }

    fn compare(line: &[u8]) -> bool {
        let Some(quick) = scan(line) else { return false };
        assert_eq!(Some(format!("{quick:?}")), slow(line), "{}", String::from_utf8_lossy(line));
        true
    }

    #[test]
    fn plain_lines_are_read_and_read_the_same() {
        for line in &LINES {
            // `null` is where serde has several meanings; `host` leaves it to serde.
            let plain = compare(line.as_bytes());
            assert!(plain || line.contains("null"), "{line}");
            serde_json::from_str::<Value>(line).unwrap();
        }
    }

    #[test]
    fn whatever_is_accepted_is_what_serde_reads() {
        // Every line with one byte left out, doubled, or replaced by one of those that mean something.
        let mut accepted = 0;
        for line in LINES.map(str::as_bytes) {
            for at in 0..line.len() {
                let mut changed = vec![[&line[..at], &line[at + 1..]].concat(), [&line[..=at], &line[at..]].concat()];
                for byte in *b"{}[]\",:\\0-.e9ntfx \x01\x7f\xff" {
                    let mut line = line.to_vec();
                    line[at] = byte;
                    changed.push(line);
                }
                accepted += changed.iter().filter(|line| compare(line)).count();
            }
        }
        assert!(accepted > 1000, "{accepted}");
    }

    #[test]
    fn what_is_not_plain_is_left_to_serde() {
        for line in [
            r#"{"pid":1,"pid":2}"#,
            r#"{"pid":1.0}"#,
            r#"{"pid":-1}"#,
            r#"{"pid":01}"#,
            r#"{"pid":4294967296}"#,
            r#"{"mono_ns":18446744073709551616}"#,
            r#"{"mono_ns":null}"#,
            r#"{"src":"\u0041"}"#,
            "{\"src\":\"caf\u{e9}\"}",
            r#"{ "src":"a"}"#,
            r#"{"src":"a"} "#,
            r#"{"src":"a",}"#,
            r#"{"a":1e3}"#,
            r#"{"ret":-0}"#,
            "{\"a\":\"\x7f\"}",
            "",
        ] {
            assert!(scan(line.as_bytes()).is_none(), "{line}");
        }
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(scan(deep.as_bytes()).is_none());
    }
}
