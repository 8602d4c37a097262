//! Causes, waits, and those who had a part in them, as parts of sentences.

use ingero_common::text::{Nanos, Traced};

use crate::blame::{Cause, CauseLine, InnerLine, WaitLine, WhereLine, WhoNs};
use crate::limits::{MAX_NAMED, MAX_NAMED_OPS, MAX_WHERE, NAMED_SHARE};
use crate::report::model::Finding;
use crate::report::sentences::{count, pct};

/// A cause as part of a sentence.
pub(crate) fn phrase(finding: &Finding, line: &CauseLine) -> String {
    let who = who(line);
    let known = !who.is_empty();
    let them = || format!("{who}{}", relation(finding, line));
    match line.cause {
        Cause::HostCpu if known => format!("on the CPU in its own code ({})", threads(line)),
        Cause::HostCpu => "on the CPU in its own code".into(),
        Cause::CpuWait if known => format!("waiting for a CPU taken by {who}"),
        Cause::CpuWait => "waiting for a CPU".into(),
        Cause::Quota => "throttled by its CPU quota".into(),
        Cause::IoWait => format!("waiting for a device{}", waits_in(line, " (state D)")),
        Cause::Blocked => "asleep inside the call".into(),
        Cause::DriverCpu => "on the CPU inside the call".into(),
        Cause::WorkerCpu => format!("waiting for {} to compute", them()),
        Cause::WorkerCpuWait if known => format!("waiting for a worker that waited for a CPU taken by {who}"),
        Cause::WorkerCpuWait => "waiting for a worker that waited for a CPU".into(),
        Cause::WorkerQuota => format!("waiting for {}, throttled by a CPU quota", them()),
        Cause::WorkerIo => format!("waiting for {}, which waited for a device{}", them(), waits_in(line, " (state D)")),
        Cause::Wait => format!("waiting for {}", them()),
        Cause::OffCpu => "off the CPU in a state that is not on record".into(),
        Cause::Steal => "possibly stolen by the hypervisor".into(),
        Cause::CudaCall => {
            let ops: Vec<String> = line.ops.iter().take(MAX_NAMED_OPS).map(|op| op.op.to_string()).collect();
            format!("in CUDA calls that give the GPU no work ({})", ops.join(", "))
        }
        Cause::Gc => format!("in the garbage collector of its language ({})", threads(line)),
        Cause::WorkerGc => format!("waiting for {}, which collected garbage", them()),
        Cause::Spin => format!("asking without pause whether something has happened ({})", threads(line)),
        Cause::Sleep | Cause::Pause | Cause::Lock | Cause::Network => {
            let own = line.who.first().is_none_or(|who| who.pid == finding.pid);
            let (here, there) = ends(line.cause);
            let waits = waits_in(line, "");
            if own { format!("{here}{waits}") } else { format!("waiting for {}, which {there}{waits}", them()) }
        }
    }
}

/// Where the path ends with a sleep: of the process itself, and of whom it waited for.
fn ends(cause: Cause) -> (&'static str, &'static str) {
    match cause {
        Cause::Pause => ("pausing in its own code", "paused"),
        Cause::Lock => ("waiting for a lock whose holder is not known", "waited for a lock whose holder is not known"),
        Cause::Network => ("waiting for the network", "waited for the network"),
        _ => ("asleep until a timer or an interrupt woke it", "slept until a timer or an interrupt woke it"),
    }
}

/// What a cause's threads were in, mostly: in parentheses behind it.
fn waits_in(line: &CauseLine, unknown: &str) -> String {
    line.waits.first().map_or_else(|| unknown.to_owned(), |wait| format!(" ({})", waited(wait)))
}

/// What was waited in: `futex`, `the Python GIL`, `read on pipe:[7]`.
pub(crate) fn waited(wait: &WaitLine) -> String {
    match (wait.kind(), &wait.on) {
        ("gil", _) => "the Python GIL".to_owned(),
        ("futex", _) | (_, None) => wait.call.to_string(),
        (_, Some(on)) => format!("{} on {}", wait.call, on.name.as_ref().unwrap_or(&on.kind)),
    }
}

