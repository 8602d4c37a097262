//! `sudo ingero-cuda -- COMMAND`: the command is the user's again in every respect, and nothing that the user controls runs as
//! root or is asked by root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ingero_tests::{Machine, Output, bin, compiled, in_mounts, repository};

/// An account that only the mounts of these tests know, with two supplementary groups.
const UID: u32 = 54_321;
const GID: u32 = 54_322;
const ACCOUNT: &str = "ingero-user:x:54321:54322::/home/ingero-user:/bin/sh\n";
const GROUPS: &str = "ingero-own:x:54322:\ningero-gpu:x:54323:ingero-user\ningero-more:x:54324:other,ingero-user\n";

/// A user, with a directory `bin` that comes first in their PATH.
struct User {
    place: tempfile::TempDir,
    sudo: PathBuf,
    preload: PathBuf,
}

impl User {
    fn new() -> Self {
        let sources = repository().join("tests/sudo");
        let out = bin("ingero-cuda").parent().unwrap().join("sudo");
        let sudo = compiled(&sources, &["sudo.c"], out.join("sudo"), ["-static"]);
        let library = compiled(&sources, &["preload.c"], out.join("preload.so"), ["-shared", "-fPIC"]);
        let place = tempfile::tempdir().unwrap();
        let preload = place.path().join("preload.so");
        fs::copy(library, &preload).unwrap();
        fs::create_dir(place.path().join("bin")).unwrap();
        fs::write(place.path().join("log"), "").unwrap();
        for (path, mode) in [("", 0o755), ("bin", 0o755), ("preload.so", 0o755), ("log", 0o666)] {
            fs::set_permissions(place.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        let etc = |name: &str, more: &str| {
            fs::write(place.path().join(name), fs::read_to_string(Path::new("/etc").join(name)).unwrap() + more)
                .unwrap();
        };
        etc("passwd", ACCOUNT);
        etc("group", GROUPS);
        Self { place, sudo, preload }
    }

    /// Puts a program into the user's `bin`.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.place.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// `sudo ingero-cuda -- COMMAND`, called by the user.
    fn sudo(&self, command: &[&str]) -> Output {
        let tracer = bin("ingero-cuda").display().to_string();
        self.sudo_with(&[&tracer, "-q", "-o", "/dev/null", "--"], command)
    }

    /// `sudo TRACER COMMAND`.
    fn sudo_with(&self, tracer: &[&str], command: &[&str]) -> Output {
        let own = self.place.path().display().to_string();
        let mut sudo = Command::new(&self.sudo);
        sudo.args([UID.to_string(), GID.to_string()]).args(tracer).args(command);
        let script = format!(
            "mount --bind {own}/passwd /etc/passwd && mount --bind {own}/group /etc/group && cd {own}/bin && \
             export PRELOAD_LOG={own}/log PATH={own}/bin:/usr/bin:/bin HOME={own} MINE='a=b c' LD_PRELOAD={}",
            self.preload.display()
        );
        // What comes before sudo is the user's shell. It runs as root here only for want of a setuid sudo, so it loads the
        // user's library as root, which does not count.
        let mut command = in_mounts(&script, &sudo);
        command.env_remove("SUDO_UID").env_remove("SUDO_GID");
        Output::of(&mut command)
    }

    /// What the user's library and programs have noted.
    fn log(&self) -> String {
        fs::read_to_string(self.place.path().join("log")).unwrap()
    }
}

/// The user's PATH has a `setpriv` and their environment a library to load. Neither may ever run as root.
#[test]
fn nothing_of_the_users_runs_as_root() {
    let _machine = Machine::take();
    let user = User::new();
    for name in ["setpriv", "sudo", "sh", "id", "env", "su", "runuser"] {
        user.program(name, "echo program $(/usr/bin/id -u) 0 >>\"$PRELOAD_LOG\"");
    }
    user.program("mine", "echo program $(/usr/bin/id -u) 0 >>\"$PRELOAD_LOG\"; exit 5");
    user.sudo(&["mine"]).exits(5);
    let log = user.log();
    assert!(log.contains(&format!("program {UID} ")) && log.contains(&format!("preload {UID} {GID}\n")), "{log}");
    assert!(!log.lines().any(|line| line.split(' ').nth(1) == Some("0")), "{log}");
}

#[test]
fn the_command_is_the_users_in_every_respect() {
    let _machine = Machine::take();
    let user = User::new();
    user.program("mine", "cat /proc/self/status; echo cwd $(pwd); env; ls -l /proc/$$/fd; exit 3");
    let out = user.sudo(&["mine"]).exits(3);
    let said = out.text();
    let own = user.place.path().display().to_string();
    for line in [
        format!("Uid:\t{UID}\t{UID}\t{UID}\t{UID}"),
        format!("Gid:\t{GID}\t{GID}\t{GID}\t{GID}"),
        "Groups:\t54322 54323 54324 ".to_owned(),
        "CapInh:\t0000000000000000".to_owned(),
        "CapPrm:\t0000000000000000".to_owned(),
        "CapEff:\t0000000000000000".to_owned(),
        "CapAmb:\t0000000000000000".to_owned(),
        format!("cwd {own}/bin"),
        "MINE=a=b c".to_owned(),
        format!("HOME={own}"),
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n{out}");
    }
    assert!(said.lines().any(|line| line.starts_with(&format!("PATH={own}/bin:"))), "{out}");
    assert!(!said.contains("SUDO_"), "{out}");
    // Nothing that root has opened, beside what sudo itself passes on: the same numbers as without the tracer.
    let open = |out: &Output| -> Vec<String> {
        let text = out.text();
        let links = text.lines().filter_map(|line| line.split_once(" -> "));
        links.map(|(before, _)| before.rsplit(' ').next().unwrap().to_owned()).collect()
    };
    let untraced = user.sudo_with(&[], &[&user.place.path().join("bin/mine").display().to_string()]).exits(3);
    assert_eq!(open(&out), open(&untraced), "{out}\n{untraced}");
}

/// What the user may not run is not run, though root might.
#[test]
fn what_cannot_be_run_gives_the_status_that_a_shell_gives() {
    let _machine = Machine::take();
    let user = User::new();
    let plain = user.program("plain", "exit 0");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    let secret = user.program("secret", "exit 0");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).unwrap();
    for (command, status, words) in [
        ("nonexistent-program", 127, ["'nonexistent-program'", "PATH"]),
        ("plain", 126, ["'plain'", "executable"]),
        ("secret", 126, ["'secret'", "executable"]),
        ("/", 126, ["'/'", "executable"]),
    ] {
        user.sudo(&[command]).exits(status).says_in_one_line(&words);
    }
    for (script, status) in [("exit 0", 0), ("exit 42", 42), ("kill -KILL $$", 128 + 9)] {
        user.sudo(&["sh", "-c", script]).exits(status);
    }
}

/// A `sudo` by name that is not root's, and an id that is root's, change nothing.
#[test]
fn who_calls_is_taken_from_sudo_alone() {
    let _machine = Machine::take();
    for (uid, gid, expected) in
        [("0", "0", "0"), ("x", "1", "0"), ("4294967295", "1", "0"), ("65534", "65534", "65534")]
    {
        let mut command = Command::new(bin("ingero-cuda"));
        command.args(["-q", "-o", "/dev/null", "--", "id", "-u"]).env("SUDO_UID", uid).env("SUDO_GID", gid);
        let out = Output::of(&mut command).exits(0);
        assert_eq!(out.text().trim(), expected, "{uid}:{gid}\n{out}");
    }
}
