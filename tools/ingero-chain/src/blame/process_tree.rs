//! Who belongs to a process: itself and its descendants. Others are strangers, and the cure for what they do is another.

use ingero_common::host::TaskTable;

/// A process and what descends from it, during some stretch of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessTree<'a> {
    tasks: &'a TaskTable,
    head: u32,
    from_ns: u64,
    to_ns: u64,
}

impl<'a> ProcessTree<'a> {
    /// The tree of process `head` during [`from_ns`, `to_ns`].
    pub(crate) fn of(tasks: &'a TaskTable, head: u32, from_ns: u64, to_ns: u64) -> Self {
        Self { tasks, head, from_ns, to_ns }
    }

    /// Whether process `pid` belongs to it.
    pub(crate) fn has(&self, pid: u32) -> bool {
        pid == self.head
            || self.tasks.instances(pid).any(|life| {
                let there = life.seen_ns <= self.to_ns && life.died_ns.is_none_or(|died| died >= self.from_ns);
                // A child whose parent has gone is known as one, though not whose.
                let child = life.is_child && self.tasks.ancestors(life).next().is_none();
                there && (child || self.tasks.ancestors(life).any(|ancestor| ancestor.pid == self.head))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ingero_common::host::Thread;

    #[test]
    fn a_tree_is_what_descends_from_its_head_at_that_time() {
        let mut tasks = TaskTable::default();
        let thread = |pid| Thread { pid, tid: pid, ..Thread::default() };
        tasks.process(1, 0);
        tasks.process(9, 0);
        tasks.fork(thread(1), 2, 10);
        tasks.fork(thread(2), 3, 20);
        tasks.fork(thread(9), 4, 20);
        let tree = ProcessTree::of(&tasks, 1, 30, 40);
        assert_eq!([1, 2, 3, 4, 9, 5].map(|pid| tree.has(pid)), [true, true, true, false, false, false]);
        // Who was there before anybody watched is told apart by its parent.
        for (pid, parent_pid) in [(5, 9), (6, 2), (7, 0)] {
            let process = tasks.process(pid, 0);
            (process.is_child, process.parent_pid) = (true, parent_pid);
        }
        assert_eq!([5, 6, 7].map(|pid| ProcessTree::of(&tasks, 1, 30, 40).has(pid)), [false, true, true]);
        // The next process with that number is a stranger.
        tasks.exit_process(3, 50);
        tasks.fork(thread(9), 3, 60);
        assert!(ProcessTree::of(&tasks, 1, 30, 40).has(3));
        assert!(!ProcessTree::of(&tasks, 1, 70, 80).has(3));
    }
}
