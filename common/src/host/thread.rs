//! What one thread went through: its times off the CPU and its page allocations.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::cpu_timeline::SwitchedIn;
use super::interner::{Name, Task, Thread};
use super::lifetime::{Lifetime, has_lifetime};
use super::state::State;
use super::wait::{Wait, WaitKind};

/// One time a thread was off the CPU: in [`start_ns`, `end_ns`), CLOCK_MONOTONIC nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpu {
    /// When it left.
    pub start_ns: u64,
    /// From when on it was runnable again and waited for a CPU.
    pub wake_ns: u64,
    /// When it came back.
    pub end_ns: u64,
    /// Who woke it; pid 0 = nobody seen.
    pub waker: Thread,
    /// Who had the CPU while it was runnable, at the beginning and at the end of that; pid 0 = not known or idle.
    pub had_cpu: [Task; 2],
    /// The state it left with.
    pub state: State,
    /// While it was runnable, the CPU that it last had or got next ran nobody.
    pub cpu_was_free: bool,
    /// The CPU in whose queue it waited, as far as that can be told: the one that it was driven from, or, where it had been
    /// asleep, the one that it got.
    pub waited_on: Option<u16>,
    /// What it was in.
    pub wait: Wait,
    /// Of a wait for Python's GIL that no thread of the process was seen to end, who ended the one before: it had the GIL, and
    /// few threads have it in turns.
    pub gil: Option<(NonZeroU32, Name)>,
}

/// The part of a time off the CPU that lies in some stretch: [`start_ns`, `end_ns`), never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffCpuPart<'a> {
    /// From here…
    pub start_ns: u64,
    /// …asleep until here, and waiting for a CPU…
    pub wake_ns: u64,
    /// …to here.
    pub end_ns: u64,
    /// The whole of it.
    pub whole: &'a OffCpu,
}

/// How a thread left a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchedOut {
    /// When it had been switched in there, and which CPU it was, where that is on record.
    pub switched_in: Option<SwitchedIn>,
    /// When it left.
    pub at_ns: u64,
}

/// Pages that the kernel allocated for a thread in [`start_ns`, `end_ns`].
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// The first one's time, CLOCK_MONOTONIC nanoseconds.
    pub start_ns: u64,
    /// The last one's.
    pub end_ns: u64,
    /// How many.
    pub count: u64,
    /// The same in bytes.
    pub bytes: u64,
}

/// One instance of a thread.
#[derive(Debug)]
pub struct ThreadInstance {
    lifetime: Lifetime,
    /// Its process.
    pub pid: u32,
    /// What ended before this was dropped for want of room.
    pub unknown_before_ns: u64,
    /// By time; none overlap.
    off_cpu: VecDeque<OffCpu>,
    /// By their end.
    pages: VecDeque<Pages>,
    /// When it last came back, and on which CPU.
    pub(super) switched_in: Option<SwitchedIn>,
    /// Who ended its last wait for Python's GIL.
    gil: Option<(NonZeroU32, Name)>,
    /// When it was last heard of.
    pub(super) heard_ns: u64,
}

has_lifetime!(ThreadInstance);

impl ThreadInstance {
    pub(super) fn new(pid: u32, lifetime: Lifetime) -> Self {
        let (off_cpu, pages) = (VecDeque::new(), VecDeque::new());
        Self { lifetime, pid, unknown_before_ns: 0, off_cpu, pages, switched_in: None, gil: None, heard_ns: 0 }
    }

    /// When the thread was off the CPU in [`from_ns`, `to_ns`).
    pub fn off_cpu(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = OffCpuPart<'_>> {
        let first = front_position(&self.off_cpu, |off| off.end_ns <= from_ns);
        self.off_cpu.range(first..).take_while(move |off| off.start_ns < to_ns).map(move |off| {
            let (start_ns, end_ns) = (off.start_ns.max(from_ns), off.end_ns.min(to_ns));
            OffCpuPart { start_ns, wake_ns: off.wake_ns.clamp(start_ns, end_ns), end_ns, whole: off }
        })
    }

