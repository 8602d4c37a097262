//! What is to be done, as `stub-app` reads it: `key=value` arguments (`tests/stub/app/plan.c`).

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use ingero_common::cli;

/// One step: `count` calls of one function, all alike.
///
/// Written `NAME[*COUNT][,key=value…]`, for instance `cudaMemcpyAsync*3,bytes=4k,dir=h2d,sleep=2ms`. The name `host` is no
/// call but the host's own work: `host,spin=20ms`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The exported function, or `host`.
    pub name: String,
    /// How often.
    pub count: u64,
    /// CPU time burnt in each call.
    pub spin: Duration,
    /// Time asleep in each call, after that.
    pub sleep: Duration,
    /// What each call returns.
    pub ret: i32,
    /// A runtime call does the work itself, without its driver call.
    pub flat: bool,
    /// Size of a copy or an allocation.
    pub bytes: u64,
    /// `cudaMemcpyKind`: 0 h2h, 1 h2d, 2 d2h, 3 d2d, 4 default.
    pub kind: u32,
    /// The stream's handle.
    pub stream: u64,
}

impl Step {
    /// `count` calls of `name` that do nothing.
    pub fn new(name: &str, count: u64) -> Self {
        let (spin, sleep) = (Duration::ZERO, Duration::ZERO);
        Self { name: name.into(), count, spin, sleep, ret: 0, flat: false, bytes: 4096, kind: 1, stream: 0 }
    }

    fn argument(&self) -> String {
        let Self { name, count, ret, bytes, kind, stream, .. } = self;
        let (spin, sleep, flat) = (self.spin.as_nanos(), self.sleep.as_nanos(), u8::from(self.flat));
        format!("step={name}:{count}:{spin}:{sleep}:{ret}:{flat}:{bytes}:{kind}:{stream}")
    }
}

impl FromStr for Step {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, count) = head.split_once('*').unwrap_or((head, "1"));
        if name.is_empty() || name.len() > 47 || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            bail!("`{name}` is no function name");
        }
        let mut step = Self::new(name, count.parse().with_context(|| format!("`{count}` is no count"))?);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || value.parse::<u64>().with_context(|| format!("`{part}` has no number"));
            match key {
                "spin" => step.spin = cli::duration(value).with_context(|| format!("`{part}`"))?,
                "sleep" => step.sleep = cli::duration(value).with_context(|| format!("`{part}`"))?,
                "bytes" => step.bytes = cli::size_bytes(value).with_context(|| format!("`{part}`"))?,
                "ret" => step.ret = value.parse().with_context(|| format!("`{part}` has no number"))?,
                "stream" => step.stream = number()?,
                "flat" => step.flat = true,
                "dir" => {
                    let known = ["h2h", "h2d", "d2h", "d2d", "default"].iter().zip(0u32..).find(|(n, _)| **n == value);
                    step.kind = known
                        .map(|(_, kind)| kind)
                        .with_context(|| format!("`{part}`: h2h, h2d, d2h, d2d or default"))?;
                }
                _ => bail!("`{part}` is none of spin=, sleep=, ret=, flat, bytes=, dir=, stream="),
            }
        }
        Ok(step)
    }
}

/// Everything that `stub-app` is to do. [`Plan::default`] is one thread, once through no steps.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is documented where stub-app declares it, tests/stub/app/app.h")]
pub struct Plan {
    pub library: Option<PathBuf>,
    pub name: Option<String>,
    pub wait: Duration,
    pub gate: bool,
    pub hold: bool,
    pub seccomp: Seccomp,
    pub cpus: Vec<u32>,
    pub threads: u64,
    pub generations: u64,
    pub forks: u64,
    pub loops: u64,
    pub lasting: Duration,
    pub steps: Vec<Step>,
    pub loader: Option<Loader>,
    /// The executable that holds the runtime itself.
    pub static_runtime: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            library: None,
            name: None,
            wait: Duration::ZERO,
            gate: false,
            hold: false,
            seccomp: Seccomp::None,
            cpus: Vec::new(),
            threads: 1,
            generations: 1,
            forks: 0,
            loops: 1,
            lasting: Duration::ZERO,
            steps: Vec::new(),
            loader: None,
            static_runtime: false,
        }
    }
}

