//! Stack samples: which stacks there are, and who was in which one when.
//!
//! Stacks and their frames are stored once. Samples are kept as long as paths may still be read from them.

use std::collections::VecDeque;

use ingero_common::host::{HashMap, Thread};
use serde::Deserialize;

use crate::limits::{MAX_DEPTH, MAX_FRAMES, MAX_STACK_SAMPLES, MAX_STACKS};

/// The longest path that Linux takes (PATH_MAX).
const MAX_TEXT: usize = 4_096;

/// A `stack` `frames` record's own keys, read from the same line.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FramesRecord {
    id: u64,
    frames: Vec<Frame>,
}

/// A `stack` `sample` record's own keys.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SampleRecord {
    id: u64,
    weight_ns: u64,
    on_cpu: bool,
    gc: bool,
    #[serde(rename = "in")]
    within: Option<Box<str>>,
}

/// System calls that ask whether something has happened, or give the CPU up: nobody computes in them.
const ASKING: [&str; 12] = [
    "accept",
    "accept4",
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "sched_yield",
    "nanosleep",
    "clock_nanosleep",
];

/// One function on a stack. The line is the one that it was at, 0 where that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct Frame {
    #[serde(rename = "fn")]
    pub(crate) function: Box<str>,
    pub(crate) file: Box<str>,
    pub(crate) line: u32,
    pub(crate) lang: Box<str>,
}

impl Frame {
    /// Whether it belongs to the program itself rather than to what is installed with the interpreter or beside it.
    pub(crate) fn is_own(&self) -> bool {
        let installed = |dir: &str| self.file.contains(dir);
        let standard = installed("/lib/python3.") || installed("/lib64/python3.") || self.file.starts_with("<frozen ");
        &*self.lang == "python" && !standard && !installed("/site-packages/") && !installed("/dist-packages/")
    }

    /// `load (train.py:84)`, as it is: hostile text.
    pub(crate) fn label(&self) -> String {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        match (file, self.line) {
            ("", _) => self.function.to_string(),
            (file, 0) => format!("{} ({file})", self.function),
            (file, line) => format!("{} ({file}:{line})", self.function),
        }
    }

    /// Cuts texts that no program has.
    fn cut(mut self) -> Self {
        for text in [&mut self.function, &mut self.file] {
            *text = text[..text.floor_char_boundary(MAX_TEXT)].into();
        }
        self
    }
}

/// One of the stacks that are known. The default is the one that is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StackId(u32);

#[cfg(test)]
impl StackId {
    /// The one that was stored as the `n`th.
    pub(crate) fn new(n: u32) -> Self {
        Self(n)
    }
}

/// One thread at one instant, or in one sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// The instant, or the end of the sleep; CLOCK_MONOTONIC nanoseconds.
    at_ns: u64,
    pub(crate) stack: StackId,
    on_cpu: bool,
    pub(crate) gc: bool,
    /// It is in a call that asks whether something has happened.
    pub(crate) asks: bool,
}

/// All that is known of them.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    frames: Vec<Frame>,
    frame_ids: HashMap<Frame, u32>,
    stacks: Vec<Box<[u32]>>,
    stack_ids: HashMap<Box<[u32]>, StackId>,
    /// What the numbers in the stream stand for.
    of_stream: HashMap<u64, StackId>,
    samples: HashMap<(u32, u32), VecDeque<Sample>>,
    kept: usize,
    /// Several tracers number their stacks independently: then nothing is known.
    ambiguous: bool,
}

impl Stacks {
    /// Takes note of a stack. So many are told apart; the others are not known.
    pub(crate) fn add_frames(&mut self, record: FramesRecord) {
        if self.of_stream.len() >= MAX_STACKS {
            return;
        }
        let Some(frames) = record
            .frames
            .into_iter()
            .take(MAX_DEPTH)
            .map(|frame| self.frame(frame.cut()))
            .collect::<Option<Box<[u32]>>>()
        else {
            return;
        };
        let next = StackId(self.stacks.len() as u32 + 1);
        let id = *self.stack_ids.entry(frames.clone()).or_insert(next);
        if id == next {
            self.stacks.push(frames);
        }
        self.of_stream.insert(record.id, id);
    }

    fn frame(&mut self, frame: Frame) -> Option<u32> {
        if let Some(&id) = self.frame_ids.get(&frame) {
            return Some(id);
        }
        let id = u32::try_from(self.frames.len()).ok().filter(|&id| (id as usize) < MAX_FRAMES)?;
        self.frames.push(frame.clone());
        self.frame_ids.insert(frame, id);
        Some(id)
    }

    /// Takes note of a sample at `at_ns`.
    pub(crate) fn add_sample(&mut self, pid: u32, tid: u32, at_ns: u64, record: &SampleRecord) {
        let stack = self.of_stream.get(&record.id).copied().unwrap_or_default();
        let asks = record.within.as_deref().is_some_and(|call| ASKING.contains(&call));
        let sample = Sample { at_ns, stack, on_cpu: record.on_cpu, gc: record.gc, asks };
        let of_thread = self.samples.entry((pid, tid)).or_default();
        // Streams are in order but for a little.
        let at = of_thread.partition_point(|known| known.at_ns <= at_ns);
        of_thread.insert(at, sample);
        self.kept += 1;
        if self.kept > MAX_STACK_SAMPLES {
            of_thread.pop_front();
            self.kept -= 1;
        }
    }

    /// A second tracer of the scheduler has begun.
    pub(crate) fn has_two_tracers(&mut self) {
        self.ambiguous = true;
    }