    /// The page allocations that lie wholly in [`from_ns`, `to_ns`].
    pub fn pages(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Pages> {
        let first = front_position(&self.pages, |pages| pages.end_ns < from_ns);
        let inside = self.pages.range(first..).take_while(move |pages| pages.end_ns <= to_ns);
        inside.filter(move |pages| pages.start_ns >= from_ns)
    }

    /// Takes note of a time off the CPU. What is known of the same time goes before, but of two that begin at once the
    /// longer one is the whole of the other, which was told of while it lasted. Whether anything of it is new.
    pub(super) fn add_off_cpu(&mut self, mut off: OffCpu) -> bool {
        // Nearly always the last one.
        let next = back_position(&self.off_cpu, |known| known.start_ns <= off.start_ns);
        let mut removed = next..next;
        if let Some(before) = next.checked_sub(1).map(|before| self.off_cpu[before]) {
            if before.start_ns == off.start_ns {
                if off.end_ns <= before.end_ns {
                    return false;
                }
                removed.start -= 1;
            } else {
                off.start_ns = off.start_ns.max(before.end_ns);
            }
        }
        while let Some(after) = self.off_cpu.get(removed.end).filter(|after| after.start_ns < off.end_ns) {
            if after.end_ns > off.end_ns {
                off.end_ns = after.start_ns;
                break;
            }
            removed.end += 1;
        }
        if off.start_ns >= off.end_ns {
            return false;
        }
        off.wake_ns = off.wake_ns.clamp(off.start_ns, off.end_ns);
        if self.off_cpu.is_empty() {
            // Of most threads little is kept.
            self.off_cpu.reserve_exact(1);
        }
        if removed.is_empty() {
            self.off_cpu.insert(removed.start, off);
        } else {
            self.off_cpu[removed.start] = off;
            self.off_cpu.drain(removed.start + 1..removed.end);
        }
        true
    }

    /// It left the CPU and came back on `cpu`. A thread that was driven away waited where it had been.
    pub(super) fn switch(&mut self, off: &mut OffCpu, cpu: Option<u32>) -> SwitchedOut {
        // A record out of its order says nothing of where the thread was before it.
        let switched_in = self.switched_in.filter(|came| came.at_ns <= off.start_ns);
        if off.state == State::Preempted {
            off.waited_on = switched_in.and_then(|came| u16::try_from(came.cpu).ok());
        }
        if off.wait.kind == WaitKind::Gil {
            match NonZeroU32::new(off.waker.tid).filter(|_| off.waker.pid == self.pid) {
                Some(tid) => self.gil = Some((tid, off.waker.name)),
                None if off.waker.pid == 0 => off.gil = self.gil,
                None => {}
            }
        }
        if self.switched_in.is_none_or(|came| came.at_ns <= off.end_ns) {
            self.switched_in = cpu.map(|cpu| SwitchedIn { at_ns: off.end_ns, cpu });
        }
        self.heard_ns = self.heard_ns.max(off.end_ns);
        SwitchedOut { switched_in, at_ns: off.start_ns }
    }

    pub(super) fn add_pages(&mut self, pages: Pages) {
        let at = back_position(&self.pages, |known| known.end_ns <= pages.end_ns);
        self.pages.insert(at, pages);
    }

    /// Drops what ended by `before_ns`; `needed`: although somebody may still ask for it.
    pub(super) fn forget_before(&mut self, before_ns: u64, needed: bool) {
        let gone = front_position(&self.off_cpu, |off| off.end_ns <= before_ns);
        let gone_pages = front_position(&self.pages, |pages| pages.end_ns < before_ns);
        if needed && gone + gone_pages > 0 {
            self.unknown_before_ns = self.unknown_before_ns.max(before_ns);
        }
        drop_front(&mut self.off_cpu, gone);
        drop_front(&mut self.pages, gone_pages);
    }

    /// How many times off the CPU and page allocations are kept.
    pub(super) fn len(&self) -> usize {
        self.off_cpu.len() + self.pages.len()
    }

    /// The end of the oldest time off the CPU that is kept.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        let ends_ns = [self.off_cpu.front().map(|off| off.end_ns), self.pages.front().map(|pages| pages.end_ns)];
        ends_ns.into_iter().flatten().min()
    }

    /// All times off the CPU, to change the names in them.
    pub(super) fn off_cpu_mut(&mut self) -> impl Iterator<Item = &mut OffCpu> {
        self.off_cpu.iter_mut()
    }
}

fn drop_front<T>(all: &mut VecDeque<T>, gone: usize) {
    if gone == 0 {
        return;
    }
    all.drain(..gone);
    if all.capacity() > 64 && all.len() < all.capacity() / 4 {
        all.shrink_to(all.len() * 2);
    }
}

/// Behind the last element for which `before` holds: mostly one of the first, since what was asked for before is forgotten.
fn front_position<T>(sorted: &VecDeque<T>, before: impl Fn(&T) -> bool) -> usize {
    sorted.iter().take(8).position(|element| !before(element)).unwrap_or_else(|| sorted.partition_point(before))
}

/// Behind the last element for which `before` holds, searched from the back.
fn back_position<T>(sorted: &VecDeque<T>, before: impl Fn(&T) -> bool) -> usize {
    match sorted.back() {
        Some(last) if !before(last) => sorted.partition_point(before),
        _ => sorted.len(),
    }
}
