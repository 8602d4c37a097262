//! The phases of a process: starting up, its loop, shutting down.
//!
//! The first calls create the context and load code: milliseconds to seconds for what later takes microseconds. It isn't only
//! the very first one: code is loaded kernel by kernel, and on a real trace the second launch took 3.06 s and allocations 12
//! to 15 took 0.26 to 0.76 s each. Cold is therefore
//!
//! - the first call of each group, the first launch of each kernel function, and whatever loads code;
//! - before two synchronising calls have followed the first launch, or 256 launches: allocations and frees of 5 ms and more,
//!   and other calls of 100 ms and more, unless the call mainly waited for a CPU, or waits for the GPU by its nature.
//!
//! The loop can begin with the first warm launch, one of a function that was launched before and which returns within a
//! millisecond, or, where the last cold one was waited for, when that wait ended. A process that never launches anything
//! begins with the end of its second call.
//!
//! ```text
//!   malloc  launch A (cold)   launch B (cold)  sync | waits for data  launch A  launch B  sync …    the loop: from | on
//!   ██      ██████            ███████          ██   |                 █         █         ██
//! ```
//!
//! A few warm launches are no loop yet: a program may try a kernel, import its model code for a second and compile it for half
//! a minute. The process is in steady state from its third *step* on, a warm launch that is waited for, or from 256 warm
//! launches, once there have been many more. A pause before that belongs to the start-up if none after it lasts even a tenth
//! as long; a loop that is starved from its first step has such pauses later, too.
//!
//! ```text
//!   A A sync         imports, compiles         A sync  A sync  A sync  A sync …    start-up: nothing like it comes again
//!   A A sync   waits for data   A sync   waits for data   A sync   waits for da…   starved:  both pauses count
//! ```
//!
//! That is so only where the start was seen: the program began under watch, or the first call on record is one that
//! initialises CUDA and takes as long as that takes. A process that was running when the tracer came has a first call too, but
//! no start-up.

use ingero_common::cuda_api::{Class, Function};
use ingero_common::record::{Record, src};

use crate::gpu::outstanding::Known;
use crate::limits::{
    COLD_ALLOC_NS, COLD_CALL_NS, COPIES_ONLY, INIT_NS, LASTING_LAUNCHES, LASTING_STEPS, MAX_FUNCS, REPEATED_WORK,
    START_UP_FACTOR, START_UP_PAUSES, STEADY_LAUNCHES, STEADY_STEPS, WARM_LAUNCH_NS, WARM_SYNCS,
};
use ingero_common::host::HashSet;

/// Whether a process's first call on record is really its first one: it sets CUDA up. By its name, and by its duration, as
/// libraries call the same functions again at any time. The runtime sets itself up in whatever is called first.
pub(crate) fn initialises(record: &Record<'_>, function: Known, dur_ns: u64) -> bool {
    const CHOOSING: [&str; 1] = ["cudaSetDevice"];
    let class = function.map(|function| function.class);
    let by_name = class == Some(Class::Init) || CHOOSING.contains(&&*record.op);
    let implicit = record.src.0 != src::NCCL && !matches!(class, Some(Class::Sync | Class::Query | Class::Copy));
    by_name && dur_ns >= INIT_NS || implicit && dur_ns >= COLD_CALL_NS
}

/// Whether a call gives the GPU something to do or looks whether that is done.
pub(crate) fn is_work(function: Known) -> bool {
    function.is_some_and(|function| function.enqueues() || matches!(function.class, Class::Sync | Class::Query))
}

/// One call as the phases see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) function: Known,
    pub(crate) func: Option<&'a str>,
    /// It is the first of its group.
    pub(crate) first: bool,
    pub(crate) end_ns: u64,
    pub(crate) dur_ns: u64,
}

impl Call<'_> {
    fn is(&self, classes: &[Class]) -> bool {
        self.function.is_some_and(|function| classes.contains(&function.class))
    }

    fn waits(&self) -> bool {
        self.function.is_some_and(Function::is_wait)
    }
}

const LAUNCHES: [Class; 3] = [Class::Launch, Class::GraphLaunch, Class::Collective];

/// How far it does the same over and over.
#[derive(Debug, Default)]
struct Steady {
    warm_launches: u64,
    steps: u64,
    /// A warm launch has not been waited for.
    in_step: bool,
    /// Since when.
    since_ns: Option<u64>,
}

/// How far a process is.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    launches: u64,
    syncs_after_launch: u64,
    calls: u64,
    funcs: HashSet<Box<str>>,
    cold_launch_end_ns: u64,
    /// The end of the first wait after the last cold launch.
    warmed_up_ns: Option<u64>,
    at_work_ns: Option<u64>,
    second_call_end_ns: Option<u64>,
    steady: Steady,
    /// Calls that gave the GPU work or looked whether it was done, without cold ones.
    warm_work: u64,
    work_end_ns: u64,
    /// A context or code was given back since the last work.
    unloads: bool,
    /// Calls that were cold, and their time in nanoseconds.
    pub(crate) cold: (u64, u64),
    /// It was traced from its beginning on: only then can there be pauses of a start-up.
    pub(crate) start_seen: bool,
}

