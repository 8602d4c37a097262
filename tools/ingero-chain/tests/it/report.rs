//! The report as people and programs get it: goldens of the text, its lines, what is escaped, the formats and the exit
//! statuses. `INGERO_BLESS=1 cargo test -p ingero-chain --test it report` writes the goldens anew.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{MS, chain, chain_in, text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A case's streams in the order of their ends, as ingero-join would write them.
fn case(path: &Path) -> Option<String> {
    let mut lines: Vec<(u64, String)> = Vec::new();
    for name in ["cuda.ndjson", "sched.ndjson"] {
        for line in std::fs::read_to_string(path.join(name)).unwrap_or_default().lines() {
            let record: Value = serde_json::from_str(line).unwrap_or_default();
            let ns = |key: &str| record[key].as_u64().unwrap_or(0);
            lines.push((ns("mono_ns").saturating_add(ns("dur_ns")), line.to_owned()));
        }
    }
    lines.sort_by_key(|(end_ns, _)| *end_ns);
    (!lines.is_empty()).then(|| lines.iter().map(|(_, line)| format!("{line}\n")).collect())
}

/// All recordings that the repository has: cases and samples.
fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(repository().join("tests/cases")).unwrap() {
        let path = entry.unwrap().path();
        if let Some(lines) = path.is_dir().then(|| case(&path)).flatten() {
            all.push((path.file_name().unwrap().to_str().unwrap().to_owned(), lines.into_bytes()));
        }
    }
    for name in ["dataloader-starved", "dataloader-fixed"] {
        let path = repository().join("tests/samples").join(format!("{name}.ndjson.zst"));
        all.push((name.to_owned(), std::fs::read(path).unwrap()));
    }
    all.sort();
    assert!(all.len() > 30, "{}", all.len());
    all
}

/// A stream of one process, both tracers.
struct Stream {
    name: String,
    at_ns: u64,
    lines: String,
}

impl Stream {
    fn of(name: &str) -> Self {
        let mut stream = Self { name: name.to_owned(), at_ns: 1000 * MS, lines: String::new() };
        for (of, tool) in [("cuda", "ingero-cuda"), ("sched", "ingero-sched")] {
            stream.put(json!({"src":"ingero","op":"start","mono_ns":1000 * MS,"tool":tool,"host":name,"schema":1,"wall_offset_ns":"0"}));
            stream.put(
                json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":100,"tid":100,"comm":name,"stream":of}),
            );
        }
        stream
    }

    fn put(&mut self, record: Value) {
        self.lines.push_str(&format!("{record}\n"));
    }

    /// A call that begins `after_ns` after the end of the last one.
    fn call(&mut self, op: &str, after_ns: u64, dur_ns: u64) {
        let mono_ns = self.at_ns + after_ns;
        self.put(json!({"src":"cudart","op":op,"mono_ns":mono_ns,"dur_ns":dur_ns,"pid":100,"tid":100,"comm":self.name,"ret":0,"depth":0}));
        self.at_ns = mono_ns + dur_ns;
    }

    /// A pause on the CPU, launches, a wait for the GPU.
    fn step(&mut self, pause_ns: u64) {
        for i in 0..20 {
            self.call("cudaLaunchKernel", if i == 0 { pause_ns } else { 10_000 }, 10_000);
        }
        self.call("cudaDeviceSynchronize", 10_000, 9_600_000);
    }

    fn end(mut self) -> String {
        for of in ["cuda", "sched"] {
            let mono_ns = self.at_ns;
            self.put(json!({"src":"ingero","op":"end","mono_ns":mono_ns,"stream":of}));
        }
        self.lines
    }
}

/// Steps with a pause before each.
fn looping(name: &str, steps: u64, pause_ns: u64) -> String {
    let mut stream = Stream::of(name);
    (0..steps).for_each(|_| stream.step(pause_ns));
    stream.end()
}

/// One call of `op` is far slower than the others.
fn slow(op: &str) -> String {
    let mut stream = Stream::of("train");
    for i in 0..40 {
        stream.call("cudaLaunchKernel", 1000, 10_000);
        stream.call(op, 1000, if i == 30 { 200 * MS } else { 10_000 });
        stream.step(1000);
    }
    stream.step(1000);
    stream.end()
}

fn starved() -> String {
    looping("train", 20, 50 * MS)
}

