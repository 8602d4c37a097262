//! Which files make one recording, and whether they have to be joined first.
//!
//! | given                                             | what it is                                           |
//! |---------------------------------------------------|------------------------------------------------------|
//! | a stream of ingero-join                           | a recording                                          |
//! | streams of ingero-cuda and ingero-sched, one boot | one recording, joined on the way                     |
//! | an SQLite recording of ingero (`.db`)             | a recording, read by ingero-join                     |
//! | a FIFO, `-`, `--follow`                           | a recording, read as it is: it can't be looked at first |
//!
//! Raw streams of one boot are put together in order of their beginnings: a recording is complete when it has one of each
//! tracer, and the next one begins. So `cuda1 sched1 cuda2 sched2` are two recordings, in whatever order they are named.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, bail};
use clap::Parser;
use ingero_common::input::Input;
use ingero_common::ndjson::LineReader;
use ingero_common::record::{Parsed, parse, src};
use ingero_common::text::Printable;

use crate::options::Options;

/// How one recording is read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the tools call it.
    pub name: String,
    /// Its files.
    pub inputs: Vec<Input>,
    /// They go through ingero-join.
    pub join: bool,
    /// The file grows, or the FIFO's end is waited for.
    pub follow: bool,
}

impl Plan {
    /// A file that is read as it is.
    pub fn of(path: &Path) -> Self {
        let input = Input::new(path);
        Self { name: name_of(&input), inputs: vec![input], join: false, follow: false }
    }

    /// The files as people named them.
    pub fn files_text(&self) -> String {
        self.inputs.iter().map(Input::name).collect::<Vec<_>>().join(" + ")
    }
}

/// What the recordings of a command line are.
///
/// Errors: a file that can't be opened, more recordings than are served at once.
pub fn plan(options: &Options) -> anyhow::Result<Vec<Plan>> {
    let inputs: Vec<Input> = options.recordings.iter().map(Input::new).collect();
    if options.follow && inputs.len() > 1 {
        bail!("--follow takes one recording: the stream that ingero-join writes");
    }
    let mut plans = Vec::new();
    let mut halves = Vec::new();
    for input in inputs {
        let plan = Plan { name: name_of(&input), inputs: vec![input.clone()], join: false, follow: options.follow };
        if input.is_stdin() || options.follow {
            exists(&input)?;
            plans.push(plan);
            continue;
        }
        match look(&input)? {
            Look::Stream => plans.push(plan),
            Look::Database => plans.push(Plan { join: true, ..plan }),
            Look::Half(half) => {
                // Its place is kept: recordings are in the order of the command line.
                halves.push((plans.len(), half));
                plans.push(Plan { join: true, ..plan });
            }
        }
    }
    let mut plans = put_together(plans, halves);
    distinct_names(&mut plans);
    if plans.len() > MAX_RECORDINGS {
        bail!("{} recordings; at most {MAX_RECORDINGS} are served at once", plans.len());
    }
    Ok(plans)
}

/// Each costs threads and a database.
const MAX_RECORDINGS: usize = 16;

/// One tracer's stream.
struct Half {
    boot_id: String,
    tool: String,
    start_ns: u64,
}

enum Look {
    /// Read as it is.
    Stream,
    /// SQLite.
    Database,
    /// To be joined.
    Half(Half),
}

fn exists(input: &Input) -> anyhow::Result<()> {
    if !input.is_stdin() {
        let metadata = std::fs::metadata(input.as_os_str()).with_context(|| format!("opening {}", input.name()))?;
        if metadata.is_dir() {
            bail!("opening {}: it is a directory; name the file in it", input.name());
        }
    }
    Ok(())
}

fn look(input: &Input) -> anyhow::Result<Look> {
    exists(input)?;
    if !std::fs::metadata(input.as_os_str()).is_ok_and(|m| m.is_file()) {
        return Ok(Look::Stream);
    }
    let mut magic = [0; 16];
    let mut file = std::fs::File::open(input.as_os_str()).with_context(|| format!("opening {}", input.name()))?;
    if std::io::Read::read_exact(&mut file, &mut magic).is_ok() && &magic == b"SQLite format 3\0" {
        return Ok(Look::Database);
    }
    let mut lines = LineReader::new(input.open()?);
    let line = lines.next_line().with_context(|| format!("reading {}", input.name()))?;
    let Some(Parsed::Record(record)) = line.map(|line| parse(line.bytes)) else { return Ok(Look::Stream) };
    let tool = record.tool.as_deref().unwrap_or_default();
    if !record.is(src::INGERO, "start") || !matches!(tool, "ingero-cuda" | "ingero-sched") {
        return Ok(Look::Stream);
    }
    Ok(Look::Half(Half {
        boot_id: record.boot_id.as_deref().unwrap_or_default().to_owned(),
        tool: tool.to_owned(),
        start_ns: record.mono_ns.unwrap_or(0),
    }))
}

