"""A small machine: CPUs with run queues, threads, wake-ups, bandwidth quotas.

Nothing here knows of CUDA, records or causes. The machine only keeps what is
needed to say afterwards, for each thread and each nanosecond, what it was
doing, and for each sleep who ended it.

A thread is a generator. What it yields takes time; what it calls does not:

    def loader(th):
        while True:
            item = yield ("get", tasks)     # asleep (S) until somebody puts
            yield ("io", 4_000_000)         # 4 ms in D, an interrupt ends it
            yield ("run", 1_000_000)        # 1 ms of CPU time, however long that takes
            th.sim.put(results, item, th)   # wakes whoever waits in results

With two CPUs and three runnable threads the 1 ms of CPU time may take 3 ms:
the rest is in `th.segs` as "rq" (waiting in the run queue of a CPU).

Worked example, one CPU, threads A and B, slice 3 ms, both want 5 ms at 0:

    CPU   A A A B B B A A B B         A.segs  run 0-3  rq 3-6  run 6-8
    ms    0     3     6   8   10      B.segs  rq 0-3  run 3-6  rq 6-8  run 8-10
"""

import heapq
from collections import deque

RUN, RQ, QUOTA, SLEEP, DISK = "run", "rq", "quota", "S", "D"


class Seg:
    """One stretch of a thread's life in one state: [start, end)."""

    __slots__ = ("start", "end", "kind", "cpu", "waker", "off", "born", "timed")

    def __init__(self, start, kind, cpu=None, off=None):
        self.start, self.end, self.kind, self.cpu, self.off = start, None, kind, cpu, off
        self.waker = None  # the thread that ended a sleep; None: a timer or an interrupt
        self.born = False  # the wait of a new thread for its first CPU
        self.timed = False  # a wait with a time-out, which may end it


class Off:
    """One time off the CPU, as a scheduler tracer can see it."""

    __slots__ = ("thread", "start", "end", "state", "by", "prev", "waker", "woken", "cpu", "irq_on", "born")

    def __init__(self, thread, start, state, by):
        self.thread, self.start, self.state, self.by = thread, start, state, by
        self.end = self.prev = self.waker = self.woken = self.cpu = self.irq_on = None
        self.born = False  # a new thread's wait for its first CPU


class Process:
    def __init__(self, sim, pid, comm, parent=None):
        self.sim, self.pid, self.comm, self.parent = sim, pid, comm, parent
        self.threads, self.born, self.died = [], sim.now, None
        self.cgroup = None
        self.execs = []  # when it became another program

    def thread(self, script, comm=None, creator=None, allowed=None, tid=None):
        th = Thread(self, tid or self.sim.new_tid(self), comm or self.comm, creator, allowed)
        self.threads.append(th)
        th.gen = script(th)
        self.sim.begin(th)
        return th


class Thread:
    def __init__(self, proc, tid, comm, creator, allowed):
        self.proc, self.sim, self.tid, self.comm = proc, proc.sim, tid, comm
        self.creator, self.allowed = creator, allowed
        self.born, self.died = self.sim.now, None
        self.segs, self.offs, self.joiners = [], [], []
        self.need = 0  # CPU time still wanted by the current "run"
        self.run_from = 0  # since when `need` has been counting down
        self.cpu = None  # where it runs or waits
        self.on, self.first_on = False, None
        self.off = None
        self.reply = None  # what the generator gets from its last yield
        self.gen = None
        self.wait_token = 0

    def ident(self):
        return (self.proc.pid, self.tid, self.comm)

    def seg(self, kind, cpu=None):
        now = self.sim.now
        if self.segs and self.segs[-1].end is None:
            last = self.segs[-1]
            if last.start == now and last.kind != SLEEP:
                self.segs.pop()
            else:
                last.end = now
        self.segs.append(Seg(now, kind, cpu, self.off))
        return self.segs[-1]


class Cgroup:
    """A CPU bandwidth limit: `quota_ns` of CPU time for all its threads each `period_ns`."""

    def __init__(self, name, quota_ns, period_ns=100_000_000):
        self.name, self.quota_ns, self.period_ns = name, quota_ns, period_ns
        self.left, self.since, self.running, self.token = quota_ns, 0, 0, 0
        self.throttled, self.parked, self.stopped_at = False, [], 0
        self.procs = []
        self.log = []  # (time, 1 when throttling began | 0 when it ended)


