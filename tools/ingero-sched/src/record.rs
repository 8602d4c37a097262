//! From events of the kernel side to records of the contract.

use std::io::{self, Write};

use ingero_common::clock::Ts;
use ingero_common::record::write::{Amount, OomKill, OomMemory, Switch, Task, Text, Thread};
use ingero_common::record::{src, why};
use ingero_common::stream::Stream;
use ingero_ebpf::sched::event::{self, Event, Head, IoOp, Oom, Who};

use crate::waits::{Keys, Waits};

/// Writes the record of one event; nothing is allocated for it. `Watched` and `CudaInit` are no
/// traced events and write nothing.
pub(crate) fn write<W: Write>(stream: &mut Stream<W>, waits: &mut Waits, event: &Event<'_>) -> io::Result<()> {
    match *event {
        Event::Switch(switch) => {
            let ts = stream.ts(switch.head.mono_ns);
            let asleep = matches!(switch.state, b'S' | b'D');
            let wall_ns = stream.wall_ns(switch.head.mono_ns);
            let keys = waits.keys(switch.head.who.pid, switch.wait.as_ref(), asleep, wall_ns);
            stream.event(&switch_record(&switch, ts, keys))
        }
        Event::Fork { head, child_pid, .. } => {
            let ts = stream.ts(head.mono_ns);
            let record = task("sched_process_fork", &head, ts);
            stream.event(&Task { child_pid: Some(child_pid), child_tid: Some(child_pid), ..record })
        }
        Event::Thread { head, child_pid, child_tid } => {
            let ts = stream.ts(head.mono_ns);
            let record = task("thread_create", &head, ts);
            stream.event(&Task { child_pid: Some(child_pid), child_tid: Some(child_tid), ..record })
        }
        Event::Exec { head, exe } => {
            let ts = stream.ts(head.mono_ns);
            stream.event(&Task { exe: Some(Text::until_nul(exe)), ..task("sched_process_exec", &head, ts) })
        }
        Event::ThreadExit { head, code } => {
            let ts = stream.ts(head.mono_ns);
            stream.event(&Task { code: code.map(exit_status), ..task("thread_exit", &head, ts) })
        }
        Event::ProcessExit { head, code } => {
            let ts = stream.ts(head.mono_ns);
            stream.event(&Task { code: code.map(exit_status), ..task("sched_process_exit", &head, ts) })
        }
        Event::Pages { head, count, bytes } => {
            let record = amount(stream, src::MEM, "mm_page_alloc", &head);
            stream.event(&Amount { count: Some(count), bytes: Some(bytes), ..record })
        }
        Event::Io(io) => {
            let record = amount(stream, src::BLOCK, io_name(io.op), &io.head);
            let dev = Some(Text::until_nul(io.disk));
            // No matter how short it was, an I/O takes time.
            let dur_ns = Some(io.head.dur_ns);
            stream.event(&Amount { dur_ns, bytes: Some(io.bytes), dev, open: io.open, ..record })
        }
        Event::Retransmit { head, count } => {
            let record = amount(stream, src::NET, "tcp_retransmit", &head);
            stream.event(&Amount { count: Some(count), ..record })
        }
        Event::Oom(oom) => {
            let ts = stream.ts(oom.head.mono_ns);
            stream.event(&oom_record(&oom, ts))
        }
        Event::Unmatched(head) => {
            let to_ns = head.mono_ns.saturating_add(head.dur_ns);
            stream.lost(why::UNMATCHED, 1, head.mono_ns, to_ns, Some(head.who.pid))
        }
        Event::Watched { .. } | Event::CudaInit { .. } | Event::Stack(_) => Ok(()),
    }
}

fn switch_record<'a>(switch: &event::Switch<'a>, ts: Ts, keys: Keys<'a>) -> Switch<'a> {
    let head = &switch.head;
    Switch {
        src: src::SCHED,
        op: "sched_switch",
        mono_ns: head.mono_ns,
        ts,
        dur_ns: head.dur_ns,
        pid: head.who.pid,
        tid: head.who.tid,
        ns_pid: head.ns_pid,
        comm: Text::until_nul(head.who.comm),
        state: state_name(switch.state),
        runq_ns: switch.runq_ns,
        cpu: switch.cpu,
        by: switch.by.map(thread),
        prev: switch.prev.map(thread),
        waker: switch.waker.map(thread),
        waker_irq: switch.waker_irq,
        open: switch.open,
        within: keys.within,
        on: keys.on,
        timeout_ns: keys.timeout_ns,
        io: keys.io,
    }
}