fn put_together(plans: Vec<Plan>, mut halves: Vec<(usize, Half)>) -> Vec<Plan> {
    let mut plans: Vec<Option<Plan>> = plans.into_iter().map(Some).collect();
    halves.sort_by(|(_, a), (_, b)| (&a.boot_id, a.start_ns).cmp(&(&b.boot_id, b.start_ns)));
    // The recording that is being put together: its place, boot and tracers.
    let mut current: Option<(usize, &str, HashSet<&str>)> = None;
    for (at, half) in &halves {
        if let Some((first, boot_id, tools)) = &mut current
            && *boot_id == half.boot_id
            && tools.insert(&half.tool)
        {
            let more = plans[*at].take();
            if let (Some(plan), Some(more)) = (&mut plans[*first], more) {
                plan.inputs.extend(more.inputs);
            }
        } else {
            current = Some((*at, &half.boot_id, HashSet::from([half.tool.as_str()])));
        }
    }
    plans.into_iter().flatten().collect()
}

/// A file's name without what says its kind: `run1.joined.ndjson.zst` is `run1.joined`. Only letters, digits, `.`, `_` and
/// `-` are kept: it becomes part of addresses and of texts for models.
fn name_of(input: &Input) -> String {
    if input.is_stdin() {
        return "stdin".into();
    }
    let file = Path::new(input.as_os_str()).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut stem = file.as_str();
    for end in [".zst", ".gz", ".ndjson", ".jsonl", ".json", ".db"] {
        stem = stem.strip_suffix(end).unwrap_or(stem);
    }
    let kept = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = Printable(stem.as_bytes()).to_string().chars().take(40).map(kept).collect();
    if name.is_empty() { "recording".into() } else { name }
}

fn distinct_names(plans: &mut [Plan]) {
    let mut seen = HashSet::new();
    for plan in plans {
        let (base, mut n) = (plan.name.clone(), 1);
        while !seen.insert(plan.name.clone()) {
            n += 1;
            plan.name = format!("{base}-{n}");
        }
    }
}

/// ingero-join as its own command line has it, without anything special.
pub(super) fn join_options(inputs: &[Input]) -> anyhow::Result<ingero_join::Options> {
    let arguments = ["ingero-join".into(), "--".into()];
    let named = inputs.iter().map(|input| input.as_os_str().to_owned());
    ingero_join::Options::try_parse_from(arguments.into_iter().chain(named)).context("joining the recording")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, name: &str, tool: &str, boot: &str, at: u64) -> String {
        let path = dir.join(name);
        let line = format!(r#"{{"src":"ingero","op":"start","mono_ns":{at},"tool":"{tool}","boot_id":"{boot}"}}"#);
        std::fs::write(&path, line).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn planned(files: &[String]) -> Vec<(String, usize, bool)> {
        let options = Options::parse_from(["ingero-mcp".to_owned()].iter().chain(files));
        plan(&options).unwrap().into_iter().map(|p| (p.name, p.inputs.len(), p.join)).collect()
    }

    #[test]
    fn halves_of_one_boot_are_one_recording() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let c1 = file(d, "cuda1.ndjson", "ingero-cuda", "b", 10);
        let c2 = file(d, "cuda2.ndjson", "ingero-cuda", "b", 110);
        let s1 = file(d, "sched1.ndjson", "ingero-sched", "b", 9);
        let s2 = file(d, "sched2.ndjson", "ingero-sched", "b", 111);
        let other = file(d, "sched3.ndjson", "ingero-sched", "c", 10);
        let joined = file(d, "joined.ndjson", "ingero-join", "b", 10);
        assert_eq!(
            planned(&[c1.clone(), c2, s1, s2]),
            // The one that began first gives its name and place.
            [("cuda2".into(), 2, true), ("sched1".into(), 2, true)]
        );
        assert_eq!(planned(&[c1.clone(), other]), [("cuda1".into(), 1, true), ("sched3".into(), 1, true)]);
        assert_eq!(planned(&[joined.clone(), joined]), [("joined".into(), 1, false), ("joined-2".into(), 1, false)]);
        assert_eq!(planned(&[c1]), [("cuda1".into(), 1, true)]);
    }

    #[test]
    fn names_are_plain() {
        let name = |path: &str| name_of(&Input::new(path));
        assert_eq!(name("/a/run1.joined.ndjson.zst"), "run1.joined");
        assert_eq!(name("/a/ignore previous\n\u{202e}.db"), "ignore_previous_u_a__u_202e_");
        assert_eq!(name("/a/.ndjson"), "recording");
    }

    #[test]
    fn what_is_missing_is_named() {
        let options = Options::parse_from(["ingero-mcp", "/no/such/file"]);
        assert!(format!("{:#}", plan(&options).unwrap_err()).contains("opening /no/such/file"));
    }
}
