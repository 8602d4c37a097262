//! Files and processes to discover.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ingero_common::discover::{Scan, Scanner};

/// A driver library in miniature. Each function returns a number of its own.
pub(crate) const DRIVER: &str = "
    int cuInit(unsigned flags) { return 0x1001; }
    int cuLaunchKernel(void) { return 0x1002; }
";

/// Compiles and links `source`; panics with the compiler's words.
pub(crate) fn gcc(source: &str, output: &Path, args: &[&str]) {
    let mut child = Command::new("gcc")
        .args(["-x", "c", "-", "-w", "-o"])
        .arg(output)
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .expect("gcc is needed for these tests");
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "gcc {args:?} failed on:\n{source}");
}

/// Compiles a shared library.
pub(crate) fn library(source: &str, output: &Path, args: &[&str]) {
    gcc(source, output, &[&["-shared", "-fPIC", "-O1"], args].concat());
}

/// Runs a command that has to succeed.
pub(crate) fn run(program: &str, args: &[&std::ffi::OsStr]) {
    let status = Command::new(program).args(args).status().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(status.success(), "{program} {args:?}: {status}");
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A process that maps what it is told to, until it is dropped.
pub(crate) struct Holder {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its own process id, as it sees it.
    pub(crate) own_pid: u32,
}

const HOLDER: &str = r#"
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <unistd.h>

    static void *rest(void *unused) {
        pause();
        return unused;
    }

    /* Commands: a letter, a path, a zero byte. o = dlopen, r = map for reading only, h = allocate 16 MB, t = start a
       thread. Answers with a line. */
    int main(void) {
        char path[4096];
        int length = 0, c;
        printf("%d\n", (int)getpid());
        fflush(stdout);
        while ((c = getchar()) != EOF) {
            path[length++] = c;
            if (c)
                continue;
            length = 0;
            const char *answer = "ok";
            if (path[0] == 'o') {
                if (!dlopen(path + 1, RTLD_NOW))
                    answer = dlerror();
            } else if (path[0] == 'h') {
                memset(malloc(16 << 20), 1, 16 << 20);
            } else if (path[0] == 't') {
                pthread_t thread;
                if (pthread_create(&thread, 0, rest, 0))
                    answer = "cannot start a thread";
            } else {
                int fd = open(path + 1, O_RDONLY);
                struct stat st;
                if (fd < 0 || fstat(fd, &st) || mmap(0, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
                    answer = "cannot map";
            }
            printf("%s\n", answer);
            fflush(stdout);
        }
        return 0;
    }
"#;

/// Compiles the program behind [`Holder`].
pub(crate) fn holder_program(dir: &Path) -> PathBuf {
    let program = dir.join("holder");
    gcc(HOLDER, &program, &["-O1", "-ldl", "-lpthread"]);
    program
}

impl Holder {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let own_pid = answer(&mut output).parse().unwrap();
        Self { child, input, output, own_pid }
    }

    pub(crate) fn in_dir(dir: &Path) -> Self {
        Self::start(&mut Command::new(holder_program(dir)))
    }

    /// The process that was started (`unshare` and the like become the holder by exec).
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tell(&mut self, what: u8, path: &Path) {
        let command = [&[what], path.as_os_str().as_bytes(), &[0]].concat();
        self.input.as_mut().unwrap().write_all(&command).unwrap();
        assert_eq!(answer(&mut self.output), "ok", "{}", path.display());
    }

    pub(crate) fn dlopen(&mut self, path: &Path) {
        self.tell(b'o', path);
    }

    pub(crate) fn map_for_reading(&mut self, path: &Path) {
        self.tell(b'r', path);
    }

    pub(crate) fn allocate(&mut self) {
        self.tell(b'h', Path::new(""));
    }

    pub(crate) fn start_thread(&mut self) {
        self.tell(b't', Path::new(""));
    }

    /// Lets it end, without waiting for it.
    pub(crate) fn end(&mut self) {
        self.input = None;
        // End of output: it has left main.
        let mut rest = String::new();
        let _ = self.output.read_line(&mut rest);
    }

    pub(crate) fn reap(&mut self) {
        self.input = None;
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.reap();
    }
}

fn answer(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// Scans one process.
pub(crate) fn scan(scanner: &mut Scanner, holder: &Holder) -> Scan {
    scanner.scan_these(&[holder.pid()])
}