fn thread(who: Who<'_>) -> Thread<'_> {
    Thread { pid: who.pid, tid: who.tid, comm: Text::until_nul(who.comm) }
}

fn task<'a>(op: &'a str, head: &Head<'a>, ts: Ts) -> Task<'a> {
    Task {
        src: src::SCHED,
        op,
        mono_ns: head.mono_ns,
        ts,
        pid: head.who.pid,
        tid: head.who.tid,
        comm: Text::until_nul(head.who.comm),
        child_pid: None,
        child_tid: None,
        exe: None,
        code: None,
    }
}

/// An amount of nothing yet. What takes no time is an instant.
fn amount<'a, W: Write>(stream: &mut Stream<W>, src: &'static str, op: &'a str, head: &Head<'a>) -> Amount<'a> {
    Amount {
        src,
        op,
        mono_ns: head.mono_ns,
        ts: stream.ts(head.mono_ns),
        dur_ns: (head.dur_ns > 0).then_some(head.dur_ns),
        pid: head.who.pid,
        tid: head.who.tid,
        ns_pid: head.ns_pid,
        comm: Text::until_nul(head.who.comm),
        count: None,
        bytes: None,
        dev: None,
        open: false,
    }
}

fn io_name(op: IoOp) -> &'static str {
    match op {
        IoOp::Read => "read",
        IoOp::Write => "write",
        IoOp::Discard => "discard",
    }
}

fn oom_record<'a>(oom: &Oom<'a>, ts: Ts) -> OomKill<'a> {
    let victim = &oom.head.who;
    OomKill {
        src: src::MEM,
        op: "oom_kill",
        mono_ns: oom.head.mono_ns,
        ts,
        // Where the kernel tells only the thread, it is the first of its process nearly always.
        pid: if victim.pid == 0 { victim.tid } else { victim.pid },
        tid: victim.tid,
        ns_pid: oom.head.ns_pid,
        comm: Text::until_nul(victim.comm),
        by: thread(oom.by),
        memory: oom.memory.map(|memory| OomMemory {
            total_vm_bytes: memory.total_vm_bytes,
            anon_rss_bytes: memory.anon_rss_bytes,
            file_rss_bytes: memory.file_rss_bytes,
            shmem_rss_bytes: memory.shmem_rss_bytes,
            oom_score_adj: memory.oom_score_adj,
        }),
    }
}

/// The letter that `ps` prints for a state.
fn state_name(letter: u8) -> &'static str {
    match letter {
        b'R' => "R",
        b'S' => "S",
        b'D' => "D",
        b'I' => "I",
        b'T' => "T",
        b't' => "t",
        b'P' => "P",
        b'X' => "X",
        // Woken before its state could be read, on kernels that do not tell it (before 5.18).
        b'W' => "W",
        _ => "?",
    }
}

