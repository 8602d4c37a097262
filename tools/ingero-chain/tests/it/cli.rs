//! The tool as a whole: what it writes in each format, and how it exits.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{self, MS, chain, found, parsed, text};

/// A process that is starved: ten steps of calls with 50 ms on the CPU between them. Its name is hostile.
fn starved() -> String {
    let name = "tr\\u001b[31mai<b>n";
    let mut lines = String::new();
    for stream in ["cuda", "sched"] {
        lines += &format!(
            r#"{{"src":"ingero","op":"watch","mono_ns":1000000000,"pid":100,"tid":100,"comm":"{name}","stream":"{stream}"}}"#
        );
        lines.push('\n');
    }
    let mut call = |op: &str, mono_ns: u64, dur_ns: u64| {
        lines += &format!(
            r#"{{"src":"cudart","op":"{op}","mono_ns":{mono_ns},"dur_ns":{dur_ns},"pid":100,"tid":100,"comm":"{name}","ret":0,"depth":0}}"#
        );
        lines.push('\n');
    };
    for step in 0..10_u64 {
        let at = 1_000_100_000 + step * 60_000_000;
        for i in 0..20 {
            call("cudaLaunchKernel", at + i * 20_000, 10_000);
        }
        call("cudaDeviceSynchronize", at + 400_000, 9_600_000);
    }
    lines
}

/// The sign of life that the scheduler tracer gives each second.
fn sample(mono_ns: u64) -> String {
    format!("{{\"src\":\"sys\",\"op\":\"sample\",\"mono_ns\":{mono_ns},\"dur_ns\":1000000000}}\n")
}

/// The end of both streams: until then somebody looked.
fn ended(mut lines: String) -> String {
    lines += "{\"src\":\"ingero\",\"op\":\"end\",\"mono_ns\":1560000000}\n";
    lines
}

#[test]
fn a_pipe_gets_records_and_the_summary_last() {
    let out = chain(&[], &ended(starved()));
    let lines = parsed(&out.stdout);
    let ops: Vec<&str> = lines.iter().map(|line| line["op"].as_str().unwrap()).collect();
    assert_eq!((out.status.code(), &ops[..]), (Some(0), &["account", "gap", "summary"][..]));
    let gap = &lines[1];
    assert_eq!(
        (&gap["op"], &gap["severity"], &gap["n"], &gap["lost_ns"]),
        (&"gap".into(), &"high".into(), &9.into(), &450_000_000.into())
    );
    assert_eq!(
        (&gap["proven"], &gap["causes"][0]["cause"], &gap["causes"][0]["ns"]),
        (&true.into(), &"host_cpu".into(), &450_000_000.into())
    );
    assert_eq!(lines[2]["chains"]["high"], 1);
}

#[test]
fn exit_codes() {
    let code = |args: &[&str], input: &str| chain(args, input).status.code();
    let input = starved();
    assert_eq!(code(&["--fail-on", "high"], &input), Some(1));
    assert_eq!(code(&["--fail-on", "high", "--list"], &format!("{input}nonsense\n")), Some(2));
    assert_eq!(code(&["--fail-on", "high"], &format!("{input}nonsense\n")), Some(2), "bad lines weigh more");
    assert_eq!(code(&["--strict"], "nonsense\n"), Some(2));
    assert_eq!(code(&["--explain", "no-such-chain"], &input), Some(2));
    assert_eq!(code(&["/no/such/file"], ""), Some(2));
    assert_eq!(code(&["--every", "1s", "--format", "html"], &input), Some(2));
    assert_eq!(code(&["--fail-on", "nonsense"], ""), Some(2));
}

#[test]
fn bad_lines_are_told_of_once_and_counted() {
    let out = chain(&[], "{}\nnonsense\n[]\n{\n{\"pid\":\"x\"}\n");
    assert_eq!(out.status.code(), Some(2));
    let summary: serde_json::Value = serde_json::from_str(text(&out.stdout)).unwrap();
    assert_eq!((&summary["bad_lines"], &summary["records"]), (&3.into(), &2.into()));
    let said = text(&out.stderr);
    assert!(said.contains("stdin, line 2: ") && said.contains("3 lines"), "{said}");
}