fn check(name: &str, said: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(format!("{name}.txt"));
    if std::env::var_os("INGERO_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        return std::fs::write(&path, said).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(said, golden, "{} differs; INGERO_BLESS=1 takes it over", path.display());
}

#[test]
fn the_text_is_that_of_the_goldens() {
    let goldens = [
        "dataloader-fixed",
        "dataloader-starved",
        "33-gap-not-watched",
        "34-lost-inside-a-gap",
        "39-whole-stall",
        "42-contended",
    ];
    for (name, input) in recordings().into_iter().filter(|(name, _)| goldens.contains(&name.as_str())) {
        let out = chain_in("C.UTF-8", &["--format", "text"], &input);
        check(&name, text(&out.stdout));
    }
    let out = chain_in("C", &["--format", "text", "--verbose", "--per-process"], starved().as_bytes());
    check("verbose-ascii", text(&out.stdout));
    let out = chain(&["--format", "text", "--explain", "gap-100-cudaLaunchKernel"], &starved());
    check("explain", text(&out.stdout));
}

/// The words of a text without what separates and draws them.
fn words(text: &str) -> Vec<String> {
    let drawn = |c: char| !c.is_ascii() || "|#~".contains(c);
    text.split_whitespace().filter(|word| !word.chars().all(drawn)).map(str::to_owned).collect()
}

#[test]
fn no_line_is_wider_than_80_columns_and_none_breaks_a_word() {
    for (name, input) in recordings() {
        for args in [&["--format", "text"][..], &["--format", "text", "-v"]] {
            let out = chain_in("C.UTF-8", args, &input);
            let said = text(&out.stdout);
            for line in said.lines() {
                assert!(line.chars().count() <= 80, "{name}: {line}");
            }
            // Each word of the records' own sentences is in the text as a whole.
            let records = chain_in("C.UTF-8", &["--format", "ndjson"], &input);
            let words = words(said);
            for record in text(&records.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
                let advice = record["advice"].as_array().cloned().unwrap_or_default();
                let mut sentences: Vec<String> =
                    advice.iter().take(3).map(|advice| advice["text"].as_str().unwrap().to_owned()).collect();
                if args.contains(&"-v") {
                    sentences
                        .extend(["summary", "id"].iter().filter_map(|key| record[key].as_str()).map(str::to_owned));
                } else if record["op"] == "gap" || record["op"] == "total" {
                    // Another finding of the process may stand for it.
                    sentences.clear();
                }
                for word in sentences.iter().flat_map(|sentence| sentence.split_whitespace()) {
                    assert!(words.iter().any(|w| w == word), "{name}: {word:?} is broken in\n{said}");
                }
            }
        }
    }
}

/// What could move a cursor, reorder text, or end a field.
const HOSTILE: &str = "a\u{1b}[31m\r\n\u{202e}\u{9b}2J<script>&\"';=x";

#[test]
fn hostile_names_are_escaped_in_every_format() {
    let streams = [looping(HOSTILE, 20, 50 * MS), slow(HOSTILE), looping(&HOSTILE.repeat(20), 20, 50 * MS)];
    let bad = |c: char| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c));
    for input in &streams {
        let list = chain(&["--list", "--format", "ndjson"], input);
        let finding: Value = serde_json::from_str(text(&list.stdout).lines().next().unwrap()).unwrap();
        let id = finding["id"].as_str().unwrap();
        for format in ["text", "ndjson", "csv", "html", "folded", "logfmt"] {
            for more in [&["--per-process", "-v"][..], &["--list"], &["--explain", id]] {
                let out = chain(&[&["--format", format], more].concat(), input);
                let said = text(&out.stdout);
                assert_eq!(out.status.code(), Some(0), "{format} {more:?}: {}", text(&out.stderr));
                let named = more.len() > 1 || id.contains('\u{1b}');
                assert!(
                    !named || said.contains("{1b}") || said.contains("u001b"),
                    "{format} {more:?} has the name:\n{said}"
                );
                assert!(!said.chars().any(bad) && !text(&out.stderr).chars().any(bad), "{format} {more:?}: {said:?}");
                if format == "html" && named {
                    assert!(!said.contains("<script") && said.contains("&lt;script&gt;"), "{said}");
                }
            }
        }
        let out = chain_in("C", &["--format", "text"], input.as_bytes());
        assert!(out.stdout.is_ascii(), "other encodings have commands among these bytes");
    }
}

#[test]
fn folded_stacks_have_three_or_four_frames_and_add_up() {
    let input = looping("a;b", 20, 50 * MS);
    let out = chain(&["--format", "folded"], &input);
    let mut sum = 0;
    for line in text(&out.stdout).lines() {
        let (stack, ns) = line.rsplit_once(' ').unwrap();
        assert!((3..=4).contains(&stack.split(';').count()) && stack.starts_with("a:b (100);"), "{line}");
        sum += ns.parse::<u64>().unwrap();
    }
    let records = chain(&["--list", "--format", "ndjson"], &input);
    let gap: Value = serde_json::from_str(text(&records.stdout).lines().next().unwrap()).unwrap();
    assert_eq!((&gap["op"], gap["lost_ns"].as_u64()), (&json!("gap"), Some(sum)));
}

#[test]
fn fail_on_works_with_every_format_and_selection() {
    let fed = looping("train", 50, 1000);
    for format in ["text", "ndjson", "csv", "html", "folded", "logfmt"] {
        for more in [&[][..], &["--list"], &["--explain", "gap-100-cudaLaunchKernel"], &["--pid", "100"]] {
            let args = [&["--fail-on", "medium", "--format", format], more].concat();
            assert_eq!(chain(&args, &starved()).status.code(), Some(1), "{args:?}");
            if more.first() != Some(&"--explain") {
                assert_eq!(chain(&args, &fed).status.code(), Some(0), "{args:?}");
            }
        }
    }
    assert_eq!(chain(&["--explain", "gap-7-x"], &starved()).status.code(), Some(2));
}

