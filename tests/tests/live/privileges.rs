//! What the tracers are left with once they trace, and that they go on tracing with that: on each tier, libraries and processes
//! that come later are found and probed, whoever they belong to.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use ingero_tests::{Background, Guest, Machine, Output, Workload, in_tier, plan, tiers, tool, watching, with_tracefs};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;
use serde_json::Value;

/// Numbers of capabilities (`linux/capability.h`): to read what only its owner may, to look at processes of others, to lease
/// files of others, for BPF, and to open mapped files that are deleted.
const TRACING: [u32; 6] = [2, 19, 28, 38, 39, 40];
const SYS_ADMIN: u32 = 21;
const LEASE: u32 = 28;

/// A user that no other test's process has.
const UID: u32 = 54_321;

fn mask(capabilities: &[u32]) -> u64 {
    capabilities.iter().map(|number| 1 << number).sum()
}

/// One thread's fields of its status that say what it may do.
#[derive(Debug, PartialEq, Eq)]
struct Rights {
    name: String,
    inheritable: u64,
    permitted: u64,
    effective: u64,
    bounding: u64,
    ambient: u64,
    no_new_privs: bool,
    seccomp: u64,
}

impl Rights {
    fn parse(status: &str) -> Self {
        let text = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t")).unwrap();
        let set = |key: &str| u64::from_str_radix(text(key), 16).unwrap();
        Self {
            name: text("Name").to_owned(),
            inheritable: set("CapInh"),
            permitted: set("CapPrm"),
            effective: set("CapEff"),
            bounding: set("CapBnd"),
            ambient: set("CapAmb"),
            no_new_privs: text("NoNewPrivs") == "1",
            seccomp: text("Seccomp").parse().unwrap(),
        }
    }

    /// Those of all threads of a process, by name.
    fn of_threads(pid: u32) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let status =
            |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mut all: Vec<Self> = tasks.map(|task| Self::parse(&status(task))).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// With these capabilities and no way to any other.
    fn confined(name: &str, capabilities: &[u32]) -> Self {
        // Seccomp 2: under a filter.
        let set = mask(capabilities);
        Self {
            name: name.to_owned(),
            inheritable: 0,
            permitted: set,
            effective: set,
            bounding: set,
            ambient: 0,
            no_new_privs: true,
            seccomp: 2,
        }
    }
}

/// A tracer that has given up its privileges.
#[track_caller]
fn confined(command: &mut Command) -> Background {
    let mut tracer = Background::start(command.arg("-v"));
    tracer.wait_until("its giving up privileges", |_, said| said.contains("privileges kept"));
    tracer
}

/// Copies of the stub's libraries that only the user [`UID`] may read, in a directory that only they may enter.
fn private_libraries() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["libcudart.so.12", "libcuda.so.1"] {
        let copy = place.path().join(name);
        fs::copy(stub_dir().join(name), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
        chown(&copy, Some(UID), Some(UID)).unwrap();
    }
    chown(place.path(), Some(UID), Some(UID)).unwrap();
    place
}

/// A program of the user [`UID`] that opens a library, does `before`, waits for a line, and makes 11 calls.
fn program(library: &Path, before: &str) -> Command {
    const PROGRAM: &str = "
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
exec(sys.argv[2])
sys.stdin.readline()
pointer = ctypes.c_void_p()
for _ in range(11):
    library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
";
    let user = UID.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--", "/usr/bin/python3", "-c", PROGRAM]);
    command.arg(library).arg(before);
    command
}

/// Whether a process has a lease on a file.
fn has_lease(pid: u32, library: &Path) -> bool {
    let inode = format!(":{}", fs::metadata(library).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    // 1: LEASE  ACTIVE    READ  1234 fe:00:5678 0 EOF
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1] == "LEASE" && fields[4] == pid.to_string() && fields[5].ends_with(&inode)
    })
}

