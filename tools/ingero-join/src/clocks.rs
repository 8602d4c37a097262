//! Which inputs share a clock.
//!
//! CLOCK_MONOTONIC counts from a machine's boot: two streams can be compared exactly when their `boot_id`
//! is the same (containers on one kernel may have different host names). Anything else is refused, or,
//! on request, lined up by wall clock, which is as good as the machines' time synchronisation; calls
//! then still get their `host` from streams of their own kernel only.
//!
//! A stream by another clock is refused: CLOCK_BOOTTIME also counts the time that the machine slept, and no
//! record says how much that was. Streams of one boot whose wall clocks differ are told of, since their `ts`
//! can't be compared; their order is not touched by it.

use anyhow::bail;

use crate::item::Start;

/// The clock of the record contract.
const MONOTONIC: &str = "monotonic";

/// Two measurements of one offset differ by less (NTP's slewing and sampling noise).
const NOISE_NS: u64 = 1_000_000;

/// The kernel lets a clock be slewed by at most a tenth (adjtimex(2): `tick` is 900,000/HZ to 1,100,000/HZ), so two
/// starts may differ by a tenth of the time between them. More is a step, or sleep, which CLOCK_MONOTONIC leaves out.
const SLEW_DIVISOR: u64 = 10;

/// The kernels whose streams are joined.
#[derive(Debug)]
pub(crate) struct Clocks {
    domains: Vec<Domain>,
    allow_mixed: bool,
    /// What the user should be told.
    notices: Vec<String>,
}

#[derive(Debug)]
struct Domain {
    input: String,
    host: Box<str>,
    boot_id: Box<str>,
    mono_ns: Option<u64>,
    wall_offset_ns: Option<i64>,
    /// Other wall clocks than the first one's were told of.
    told: bool,
}

impl Clocks {
    pub(crate) fn new(allow_mixed: bool) -> Self {
        Self { domains: Vec::new(), allow_mixed, notices: Vec::new() }
    }

    /// The number of the kernel that a stream called `input` came from.
    pub(crate) fn admit(&mut self, input: &str, start: &Start) -> anyhow::Result<u16> {
        if !start.clock.is_empty() && *start.clock != *MONOTONIC {
            bail!(
                "{input}: its times are by the clock {:?}, which can't be compared with {MONOTONIC:?} ones; record it \
                 with CLOCK_MONOTONIC",
                start.clock
            );
        }
        if let Some(at) = self.domains.iter().position(|d| d.shares_clock_with(start)) {
            self.notices.extend(self.domains[at].compare_wall_clock(input, start));
            return Ok(at as u16);
        }
        if let Some(first) = self.domains.first()
            && !self.allow_mixed
        {
            bail!(
                "{} was recorded on {} (boot {}) and {} on {} (boot {}): their monotonic clocks count from different \
                 boots and can't be compared; give recordings of one boot, or --allow-mixed-clocks to line them up by \
                 wall clock",
                first.input,
                first.host,
                first.boot_id,
                input,
                start.host,
                start.boot_id
            );
        }
        if self.domains.len() >= usize::from(u16::MAX) {
            bail!("{input}: too many different machines");
        }
        self.domains.push(Domain {
            input: input.into(),
            host: start.host.clone(),
            boot_id: start.boot_id.clone(),
            mono_ns: start.mono_ns,
            wall_offset_ns: start.wall_offset_ns,
            told: false,
        });
        Ok((self.domains.len() - 1) as u16)
    }

    /// What the user should be told, once.
    pub(crate) fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// What to add to an instant of kernel `domain` to place it on the first kernel's clock.
    pub(crate) fn shift_ns(&self, domain: u16) -> i64 {
        let offset = |at: usize| self.domains.get(at).and_then(|d| d.wall_offset_ns);
        match (offset(0), offset(usize::from(domain))) {
            (Some(first), Some(own)) => own.saturating_sub(first),
            _ => 0,
        }
    }
}

