"""A scenario from a seed: the machine, who is on it, what is watched, what gets lost."""

import random

import loops
import relays
import rhythms
import workloads as w
from engine import Cgroup, Queue, Sim
from tangle import Tangle
from workloads import MS, US
from world import World


STRIDE = 31  # prime, and no divisor of the number of kinds


class Scenario:
    def __init__(self, seed, only=None, lossy=False):
        self.seed, self.lossy = seed, lossy
        self.rng = random.Random(f"sim-{seed}")
        names = sorted(KINDS)
        # each kind comes once in as many seeds as there are kinds, neighbours far apart
        self.kind = only or names[seed * STRIDE % len(names)]
        self.notes, self.trains, self.foreign, self.asked = [], [], [], []
        self.healthy, self.cut_ends = False, 0
        self.lost, self.start_ns, self.late = [], 0, {}
        self.killed, self.steal = None, {}  # the tracer that gets a SIGKILL; percent stolen, by second
        self.periodic = self.slowed = self.hung = False
        self.gpu_sampled = self.launch_bound = self.copies = False  # the driver's counter is on record; what the loop is made of
        self.begins = None  # (process, part of an operation's name, n): the recording begins right before the n-th call of it
        self.ends_with = self.sampling = None
        self.end_ns = self.rng.randint(900, 2400) * MS
        ncpu = self.rng.choice([2, 3, 4, 8])
        self.sim = Sim(ncpu, self.rng, slice_ns=self.rng.choice([1, 3, 4]) * MS, wake_preempt=self.rng.choice([0.0, 0.3, 0.8]))
        KINDS[self.kind](self)
        self.mishaps()
        self.world = self.run()

    # ---- pieces

    def note(self, **facts):
        self.notes.append(" ".join(f"{k}={v}" for k, v in facts.items()))

    def cpus(self, n):
        """A machine with another number of CPUs."""
        self.sim.cpus[:] = type(self.sim)(n, self.rng).cpus

    def train(self, setup=None, gap_chance=None, pin=None, comm=None, cgroup=None, at=0, pid=None, **more):
        cfg = w.Train(self.rng)
        comm = comm or self.rng.choice(["train", "python3", "pt_main_thread", "tr\"ain\\", "\u202eniart", "t\u00e4ner \u2028"])
        cfg.gap_chance = self.rng.choice([0.2, 0.6, 1.0]) if gap_chance is None else gap_chance
        for key, value in more.items():
            setattr(cfg, key, value)

        def start():
            proc = self.sim.process(comm, pid=pid)
            if cgroup:
                self.sim.join_cgroup(proc, cgroup)
            proc.thread(w.train(cfg, setup), allowed=pin)
            proc.calls, proc.cfg = [], cfg
            self.trains.append(proc)

        if at:
            self.sim.at(at, start)
        else:
            start()
        return cfg

    def other(self, comm, script, threads=1, allowed=None, pid=None):
        proc = self.sim.process(comm, pid=pid)
        for _ in range(threads):
            proc.thread(script, allowed=allowed)
        return proc

    def noise(self):
        for i in range(self.rng.randint(0, 2)):
            self.other(f"kworker/{i}:1", w.hog(self.rng.randint(5, 40) * US, self.rng.randint(1, 8) * MS))

    def ms(self, low, high):
        return self.rng.randint(low, high) * MS

    def work(self, low=6, high=40, kinds=None):
        kinds = kinds or self.rng.choice([["run"], ["io"], ["sleep"], ["run", "io"], ["run", "run", "sleep"], ["run", "io", "sleep"]])
        ns = self.ms(low, high)
        self.note(work="+".join(kinds), ns=ns)
        return w.mix(self.rng, ns, kinds)

    def workers(self, work=None, **more):
        opts = dict(n=self.rng.choice([1, 1, 2, 4]), depth=self.rng.choice([0, 0, 1, 2]),
                    feeder=self.rng.choice([None, "thread", "lazy", "item"]), pin=self.rng.random() < 0.4)
        opts.update(more)
        self.note(workers=opts["n"], depth=opts["depth"], feeder=opts["feeder"], pin=opts["pin"])
        return w.workers(work=work or self.work(), **opts)

    # ---- what goes wrong with the tracing, not with the machine

    def mishaps(self):
        rng = self.rng
        self.inversion = rng.choice([0, 0, 50 * US, 2 * MS, 20 * MS])
        self.thread_ends = rng.choice(["thread_exit", "sched_process_exit"])
        self.newborns = rng.random() < 0.7
        self.late_children = rng.random() < 0.06
        self.irq_style = rng.choice(["absent", "irq", "shown"])
        self.straddle = rng.choice(["clip", "full", "none"])
        if rng.random() < 0.15:
            self.start_ns = rng.randint(50, 600) * MS
            self.end_ns += self.start_ns
            self.note(trace_starts=self.start_ns)
        if self.cut_ends:
            pass  # placed when it is known where they are
        elif self.lossy or rng.random() < 0.12:
            stream = rng.choice(["cuda", "sched"])
            for _ in range(rng.randint(1, 3)):
                at = rng.randint(self.start_ns, self.end_ns - 60 * MS)
                self.lost.append((stream, at, at + rng.choice([300 * US, 5 * MS, 50 * MS]), rng.choice([1.0, 0.5])))
            self.note(lost=self.lost)
        self.sched_stops = rng.randint(self.start_ns + self.end_ns, 2 * self.end_ns) // 2 if rng.random() < 0.06 else None
        self.stateless = rng.random() < 0.06
        self.nested = rng.random() < 0.1
        # above 2^53 a double no longer holds each nanosecond
        self.base = rng.choice([1_000_000_000, 1_000_000_000, 86_400_000_000_007, (1 << 53) + 12_345_679])
        self.sched_late = rng.random() < 0.06

    def settle_ends(self):
        """Where the recording begins and ends, now that it is known what happened."""
        self.end_ns = self.sim.now
        if self.begins:
            proc, what, n = self.begins
            mine = [c for c in proc.calls if what in c.op]
            if len(mine) > 2 * n:
                self.start_ns = mine[n].start - 1
                self.note(begins=what, trace_starts=self.start_ns)
        if self.start_ns > self.end_ns // 2 and not self.begins:
            self.start_ns = 0
        self.lost = [span for span in self.lost if span[1] >= self.start_ns and span[2] < self.end_ns - MS]
        if self.sched_stops and not self.start_ns < self.sched_stops < self.end_ns:
            self.sched_stops = None

    def run(self):
        sim, rng = self.sim, self.rng
        sim.run_until(self.end_ns)
        self.settle_ends()
        world = World(sim, self.start_ns, self.end_ns, rng, self.base)
        world.inversion_ns, world.irq_style, world.straddle = self.inversion, self.irq_style, self.straddle
        world.nested, world.lost, world.thread_ends = self.nested, self.lost, self.thread_ends
        world.newborns, world.steal = self.newborns, self.steal
        world.gpu_sampled, world.sampling = self.gpu_sampled, self.sampling
        if self.sched_stops:
            world.sched_end = self.sched_stops
            self.note(sched_stops=world.sched_end)
        for proc in self.trains:
            at = max(self.start_ns, proc.born + 1)
            if proc.died is not None and proc.died <= at:
                continue
            world.cuda_watch[proc] = at
            late = at + ((proc.died or self.end_ns) - at) // 3 if self.sched_late else at
            world.sched_watch[proc] = late
            world.why[proc] = "cuda"
            if late != at:
                self.note(sched_late=late)
        for proc in sim.procs:
            top = proc
            while top is not None and top not in world.sched_watch:
                top = top.parent
            if top is not None and proc not in world.sched_watch:
                at = max(self.start_ns, proc.born)
                if proc.died is None or proc.died > at:
                    if self.late_children:
                        at += rng.randint(0, ((proc.died or self.end_ns) - at) // 2)
                    world.sched_watch[proc] = max(at, world.sched_watch[top])
                    world.why[proc] = "child"
            if proc in self.asked:
                late = rng.randint(0, self.end_ns - self.start_ns) // 2 if self.late_children else 0
                world.sched_watch[proc], world.why[proc] = self.start_ns + late, "asked"
        for proc in self.trains:
            if proc.execs and world.sched_watch.get(proc, self.end_ns) > proc.execs[0]:
                # nobody saw it become another program
                proc.execs, self.healthy = [], False
        if self.late_children:
            self.note(late_children=True)
        if self.stateless:
            for proc in self.trains:
                for off in [o for th in proc.threads for o in th.offs if o.state != "R"]:
                    if rng.random() < 0.5:
                        world.stateless.add(off)
            self.note(stateless=len(world.stateless))
        if self.cut_ends:
            long = [o.end for p in self.trains for th in p.threads for o in th.offs if o.state == "D" and o.end - o.start > 30 * MS]
            if self.lossy == "cuda":
                long = [c.end for p in self.trains for c in p.calls if c.end is not None and c.end - c.start > 30 * MS]
            world.lost = [(self.lossy, end - self.cut_ends, end + self.cut_ends // 2, 1.0) for end in sorted(long)[2:8]]
            self.lost = world.lost
            self.note(lost=world.lost)
        if self.killed:
            world.kill(self.killed, self.start_ns + (self.end_ns - self.start_ns) * rng.randint(40, 80) // 100)
        self.cuda, self.sched = world.render()
        return world

    def __str__(self):
        return f"{self.kind} cpus={len(self.sim.cpus)} irq={self.irq_style} straddle={self.straddle} inversion={self.inversion} " + "; ".join(self.notes)


# ---- kinds

def healthy(s):
    s.cpus(8)
    s.healthy = True
    s.train(gap_chance=0.0)
    for _ in range(s.rng.randint(0, 2)):
        s.other("sshd", w.hog(s.rng.randint(20, 300) * US, s.ms(1, 9)))


def healthy_fed(s):
    """Workers that are always ahead: they work, wait and are preempted, and nobody waits for them."""
    s.cpus(8)
    s.healthy = True
    s.train(w.workers(n=4, work=w.mix(s.rng, 2 * MS, ["run", "io"]), depth=40, feeder=s.rng.choice([None, "thread"])), gap_chance=1.0,
            gpu_ns=8 * MS, gpu_slow=(0, 0), drain=True)


def gpu_bound(s):
    s.cpus(8)
    s.healthy = True
    s.train(gap_chance=0.0, gpu_ns=s.ms(8, 60), drain=True)


def cold_start(s):
    s.cpus(8)
    s.healthy = True
    n = s.rng.randint(4, 25)
    s.note(prelude=n)
    s.end_ns = s.ms(3000, 4500)
    s.train(gap_chance=0.0, prelude=w.messy_start(n))


def ending(s):
    """A healthy process that ends while it is watched."""
    s.cpus(8)
    s.healthy = True
    s.end_ns = s.ms(3000, 4500)
    s.train(gap_chance=0.0, steps=s.rng.randint(60, 200), winds_down=True, exits=True)


def all_sizes(s):
    s.cpus(8)
    s.healthy = True
    s.train(gap_chance=0.0, any_size=True)


def big_batches(s):
    s.end_ns = s.ms(3000, 5000)
    how = s.rng.randrange(3)
    work = s.work(150, 400, s.rng.choice([["run"], ["run", "io"]]))
    s.train(s.workers(work) if how == 0 else w.pool(2, work) if how == 1 else w.plain(w.own(work)), gap_chance=1.0, prelude=w.messy_start(s.rng.randint(0, 6)))
    s.noise()


def own(s):
    s.train(w.plain(w.own(s.work())))
    s.noise()


def fed(s):
    s.train(s.workers())
    s.noise()


def fed_slow_disk(s):
    s.train(s.workers(s.work(10, 50, ["io", "io", "run"])))


def fed_contended(s):
    s.cpus(s.rng.choice([2, 3]))
    s.train(s.workers(s.work(5, 25, ["run"])))
    s.other("blender", w.hog(s.ms(5, 60), s.rng.choice([0, 200 * US])), threads=s.rng.randint(1, 4))


def fed_locked(s):
    s.train(s.workers(s.work(4, 15), n=s.rng.randint(2, 4), lock=Queue([1]), depth=s.rng.randint(0, 3)))


def fed_by_service(s):
    requests, replies = Queue(), Queue()
    proc = s.other("redis-server", w.server(requests, replies, s.work(3, 20)))
    if s.rng.random() < 0.5:
        s.asked.append(proc)
        s.note(asked=proc.pid)
    s.train(s.workers(s.work(3, 20), n=1, service=(requests, replies)))


def pooled(s):
    n = s.rng.choice([1, 2, 4])
    per_item = s.rng.random() < 0.5
    s.note(threads=n, per_item=per_item)
    s.train(w.pool(n, s.work(), per_item))
    s.noise()


def children(s):
    early = s.rng.choice([None, w.mix(s.rng, 300 * US, ["run"]), s.work(2, 8)])
    s.train(w.child(s.work(), early))
    s.noise()


def fed_throttled(s):
    s.cpus(8)
    group = Cgroup("/jobs/loader", s.ms(15, 50))
    s.note(quota=group.quota_ns)
    s.train(s.workers(s.work(10, 40, s.rng.choice([["run"], ["run", "run", "io"]])), cgroup=group))


def fed_by_epochs(s):
    every = s.rng.randint(2, 6)
    s.note(epoch=every)
    s.train(w.epochs(every, s.workers(depth=0, pin=False, feeder=s.rng.choice([None, "item"]))))


def polled(s):
    every = s.rng.randint(1, 5) * MS
    s.note(every=every)
    s.train(w.polling(s.work(8, 40), every))


def asking(s):
    requests, replies = Queue(), Queue()
    proc = s.other("postgres", w.server(requests, replies, s.work()))
    if s.rng.random() < 0.5:
        s.asked.append(proc)
        s.note(asked=proc.pid)
    s.train(w.plain(w.ask(requests, replies)))


def pinging(s):
    rounds = s.rng.randint(3, 20)
    s.note(rounds=rounds)
    s.train(w.ping_pong(rounds, w.mix(s.rng, s.ms(1, 3), ["run"]), w.mix(s.rng, s.ms(1, 3), s.rng.choice([["run"], ["io"], ["run", "sleep"]]))))


def newborn(s):
    cfg = s.train(None)
    setup = w.newborn_caller(cfg, s.work(3, 15), s.work(3, 20))
    s.trains[0].threads[0].gen = w.train(cfg, setup)(s.trains[0].threads[0])


def contended(s):
    s.cpus(s.rng.choice([2, 4]))
    pin = [0] if s.rng.random() < 0.7 else None
    s.note(pin=pin)
    s.train(w.plain(w.own(s.work(5, 30, s.rng.choice([["run"], ["run", "sleep"]])))), pin=pin)
    s.other("blender", w.hog(s.ms(5, 60), s.rng.choice([0, 300 * US])), threads=s.rng.randint(1, 3) * (1 if pin else len(s.sim.cpus)), allowed=pin)


def quota(s):
    s.cpus(8)
    group = Cgroup("/jobs/train", s.ms(20, 60))
    s.note(quota=group.quota_ns)
    if s.rng.random() < 0.5:
        s.train(w.plain(w.own(s.work(15, 60, ["run"]))), cgroup=group)
    else:
        s.train(s.workers(s.work(10, 40, s.rng.choice([["run"], ["run", "io"]]))), cgroup=group)


def quota_and_neighbours(s):
    s.cpus(2)
    group = Cgroup("/jobs/train", s.ms(30, 90))
    s.note(quota=group.quota_ns)
    s.train(w.plain(w.own(s.work(15, 60, ["run"]))), cgroup=group)
    s.other("blender", w.hog(s.ms(5, 60), 500 * US), threads=s.rng.randint(1, 3))


def slow_launches(s):
    kind = s.rng.choice(["sleep", "io", "run"])
    ns, chance = s.ms(2, 12), s.rng.choice([0.002, 0.01, 0.05])
    s.note(slow=kind, ns=ns, chance=chance)
    s.train(gap_chance=0.0, slow=[("cudaLaunchKernel", chance, kind, ns)])
    s.noise()


def slow_copies(s):
    kind = s.rng.choice(["sleep", "io", "run"])
    ns, chance = s.ms(5, 30), s.rng.choice([0.02, 0.1])
    s.note(slow=kind, ns=ns, chance=chance)
    s.train(gap_chance=0.0, slow=[("cudaMemcpyAsync", chance, kind, ns)])


def slow_gpu(s):
    chance, extra = s.rng.choice([0.02, 0.1]), s.ms(20, 120)
    s.note(chance=chance, extra=extra)
    s.train(gap_chance=0.0, gpu_slow=(chance, extra), drain=True)


def preempted_calls(s):
    s.cpus(2)
    s.train(gap_chance=0.0, pin=[0], launches=60, launch_ns=60 * US, between_ns=4 * US)
    s.other("render", w.hog(s.ms(2, 8), s.ms(5, 30)), allowed=[0])


def throttled_calls(s):
    s.cpus(4)
    group = Cgroup("/jobs/train", s.ms(40, 70))
    s.note(quota=group.quota_ns)
    s.train(gap_chance=0.0, launches=60, launch_ns=60 * US, between_ns=4 * US, cgroup=group, gpu_ns=1 * MS)


def late_functions(s):
    s.healthy = True
    s.cpus(8)
    s.train(gap_chance=0.0, new_func=0.03, cold_ns=s.ms(20, 200))


def pipeline(s):
    """One CUDA process waits for another one."""
    s.cpus(s.rng.choice([4, 8]))
    requests, replies = Queue(), Queue()
    cfg = w.Train(s.rng)
    cfg.gpu_ns = s.ms(5, 30)
    proc = s.other("serve", w.infer(cfg, requests, replies))
    proc.calls, proc.cfg = [], cfg
    s.trains.append(proc)
    s.train(w.plain(w.ask(requests, replies)))


def two_trains(s):
    s.cpus(8)
    s.train(s.workers())
    s.train(w.plain(w.own(s.work())), comm="infer")
    if s.rng.random() < 0.5:
        s.train(gap_chance=0.0, comm="serve")


def two_callers(s):
    cfg = s.train(None)
    fetch = w.plain(w.own(s.work()))
    every = s.ms(3, 12)
    s.note(side_every=every)

    def setup(th):
        th.proc.thread(w.side_caller(cfg, every, th), "copier", th)
        return fetch(th)

    s.trains[0].threads[0].gen = w.train(cfg, setup)(s.trains[0].threads[0])


def reused(s):
    """A training process ends; another one gets its PID."""
    s.sim.next_id = 500
    steps = s.rng.randint(15, 40)
    first = w.either([w.plain(w.own(s.work(5, 15))), w.pool(2, s.work(3, 9))], s.rng.choice([[1, 0], [1, 1]]))
    s.train(first, pid=300, steps=steps, exits=True, cold_ns=5 * MS)

    def again():
        first = s.trains[0]
        if first.died is None:
            s.sim.at(s.sim.now + 5 * MS, again)
            return
        s.note(again=s.sim.now)
        if s.rng.random() < 0.5:
            s.train(s.workers(), pid=300, comm="train2", cold_ns=5 * MS)
        else:
            s.other("innocent", w.hog(50 * MS, 0), pid=300)

    s.sim.at(50 * MS, again)


def stalled(s):
    how = s.rng.choice(["io", "sleep", "run"])
    s.note(stall=how)
    steps = s.rng.randint(20, 40)
    s.end_ns = s.ms(3500, 4500)
    done = []

    def fetch(me):
        done.append(1)
        if len(done) > steps:
            yield (how, 10_000 * MS)
        yield ("run", 100 * US)

    s.train(w.plain(fetch), gap_chance=1.0)


def hung(s):
    s.end_ns = s.ms(3500, 4500)
    s.train(gap_chance=0.0, hang_at=s.rng.randint(20, 40))


def lost_ends(s):
    """Long intervals whose records were lost at their ends, the only time when anything is written of them."""
    s.end_ns = s.ms(3000, 4000)
    s.lossy = s.rng.choice(["cuda", "sched"])
    if s.lossy == "sched":
        s.train(w.plain(w.own(w.mix(s.rng, s.ms(150, 400), ["io"]))), gap_chance=0.15)
    else:
        s.train(gap_chance=0.0, slow=[("cudaMemcpyAsync", 0.03, "sleep", s.ms(150, 400))])
    s.cut_ends = 2 * MS


def tangled(s):
    s.cpus(s.rng.choice([2, 4, 8]))
    t = Tangle(s.rng, s.rng.randint(2, 7))
    s.note(kinds="+".join(t.kinds), longest=t.longest)
    proc = s.other("stranger", t.forever, threads=s.rng.randint(0, 2))
    proc.thread(t.metronome)
    if s.rng.random() < 0.4:
        s.asked.append(proc)
    s.train(t.setup)


def mixed(s):
    s.cpus(s.rng.choice([2, 4, 8]))
    s.train(w.either([s.workers(), w.pool(2, s.work()), w.child(s.work()), w.plain(w.own(s.work()))], [4, 2, 1, 2]),
            slow=[("cudaLaunchKernel", 0.003, "sleep", 4 * MS)])
    if s.rng.random() < 0.5:
        s.other("blender", w.hog(s.ms(5, 60), 300 * US), threads=s.rng.randint(1, 3))
    s.noise()


KINDS = {f.__name__: f for f in (
    healthy, healthy_fed, gpu_bound, cold_start, ending, all_sizes, big_batches, own, fed, fed_throttled, fed_by_epochs, polled, fed_slow_disk, fed_contended, fed_locked, fed_by_service, pooled, children, asking, pinging,
    newborn, contended, quota, quota_and_neighbours, slow_launches, slow_copies, slow_gpu, preempted_calls, throttled_calls, late_functions,
    two_trains, pipeline, lost_ends, two_callers, reused, stalled, hung, mixed, tangled, *relays.KINDS, *rhythms.KINDS, *loops.KINDS)}