/// Each capability that is kept is needed here: for another user's process, its private library, a deleted one, a lease on
/// what is not ours, and probes on all of them. SYS_ADMIN is kept where perf events ask for it.
#[test]
fn libraries_that_come_later_are_traced_on_each_tier() {
    let _machine = Machine::take();
    for tier in tiers() {
        let mut tracer = confined(&mut in_tier(tier, tool("ingero-cuda").args(["--scan-interval", "50ms"])));
        let admin = (tier == "perf").then_some(SYS_ADMIN);
        let kept: Vec<u32> = TRACING.into_iter().chain(admin).collect();
        let rights = [Rights::confined("file guard", &[LEASE]), Rights::confined("ingero-cuda", &kept)];
        assert_eq!(Rights::of_threads(tracer.pid()), rights, "{tier}");

        let private = private_libraries();
        let library = private.path().join("libcudart.so.12");
        let mut guest = Guest::start(&mut program(&library, ""));
        let first = guest.pid("python3", "libcudart.so.12");
        tracer.wait_for("the watch record", |r| watching(r, "cuda", first));
        assert!(has_lease(tracer.pid(), &library), "{tier}: {}", fs::read_to_string("/proc/locks").unwrap());
        guest.run();

        let private = private_libraries();
        let before = "os.unlink(sys.argv[1])";
        let mut guest = Guest::start(&mut program(&private.path().join("libcudart.so.12"), before));
        let second = guest.pid("python3", "libcudart.so.12 (deleted)");
        tracer.wait_for("the watch record", |r| watching(r, "cuda", second));
        guest.run();

        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        for pid in [first, second] {
            assert_eq!(records.outermost(pid).filter(|r| r["op"] == "cudaMalloc").count(), 11, "{tier}\n{out}");
        }
    }
}

#[test]
fn the_scheduler_tracer_finds_who_comes_later() {
    let _machine = Machine::take();
    for mode in ["tp_btf", "raw"] {
        let arguments = ["--probe-mode", mode, "--scan-interval", "50ms"];
        let mut tracer = confined(&mut with_tracefs(tool("ingero-sched").args(arguments)));
        let guard = (mode == "tp_btf").then(|| Rights::confined("file guard", &[LEASE]));
        let rights: Vec<Rights> = guard.into_iter().chain([Rights::confined("ingero-sched", &TRACING)]).collect();
        assert_eq!(Rights::of_threads(tracer.pid()), rights, "{mode}");

        let private = private_libraries();
        let library = private.path().join("libcudart.so.12");
        // Its own end is no record if it was not watched.
        let mut guest = Guest::start(&mut program(&library, "library.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 1)"));
        let pid = guest.pid("python3", "libcuda.so.1");
        tracer.wait_for("the watch record", |r| watching(r, "sched", pid));
        if mode == "tp_btf" {
            let library = private.path().join("libcuda.so.1");
            tracer.wait_until("the probe on cuInit", |_, said| said.contains(library.to_str().unwrap()));
            assert!(has_lease(tracer.pid(), &library), "{mode}: {}", fs::read_to_string("/proc/locks").unwrap());
        }
        guest.run();
        tracer.wait_for("the end of the process", |r| r["op"] == "sched_process_exit" && r["pid"] == pid);
        let out = tracer.interrupt().exits(0);
        out.records().only("ingero", "end");
    }
}

/// The thread that asks the driver's library has no capability at all, and the library still answers.
#[test]
fn the_drivers_library_is_asked_without_any_capability() {
    let _machine = Machine::take();
    let mut command = tool("ingero-sched");
    command.args(["--all", "--no-mem", "--no-io", "-o", "/dev/null"]).env("LD_LIBRARY_PATH", stub_dir());
    command.env("INGERO_STUB_NVML", "");
    let mut tracer = confined(&mut command);
    let expected = Rights::confined("nvml", &[]);
    tracer.wait_until_holds("the thread's giving up privileges", |pid| Rights::of_threads(pid).contains(&expected));
    tracer.interrupt().exits(0);
}

