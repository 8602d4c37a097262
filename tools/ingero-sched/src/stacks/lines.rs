//! Which line of a function an instruction belongs to: the three forms of CPython's tables.
//!
//! All of them walk through the code from its beginning, in steps of so many bytes, and say for each step what it does to the line.

/// The form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `co_lnotab`, up to 3.9: pairs (bytes, lines), the lines signed, which hold from there on.
    Lnotab,
    /// `co_linetable` of 3.10 (PEP 626): pairs (bytes, lines), which hold for these bytes; -128 lines: it has none.
    Pairs,
    /// `co_linetable` since 3.11 (Objects/locations.md): entries of several forms, each with its length in units of two bytes.
    Locations,
}

/// The line of the instruction at byte `at` of the code; `None` where it has none.
pub(crate) fn line(form: Form, table: &[u8], first_line: u32, at: i64) -> Option<u32> {
    // Before its first instruction a function is at its first line.
    if at < 0 {
        return Some(first_line);
    }
    let first = i64::from(first_line);
    let line = match form {
        Form::Lnotab => lnotab(table, first, at),
        Form::Pairs => pairs(table, first, at)?,
        Form::Locations => locations(table, first, at)?,
    };
    u32::try_from(line).ok().filter(|&line| line > 0)
}

fn lnotab(table: &[u8], first: i64, at: i64) -> i64 {
    let (mut from, mut line) = (0, first);
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        from += i64::from(bytes);
        if from > at {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    line
}

fn pairs(table: &[u8], first: i64, at: i64) -> Option<i64> {
    let (mut to, mut line) = (0, first);
    for &[bytes, lines] in table.as_chunks::<2>().0 {
        to += i64::from(bytes);
        let lines = lines.cast_signed();
        if lines != i8::MIN {
            line += i64::from(lines);
        }
        if to > at {
            return (lines != i8::MIN).then_some(line);
        }
    }
    None
}

fn locations(table: &[u8], first: i64, at: i64) -> Option<i64> {
    let mut bytes = table.iter().copied();
    let (mut to, mut line) = (0, first);
    while let Some(head) = bytes.next() {
        let code = (head >> 3) & 15;
        to += 2 * (i64::from(head & 7) + 1);
        let has_line = code != 15;
        match code {
            // Columns only.
            0..=9 => {
                bytes.next();
            }
            10..=12 => {
                line += i64::from(code) - 10;
                bytes.nth(1);
            }
            13 => line += signed(&mut bytes)?,
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            _ => {}
        }
        if to > at {
            return has_line.then_some(line);
        }
    }
    None
}

/// Six bits a byte, the lowest first, another one after each with bit 6 set.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// The lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    Some(if value & 1 == 0 { value >> 1 } else { -(value >> 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn form(minor: u32) -> Form {
        match minor {
            ..=9 => Form::Lnotab,
            10 => Form::Pairs,
            _ => Form::Locations,
        }
    }

    /// The interpreter itself says which line each of its instructions is on: in functions of its library.
    #[test]
    fn lines_are_those_that_python_says() {
        const SCRIPT: &str = "
import dis, inspect, json, argparse, os, pathlib, textwrap, threading
for module in (json, argparse, os, pathlib, textwrap, threading):
    for _, value in sorted(vars(module).items()):
        for f in [value] + ([v for _, v in sorted(vars(value).items())] if inspect.isclass(value) else []):
            code = getattr(f, '__code__', None)
            if code is None:
                continue
            table = code.co_linetable if hasattr(code, 'co_linetable') else code.co_lnotab
            lines, line = [], None
            if hasattr(code, 'co_lines'):
                for start, end, line in code.co_lines():
                    lines += [(at, line) for at in range(start, end, 2)]
            else:
                starts = dict(dis.findlinestarts(code))
                for at in range(0, len(code.co_code), 2):
                    line = starts.get(at, line)
                    lines.append((at, line))
            print(table.hex() or '-', code.co_firstlineno, ' '.join(f'{at}:{line or 0}' for at, line in lines))
";
        let mut checked = 0;
        for (minor, python) in ingero_tests::python::interpreters() {
            let form = form(minor);
            let out = Command::new(&python).args(["-c", SCRIPT]).output().unwrap();
            assert!(out.status.success(), "{python:?}: {}", String::from_utf8_lossy(&out.stderr));
            for row in String::from_utf8(out.stdout).unwrap().lines() {
                let mut parts = row.split(' ');
                let hex = parts.next().unwrap().trim_matches('-').as_bytes();
                let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
                let table: Vec<u8> = hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
                let first: u32 = parts.next().unwrap().parse().unwrap();
                for pair in parts {
                    let (at, want) = pair.split_once(':').unwrap();
                    let found = line(form, &table, first, at.parse().unwrap()).unwrap_or(0);
                    assert_eq!(found, want.parse::<u32>().unwrap(), "{python:?} at {at}: {row}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 1_000, "{checked}");
    }

    #[test]
    fn tables_of_hostile_bytes_end() {
        for form in [Form::Lnotab, Form::Pairs, Form::Locations] {
            for byte in 0..=255_u8 {
                let _ = line(form, &[byte; 301], 1, 1 << 40);
                let _ = line(form, &[byte], u32::MAX, 0);
            }
            assert_eq!(line(form, &[], 7, -2), Some(7));
        }
    }
}
