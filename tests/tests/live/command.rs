//! `ingero-cuda -- COMMAND`: run as whoever called sudo, followed with its children from the first call on, its stdout kept
//! apart, its exit status passed on.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ingero_tests::{Background, Machine, Output, Records, Workload, cuda, plan, tool, watching};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;

/// The stub where everybody may read it.
fn stub_for_everybody() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["stub-app", "libcudart.so.12", "libcuda.so.1"] {
        std::fs::copy(stub_dir().join(name), place.path().join(name)).unwrap();
    }
    std::fs::write(place.path().join("counts"), "").unwrap();
    for (path, mode) in [(place.path().to_owned(), 0o755), (place.path().join("counts"), 0o666)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    place
}

/// The command line of `stub-app` on this plan.
fn stub_app(place: &Path, plan: &Plan) -> Vec<std::ffi::OsString> {
    let plan = Plan { library: Some(place.join("libcudart.so.12")), ..plan.clone() };
    let mut all = vec![place.join("stub-app").into()];
    all.extend(plan.arguments());
    all.push(format!("stats={}", place.join("counts").display()).into());
    all
}

#[test]
fn runs_as_the_user_who_called_sudo_and_keeps_its_stdout_apart() {
    let _machine = Machine::take();
    let place = stub_for_everybody();
    let app = stub_app(place.path(), &plan(&["cudaMalloc*7"]));
    let script = "echo uid $(id -u) gid $(id -g) groups $(id -G); \"$@\"; exit 7";
    let mut command = tool("ingero-cuda");
    command.args(["--", "sh", "-c", script, "sh"]).args(&app);
    command.env("SUDO_UID", "65534").env("SUDO_GID", "65534").env("SUDO_USER", "nobody");
    let out = Output::of(&mut command).exits(7);
    // Records only on stdout, each line one; what the command prints goes to people.
    let records = out.records();
    records.balance();
    assert_eq!(records.calls().filter(|call| call["op"] == "cudaMalloc").count(), 7, "{out}");
    assert!(out.stderr.contains("uid 65534 gid 65534 groups 65534"), "{out}");

    // With a file for the records, stdout is the command's.
    let file = place.path().join("t.ndjson");
    let mut command = tool("ingero-cuda");
    command.arg("-o").arg(&file).args(["--", "sh", "-c", script, "sh"]).args(&app);
    let out = Output::of(&mut command).exits(7);
    assert_eq!(out.text(), "uid 0 gid 0 groups 0\n", "{out}");
    let records = Records::parse(&*std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(records.calls().filter(|call| call["op"] == "cudaMalloc").count(), 7);
}

#[test]
fn follows_its_children_from_their_first_call_on() {
    let _machine = Machine::take();
    let place = stub_for_everybody();
    // The shell forks, and its child forks three more, which call at once.
    let app = stub_app(place.path(), &Plan { forks: 3, threads: 2, ..plan(&["cudaMalloc*13", "host,sleep=500ms"]) });
    let mut command = tool("ingero-cuda");
    command.args(["--", "sh", "-c", "\"$@\" & wait $!", "sh"]).args(&app);
    let out = Output::of(&mut command).exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.lost_in_all(), 0, "{out}");
    let calls: Vec<_> = records.calls().filter(|call| call["op"] == "cudaMalloc").collect();
    assert_eq!(calls.len() % 13, 0, "{out}");
    let threads: BTreeSet<_> = calls.iter().map(|call| call["tid"].as_u64().unwrap()).collect();
    let processes: BTreeSet<_> = calls.iter().map(|call| call["pid"].as_u64().unwrap()).collect();
    assert_eq!((calls.len(), processes.len()), (13 * threads.len(), 4), "{out}");
    for pid in processes {
        assert!(records.of("ingero", "watch").any(|r| r["pid"] == pid && r["why"] == "child"), "{pid}\n{out}");
    }
}

/// Children that are over before anybody can look at them: each has a `watch` record all the same, before its first call.
#[test]
fn children_that_live_for_milliseconds_are_said_to_be_watched() {
    let _machine = Machine::take();
    let workload = Workload::at_its_gate(&Plan { forks: 6, ..plan(&["cudaMalloc*5"]) });
    let pid = workload.pid();
    let mut tracer = Background::start(&mut cuda(pid));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    let stats = workload.run();
    let out = tracer.wait().exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.calls().filter(|call| call["depth"] == 0).count() as u64, stats.all_calls(), "{out}");
    let callers: BTreeSet<_> = records.calls().map(|call| call["pid"].as_u64().unwrap()).collect();
    assert_eq!(callers.len(), 7, "{out}");
    for caller in callers {
        let mut about = records.0.iter().filter(|r| r["pid"] == caller && (r["op"] == "watch" || r["src"] != "ingero"));
        let (watch, call) = (about.next().unwrap(), about.find(|r| r["op"] != "watch").unwrap());
        assert!(watching(watch, "cuda", caller.try_into().unwrap()), "{caller}\n{out}");
        assert!(watch["mono_ns"].as_u64() <= call["mono_ns"].as_u64(), "{watch}\n{call}");
        assert_eq!(watch["why"], if caller == u64::from(pid) { "asked" } else { "child" }, "{watch}");
        assert!(watch["layers"].as_array().is_some_and(|layers| !layers.is_empty()), "{watch}");
    }
}

#[test]
fn its_end_is_ours() {
    let _machine = Machine::take();
    for (script, status) in [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 128 + 15)] {
        let out = Output::of(tool("ingero-cuda").args(["--", "sh", "-c", script])).exits(status);
        out.records().balance();
    }
}

#[test]
fn a_command_that_is_not_there_leaves_a_whole_stream() {
    let _machine = Machine::take();
    for name in ["/nonexistent/program", ""] {
        let mut command = tool("ingero-cuda");
        let out = Output::of(command.args(["-q", "--", name])).exits(127);
        out.records().balance();
        out.says_in_one_line(&["ingero-cuda", &format!("'{name}'"), "No such file", "PATH"]);
    }
}

/// A dynamic linker that lists a program's libraries maps them, and runs none of their code.
#[test]
fn a_listing_of_libraries_is_no_cuda_process() {
    let _machine = Machine::take();
    let library = stub_dir().join("libcudart.so.12");
    let mut command = tool("ingero-cuda");
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do ldd \"$1\" >/dev/null; done";
    let out = Output::of(command.args(["--", "sh", "-c", script, "sh"]).arg(&library)).exits(0);
    assert_eq!(out.records().of("ingero", "watch").count(), 0, "{out}");
    // Not because nothing was looked at: a program that the linker runs is one, and is announced when it calls.
    let linker = Path::new("/lib64/ld-linux-x86-64.so.2");
    if linker.exists() {
        let place = stub_for_everybody();
        let app = stub_app(place.path(), &plan(&["cudaMalloc*7", "host,sleep=300ms"]));
        let mut command = tool("ingero-cuda");
        let out = Output::of(command.arg("--").arg(linker).args(&app)).exits(0);
        assert_eq!(out.records().calls().filter(|call| call["op"] == "cudaMalloc").count(), 7, "{out}");
        let watched: BTreeSet<_> = out.records().of("ingero", "watch").map(|r| r["pid"].as_u64().unwrap()).collect();
        assert_eq!(watched.len(), 1, "{out}");
    }
}