/// A command is started with what the tracer was given.
#[test]
fn a_command_has_the_rights_that_it_has_without_a_tracer() {
    let _machine = Machine::take();
    let shell = ["sh", "-c", "sleep 0.5; cat /proc/$$/status"];
    let traced = Output::of(tool("ingero-cuda").args(["-o", "/dev/null", "--"]).args(shell)).exits(0);
    let untraced = Output::of(Command::new(shell[0]).args(&shell[1..])).exits(0);
    assert_eq!(Rights::parse(&traced.text()), Rights::parse(&untraced.text()));
}

/// Who stops the tracer stops the command, though it is another user's.
#[test]
fn a_command_of_another_user_is_ended() {
    let _machine = Machine::take();
    let mut command = tool("ingero-cuda");
    command.args(["-o", "/dev/null", "--", "sleep", "60"]).env("SUDO_UID", "65534").env("SUDO_GID", "65534");
    let tracer = confined_before_command(command);
    let [guard, main] = <[Rights; 2]>::try_from(Rights::of_threads(tracer.pid())).unwrap();
    assert_eq!(guard, Rights::confined("file guard", &[LEASE]));
    const KILL: u32 = 5;
    assert_eq!(main, Rights::confined("ingero-cuda", &[&TRACING[..], &[KILL]].concat()));
    // 128 + SIGTERM.
    tracer.interrupt().exits(143);
}

/// The same for a tracer with a command, whose own arguments follow.
#[track_caller]
fn confined_before_command(command: Command) -> Background {
    let mut verbose = tool("ingero-cuda");
    verbose.arg("-v").args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        verbose.env(name, value);
    }
    let mut tracer = Background::start(&mut verbose);
    tracer.wait_until("its giving up privileges", |_, said| said.contains("privileges kept"));
    tracer
}

/// Tracing needs no root, but capabilities: those of the file (`setcap`), run by an ordinary user.
#[test]
fn a_file_with_capabilities_traces_for_an_ordinary_user() {
    let _machine = Machine::take();
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tracer = |name: &str| -> PathBuf {
        let copy = place.path().join(name);
        fs::copy(ingero_tests::bin(name), &copy).unwrap();
        let capabilities = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_checkpoint_restore,cap_lease+ep";
        Output::of(Command::new("setcap").arg(capabilities).arg(&copy)).exits(0);
        copy
    };
    let as_user = |tracer: &Path, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(tracer).args(arguments);
        command
    };
    let cuda = tracer("ingero-cuda");
    for tier in tiers() {
        let workload = Workload::at_its_gate(&Plan { loops: 7, ..plan(&["cudaMalloc"]) });
        let pid = workload.pid();
        let arguments = ["--pid", &pid.to_string(), "--probe-mode", tier];
        let mut command = with_tracefs(&as_user(&cuda, &arguments));
        // These two ask for more, and that is said at the start.
        let needs = [("perf", "CAP_SYS_ADMIN"), ("tracefs", "CAP_DAC_OVERRIDE")];
        if let Some((_, needed)) = needs.iter().find(|(name, _)| *name == tier) {
            Output::of(command.args(["-d", "1s"])).exits(2).says_in_one_line(&["ingero-cuda", tier, needed]);
            workload.run();
            continue;
        }
        let mut tracer = confined(&mut command);
        tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
        let stats = workload.run();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        assert_eq!(
            records.outermost(pid).filter(|r| r["op"] == "cudaMalloc").count() as u64,
            stats.all_calls(),
            "{out}"
        );
    }
    let sched = tracer("ingero-sched");
    let workload = Workload::at_its_gate(&plan(&["cudaMalloc"]));
    let pid = workload.pid();
    let mut tracer = confined(&mut as_user(&sched, &["--pid", &pid.to_string()]));
    tracer.wait_for("the watch record", |r: &Value| watching(r, "sched", pid));
    workload.run();
    tracer.wait_for("its end", |r| r["op"] == "sched_process_exit" && r["pid"] == pid);
    tracer.interrupt().exits(0);
}