impl Phases {
    /// Takes note of a call and says whether it is cold. `mostly_waiting` says whether it mainly waited for a CPU.
    pub(crate) fn add(&mut self, call: Call<'_>, mostly_waiting: impl FnOnce() -> bool) -> bool {
        let mut cold = call.first || call.is(&[Class::Load, Class::Instantiate, Class::Init]);
        if call.is(&[Class::Launch])
            && let Some(func) = call.func
            && !self.funcs.contains(func)
        {
            if self.funcs.len() < MAX_FUNCS {
                self.funcs.insert(func.into());
            }
            cold = true;
        }
        let warm_by_now = self.launches >= STEADY_LAUNCHES || self.syncs_after_launch >= WARM_SYNCS;
        cold |= !warm_by_now && is_cold_while_warming_up(&call) && !mostly_waiting();
        self.note(&call, cold);
        if cold {
            self.cold.0 += 1;
            self.cold.1 += call.dur_ns;
        }
        cold
    }

    /// Before which instant everything is start-up, whatever comes.
    pub(crate) fn start_up_until_ns(&self) -> u64 {
        self.cold_launch_end_ns
    }

    /// From when on time may be the loop's; `None` while that isn't known. `at_end`: no more calls will come.
    pub(crate) fn at_work_ns(&self, at_end: bool) -> Option<u64> {
        let never_launches = self.launches == 0 && (at_end || self.calls > COPIES_ONLY);
        // All of its launches are slow, which is how it works.
        let never_warm = self.launches > STEADY_LAUNCHES;
        self.at_work_ns.or(if never_launches || never_warm { self.second_call_end_ns } else { None })
    }

    /// When it began to do the same over and over, once it has done so for long.
    fn steady_ns(&self) -> Option<u64> {
        let lasting = self.steady.steps >= LASTING_STEPS || self.steady.warm_launches >= LASTING_LAUNCHES;
        self.steady.since_ns.filter(|_| lasting)
    }

    /// Where its loop begins, at `at_work_ns` or behind a pause of its start-up; `None` while that may still turn out.
    /// `pauses`: lost intervals since then, start and length; `settled_ns`: all up to there are among them.
    pub(crate) fn loop_start_ns(
        &self,
        pauses: &[(u64, u64)],
        at_work_ns: u64,
        settled_ns: u64,
        at_end: bool,
    ) -> Option<u64> {
        if !self.start_seen {
            return Some(at_work_ns);
        }
        let Some(steady_ns) = self.steady_ns() else { return at_end.then_some(at_work_ns) };
        if settled_ns <= steady_ns && !at_end {
            return None;
        }
        let longest =
            |pauses: &mut dyn Iterator<Item = &(u64, u64)>| pauses.map(|(_, len_ns)| *len_ns).max().unwrap_or(0);
        let before = || pauses.iter().filter(|(start_ns, _)| *start_ns < steady_ns);
        let longest_ns = longest(&mut before());
        let later_ns = longest(&mut pauses.iter().filter(|(start_ns, _)| *start_ns >= steady_ns));
        if before().filter(|(_, len_ns)| len_ns.saturating_mul(START_UP_FACTOR) >= longest_ns).count() > START_UP_PAUSES
        {
            return Some(at_work_ns);
        }
        let odd = before().filter(|(_, len_ns)| *len_ns > later_ns.saturating_mul(START_UP_FACTOR));
        Some(odd.map(|(start_ns, len_ns)| start_ns + len_ns).max().unwrap_or(at_work_ns))
    }

    /// Whether it ever did the same again and again, be it for a short time. A launcher that asks how many devices there are,
    /// allocates a little and then waits for its children has not.
    pub(crate) fn has_repeated(&self) -> bool {
        self.steady.since_ns.is_some() || self.warm_work >= REPEATED_WORK
    }

    /// Whether there was any work.
    pub(crate) fn has_worked(&self) -> bool {
        self.work_end_ns > 0
    }

    /// Whether it has given a context or code back since its last work: what a program does when it ends.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.unloads && self.has_worked()
    }

    fn note(&mut self, call: &Call<'_>, cold: bool) {
        self.calls += 1;
        self.warm_work += u64::from(is_work(call.function) && !cold);
        if self.calls == 2 {
            self.second_call_end_ns = Some(call.end_ns);
        }
        if call.is(&LAUNCHES) {
            self.launches += 1;
            let warm = !cold && call.dur_ns < WARM_LAUNCH_NS;
            match (self.at_work_ns, warm) {
                (None, false) => (self.cold_launch_end_ns, self.warmed_up_ns) = (call.end_ns, None),
                (None, true) => self.at_work_ns = self.warmed_up_ns.or(Some(call.end_ns - call.dur_ns)),
                _ => {}
            }
            self.steady.warm_launches += u64::from(warm);
            self.steady.in_step |= warm;
        } else if self.steady.in_step && call.waits() {
            self.steady.steps += 1;
            self.steady.in_step = false;
        }
        if call.waits() && self.launches > 0 {
            self.warmed_up_ns.get_or_insert(call.end_ns);
        }
        self.syncs_after_launch += u64::from(call.is(&[Class::Sync]) && self.launches > 0);
        if self.steady.since_ns.is_none()
            && (self.steady.steps >= STEADY_STEPS || self.steady.warm_launches >= STEADY_LAUNCHES)
        {
            self.steady.since_ns = Some(call.end_ns);
        }
        if is_work(call.function) {
            self.unloads &= call.end_ns < self.work_end_ns;
            self.work_end_ns = self.work_end_ns.max(call.end_ns);
        } else if call.is(&[Class::Unload]) && call.end_ns >= self.work_end_ns {
            self.unloads = true;
        }
    }
}

fn is_cold_while_warming_up(call: &Call<'_>) -> bool {
    if call.is(&[Class::Alloc, Class::Free, Class::Register]) {
        return call.dur_ns >= COLD_ALLOC_NS;
    }
    !call.is(&[Class::Sync, Class::Copy]) && call.dur_ns >= COLD_CALL_NS
}

#[cfg(test)]
mod tests;