/// The functions in which the time of a cause was, those that are large enough to be named.
pub fn places(line: &CauseLine) -> Vec<String> {
    let large = |place: &&WhereLine| place.share.is_none_or(|share| share >= NAMED_SHARE);
    let tell = |place: &WhereLine| {
        let inner = place.inner.as_ref().map(|inner| format!(" > {}", inside(inner))).unwrap_or_default();
        match place.share {
            Some(share) => format!("{} {}{inner}", pct(share), function(place)),
            None => format!("{}{inner}, {}", function(place), count(place.samples, "sample")),
        }
    };
    line.places.iter().filter(large).take(MAX_WHERE).map(tell).collect()
}

/// `load (train.py:84)`, or the lines between which it was.
pub(crate) fn function(place: &WhereLine) -> String {
    let file = ending(&place.file, 1);
    match (place.lines, place.line) {
        _ if file.is_empty() => place.function.to_string(),
        (Some([first, last]), _) => format!("{} ({file}:{first}-{last})", place.function),
        (None, 0) => format!("{} ({file})", place.function),
        (None, line) => format!("{} ({file}:{line})", place.function),
    }
}

/// `PIL/ImageFile.py:_decode`.
fn inside(inner: &InnerLine) -> String {
    match ending(&inner.file, 2) {
        file if file.is_empty() => inner.function.to_string(),
        file => format!("{file}:{}", inner.function),
    }
}

/// The last parts of a path.
fn ending(path: &Traced, parts: usize) -> String {
    let slashes: Vec<usize> = path.raw().match_indices('/').map(|(at, _)| at + 1).collect();
    let from = slashes.len().checked_sub(parts).map_or(0, |at| slashes[at]);
    Traced::from(&path.raw()[from..]).to_string()
}

/// The waits that are large enough to be named: how long, how often, who ended them.
pub(crate) fn waits(finding: &Finding) -> Vec<String> {
    let least_ns = finding.lost.lost_ns as f64 * NAMED_SHARE;
    let tell = |wait: &WaitLine| {
        let by = wait.by.as_ref().map(|by| format!(", {} {} ({})", role(wait).ended_by, by.comm, by.pid));
        format!("{} in {}, {}{}", Nanos(wait.ns), waited(wait), count(wait.n, "time"), by.unwrap_or_default())
    };
    finding.lost.waits.iter().filter(|wait| wait.ns as f64 >= least_ns).map(tell).collect()
}

/// What those who ended a wait are to the one that waited.
struct Role {
    /// Behind their name; empty where nothing more is known.
    is: &'static str,
    /// In front of it.
    ended_by: &'static str,
}

fn role(wait: &WaitLine) -> Role {
    let reads = wait.call.raw().contains("read") || wait.call.raw().starts_with("recv");
    let writes = wait.call.raw().contains("write") || wait.call.raw().starts_with("send");
    let (is, ended_by) = match wait.kind() {
        "gil" => ("which had the GIL", "held by"),
        "pipe" if reads => ("the writer of its pipe", "written by"),
        "pipe" if writes => ("the reader of its pipe", "read by"),
        "socket" => ("at the other end of its socket", "ended by"),
        _ if matches!(wait.call.raw(), "flock" | "fcntl") => ("which had locked its file", "held by"),
        _ if matches!(wait.call.raw(), "wait4" | "waitid") => ("whose end it waited for", "ended by"),
        _ => ("", "ended by"),
    };
    Role { is, ended_by }
}