/// The status that a shell shows: the exit code, or 128 and the number of the signal that ended it.
fn exit_status(wait_status: i32) -> i32 {
    match wait_status & 0x7f {
        0 => (wait_status >> 8) & 0xff,
        signal => 128 + signal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMM: &[u8] = b"train\0\0\0\0\0\0\0\0\0\0\0";

    fn written(event: Event<'_>) -> serde_json::Value {
        let mut stream = Stream::new(Vec::new(), "sched", "test", "0");
        write(&mut stream, &mut Waits::default(), &event).unwrap();
        serde_json::from_slice(stream.out()).unwrap()
    }

    fn head() -> Head<'static> {
        Head { mono_ns: 100, dur_ns: 800, ns_pid: None, who: Who { pid: 7, tid: 8, comm: COMM } }
    }

    #[test]
    fn a_switch_has_exactly_the_keys_of_the_contract() {
        let who = |pid, tid| Who { pid, tid, comm: COMM };
        let mut switch = event::Switch {
            head: Head { ns_pid: Some(1), ..head() },
            runq_ns: 195,
            state: b'S',
            cpu: 3,
            by: Some(who(1, 2)),
            prev: Some(who(3, 4)),
            waker: Some(who(5, 6)),
            waker_irq: false,
            open: false,
            wait: None,
        };
        let mut record = written(Event::Switch(switch));
        record.as_object_mut().unwrap().remove("ts").unwrap();
        let who = |pid, tid| serde_json::json!({"pid": pid, "tid": tid, "comm": "train"});
        let want = serde_json::json!({
            "src": "sched", "op": "sched_switch", "mono_ns": 100, "dur_ns": 800, "pid": 7, "tid": 8, "ns_pid": 1,
            "comm": "train", "state": "S", "runq_ns": 195, "cpu": 3, "by": who(1, 2), "prev": who(3, 4),
            "waker": who(5, 6),
        });
        assert_eq!(record, want);

        (switch.waker, switch.waker_irq, switch.open, switch.head.ns_pid) = (None, true, true, None);
        let record = written(Event::Switch(switch));
        assert_eq!((&record["waker_irq"], &record["open"]), (&true.into(), &true.into()));
        assert!(record.get("waker").is_none() && record.get("ns_pid").is_none());
    }

    #[test]
    fn births_and_deaths() {
        let fork = written(Event::Fork { head: head(), child_pid: 70, child_ns_pid: None, watched: true });
        assert_eq!(
            (&fork["op"], &fork["pid"], &fork["child_pid"]),
            (&"sched_process_fork".into(), &7.into(), &70.into())
        );
        assert!(fork.get("dur_ns").is_none());
        let exec = written(Event::Exec { head: head(), exe: b"/bin/true\0junk" });
        assert_eq!(exec["exe"], "/bin/true");
        let exit = written(Event::ThreadExit { head: head(), code: Some(0x300) });
        assert_eq!((&exit["op"], &exit["tid"], &exit["code"]), (&"thread_exit".into(), &8.into(), &3.into()));
    }

    #[test]
    fn amounts_have_what_applies() {
        let disk = b"vda\0\0\0\0\0";
        let io = event::Io { head: head(), bytes: 4096, op: IoOp::Read, disk, open: true };
        let mut record = written(Event::Io(io));
        record.as_object_mut().unwrap().remove("ts").unwrap();
        let want = serde_json::json!({
            "src": "block", "op": "read", "mono_ns": 100, "dur_ns": 800, "pid": 7, "tid": 8, "comm": "train",
            "bytes": 4096, "dev": "vda", "open": true,
        });
        assert_eq!(record, want);
        let mut record = written(Event::Retransmit { head: Head { dur_ns: 0, ..head() }, count: 1 });
        record.as_object_mut().unwrap().remove("ts").unwrap();
        let want = serde_json::json!({
            "src": "net", "op": "tcp_retransmit", "mono_ns": 100, "pid": 7, "tid": 8, "comm": "train", "count": 1,
        });
        assert_eq!(record, want);
    }

    #[test]
    fn a_victim_of_which_only_the_thread_is_known() {
        let by = Who { pid: 1, tid: 2, comm: COMM };
        let head = Head { dur_ns: 0, who: Who { pid: 0, tid: 8, comm: &[0; 16] }, ..head() };
        let memory = event::OomMemory {
            total_vm_bytes: 40,
            anon_rss_bytes: 30,
            file_rss_bytes: 20,
            shmem_rss_bytes: 10,
            oom_score_adj: -5,
        };
        let record = written(Event::Oom(event::Oom { head, by, memory: None }));
        assert_eq!((&record["pid"], &record["comm"], &record["by"]["tid"]), (&8.into(), &"".into(), &2.into()));
        assert!(record.get("total_vm_bytes").is_none() && record.get("dur_ns").is_none());
        let record = written(Event::Oom(event::Oom { head, by, memory: Some(memory) }));
        assert_eq!((&record["anon_rss_bytes"], &record["oom_score_adj"]), (&30.into(), &(-5).into()));
    }

    #[test]
    fn exit_statuses_are_those_of_a_shell() {
        assert_eq!([0, 0x100, 0xff00, 9, 0x8b].map(exit_status), [0, 1, 255, 137, 139]);
    }
}
