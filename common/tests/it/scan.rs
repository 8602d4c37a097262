//! Processes that come, load libraries and go.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ingero_common::discover::{GoneProcess, LibraryKind, Scanner};

use crate::support::{DRIVER, Holder, is_root, library, scan};

#[test]
fn a_late_dlopen_is_found_at_the_next_look_and_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let (driver, runtime) = (dir.path().join("libcuda.so.1"), dir.path().join("renamed.so"));
    library(DRIVER, &driver, &[]);
    library("int cudaMalloc(void) { return 1; }", &runtime, &["-Wl,-soname,libcudart.so.13"]);
    let mut holder = Holder::in_dir(dir.path());
    let mut scanner = Scanner::new();
    assert!(scan(&mut scanner, &holder).appeared.is_empty());

    holder.dlopen(&driver);
    let first = scan(&mut scanner, &holder);
    assert_eq!(first.appeared.len(), 1, "{first:?}");
    let found = &first.appeared[0];
    assert_eq!((found.process.pid, &found.process.comm[..]), (holder.pid(), &b"holder"[..]));
    assert_eq!(found.process.parent_pid, std::process::id());
    assert_eq!(found.process.ns_pid, None);
    assert_eq!(found.process.exe.as_deref(), Some(dir.path().join("holder").as_os_str().as_bytes()));
    let [cuda] = &found.libraries[..] else { panic!("one library: {found:?}") };
    assert_eq!((cuda.kind, &cuda.path[..]), (LibraryKind::Cuda, driver.as_os_str().as_bytes()));
    assert_eq!((cuda.version.as_deref(), cuda.deleted), (Some("1"), false));
    assert_eq!(cuda.open().unwrap().metadata().unwrap().ino(), driver.metadata().unwrap().ino());

    for _ in 0..3 {
        assert!(scan(&mut scanner, &holder).appeared.is_empty(), "reported again");
    }
    holder.dlopen(&runtime);
    let second = scan(&mut scanner, &holder);
    let [runtime] = &second.appeared[0].libraries[..] else { panic!("only the new one: {second:?}") };
    assert_eq!((runtime.kind, runtime.version.as_deref()), (LibraryKind::Cudart, Some("13")));

    let start_ticks = second.appeared[0].process.start_ticks;
    let gone = [GoneProcess { pid: holder.pid(), start_ticks }];
    assert!(scan(&mut scanner, &holder).gone.is_empty());
    // Ended, but not yet waited for by us: no process any more.
    holder.end();
    while scanner.proc().is_alive(holder.pid(), start_ticks) {
        std::thread::yield_now();
    }
    assert_eq!(scan(&mut scanner, &holder).gone, gone);
    holder.reap();
    let after = scan(&mut scanner, &holder);
    assert!(after.gone.is_empty() && after.appeared.is_empty(), "{after:?}");
}

/// Without the sweep, which would find everything sooner or later: maps are read when code was mapped, and only then.
#[test]
fn maps_are_read_when_code_was_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let driver = dir.path().join("libcuda.so.1");
    library(DRIVER, &driver, &[]);
    let mut holder = Holder::in_dir(dir.path());
    let mut scanner = Scanner::new().sweep_for(Duration::ZERO);
    let mut read = |holder: &Holder| {
        let seen = scan(&mut scanner, holder);
        (seen.cost.maps_read, seen.appeared.len())
    };
    assert_eq!(read(&holder), (1, 0));
    assert_eq!(read(&holder), (0, 0));
    holder.allocate();
    assert_eq!(read(&holder), (0, 0), "a heap that grows");
    holder.start_thread();
    holder.map_for_reading(&driver);
    assert_eq!(read(&holder), (0, 0), "a thread's stack and guard, a file mapped for reading");
    holder.dlopen(&driver);
    assert_eq!(read(&holder), (1, 1));
    assert_eq!(read(&holder), (0, 0));
}

#[test]
fn the_sweep_reads_what_seems_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let holders: Vec<Holder> = (0..3).map(|_| Holder::in_dir(dir.path())).collect();
    let pids: Vec<u32> = holders.iter().map(Holder::pid).collect();
    // One at a time, in turn.
    let mut scanner = Scanner::new().sweep_for(Duration::from_nanos(1));
    assert_eq!(scanner.scan_these(&pids).cost.maps_read, 3);
    for _ in 0..6 {
        let cost = scanner.scan_these(&pids).cost;
        assert_eq!((cost.processes, cost.maps_read, cost.files_read), (3, 1, 0));
    }
}

#[test]
fn a_file_mapped_for_reading_is_no_library_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    library(DRIVER, &path, &[]);
    let mut holder = Holder::in_dir(dir.path());
    holder.map_for_reading(&path);
    let mut scanner = Scanner::new();
    assert!(scan(&mut scanner, &holder).appeared.is_empty());
    holder.dlopen(&path);
    assert_eq!(scan(&mut scanner, &holder).appeared.len(), 1);
}

