//! PID namespaces: the numbers in `/proc` are those of the namespace that it was mounted for, the kernel's probes tell of the
//! initial one's.

use std::path::Path;
use std::process::Command;

use ingero_tests::{Guest, Machine, Output, plan, tool};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;

/// The same command in a container of its own: where it is process 1.
fn in_a_container(command: &Command) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    wrapped.arg(command.get_program()).args(command.get_args());
    wrapped
}

/// Else the tracer would watch nobody, or somebody else of the same number.
#[test]
fn in_a_container_without_the_hosts_numbers_nothing_is_traced() {
    let _machine = Machine::take();
    let place = tempfile::tempdir().unwrap();
    let ran = place.path().join("ran").display().to_string();
    for (name, arguments) in [
        ("ingero-cuda", &[][..]),
        ("ingero-cuda", &["--pid", "1"]),
        ("ingero-cuda", &["--", "touch", &ran]),
        ("ingero-sched", &[]),
        ("ingero-sched", &["--pid", "1"]),
        ("ingero-sched", &["--probe-mode", "raw", "--all"]),
    ] {
        let out = Output::of(&mut in_a_container(tool(name).args(arguments))).exits(2);
        assert_eq!(out.text(), "", "{out}");
        out.says_in_one_line(&[name, "container", "--pid=host", "hostPID"]);
    }
    assert!(!Path::new(&ran).exists());
    // What needs no numbers of the kernel's works.
    let out = Output::of(&mut in_a_container(tool("ingero-cuda").arg("--list").arg(stub_dir()))).exits(0);
    assert!(out.text().contains("libcudart.so.12"), "{out}");
}

/// From outside, the number that a container shows is explained: where it is nobody's, and where it is somebody else's.
#[test]
fn a_containers_number_is_explained_from_outside() {
    let _machine = Machine::take();
    let place = tempfile::tempdir().unwrap();
    let counts = place.path().join("counts");
    std::fs::write(&counts, "").unwrap();
    let free = (3..).find(|number| !Path::new(&format!("/proc/{number}")).exists()).unwrap();
    // In the container, numbers are given out one after the other.
    let script = "exec 3<&0; until [ \"${last:-1}\" -ge $(($0 - 1)) ]; do : & last=$!; wait; done
        \"$@\" <&3 & test $! = $0 || exit 1; wait $!";
    let arguments = Plan { library: Some(stub_dir().join("libcudart.so.12")), gate: true, ..plan(&["cudaMalloc"]) };
    let mut command = Command::new("sh");
    command.args(["-c", script, &free.to_string()]).arg(stub_dir().join("stub-app")).args(arguments.arguments());
    command.arg(format!("stats={}", counts.display()));
    let mut guest = Guest::start(&mut in_a_container(&command));
    let pid = guest.pid("stub-app", "libcudart.so.12");
    let here = format!("{pid} (stub-app)");
    for name in ["ingero-cuda", "ingero-sched"] {
        let out = Output::of(tool(name).args(["--pid", &free.to_string()])).exits(2);
        out.says_in_one_line(&[name, &format!("no process {free} here"), "container", &here]);
    }
    guest.run();

    // Process 2 is a kernel thread here, and the container's first child there.
    let first = Guest::start(&mut in_a_container(Command::new("sh").args(["-c", "exec 3<&0; cat <&3 & wait"])));
    let waiting = std::time::Instant::now() + std::time::Duration::from_secs(20);
    for name in ["ingero-cuda", "ingero-sched"] {
        loop {
            let out = Output::of(tool(name).args(["--pid", "2", "--duration", "100ms"])).exits(0);
            if out.stderr.contains("in a container, 2 is the number of") && out.stderr.contains("(cat)") {
                break;
            }
            assert!(std::time::Instant::now() < waiting, "{out}");
        }
    }
    drop(first);
}