impl Domain {
    fn shares_clock_with(&self, start: &Start) -> bool {
        if self.boot_id.is_empty() || start.boot_id.is_empty() {
            return self.host.is_empty() || start.host.is_empty() || self.host == start.host;
        }
        self.boot_id == start.boot_id
    }

    /// A sentence about a stream of this kernel whose wall clock is another one than slewing explains; the first only.
    fn compare_wall_clock(&mut self, input: &str, start: &Start) -> Option<String> {
        let apart_ns = self.wall_offset_ns?.abs_diff(start.wall_offset_ns?);
        let between_ns = self.mono_ns?.abs_diff(start.mono_ns?);
        if self.told || apart_ns <= NOISE_NS + between_ns / SLEW_DIVISOR {
            return None;
        }
        self.told = true;
        Some(format!(
            "the wall clocks of {} and {input} differ by {:.3} s although both are of one boot: the clock was set, or the \
             machine slept, between their starts; records are in the right order, but their ts can't be compared",
            self.input,
            apart_ns as f64 / 1e9
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(host: &str, boot_id: &str, wall_offset_ns: i64) -> Start {
        Start {
            tool: "t".into(),
            host: host.into(),
            boot_id: boot_id.into(),
            kernel: "".into(),
            clock: MONOTONIC.into(),
            mono_ns: Some(0),
            wall_offset_ns: Some(wall_offset_ns),
            ends_by_itself: false,
        }
    }

    #[test]
    fn one_boot_is_one_clock_whatever_the_container_is_called() {
        let mut clocks = Clocks::new(false);
        assert_eq!(clocks.admit("a", &start("box", "1", 100)).unwrap(), 0);
        assert_eq!(clocks.admit("b", &start("container", "1", 101)).unwrap(), 0);
        assert_eq!(clocks.admit("c", &start("box", "", 0)).unwrap(), 0);
        let error = clocks.admit("d", &start("box", "2", 100)).unwrap_err().to_string();
        assert!(error.contains("a was recorded on box (boot 1) and d on box (boot 2)"), "{error}");
    }

    #[test]
    fn mixed_clocks_are_lined_up_by_wall_clock() {
        let mut clocks = Clocks::new(true);
        clocks.admit("a", &start("box", "1", 1000)).unwrap();
        let other = clocks.admit("b", &start("other", "2", 1700)).unwrap();
        assert_eq!((other, clocks.shift_ns(0), clocks.shift_ns(other)), (1, 0, 700));
    }

    #[test]
    fn other_clocks_than_the_monotonic_one_are_refused() {
        let mut clocks = Clocks::new(true);
        let boottime = Start { clock: "boottime".into(), ..start("box", "1", 100) };
        let error = clocks.admit("a", &boottime).unwrap_err().to_string();
        assert!(error.contains("a: its times are by the clock \"boottime\""), "{error}");
        let silent = Start { clock: "".into(), ..start("box", "1", 100) };
        assert_eq!(clocks.admit("b", &silent).unwrap(), 0, "old recordings do not say");
    }

    #[test]
    fn wall_clocks_of_one_boot_may_differ_by_what_slewing_explains() {
        let mut clocks = Clocks::new(false);
        let second = 1_000_000_000;
        let at = |mono_ns: u64, offset_ns: i64| Start { mono_ns: Some(mono_ns), ..start("box", "1", offset_ns) };
        clocks.admit("a", &at(0, 0)).unwrap();
        clocks.admit("b", &at(0, 1_000_000)).unwrap();
        clocks.admit("c", &at(10 * second, second as i64)).unwrap();
        assert_eq!(clocks.take_notices(), Vec::<String>::new());
        clocks.admit("d", &at(second, -5 * second as i64)).unwrap();
        clocks.admit("e", &at(second, -5 * second as i64)).unwrap();
        let notices = clocks.take_notices();
        assert_eq!(notices.len(), 1, "once: {notices:?}");
        assert!(notices[0].contains("a and d differ by 5.000 s"), "{notices:?}");
    }
}