#[test]
fn hostile_names_reach_no_terminal_and_no_page() {
    let input = starved();
    for format in ["text", "csv", "html", "ndjson"] {
        let out = chain(&["--format", format, "--per-process"], &input);
        assert_eq!(out.status.code(), Some(0), "{format}");
        assert!(text(&out.stdout).contains("450"), "{format}: {}", text(&out.stdout));
        assert!(!out.stdout.contains(&0x1b), "{format}: {}", text(&out.stdout));
    }
    let page = chain(&["--format", "html"], &input).stdout;
    assert!(!text(&page).contains("<b>n") && text(&page).contains("&lt;b&gt;n"));
    assert!(!text(&page).contains("<script") && !text(&page).contains("http"));
}

#[test]
fn one_chain_is_explained_with_all_its_gaps() {
    let out = chain(&["--explain", "gap-100-cudaLaunchKernel"], &ended(starved()));
    let chain = found(&parsed(&out.stdout), "gap").remove(0);
    let gaps = chain["occurrences"].as_array().unwrap();
    assert_eq!(gaps.len(), 9);
    let sum: u64 = gaps.iter().map(|gap| gap["causes"][0]["ns"].as_u64().unwrap()).sum();
    assert_eq!(Some(sum), chain["lost_ns"].as_u64());
}