class Cpu:
    def __init__(self, index):
        self.index, self.cur, self.rq, self.token = index, None, deque(), 0
        self.slice_end, self.on_since = 0, 0
        self.hist = []  # [start, end, thread], idle left out

    def idle(self):
        return (0, 0, f"swapper/{self.index}")


class Queue:
    """An unbounded queue, also a semaphore or a mailbox: put never blocks."""

    def __init__(self, items=()):
        self.items, self.waiters = deque(items), deque()


class Sim:
    def __init__(self, ncpu, rng, slice_ns=3_000_000, wake_preempt=0.3):
        self.now, self.rng, self.slice_ns, self.wake_preempt = 0, rng, slice_ns, wake_preempt
        self.cpus = [Cpu(i) for i in range(ncpu)]
        self.events, self.seq = [], 0
        self.procs, self.cgroups, self.life = [], [], []
        self.free_pids = []
        self.next_id = 100
        self.halted = False

    # ---- time

    def halt(self):
        """The simulation ends now, before its time."""
        self.halted = True

    def at(self, time, fn, *args):
        self.seq += 1
        heapq.heappush(self.events, (time, self.seq, fn, args))

    def run_until(self, end):
        while self.events and self.events[0][0] <= end and not self.halted:
            self.now, _, fn, args = heapq.heappop(self.events)
            fn(*args)
        end = self.now = self.now if self.halted else end
        for cpu in self.cpus:
            if cpu.cur:
                cpu.hist.append([cpu.on_since, end, cpu.cur])
        for proc in self.procs:
            for th in proc.threads:
                if th.died is None and th.segs:
                    th.segs[-1].end = end

    # ---- identity

    def new_pid(self):
        """A PID: sometimes one that a dead process had, as on a machine with a small pid_max."""
        if self.free_pids and self.rng.random() < 0.7:
            return self.free_pids.pop(0)
        return self._fresh()

    def _fresh(self):
        self.next_id += self.rng.randint(1, 3)
        return self.next_id

    def new_tid(self, proc):
        return self._fresh() if proc.threads else proc.pid

    def process(self, comm, parent=None, pid=None):
        if pid in self.free_pids:
            self.free_pids.remove(pid)
        proc = Process(self, pid or self.new_pid(), comm, parent.proc if parent else None)
        self.procs.append(proc)
        if parent:
            self.life.append((self.now, "fork", parent, proc))
            if parent.proc.cgroup:
                self.join_cgroup(proc, parent.proc.cgroup)
        return proc

    # ---- threads

    def begin(self, th):
        if th.creator is not None and th.creator.proc is th.proc:
            self.life.append((self.now, "thread", th.creator, th))
        if th.creator is not None:
            th.off = Off(th, self.now, "R", None)
            th.off.born, th.off.waker, th.off.woken = True, th.creator, self.now
        self.place(th, th.creator)
        th.segs[-1].born = True

    def exit_thread(self, th):
        """The running thread ends; those who wait for it are woken by it."""
        th.segs[-1].end = th.died = self.now
        last = all(t.died is not None for t in th.proc.threads)
        if last:
            th.proc.died = self.now
            self.free_pids.append(th.proc.pid)
        self.life.append((self.now, "exit" if last else "thread_exit", th, th.proc))
        for waiter in [w for w in th.joiners if w.died is None]:
            self.wake(waiter, th)
        self.leave(th, None)

    def kill(self, proc):
        """The process ends (exit_group, a signal): all its threads at this instant."""
        for th in [t for t in proc.threads if t.died is None]:
            th.segs[-1].end = th.died = self.now
            th.wait_token += 1
            if th.on:
                cpu = self.cpus[th.cpu]
                self.stop(th)
                self.at(self.now, self.resched, cpu)
            for cpu in self.cpus:
                if th in cpu.rq:
                    cpu.rq.remove(th)
            if proc.cgroup and th in proc.cgroup.parked:
                proc.cgroup.parked.remove(th)
        proc.died = self.now
        self.free_pids.append(proc.pid)
        self.life.append((self.now, "exit", proc.threads[0], proc))

    def advance(self, th):
        """The current operation of a running thread is over: go on until one takes time."""
        cpu = self.cpus[th.cpu]
        while True:
            try:
                op, arg = th.gen.send(th.reply)
            except StopIteration:
                self.exit_thread(th)
                return
            th.reply = None
            if op == "run":
                th.need, th.run_from = int(arg), self.now
                if th.need > 0:
                    self.arm(cpu)
                    return
            elif op in ("sleep", "io"):
                th.wait_token += 1
                self.leave(th, SLEEP if op == "sleep" else DISK)
                self.at(self.now + max(1, int(arg)), self.timer, th, th.wait_token)
                return
            elif op == "get":
                if arg.items:
                    th.reply = arg.items.popleft()
                    continue
                arg.waiters.append(th)
                self.leave(th, SLEEP)
                return
            elif op == "get_for":  # with a time-out: None when it is over
                queue, ns = arg
                if queue.items:
                    th.reply = queue.items.popleft()
                    continue
                queue.waiters.append(th)
                th.wait_token += 1
                self.leave(th, SLEEP)
                th.segs[-1].timed = True
                self.at(self.now + ns, self.timer, th, th.wait_token, queue)
                return
            elif op == "join":
                if arg.died is not None:
                    continue
                arg.joiners.append(th)
                self.leave(th, SLEEP)
                return
            elif op == "hang":
                self.leave(th, SLEEP)
                return
            else:
                raise ValueError(op)

    def put(self, queue, item, by):
        """`by` (a running thread, or None for an interrupt) puts an item and wakes a waiter."""
        while queue.waiters:
            th = queue.waiters.popleft()
            if th.died is None:
                th.reply = item
                th.wait_token += 1
                self.wake(th, by)
                return
        queue.items.append(item)

    def timer(self, th, token, queue=None):
        if th.wait_token == token and th.died is None:
            if queue is not None:
                queue.waiters.remove(th)
            self.wake(th, None)

    # ---- run queues

    def wake(self, th, waker):
        th.segs[-1].waker = waker
        th.off.waker, th.off.woken = waker, self.now
        self.place(th, waker)

    def allowed(self, th):
        return th.allowed if th.allowed is not None else range(len(self.cpus))

    def place(self, th, waker):
        group = th.proc.cgroup
        cpus = [self.cpus[i] for i in self.allowed(th)]
        if group and group.throttled:
            th.cpu = th.cpu if th.cpu is not None else cpus[0].index
            th.seg(QUOTA, th.cpu)
            group.parked.append(th)
            return
        if th.off and waker is None:
            th.off.irq_on = self.cpus[th.cpu].cur
        idle = [c for c in cpus if c.cur is None and not c.rq]
        last = [c for c in idle if c.index == th.cpu]
        if idle:
            cpu = last[0] if last else self.rng.choice(idle)
            self.enqueue(th, cpu)
            self.at(self.now + self.rng.randint(800, 9000), self.resched, cpu)
            return
        home = [c for c in cpus if c.index == th.cpu]
        cpu = home[0] if home and self.rng.random() < 0.6 else min(cpus, key=lambda c: len(c.rq))
        self.enqueue(th, cpu)
        cur = cpu.cur
        if cur and self.now - cpu.on_since > 500_000 and self.rng.random() < self.wake_preempt:
            self.at(self.now + self.rng.randint(500, 3000), self.preempt, cpu, cur)
        self.arm(cpu)

    def enqueue(self, th, cpu, front=False):
        th.cpu = cpu.index
        th.seg(RQ, cpu.index)
        (cpu.rq.appendleft if front else cpu.rq.append)(th)

    def resched(self, cpu):
        if cpu.cur is None:
            self.switch(cpu, cpu.idle())

    def preempt(self, cpu, cur):
        """The scheduler takes the CPU from `cur`, if it still has it and somebody waits."""
        if cpu.cur is cur and cpu.rq:
            self.stop(cur)
            first = cpu.rq.pop() if len(cpu.rq) > 1 else cpu.rq.popleft()
            cpu.rq.appendleft(first)
            self.requeue(cur, cpu)

    def requeue(self, cur, cpu):
        cur.off = Off(cur, self.now, "R", None)
        cur.off.woken = self.now
        self.enqueue(cur, cpu)
        self.switch(cpu, cur.ident(), cur.off)

    def stop(self, th):
        """Take a thread off its CPU without deciding where it goes."""
        cpu = self.cpus[th.cpu]
        th.need = max(0, th.need - (self.now - max(cpu.on_since, th.run_from)))
        cpu.hist.append([cpu.on_since, self.now, th])
        cpu.cur, th.on = None, False
        cpu.token += 1
        self.charge(th.proc.cgroup, -1)

    def leave(self, th, state):
        """The running thread goes to sleep, or (state None) ends."""
        cpu = self.cpus[th.cpu]
        self.stop(th)
        th.need = 0
        off = None
        if state is not None:
            off = th.off = Off(th, self.now, state, None)
            th.seg(state, cpu.index)
        self.switch(cpu, th.ident(), off)

    def switch(self, cpu, prev, off=None):
        """Choose who runs next on a CPU that nobody has; `off` learns who it was."""
        nxt = self.pick(cpu)
        if off is not None:
            off.by = nxt.ident() if nxt else cpu.idle()
        if nxt is None:
            return
        cpu.cur, cpu.on_since, nxt.cpu, nxt.on = nxt, self.now, cpu.index, True
        cpu.slice_end = self.now + self.slice_ns
        if nxt.off:
            nxt.off.end, nxt.off.prev, nxt.off.cpu = self.now, prev, cpu.index
            nxt.offs.append(nxt.off)
            nxt.off = None
        if nxt.first_on is None:
            nxt.first_on = self.now
        nxt.seg(RUN, cpu.index)
        self.charge(nxt.proc.cgroup, +1)
        nxt.run_from = self.now
        if nxt.need > 0:
            self.arm(cpu)
        else:
            self.at(self.now, self.resume, nxt, cpu.token)

    def resume(self, th, token):
        if th.on and self.cpus[th.cpu].token == token:
            self.advance(th)

    def pick(self, cpu):
        if cpu.rq:
            return cpu.rq.popleft()
        for other in sorted(self.cpus, key=lambda c: -len(c.rq)):
            for th in list(other.rq):
                if other.cur is not None and cpu.index in self.allowed(th):
                    other.rq.remove(th)
                    return th
        return None

    def arm(self, cpu):
        """(Re)set the timer of a busy CPU: end of the wanted CPU time or of the slice."""
        th = cpu.cur
        if th is None:
            return
        if th.need <= 0:
            return  # between two operations, inside advance() or about to be resumed
        th.need -= self.now - th.run_from
        th.run_from = self.now
        cpu.token += 1
        when = self.now + th.need
        if cpu.rq:
            when = min(when, max(self.now, cpu.slice_end))
        self.at(when, self.tick, cpu, th, cpu.token)

    def tick(self, cpu, th, token):
        if cpu.token != token or cpu.cur is not th:
            return
        th.need -= self.now - th.run_from
        th.run_from = self.now
        if th.need <= 0:
            th.need = 0
            self.advance(th)
        elif cpu.rq:
            self.stop(th)
            self.requeue(th, cpu)
        else:
            self.arm(cpu)

    # ---- quotas

    def join_cgroup(self, proc, group):
        proc.cgroup = group
        group.procs.append(proc)
        if group not in self.cgroups:
            self.cgroups.append(group)
            self.at(self.now + group.period_ns, self.period, group)

    def charge(self, group, delta):
        """The number of running threads of a group changes: settle, and foresee its end."""
        if group is None:
            return
        group.left -= (self.now - group.since) * group.running
        group.since = self.now
        group.running += delta
        self.foresee(group)

    def foresee(self, group):
        group.token += 1
        if group.running > 0 and not group.throttled:
            self.at(self.now + max(0, group.left) // group.running, self.exhaust, group, group.token)

    def exhaust(self, group, token):
        if token != group.token or group.throttled:
            return
        group.throttled = True
        group.log.append((self.now, 1))
        for cpu in self.cpus:
            for th in [t for t in cpu.rq if t.proc.cgroup is group]:
                cpu.rq.remove(th)
                th.seg(QUOTA, cpu.index)
                group.parked.append(th)
        for cpu in self.cpus:
            th = cpu.cur
            if th and th.proc.cgroup is group:
                self.stop(th)
                th.off = Off(th, self.now, "R", None)
                th.off.woken = self.now
                th.seg(QUOTA, cpu.index)
                group.parked.append(th)
                self.switch(cpu, th.ident(), th.off)

    def period(self, group):
        self.charge(group, 0)
        group.left = min(group.left, 0) + group.quota_ns
        self.at(self.now + group.period_ns, self.period, group)
        if group.throttled and group.left > 0:
            group.throttled = False
            group.log.append((self.now, 0))
            parked, group.parked = group.parked, []
            for th in parked:
                self.place(th, th)
        self.foresee(group)
