//! Where in their code threads were: from what the kernel side has read to `stack` records.
//!
//! The kernel side tells code objects by their addresses. What these are is read here, a moment later, from the process's memory,
//! and remembered; a stack that is known as a whole costs one look into a table. Each different stack is written once, each sample
//! refers to it.
//!
//! A stack with which a thread went to sleep is kept until it is known how long it slept.

mod code;
mod layout;
mod lines;
mod memory;
mod native;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ingero_common::discover::{ProcFs, python};
use ingero_common::record::src;
use ingero_common::record::stack::{Frame, Frames, Sample};
use ingero_common::record::write::Text;
use ingero_common::stream::Stream;
use ingero_common::text::Log;
use ingero_ebpf::sched::Tracer;
use ingero_ebpf::sched::event::{Event, Head, In, Switch};
use ingero_ebpf::sched::stack::{PythonFrame, Stack};
use syscalls::Sysno;

use code::Function;
use layout::{Found, Layout};
use memory::Memory;
use native::Natives;

/// Sleeps from here on have a stack (`SLEEP_MIN_NS` of bpf/sched_stack.h).
const SLEEP_MIN_NS: u64 = 1_000_000;
/// How often it is looked whether a process has an interpreter by now: one that has just begun, then the others.
const LOOK_SOON: Duration = Duration::from_millis(100);
const LOOK_LATER: Duration = Duration::from_secs(5);
/// For so long a process is one that has just begun.
const YOUNG: Duration = Duration::from_secs(10);
/// What is remembered of code is read anew after this time: a code object may have been freed and another one put in its place.
const RECHECK: Duration = Duration::from_secs(10);
/// Code objects and stacks that are remembered for one process; beyond, all are forgotten.
const MAX_FUNCTIONS: usize = 65_536;
const MAX_KNOWN: usize = 65_536;
/// Different stacks that are told apart in a stream; those beyond have samples without one.
const MAX_STACKS: usize = 65_536;
/// Threads that sleep.
const MAX_ASLEEP: usize = 65_536;

/// What is known of stacks.
#[derive(Debug)]
pub(crate) struct Stacks {
    proc: ProcFs,
    period_ns: u64,
    processes: BTreeMap<u32, Process>,
    /// Stacks of the stream by their frames.
    ids: HashMap<Box<[Place]>, u64>,
    natives: Natives,
    asleep: HashMap<u32, Asleep>,
    /// Records written.
    written: u64,
    torn: u64,
}

#[derive(Debug)]
struct Process {
    began: Instant,
    /// When it is to be looked at next; `None`: no more.
    next: Option<Instant>,
    python: Option<Interpreter>,
}

/// The interpreter of a process. Children have that of their parent until they become another program.
#[derive(Debug)]
struct Interpreter {
    memory: Memory,
    layout: Layout,
    functions: HashMap<u64, Read<Rc<Function>>>,
    known: HashMap<Box<[PythonFrame]>, Read<Rc<[Place]>>>,
}

/// Something that was read from a process, and until when it is believed.
#[derive(Debug)]
struct Read<T> {
    value: T,
    until: Instant,
}

impl<T: Clone> Read<T> {
    fn at(now: Instant, value: T) -> Self {
        Self { value, until: now + RECHECK }
    }

    fn get(&self, now: Instant) -> Option<T> {
        (self.until > now).then(|| self.value.clone())
    }
}

/// A function and a line in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    function: Rc<str>,
    file: Rc<str>,
    line: u32,
    lang: &'static str,
}

impl Place {
    fn frame(&self) -> Frame<'_> {
        Frame {
            function: Text(self.function.as_bytes()),
            file: Text(self.file.as_bytes()),
            line: (self.line > 0).then_some(self.line),
            lang: self.lang,
        }
    }
}

/// With which stack a thread went to sleep.
#[derive(Debug)]
struct Asleep {
    from_ns: u64,
    seen: Seen,
}

/// What was seen of a thread.
#[derive(Debug)]
struct Seen {
    id: Option<u64>,
    torn: bool,
    within: Option<&'static str>,
}

impl Stacks {
    /// Samples are `hz` a second of each running thread.
    pub(crate) fn new(hz: u32) -> Self {
        Self {
            proc: ProcFs::default(),
            period_ns: 1_000_000_000 / u64::from(hz.max(1)),
            processes: BTreeMap::new(),
            ids: HashMap::new(),
            natives: Natives::default(),
            asleep: HashMap::new(),
            written: 0,
            torn: 0,
        }
    }

