//! How complete the stream is.

use ingero_common::host::Loss;
use ingero_common::text::Traced;

use crate::limits::MAX_HOSTS;

/// The newest version of the contract that is understood here.
const NEWEST_SCHEMA: u64 = 2;

/// Counts of records, of those that are missing, and of lines that were none.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) records: u64,
    /// Of these, those that are of the contract.
    pub(super) known: u64,
    pub(crate) bad_lines: u64,
    pub(super) own_bad_lines: u64,
    /// Of these, those since the last record.
    bad_here: u64,
    /// An input broke off since the last record.
    pub(super) broken_here: bool,
    /// Who was traced, by the names that `start` records give.
    pub(crate) hosts: Vec<Traced>,
    /// The first version of the contract in a `start` record that is not understood here.
    pub(crate) unknown_schema: Option<u64>,
    /// Boots that `start` records name.
    boots: Vec<String>,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    /// Records of a second tracer beside another one of its kind.
    pub(crate) double: u64,
}

impl Coverage {
    /// A line that was no record.
    pub(super) fn bad_line(&mut self) {
        self.bad_lines += 1;
        self.own_bad_lines += 1;
        self.bad_here += 1;
    }

    /// The host that a `start` record names.
    pub(super) fn host(&mut self, host: Traced) {
        if !self.hosts.contains(&host) && self.hosts.len() < MAX_HOSTS {
            self.hosts.push(host);
        }
    }

    /// The version of the contract that a `start` record says its stream follows.
    pub(super) fn schema(&mut self, schema: Option<u64>) {
        self.unknown_schema = self.unknown_schema.or(schema.filter(|&schema| schema > NEWEST_SCHEMA));
    }

    /// The boot that a `start` record names.
    pub(super) fn boot(&mut self, boot_id: &str) {
        if !self.boots.iter().any(|known| known == boot_id) && self.boots.len() < MAX_HOSTS {
            self.boots.push(boot_id.to_owned());
        }
    }

    /// How many different boots were named.
    pub(super) fn boots(&self) -> usize {
        self.boots.len()
    }

    /// What the bad lines since the last record may have been, or what could not be read, lies between it (`now_ns`) and one
    /// that ends at `end_ns`.
    pub(super) fn missing_up_to(&mut self, now_ns: u64, end_ns: u64) -> Option<Loss> {
        let count = std::mem::take(&mut self.bad_here);
        let broken = std::mem::take(&mut self.broken_here);
        (count > 0 || broken).then(|| Loss {
            start_ns: now_ns.min(end_ns),
            end_ns: now_ns.max(end_ns),
            pid: None,
            count: Some(count).filter(|_| !broken),
            sampled: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_hosts_are_named() {
        let mut coverage = Coverage::default();
        (0..20).for_each(|n| coverage.host(Traced::from(&*format!("node{}", n / 2))));
        assert_eq!(coverage.hosts.len(), 8);
        (0..20).for_each(|n| coverage.host(Traced::from(&*format!("node{n}"))));
        assert_eq!(coverage.hosts.len(), 8);
    }
}
