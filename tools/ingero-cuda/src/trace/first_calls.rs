//! A process that calls before it has been looked at: a child that lives for some milliseconds is over by then. Its `watch`
//! record says what the kernel side knows of it; one that lives on is looked at, and gets a second one with its libraries.

use std::io::{self, Write};

use ingero_common::record::write::{Identity, Text, Watch};
use ingero_common::stream::Stream;
use ingero_ebpf::cuda::record::{Call, FirstCall};

use crate::probes::Probes;
use crate::processes::Processes;
use crate::seccomp::Spared;

/// In words, what a `watch` record lacks that is written on sight.
const NOTE: &str = "by its first call, before it was looked at: its libraries are not known";

/// What is known of a process by a call of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sighting<'a> {
    pub(super) pid: u32,
    pub(super) ns_pid: Option<u32>,
    /// The index of what it called.
    pub(super) symbol: u32,
    /// Since when it is watched, CLOCK_MONOTONIC ns.
    pub(super) at_ns: u64,
    /// NUL-padded.
    pub(super) comm: &'a [u8; 16],
}

impl<'a> From<&FirstCall<'a>> for Sighting<'a> {
    fn from(first: &FirstCall<'a>) -> Self {
        Self { pid: first.pid, ns_pid: first.ns_pid, symbol: first.symbol, at_ns: first.at_ns, comm: first.comm }
    }
}

impl<'a> From<&Call<'a>> for Sighting<'a> {
    fn from(call: &Call<'a>) -> Self {
        // The word of its first call is lost. Silence before this one proves nothing then.
        Self { pid: call.pid, ns_pid: call.ns_pid, symbol: call.symbol, at_ns: call.end_ns, comm: call.comm }
    }
}

impl Sighting<'_> {
    /// Writes the `watch` record of a process of which nothing has been said yet.
    ///
    /// # Errors
    /// Those of the output.
    pub(super) fn write<W: Write>(
        self,
        stream: &mut Stream<W>,
        processes: &mut Processes,
        probes: &Probes,
        spared: Spared,
    ) -> io::Result<()> {
        let Some(why) = processes.sighted(self.pid) else { return Ok(()) };
        let at_ns = probes.all_seen_from(self.at_ns);
        let ts = stream.ts(at_ns);
        stream.watch(Watch {
            src: "",
            op: "",
            mono_ns: at_ns,
            ts,
            pid: self.pid,
            tid: self.pid,
            ns_pid: self.ns_pid,
            comm: Text::until_nul(self.comm),
            why: why.name(),
            stream: "",
            lib: Vec::new(),
            layers: probes.symbol(self.symbol).map(|info| info.function.layer.src()).into_iter().collect(),
            returns: (spared == Spared::Everybody).then_some(false),
            note: Some(NOTE),
            who: Identity::default(),
        })
    }
}