/// What the first of those who a cause points at was to the process: `, the reader of its pipe`.
fn relation(finding: &Finding, line: &CauseLine) -> String {
    let Some(who) = line.who.first() else { return String::new() };
    let wait = finding.lost.waits.iter().find(|wait| wait.by.as_ref().is_some_and(|by| by.pid == who.pid));
    match wait.map(|wait| role(wait).is) {
        Some(is) if !is.is_empty() && line.who.len() == 1 => format!(", {is}"),
        _ => String::new(),
    }
}

/// The threads of a cause in the process itself, the first names.
pub(crate) fn threads(line: &CauseLine) -> String {
    let mut names: Vec<&Traced> = Vec::new();
    for who in &line.who {
        if !names.contains(&&who.comm) {
            names.push(&who.comm);
        }
    }
    names.iter().take(MAX_NAMED).map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// Those a cause points at, the first names and how many more there are.
pub(crate) fn who(line: &CauseLine) -> String {
    tasks(line.who.iter())
}

/// Processes of one name are told as one: `pt_data_worker (4 processes), python3 (17) and 3 more`.
pub(crate) fn tasks<'a>(who: impl Iterator<Item = &'a WhoNs>) -> String {
    let mut names: Vec<(&Traced, u64, Vec<u32>)> = Vec::new();
    for one in who {
        let at = names.iter().position(|(comm, ..)| **comm == one.comm).unwrap_or_else(|| {
            names.push((&one.comm, 0, Vec::new()));
            names.len() - 1
        });
        let (_, ns, pids) = &mut names[at];
        *ns += one.ns;
        if !pids.contains(&one.pid) {
            pids.push(one.pid);
        }
    }
    // Stable: of equal parts, the first stays first.
    names.sort_by_key(|(_, ns, _)| std::cmp::Reverse(*ns));
    let told = names.iter().take(MAX_NAMED).map(|(comm, _, pids)| match pids[..] {
        [pid] => format!("{comm} ({pid})"),
        _ => format!("{comm} ({} processes)", pids.len()),
    });
    let told: Vec<String> = told.collect();
    match names.iter().skip(MAX_NAMED).map(|(.., pids)| pids.len()).sum::<usize>() {
        0 => told.join(" and "),
        more => format!("{} and {more} more", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::OnLine;

    #[test]
    fn processes_of_one_name_are_told_as_one() {
        let who = [("stress", 11, 40), ("loader", 2, 50), ("stress", 12, 30), ("rcu", 5, 1)];
        let who = who.map(|(comm, pid, ns)| WhoNs { pid, comm: comm.into(), ns });
        assert_eq!(tasks(who.iter()), "stress (2 processes), loader (2) and 1 more");
        assert_eq!(tasks(who[..2].iter()), "loader (2) and stress (11)");
        assert_eq!(tasks([].iter()), "");
    }

    #[test]
    fn a_wait_is_told_by_what_it_was_on() {
        let wait = |call: &str, kind: &str, name: &str| {
            let on =
                (!kind.is_empty()).then(|| OnLine { kind: kind.into(), name: (!name.is_empty()).then(|| name.into()) });
            WaitLine { call: call.into(), on, ns: 1, n: 1, by: None }
        };
        for (wait, words, is) in [
            (wait("futex", "gil", ""), "the Python GIL", "which had the GIL"),
            (wait("futex", "futex", ""), "futex", ""),
            (wait("write", "pipe", "pipe:[7]"), "write on pipe:[7]", "the reader of its pipe"),
            (wait("read", "pipe", "pipe:[7]"), "read on pipe:[7]", "the writer of its pipe"),
            (wait("recvfrom", "socket", "unix"), "recvfrom on unix", "at the other end of its socket"),
            (wait("flock", "file", "/tmp/l"), "flock on /tmp/l", "which had locked its file"),
            (wait("wait4", "", ""), "wait4", "whose end it waited for"),
            (wait("epoll_wait", "epoll", ""), "epoll_wait on epoll", ""),
        ] {
            assert_eq!((waited(&wait).as_str(), role(&wait).is), (words, is));
        }
    }
}
