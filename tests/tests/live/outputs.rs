//! `-o FILE`: it belongs to whoever called sudo, is made with their rights, and is never what somebody else has put in its place.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ingero_tests::{Machine, Output, bin_dir, tool};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const UID: u32 = 54_321;
const GID: u32 = 54_322;

/// A tool that writes a little, and ends.
fn writing(name: &str, to: &Path) -> Command {
    let mut command = tool(name);
    command.arg("-o").arg(to);
    match name {
        "ingero-join" => command.arg("/dev/null"),
        _ => command.args(["-d", "100ms", "-q"]),
    };
    command
}

/// The same below sudo.
fn below_sudo(name: &str, to: &Path) -> Command {
    let mut command = writing(name, to);
    command.env("SUDO_UID", UID.to_string()).env("SUDO_GID", GID.to_string());
    command
}

/// A directory with these rights.
fn directory(uid: u32, mode: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
    chown(dir.path(), Some(uid), Some(uid)).unwrap();
    dir
}

#[test]
fn belong_to_whoever_called_sudo() {
    let _machine = Machine::take();
    let own = directory(UID, 0o700);
    // What everybody's processes do is nobody else's business; a report is like any other file.
    for (name, mode) in [("ingero-cuda", 0o600), ("ingero-sched", 0o600), ("ingero-join", 0o644)] {
        let path = own.path().join(name);
        let run = |mut command: Command| {
            Output::of(&mut command).exits(0);
            let made = fs::metadata(&path).unwrap();
            (made.uid(), made.gid(), made.mode() & 0o7777)
        };
        assert_eq!(run(below_sudo(name, &path)), (UID, GID, mode), "{name}");
        // A file that is there keeps its owner and its mode.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(run(below_sudo(name, &path)), (UID, GID, 0o640), "{name}");
        fs::remove_file(&path).unwrap();
        // Root's own shell.
        assert_eq!(run(writing(name, &path)), (0, 0, mode), "{name}");
    }
}

/// Whoever may call these tools by sudo, and nothing else, gains no file by it.
#[test]
fn are_where_the_user_may_write() {
    let _machine = Machine::take();
    let roots = directory(0, 0o755);
    let theirs = directory(UID, 0o755);
    let file = roots.path().join("file");
    fs::write(&file, "root's").unwrap();
    symlink(&file, theirs.path().join("link")).unwrap();
    for name in ["ingero-cuda", "ingero-sched", "ingero-join"] {
        for path in [file.clone(), roots.path().join("new"), theirs.path().join("link")] {
            let out = Output::of(&mut below_sudo(name, &path)).exits(2);
            out.says_in_one_line(&[name, path.to_str().unwrap(), "denied", "54321", "sudo"]);
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "root's");
    assert_eq!(fs::read_dir(roots.path()).unwrap().count(), 1);
    // Root's groups are not the user's: a file that is only writable for group root.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
    Output::of(&mut below_sudo("ingero-cuda", &file)).exits(2).says_in_one_line(&["denied"]);
}

/// What `stranger` has put under the name that we are given, in a directory that everybody may write to.
fn traps(public: &Path, victim: &Path) -> [(PathBuf, &'static str); 4] {
    let link = public.join("link");
    symlink(victim, &link).unwrap();
    let file = public.join("file");
    fs::write(&file, "theirs").unwrap();
    let directory = public.join("directory");
    symlink(victim.parent().unwrap(), &directory).unwrap();
    let fifo = public.join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    for path in [&link, &file, &directory, &fifo] {
        lchown(path, Some(UID), Some(UID)).unwrap();
    }
    let victim = directory.join(victim.file_name().unwrap());
    [(link, "symbolic link"), (file, "file"), (victim, "symbolic link"), (fifo, "file")]
}

#[test]
fn are_not_what_a_stranger_has_put_there() {
    let _machine = Machine::take();
    for mode in [0o1777, 0o777] {
        let (public, private) = (directory(0, mode), directory(0, 0o755));
        let victim = private.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let traps = traps(public.path(), &victim);
        for name in ["ingero-cuda", "ingero-sched", "ingero-join"] {
            for (path, what) in &traps {
                // A FIFO is refused when there is a reader; before that there is nothing to write to.
                let reader =
                    path.ends_with("fifo").then(|| fs::File::options().read(true).write(true).open(path).unwrap());
                let out = Output::of(&mut writing(name, path)).exits(2);
                out.says_in_one_line(&[name, path.to_str().unwrap(), what, "54321", "everybody"]);
                drop(reader);
            }
            let second = public.path().join("second name");
            fs::hard_link(&victim, &second).unwrap();
            Output::of(&mut writing(name, &second)).exits(2).says_in_one_line(&[name, "second name", "everybody"]);
            fs::remove_file(second).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            assert_eq!(fs::read_to_string(public.path().join("file")).unwrap(), "theirs");
            // What is ours, or not there, is written there as anywhere else.
            let new = public.path().join(name);
            for _ in 0..2 {
                Output::of(&mut writing(name, &new)).exits(0);
            }
        }
    }
}

/// What is no file is written to as ever, below sudo too.
#[test]
fn may_be_devices_and_pipes() {
    let _machine = Machine::take();
    for name in ["ingero-cuda", "ingero-sched"] {
        Output::of(&mut below_sudo(name, Path::new("/dev/null"))).exits(0);
        // The pipe is root's.
        for path in ["/dev/stdout", "/dev/fd/1", "-"] {
            let out = Output::of(&mut below_sudo(name, Path::new(path))).exits(0);
            out.records().only("ingero", "end");
        }
        let script = format!("{name} -q -d 100ms -o >(cat >&3); wait $!");
        let mut bash = Command::new("bash");
        bash.args(["-c", &format!("exec 3>&1; {script}")]);
        bash.env("PATH", format!("{}:{}", bin_dir().display(), std::env::var("PATH").unwrap()));
        Output::of(&mut bash).exits(0).records().only("ingero", "end");
    }
}