#[test]
fn names_that_try_to_confuse() {
    let dir = tempfile::tempdir().unwrap();
    let names: [&[u8]; 6] = [
        b" lib with  spaces .so",
        b"line\nbreak.so",
        b"literally\\012.so",
        b"both\n\\012.so",
        b"alive (deleted)",
        b"not \xff\xfe utf-8.so",
    ];
    let mut holder = Holder::in_dir(dir.path());
    let mut scanner = Scanner::new();
    // A newline and its escape in one name are ambiguous in maps: only the privileged way finds that file, and the path
    // shown is one of the readings.
    let ambiguous = b"both\n\\012.so";
    for name in names.into_iter().filter(|name| is_root() || name != ambiguous) {
        let path = dir.path().join(OsStr::from_bytes(name));
        library(DRIVER, &dir.path().join("plain.so"), &[]);
        std::fs::rename(dir.path().join("plain.so"), &path).unwrap();
        holder.dlopen(&path);
        let seen = scan(&mut scanner, &holder);
        let [library] = &seen.appeared[0].libraries[..] else { panic!("{path:?}: {seen:?}") };
        if name != ambiguous {
            assert_eq!(OsStr::from_bytes(&library.path), path);
        }
        assert!(!library.deleted, "{path:?}");
        assert_eq!(library.open().unwrap().metadata().unwrap().ino(), path.metadata().unwrap().ino(), "{path:?}");
    }
}

/// What stands at the path of a library that is mapped, after it was unlinked.
fn after_unlinking(replace: impl Fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    library(DRIVER, &path, &[]);
    let inode = path.metadata().unwrap().ino();
    let mut holder = Holder::in_dir(dir.path());
    holder.dlopen(&path);
    std::fs::remove_file(&path).unwrap();
    replace(&path);
    let seen = scan(&mut Scanner::new(), &holder);
    if !is_root() {
        // Only map_files leads to the file, and that needs a capability.
        assert_eq!(seen.cost.unreadable_files, 1, "{seen:?}");
        return;
    }
    let [library] = &seen.appeared[0].libraries[..] else { panic!("{seen:?}") };
    assert!(library.deleted);
    assert_eq!(OsStr::from_bytes(&library.path), path, "without the kernel's mark");
    assert_eq!(library.open().unwrap().metadata().unwrap().ino(), inode);
    assert_eq!(library.opened.inode, inode);
    drop(holder);
    library.open().unwrap_err();
}

#[test]
fn deleted_while_mapped() {
    after_unlinking(|_| {});
}

#[test]
fn upgraded_while_mapped() {
    after_unlinking(|path| library(&format!("{DRIVER} int cuNew(void) {{ return 0; }}"), path, &[]));
}

#[test]
fn replaced_by_a_fifo() {
    after_unlinking(|path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    });
}

/// The path in maps now names another file, character by character.
#[test]
fn another_file_has_the_name_that_marks_a_deleted_one() {
    after_unlinking(|path| {
        let mut name = path.as_os_str().to_owned();
        name.push(" (deleted)");
        library(&format!("{DRIVER} int cuNew(void) {{ return 0; }}"), Path::new(&name), &[]);
    });
}

#[test]
fn a_library_that_changed_since_it_was_found_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libcuda.so.1");
    library(DRIVER, &path, &[]);
    let mut holder = Holder::in_dir(dir.path());
    holder.dlopen(&path);
    let seen = scan(&mut Scanner::new(), &holder);
    let found = &seen.appeared[0].libraries[0];
    std::fs::rename(&path, dir.path().join("kept")).unwrap();
    library(DRIVER, &path, &[]);
    let error = found.open().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
}

#[test]
fn a_process_that_vanishes_in_the_middle_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut scanner = Scanner::new();
    let mut holder = Holder::in_dir(dir.path());
    holder.reap();
    let seen = scan(&mut scanner, &holder);
    assert!(seen.appeared.is_empty() && seen.gone.is_empty());
    assert_eq!((seen.cost.processes, seen.cost.denied, seen.cost.unreadable_files), (1, 0, 0));
}

#[test]
fn the_whole_machine() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("libnccl.so.2");
    library("int ncclAllReduce(void) { return 1; }", &path, &[]);
    let mut holder = Holder::in_dir(dir.path());
    holder.dlopen(&path);
    let seen = Scanner::new().scan().unwrap();
    let own = seen.appeared.iter().find(|found| found.process.pid == holder.pid()).expect("the holder is found");
    assert_eq!(own.libraries[0].kind, LibraryKind::Nccl);
}
