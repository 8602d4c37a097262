"""Who hands work to whom, in shapes beyond a loader and its workers.

Rings and chains of processes, grandchildren, workers that serve several trainers,
ranks that wait for the slowest of them, a process that becomes another program.
"""

from engine import Queue
from workloads import MS, US, Train, call, messy_start, step, train, vary


def ring(works, helpers, processes, rounds):
    """A token goes round threads of this process and of others, each working on it, until it comes home."""

    def setup(th):
        sim = th.sim
        home, queues, turn = Queue(), [], []

        def node(mine, work):
            def script(me):
                while True:
                    left = yield ("get", mine)
                    yield from work()
                    at = queues.index(mine)
                    target = home if left == 0 else queues[(at + 1) % len(queues)]
                    sim.put(target, left - 1, me)
                    yield ("run", sim.rng.randint(2, 9) * US)

            return script

        for i in range(helpers):
            turn.append((th.proc, f"stage{i}"))
        for i in range(processes):
            turn.append((sim.process(f"peer{i}", th), f"peer{i}"))
        sim.rng.shuffle(turn)
        for proc, comm in turn:
            queues.append(Queue())
            proc.thread(node(queues[-1], works()), comm, th)

        def fetch(me):
            sim.put(queues[0], len(queues) * rounds - 1, me)
            yield ("run", sim.rng.randint(5, 40) * US)
            yield ("get", home)
            yield ("run", sim.rng.randint(5, 40) * US)

        return fetch

    return setup


def relay(works, depth):
    """The process asks its child, which works and asks its own child, and so on; the answers come back."""

    def setup(th):
        sim = th.sim
        mail = [(Queue(), Queue()) for _ in range(depth)]

        def stage(i, before, after):
            def script(me):
                if i + 1 < depth:
                    proc = sim.process(f"stage{i + 1}", me)
                    proc.thread(stage(i + 1, works(), works()), creator=me)
                    yield ("run", 100 * US)
                requests, replies = mail[i]
                while True:
                    yield ("get", requests)
                    yield from before()
                    if i + 1 < depth:
                        sim.put(mail[i + 1][0], 1, me)
                        yield ("run", 3 * US)
                        yield ("get", mail[i + 1][1])
                        yield from after()
                    sim.put(replies, 1, me)
                    yield ("run", 3 * US)

            return script

        proc = sim.process("stage0", th)
        proc.thread(stage(0, works(), works()), creator=th)

        def fetch(me):
            sim.put(mail[0][0], 1, me)
            yield ("run", 9 * US)
            yield ("get", mail[0][1])
            yield ("run", 9 * US)

        return fetch

    return setup


def forkserver(setup):
    """Another process forks the workers: they are grandchildren."""

    def start(th):
        ready, got = Queue(), []

        def server(me):
            yield ("run", 200 * US)
            fetch = setup(me)
            yield ("run", 300 * US)
            me.sim.put(ready, fetch, me)
            yield ("hang", None)

        th.sim.process("forkserver", th).thread(server, creator=th)

        def fetch(me):
            if not got:
                got.append((yield ("get", ready)))
            yield from got[0](me)

        return fetch

    return start


class Hub:
    """Workers of the first trainer that come by, serving all of them."""

    def __init__(self, n, work):
        self.n, self.work, self.tasks = n, work, None

    def setup(self, th):
        sim, reply = th.sim, Queue()
        if self.tasks is None:
            self.tasks = Queue()

            def serve(me):
                while True:
                    client = yield ("get", self.tasks)
                    yield from self.work()
                    sim.put(client, 1, me)
                    yield ("run", 3 * US)

            for i in range(self.n):
                sim.process("shared_worker", th).thread(serve, creator=th)

        def fetch(me):
            sim.put(self.tasks, reply, me)
            yield ("run", 9 * US)
            yield ("get", reply)
            yield ("run", 9 * US)

        return fetch


class Barrier:
    """A collective: its kernel ends when all ranks have begun it, and an interrupt tells each of them."""

    def __init__(self, sim, ranks):
        self.sim, self.ranks, self.waiting, self.here = sim, ranks, [], 0

    def arrive(self):
        self.here += 1
        if self.here == self.ranks:
            self.here = 0
            waiting, self.waiting = self.waiting, []
            for queue in waiting:
                self.sim.put(queue, 1, None)
            return None
        queue = Queue()
        self.waiting.append(queue)
        return queue


