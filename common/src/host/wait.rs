//! What a thread was in while it was off the CPU: the system call, and what that waited on.

use super::interner::{Interner, Name};
use crate::record::Record;

/// What kind of thing a thread waited in. It follows from `in` and `on` of its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitKind {
    /// Not in the record: an older tracer, a short wait, or code of the thread's own.
    #[default]
    Unknown,
    /// Its code asked to pause.
    Pause,
    /// For any of several descriptors to become ready.
    Poll,
    /// The same, and one of these takes connections: for somebody to ask it for something.
    Listen,
    /// On a socket to another host, or one of which it is not known.
    Socket,
    /// On a word in memory that another thread changes.
    Futex,
    /// For its turn in the Python interpreter.
    Gil,
    /// For a lock on a file.
    FileLock,
    /// It gave up the CPU and wanted it again at once.
    Yield,
    /// Something else that has a name.
    Other,
}

/// What a thread was in. `text` is that in words: `in`, the kind and the name of `on`, each behind a tab where it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// What kind.
    pub kind: WaitKind,
    /// For a device; `None` where the record does not say.
    pub io: Option<bool>,
    /// It lasted as long as it was to last at most.
    pub timed_out: bool,
    /// In words.
    pub text: Name,
}

/// System calls that last as long as they were asked to.
const PAUSES: [&str; 2] = ["nanosleep", "clock_nanosleep"];
/// System calls that wait for any of several descriptors.
const POLLS: [&str; 7] = ["epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6"];
/// System calls on sockets.
const SOCKETS: [&str; 9] =
    ["accept", "accept4", "connect", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg"];
/// System calls that take a lock on a file: of fcntl, only this part sleeps.
const FILE_LOCKS: [&str; 2] = ["flock", "fcntl"];

impl Wait {
    /// From a `sched_switch` record, of a thread that slept for `asleep_ns` of it. While more than half of the names are taken,
    /// those of files and peers are left out: there may be very many.
    pub fn of(record: &Record<'_>, asleep_ns: u64, names: &mut Interner) -> Self {
        let timed_out = record.timeout_ns.is_some_and(|timeout_ns| asleep_ns >= timeout_ns);
        let Some(call) = record.within.as_deref() else { return Self { io: record.io, ..Self::default() } };
        let on = record.on.as_ref();
        let on_kind = on.map_or("", |on| &*on.kind);
        let name = on.and_then(|on| on.name.as_deref()).filter(|_| !names.is_half_full()).unwrap_or_default();
        let listens = on.is_some_and(|on| on.listens);
        let text = format!("{call}\t{on_kind}\t{name}");
        let kind = Self::kind(call, on_kind, name, listens);
        Self { kind, io: record.io, timed_out, text: names.id(text.trim_end_matches('\t')) }
    }

    fn kind(call: &str, on_kind: &str, name: &str, listens: bool) -> WaitKind {
        match (call, on_kind) {
            _ if PAUSES.contains(&call) => WaitKind::Pause,
            _ if listens => WaitKind::Listen,
            (_, "gil") => WaitKind::Gil,
            ("sched_yield", _) => WaitKind::Yield,
            _ if POLLS.contains(&call) => WaitKind::Poll,
            // Its peer is on this host.
            (_, "socket") if name.starts_with("unix") => WaitKind::Other,
            (_, "socket") => WaitKind::Socket,
            (_, "") if SOCKETS.contains(&call) => WaitKind::Socket,
            _ if call.starts_with("futex") => WaitKind::Futex,
            _ if FILE_LOCKS.contains(&call) => WaitKind::FileLock,
            _ => WaitKind::Other,
        }
    }

    /// The parts of `text`: the system call, the kind of what it waited on, and its name; empty where they are not known.
    pub fn parts(text: &str) -> [&str; 3] {
        let mut parts = text.splitn(3, '\t');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Parsed, parse};

    fn wait(rest: &str) -> (WaitKind, String, bool) {
        let line = format!(r#"{{"src":"sched","op":"sched_switch",{rest}}}"#);
        let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
        let mut names = Interner::default();
        let wait = Wait::of(&record, 5_000_000, &mut names);
        (wait.kind, names.text(wait.text).raw().replace('\t', " "), wait.timed_out)
    }

    #[test]
    fn the_kind_follows_from_the_call_and_what_it_is_on() {
        use WaitKind::*;
        for (rest, kind) in [
            (r#""state":"S""#, Unknown),
            (r#""in":"clock_nanosleep""#, Pause),
            (r#""in":"epoll_wait","on":{"kind":"epoll"}"#, Poll),
            (r#""in":"epoll_wait","on":{"kind":"epoll","listens":true}"#, Listen),
            (r#""in":"accept4","on":{"kind":"socket","name":"tcp :80","listens":true}"#, Listen),
            (r#""in":"recvfrom","on":{"kind":"socket","name":"tcp 10.0.0.5:443"}"#, Socket),
            (r#""in":"read","on":{"kind":"socket","name":"tcp 10.0.0.5:443"}"#, Socket),
            (r#""in":"recvfrom""#, Socket),
            (r#""in":"recvfrom","on":{"kind":"socket","name":"unix"}"#, Other),
            (r#""in":"futex","on":{"kind":"futex","addr":"0x10"}"#, Futex),
            (r#""in":"futex_waitv""#, Futex),
            (r#""in":"futex","on":{"kind":"gil"}"#, Gil),
            (r#""in":"flock","on":{"kind":"file","name":"/tmp/x"}"#, FileLock),
            (r#""in":"sched_yield""#, Yield),
            (r#""in":"read","on":{"kind":"pipe","name":"pipe:[1]"}"#, Other),
            (r#""in":"page_fault""#, Other),
        ] {
            assert_eq!(wait(rest).0, kind, "{rest}");
        }
    }

    #[test]
    fn it_is_told_in_words_and_timed_out_where_it_lasted_as_long() {
        let timed = |ns| wait(&format!(r#""in":"futex","on":{{"kind":"gil"}},"timeout_ns":{ns}"#));
        assert_eq!((timed(5_000_000).2, timed(5_000_001).2), (true, false));
        assert_eq!(timed(1).1, "futex gil");
        assert_eq!(wait(r#""in":"read","on":{"kind":"pipe","name":"pipe:[7]"}"#).1, "read pipe pipe:[7]");
        assert_eq!(Wait::parts("read\tpipe\tpipe:[7]"), ["read", "pipe", "pipe:[7]"]);
        assert_eq!((Wait::parts("nanosleep"), Wait::parts("")), (["nanosleep", "", ""], ["", "", ""]));
    }

    #[test]
    fn names_of_files_do_not_crowd_out_those_of_threads() {
        let mut names = Interner::default();
        for i in 0..Interner::MAX {
            let line = format!(r#"{{"in":"read","on":{{"kind":"file","name":"/data/{i}"}}}}"#);
            let Parsed::Record(record) = parse(line.as_bytes()) else { panic!("{line}") };
            Wait::of(&record, 0, &mut names);
        }
        let late = names.id("train");
        assert_eq!(names.text(late).raw(), "train");
    }
}
