//! A real Python that waits for one known thing in each step: the cause, what it waited in, and who was behind it.
//!
//! The loop's own clock says how much it waited.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use ingero_tests::{Machine, Output, Records, Tracers, report};
use ingero_workload::stub_dir;
use serde_json::Value;

/// What came of a loop under both tracers.
struct Run {
    pid: u32,
    /// Nanoseconds in all, by the loop's own clock.
    waited_ns: u64,
    /// The process beside it, where there is one.
    other: u32,
    said: Output,
    records: Records,
}

/// Ends the loop, and the processes beside it, whatever comes.
struct Loop {
    child: Child,
    stdin: ChildStdin,
}

impl Drop for Loop {
    fn drop(&mut self) {
        // It kills its group, and so itself.
        let _ = self.stdin.write_all(b"\n");
        let _ = self.child.wait();
    }
}

impl Run {
    fn of(kind: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/waits.py");
        let mut child = Command::new("python3")
            .args([script.as_os_str(), stub_dir().join("libcudart.so.12").as_os_str(), kind.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let stdin = child.stdin.take().unwrap();
        let mut running = Loop { child, stdin };
        let pid = lines.next().unwrap().parse().unwrap();
        let tracers = Tracers::on(pid);
        running.stdin.write_all(b"\n").unwrap();
        let last = lines.next().unwrap();
        let words: Vec<&str> = last.split(' ').collect();
        let (waited_ns, other) = (words[1].parse().unwrap(), words[3].parse().unwrap());
        let streams = tracers.stop();
        drop(running);
        let (said, records) = report(&streams, &[]);
        Self { pid, waited_ns, other, said, records }
    }

    fn finding(&self, op: &str) -> Option<&Value> {
        self.records.chains().find(|c| c["op"] == op && c["pid"] == self.pid)
    }

    /// The gaps, which are as long as the loop waited.
    #[track_caller]
    fn gap(&self) -> &Value {
        let gap = self.finding("gap").unwrap_or_else(|| panic!("no gap\n{}", self.said));
        let lost_ns = gap["lost_ns"].as_u64().unwrap();
        // The interpreter's own steps, about the waits, are lost as well.
        assert!(
            lost_ns >= self.waited_ns / 100 * 95 && lost_ns <= self.waited_ns / 100 * 115,
            "{}: {gap}",
            self.waited_ns
        );
        gap
    }

    /// Fails unless this cause has so much of what was waited.
    #[track_caller]
    fn mainly<'a>(&self, gap: &'a Value, name: &str) -> &'a Value {
        let cause = gap["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == name);
        let cause = cause.unwrap_or_else(|| panic!("no {name}: {gap}"));
        assert!(cause["ns"].as_u64().unwrap() >= self.waited_ns / 100 * 90, "{}: {gap}", self.waited_ns);
        cause
    }

    /// The largest wait of the thread that feeds the GPU, which is nearly all of it.
    #[track_caller]
    fn wait<'a>(&self, gap: &'a Value, call: &str, kind: &str) -> &'a Value {
        let wait = &gap["waits"][0];
        assert!(wait["in"].as_str().unwrap().starts_with(call), "{gap}");
        assert_eq!(wait["on"]["kind"].as_str().unwrap_or_default(), kind, "{gap}");
        assert!(wait["ns"].as_u64().unwrap() >= self.waited_ns / 100 * 70, "{}: {gap}", self.waited_ns);
        wait
    }
}

fn advice(gap: &Value) -> String {
    gap["advice"].as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_pause_of_its_own() {
    let _machine = Machine::take();
    let run = Run::of("pause");
    let gap = run.gap();
    let pause = run.mainly(gap, "pause");
    assert_eq!(pause["who"][0]["comm"], "train", "{gap}");
    run.wait(gap, "clock_nanosleep", "");
    // And in which function, where it has to be changed.
    let place = &pause["where"][0];
    assert!(place["fn"].as_str().unwrap().starts_with("pause."), "{gap}");
    assert!(place["file"].as_str().unwrap().ends_with("waits.py") && place["share"].as_f64().unwrap() > 0.9, "{gap}");
    assert!(advice(gap).contains("instead of pausing"), "{gap}");
}

#[test]
fn a_pipe_that_somebody_reads_slowly() {
    let _machine = Machine::take();
    let run = Run::of("pipe");
    let gap = run.gap();
    let who = &run.mainly(gap, "pause")["who"][0];
    assert_eq!((who["pid"].as_u64(), &who["comm"]), (Some(run.other.into()), &"other".into()), "{gap}");
    assert_eq!(run.wait(gap, "write", "pipe")["by"]["pid"], run.other, "{gap}");
    let summary = gap["summary"].as_str().unwrap();
    assert!(
        summary.contains(&format!("waiting for other ({}), the reader of its pipe, which paused", run.other)),
        "{summary}"
    );
    assert!(advice(gap).contains("read faster"), "{gap}");
}

#[test]
fn a_file_that_somebody_has_locked() {
    let _machine = Machine::take();
    let run = Run::of("file_lock");
    let gap = run.gap();
    assert_eq!(run.mainly(gap, "pause")["who"][0]["pid"], run.other, "{gap}");
    assert_eq!(run.wait(gap, "flock", "file")["by"]["pid"], run.other, "{gap}");
}

#[test]
fn a_server_that_answers_late() {
    let _machine = Machine::take();
    let run = Run::of("network");
    let gap = run.gap();
    run.mainly(gap, "network");
    let on = &run.wait(gap, "recvfrom", "socket")["on"];
    assert!(on["name"].as_str().unwrap().starts_with("tcp 127.0.0.1:"), "{gap}");
    assert!(advice(gap).contains("fetch ahead"), "{gap}");
    assert!(run.finding("no_input").is_none(), "{}", run.said);
}

#[test]
fn nobody_who_asks_is_no_fault() {
    let _machine = Machine::take();
    let run = Run::of("request");
    let idle = run.finding("no_input").unwrap_or_else(|| panic!("{}", run.said));
    assert!(idle["lost_ns"].as_u64().unwrap() >= run.waited_ns / 100 * 90, "{idle}");
    assert_eq!((&idle["severity"], &idle["advice"]), (&"low".into(), &Value::Array(Vec::new())), "{idle}");
    assert!(run.records.chains().all(|c| c["severity"] != "high"), "{}", run.said);
}

#[test]
fn a_thread_that_keeps_the_interpreter_busy() {
    let _machine = Machine::take();
    let run = Run::of("gil");
    let gap = run.gap();
    // On its CPU, as far as the hypervisor and others let it.
    let cause = |name: &str| gap["causes"].as_array().unwrap().iter().find(|cause| cause["cause"] == name);
    let ns = |name: &str| cause(name).map_or(0, |cause| cause["ns"].as_u64().unwrap());
    let hogged_ns = ns("host_cpu") + ns("steal") + ns("cpu_wait");
    assert!(hogged_ns * 10 >= gap["lost_ns"].as_u64().unwrap() * 7, "{gap}");
    if let Some(computed) = cause("host_cpu") {
        assert_eq!(computed["who"][0]["comm"], "hog", "{gap}");
        // A few tenths of a second have some ten samples, less what the hypervisor took.
        let place = computed["where"][0]["fn"].as_str();
        assert!(place.is_none_or(|place| place.ends_with("hog")), "{gap}");
    }
    let by = &run.wait(gap, "futex", "gil")["by"];
    assert_eq!((by["pid"].as_u64(), &by["comm"]), (Some(run.pid.into()), &"hog".into()), "{gap}");
    assert!(advice(gap).contains("releases the GIL"), "{gap}");
}
