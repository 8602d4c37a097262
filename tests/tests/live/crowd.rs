//! An unprivileged user with more CUDA libraries than can be probed blinds nobody but themselves.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use ingero_tests::{Background, Machine, Output, Workload, plan, tool, watching};

/// Opens its libraries, says so by a file, and waits.
const PROGRAM: &str = "
    #include <dlfcn.h>
    #include <stdio.h>
    #include <stdlib.h>
    int main(int argc, char **argv) {
        char path[64];
        for (int i = 0; i < atoi(argv[2]); i++) {
            snprintf(path, sizeof(path), \"./%s-%d.so\", argv[1], i);
            if (!dlopen(path, RTLD_NOW)) return 1;
        }
        fclose(fopen(argv[1], \"w\"));
        return getchar() != EOF;
    }";

/// Processes of nobody's, each of which maps so many libraries of its own that export `cudaLaunchKernel`.
struct Crowd(Vec<Child>);

impl Crowd {
    fn new(place: &Path, processes: usize, libraries: usize) -> Self {
        let (library, program, ready) = (place.join("library.so"), place.join("program"), place.join("ready"));
        std::fs::write(place.join("library.c"), "int cudaLaunchKernel(void) { return 0; }").unwrap();
        std::fs::write(place.join("program.c"), PROGRAM).unwrap();
        let cc = |arguments: &[&str]| Output::of(Command::new("cc").current_dir(place).args(arguments)).exits(0);
        cc(&["-shared", "-fPIC", "-o", "library.so", "library.c"]);
        cc(&["-o", "program", "program.c", "-ldl"]);
        std::fs::create_dir(&ready).unwrap();
        for (path, mode) in [(place, 0o755), (&program, 0o755), (&ready, 0o777)] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        }
        for process in 0..processes {
            for number in 0..libraries {
                std::fs::copy(&library, ready.join(format!("{process}-{number}.so"))).unwrap();
            }
        }
        let start = |process: usize| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).current_dir(&ready);
            command.args([process.to_string(), libraries.to_string()]);
            command.stdin(Stdio::piped()).spawn().unwrap()
        };
        let crowd = Self((0..processes).map(start).collect());
        while !(0..processes).all(|process| ready.join(process.to_string()).exists()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        crowd
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[track_caller]
fn a_genuine_program_is_traced_beside(processes: usize, libraries: usize) {
    let place = tempfile::tempdir().unwrap();
    let _crowd = Crowd::new(place.path(), processes, libraries);
    let mut tracer = Background::start_piped(&mut tool("ingero-cuda"));
    tracer.wait_for("the start record", |r| r["op"] == "start");
    let workload = Workload::at_its_gate(&plan(&["cudaMalloc*1960", "cudaLaunchKernel*1960"]));
    let pid = workload.pid();
    tracer.wait_for("the watch record", |r| watching(r, "cuda", pid) && r["layers"].to_string().contains("cudart"));
    workload.run();
    let out = tracer.interrupt().exits(0);
    let records = out.records();
    records.balance();
    assert_eq!(records.outermost(pid).filter(|r| r["src"] == "cudart").count(), 3920, "{out}");
    assert!(out.stderr.contains("are not probed"), "{out}");
}

#[test]
fn with_very_many_libraries_in_one_process() {
    let _machine = Machine::take();
    a_genuine_program_is_traced_beside(1, 1500);
}

#[test]
fn with_many_libraries_in_many_processes() {
    let _machine = Machine::take();
    a_genuine_program_is_traced_beside(12, 30);
}
