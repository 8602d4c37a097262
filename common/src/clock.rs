//! CLOCK_MONOTONIC and the wall clock, and the one offset between them.
//!
//! Records carry `mono_ns` (what `bpf_ktime_get_ns` reads) and `ts`, the same instant as wall clock.
//! Both differ by one number, measured when a stream starts and checked again while it runs: a step of
//! the wall clock becomes a `clock` record and never a jump inside a duration.

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Steps of the wall clock below this are the daily work of NTP's slewing and of sampling noise.
const STEP_NS: i64 = 1_000_000;

/// CLOCK_MONOTONIC now, in nanoseconds.
pub fn mono_ns() -> u64 {
    read(ClockId::Monotonic) as u64
}

fn read(id: ClockId) -> i64 {
    let t = clock_gettime(id);
    t.tv_sec * NANOS_PER_SEC as i64 + t.tv_nsec
}

/// Wall clock minus CLOCK_MONOTONIC in nanoseconds: the best of many samples, that is the one whose
/// two readings of the monotonic clock around the wall clock's lie closest together.
pub fn wall_offset_ns() -> i64 {
    let sample = |_| {
        let before = read(ClockId::Monotonic);
        let wall = read(ClockId::Realtime);
        let after = read(ClockId::Monotonic);
        (after - before, wall - (before + after) / 2)
    };
    (0..32).map(sample).min_by_key(|&(width, _)| width).map_or(0, |(_, offset)| offset)
}

/// Places monotonic instants on the wall clock.
#[derive(Clone, Debug)]
pub struct WallClock {
    offset_ns: i64,
    /// The second that `text` shows, as seconds since the epoch.
    second: i64,
    text: Ts,
}

/// A timestamp as text, `2026-11-29T12:02:03.123456789Z`: always 30 bytes, sorts as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ts([u8; 30]);

impl Ts {
    /// The text.
    pub fn as_str(&self) -> &str {
        // Only ASCII is ever stored; the empty string would be a visible bug, not a crash.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl serde::Serialize for Ts {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl WallClock {
    /// With the offset measured now.
    pub fn measured() -> Self {
        Self::with_offset(wall_offset_ns())
    }

    /// With a known offset, for instance the one in a stream's `start` record.
    pub fn with_offset(offset_ns: i64) -> Self {
        Self { offset_ns, second: i64::MIN, text: Ts(*b"1970-01-01T00:00:00.000000000Z") }
    }

    /// Wall clock minus CLOCK_MONOTONIC, in nanoseconds.
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns
    }

    /// The monotonic instant `mono_ns` as wall clock text. Renders the date once a second; the rest is nine digits.
    pub fn ts(&mut self, mono_ns: u64) -> Ts {
        let wall = i128::from(mono_ns) + i128::from(self.offset_ns);
        let second = wall.div_euclid(i128::from(NANOS_PER_SEC)) as i64;
        let mut nanos = wall.rem_euclid(i128::from(NANOS_PER_SEC)) as u32;
        if second != self.second {
            self.render_second(second);
        }
        for digit in self.text.0[20..29].iter_mut().rev() {
            *digit = b'0' + (nanos % 10) as u8;
            nanos /= 10;
        }
        self.text
    }

    /// Measures again: the step in nanoseconds when the wall clock was set meanwhile, which is taken over.
    pub fn recheck(&mut self) -> Option<i64> {
        let now = wall_offset_ns();
        let step = now - self.offset_ns;
        if step.abs() < STEP_NS {
            return None;
        }
        *self = Self::with_offset(now);
        Some(step)
    }

    fn render_second(&mut self, second: i64) {
        let t = OffsetDateTime::from_unix_timestamp(second).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let fields = [
            (0, 4, t.year() as u32),
            (5, 2, u32::from(u8::from(t.month()))),
            (8, 2, u32::from(t.day())),
            (11, 2, u32::from(t.hour())),
            (14, 2, u32::from(t.minute())),
            (17, 2, u32::from(t.second())),
        ];
        for (at, len, mut value) in fields {
            for digit in self.text.0[at..at + len].iter_mut().rev() {
                *digit = b'0' + (value % 10) as u8;
                value /= 10;
            }
        }
        self.second = second;
    }
}

/// Wall clock text (RFC 3339) to nanoseconds since the epoch; `None` where it is no such text.
pub fn parse_ts(text: &str) -> Option<i128> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(OffsetDateTime::unix_timestamp_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mut clock = WallClock::with_offset(1_796_040_000_000_000_000);
        for mono in
            [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001, 86_400_000_000_123, u64::from(u32::MAX) * 1_000_000]
        {
            let ts = clock.ts(mono);
            assert_eq!(parse_ts(ts.as_str()), Some(i128::from(mono) + 1_796_040_000_000_000_000), "{}", ts.as_str());
        }
        assert_eq!(clock.ts(1_001_000_000).as_str(), "2026-11-30T12:00:01.001000000Z");
    }

    #[test]
    fn a_measured_offset_does_not_step_by_itself() {
        let mut clock = WallClock::measured();
        assert_eq!(clock.recheck(), None);
        clock.offset_ns -= 5_000_000_000;
        let step = clock.recheck().unwrap();
        assert!((4_990_000_000..5_010_000_000).contains(&step), "{step}");
    }

    #[test]
    fn instants_before_the_epoch_do_not_wrap() {
        assert_eq!(WallClock::with_offset(-1).ts(0).as_str(), "1969-12-31T23:59:59.999999999Z");
    }
}
