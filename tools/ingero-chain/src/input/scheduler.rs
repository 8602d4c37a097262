//! Records of the scheduler: births and deaths, and times off the CPU.

use ingero_common::host::{InstanceId, OffCpu, Program, Side, State, SwitchedIn, Task, Thread, Wait};
use ingero_common::record::{Record, Who};

use crate::input::ingest::Engine;

impl Engine {
    pub(super) fn sched(&mut self, record: &Record<'_>, start_ns: u64, end_ns: u64) {
        let Some(pid) = record.pid.filter(|&pid| pid != 0) else { return };
        let tid = record.tid.unwrap_or(pid);
        match &*record.op {
            "sched_switch" => self.switch(record, pid, tid, start_ns, end_ns),
            "sched_process_fork" => {
                let parent = Thread { pid, tid, name: self.names.id(&record.comm) };
                match (record.child_pid, record.child_tid) {
                    (Some(child), _) if child != pid => self.tasks.fork(parent, child, start_ns),
                    (_, Some(tid)) => self.tasks.create_thread(Thread { pid, tid, ..parent }, parent, start_ns),
                    _ => {}
                }
            }
            "thread_create" => {
                let Some(child) = record.child_tid else { return };
                let parent = Thread { pid, tid, name: self.names.id(&record.comm) };
                self.tasks.create_thread(Thread { pid, tid: child, ..parent }, parent, start_ns);
            }
            "thread_exit" => self.thread_exit(record, pid, tid, start_ns),
            "sched_process_exit" if tid != pid => self.thread_exit(record, pid, tid, start_ns),
            "sched_process_exit" => {
                if let Some(life) = self.tasks.exit_process(pid, start_ns) {
                    self.over(life);
                }
            }
            "sched_process_exec" => {
                let life = self.tasks.process(pid, start_ns);
                life.name = self.names.id(&record.comm);
                life.exec(start_ns);
                let id = life.id;
                self.over(id);
            }
            _ => {}
        }
    }

    fn thread_exit(&mut self, record: &Record<'_>, pid: u32, tid: u32, at_ns: u64) {
        let this = Thread { pid, tid, name: self.names.id(&record.comm) };
        if let Some(came) = self.tasks.switched_in(pid, tid, at_ns) {
            // It ends while it runs. Who has the CPU then is not on record.
            self.cpu_timeline.switched_out(this, came, at_ns, Thread::default(), at_ns);
        }
        self.tasks.exit_thread(pid, tid, at_ns);
        let Some(life) = self.tasks.find_process(pid, at_ns).map(|life| life.id) else { return };
        if let Some((_, process)) = self.cuda.range_mut(Program::all_of(life)).next_back() {
            process.thread_ended(tid);
        }
    }

    /// The program that ran in this life of a process until now runs no more.
    fn over(&mut self, life: InstanceId) {
        if let Some((_, process)) = self.cuda.range_mut(Program::all_of(life)).next_back() {
            process.over = true;
            process.open.clear();
        }
    }

    fn switch(&mut self, record: &Record<'_>, pid: u32, tid: u32, start_ns: u64, end_ns: u64) {
        let state = State::from_letter(record.state.as_deref());
        let len_ns = end_ns - start_ns;
        let runq_ns = match state {
            State::Preempted => len_ns,
            _ => record.runq_ns.unwrap_or(0).min(len_ns),
        };
        let mut thread = |who: &Option<Who<'_>>| match who {
            Some(who) if who.pid != 0 => Thread { pid: who.pid, tid: who.tid, name: self.names.id(&who.comm) },
            _ => Thread::default(),
        };
        let (by, prev) = (thread(&record.by), thread(&record.prev));
        let idle = |who: &Option<Who<'_>>| who.as_ref().is_some_and(|who| who.pid == 0);
        let party = |who: Thread| Task { pid: who.pid, name: who.name };
        // Who took the CPU of a preempted thread and who held it at the end, who held the one that a woken thread got.
        // Where the latter isn't on record but nearly all of the time was waiting, the one who took the CPU had it.
        let (had_cpu, cpu_was_free) = match state {
            State::Preempted if prev.pid == 0 || by.pid == 0 => ([party(by); 2], idle(&record.by)),
            State::Preempted => ([party(by), party(prev)], false),
            _ if record.prev.is_some() => ([party(prev); 2], false),
            _ if runq_ns * 2 >= len_ns => ([party(by); 2], false),
            _ => ([Task::default(); 2], false),
        };
        let waker = if record.waker_irq { Thread::default() } else { thread(&record.waker) };
        let cpu = record.cpu.filter(|_| !record.open);
        // Of who has slept it is known where it came back. On an idle CPU it waited for nobody there.
        let waited_on = cpu.filter(|_| prev.pid != 0).and_then(|cpu| u16::try_from(cpu).ok());
        let wake_ns = end_ns - runq_ns;
        let wait = Wait::of(record, wake_ns - start_ns, &mut self.names);
        let off = OffCpu { start_ns, wake_ns, end_ns, waker, had_cpu, state, cpu_was_free, waited_on, wait, gil: None };
        if let Some(left) = self.tasks.add_off(pid, tid, off, cpu) {
            let this = Thread { pid, tid, name: self.names.id(&record.comm) };
            if let (Some(came), Some(_)) = (left.switched_in, &record.by) {
                self.cpu_timeline.switched_out(this, came, left.at_ns, by, end_ns);
            }
            if let (Some(cpu), Some(_)) = (cpu, &record.prev) {
                self.cpu_timeline.switched_in(this, SwitchedIn { at_ns: end_ns, cpu }, prev);
            }
            let life = self.tasks.process_over(pid, start_ns, end_ns);
            life.watch_mut(Side::Sched).heard(end_ns);
            if tid == pid {
                life.name = this.name;
            }
            self.stats(record, start_ns, end_ns, |stats| stats.switch(&off));
        }
    }
}
