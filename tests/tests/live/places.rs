//! Libraries are found wherever a process has them: in a container, under another name, deleted, several at once, inside the
//! program, with another libc. Each time the calls are all there and the `watch` record says what was found.

use std::path::Path;
use std::process::Command;

use ingero_tests::{Background, Guest, Machine, Output, Records, plan, repository, tool, watching};
use ingero_workload::plan::Plan;
use ingero_workload::stub_dir;
use serde_json::Value;

/// What a tracer of everything writes while the guest's process `pid` runs behind its gate.
#[track_caller]
fn traced(guest: Guest, pid: u32, meanwhile: impl FnOnce()) -> (Output, Records) {
    let mut tracer = Background::start_piped(tool("ingero-cuda").args(["--scan-interval", "50ms"]));
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid));
    meanwhile();
    guest.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.lost_in_all(), 0, "{out}");
    (out, records)
}

/// The calls of a process, without the runtime's own first call of the driver.
fn calls(records: &Records, pid: u32) -> Vec<&Value> {
    records.outermost(pid).filter(|r| r["op"] != "cuInit").collect()
}

#[track_caller]
fn watch(records: &Records, pid: u32) -> &Value {
    records.0.iter().rfind(|r| watching(r, "cuda", pid)).unwrap()
}

/// A program that opens the libraries it is told of, waits for a line, and calls.
fn python(libraries: &[&Path], before: &str) -> Command {
    const PROGRAM: &str = "
import ctypes, os, sys
libraries = [ctypes.CDLL(path) for path in sys.argv[1:]]
exec(os.environ['BEFORE'])
sys.stdin.readline()
pointer = ctypes.c_void_p()
for library in libraries:
    for _ in range(11):
        library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(4096))
";
    let mut command = Command::new("python3");
    command.arg("-c").arg(PROGRAM).args(libraries).env("BEFORE", before);
    command
}

/// All at once: mount and PID namespaces, a root of its own, another user, a name that says nothing and has a space.
#[test]
fn in_a_container_as_somebody_else_under_a_strange_name() {
    let _machine = Machine::take();
    let user = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    in_a_root_of_its_own(
        &format!("mkdir root/old; cd root; pivot_root . old; exec {user}"),
        "\"/opt/my libs/strange name\"",
    );
    // The kernel shows the paths of such a process from outside.
    in_a_root_of_its_own("exec chroot --userspec=65534:65534 root", "root/opt/my libs/strange name\"");
}