    fn of_thread(&self, thread: Thread, from_ns: u64) -> impl Iterator<Item = &Sample> {
        let all = self.samples.get(&(thread.pid, thread.tid)).filter(|_| !self.ambiguous);
        all.into_iter().flat_map(move |all| all.range(all.partition_point(|sample| sample.at_ns < from_ns)..))
    }

    /// The samples of a thread on a CPU in [`from_ns`, `to_ns`], each with its instant.
    pub(crate) fn on_cpu(&self, thread: Thread, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (u64, Sample)> {
        let all = self.of_thread(thread, from_ns).take_while(move |sample| sample.at_ns < to_ns);
        all.filter(|sample| sample.on_cpu).map(|sample| (sample.at_ns, *sample))
    }

    /// The stack with which a thread went to sleep that came back at `end_ns`.
    pub(crate) fn asleep(&self, thread: Thread, end_ns: u64) -> Option<StackId> {
        let mut all = self.of_thread(thread, end_ns).take_while(|sample| sample.at_ns == end_ns);
        all.find(|sample| !sample.on_cpu).map(|sample| sample.stack)
    }

    /// The frames of a stack, innermost first.
    pub(crate) fn frames(&self, stack: StackId) -> impl DoubleEndedIterator<Item = &Frame> {
        let at = (stack.0 as usize).checked_sub(1);
        let ids = at.and_then(|at| self.stacks.get(at)).map_or(&[][..], |ids| ids);
        ids.iter().filter_map(|&id| self.frames.get(id as usize))
    }

    /// Nobody asks for what was before `horizon_ns` any more.
    pub(crate) fn forget_before(&mut self, horizon_ns: u64) {
        self.samples.retain(|_, all| {
            all.drain(..all.partition_point(|sample| sample.at_ns < horizon_ns));
            !all.is_empty()
        });
        self.kept = self.samples.values().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: Thread = Thread { pid: 1, tid: 2, name: ingero_common::host::Name::NONE };

    fn frames(id: u64, functions: &[&str]) -> FramesRecord {
        let frame = |name: &&str| Frame { function: (*name).into(), line: 1, ..Frame::default() };
        FramesRecord { id, frames: functions.iter().map(frame).collect() }
    }

    fn sample(id: u64, on_cpu: bool) -> SampleRecord {
        SampleRecord { id, on_cpu, ..SampleRecord::default() }
    }

    #[test]
    fn stacks_are_stored_once_and_samples_found_by_time() {
        let mut stacks = Stacks::default();
        stacks.add_frames(frames(7, &["inner", "outer"]));
        stacks.add_frames(frames(8, &["inner", "outer"]));
        stacks.add_sample(1, 2, 100, &sample(7, true));
        stacks.add_sample(1, 2, 300, &sample(8, true));
        stacks.add_sample(1, 2, 200, &sample(9, true));
        stacks.add_sample(1, 2, 300, &sample(7, false));
        assert_eq!((stacks.stacks.len(), stacks.frames.len()), (1, 2));
        let found: Vec<_> = stacks.on_cpu(THREAD, 100, 300).map(|(at_ns, sample)| (at_ns, sample.stack.0)).collect();
        assert_eq!(found, [(100, 1), (200, 0)], "a stack that was never told of is not known");
        assert_eq!((stacks.asleep(THREAD, 300), stacks.asleep(THREAD, 200)), (Some(StackId(1)), None));
        let names: Vec<_> = stacks.frames(StackId(1)).map(|frame| &*frame.function).collect();
        assert_eq!((names, stacks.frames(StackId(0)).count()), (vec!["inner", "outer"], 0));
        stacks.forget_before(300);
        assert_eq!((stacks.kept, stacks.on_cpu(THREAD, 0, 400).count()), (2, 1));
        stacks.has_two_tracers();
        assert_eq!(stacks.on_cpu(THREAD, 0, 400).count(), 0, "numbers of two tracers are not told apart");
    }

    #[test]
    fn so_many_stacks_and_samples_are_kept() {
        let mut stacks = Stacks::default();
        for id in 0..70_000_u64 {
            stacks.add_frames(frames(id, &[&format!("f{id}")]));
        }
        assert_eq!((stacks.frames.len(), stacks.stacks.len(), stacks.of_stream.len()), (65_536, 65_536, 65_536));
        let deep: Vec<String> = (0..300).map(|i| format!("f{i}")).collect();
        let mut one = Stacks::default();
        one.add_frames(frames(1, &deep.iter().map(String::as_str).collect::<Vec<_>>()));
        assert_eq!(one.frames(StackId(1)).count(), 256);
        for at_ns in 0..262_145_u64 {
            stacks.add_sample(1, 2, at_ns, &sample(1, true));
        }
        assert_eq!((stacks.kept, stacks.on_cpu(THREAD, 0, 10).next().map(|(at_ns, _)| at_ns)), (262_144, Some(1)));
    }

    #[test]
    fn own_code_is_what_is_not_installed() {
        let own = |lang: &str, file: &str| Frame { lang: lang.into(), file: file.into(), ..Frame::default() }.is_own();
        for (file, want) in [
            ("/app/train.py", true),
            ("train.py", true),
            ("/home/u/python3.11/train.py", true),
            ("/usr/lib/python3.11/threading.py", false),
            ("/opt/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", false),
            ("/usr/lib/python3/dist-packages/numpy/core.py", false),
            ("<frozen importlib._bootstrap>", false),
            ("<string>", true),
        ] {
            assert_eq!(own("python", file), want, "{file}");
        }
        assert!(!own("native", "/app/libmine.so"));
        let long = Frame { function: "é".repeat(4_000).into(), ..Frame::default() };
        assert_eq!(long.cut().function.len(), 4_096);
    }
}
