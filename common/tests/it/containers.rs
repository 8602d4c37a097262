//! Processes in mount and PID namespaces of their own. Making those needs root; without it these tests say so and pass.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use ingero_common::discover::{Library, Scanner};

use crate::support::{DRIVER, Holder, holder_program, is_root, library, scan};

/// Starts the holder after `setup` was run by a shell in a new mount namespace.
fn holder_in_namespace(dir: &Path, flags: &[&str], setup: &str) -> Holder {
    let script = format!("set -e; cd '{}'; {setup}; exec ./holder", dir.display());
    Holder::start(Command::new("unshare").args(flags).args(["sh", "-c", &script]))
}

fn only_library(scanner: &mut Scanner, holder: &Holder) -> Library {
    let seen = scan(scanner, holder);
    let [found] = &seen.appeared[..] else { panic!("{seen:?}") };
    let [library] = &found.libraries[..] else { panic!("{found:?}") };
    library.clone()
}

fn needs_root() -> bool {
    if !is_root() {
        eprintln!("not root: mount namespaces are not tested");
    }
    !is_root()
}

#[test]
fn a_library_on_a_mount_that_we_do_not_have() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    holder_program(dir.path());
    library(DRIVER, &dir.path().join("libcuda.so.1"), &[]);
    std::fs::create_dir(dir.path().join("private")).unwrap();
    let setup = "mount -t tmpfs none private; cp libcuda.so.1 private/";
    let mut holder = holder_in_namespace(dir.path(), &["-m"], setup);
    let path = dir.path().join("private/libcuda.so.1");
    holder.dlopen(&path);
    assert!(!path.exists(), "not in our namespace");
    let found = only_library(&mut Scanner::new(), &holder);
    assert!(found.open_path.starts_with(format!("/proc/{}/root", holder.pid())), "{}", found.open_path.display());
    found.open().unwrap();
}

#[test]
fn one_image_layer_in_two_containers_is_one_file() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    holder_program(dir.path());
    library(DRIVER, &dir.path().join("libcuda.so.1"), &[]);
    for name in ["layer", "merged"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    std::fs::rename(dir.path().join("libcuda.so.1"), dir.path().join("layer/libcuda.so.1")).unwrap();
    // An upper directory of its own for each container, on a tmpfs of its own.
    let setup = |copy_up: &str| {
        format!(
            "mkdir -p scratch; mount -t tmpfs none scratch; mkdir scratch/up scratch/work; \
             mount -t overlay none -o lowerdir=layer,upperdir=scratch/up,workdir=scratch/work merged; {copy_up}"
        )
    };
    let path = dir.path().join("merged/libcuda.so.1");
    let mut scanner = Scanner::new();
    let start = |copy_up: &str| {
        let mut holder = holder_in_namespace(dir.path(), &["-m"], &setup(copy_up));
        holder.dlopen(&path);
        let pid = [holder.pid()];
        (holder, pid)
    };
    let (first, _) = start(":");
    let (second, _) = start(":");
    let (changed, _) = start("chown 1:1 merged/libcuda.so.1");
    let seen = scanner.scan_these(&[first.pid(), second.pid(), changed.pid()]);
    let of = |holder: &Holder| {
        let found = seen.appeared.iter().find(|found| found.process.pid == holder.pid()).unwrap();
        found.libraries[0].clone()
    };
    let (first, second, changed) = (of(&first), of(&second), of(&changed));
    assert_ne!(first.opened, second.opened, "two overlays show two files");
    assert_eq!(first.id, second.id, "of which a probe sees one");
    assert_ne!(first.id, changed.id, "a copy made in a container's own layer is another");
    for library in [&first, &second, &changed] {
        let opened = library.open().unwrap().metadata().unwrap();
        assert_eq!((opened.dev(), opened.ino()), (library.opened.dev, library.opened.inode));
    }
}

#[test]
fn the_process_id_inside_its_own_namespace() {
    if needs_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    holder_program(dir.path());
    let path = dir.path().join("libcuda.so.1");
    library(DRIVER, &path, &[]);
    let mut holder = holder_in_namespace(dir.path(), &["-p", "-f", "--kill-child"], ":");
    assert_eq!(holder.own_pid, 1);
    holder.dlopen(&path);
    // `unshare -f` stays as the parent.
    let mut scanner = Scanner::new();
    let inner = scanner.proc().descendants(&[holder.pid()]).unwrap();
    let seen = scanner.scan_these(&inner);
    let [found] = &seen.appeared[..] else { panic!("{seen:?}") };
    assert_eq!((found.process.pid, found.process.ns_pid), (inner[0], Some(1)));
}
