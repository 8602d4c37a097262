//! Where in its code a thread was while the GPU waited for it: stack samples, summed up by function.
//!
//! Of each stack one frame stands for all: the innermost one of the program's own code, which is the line to change. What it
//! called, in a library or in the interpreter, is named behind it.
//!
//! ```text
//!   stack, innermost first                                   counts for            inner
//!   _decode (PIL/ImageFile.py)  load (train.py:84)  main     load (train.py:84)    _decode
//!   __getitem__ (train.py:91)   fetch (torch/…)              __getitem__ (…:91)
//!   memcpy (libc.so.6)                                       memcpy
//! ```

use std::collections::BTreeMap;

use ingero_common::host::Task;
use ingero_common::text::Traced;
use serde::Serialize;

use crate::blame::breakdown::{Cause, share};
use crate::input::stacks::{Frame, StackId, Stacks};
use crate::limits::{ASKING_SHARE, MAX_LISTED_FUNCTIONS, MAX_PLACES, MIN_STACKS};

/// A stack in which somebody was for some cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cause: Cause,
    pub(crate) task: Task,
    pub(crate) stack: StackId,
    /// In the garbage collector of its language.
    pub(crate) gc: bool,
    /// In a call that asks whether something has happened.
    pub(crate) asks: bool,
}

/// How much there was of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    /// How long the sleeps took that began there; 0 of samples on a CPU, which stand for equal parts of their cause.
    ns: u64,
    samples: u64,
}

/// Many of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places(Vec<(Place, Amount)>);

impl Places {
    pub(crate) fn add(&mut self, place: Place, ns: u64, samples: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == place) {
            Some((_, amount)) => (amount.ns, amount.samples) = (amount.ns + ns, amount.samples + samples),
            None => self.0.push((place, Amount { ns, samples })),
        }
        if self.0.len() <= MAX_PLACES {
            return;
        }
        let named = (0..self.0.len()).filter(|&at| self.0[at].0.stack != StackId::default());
        if let Some(at) = named.min_by_key(|&at| (self.0[at].1.samples, self.0[at].1.ns)) {
            let (place, amount) = self.0.swap_remove(at);
            self.add(Place { stack: StackId::default(), ..place }, amount.ns, amount.samples);
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|&(place, amount)| self.add(place, amount.ns, amount.samples));
    }

    /// The same places; samples stay what they are, times become other ones.
    pub(crate) fn scaled(&self, scale: impl Fn(u64) -> u64) -> Self {
        let scaled = |&(place, amount): &(Place, Amount)| (place, Amount { ns: scale(amount.ns), ..amount });
        Self(self.0.iter().map(scaled).collect())
    }

    pub(crate) fn forget(&mut self, cause: Cause) {
        self.0.retain(|(place, _)| place.cause != cause);
    }

    /// Of `ns` that a task was on a CPU, how much it spent in its garbage collector; 0 where it was sampled too rarely.
    pub(crate) fn gc_ns(&self, cause: Cause, task: Task, ns: u64) -> u64 {
        let all = self.samples(cause, task);
        let of_task = self.0.iter().filter(|(place, _)| (place.cause, place.task) == (cause, task));
        let gc: u64 = of_task.filter(|(place, _)| place.gc).map(|(_, amount)| amount.samples).sum();
        if all < MIN_STACKS { 0 } else { (u128::from(ns) * u128::from(gc) / u128::from(all)) as u64 }
    }

    /// The same places below the causes that they turn out to belong to.
    pub(crate) fn told_apart(&self) -> Self {
        let of = |place: &Place| match place.cause.collecting() {
            Some(_) if self.spins(place.cause, place.task) => Cause::Spin,
            Some(gc) if place.gc && self.samples(place.cause, place.task) >= MIN_STACKS => gc,
            _ => place.cause,
        };
        let mut places = Self::default();
        self.0.iter().for_each(|(place, amount)| {
            places.add(Place { cause: of(place), ..*place }, amount.ns, amount.samples);
        });
        places
    }

    fn samples(&self, cause: Cause, task: Task) -> u64 {
        let of_task = self.0.iter().filter(|(place, _)| (place.cause, place.task) == (cause, task));
        of_task.map(|(_, amount)| amount.samples).sum()
    }

    /// Whether a task that was on a CPU asked over and over whether something had happened, as far as samples tell.
    pub(crate) fn spins(&self, cause: Cause, task: Task) -> bool {
        let all = self.samples(cause, task);
        let of_task = self.0.iter().filter(|(place, _)| (place.cause, place.task) == (cause, task));
        let asks: u64 = of_task.filter(|(place, _)| place.asks).map(|(_, amount)| amount.samples).sum();
        cause.collecting().is_some() && all >= MIN_STACKS && asks as f64 >= all as f64 * ASKING_SHARE
    }

    /// The functions in which the time of a cause was, largest first; `ns` is all of that time.
    pub(crate) fn lines(&self, cause: Cause, ns: u64, stacks: &Stacks) -> Vec<WhereLine> {
        let of_cause = || self.0.iter().filter(|(place, _)| place.cause == cause);
        let samples: u64 = of_cause().map(|(_, amount)| amount.samples).sum();
        let slept = of_cause().any(|(_, amount)| amount.ns > 0);
        let part = |amount: Amount| match slept {
            true => Some(share(amount.ns, ns)),
            false => (samples >= MIN_STACKS).then(|| share(amount.samples, samples)),
        };
        let mut functions: BTreeMap<(&str, &str), Function<'_>> = BTreeMap::new();
        for &(place, amount) in of_cause() {
            let Some(own) = stands_for(place.stack, stacks) else { continue };
            functions.entry((&own.function, &own.file)).or_default().add(
                own,
                stacks.frames(place.stack).next(),
                amount,
            );
        }
        let mut lines: Vec<WhereLine> =
            functions.into_iter().map(|((name, file), function)| function.line(name, file, part)).collect();
        lines.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.function.raw().cmp(b.function.raw())));
        lines.truncate(MAX_LISTED_FUNCTIONS);
        lines
    }

    /// The stacks of one cause and task as they are, with their parts of `ns`: what is not known is left out.
    pub(crate) fn folded(&self, cause: Cause, task: Task, ns: u64) -> Vec<(StackId, u64)> {
        let of_task = || self.0.iter().filter(|(place, _)| (place.cause, place.task) == (cause, task));
        let samples: u64 = of_task().map(|(_, amount)| amount.samples).sum();
        let slept = of_task().any(|(_, amount)| amount.ns > 0);
        let part = |amount: Amount| match slept {
            true => amount.ns.min(ns),
            false => (u128::from(ns) * u128::from(amount.samples) / u128::from(samples.max(1))) as u64,
        };
        let known = of_task().filter(|(place, _)| place.stack != StackId::default());
        known.map(|&(place, amount)| (place.stack, part(amount))).collect()
    }
}