/// The exit statuses without and with `--fail-on`, what is said on stderr, and the summary.
fn outcome(args: &[&str], input: &str) -> ([Option<i32>; 2], String, Value) {
    let plain = chain(args, input);
    let failing = chain(&[args, &["--fail-on", "high"]].concat(), input);
    let summary =
        text(&plain.stdout).lines().last().map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
    ([plain.status.code(), failing.status.code()], text(&plain.stderr).to_owned(), summary)
}

#[test]
fn nothing_seen_is_not_nothing_found() {
    let watched: String =
        starved().lines().filter(|line| !line.contains("cudart")).map(|line| format!("{line}\n")).collect();
    let unwatched: String =
        watched.lines().filter(|line| !line.contains("watch")).map(|line| format!("{line}\n")).collect();
    for (input, why) in [
        (watched.as_str(), "made no CUDA call"),
        (unwatched.as_str(), "watched no process"),
        ("{\"a\":1}\n", "none of its lines is a record"),
    ] {
        let (codes, said, summary) = outcome(&[], input);
        assert_eq!(codes, [Some(0), Some(2)], "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(why) && summary["nothing_seen"].as_str().unwrap().contains(why), "{said} {summary}");
        let out = chain(&["--format", "text"], input);
        assert!(!text(&out.stdout).contains("nothing found"), "{}", text(&out.stdout));
    }
    // A file that is no recording at all is an error in any case.
    let (codes, said, summary) = outcome(&[], "");
    assert_eq!((codes, said.lines().count()), ([Some(2); 2], 1), "{said}");
    assert!(summary["nothing_seen"].is_string(), "{summary}");
}

#[test]
fn processes_that_make_no_calls_are_not_judged() {
    let worker = format!(
        "{}{}\n",
        starved(),
        json!({"src":"ingero","op":"watch","mono_ns":1000 * MS,"pid":200,"tid":200,"comm":"worker","stream":"sched","why":"child"})
    );
    let (codes, said, summary) = outcome(&["--pid", "200"], &worker);
    assert_eq!(codes, [Some(0), Some(2)], "{said} {summary}");
    assert_eq!(outcome(&["--pid", "100,200"], &worker).0, [Some(0), Some(1)]);
}

#[test]
fn an_unknown_schema_is_said_and_not_trusted() {
    for (schema, known) in [(1, true), (2, true), (3, false)] {
        let input = looping("train", 50, 1000).replace("\"schema\":1", &format!("\"schema\":{schema}"));
        let (codes, said, summary) = outcome(&[], &input);
        assert_eq!(codes, [Some(0), if known { Some(0) } else { Some(2) }], "{said}");
        assert_eq!(
            (said.lines().count(), summary["unknown_schema"].as_u64()),
            if known { (0, None) } else { (1, Some(3)) }
        );
    }
}

#[test]
fn colours_are_for_terminals_and_those_who_ask() {
    let coloured = |name: &str, value: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-chain"));
        command.args(["--format", "text"]).env_remove("NO_COLOR").env(name, value);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(starved().as_bytes()).unwrap();
        child.wait_with_output().unwrap().stdout.contains(&0x1b)
    };
    assert!(coloured("CLICOLOR_FORCE", "1"));
    assert!(!coloured("NO_COLOR", "1") && !coloured("TERM", "xterm-256color"));
}

/// Launches that the GPU is done with before the next one comes.
#[test]
fn a_loop_that_is_bound_by_its_launches_explains_itself() {
    let mut stream = Stream::of("train");
    let mut sampled_ns = stream.at_ns;
    // Five seconds: the counter is read once a second and tells of the one before.
    while stream.at_ns < 6000 * MS {
        (0..50).for_each(|_| stream.call("cudaLaunchKernel", 70_000, 50_000));
        stream.call("cudaDeviceSynchronize", 2_000, 12_000);
        if stream.at_ns >= sampled_ns + 1000 * MS {
            let dur_ns = stream.at_ns - sampled_ns;
            let gpu = json!([{"util_pct":32}]);
            stream.put(json!({"src":"sys","op":"sample","mono_ns":sampled_ns,"dur_ns":dur_ns,"cpu_pct":5.0,"cpus":8,"gpu":gpu}));
            sampled_ns += dur_ns;
        }
    }
    let input = stream.end();
    for args in [&["--format", "text"][..], &["--format", "text", "-v"]] {
        let out = chain(args, &input);
        let said = text(&out.stdout);
        assert!(said.starts_with("[HIGH]   train (100): bound by its launches: "), "{said}");
        assert!(said.contains("CUDA graphs") && !said.contains("explained") && !said.contains("GPU fed"), "{said}");
    }
}
