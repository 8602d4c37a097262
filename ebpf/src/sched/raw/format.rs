//! Where the fields of the kernel's trace events are, by its own `format` files in tracefs.
//!
//! ```text
//! field:pid_t prev_pid;   offset:24;   size:4;   signed:1;
//!       ----------------         --         -
//!       the name is the last word, without [16]
//! ```
//!
//! The layouts differ between kernels: PREEMPT_RT ones have further common fields in front, and fields come and go. So nothing
//! is taken for granted but names and sizes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::load::StartError;

/// The fields that `bpf/sched_raw.bpf.c` reads: the program's global, the trace event, the field, its size in bytes.
const FIELDS: [(&str, &str, &str, u16); 14] = [
    ("at_switch_prev", "sched/sched_switch", "prev_pid", 4),
    ("at_switch_state", "sched/sched_switch", "prev_state", 8),
    ("at_switch_next", "sched/sched_switch", "next_pid", 4),
    ("at_switch_next_comm", "sched/sched_switch", "next_comm", 16),
    ("at_waking_tid", "sched/sched_waking", "pid", 4),
    ("at_wakeup_tid", "sched/sched_wakeup", "pid", 4),
    ("at_wakeup_new_tid", "sched/sched_wakeup_new", "pid", 4),
    ("at_newtask_tid", "task/task_newtask", "pid", 4),
    ("at_newtask_comm", "task/task_newtask", "comm", 16),
    ("at_newtask_flags", "task/task_newtask", "clone_flags", 8),
    ("at_exec_filename", "sched/sched_process_exec", "filename", 4),
    ("at_exec_old_tid", "sched/sched_process_exec", "old_pid", 4),
    ("at_alloc_frame", "kmem/mm_page_alloc", "pfn", 8),
    ("at_alloc_order", "kmem/mm_page_alloc", "order", 4),
];
/// One that only newer kernels have.
const LAST_OF_PROCESS: (&str, &str, &str, u16) = ("at_exit_last", "sched/sched_process_exit", "group_dead", 1);

/// The offsets of this kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formats {
    /// Globals of the program and their values, bytes.
    pub(super) offsets: Vec<(&'static str, u16)>,
}

impl Formats {
    /// Reads the format files.
    ///
    /// # Errors
    /// When tracefs is not mounted, or an event has not the fields that it should have.
    pub fn of_this_kernel() -> Result<Self, StartError> {
        let events = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"]
            .iter()
            .map(PathBuf::from)
            .find(|events| events.join("sched").is_dir())
            .ok_or(StartError::NoFormats)?;
        Self::read(|event| read(&events, event))
    }

    fn read(text: impl Fn(&str) -> Result<String, StartError>) -> Result<Self, StartError> {
        let mut offsets = Vec::new();
        for (global, event, name, size) in FIELDS {
            let offset = offset(&text(event)?, name, size)
                .ok_or_else(|| StartError::OddFormat { event: event.to_owned(), field: name })?;
            offsets.push((global, offset));
        }
        let (global, event, name, size) = LAST_OF_PROCESS;
        offsets.push((global, offset(&text(event)?, name, size).unwrap_or(0)));
        Ok(Self { offsets })
    }
}

fn read(events: &Path, event: &str) -> Result<String, StartError> {
    let path = events.join(event).join("format");
    fs::read_to_string(&path).map_err(|e| StartError::refused(format!("reading {}", path.display()), &e))
}

/// Where the field of this name and size is, in the text of a format file.
fn offset(text: &str, name: &str, size: u16) -> Option<u16> {
    text.lines().filter_map(field).find(|field| field.name == name && field.size == size).map(|field| field.offset)
}

struct Field<'a> {
    name: &'a str,
    offset: u16,
    size: u16,
}

fn field(line: &str) -> Option<Field<'_>> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.rsplit([' ', '\t', '*']).next()?.split('[').next()?;
    let mut number = |key: &str| parts.next()?.strip_prefix(key)?.parse().ok();
    Some(Field { name, offset: number("offset:")?, size: number("size:")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file of an event as this kernel has it.
    fn fixture(event: &str, kernel: &str) -> String {
        let name = format!("src/sched/raw/formats/{}-{kernel}", event.rsplit('/').next().unwrap());
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    #[test]
    fn both_layouts_of_a_switch() {
        let names = [("prev_pid", 4), ("prev_state", 8), ("next_pid", 4), ("next_comm", 16)];
        let at = |kernel| names.map(|(name, size)| offset(&fixture("sched_switch", kernel), name, size).unwrap());
        assert_eq!(at("6.18"), [24, 32, 56, 40]);
        assert_eq!(at("rt"), [28, 40, 64, 48], "with two more fields that all events have");
    }

    #[test]
    fn fields_that_came_and_went() {
        for kernel in ["6.18", "success"] {
            assert_eq!(offset(&fixture("sched_wakeup", kernel), "pid", 4), Some(24), "{kernel}");
        }
        assert_eq!(offset(&fixture("sched_process_exit", "6.18"), "group_dead", 1), Some(32));
        assert_eq!(offset(&fixture("sched_process_exit", "6.1"), "group_dead", 1), None);
        for kernel in ["6.18", "5.15"] {
            assert_eq!(offset(&fixture("mm_page_alloc", kernel), "order", 4), Some(16), "{kernel}");
        }
        let exec = fixture("sched_process_exec", "6.18");
        assert_eq!((offset(&exec, "filename", 4), offset(&exec, "old_pid", 4)), (Some(8), Some(16)));
    }

    #[test]
    fn a_field_of_another_size_is_another_field() {
        assert_eq!(offset(&fixture("sched_switch", "6.18"), "prev_state", 4), None);
        assert_eq!(offset("field:int;\toffset:x;\tsize:4;", "int", 4), None);
        assert_eq!(offset("", "pid", 4), None);
        // A pointer's name is behind the star, and numbers may be too large.
        assert_eq!(offset("\tfield:void *caller;\toffset:16;\tsize:8;\tsigned:0;", "caller", 8), Some(16));
        assert_eq!(offset("\tfield:int x;\toffset:70000;\tsize:4;\tsigned:0;", "x", 4), None);
    }

    #[test]
    fn all_offsets_or_an_error_that_names_the_field() {
        let of = |exit: &'static str| {
            Formats::read(move |event| {
                let event = event.rsplit('/').next().unwrap();
                Ok(match event {
                    "sched_waking" | "sched_wakeup_new" => fixture("sched_wakeup", "6.18"),
                    "sched_process_exit" => fixture(event, exit),
                    event => fixture(event, "6.18"),
                })
            })
            .unwrap()
            .offsets
        };
        let newest = of("6.18");
        assert_eq!(newest.len(), 15);
        assert!(newest.contains(&("at_newtask_flags", 32)) && newest.contains(&("at_exit_last", 32)));
        assert!(of("6.1").contains(&("at_exit_last", 0)));

        let error = Formats::read(|_| Ok(fixture("sched_wakeup", "6.18"))).unwrap_err().to_string();
        assert!(error.contains("sched_switch") && error.contains("prev_pid"), "{error}");
    }
}