/// The frame that stands for a stack.
fn stands_for(stack: StackId, stacks: &Stacks) -> Option<&Frame> {
    stacks.frames(stack).find(|frame| frame.is_own()).or_else(|| stacks.frames(stack).next())
}

/// What is summed up of one function.
#[derive(Default)]
struct Function<'a> {
    amount: Amount,
    lines: BTreeMap<u32, Amount>,
    inner: BTreeMap<(&'a str, &'a str), Amount>,
}

impl<'a> Function<'a> {
    fn add(&mut self, own: &Frame, innermost: Option<&'a Frame>, more: Amount) {
        let add =
            |amount: &mut Amount| (amount.ns, amount.samples) = (amount.ns + more.ns, amount.samples + more.samples);
        add(&mut self.amount);
        add(self.lines.entry(own.line).or_default());
        if let Some(inner) = innermost.filter(|inner| *inner != own) {
            add(self.inner.entry((&inner.function, &inner.file)).or_default());
        }
    }

    fn line(self, name: &str, file: &str, part: impl Fn(Amount) -> Option<f64>) -> WhereLine {
        let most = |amounts: &BTreeMap<u32, Amount>| {
            amounts.iter().max_by_key(|(_, amount)| (amount.ns, amount.samples)).map_or(0, |(line, _)| *line)
        };
        let known = || self.lines.keys().copied().filter(|&line| line > 0);
        let lines =
            known().min().zip(known().max()).filter(|(first, last)| first < last).map(|(first, last)| [first, last]);
        let inner = self.inner.iter().max_by_key(|(_, amount)| (amount.ns, amount.samples));
        WhereLine {
            function: name.into(),
            file: file.into(),
            line: most(&self.lines),
            lines,
            share: part(self.amount),
            samples: self.amount.samples,
            inner: inner.map(|(&(name, file), _)| InnerLine { function: name.into(), file: file.into() }),
            weight: (self.amount.ns, self.amount.samples),
        }
    }
}

/// A function in which the time of a cause was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhereLine {
    /// Its name: of the innermost frame of the program's own code, or else of the innermost one of all.
    #[serde(rename = "fn")]
    pub function: Traced,
    /// Its source file, or the binary that it is in.
    #[serde(skip_serializing_if = "Traced::is_empty")]
    pub file: Traced,
    /// The line that it was at most often; 0 where lines are not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: u32,
    /// The first and the last line that it was at, where these are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<[u32; 2]>,
    /// Its part of the cause's time; absent where too few samples tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// How many samples found it there: instants on a CPU, or sleeps.
    pub samples: u64,
    /// What it called, most often, where it was not in its own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner: Option<InnerLine>,
    /// What they are sorted by.
    #[serde(skip)]
    weight: (u64, u64),
}

/// The innermost function below one of the program's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "keys of the contract")]
pub struct InnerLine {
    #[serde(rename = "fn")]
    pub function: Traced,
    #[serde(skip_serializing_if = "Traced::is_empty")]
    pub file: Traced,
}