#[test]
fn it_reports_as_it_goes() {
    // A thread that makes calls may be in one, so a gap is judged some time after it has ended.
    let mut input = starved();
    for i in 0..40_u64 {
        let t = 1_600_000_000 + i * 100_000_000;
        if i % 10 == 0 {
            input += &sample(t - 1_000_000_000);
        }
        input += &format!(
            "{{\"src\":\"cudart\",\"op\":\"cudaLaunchKernel\",\"mono_ns\":{t},\"dur_ns\":99000000,\"pid\":100,\"tid\":100,\"depth\":0}}\n"
        );
    }
    let out = chain(&["--every", "1s"], &input);
    let lines: Vec<serde_json::Value> =
        text(&out.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let so_far: Vec<_> = lines.iter().filter(|l| l["op"] == "gap" && l["so_far"] == true).collect();
    assert!(so_far.len() >= 2, "{lines:?}");
    assert!(so_far.iter().all(|gap| gap["causes"][0]["cause"] == "host_cpu"), "{so_far:?}");
    let last = lines.last().unwrap();
    assert!(last["op"] == "summary" && last.get("so_far").is_none());
}

#[test]
fn a_killed_tracer_leaves_no_evidence() {
    // The same gaps, but the scheduler's stream just stops, with a record of another thread as its last.
    let last = "{\"src\":\"sched\",\"op\":\"sched_switch\",\"mono_ns\":1200000000,\"dur_ns\":1000000,\"pid\":100,\"tid\":101,\"state\":\"S\"}\n";
    let mut lines: Vec<String> = starved().lines().map(|line| format!("{line}\n")).collect();
    let start = |tool: &str| {
        format!("{{\"src\":\"ingero\",\"op\":\"start\",\"tool\":\"ingero-{tool}\",\"mono_ns\":1000000000}}\n")
    };
    lines.splice(0..0, [start("cuda"), start("sched")]);
    lines.push(last.into());
    lines.push("{\"src\":\"ingero\",\"op\":\"end\",\"mono_ns\":1560000000,\"stream\":\"cuda\"}\n".into());
    let gap = |lines: &[String]| found(&parsed(&chain(&[], &lines.concat()).stdout), "gap").remove(0);
    let killed = gap(&lines);
    // Four gaps ended by 1.201 s, and the tracer was there.
    assert_eq!((&killed["lost_ns"], &killed["causes"][0]["ns"]), (&450_000_000.into(), &150_000_000.into()));
    // That the GPU was idle is told by the other tracer.
    assert_eq!((&killed["unexplained_ns"], &killed["proven"]), (&300_000_000.into(), &true.into()));
    lines.push("{\"src\":\"ingero\",\"op\":\"end\",\"mono_ns\":1560000000,\"stream\":\"sched\"}\n".into());
    assert_eq!(gap(&lines)["causes"][0]["ns"], 450_000_000);
}

#[test]
fn a_time_out_of_this_world_moves_nothing() {
    let lines = ended(starved());
    let (head, tail) = lines.split_at(lines.find("\"op\":\"cudaDeviceSynchronize\"").unwrap());
    let at = head.rfind('\n').unwrap() + 1;
    let call = |ns: u64| {
        format!(
            "{{\"src\":\"cudart\",\"op\":\"cudaLaunchKernel\",\"mono_ns\":{ns},\"dur_ns\":5,\"pid\":100,\"tid\":100,\"depth\":0}}\n"
        )
    };
    let gap = |lines: &str| -> serde_json::Value {
        let mut gap = found(&parsed(&chain(&[], lines).stdout), "gap").remove(0);
        gap["timeline"] = serde_json::Value::Null;
        gap
    };
    for ns in [u64::MAX, u64::MAX / 2, 1 << 60] {
        let hostile = format!("{}{}{}{tail}", &head[..at], call(ns), &head[at..]);
        assert_eq!(gap(&hostile), gap(&lines), "{ns}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let command = format!("{} --format text - | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_ingero-chain"));
    let mut child =
        Command::new("bash").args(["-c", &command]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(starved().as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), text(&out.stderr)), (Some(0), ""));
}

/// Twenty kinds of calls, each preceded by a twentieth of the gaps: no one is large, the process is starved all the same.
#[test]
fn gaps_that_are_small_by_kind_of_call_count_together() {
    let ops = ["cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaMemcpy3DAsync", "cudaMemsetAsync", "cudaMemset2DAsync"];
    let dirs = ["h2d", "d2h", "d2d", "p2p"];
    let mut stream = support::watched(1000);
    let mut t = 1000;
    for i in 0..400 {
        let mut copy = support::call(ops[i % 5], 100, t * MS, 10_000);
        copy["dir"] = dirs[i / 5 % 4].into();
        stream.push(copy);
        stream.push(support::call("cudaDeviceSynchronize", 100, t * MS + 10_000, 3 * MS));
        t += 20;
    }
    let stream = support::lines(&stream) + &support::end(t * MS).to_string();
    let out = chain(&["--format", "ndjson", "--fail-on", "high"], &stream);
    assert_eq!(out.status.code(), Some(1), "{}", text(&out.stderr));
    let records = parsed(&out.stdout);
    let gaps = found(&records, "gap");
    assert!(gaps.len() == 20 && gaps.iter().all(|gap| gap["severity"] == "low"), "{gaps:?}");
    let total = &found(&records, "total")[0];
    assert_eq!((&total["severity"], &total["n"]), (&"high".into(), &399.into()), "{total}");
    assert_eq!(records.last().unwrap()["chains"]["high"], 1, "{records:?}");
    // It is listed and explained like any other.
    assert!(text(&chain(&["--list"], &stream).stdout).contains(" total-100\n"));
    assert_eq!(found(&parsed(&chain(&["--explain", "total-100"], &stream).stdout), "total").len(), 1);
}

#[test]
fn a_process_that_is_not_in_the_recording_is_no_healthy_one() {
    let call =
        r#"{"src":"cudart","op":"cudaMalloc","mono_ns":1000,"dur_ns":10,"pid":100,"tid":100,"comm":"train","depth":0}"#;
    let out = chain(&["--pid", "999"], call);
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("no process 999 in this recording; those that make CUDA calls: 100"), "{said}");
}

#[test]
fn an_output_that_is_an_input_is_not_emptied() {
    let path = std::env::temp_dir().join(format!("ingero-chain-{}.ndjson", std::process::id()));
    std::fs::write(&path, "{}\n").unwrap();
    let name = path.to_str().unwrap();
    let out = chain(&[name, "-o", name], "");
    assert_eq!(out.status.code(), Some(2));
    assert!(text(&out.stderr).contains("it is an input"), "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n");
    std::fs::remove_file(&path).unwrap();
}
