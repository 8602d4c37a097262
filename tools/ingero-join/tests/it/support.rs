//! Streams made by hand and joined through the library.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Parser;
use ingero_common::exit::Exit;
use ingero_common::input::Input;
use ingero_common::text::Log;
use ingero_join::{Options, Source, join};
use serde_json::Value;

/// Monotonic nanoseconds at which the made streams begin.
pub(crate) const BEGIN_NS: u64 = 1_000_000_000;
const OFFSET_NS: i64 = 1_796_040_000_000_000_000;

/// A stream being written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream(pub(crate) Vec<String>);

impl Stream {
    /// With a `start` record by `tool`.
    pub(crate) fn of(tool: &str) -> Self {
        Self::on("box", "boot-1", tool, BEGIN_NS)
    }

    /// With a `start` record by `tool` on a host and a boot.
    pub(crate) fn on(host: &str, boot_id: &str, tool: &str, begin_ns: u64) -> Self {
        Self(vec![format!(
            r#"{{"src":"ingero","op":"start","mono_ns":{begin_ns},"schema":1,"tool":"{tool}","version":"0","host":"{host}","boot_id":"{boot_id}","clock":"monotonic","wall_offset_ns":"{OFFSET_NS}","kernel":"6.8.0","filter":{{}},"probes":{{}}}}"#
        )])
    }

    /// Adds a record of which `src`, `op` and `mono_ns` are given and the rest is JSON text.
    pub(crate) fn put(mut self, src: &str, op: &str, mono_ns: u64, rest: &str) -> Self {
        let comma = if rest.is_empty() { "" } else { "," };
        self.0.push(format!(r#"{{"src":"{src}","op":"{op}","mono_ns":{mono_ns}{comma}{rest}}}"#));
        self
    }

    /// Adds a watch by the scheduler tracer.
    pub(crate) fn watch(self, mono_ns: u64, pid: u32) -> Self {
        self.put("ingero", "watch", mono_ns, &format!(r#""pid":{pid},"tid":{pid},"why":"cuda","stream":"sched""#))
    }

    /// Adds a call.
    pub(crate) fn call(self, mono_ns: u64, dur_ns: u64, pid: u32, tid: u32) -> Self {
        self.put("cudart", "cudaMalloc", mono_ns, &format!(r#""dur_ns":{dur_ns},"pid":{pid},"tid":{tid},"depth":0"#))
    }

    /// Adds a line as it is.
    pub(crate) fn line(mut self, line: &str) -> Self {
        self.0.push(line.to_owned());
        self
    }

    /// Adds an `end` record.
    pub(crate) fn end(self, mono_ns: u64) -> Self {
        self.put("ingero", "end", mono_ns, r#""seen":0,"written":0,"lost":{}"#)
    }

    /// As a file's content.
    pub(crate) fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }
}

/// Files in a directory of their own.
pub(crate) struct Files {
    dir: tempfile::TempDir,
    pub(crate) paths: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn new<'a>(streams: impl IntoIterator<Item = &'a Stream>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let paths = streams
            .into_iter()
            .enumerate()
            .map(|(at, stream)| {
                let path = dir.path().join(format!("{at}.ndjson"));
                std::fs::write(&path, stream.text()).unwrap();
                path
            })
            .collect();
        Self { dir, paths }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// What a join wrote, and how it ended.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) lines: Vec<String>,
    pub(crate) exit: Exit,
}

impl Joined {
    pub(crate) fn records(&self) -> Vec<Value> {
        self.lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Those with this `op`.
    pub(crate) fn with_op(&self, op: &str) -> Vec<Value> {
        self.records().into_iter().filter(|r| r["op"] == op).collect()
    }
}

/// Joins streams in files with the flags given.
pub(crate) fn joined<'a>(streams: impl IntoIterator<Item = &'a Stream>, flags: &[&str]) -> anyhow::Result<Joined> {
    let files = Files::new(streams);
    let options = Options::parse_from(["ingero-join", "--quiet"].iter().chain(flags));
    let sources = files.paths.iter().map(|p| Source::named(Input::new(p)).unwrap()).collect();
    let mut out = Vec::new();
    let exit = join(&options, sources, &mut out, &Log::new("ingero-join", true, false))?;
    let dir = files.dir().display().to_string();
    // The directory's name is another one each time.
    let lines = String::from_utf8(out)?.lines().map(|line| line.replace(&dir, "DIR")).collect();
    Ok(Joined { lines, exit })
}
