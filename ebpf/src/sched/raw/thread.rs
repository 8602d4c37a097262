//! What `bpf/sched_raw.h` keeps of each watched thread (`struct raw_thread`): written for threads that exist already, read for
//! what is open when tracing stops.

use super::super::event::{COMM_BYTES, Event, Head, KIND_SWITCH, Switch, Who, decode};

/// Where its flags are: `is_off`, `tentative`, `is_new`, `waker_irq`. Before them are seven numbers and a flag of the page sums,
/// which matters in the kernel only.
const FLAGS_AT: usize = 64;
/// Where the event to be (`off`) is.
const OFF_AT: usize = FLAGS_AT + 8;
/// `struct raw_thread`.
pub(super) const THREAD_BYTES: usize = OFF_AT + 144;

/// A thread that exists already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Existing {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: [u8; COMM_BYTES],
    /// The letter of its state; `R` may be on a CPU or wait for one.
    pub(super) state: u8,
    /// Now, CLOCK_MONOTONIC ns.
    pub(super) now_ns: u64,
}

impl Existing {
    /// Off the CPU since now if it sleeps, on it (or about to be) otherwise; to be believed until it is seen to move.
    pub(super) fn bytes(&self) -> [u8; THREAD_BYTES] {
        let is_off = self.state != b'R';
        let mut bytes = [0; THREAD_BYTES];
        let mut put = |at: usize, field: &[u8]| {
            for (to, from) in bytes.iter_mut().skip(at).zip(field) {
                *to = *from;
            }
        };
        put(0, &self.now_ns.to_ne_bytes());
        put(FLAGS_AT, &[u8::from(is_off), 1]);
        put(OFF_AT, &self.now_ns.to_ne_bytes());
        put(OFF_AT + 16, &KIND_SWITCH.to_ne_bytes());
        put(OFF_AT + 24, &self.pid.to_ne_bytes());
        put(OFF_AT + 28, &self.tid.to_ne_bytes());
        put(OFF_AT + 32, &self.comm);
        put(OFF_AT + 56, &u32::from(self.state).to_ne_bytes());
        bytes
    }
}

/// Calls `each` with what is open in a thread at `at_ns`.
pub(super) fn open(bytes: &[u8; THREAD_BYTES], at_ns: u64, mut each: impl FnMut(Event<'_>)) {
    let number = |at: usize| bytes[at..].first_chunk().map_or(0, |field| u64::from_ne_bytes(*field));
    let [on_ns, runnable_ns, waking_ns, pages_from_ns, pages_to_ns, pages, pages_bytes] =
        [0, 8, 16, 24, 32, 40, 48].map(number);
    let (is_off, waker_irq) = (bytes[FLAGS_AT] != 0, bytes[FLAGS_AT + 3] != 0);
    let Some((Event::Switch(off), _)) = decode(&bytes[OFF_AT..]) else { return };
    if pages > 0 {
        let dur_ns = pages_to_ns.saturating_sub(pages_from_ns);
        each(Event::Pages {
            head: Head { mono_ns: pages_from_ns, dur_ns, ..off.head },
            count: pages,
            bytes: pages_bytes,
        });
    }
    if !is_off || off.head.mono_ns >= at_ns || off.state == b'X' {
        return;
    }
    let dur_ns = at_ns - off.head.mono_ns;
    let runq_ns = match off.state {
        b'R' => dur_ns,
        _ if runnable_ns > 0 && runnable_ns < at_ns => at_ns - runnable_ns,
        _ => 0,
    };
    // A wake-up from before it came here last belongs to another interval.
    let woken = waking_ns > on_ns && waking_ns < at_ns;
    each(Event::Switch(Switch {
        head: Head { dur_ns, ..off.head },
        runq_ns,
        prev: None,
        waker: (woken && !waker_irq).then(|| waker(bytes)),
        waker_irq: woken && waker_irq,
        open: true,
        ..off
    }));
}

/// The waker is kept before it is known whether it counts, so its flag is not set.
fn waker(bytes: &[u8; THREAD_BYTES]) -> Who<'_> {
    // Head, runq_ns, state, cpu, by, prev.
    const AT: usize = OFF_AT + 48 + 8 + 8 + 24 + 24;
    let number = |at: usize| bytes[at..].first_chunk().map_or(0, |field| u32::from_ne_bytes(*field));
    Who { pid: number(AT), tid: number(AT + 4), comm: &bytes[AT + 8..AT + 8 + COMM_BYTES] }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEPER: Existing =
        Existing { pid: 7, tid: 8, comm: *b"train\0\0\0\0\0\0\0\0\0\0\0", state: b'S', now_ns: 100 };

    fn opened(bytes: &[u8; THREAD_BYTES]) -> Vec<String> {
        let mut all = Vec::new();
        open(bytes, 1000, |event| {
            all.push(match event {
                Event::Switch(s) => format!(
                    "{} {}+{} {} runq {} waker {:?} irq {}",
                    s.head.who.tid,
                    s.head.mono_ns,
                    s.head.dur_ns,
                    char::from(s.state),
                    s.runq_ns,
                    s.waker.map(|waker| waker.tid),
                    s.waker_irq
                ),
                Event::Pages { head, count, bytes } => format!("{}+{} {count} {bytes}", head.mono_ns, head.dur_ns),
                other => panic!("{other:?}"),
            });
        });
        all
    }

    #[test]
    fn what_sleeps_is_open_and_what_runs_is_not() {
        assert_eq!(opened(&SLEEPER.bytes()), ["8 100+900 S runq 0 waker None irq false"]);
        assert!(opened(&Existing { state: b'R', ..SLEEPER }.bytes()).is_empty());
        assert!(opened(&Existing { now_ns: 1000, ..SLEEPER }.bytes()).is_empty(), "after the end");
    }

    #[test]
    fn a_thread_that_was_woken_and_waits_for_a_cpu() {
        let mut bytes = SLEEPER.bytes();
        bytes[8..16].copy_from_slice(&705_u64.to_ne_bytes());
        bytes[16..24].copy_from_slice(&700_u64.to_ne_bytes());
        bytes[OFF_AT + 116..OFF_AT + 120].copy_from_slice(&77_u32.to_ne_bytes());
        assert_eq!(opened(&bytes), ["8 100+900 S runq 295 waker Some(77) irq false"]);
        bytes[FLAGS_AT + 3] = 1;
        assert_eq!(opened(&bytes), ["8 100+900 S runq 295 waker None irq true"]);
        // Pages that it was given before.
        bytes[24..32].copy_from_slice(&40_u64.to_ne_bytes());
        bytes[32..40].copy_from_slice(&90_u64.to_ne_bytes());
        bytes[40..48].copy_from_slice(&3_u64.to_ne_bytes());
        bytes[48..56].copy_from_slice(&12_288_u64.to_ne_bytes());
        assert_eq!(opened(&bytes)[0], "40+50 3 12288");
    }
}