fn is_zero(line: &u32) -> bool {
    *line == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(all: &[&[(&str, &str, u32)]]) -> Stacks {
        let mut stacks = Stacks::default();
        for (id, frames) in all.iter().enumerate() {
            let frame = |&(name, file, line): &(&str, &str, u32)| {
                format!(r#"{{"fn":"{name}","file":"{file}","line":{line},"lang":"python"}}"#)
            };
            let frames = frames.iter().map(frame).collect::<Vec<_>>().join(",");
            stacks.add_frames(serde_json::from_str(&format!(r#"{{"id":{id},"frames":[{frames}]}}"#)).unwrap());
        }
        stacks
    }

    fn place(stack: u32, gc: bool) -> Place {
        Place { cause: Cause::WorkerCpu, task: Task::default(), stack: StackId::new(stack), gc, asks: false }
    }

    #[test]
    fn the_innermost_own_frame_stands_for_a_stack() {
        let pil = "/venv/lib/python3.12/site-packages/PIL/ImageFile.py";
        let stacks = stacks(&[
            &[("_decode", pil, 9), ("load", "train.py", 84), ("main", "train.py", 1)],
            &[("load", "train.py", 86), ("main", "train.py", 1)],
            &[("_decode", pil, 9)],
        ]);
        let mut places = Places::default();
        for (stack, samples) in [(1, 50), (2, 11), (3, 20), (0, 19)] {
            places.add(place(stack, false), 0, samples);
        }
        let lines = places.lines(Cause::WorkerCpu, 1_000, &stacks);
        let told: Vec<_> =
            lines.iter().map(|line| (line.function.raw(), line.line, line.share, line.samples)).collect();
        assert_eq!(told, [("load", 84, Some(0.61), 61), ("_decode", 9, Some(0.2), 20)]);
        assert_eq!(
            (lines[0].lines, lines[0].inner.as_ref().map(|inner| inner.function.raw())),
            (Some([84, 86]), Some("_decode"))
        );
        assert_eq!((lines[1].lines, &lines[1].inner), (None, &None));
        assert!(places.lines(Cause::HostCpu, 1_000, &stacks).is_empty());
        let folded = places.folded(Cause::WorkerCpu, Task::default(), 1_000);
        assert_eq!(folded.iter().map(|(_, ns)| ns).sum::<u64>(), 810, "the rest is not known");
    }

    #[test]
    fn a_share_needs_ten_samples() {
        let stacks = stacks(&[&[("f", "a.py", 1)]]);
        let shares = |samples| {
            let mut places = Places::default();
            places.add(place(1, false), 0, samples);
            places.lines(Cause::WorkerCpu, 1_000, &stacks)[0].share
        };
        assert_eq!((shares(9), shares(10)), (None, Some(1.0)));
        let gc = |samples: u64| {
            let mut places = Places::default();
            places.add(place(1, true), 0, 1);
            places.add(place(1, false), 0, samples - 1);
            places.gc_ns(Cause::WorkerCpu, Task::default(), 1_000)
        };
        assert_eq!((gc(9), gc(10)), (0, 100));
    }

    #[test]
    fn who_asks_in_a_quarter_of_the_samples_spins() {
        let spins = |asking, samples: u64| {
            let mut places = Places::default();
            places.add(Place { asks: true, ..place(1, false) }, 0, asking);
            places.add(place(1, false), 0, samples - asking);
            places.spins(Cause::WorkerCpu, Task::default())
        };
        assert_eq!([spins(3, 12), spins(2, 12), spins(9, 9), spins(10, 10)], [true, false, false, true]);
    }

    #[test]
    fn each_sleep_counts_for_its_length() {
        let stacks = stacks(&[&[("wait", "a.py", 1)], &[("poll", "a.py", 7)]]);
        let mut places = Places::default();
        places.add(place(1, false), 600, 1);
        places.add(place(2, false), 300, 3);
        let lines = places.scaled(|ns| ns / 2).lines(Cause::WorkerCpu, 500, &stacks);
        let told: Vec<_> = lines.iter().map(|line| (line.function.raw(), line.share)).collect();
        assert_eq!(told, [("wait", Some(0.6)), ("poll", Some(0.3))], "100 ns slept too shortly to be sampled");
    }

    #[test]
    fn so_many_stacks_are_told_apart() {
        let mut places = Places::default();
        for stack in 1..=300_u32 {
            places.add(place(stack, false), 0, u64::from(stack));
        }
        assert_eq!(places.0.len(), 256);
        let mut twice = places.clone();
        twice.add_all(&places);
        assert_eq!(twice.0.iter().map(|(_, amount)| amount.samples).sum::<u64>(), 2 * 150 * 301);
        twice.forget(Cause::WorkerCpu);
        assert_eq!(twice, Places::default());
    }

    #[test]
    fn so_many_functions_are_listed() {
        let names: Vec<String> = (0..20).map(|i| format!("f{i}")).collect();
        let frames: Vec<[(&str, &str, u32); 1]> = names.iter().map(|name| [(name.as_str(), "a.py", 1)]).collect();
        let stacks = stacks(&frames.iter().map(|frame| &frame[..]).collect::<Vec<_>>());
        let mut places = Places::default();
        (1..=20).for_each(|stack| places.add(place(stack, false), 0, u64::from(stack)));
        let lines = places.lines(Cause::WorkerCpu, 1_000, &stacks);
        assert_eq!((lines.len(), lines[0].function.raw(), lines[9].function.raw()), (10, "f19", "f10"));
    }
}
