//! The program as a user runs it: what it reads, what holds it up and what does not, how it ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{BEGIN_NS, Files, Stream};

const MS: u64 = 1_000_000;
/// Far beyond what anything here takes; a hang ends here.
const PATIENCE: Duration = Duration::from_secs(60);

fn cuda() -> Stream {
    Stream::of("ingero-cuda").call(BEGIN_NS + MS, MS, 100, 100).end(BEGIN_NS + 9 * MS)
}

fn sched() -> Stream {
    let rest = format!(r#""dur_ns":{},"pid":100,"tid":100,"state":"S","runq_ns":0"#, MS / 2);
    Stream::of("ingero-sched")
        .watch(BEGIN_NS, 100)
        .put("sched", "sched_switch", BEGIN_NS + MS, &rest)
        .end(BEGIN_NS + 9 * MS)
}

fn command(args: &[&Path]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingero-join"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for its end, but not for ever.
fn finish(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("still running: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The names of the inputs that a joined stream says it was made of, without their directories.
fn inputs(output: &Output) -> Vec<String> {
    let text = stdout(output);
    let first: serde_json::Value =
        serde_json::from_str(text.lines().next().unwrap_or_else(|| panic!("{output:?}"))).unwrap();
    let name =
        |v: &serde_json::Value| Path::new(v.as_str().unwrap()).file_name().unwrap().to_string_lossy().into_owned();
    first["inputs"].as_array().unwrap().iter().map(name).collect()
}

/// A pipe that stays open for as long as the second part lives.
fn open_pipe() -> (Stdio, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    (reader.into(), writer)
}

#[test]
fn a_pipe_beside_one_named_input_is_merged_and_comes_first() {
    let files = Files::new([&sched()]);
    let (stdin, mut pipe) = open_pipe();
    let child = command(&[&files.paths[0]]).stdin(stdin).spawn().unwrap();
    pipe.write_all(cuda().text().as_bytes()).unwrap();
    drop(pipe);
    let output = finish(child);
    assert_eq!(inputs(&output), ["stdin", "0.ndjson"]);
    assert!(stdout(&output).contains(r#""sleep_ns":500000"#), "{output:?}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn two_named_inputs_are_all_there_is_whatever_stdin_is() {
    let files = Files::new([&cuda(), &sched()]);
    let args = [files.paths[0].as_path(), files.paths[1].as_path()];
    // Nobody ever closes this one.
    let (stdin, mut pipe) = open_pipe();
    pipe.write_all(b"not for us\n").unwrap();
    let output = finish(command(&args).stdin(stdin).spawn().unwrap());
    assert_eq!((inputs(&output).len(), output.status.code()), (2, Some(0)));
    drop(pipe);
    let output = finish(command(&args).stdin(File::open(&files.paths[0]).unwrap()).spawn().unwrap());
    assert_eq!((inputs(&output).len(), output.status.code()), (2, Some(0)));
}

#[test]
fn a_silent_pipe_beside_one_named_input_does_not_hang() {
    let files = Files::new([&cuda()]);
    let (stdin, pipe) = open_pipe();
    let output = finish(command(&[&files.paths[0]]).stdin(stdin).spawn().unwrap());
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("cudaMalloc"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("name it with -"), "{output:?}");
    drop(pipe);
}

#[test]
fn a_file_on_stdin_is_read_from_its_beginning_or_not_at_all() {
    let files = Files::new([&cuda(), &sched()]);
    let mut file = File::open(&files.paths[0]).unwrap();
    let output = finish(command(&[&files.paths[1]]).stdin(file.try_clone().unwrap()).spawn().unwrap());
    assert_eq!(inputs(&output), ["stdin", "1.ndjson"]);
    file.seek(SeekFrom::Start(10)).unwrap();
    let output = finish(command(&[&files.paths[1]]).stdin(file).spawn().unwrap());
    assert_eq!(inputs(&output), ["1.ndjson"]);
}

#[test]
fn nothing_named_is_stdin_and_a_dash_is_too() {
    let files = Files::new([&cuda(), &sched()]);
    let stdin = || File::open(&files.paths[0]).unwrap();
    assert_eq!(inputs(&finish(command(&[]).stdin(stdin()).spawn().unwrap())), ["stdin"]);
    assert_eq!(inputs(&finish(command(&[]).spawn().unwrap())), ["stdin"]);
    let output = finish(command(&[&files.paths[1], Path::new("-")]).stdin(stdin()).spawn().unwrap());
    assert_eq!(inputs(&output), ["stdin", "1.ndjson"]);
    assert_eq!(inputs(&finish(command(&[&files.paths[1]]).spawn().unwrap())), ["1.ndjson"]);
}

#[test]
fn a_fifo_that_nobody_opens_holds_nothing_up() {
    let files = Files::new([&cuda()]);
    let fifo = files.dir().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut child = command(&[&files.paths[0], &fifo]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // All of the file comes out although the FIFO is still closed...
    let call = lines.find(|l| l.as_ref().unwrap().contains("cudaMalloc")).unwrap().unwrap();
    assert!(call.contains(r#""watched":false"#), "{call}");
    // ...and what comes through it later is joined: nothing is lost, only late.
    std::fs::write(&fifo, sched().text()).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(rest.iter().any(|l| l.contains("sched_switch") && l.contains(r#""late":true"#)), "{rest:#?}");
    assert!(rest.iter().any(|l| l.contains(r#""why":"late""#)), "{rest:#?}");
    assert!(rest.iter().any(|l| l.contains(r#""tool":"ingero-sched""#)), "{rest:#?}");
    assert_eq!(finish(child).status.code(), Some(0));
}

#[test]
fn compressed_inputs_are_read_as_they_are() {
    let files = Files::new([&cuda(), &sched()]);
    let plain = finish(command(&[&files.paths[0], &files.paths[1]]).spawn().unwrap());
    let (gz, zst) = (files.dir().join("a"), files.dir().join("b"));
    let mut encoder = flate2::write::GzEncoder::new(File::create(&gz).unwrap(), flate2::Compression::fast());
    encoder.write_all(cuda().text().as_bytes()).unwrap();
    encoder.finish().unwrap();
    std::fs::write(&zst, zstd::encode_all(sched().text().as_bytes(), 1).unwrap()).unwrap();
    let packed = finish(command(&[&gz, &zst]).spawn().unwrap());
    let body = |output: &Output| stdout(output).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(body(&packed), body(&plain));
    assert_eq!(body(&plain).len(), 8);

    // One that breaks off is read as far as it goes, told of, and counted.
    let half = files.dir().join("half");
    let bytes = std::fs::read(&gz).unwrap();
    std::fs::write(&half, &bytes[..bytes.len() - 12]).unwrap();
    let output = finish(command(&[&half, &zst]).spawn().unwrap());
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains(r#""why":"bad_line""#), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("half"), "{output:?}");
}

#[test]
fn what_can_not_be_opened_is_an_error_before_anything_is_written() {
    let files = Files::new([&cuda()]);
    for name in ["missing", "."] {
        let output = finish(command(&[&files.paths[0], &files.dir().join(name)]).spawn().unwrap());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("ingero-join: opening ") && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let many = (0..20_000).fold(Stream::of("ingero-cuda"), |s, i| s.call(BEGIN_NS + i * MS, 10, 100, 100));
    let files = Files::new([&many]);
    let mut child = command(&[&files.paths[0]]).spawn().unwrap();
    let mut first = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = finish(child);
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{output:?}");
}

#[test]
fn a_reader_that_goes_away_is_noticed_while_nothing_comes() {
    let (stdin, pipe) = open_pipe();
    let mut child = command(&[]).stdin(stdin).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(finish(child).status.code(), Some(0));
    drop(pipe);
}

#[test]
fn the_first_interrupt_reads_on_and_the_second_ends() {
    let (stdin, mut pipe) = open_pipe();
    let mut child = command(&[]).stdin(stdin).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let interrupt = |child: &Child| {
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    };
    pipe.write_all(cuda().text().as_bytes()).unwrap();
    // It is up, with its handlers, once it writes.
    assert!(lines.next().unwrap().unwrap().contains("ingero-join"));
    interrupt(&child);
    // At once again: still the same wish. Two that are pending together are one, so what it reads on must not depend on it.
    interrupt(&child);
    pipe.write_all(Stream::default().call(BEGIN_NS + 10 * MS, MS, 7, 7).text().as_bytes()).unwrap();
    assert!(lines.any(|l| l.unwrap().contains(r#""pid":7"#)));
    // A second after the first it is a second one; until then nothing comes of it, however often it is sent.
    let child = {
        let mut child = child;
        while child.try_wait().unwrap().is_none() {
            interrupt(&child);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        child
    };
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(finish(child).status.signal(), Some(2));
    drop(pipe);
}

#[test]
fn the_reference_recording_is_joined() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/data/recording.sql");
    let files = Files::new([]);
    let db = files.dir().join("recording.db");
    let connection = rusqlite::Connection::open(&db).unwrap();
    connection.execute_batch(&std::fs::read_to_string(path).unwrap()).unwrap();
    drop(connection);
    let output = finish(command(&[&db]).spawn().unwrap());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let records: Vec<serde_json::Value> = stdout(&output).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let find = |op: &str| records.iter().filter(|r| r["op"] == op).collect::<Vec<_>>();

    // The driver's call lies in the runtime's.
    assert_eq!((find("cuMemAlloc")[0]["depth"].as_u64(), find("cudaMalloc")[0]["depth"].as_u64()), (Some(1), Some(0)));
    assert!(find("cuMemAlloc")[0].get("host").is_none());
    let copy = find("cudaMemcpyAsync")[0];
    assert_eq!((copy["dir"].as_str(), copy["bytes"].as_u64()), (Some("h2d"), Some(4096)));
    // A row of `sched_switch` is stamped at its end; this one lies in the synchronise, in no known state.
    let sync = find("cudaDeviceSynchronize")[0];
    let host = &sync["host"];
    assert_eq!((host["off_ns"].as_u64(), host["unknown_ns"].as_u64()), (Some(2_000_000), Some(2_000_000)));
    assert_eq!(host["watched"], true);
    // In the second minute switches were counted but not stored.
    let late = find("cudaStreamSynchronize")[0];
    assert_eq!(late["host"]["watched"], false);
    let lost: Vec<_> =
        find("lost").iter().map(|r| (r["stream"].as_str().unwrap(), r["count"].as_u64().unwrap())).collect();
    assert_eq!(lost, [("cuda", 3), ("sched", 5)]);
    // The call of another thread, whose switch names the thread alone.
    let other = find("cudaFree")[0];
    assert_eq!((other["tid"].as_u64(), other["host"]["off_ns"].as_u64()), (Some(101), Some(100_000)));
    assert_eq!(std::fs::read_dir(files.dir()).unwrap().count(), 1, "reading leaves nothing beside it");
    let ends: Vec<u64> = records
        .iter()
        .filter(|r| r["src"] != "ingero")
        .map(|r| r["mono_ns"].as_u64().unwrap() + r["dur_ns"].as_u64().unwrap_or(0))
        .collect();
    assert!(ends.is_sorted() && ends.len() == 10, "{ends:?}");
}

/// A record leaves as soon as all inputs say that nothing earlier will come, however long the window is.
#[test]
fn nothing_waits_for_an_input_that_says_how_far_it_is() {
    let alive = |ms: u64, stream: &str| {
        format!(r#"{{"src":"ingero","op":"alive","mono_ns":{},"stream":"{stream}"}}"#, BEGIN_NS + ms * MS) + "\n"
    };
    let (stdin, mut quiet) = open_pipe();
    let (other, mut busy) = std::io::pipe().unwrap();
    let files = Files::new([&cuda()]);
    let fifo = files.dir().join("busy");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut join = command(&[Path::new("-"), &fifo]);
    join.args(["--window", "1h", "--stall", "1h"]).stdin(stdin);
    let mut child = join.spawn().unwrap();
    std::thread::spawn(move || {
        let mut fifo = File::options().write(true).open(fifo).unwrap();
        std::io::copy(&mut { other }, &mut fifo).unwrap();
    });
    quiet.write_all(Stream::of("ingero-sched").watch(BEGIN_NS, 100).text().as_bytes()).unwrap();
    quiet.write_all(alive(3, "sched").as_bytes()).unwrap();
    let calls = Stream::of("ingero-cuda").call(BEGIN_NS + MS, MS / 2, 100, 100).call(BEGIN_NS + 4 * MS, MS, 100, 100);
    busy.write_all(calls.text().as_bytes()).unwrap();
    busy.write_all(alive(9, "cuda").as_bytes()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let call = lines.find(|line| line.contains("cudaMalloc")).unwrap();
    assert!(call.contains(r#""watched":true"#) && call.contains(&(BEGIN_NS + MS).to_string()), "{call}");
    // The second one ends behind what the quiet one has promised.
    quiet.write_all(alive(6, "sched").as_bytes()).unwrap();
    let call = lines.find(|line| line.contains("cudaMalloc")).unwrap();
    assert!(call.contains(&(BEGIN_NS + 4 * MS).to_string()), "{call}");
    drop((quiet, busy));
    assert!(lines.all(|line| !line.contains(r#""late":true"#)));
    assert_eq!(finish(child).status.code(), Some(0));
}

/// What ends by itself takes the scheduler tracer's stream beside it along, once that was read far enough.
#[test]
fn a_stream_of_the_scheduler_ends_with_the_processes_that_were_traced() {
    let files = Files::new([&sched()]);
    for (filter, ends) in [(r#"{"command":"train.py"}"#, true), (r#"{"pid":[100]}"#, true), ("{}", false)] {
        let cuda = cuda().text().replacen(r#""filter":{}"#, &format!(r#""filter":{filter}"#), 1);
        let path = files.dir().join("cuda");
        std::fs::write(&path, cuda).unwrap();
        let (stdin, mut live) = open_pipe();
        let mut child = command(&[&path, Path::new("-")]).stdin(stdin).spawn().unwrap();
        let stream = Stream::of("ingero-sched").watch(BEGIN_NS, 100).put("sys", "sample", BEGIN_NS + 5_000 * MS, "");
        live.write_all(stream.text().as_bytes()).unwrap();
        if ends {
            assert_eq!(finish(child).status.code(), Some(0), "{filter}");
            let error = std::iter::repeat_with(|| live.write_all(b"{}\n")).find_map(Result::err).unwrap();
            assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        } else {
            std::thread::sleep(Duration::from_millis(2_500));
            assert!(child.try_wait().unwrap().is_none(), "it is still written to");
            drop(live);
            assert_eq!(finish(child).status.code(), Some(0));
        }
    }
}