#[track_caller]
fn in_a_root_of_its_own(enter: &str, path: &str) {
    let place = tempfile::tempdir().unwrap();
    let arguments = Plan {
        library: Some("/opt/my libs/strange name".into()),
        gate: true,
        ..plan(&["cudaMalloc*23", "cudaLaunchKernel*19"])
    };
    let script = format!(
        "set -e
        mkdir root; mount -t tmpfs none root; mkdir -p root/usr root/proc 'root/opt/my libs'
        mount --bind /usr root/usr; mount -t proc none root/proc
        for directory in lib lib64; do
            if [ -L /$directory ]; then cp -P /$directory root/
            elif [ -d /$directory ]; then mkdir root/$directory; mount --bind /$directory root/$directory; fi
        done
        cp \"$0/stub-app\" root/; cp \"$0/libcuda.so.1\" 'root/opt/my libs/'
        cp \"$0/libcudart.so.12\" 'root/opt/my libs/strange name'
        touch root/counts; chown 65534 root/counts
        {enter} /stub-app stats=/counts \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--", "sh", "-c", &script]);
    command.arg(stub_dir()).args(arguments.arguments()).current_dir(place.path());
    let mut guest = Guest::start(&mut command);
    let pid = guest.pid("stub-app", "strange name");
    let (out, records) = traced(guest, pid, || {
        // What would be probed is shown as well, from outside.
        let listed = Output::of(tool("ingero-cuda").arg("--list")).exits(0).text();
        let (_, own) = listed.split_once("/opt/my libs/strange name").unwrap_or_else(|| panic!("{listed}"));
        let own = own.split("cudart ").next().unwrap();
        assert!(own.contains(&format!("{pid} (stub-app)")) && own.contains("begin with frame 64"), "{listed}");
    });
    let calls = calls(&records, pid);
    assert_eq!(calls.len(), 42, "{out}");
    // The first process of its own namespace, and everybody is told so.
    assert!(calls.iter().all(|call| call["ns_pid"] == 1), "{out}");
    let watch = watch(&records, pid);
    assert_eq!((&watch["ns_pid"], &watch["why"]), (&1.into(), &"cuda".into()), "{watch}");
    let libraries = watch["lib"].to_string();
    assert!(libraries.contains(path), "{path}: {watch}");
}

#[test]
fn several_runtimes_in_one_process_one_of_them_deleted() {
    let _machine = Machine::take();
    let own = tempfile::tempdir().unwrap();
    let deleted = own.path().join("libcudart.so.13");
    for name in ["libcudart.so.13", "libcuda.so.1"] {
        std::fs::copy(stub_dir().join(name), own.path().join(name)).unwrap();
    }
    let old = stub_dir().join("libcudart.so.12");
    let mut guest =
        Guest::start(&mut python(&[&old, &deleted], "os.unlink(sys.argv[2]); os.mkdir(sys.argv[2] + '.done')"));
    let pid = guest.pid("python3", "libcudart.so.13 (deleted)");
    while !own.path().join("libcudart.so.13.done").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let (out, records) = traced(guest, pid, || ());
    assert_eq!(calls(&records, pid).len(), 22, "{out}");
    let libraries = watch(&records, pid)["lib"].to_string();
    assert!(libraries.contains(old.to_str().unwrap()) && libraries.contains(deleted.to_str().unwrap()), "{libraries}");
}

#[test]
fn inside_the_program_with_its_symbols_and_without() {
    let _machine = Machine::take();
    let own = tempfile::tempdir().unwrap();
    for name in ["stub-app-static", "libcuda.so.1"] {
        std::fs::copy(stub_dir().join(name), own.path().join(name)).unwrap();
    }
    std::fs::copy(own.path().join("stub-app-static"), own.path().join("stripped")).unwrap();
    Output::of(Command::new("strip").arg(own.path().join("stripped"))).exits(0);
    // The driver is opened by the first call; the tracer has time to find it until the next ones.
    let steps = plan(&["cudaMalloc", "host,sleep=1s", "cudaLaunchKernel*31"]);
    let arguments = Plan { library: None, gate: true, ..steps }.arguments();
    for (program, layers, op) in
        [("stub-app-static", &["cuda", "cudart"][..], "cudaLaunchKernel"), ("stripped", &["cuda"], "cuLaunchKernel")]
    {
        let counts = own.path().join("counts");
        std::fs::write(&counts, "").unwrap();
        let mut command = Command::new(own.path().join(program));
        command.args(&arguments).arg(format!("stats={}", counts.display())).env("LD_LIBRARY_PATH", own.path());
        let mut guest = Guest::start(&mut command);
        let pid = guest.pid(program, program);
        let mut tracer = Background::start_piped(tool("ingero-cuda").args(["--scan-interval", "50ms"]));
        tracer.wait_for("the start record", |r| r["op"] == "start");
        guest.run();
        let out = tracer.interrupt().exits(0);
        let records = out.records();
        records.balance();
        assert_eq!(calls(&records, pid).iter().filter(|call| call["op"] == op).count(), 31, "{program}\n{out}");
        let watch = watch(&records, pid);
        assert_eq!(watch["layers"], serde_json::json!(layers), "{watch}");
        let says_so = watch["note"].as_str().is_some_and(|note| note.contains("no runtime"));
        assert_eq!(says_so, program == "stripped", "{watch}");
    }
}

/// musl has a dynamic linker of its own and no `libdl`.
#[test]
fn with_another_libc() {
    let _machine = Machine::take();
    let own = tempfile::tempdir().unwrap();
    let mut make = Command::new("make");
    make.args(["--silent", "-C"]).arg(repository().join("tests/stub")).arg("CC=musl-gcc");
    make.arg(format!("OUT={}", own.path().display())).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make.args(["libcuda.so.1", "libcudart.so.12"].map(|name| own.path().join(name)));
    Output::of(&mut make).exits(0);
    let program = own.path().join("on_musl");
    let source = own.path().join("on_musl.c");
    let text = "
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char **argv) {
            void *library = dlopen(argv[1], RTLD_NOW), *pointer;
            int (*allocate)(void **, unsigned long) = dlsym(library, \"cudaMalloc\");
            if (argc == 2) getchar();
            for (int i = 0; i < 29; i++) allocate(&pointer, 4096);
            return 0;
        }";
    std::fs::write(&source, text).unwrap();
    let mut compile = Command::new("musl-gcc");
    Output::of(compile.arg("-o").arg(&program).arg(&source)).exits(0);

    let library = own.path().join("libcudart.so.12");
    let mut guest = Guest::start(Command::new(&program).arg(&library));
    let pid = guest.pid("on_musl", "libcudart.so.12");
    let (out, records) = traced(guest, pid, || ());
    assert_eq!(calls(&records, pid).len(), 29, "{out}");

    // Started by the tracer, it waits in its linker until the library is probed.
    let mut command = tool("ingero-cuda");
    let out = Output::of(command.arg("--").arg(&program).arg(&library).arg("at once")).exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.calls().filter(|call| call["op"] == "cudaMalloc").count(), 29, "{out}");
}

/// Without a CUDA library there is nothing to list, and that is said; a file or a directory can be asked about.
#[test]
fn a_listing_without_a_process() {
    let _machine = Machine::take();
    let listed = Output::of(tool("ingero-cuda").arg("--list").arg(stub_dir())).exits(0).text();
    for part in ["libcuda.so.1", "libcudart.so.12", "libcudart.so.13", "(linked statically)", "begin with frame 64"] {
        assert!(listed.contains(part), "{part}\n{listed}");
    }
    for major in [12, 13] {
        let library = ingero_tests::wheels::cudart(major);
        let listed = Output::of(tool("ingero-cuda").arg("--list").arg(library)).exits(0).text();
        // Every function of the real ones begins with `push %rbp` and its like.
        assert!(listed.contains(&format!("version {major}")), "{listed}");
        let counts = listed.lines().find_map(|line| line.trim().strip_prefix("begin with frame ")).unwrap();
        assert!(counts.parse::<u32>().unwrap() > 100, "{listed}");
    }
    for (path, word) in
        [("/nonexistent", "No such file"), ("/etc/passwd", "no CUDA library"), ("/etc", "no CUDA library")]
    {
        Output::of(tool("ingero-cuda").args(["--list", path])).exits(2).says_in_one_line(&["ingero-cuda", path, word]);
    }
}
