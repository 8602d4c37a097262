//! The small C programs that tests watch.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Compiles `sources`, which lie in `directory`, with these further arguments, unless `output` is there and newer than all
/// that lies in the directory.
///
/// Where there are no sources there is no compiler either: in a guest of the kernel matrix, which got the output.
#[track_caller]
pub fn compiled(
    directory: &Path,
    sources: &[&str],
    output: PathBuf,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> PathBuf {
    let up_to_date = written(&output).is_some_and(|output| newest(directory).is_none_or(|source| output > source));
    if !up_to_date {
        std::fs::create_dir_all(output.parent().unwrap()).unwrap();
        // As long as it is not complete, no other test program takes it for the output.
        let part = output.with_extension(std::process::id().to_string());
        let mut cc = Command::new("cc");
        cc.current_dir(directory).args(["-Wall", "-o"]).arg(&part).args(sources).args(arguments);
        let done = cc.output().unwrap_or_else(|e| panic!("{cc:?}: {e}; install a C compiler"));
        assert!(done.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&done.stderr));
        std::fs::rename(&part, &output).unwrap();
    }
    output
}

fn written(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

fn newest(directory: &Path) -> Option<SystemTime> {
    std::fs::read_dir(directory).ok()?.flatten().filter_map(|entry| written(&entry.path())).max()
}
