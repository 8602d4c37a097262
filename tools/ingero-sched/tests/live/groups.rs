//! Control groups with a limit, in whichever hierarchy this machine has the controller.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A group, removed at the end.
pub(crate) struct Group {
    dir: PathBuf,
    /// The last part of its path.
    pub(crate) name: String,
}

impl Group {
    /// One with so many per cent of one CPU.
    pub(crate) fn of_cpu(pct: u32) -> Self {
        let quota_us = pct * 1000;
        Self::new(
            "cpu",
            &[("cpu.cfs_period_us", "100000".into()), ("cpu.cfs_quota_us", quota_us.to_string())],
            &[("cpu.max", format!("{quota_us} 100000"))],
        )
    }

    /// One with so much memory, and no more of swap.
    pub(crate) fn of_memory(bytes: u64) -> Self {
        let bytes = bytes.to_string();
        Self::new(
            "memory",
            &[("memory.limit_in_bytes", bytes.clone()), ("memory.swappiness", "0".into())],
            &[("memory.max", bytes), ("memory.swap.max", "0".into())],
        )
    }

    fn new(controller: &str, version_1: &[(&str, String)], version_2: &[(&str, String)]) -> Self {
        let name = format!("ingero-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup").join(controller);
        let is_v1 = v1.join("cgroup.clone_children").exists();
        let root = if is_v1 { v1 } else { PathBuf::from("/sys/fs/cgroup") };
        let group = Self { dir: root.join(&name), name };
        if !is_v1 {
            fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))
                .unwrap_or_else(|e| panic!("handing the {controller} controller down: {e}"));
        }
        fs::create_dir(&group.dir).unwrap_or_else(|e| panic!("{}: {e}", group.dir.display()));
        for (file, value) in if is_v1 { version_1 } else { version_2 } {
            let written = fs::write(group.dir.join(file), value);
            // Not every kernel has swap.
            assert!(written.is_ok() || file.contains("swap"), "{file}: {written:?}");
        }
        group
    }

    /// Puts a process into it.
    pub(crate) fn admit(&self, pid: u32) {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its process has ended, but may take a moment to leave.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