def rank(cfg, barrier, fetch):
    """A rank of a data-parallel run: its step ends with a collective and a synchronise that waits for it."""

    def script(th):
        rng, proc = th.sim.rng, th.proc
        proc.calls, proc.seen, proc.gpu_free, proc.cfg = [], set(), 0, cfg
        yield ("run", rng.randint(1, 5) * MS)
        yield from call(th, "cudaMalloc", [("run", 2 * MS)], True, True, bytes=1 << 28)
        done = 0
        while True:
            warmup = done < cfg.warm_steps
            if fetch and done >= cfg.gaps_from and rng.random() < cfg.gap_chance:
                yield from fetch(th)
            else:
                yield ("run", vary(rng, cfg.quick_ns))
            yield from step(th, cfg, warmup)
            yield from call(th, "ncclAllReduce", [("run", vary(rng, 9 * US))], warmup, done == 0, count=1 << 20, stream="0x7")
            queue = barrier.arrive()

            def wait():
                yield ("run", 4 * US)
                if queue is not None:
                    yield ("get", queue)
                if proc.gpu_free > th.sim.now:
                    yield ("sleep", proc.gpu_free - th.sim.now)  # its own kernels before the collective
                yield ("run", 3 * US)

            yield from call(th, "cudaStreamSynchronize", wait(), warmup, done == 0, stream="0x7")
            done += 1

    return script


def relaunched(first, second, pause_ns):
    """A training process that becomes another program, with a cold start of its own."""

    def script(th):
        yield from train(first)(th)
        th.sim.life.append((th.sim.now, "exec", th, th.proc))
        th.proc.execs.append(th.sim.now)
        th.comm = "relaunched"
        yield ("run", pause_ns)
        yield from train(second)(th)

    return script


# ---- kinds

def rings(s):
    s.cpus(s.rng.choice([2, 4, 8]))
    helpers, processes, rounds = s.rng.randint(0, 3), s.rng.randint(1, 3), s.rng.randint(1, 3)
    s.note(helpers=helpers, processes=processes, rounds=rounds)
    s.train(ring(lambda: s.work(2, 8), helpers, processes, rounds))
    s.noise()


def relays(s):
    s.cpus(s.rng.choice([2, 4, 8]))
    depth = s.rng.randint(2, 5)
    s.note(depth=depth)
    s.train(relay(lambda: s.work(2, 12), depth))
    s.noise()


def grandchildren(s):
    s.train(forkserver(s.workers(pin=False)))
    s.noise()


def shared_workers(s):
    s.cpus(s.rng.choice([4, 8]))
    hub = Hub(s.rng.choice([1, 2, 3]), s.work())
    for i in range(s.rng.randint(2, 3)):
        s.train(hub.setup, comm=f"train{i}")


def ranks(s):
    """Data-parallel training: one rank is late, and the others wait for it inside their synchronise."""
    n = s.rng.choice([2, 4])
    s.cpus(8)
    barrier = Barrier(s.sim, n)
    for i in range(n):
        cfg = Train(s.rng)
        cfg.drain, cfg.gap_chance = False, s.rng.choice([0.3, 1.0])
        cfg.cold_ns = 5 * MS
        fetch = None
        if i == 0:
            work = s.work(10, 40, s.rng.choice([["run"], ["io"], ["run", "sleep"]]))

            def fetch(me, work=work):
                yield from work()

        proc = s.other(f"rank{i}", rank(cfg, barrier, fetch))
        proc.calls, proc.cfg = [], cfg
        s.trains.append(proc)


def becomes_another(s):
    s.cpus(8)
    s.healthy = True
    s.end_ns = s.ms(3500, 4500)
    first, second = Train(s.rng), Train(s.rng)
    for cfg in (first, second):
        cfg.gap_chance, cfg.fetch = 0.0, None
    first.steps, first.leaves = s.rng.randint(20, 40), True
    second.prelude = messy_start(s.rng.randint(0, 10))
    proc = s.other("launcher", relaunched(first, second, s.ms(50, 900)))
    proc.calls, proc.cfg = [], second
    s.trains.append(proc)


KINDS = (rings, relays, grandchildren, shared_workers, ranks, becomes_another)