    /// How many records were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// How many stacks were being changed when they were read.
    pub(crate) fn torn(&self) -> u64 {
        self.torn
    }

    /// Process `pid` is watched.
    pub(crate) fn watch(&mut self, pid: u32) {
        let now = Instant::now();
        self.processes.insert(pid, Process { began: now, next: Some(now), python: None });
    }

    /// What an event says of processes and threads; what there is to tell is written.
    pub(crate) fn follow<W: Write>(&mut self, stream: &mut Stream<W>, event: &Event<'_>) -> io::Result<()> {
        match *event {
            Event::Stack(ref stack) => self.stack(stream, stack)?,
            Event::Switch(ref switch) => self.woke(stream, switch)?,
            Event::Fork { head, child_pid, watched: true, .. } => {
                self.watch(child_pid);
                self.inherit(head.who.pid, child_pid);
            }
            Event::CudaInit { head, alone: true } => self.watch(head.who.pid),
            // Another program, perhaps with another interpreter; the kernel side has forgotten the one before.
            Event::Exec { head, .. } => {
                self.natives.forget(head.who.pid);
                self.watch(head.who.pid);
            }
            Event::ProcessExit { head, .. } => {
                self.natives.forget(head.who.pid);
                self.processes.remove(&head.who.pid);
            }
            Event::ThreadExit { head, .. } => {
                self.asleep.remove(&head.who.tid);
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks for the interpreters of processes for which it is time, and tells the kernel side of them.
    pub(crate) fn look(&mut self, tracer: &mut Tracer, log: &Log) -> io::Result<()> {
        let now = Instant::now();
        for (&pid, process) in &mut self.processes {
            if process.python.is_some() || process.next.is_none_or(|next| next > now) {
                continue;
            }
            process.next = Some(now + if now - process.began < YOUNG { LOOK_SOON } else { LOOK_LATER });
            // It may be ending.
            let Ok(Some(runtime)) = python::runtime_of(&self.proc, pid) else { continue };
            let found = Memory::of(pid).and_then(|memory| Ok((layout::find(&memory, &runtime)?, memory)));
            match found {
                Ok((Found::Known(python, layout), memory)) => {
                    tracer.set_python(pid, Some(&python))?;
                    process.python = Some(Interpreter::new(memory, layout));
                }
                Ok((Found::NotYet, _)) => {}
                Ok((Found::Unknown(why), _)) => {
                    log.detail(format!("process {pid}: no Python functions in its stacks: {why}"));
                    process.next = None;
                }
                Err(error) => log.detail(format!("process {pid}: its memory cannot be read yet: {error}")),
            }
        }
        Ok(())
    }

    fn inherit(&mut self, parent: u32, child: u32) {
        let layout = self.processes.get(&parent).and_then(|parent| parent.python.as_ref()).map(|python| python.layout);
        let Some((process, layout)) = self.processes.get_mut(&child).zip(layout) else { return };
        // Where it has ended already there is nothing to read.
        process.python = Memory::of(child).ok().map(|memory| Interpreter::new(memory, layout));
    }

    fn stack<W: Write>(&mut self, stream: &mut Stream<W>, stack: &Stack<'_>) -> io::Result<()> {
        let seen = self.see(stream, stack)?;
        if stack.on_cpu {
            return self.sample(stream, &stack.head, stack.head.mono_ns, self.period_ns, (true, stack.gc), &seen);
        }
        if self.asleep.len() >= MAX_ASLEEP {
            self.asleep.clear();
        }
        self.asleep.insert(stack.head.who.tid, Asleep { from_ns: stack.head.mono_ns, seen });
        Ok(())
    }

    /// A thread is back, or still off the CPU at the end.
    fn woke<W: Write>(&mut self, stream: &mut Stream<W>, switch: &Switch<'_>) -> io::Result<()> {
        let head = &switch.head;
        let Some(asleep) = self.asleep.remove(&head.who.tid) else { return Ok(()) };
        if asleep.from_ns != head.mono_ns || head.dur_ns < SLEEP_MIN_NS {
            return Ok(());
        }
        let end_ns = head.mono_ns.saturating_add(head.dur_ns);
        self.sample(stream, head, end_ns, head.dur_ns, (false, false), &asleep.seen)
    }

    fn sample<W: Write>(
        &mut self,
        stream: &mut Stream<W>,
        head: &Head<'_>,
        mono_ns: u64,
        weight_ns: u64,
        (on_cpu, gc): (bool, bool),
        seen: &Seen,
    ) -> io::Result<()> {
        let ts = stream.ts(mono_ns);
        self.written += 1;
        stream.event(&Sample {
            src: src::STACK,
            op: "sample",
            mono_ns,
            ts,
            pid: head.who.pid,
            tid: head.who.tid,
            id: seen.id,
            weight_ns,
            on_cpu,
            within: seen.within,
            gc,
            torn: seen.torn,
        })
    }

    /// Which stack this is; one that is new is told of.
    fn see<W: Write>(&mut self, stream: &mut Stream<W>, stack: &Stack<'_>) -> io::Result<Seen> {
        let within = match stack.within {
            In::Call(number) => Sysno::new(number as usize).map(|call| call.name()),
            In::OwnCode | In::Kernel => None,
        };
        let pid = stack.head.who.pid;
        let python = self.processes.get_mut(&pid).and_then(|process| process.python.as_mut());
        let (python, torn) = match python.map(|python| python.places(stack.frames())) {
            Some(Ok(places)) => (Some(places), stack.torn),
            Some(Err(_)) => (None, true),
            None => (None, stack.torn),
        };
        self.torn += u64::from(torn);
        if torn {
            return Ok(Seen { id: None, torn, within });
        }
        // What a thread sleeps in is a system call; where that was made tells nothing more.
        let native = stack.on_cpu.then(|| self.natives.place(pid, stack.ip)).flatten();
        let places: Box<[Place]> =
            native.iter().chain(python.iter().flat_map(|places| places.iter())).cloned().collect();
        if places.is_empty() {
            return Ok(Seen { id: None, torn, within });
        }
        let id = match self.ids.get(&places) {
            Some(&id) => Some(id),
            None if self.ids.len() >= MAX_STACKS => None,
            None => {
                let id = self.ids.len() as u64 + 1;
                self.tell(stream, stack.head.mono_ns, id, &places)?;
                self.ids.insert(places, id);
                Some(id)
            }
        };
        Ok(Seen { id, torn, within })
    }

    fn tell<W: Write>(&mut self, stream: &mut Stream<W>, mono_ns: u64, id: u64, places: &[Place]) -> io::Result<()> {
        let frames: Vec<Frame<'_>> = places.iter().map(Place::frame).collect();
        let ts = stream.ts(mono_ns);
        self.written += 1;
        stream.event(&Frames { src: src::STACK, op: "frames", mono_ns, ts, id, frames: &frames })
    }
}

impl Interpreter {
    fn new(memory: Memory, layout: Layout) -> Self {
        Self { memory, layout, functions: HashMap::new(), known: HashMap::new() }
    }

    /// What frames are, innermost first.
    fn places(&mut self, frames: impl Iterator<Item = PythonFrame>) -> io::Result<Rc<[Place]>> {
        let frames: Box<[PythonFrame]> = frames.collect();
        let now = Instant::now();
        if let Some(places) = self.known.get(&frames).and_then(|known| known.get(now)) {
            return Ok(places);
        }
        let places: Rc<[Place]> = frames.iter().map(|frame| self.place(*frame, now)).collect::<io::Result<_>>()?;
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(frames, Read::at(now, places.clone()));
        Ok(places)
    }

    fn place(&mut self, frame: PythonFrame, now: Instant) -> io::Result<Place> {
        let function = match self.functions.get(&frame.code).and_then(|known| known.get(now)) {
            Some(function) => function,
            None => {
                let function = Rc::new(Function::read(&self.memory, &self.layout, frame.code)?);
                if self.functions.len() >= MAX_FUNCTIONS {
                    self.functions.clear();
                }
                self.functions.insert(frame.code, Read::at(now, function.clone()));
                function
            }
        };
        Ok(Place {
            function: function.name.as_str().into(),
            file: function.file.as_str().into(),
            line: function.line(&self.layout, frame.code, frame.instruction).unwrap_or(0),
            lang: "python",
        })
    }
}
