//! Which inputs share a clock.
//!
//! CLOCK_MONOTONIC counts from a machine's boot: two streams can be compared exactly when their `boot_id`
//! is the same (containers on one kernel may have different host names). Anything else is refused, or,
//! on request, lined up by wall clock, which is as good as the machines' time synchronisation; calls
//! then still get their `host` from streams of their own kernel only.

use anyhow::bail;

use crate::item::Start;

/// The kernels whose streams are joined.
#[derive(Debug)]
pub(crate) struct Clocks {
    domains: Vec<Domain>,
    allow_mixed: bool,
}

#[derive(Debug)]
struct Domain {
    input: String,
    host: Box<str>,
    boot_id: Box<str>,
    wall_offset_ns: Option<i64>,
}

impl Clocks {
    pub(crate) fn new(allow_mixed: bool) -> Self {
        Self { domains: Vec::new(), allow_mixed }
    }

    /// The number of the kernel that a stream called `input` came from.
    pub(crate) fn admit(&mut self, input: &str, start: &Start) -> anyhow::Result<u16> {
        if let Some(at) = self.domains.iter().position(|d| d.shares_clock_with(start)) {
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
            wall_offset_ns: start.wall_offset_ns,
        });
        Ok((self.domains.len() - 1) as u16)
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
}