/// When a strict seccomp filter is installed, which kills the process at a system call that its steps do not need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// Never.
    #[default]
    None,
    /// Before the gate: a tracer that attaches then can see it.
    Early,
    /// After the gate, when a tracer has attached already.
    Late,
}

/// Forked workers that make one item for each time through the steps: `tests/stub/app/loader.c`.
#[derive(Clone, Debug)]
pub struct Loader {
    /// How many.
    pub workers: u64,
    /// Where they may run; empty = anywhere.
    pub cpus: Vec<u32>,
    /// CPU time that one item costs its worker.
    pub item_cpu: Duration,
    /// Time asleep for each item.
    pub item_sleep: Duration,
    /// Items under way for each worker.
    pub prefetch: u64,
    /// A worker hands over through a thread that is created with its first item.
    pub feeder: bool,
    /// A thread of the main process takes the items in.
    pub pin: bool,
}

fn mask(cpus: &[u32]) -> u64 {
    cpus.iter().fold(0, |mask, cpu| mask | 1u64.checked_shl(*cpu).unwrap_or(0))
}

impl Plan {
    /// The arguments for `stub-app`, but for the file of counts.
    pub fn arguments(&self) -> Vec<OsString> {
        let flag = |key: &str, on: bool| format!("{key}={}", u8::from(on));
        let mut all = vec![
            format!("wait={}", self.wait.as_nanos()),
            flag("gate", self.gate),
            flag("hold", self.hold),
            format!("seccomp={}", self.seccomp as u8),
            format!("cpus={}", mask(&self.cpus)),
            format!("threads={}", self.threads),
            format!("generations={}", self.generations),
            format!("forks={}", self.forks),
            format!("loops={}", self.loops),
            format!("for={}", self.lasting.as_nanos()),
        ];
        all.extend(self.steps.iter().map(Step::argument));
        if let Some(loader) = &self.loader {
            all.extend([
                format!("workers={}", loader.workers),
                format!("worker_cpus={}", mask(&loader.cpus)),
                format!("item_cpu={}", loader.item_cpu.as_nanos()),
                format!("item_sleep={}", loader.item_sleep.as_nanos()),
                format!("prefetch={}", loader.prefetch),
                flag("feeder", loader.feeder),
                flag("pin", loader.pin),
            ]);
        }
        let mut all: Vec<OsString> = all.into_iter().map(Into::into).collect();
        if let Some(name) = &self.name {
            all.push(format!("name={name}").into());
        }
        if let Some(library) = &self.library {
            let mut argument = OsString::from("library=");
            argument.push(library);
            all.push(argument);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_as_written() {
        let step: Step =
            "cudaMemcpyAsync*3,bytes=4k,dir=d2h,sleep=2ms,spin=1500ns,ret=2,flat,stream=7".parse().unwrap();
        assert_eq!(step.argument(), "step=cudaMemcpyAsync:3:1500:2000000:2:1:4096:2:7");
        assert_eq!("cudaFree".parse::<Step>().unwrap(), Step::new("cudaFree", 1));
    }

    #[test]
    fn a_bad_step_says_which_part() {
        for (text, part) in [
            ("*3", "``"),
            ("cudaFree*x", "`x`"),
            ("cudaFree,spin=fast", "`spin=fast`"),
            ("cudaFree,dir=up", "h2d"),
            ("a,b", "`b`"),
        ] {
            let said = format!("{:#}", text.parse::<Step>().unwrap_err());
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn cpus_become_a_mask() {
        assert_eq!(mask(&[0, 3]), 0b1001);
        assert_eq!(mask(&[]), 0);
    }
}
